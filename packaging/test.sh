#!/usr/bin/env bash
# Runs every test, including those of the Windows executable. On Debian and Ubuntu it installs the missing packages;
# elsewhere it uses what is installed, and reports the tests that it cannot run.
#
#   packaging/test.sh             everything
#   packaging/test.sh NAME        the tests whose names contain NAME
set -euo pipefail
source "$(dirname "$0")/lib.sh"
need_rust
# Tests load the completions in these shells, run the scripts of the docs, and pack the MSI.
install_missing bash zsh fish python3 wixl msitools faketime

if command -v apt-get >/dev/null || { command -v wine && command -v x86_64-w64-mingw32-gcc; } >/dev/null; then
    packaging/wine/prepare.sh
    CALICOCTL_WIN_EXE=$(packaging/wine/build.sh)
    export CALICOCTL_WIN_EXE CALICOCTL_WIN_WINE_PREFIX=$PWD/target/wine/template
    # The stories install the first as Calico, and their containerd runs the second for each pod.
    for part in calico cri; do
        packaging/real/prepare.sh $part || echo "$part.exe is not built: the Windows stories do not run" >&2
    done
else
    echo "neither apt nor Wine and mingw: the Windows executable is not tested" >&2
fi
for part in $(packaging/real/prepare.sh --list); do
    compgen -G "target/real/$part*" >/dev/null ||
        echo "$part is not built, and its tests do not run: packaging/real/prepare.sh builds it" >&2
done
[ -n "${CALICOCTL_WIN_REAL_RELEASE:-}" ] ||
    echo "Calico's own programs do not run: CALICOCTL_WIN_REAL_RELEASE names no release of it" >&2
own=
# The crash tests flush thousands of small files, as on Windows; in memory that is fast.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then
    TMPDIR=$(mktemp -d /dev/shm/calicoctl-win-test.XXXXXX)
    export TMPDIR
    own=$TMPDIR
    # The template has 0.7 GB, and the prefix of each test some MB more.
    if [ -n "${CALICOCTL_WIN_EXE:-}" ] && [ "$(df --output=avail /dev/shm | tail -1)" -gt 3000000 ]; then
        cp -a target/wine/template target/wine/standins "$TMPDIR/"
        export CALICOCTL_WIN_WINE_PREFIX=$TMPDIR/template
    fi
fi
log=$(mktemp)
tests() { cargo test --locked --no-fail-fast "$@" 2>&1 | tee -a "$log"; }
# Thousands of lines hide why a test failed: the reasons are said again at the end.
ended() {
    [ "$1" = 0 ] || grep -A 8 "^thread '.*panicked at" "$log" | cut -c -300 || true
    rm -rf "$log" ${own:+"$own"}
}
trap 'ended $?' EXIT
# Windows stories often wait, for services or between two starts, so more of them run at once.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 3))}
tests "$@"
# Tests built for Windows: the contract of both nodes, and the unit tests of Windows calls.
if [ -n "${CALICOCTL_WIN_EXE:-}" ] && rustup target list --installed 2>/dev/null | grep -qx x86_64-pc-windows-gnu; then
    export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$PWD/packaging/wine/run.sh
    # On a Windows machine tests that need an administrator or HNS are ignored by default.
    tests --target x86_64-pc-windows-gnu --test contract "$@" -- --include-ignored </dev/null
    # Two years of a token on the virtual clock take minutes under Wine, and test nothing of Windows.
    if [ $# = 0 ]; then
        calls=(--target x86_64-pc-windows-gnu --lib -- node:: agent:: --skip agent::renew)
        # Wine once refused the harness to write to its own output, and it ended in the middle without a failed test.
        tests "${calls[@]}" || { tail -n 20 "$log" | grep '^error: io error when listing tests' >&2 && tests "${calls[@]}"; }
    fi
fi
