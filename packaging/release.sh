#!/usr/bin/env bash
# Builds the release files in target/artifacts: the Windows zip, the Linux archive, SHA256SUMS. The same commit and
# tools give the same bytes.
#
#   packaging/release.sh              builds both and packs them
#   packaging/release.sh --check EXE  packs an executable twice and compares; builds nothing
set -euo pipefail
source "$(dirname "$0")/lib.sh"
install_missing zip unzip
out=$PWD/target/artifacts
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# The time of the commit, unless the packager sets another one; a fixed time outside a git clone.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}

# Creates a folder with the content of both archives.
stage() { # executable, name of the archive without ending
    local folder=$work/$2
    rm -rf "$folder"
    mkdir -p "$folder"
    install -m 755 "$1" "$folder/"
    install -m 644 LICENSE README.md CHANGELOG.md "$folder/"
}

# Gives all of an archive's content the one time.
date_all() { # name of the archive without ending
    find "$work/$1" -exec touch --no-dereference --date "@$epoch" {} +
}

pack_zip() { # executable, where to
    local name=calicoctl-win-$version-x86_64-windows
    stage "$1" "$name"
    # The PowerShell module, and the scripts with the names of Calico's own.
    cp -r packaging/powershell/CalicoctlWin packaging/powershell/scripts "$work/$name/"
    find "$work/$name" -type f -name '*.ps*1*' -exec chmod 644 {} +
    date_all "$name"
    rm -f "$2/$name.zip"
    # Names sorted, no folders, no users or extra times; zip writes local time, so UTC.
    (cd "$work" && find "$name" -type f | LC_ALL=C sort | TZ=UTC zip -q -9 -X -D "$2/$name.zip" -@)
}

pack_tar() { # executable, where to
    local name=calicoctl-win-$version-x86_64-linux
    stage "$1" "$name"
    date_all "$name"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$work" -c "$name" |
        gzip -9 -n >"$2/$name.tar.gz"
}

sums() { # where
    (cd "$1" && sha256sum -- *.zip *.tar.gz 2>/dev/null >SHA256SUMS || sha256sum -- *.zip >SHA256SUMS)
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = --check ]; then
    exe=${2:?which executable?}
    for turn in one two; do
        mkdir "$work/$turn"
        pack_zip "$exe" "$work/$turn"
        sums "$work/$turn"
    done
    cmp "$work"/{one,two}/calicoctl-win-"$version"-x86_64-windows.zip
    cmp "$work"/{one,two}/SHA256SUMS
    unzip -tq "$work/one/calicoctl-win-$version-x86_64-windows.zip"
    echo "the same bytes twice: $(cut -c1-12 "$work/one/SHA256SUMS")"
    exit
fi

need_rust
packaging/wine/prepare.sh
# No path of this machine, and no time of day, in the build.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$PWD=."
for registry in "$cargo_home"/registry/src/*; do
    RUSTFLAGS+=" --remap-path-prefix=$registry=crates"
done
export RUSTFLAGS
cargo fetch --locked --quiet
cargo build --locked --profile dist --bin calicoctl-win --target x86_64-unknown-linux-gnu
exe=$(RUSTFLAGS="$RUSTFLAGS -Clink-arg=-Wl,--no-insert-timestamp" packaging/wine/build.sh --profile dist)

rm -rf "$out"
mkdir -p "$out"
pack_zip "$exe" "$out"
pack_tar target/x86_64-unknown-linux-gnu/dist/calicoctl-win "$out"
sums "$out"
cat "$out/SHA256SUMS"
