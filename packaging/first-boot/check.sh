#!/usr/bin/env bash
# Gives what `render` makes to the real cloudbase-init, which PyPI has, and checks what it runs, and what follows each
# exit code of the program. Some seconds; the first time it installs cloudbase-init.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
cargo build --locked --quiet
python_tools cloudbase-init==1.1.9 PyYAML==6.0.4
exec python3 packaging/first-boot/check.py target/debug/calicoctl-win
