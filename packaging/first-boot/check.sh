#!/usr/bin/env bash
# Gives what `render` makes to the real cloudbase-init, which PyPI has, and checks what it runs, and what follows each
# exit code of the program. Some seconds; the first time it installs cloudbase-init.
#
#   packaging/first-boot/check.sh [PROGRAM]  with this program of the machine, or one that it builds
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
python_tools cloudbase-init==1.1.9 PyYAML==6.0.4
exec python3 packaging/first-boot/check.py "${1:-target/debug/calicoctl-win}"
