#!/usr/bin/env bash
# Makes the report pages of broken sandbox nodes, and opens them in Chromium, light and dark, at two widths: axe-core and
# html-validate find nothing wrong, no line is written to the console, and nothing is fetched. Half a minute; the first
# time it also installs Chromium from Debian, and the checkers from npm.
#
#   packaging/report/check.sh [PROGRAM]         with this program of the machine, or one that it builds
#   packaging/report/check.sh PROGRAM FOLDER    also leaves the pages and their pictures in that folder
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
need_rust
[ -n "${1:-}" ] || cargo build --locked --quiet
install_missing chromium unzip
node_tools axe-core@4.14.1 puppeteer-core@24.43.1 html-validate@9.7.1
exec node packaging/report/check.mjs "${1:-target/debug/calicoctl-win}" "${2:-}"
