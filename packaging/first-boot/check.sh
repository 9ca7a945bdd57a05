#!/usr/bin/env bash
# Gives what `render` makes to the real cloudbase-init, which PyPI has, and checks what it runs, and what follows each
# exit code of the program; and to the schema of cloud-init, which Debian has. Some seconds; the first time it installs
# them.
#
#   packaging/first-boot/check.sh [PROGRAM]  with this program of the machine, or one that it builds
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
# The last three are for cloud-init.
python_tools cloudbase-init==1.1.9 PyYAML==6.0.4 configobj==5.0.9 jsonpatch==1.33 jsonschema==4.26.0
# Unpacked and not installed: Debian's package would set up this machine at its next boot.
cloud_init=$tools/cloud-init
if [ ! -d "$cloud_init" ] && command -v apt-get >/dev/null; then
    fetched=$(mktemp -d "$cloud_init.XXXXXX")
    (cd "$fetched" && apt-get download -qq cloud-init && dpkg -x cloud-init_*.deb tree) >&2
    mv "$fetched/tree" "$cloud_init"
    rm -rf "$fetched"
fi
export CLOUD_INIT=$cloud_init/usr/lib/python3/dist-packages
exec python3 packaging/first-boot/check.py "${1:-target/debug/calicoctl-win}"
