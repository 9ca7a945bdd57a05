#!/usr/bin/env bash
# Lints the Ansible role, holds its tasks to the arguments of the real modules, and plays it with Ansible on a sandbox
# node. Half a minute; the first time it installs Ansible.
#
#   packaging/ansible/check.sh [PROGRAM]  with this program of the machine, or one that it builds
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
python_tools ansible-core==2.19.14 ansible-lint==26.10.1
export ANSIBLE_HOME=$PWD/target/ansible
# Ansible 12 has the modules for Windows in version 3; only these are kept of it.
modules=$tools/ansible-12.3.0
if [ ! -e "$modules/ready" ]; then
    rm -rf "$modules"
    mkdir -p "$modules"
    pip download --quiet --disable-pip-version-check --no-deps --dest "$modules" ansible==12.3.0
    python3 -m zipfile --extract "$modules"/ansible-*.whl "$modules/all"
    mkdir -p "$modules/ansible_collections/ansible"
    mv "$modules/all/ansible_collections/ansible/windows" "$modules/ansible_collections/ansible/"
    rm -r "$modules/all" "$modules"/ansible-*.whl
    touch "$modules/ready"
fi
(cd packaging/ansible && ansible-lint --offline --strict --profile production calicoctl_win)
exec python3 packaging/ansible/check.py "${1:-target/debug/calicoctl-win}" "$modules"
