#!/usr/bin/env bash
# Makes tests/fixtures/kubernetes/versions.jsonl: what each minor version of Kubernetes knows, a line each, from the
# sources of its Go modules. Run it for a new minor version, after a row for it in SOURCES.md next to that file; a test
# holds what this program writes against it. It needs Go and the Go module proxy.
#
#   packaging/kubernetes/lists.sh           writes the file
#   packaging/kubernetes/lists.sh --check   compares the newest line with one made now; a second if Go has the modules
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

go=$(find_go)
file=tests/fixtures/kubernetes/versions.jsonl

# The versions of the modules for each minor version, from the table of SOURCES.md: k8s.io/kubernetes, kubelet,
# component-base and kube-proxy.
versions() {
    sed -n 's/^| 1\.[0-9]* | \(v[0-9.]*\) | \(v[0-9.]*\) | \(v[0-9.]*\) | \(v[0-9.]*\) |$/\1 \2 \3 \4/p' "${file%/*}/SOURCES.md"
}

# The folder of a module in Go's cache.
folder() {
    (cd packaging/kubernetes && "$go" mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# A line for each row of versions on stdin.
lists() {
    local arguments=() kubernetes kubelet base proxy module
    while read -r kubernetes kubelet base proxy; do
        arguments+=("$kubernetes")
        for module in "kubernetes@$kubernetes" "kubelet@$kubelet" "kube-proxy@$proxy" "component-base@$base"; do
            arguments+=("$(folder "k8s.io/$module")")
        done
    done
    (cd packaging/kubernetes && "$go" run . "${arguments[@]}")
}

case ${1:-} in
--check)
    made=$(versions | tail -n 1 | lists)
    if [ "$made" != "$(tail -n 1 $file)" ]; then
        echo "error: the last line of $file is not what its sources say: run $0, and see what changed" >&2
        exit 1
    fi
    ;;
'')
    versions | lists >$file.new
    mv $file.new $file
    ;;
*)
    echo "usage: $0 [--check]" >&2
    exit 2
    ;;
esac
