#!/usr/bin/env bash
# Makes the image for HostProcess containers as an OCI layout: one layer, for any Windows Server. The same executable,
# commit and tools give the same image. Push it with: skopeo copy oci:DIR:VERSION docker://REGISTRY/calicoctl-win:VERSION
#
#   packaging/hostprocess/image.sh EXE DIR              makes it
#   packaging/hostprocess/image.sh --check EXE PROGRAM  makes it twice, and checks image, hives and manifests, and those
#                                               that the program of this machine prints for a fleet; keeps nothing
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
install_missing python3 umoci skopeo
here=packaging/hostprocess
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make() { # executable, folder
    local image=$2:$version created
    created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
    rm -rf "$2"
    mkdir -p "$(dirname "$2")"
    # run.ps1 looks for this name.
    cp "$1" "$work/calicoctl-win.exe"
    python3 $here/layer.py "$epoch" "$work/layer.tar" "$work/calicoctl-win.exe" $here/run.ps1 $here/ready.ps1
    umoci init --layout "$2"
    umoci new --image "$image"
    umoci raw add-layer --image "$image" --history.created "$created" "$work/layer.tar"
    # No version of Windows: containerd would run the image on no other one.
    umoci config --image "$image" --no-history --created "$created" --os windows --architecture amd64 \
        --config.env 'PATH=C:\Windows\System32;C:\Windows;C:\Windows\System32\WindowsPowerShell\v1.0' \
        --config.entrypoint powershell.exe --config.entrypoint -NoProfile --config.entrypoint -NonInteractive \
        --config.entrypoint -ExecutionPolicy --config.entrypoint Bypass \
        --config.entrypoint -File --config.entrypoint ./run.ps1
    umoci gc --layout "$2"
}

check() { # executable, program of this machine
    install_missing libhivex-bin
    make "$1" "$work/one"
    make "$1" "$work/two"
    diff -r "$work/one" "$work/two"

    local image=oci:$work/one:$version
    skopeo --override-os windows inspect "$image" >"$work/inspect.json"
    skopeo inspect --raw "$image" >"$work/manifest.json"
    skopeo --override-os windows inspect --config "$image" >"$work/config.json"
    python3 - "$work" <<'PYTHON'
import json, sys
read = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))
shown, manifest, config = read("inspect"), read("manifest"), read("config")
assert (shown["Os"], shown["Architecture"], len(shown["Layers"])) == ("windows", "amd64", 1), shown
assert "os.version" not in config, config
assert "manifests" not in manifest, "a list of images"
assert config["config"]["Entrypoint"][-2:] == ["-File", "./run.ps1"], config
PYTHON

    # The layer as it is in the image: the program, byte for byte, and hives that a second implementation reads.
    skopeo copy --quiet "$image" "dir:$work/dir"
    mkdir "$work/layer"
    local layer
    layer=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["layers"][0]["digest"].split(":")[1])' \
        "$work/manifest.json")
    tar -xzf "$work/dir/$layer" -C "$work/layer"
    cmp "$1" "$work/layer/Files/calicoctl-win.exe"
    cmp $here/run.ps1 "$work/layer/Files/run.ps1"
    cmp $here/ready.ps1 "$work/layer/Files/ready.ps1"
    local hive
    for hive in DEFAULT SAM SECURITY SOFTWARE SYSTEM; do
        hivexml "$work/layer/Files/Windows/System32/config/$hive" | grep -q "<node name=\"$hive\" root=\"1\"" ||
            { echo "error: the hive $hive cannot be read" >&2 && exit 1; }
    done

    # A fleet whose waves have not begun, and one whose first wave has.
    local fleet=("$2" render fleet --set calico.version=v3.32.1 --set calicoNetwork.vxlan.vxlanVNI=5000
        --image "registry.example.com/calicoctl-win:$version" --api-server https://192.0.2.10:6443
        --canary stage=canary --max-unavailable 10%)
    "${fleet[@]}" >"$work/waits.yaml"
    "${fleet[@]}" --through canary >"$work/begun.yaml"
    # With the two newest minor versions of its schemas.
    python_tools kubernetes-validate==1.37.0
    validate() { kubernetes-validate --quiet --strict -k 1.37 -k 1.36 "$@"; }
    validate $here/install.yaml $here/job.yaml $here/uninstall.yaml "$work/waits.yaml" "$work/begun.yaml"
    local file
    for file in $here/job.yaml $here/uninstall.yaml "$work/begun.yaml"; do
        if sed 's/hostNetwork:/hostNetwrk:/' "$file" >"$work/wrong.yaml" &&
            validate "$work/wrong.yaml" >/dev/null 2>&1; then
            echo "error: kubernetes-validate accepts an unknown field in $file" >&2
            exit 1
        fi
    done
    echo "the same image twice: $(sha256sum <"$work/manifest.json" | cut -c1-12)"
}

if [ "${1:-}" = --check ]; then
    check "${2:?which executable?}" "${3:?which program of this machine?}"
else
    make "${1:?which executable?}" "${2:?where to?}"
fi
