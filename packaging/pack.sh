# Sourced by the scripts that pack: what every package is made of. Changes to the project's root.
# shellcheck shell=bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# shellcheck disable=SC2034 # for the scripts that source this one
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# The time of the commit, unless the packager sets another one; a fixed time outside a git clone.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}

# Fills a folder with what is in every package for Windows.
stage_windows() { # executable, folder, folder of the PowerShell files
    mkdir -p "$2"
    install -m 755 "$1" "$2/calicoctl-win.exe"
    install -m 644 LICENSE README.md CHANGELOG.md packaging/dsc/calicoctl-win.dsc.resource.json "$2/"
    # The PowerShell module, and the scripts with the names of Calico's own.
    cp -r "$3/CalicoctlWin" "$3/scripts" "$2/"
    find "$2" -type f -name '*.ps*1*' -exec chmod 644 {} +
}

# Whether this osslsigncode signs PowerShell files, too.
signs_scripts() {
    local has
    has=$(osslsigncode --version 2>&1 | sed -n '1s/^osslsigncode \([0-9.]*\).*/\1/p')
    [ "$(printf '%s\n' "$has" 2.8 | sort -V | head -1)" = 2.8 ]
}

# Gives everything in a folder the one time.
date_all() { # folder
    find "$1" -exec touch --no-dereference --date "@$epoch" {} +
}

sha256() { # file
    sha256sum "$1" | cut -d' ' -f1
}

# What stays the same in all versions of the MSI.
upgrade_code=$(sed -n 's/.* UpgradeCode="\([^"]*\)".*/\1/p' packaging/msi/calicoctl-win.wxs)

# A UUID made of the MSI's upgrade code and a text, in capitals as Windows Installer requires.
uuid() { # text
    python3 -c 'import sys, uuid; print(str(uuid.uuid5(uuid.UUID(sys.argv[1]), sys.argv[2])).upper())' "$upgrade_code" "$1"
}

# What Windows calls the MSI of a version.
product_code() { # version
    uuid "product $1"
}

# A CA that lives for a day, and a certificate of it with its key that may sign programs: for checks.
make_ca() { # folder
    mkdir -p "$1"
    {
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=CA of a test" -keyout "$1/ca-key.pem" -out "$1/ca.pem" \
            -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
        openssl req -newkey rsa:2048 -nodes -subj "/CN=Signer of a test" -keyout "$1/key.pem" -out "$1/request.pem"
        openssl x509 -req -in "$1/request.pem" -CA "$1/ca.pem" -CAkey "$1/ca-key.pem" -days 1 -out "$1/certificate.pem" \
            -extfile <(printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=codeSigning\n')
    } 2>/dev/null
}
