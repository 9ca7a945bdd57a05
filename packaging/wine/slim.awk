# Removes keys from a prefix's system.reg that slow down every boot and every program start, and that no test reads. Wine
# detects its time zone by reading all of them at each start of a process, which is half of its registry reads. The
# devices and services are those of a desktop.

BEGIN {
    zones = "^(Greenwich Standard Time|UTC|Tokyo Standard Time|Eastern Standard Time)$"
    services = "^(BITS|FontCache|FontCache3[.]0[.]0[.]0|HTTP|LanmanServer|MSIServer|NDIS|PlugPlay|Schedule|Spooler|" \
               "StiSvc|TermService|winebus|winehid|wineusb|Winmgmt|wuauserv)$"
}

# The part of a key's path after `above`, up to the next separator; empty if the key is not below it.
function below(key, above,    at, rest) {
    at = index(key, above)
    if (!at) return ""
    rest = substr(key, at + length(above))
    at = index(rest, "\\\\")
    return at ? substr(rest, 1, at - 1) : rest
}

/^\[/ {
    key = substr($0, 2, index($0, "]") - 2)
    zone = below(key, "\\\\Time Zones\\\\")
    service = below(key, "CurrentControlSet\\\\Services\\\\")
    dropped = (zone != "" && zone !~ zones) || service ~ services ||
        below(key, "CurrentControlSet\\\\Enum\\\\") ~ /^(ROOT|WINEBUS|HID)$/
}

# Windows has this key, with event sources in it; only the service is disabled.
service == "Eventlog" && /^"Start"=/ { $0 = "\"Start\"=dword:00000004" }

# The names of a zone in other languages cost every process another DLL; a server needs no menu of programs.
!dropped && !(zone != "" && /^"MUI_/) && !/^"winemenubuilder"=/
