#!/usr/bin/env python3
"""Makes the table of Calico's custom resources that the embedded API server validates by.

    packaging/calico-schemas.py v3.31.7=crd.projectcalico.org-v1.yaml v3.32.1=FOLDER ... \
        > src/sandbox/cluster/calico-schemas.txt

Each argument is RELEASE=PATH: CustomResourceDefinitions as that release of Calico publishes them in
libcalico-go/config/crd (crd.projectcalico.org/v1) or api/config/crd (projectcalico.org/v3), in a file
or in a folder of files. Needs PyYAML. CEL rules are not in the table: schema.rs has those that a node
can meet.
"""

import hashlib
import json
import sys
from pathlib import Path

import yaml

HEAD = """\
# The schemas of Calico's custom resources, made by packaging/calico-schemas.py from Calico's own
# definitions: do not edit. A kind is headed by the release line, the group, plural and kind.
# One line a field, its own fields below it, one space deeper: name, type, and as JSON what else its
# definition says. `[]` is an element of a list, `*` any other key of an object. `= N` is the field
# that stands once below `shared`.
"""
KEPT = ["enum", "default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
        "minProperties", "maxProperties", "pattern", "format", "nullable"]
# Integers are checked by their bounds only, and a pattern that matches everything adds nothing.
SAYS_NOTHING = [("format", "int32"), ("format", "int64"), ("pattern", "^.*")]


def lines(name, schema, required=False):
    """A field and what is below it."""
    kind = schema.get("type", "any")
    if schema.get("x-kubernetes-int-or-string"):
        kind = "int-or-string"
    says = {key: schema[key] for key in KEPT if key in schema and (key, schema[key]) not in SAYS_NOTHING}
    # controller-gen writes an enum twice if a type and its field both have one: all must hold.
    enums = [part["enum"] for part in schema.get("allOf", []) if "enum" in part]
    if enums:
        says["enum"] = [value for value in enums[0] if all(value in enum for enum in enums)]
    if required:
        says["required"] = True
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        says["preserve"] = True
    yield f"{name} {kind}" + (" " + json.dumps(says, separators=(",", ":"), sort_keys=True) if says else "")
    below = [(key, value, key in schema.get("required", [])) for key, value in schema.get("properties", {}).items()]
    if "items" in schema:
        below.append(("[]", schema["items"], False))
    if isinstance(schema.get("additionalProperties"), dict):
        below.append(("*", schema["additionalProperties"], False))
    for key, value, needed in sorted(below, key=lambda field: field[0]):
        for line in lines(key, value, needed):
            yield " " + line


def share(text):
    """Puts what stands in several places (policies have the same rules) into one."""
    shared = []
    while True:
        seen = {}
        for at, line in enumerate(text):
            depth = len(line) - len(line.lstrip(" "))
            end = at + 1
            while end < len(text) and len(text[end]) - len(text[end].lstrip(" ")) > depth:
                end += 1
            # A kind itself is never shared.
            if depth > 0 and end - at > 4:
                block = tuple(part[depth:] for part in text[at:end])
                seen.setdefault(block, []).append((at, end, depth))
        repeated = [(block, places) for block, places in seen.items() if len(places) > 1]
        if not repeated:
            return text, shared
        block, places = max(repeated, key=lambda found: len(found[0]) * len(found[1]))
        for at, end, depth in reversed(places):
            text[at:end] = [" " * depth + f"= {len(shared)}"]
        shared.append(block)


def main(arguments):
    text, origins = [], []
    for argument in arguments:
        release, path = argument.split("=", 1)
        files = sorted(Path(path).glob("*.yaml")) if Path(path).is_dir() else [Path(path)]
        raw = b"\n---\n".join(file.read_bytes() for file in files)
        groups = set()
        for crd in filter(None, yaml.safe_load_all(raw)):
            group, names = crd["spec"]["group"], crd["spec"]["names"]
            # The policy API of Kubernetes in v3.31's file is not served.
            if not group.endswith("projectcalico.org"):
                continue
            (version,) = [v for v in crd["spec"]["versions"] if v["served"]]
            groups.add(f"{group}/{version['name']}")
            status = " status" if "status" in (version.get("subresources") or {}) else ""
            line = ".".join(release.split(".")[:2])
            text.append(f"{line} {group}/{version['name']} {names['plural']} {names['kind']}{status}")
            # The first line is the object itself.
            text.extend(list(lines("", version["schema"]["openAPIV3Schema"]))[1:])
        origins.append(f"# {release}, {', '.join(groups)}: sha256 {hashlib.sha256(raw).hexdigest()}")
    text, shared = share(text)
    print(HEAD + "\n".join(origins))
    print("\n".join(text))
    print("shared")
    for number, block in enumerate(shared):
        print(f" {number}")
        print("\n".join("  " + line for line in block))


main(sys.argv[1:])
