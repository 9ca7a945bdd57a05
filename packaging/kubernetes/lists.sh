#!/usr/bin/env bash
# Makes tests/fixtures/kubernetes/versions.jsonl: what each minor version of Kubernetes knows, a line each, from the
# sources of its Go modules. Run it for a new minor version, after a row for it below; a test holds what this program
# writes against it. It needs Go and the Go module proxy.
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

# The folder of a module in Go's cache.
folder() {
    (cd packaging/kubernetes && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

arguments=()
while read -r minor patch proxy; do
    arguments+=("v1.$minor.$patch" "$(folder "k8s.io/kubernetes@v1.$minor.$patch")" "$(folder "k8s.io/kubelet@v0.$minor.$patch")")
    if [ "$proxy" = none ]; then arguments+=(""); else arguments+=("$(folder "k8s.io/kube-proxy@v0.$minor.$proxy")"); fi
    arguments+=("$(folder "k8s.io/component-base@v0.$minor.$patch")")
done < <(versions)
mkdir -p tests/fixtures/kubernetes
(cd packaging/kubernetes && go run . "${arguments[@]}") >tests/fixtures/kubernetes/versions.jsonl
