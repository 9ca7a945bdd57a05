#!/usr/bin/env bash
# Builds calicoctl-win.exe on Linux and prints its path. Accepts cargo's options: --profile dist. Without options, it is
# the executable that the tests run. CARGO_BUILD is what builds, instead of cargo.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
target=x86_64-pc-windows-gnu
build=(build --locked --target "$target" --bin calicoctl-win --message-format json-render-diagnostics "$@")

if rustup target list --installed 2>/dev/null | grep -qx "$target"; then
    # shellcheck disable=SC2086 # CARGO_BUILD is a command with arguments
    messages=$(${CARGO_BUILD:-cargo} "${build[@]}")
else
    # Debian's compiler has no Windows target either, but the source of its standard library. It gets its own target
    # folder: two compilers in one would discard each other's work.
    messages=$(RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/windows \
        /usr/bin/cargo "${build[@]}" -Zbuild-std=std,panic_unwind,panic_abort)
fi
built=$(sed -n 's/.*"executable":"\([^"]*\.exe\)".*/\1/p' <<<"$messages" | tail -1)
if [ $# -eq 0 ]; then
    # If the sections are page-aligned, Wine maps the file; otherwise it copies the file into each process, which takes
    # half the time of a short command.
    mkdir -p target/wine
    x86_64-w64-mingw32-objcopy --strip-all --file-alignment 4096 "$built" target/wine/calicoctl-win.exe
    built=$PWD/target/wine/calicoctl-win.exe
fi
echo "$built"
