#!/usr/bin/env bash
# Builds the stand-ins for kubelet and containerd into a folder. Calico's are in tests/real/calico.
#
#   tests/windows/standins/build.sh OUTDIR
#
# On Windows with another compiler: CC_STANDINS=gcc WINDRES=windres, in Git's bash.
set -euo pipefail
mkdir -p "${1:?where to?}"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")"
cc=${CC_STANDINS:-x86_64-w64-mingw32-gcc}
flags=(-std=gnu11 -O1 -s -Wall -Wextra -Werror -D_WIN32_WINNT=0x0A00 -static "-Wl,--no-insert-timestamp")
"$cc" "${flags[@]}" -o "$out/kubelet.exe" plain.c steer.c
"$cc" "${flags[@]}" -o "$out/kubelet-at-first.exe" kubelet_at_first.c steer.c
"$cc" "${flags[@]}" -o "$out/run.exe" run.c -ladvapi32
"$cc" "${flags[@]}" -shared -o "$out/pdh.dll" pdh.c
"${WINDRES:-${cc%gcc}windres}" containerd.rc "$out/containerd.o"
"$cc" "${flags[@]}" -o "$out/containerd.exe" host.c runtime.c steer.c "$out/containerd.o" -ladvapi32
rm "$out/containerd.o"
