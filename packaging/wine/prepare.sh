#!/usr/bin/env bash
# Makes ready what the Windows tests need on Debian or Ubuntu: mingw, Wine, the Rust target, and
# target/wine/template, a Wine prefix that says it is Windows Server 2022. Quick when all is there.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
wine_dir=target/wine
template=$PWD/$wine_dir/template

install_missing wine64 wine gcc-mingw-w64-x86-64
# Where rustup has no Windows target to give, build.sh takes Debian's compiler and builds the
# standard library with it.
if ! rustup target list --installed 2>/dev/null | grep -qx x86_64-pc-windows-gnu &&
    ! rustup target add x86_64-pc-windows-gnu; then
    install_missing rustc-web cargo-web rust-web-src
fi

# Everything that decides what the template looks like.
stamp=$(cat packaging/wine/{prepare.sh,bcryptprimitives.c,server2022.reg} <(wine --version 2>/dev/null) | sha256sum)
if [ -d "$template" ] && [ "$(cat "$wine_dir/stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi

echo "preparing a Wine prefix in $wine_dir" >&2
rm -rf "$wine_dir"
mkdir -p "$wine_dir"
export WINEPREFIX=$template WINEARCH=win64 WINEDEBUG=-all WINEDLLOVERRIDES='mscoree=;mshtml='
unset DISPLAY WAYLAND_DISPLAY
wineboot -i >/dev/null 2>&1
wine regedit /S "Z:${PWD//\//\\}\\packaging\\wine\\server2022.reg" >/dev/null 2>&1
# Switched off: what is cloned must not be in use.
wineserver -k || true
wineserver -w
x86_64-w64-mingw32-gcc -shared -o "$template/drive_c/windows/system32/bcryptprimitives.dll" \
    packaging/wine/bcryptprimitives.c -ladvapi32
grep -q '"CurrentBuild"="20348"' "$template/system.reg"
echo "$stamp" >"$wine_dir/stamp"
