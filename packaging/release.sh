#!/usr/bin/env bash
# Builds the release files in target/artifacts. docs/getting.md says what they are. The same commit and tools give the
# same bytes.
#
#   packaging/release.sh                    builds the executables and packs them
#   packaging/release.sh --check EXE LINUX  packs two executables twice, compares and checks the files; builds nothing
#
# From the environment, all optional:
#   CALICOCTL_WIN_RELEASE_URL   the folder where the files will be downloaded; without it no manifests are made
#   CALICOCTL_WIN_SIGNING_KEY, CALICOCTL_WIN_SIGNING_CERTIFICATES
#                               sign the .exe, the MSI and the PowerShell files: a private key and its certificates, as
#                               PEM text
#   CALICOCTL_WIN_TIMESTAMP_URL a server that confirms the time of the signatures; their bytes differ each time
set -euo pipefail
source "$(dirname "$0")/pack.sh"
install_missing zip unzip wixl msitools faketime python3 osslsigncode openssl
# What wixl, cargo-cyclonedx and nupkg.py write as the time.
export SOURCE_DATE_EPOCH=$epoch
# No program that this runs, except osslsigncode, gets the key.
signing_key=${CALICOCTL_WIN_SIGNING_KEY:-}
unset CALICOCTL_WIN_SIGNING_KEY
windows=calicoctl-win-$version-x86_64-windows
linux=calicoctl-win-$version-x86_64-linux

# Signs a file with the key in the environment.
sign() { # file
    [ -n "$signing_key" ] || return 0
    # Files that only this user can read: a key must not be in an argument.
    local key=$work/signing-key certificates=$work/signing-certificates stamp=(-time "$epoch")
    (umask 077 && printf '%s\n' "$signing_key" >"$key")
    printf '%s\n' "${CALICOCTL_WIN_SIGNING_CERTIFICATES:?must be set with the key}" >"$certificates"
    [ -z "${CALICOCTL_WIN_TIMESTAMP_URL:-}" ] || stamp=(-ts "$CALICOCTL_WIN_TIMESTAMP_URL")
    osslsigncode sign -certs "$certificates" -key "$key" -h sha256 -n calicoctl-win "${stamp[@]}" \
        -in "$1" -out "$work/signed" >/dev/null
    rm "$key"
    mv "$work/signed" "$1"
}

# Fills a folder with the PowerShell files, signed: a policy may allow only signed scripts.
powershell() { # folder
    rm -rf "$1"
    mkdir -p "$1"
    cp -r packaging/powershell/{CalicoctlWin,scripts} "$1/"
    [ -n "$signing_key" ] || return 0
    signs_scripts || { echo "not signed: the PowerShell files, which osslsigncode 2.8 or later signs" >&2 && return; }
    local file
    for file in "$1"/*/*.ps*1*; do sign "$file"; done
}

# Fills a folder with the completion scripts, which are the same on every system; that for PowerShell is signed too.
completions() { # executable of this machine, folder
    rm -rf "$2"
    mkdir -p "$2"
    "$1" completion bash >"$2/calicoctl-win.bash"
    "$1" completion zsh >"$2/_calicoctl-win"
    "$1" completion fish >"$2/calicoctl-win.fish"
    "$1" completion powershell >"$2/calicoctl-win.ps1"
    ! signs_scripts || sign "$2/calicoctl-win.ps1"
}

pack_zip() { # signed executable, where to
    local folder=$work/$windows
    rm -rf "$folder"
    stage_windows "$1" "$folder" "$work/powershell"
    cp -r "$work/completion" "$folder/"
    date_all "$folder"
    # Names sorted, no folders, no users or extra times; zip writes local time, so UTC.
    (cd "$work" && find "$windows" -type f | LC_ALL=C sort | TZ=UTC zip -q -9 -X -D "$2/$windows.zip" -@)
}

pack_tar() { # executable of this machine, where to
    local folder=$work/$linux
    rm -rf "$folder"
    mkdir -p "$folder"
    install -m 755 "$1" "$folder/calicoctl-win"
    install -m 644 LICENSE README.md CHANGELOG.md "$folder/"
    cp -r "$work/completion" "$folder/"
    # What a pipeline provisions machines with.
    mkdir "$folder"/{ansible,hostprocess}
    cp -r packaging/terraform "$folder/"
    rm -r "$folder"/terraform/{check.py,check.sh,tests}
    cp -r packaging/ansible/calicoctl_win "$folder/ansible/"
    cp packaging/hostprocess/{install,job}.yaml "$folder/hostprocess/"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$work" -c "$linux" |
        gzip -9 -n >"$2/$linux.tar.gz"
}

# The PowerShell module as a repository of modules takes it. The tags are those by which Find-Module finds functions.
pack_module() { # where to
    local module=$work/powershell/CalicoctlWin functions function
    local tags="PSModule PSEdition_Desktop PSEdition_Core PSIncludes_Function"
    functions=$(sed -n "s/^        '\([A-Z][A-Za-z]*-Calico[A-Za-z]*\)',\{0,1\}$/\1/p" "$module/CalicoctlWin.psd1")
    for function in $functions; do tags+=" PSFunction_$function PSCommand_$function"; done
    tags+=" Calico Kubernetes Windows CNI HNS"
    sed -e "s/@VERSION@/$version/" -e "s/@TAGS@/$tags/" packaging/powershell/CalicoctlWin.nuspec >"$work/CalicoctlWin.nuspec"
    packaging/nupkg.py "$work/CalicoctlWin.nuspec" "$module" "$1/CalicoctlWin.$version.nupkg"
}

# What the .exe is built from, by cargo-cyclonedx. It names the folder of the sources, which is another one elsewhere.
pack_sbom() { # where to
    cargo_tool cargo-cyclonedx 0.5.9
    cargo cyclonedx --format json --spec-version 1.5 --target x86_64-pc-windows-gnu --override-filename sbom --quiet
    sed "s|path+file://$PWD|path+file:///calicoctl-win|g" sbom.json >"$1/calicoctl-win-$version.cdx.json"
    rm sbom.json
}

# The manifests of winget, Scoop and Chocolatey for the packed files.
manifests() { # where to
    [ -n "${CALICOCTL_WIN_RELEASE_URL:-}" ] || return 0
    local fill=(-e "s|@VERSION@|$version|g" -e "s|@URL@|${CALICOCTL_WIN_RELEASE_URL%/}|g"
        -e "s|@MSI_SHA256@|$(sha256 "$1/$windows.msi")|g" -e "s|@ZIP_SHA256@|$(sha256 "$1/$windows.zip")|g"
        -e "s|@PRODUCT_CODE@|$(product_code "$version")|g" -e "s|@UPGRADE_CODE@|$upgrade_code|g") file chocolatey=$work/chocolatey
    mkdir -p "$1/winget" "$1/scoop"
    rm -rf "$chocolatey"
    mkdir -p "$chocolatey/content/tools"
    for file in packaging/winget/*.yaml; do sed "${fill[@]}" "$file" >"$1/winget/${file##*/}"; done
    sed "${fill[@]}" packaging/scoop/calicoctl-win.json >"$1/scoop/calicoctl-win.json"
    sed "${fill[@]}" packaging/chocolatey/calicoctl-win.nuspec >"$chocolatey/calicoctl-win.nuspec"
    sed "${fill[@]}" packaging/chocolatey/tools/chocolateyinstall.ps1 >"$chocolatey/content/tools/chocolateyinstall.ps1"
    packaging/nupkg.py "$chocolatey/calicoctl-win.nuspec" "$chocolatey/content" "$1/calicoctl-win.$version.nupkg"
}

pack() { # executable for Windows, executable of this machine, where to
    mkdir -p "$3"
    powershell "$work/powershell"
    completions "$2" "$work/completion"
    install -m 755 "$1" "$3/$windows.exe"
    sign "$3/$windows.exe"
    pack_zip "$3/$windows.exe" "$3"
    packaging/msi/build.sh "$3/$windows.exe" "$version" "$3/$windows.msi" "$work/powershell"
    sign "$3/$windows.msi"
    pack_tar "$2" "$3"
    pack_module "$3"
    packaging/docs/build.sh "$3/calicoctl-win-$version.html"
    pack_sbom "$3"
    manifests "$3"
    (cd "$3" && find . -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >"$work/sums" &&
        mv "$work/sums" SHA256SUMS)
}

need_rust
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = --check ]; then
    exe=${2:?which executable for Windows?} own=${3:?which executable of this machine?}
    make_ca "$work/ca"
    signing_key=$(cat "$work/ca/key.pem")
    CALICOCTL_WIN_SIGNING_CERTIFICATES=$(cat "$work/ca/certificate.pem")
    CALICOCTL_WIN_RELEASE_URL=https://example.com/calicoctl-win/$version
    for turn in one two; do pack "$exe" "$own" "$work/$turn"; done
    diff -r "$work/one" "$work/two"
    echo "the same bytes twice:"
    cat "$work/one/SHA256SUMS"
    packaging/packages-check.sh "$work/one" "$work/ca/ca.pem"
    exit
fi

if [ -n "$signing_key" ] && ! signs_scripts; then
    echo "error: the PowerShell files cannot be signed: install osslsigncode 2.8 or later, or build without a key" >&2
    exit 1
fi
packaging/wine/prepare.sh
install_missing musl-tools
rustup target add x86_64-unknown-linux-musl
# No path of this machine, and no time of day, in the build.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$PWD=."
for registry in "$cargo_home"/registry/src/*; do
    RUSTFLAGS+=" --remap-path-prefix=$registry=crates"
done
export RUSTFLAGS
cargo fetch --locked --quiet
# cargo-auditable adds the list of dependencies to the executable, 4 kB, so that scanners find what is in it.
cargo_tool cargo-auditable 0.7.7
# Static: for pipelines, whatever their image is.
own=$PWD/target/x86_64-unknown-linux-musl/dist/calicoctl-win
CC_x86_64_unknown_linux_musl=musl-gcc cargo auditable build --locked --profile dist --bin calicoctl-win \
    --target x86_64-unknown-linux-musl
exe=$(RUSTFLAGS="$RUSTFLAGS -Clink-arg=-Wl,--no-insert-timestamp" CARGO_BUILD='cargo auditable' \
    packaging/wine/build.sh --profile dist)

out=$PWD/target/artifacts
rm -rf "$out"
pack "$exe" "$own" "$out"
[ -n "$signing_key" ] || echo "not signed: CALICOCTL_WIN_SIGNING_KEY is not set" >&2
[ -n "${CALICOCTL_WIN_RELEASE_URL:-}" ] || echo "no manifests: CALICOCTL_WIN_RELEASE_URL is not set" >&2
packaging/packages-check.sh "$out"
cat "$out/SHA256SUMS"
