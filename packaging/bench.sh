#!/usr/bin/env bash
# Compares calicoctl-win with similar programs: extraction of a release-sized archive, start-up, a no-op install, size.
#
#   packaging/bench.sh                 builds the release profile and measures it
#   OURS="target/dist/calicoctl-win release extract" packaging/bench.sh
#                                      measures another build; called as: $OURS ZIP --dest DIR --sha256 H
#   packaging/bench.sh services [EXE]  prints the memory of the Windows services with 10 MB/s of log, under Wine;
#                                      of the release that it builds, or of another .exe
#
# Needs unzip, zip and hyperfine; bsdtar, 7z, ripunzip, python3 and kubectl are compared if installed. Wall times are
# reliable only on a quiet machine; ratios and CPU times tolerate some noise. WORK (default /dev/shm) is the parent of its
# folder, which uses 0.7 GB while it runs. RUNS (default 9) is the number of runs.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = services ]; then
  packaging/wine/prepare.sh
  built=${2:-$(packaging/wine/build.sh --release)}
  CALICOCTL_WIN_EXE=$PWD/target/wine/bench.exe
  # Unless its sections are page-aligned, Wine copies the file into each process, which Windows never does.
  x86_64-w64-mingw32-objcopy --strip-all --file-alignment 4096 "$built" "$CALICOCTL_WIN_EXE"
  export CALICOCTL_WIN_EXE CALICOCTL_WIN_WINE_PREFIX=$PWD/target/wine/template
  echo "Services while Felix writes 10 MB of log a second ($(stat -c %s "$built") bytes; goal: 20000 kB private)"
  cargo test --locked --quiet --test windows a_flood_of_log_lines -- --nocapture | grep 'the agent of'
  exit
fi

for tool in unzip zip hyperfine rustc python3; do
  command -v "$tool" >/dev/null || { echo "bench.sh needs $tool (apt-get install unzip zip hyperfine python3)" >&2; exit 1; }
done
if [ -z "${OURS:-}" ]; then
  cargo build --release --quiet
  OURS="$PWD/target/release/calicoctl-win release extract"
fi
runs=${RUNS:-9}
work=$(mktemp -d "${WORK:-/dev/shm}/calicoctl-win-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Archive P: about 209 MB in a zip of about 60 MB. The Rust toolchain's largest shared objects represent the three
# executables, cut to their sizes, with 40 small files. Archive T: the same file twice.
archive() { # NAME SIZE...: makes $work/NAME.zip of stand-ins with these sizes in MB
  local name=$1 at=0 n=0
  shift
  mkdir -p "$work/$name/CalicoWindows/cni" "$work/$name/CalicoWindows/libs"
  for size in "$@"; do
    local file
    file=$(printf '%s\n' calico-node.exe cni/calico.exe cni/calico-ipam.exe | sed -n "$((n + 1))p")
    tail -c "+$((at + 1))" "$work/stuff" | head -c "$((size * 1000000))" >"$work/$name/CalicoWindows/$file" || true
    # The twin has the same bytes, all others continue where the last one ended.
    [ "$name" = T ] || at=$((at + size * 1000000))
    n=$((n + 1))
  done
  for n in $(seq 40); do
    tail -c "+$((n * 5000))" "$work/stuff" | head -c 4000 >"$work/$name/CalicoWindows/libs/$n.ps1" || true
  done
  (cd "$work/$name" && zip -q -6 -r "../$name.zip" CalicoWindows)
  rm -rf "${work:?}/$name"
}

lib="$(rustc --print sysroot)/lib"
find "$lib" -type f -name '*.so*' -printf '%s %p\n' | sort -rn | cut -d' ' -f2- | xargs cat >"$work/stuff"
archive P 91 60 57
archive T 91 91
rm "$work/stuff"

# Ratios to the first command, of the median wall time and the mean CPU time.
ratios() { # JSON
  python3 - "$1" <<'PY'
import json, sys
results = json.load(open(sys.argv[1]))["results"]
first = results[0]
cpu = lambda r: r["user"] + r["system"]
print(f'  {"":28}{"wall s":>8}{"CPU s":>8}{"wall":>8}{"CPU":>8}')
for r in results:
    print(f'  {r["command"]:28}{r["median"]:8.3f}{cpu(r):8.3f}{r["median"] / first["median"]:8.2f}{cpu(r) / cpu(first):8.2f}')
PY
}

# A line for hyperfine, if the program is installed.
peers=()
peer() { # PROGRAM NAME COMMAND
  if command -v "$1" >/dev/null; then peers+=(-n "$2" "$3"); fi
}

for name in P T; do
  zip="$work/$name.zip"
  sum=$(sha256sum "$zip" | cut -d' ' -f1)
  out="$work/out"
  peers=()
  peer unzip unzip "unzip -q $zip -d $out"
  peer bsdtar bsdtar "bsdtar -xf $zip -C $out"
  peer 7z 7z "7z x -y -bd -bso0 -o$out $zip"
  peer python3 "python3 -m zipfile" "python3 -m zipfile -e $zip $out"
  peer ripunzip ripunzip "ripunzip unzip-file -d $out $zip"
  echo
  case $name in
    P) echo "Extraction, three different executables ($(stat -c %s "$zip") bytes; goal: wall 0.25, CPU 0.42)" ;;
    T) echo "Extraction, one executable under two names ($(stat -c %s "$zip") bytes; goal: CPU 0.30)" ;;
  esac
  hyperfine -N -w1 -r"$runs" --style none --export-json "$work/$name.json" --prepare "sh -c 'rm -rf $out; mkdir $out'" \
    "${peers[@]}" -n "calicoctl-win (with sha256)" "$OURS $zip --dest $out --sha256 $sum" >/dev/null 2>&1
  ratios "$work/$name.json"
  if [ -x /usr/bin/time ]; then
    rm -rf "$out"
    # shellcheck disable=SC2086 # OURS is a command with arguments
    /usr/bin/time -f '  peak memory %M KiB (goal: 16384)' $OURS "$zip" --dest "$out" --sha256 "$sum" 2>&1 >/dev/null | tail -n1
  fi
  rm -rf "$out"
done

ours=${OURS%% *}
if command -v kubectl >/dev/null && [ "$OURS" = "$ours release extract" ]; then
  echo
  echo "Start-up (goal: 1/15 of kubectl's, 0.067)"
  hyperfine -N -w3 -r50 --style none --export-json "$work/version.json" \
    -n "kubectl version --client" "kubectl version --client" -n "calicoctl-win version" "$ours version" >/dev/null 2>&1
  ratios "$work/version.json"
fi
if [ "$OURS" = "$ours release extract" ]; then
  echo
  echo "install when there is nothing to do, on a sandbox (goal: 50 ms without the API)"
  node="$work/node"
  install=("$ours" install --yes --sandbox "$node" -o ndjson)
  "${install[@]}" >/dev/null
  hyperfine -N -w2 -r20 --style none --export-json "$work/noop.json" "${install[*]}" >/dev/null 2>&1
  for _ in $(seq 20); do "${install[@]}"; done |
    python3 -c '
import json, statistics, sys
whole = json.load(open(sys.argv[1]))["results"][0]["median"] * 1000
events = [json.loads(line) for line in sys.stdin]
api = statistics.median(e["duration_ms"] for e in events
                        if e["type"] == "phase_complete" and e["phase"]["id"] == "cluster")
print(f"  whole process {whole:.0f} ms, of which the API {api:.0f} ms, the rest {whole - api:.0f} ms")' "$work/noop.json"
fi
if [ "${ours%/dist/*}" != "$ours" ]; then
  echo
  echo "Size of the dist executable: $(stat -c %s "$ours") bytes (goal for the .exe: 12000000)"
fi
