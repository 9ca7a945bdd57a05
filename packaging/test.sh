#!/usr/bin/env bash
# Runs every test, those of the Windows executable too. On Debian and Ubuntu it installs what they
# need; elsewhere it takes what is there, and says what it could not run.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_rust

if command -v apt-get >/dev/null || { command -v wine && command -v x86_64-w64-mingw32-gcc; } >/dev/null; then
    packaging/wine/prepare.sh
    CALICOCTL_WIN_EXE=$(packaging/wine/build.sh)
    export CALICOCTL_WIN_EXE CALICOCTL_WIN_WINE_PREFIX=$PWD/target/wine/template
else
    echo "neither apt nor Wine and mingw: the Windows executable is not tested" >&2
fi
# The crash tests flush thousands of small files; in memory that costs nothing.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then
    TMPDIR=$(mktemp -d /dev/shm/calicoctl-win-test.XXXXXX)
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
fi
cargo test --locked --no-fail-fast "$@"
# The contract of both nodes, built for Windows.
if [ -n "${CALICOCTL_WIN_EXE:-}" ] && rustup target list --installed 2>/dev/null | grep -qx x86_64-pc-windows-gnu; then
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$PWD/packaging/wine/run.sh \
        cargo test --locked --target x86_64-pc-windows-gnu --test contract "$@"
fi
