#!/usr/bin/env bash
# Writes all pages of the documentation into one HTML file, which needs no network, no scripts and no other file. The
# same pages give the same bytes.
#
#   packaging/docs/build.sh OUT.html
#   packaging/docs/build.sh --check FILE.html  whether all links lead somewhere in it, and it needs nothing else
set -euo pipefail
mode=
[ "$1" != --check ] || { mode=$1 && shift; }
out=$(realpath -m "${1:?which file?}")
source "$(dirname "$0")/../pack.sh"

# markdown-it-py is a wheel of 90 kB. mdBook would be built for minutes, and its one page needs other files beside it.
python_tools markdown-it-py==4.0.0
python3 packaging/docs/page.py "${mode:-$version}" "$out"
