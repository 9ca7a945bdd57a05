#!/usr/bin/env bash
# Gives what `metrics` writes to Prometheus' own checker, and to a textfile collector, which must serve all of it. Half
# a minute; the first time it also installs Debian's prometheus and prometheus-node-exporter.
#
#   packaging/metrics/check.sh [PROGRAM]  with this program of the machine, or one that it builds
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
install_missing prometheus prometheus-node-exporter python3
exec python3 packaging/metrics/check.py "${1:-target/debug/calicoctl-win}"
