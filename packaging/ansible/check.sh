#!/usr/bin/env bash
# Lints the Ansible role, and plays it with Ansible on a sandbox node. Half a minute; the first time it installs Ansible.
#
#   packaging/ansible/check.sh [PROGRAM]  with this program of the machine, or one that it builds
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
python_tools ansible-core==2.19.14 ansible-lint==26.10.1
export ANSIBLE_HOME=$PWD/target/ansible
(cd packaging/ansible && ansible-lint --offline --strict --profile production calicoctl_win)
exec python3 packaging/ansible/check.py "${1:-target/debug/calicoctl-win}"
