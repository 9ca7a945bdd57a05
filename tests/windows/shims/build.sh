#!/usr/bin/env bash
# Compiles the test DLLs into a Wine prefix: build.sh PREFIX/drive_c/windows/system32. Puts a machine with one adapter
# beside them, in C:\test. Their registry entries are in overrides.reg, for `wine regedit`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
system32=$(cd "$1" && pwd)
cc=x86_64-w64-mingw32-gcc
flags=(-shared -s -O1 -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-parameter -Wno-format-truncation "-Wl,--enable-stdcall-fixup")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

hns=("$here"/{call,hns,shape,switch,json}.c)
"$cc" "${flags[@]}" -o "$work/vmcompute.dll" "$here/vmcompute.c" "${hns[@]}" -lole32
"$cc" "${flags[@]}" -o "$work/computenetwork.dll" "$here"/{computenetwork,modify,schema}.c "${hns[@]}" -lole32
"$cc" "${flags[@]}" -o "$work/rstrtmgr.dll" "$here/restart_manager.c" -lntdll
"$cc" "${flags[@]}" -o "$work/netipinterface.dll" "$here/wmi.c" -lole32 -luuid
"$cc" "${flags[@]}" -o "$work/firewall.dll" "$here/firewall.c" -lole32 -loleaut32 -luuid

# before NAME ORIGINAL SOURCE...: a DLL in front of Wine's own, which is kept under another name; it forwards to
# that what it does not do itself.
before() {
    local name=$1 renamed=$2 original own
    shift 2
    original=$system32/$renamed.dll
    [ -f "$original" ] || cp "$system32/$name.dll" "$work/$renamed.dll"
    [ -f "$original" ] || original=$work/$renamed.dll
    own=$(sed -n 's/^__declspec(dllexport).* WINAPI \([A-Za-z0-9]*\)(.*/\1/p' "$here/$1")
    {
        printf 'LIBRARY %s.dll\nEXPORTS\n' "$name"
        # shellcheck disable=SC2086 # several names, a line each
        printf '  %s\n' $own
        x86_64-w64-mingw32-objdump -p "$original" |
            sed -n '/Ordinal\/Name Pointer/,/^$/s/^[[:space:]]*\[.*[[:space:]]\([A-Za-z_][A-Za-z0-9_]*\)$/\1/p' |
            grep -vxF "$own" | sed "s/\\(.*\\)/  \\1 = $renamed.\\1/"
    } >"$work/$name.def"
    "$cc" "${flags[@]}" -o "$work/$name.dll" "${@/#/$here/}" "$work/$name.def" -lntdll
}
before iphlpapi iphlporig iphlpapi.c
before sechost sechorig sechost.c scm_boot.c

# A prefix made of hard links must not write through them.
cp --remove-destination "$work"/*.dll "$system32/"
mkdir -p "$system32/../../test"
for file in adapters routes; do
    [ -f "$system32/../../test/$file" ] || cp "$here/$file" "$system32/../../test/$file"
done
