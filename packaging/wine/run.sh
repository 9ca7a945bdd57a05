#!/usr/bin/env bash
# Runs a Windows program in its own Wine prefix, which is deleted afterwards. Cargo's runner for the tests that are
# built for Windows: CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=packaging/wine/run.sh
set -euo pipefail
template=${CALICOCTL_WIN_WINE_PREFIX:-$(cd "$(dirname "$0")/../.." && pwd)/target/wine/template}
# Beside the template, so that hard links work.
prefix=$(mktemp -d "$(dirname "$template")/prefix-XXXXXX")
export WINEPREFIX=$prefix WINEDEBUG=${WINEDEBUG:--all} WINEDLLOVERRIDES='mscoree=;mshtml=;msv1_0='
unset DISPLAY WAYLAND_DISPLAY
# It keeps the heap of each process away from the address that Wine needs.
export LD_PRELOAD=${template%/*}/standins/machine.so
stop() {
    wineserver -k || true
    wineserver -w || true
    rm -rf "$prefix"
}
trap stop EXIT
# Windows' own folder is large and no program changes it: hard links.
mkdir "$prefix/drive_c"
# With the time stamp: without it Wine sets the prefix up again, and its own COM classes too.
for item in "$template"/{.update-timestamp,*}; do
    [ "${item##*/}" = drive_c ] || cp -a "$item" "$prefix/"
done
for item in "$template"/drive_c/*; do
    if [ "${item##*/}" = windows ]; then cp -al "$item" "$prefix/drive_c/"; else cp -a "$item" "$prefix/drive_c/"; fi
done
timeout --kill-after=5 600 wine "$@"
