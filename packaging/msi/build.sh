#!/usr/bin/env bash
# Packs a Windows executable as an MSI. The same executable, version and time give the same bytes.
#
#   packaging/msi/build.sh EXE VERSION MSI [POWERSHELL]   POWERSHELL: a folder with its files, if they are signed
set -euo pipefail
exe=$(realpath "$1") version_of_msi=$2 msi=$(realpath -m "$3")
powershell=${4:+$(realpath "$4")}
source "$(dirname "$0")/../pack.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage_windows "$exe" "$work/files" "${powershell:-packaging/powershell}"
date_all "$work/files"
source=$PWD/packaging/msi
# wixl writes the time of day into the MSI. The clock stands still for it.
(cd "$work/files" && TZ=UTC faketime -f "$(date -u -d "@$epoch" '+%F %T')" wixl --arch x64 \
    -D Version="$version_of_msi" -D ProductCode="$(product_code "$version_of_msi")" \
    -D ModuleCode="$(uuid "module $version_of_msi")" -o "$work/msi" "$source/calicoctl-win.wxs")
# Two MSIs with one package code are the same file to Windows Installer, so it depends on every file. wixl makes a
# random one. It also has no row for PATH.
content=$(cd "$work/files" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
msibuild "$work/msi" -i "$source/Environment.idt" \
    -q "INSERT INTO \`InstallExecuteSequence\` (\`Action\`, \`Sequence\`) VALUES ('RemoveEnvironmentStrings', 3300)" \
    -q "INSERT INTO \`InstallExecuteSequence\` (\`Action\`, \`Sequence\`) VALUES ('WriteEnvironmentStrings', 5200)" \
    -s "calicoctl-win $version_of_msi" "The developers of calicoctl-win" "x64;1033" \
    "{$(uuid "package $version_of_msi $content")}"
mkdir -p "$(dirname "$msi")"
mv "$work/msi" "$msi"
