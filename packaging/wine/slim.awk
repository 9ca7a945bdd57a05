# Takes out of a prefix's system.reg what every boot and every start of a program pays for and nothing
# of ours looks at. Wine finds its time zone by reading all that are there, at each start of a process:
# half of all that a process asks of the registry. The devices and services are those of a desktop.

BEGIN {
    zones = "^(Greenwich Standard Time|UTC|Tokyo Standard Time|Eastern Standard Time)$"
    services = "^(BITS|FontCache|FontCache3[.]0[.]0[.]0|HTTP|LanmanServer|MSIServer|NDIS|PlugPlay|Schedule|Spooler|" \
               "StiSvc|TermService|winebus|winehid|wineusb|Winmgmt|wuauserv)$"
}

# What stands behind `above` in a key's path, up to the next separator; nothing when it is not below.
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

# Windows has its key, and sources of events below it; the service only runs.
service == "Eventlog" && /^"Start"=/ { $0 = "\"Start\"=dword:00000004" }

# The names of a zone in other languages are a DLL more for every process; the menu of programs is
# nothing to a server.
!dropped && !(zone != "" && /^"MUI_/) && !/^"winemenubuilder"=/
