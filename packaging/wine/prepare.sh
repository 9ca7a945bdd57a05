#!/usr/bin/env bash
# Prepares what the Windows tests need on Debian or Ubuntu: mingw, Wine, the Rust target, and below
# target/wine
#   template   a Wine prefix that reports Windows Server 2022, with containerd and HNS
#   standins   the stand-ins for Calico and kubelet
# Fast if nothing is missing. docs/architecture.md lists what is real and what is a stand-in.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
wine_dir=target/wine
template=$PWD/$wine_dir/template

install_missing wine64 wine gcc-mingw-w64-x86-64 gcc libc6-dev
# If rustup has no Windows target, build.sh uses Debian's compiler and builds the standard library with it.
if ! rustup target list --installed 2>/dev/null | grep -qx x86_64-pc-windows-gnu &&
    ! rustup target add x86_64-pc-windows-gnu; then
    install_missing rustc-web cargo-web rust-web-src
fi

# Everything that determines the result.
inputs() {
    find packaging/wine/{prepare.sh,*.awk,*.c,*.reg,*.toml} tests/windows/{standins,shims} -type f -print0
}
stamp=$(inputs | LC_ALL=C sort -z | xargs -0 sha256sum | cat - <(wine --version 2>/dev/null) | sha256sum)
if [ -d "$template" ] && [ "$(cat "$wine_dir/stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi

echo "preparing a Wine prefix in $wine_dir" >&2
rm -rf "$wine_dir"
mkdir -p "$wine_dir"
tests/windows/standins/build.sh "$wine_dir/standins"
cc -shared -fPIC -O1 -Wall -Wextra -Werror -o "$wine_dir/standins/machine.so" tests/windows/shims/machine.c

export WINEPREFIX=$template WINEARCH=win64 WINEDEBUG=-all WINEDLLOVERRIDES='mscoree=;mshtml=;msv1_0='
unset DISPLAY WAYLAND_DISPLAY
# It keeps the heap of each process away from the address that Wine needs.
export LD_PRELOAD=$PWD/$wine_dir/standins/machine.so
wineboot -i >/dev/null 2>&1
for file in packaging/wine/server2022.reg tests/windows/shims/overrides.reg; do
    wine regedit /S "Z:${PWD//\//\\}\\${file//\//\\}" >/dev/null 2>&1
done
# Stopped, because a prefix must not be in use when it is cloned.
wineserver -k || true
wineserver -w
unset LD_PRELOAD
LC_ALL=C awk -f packaging/wine/slim.awk "$template/system.reg" >"$template/slim.reg"
mv "$template/slim.reg" "$template/system.reg"

system32=$template/drive_c/windows/system32
x86_64-w64-mingw32-gcc -shared -o "$system32/bcryptprimitives.dll" packaging/wine/bcryptprimitives.c -ladvapi32
tests/windows/shims/build.sh "$system32"
containerd="$template/drive_c/Program Files/containerd"
mkdir -p "$containerd/cni/bin" "$containerd/cni/conf"
cp packaging/wine/containerd.toml "$containerd/config.toml"
cp "$wine_dir/standins/containerd.exe" "$containerd/"
# The program of the services of the feature Containers, which only need to exist and run.
cp "$wine_dir/standins/containerd.exe" "$system32/standin-service.exe"
grep -q '"CurrentBuild"="20348"' "$template/system.reg"
echo "$stamp" >"$wine_dir/stamp"
