#!/usr/bin/env bash
# Makes tests/fixtures/kubernetes/versions.jsonl: what each minor version of Kubernetes knows, a line each, from the
# sources of its Go modules. Run it for a new minor version, after a row for it below; a test holds what this program
# writes against it. It needs Go and the Go module proxy.
#
#   packaging/kubernetes/lists.sh           writes the file
#   packaging/kubernetes/lists.sh --check   compares the newest line with one made now; a second if Go has the modules
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

# For each minor version the patch of k8s.io/kubernetes and of its staging modules. kube-proxy's may be another one: the
# module proxy does not have each; none means that it has none of that minor version.
versions() {
    cat <<'VERSIONS'
28 15 15
29 14 none
30 14 14
31 14 10
32 13 13
33 13 13
34 4 4
35 4 4
36 3 3
VERSIONS
}

go=$(find_go)
file=tests/fixtures/kubernetes/versions.jsonl

# The folder of a module in Go's cache.
folder() {
    (cd packaging/kubernetes && "$go" mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# A line for each row of versions on stdin.
lists() {
    local arguments=() minor patch proxy module found
    while read -r minor patch proxy; do
        arguments+=("v1.$minor.$patch")
        for module in "kubernetes@v1.$minor.$patch" "kubelet@v0.$minor.$patch" "kube-proxy@v0.$minor.$proxy" \
            "component-base@v0.$minor.$patch"; do
            found=
            case $module in *none) ;; *) found=$(folder "k8s.io/$module") ;; esac
            arguments+=("$found")
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
    mkdir -p "${file%/*}"
    versions | lists >$file.new
    mv $file.new $file
    ;;
*)
    echo "usage: $0 [--check]" >&2
    exit 2
    ;;
esac
