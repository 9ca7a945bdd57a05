#!/usr/bin/env python3
"""Packs a folder as a NuGet package, for Chocolatey and for repositories of PowerShell modules. The same content and
SOURCE_DATE_EPOCH give the same bytes.

    packaging/nupkg.py NUSPEC FOLDER OUT

Like `nuget pack`, it writes an OPC package: the content, the nuspec, and the three parts that say what is what.
"""

import os
import sys
import time
import xml.etree.ElementTree as xml
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

NUSPEC = "{http://schemas.microsoft.com/packaging/2015/06/nuspec.xsd}"
PROPERTIES = "package/services/metadata/core-properties/package.psmdcp"

RELATIONS = """\
<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/{nuspec}" Id="R1"/>
  <Relationship Type="http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties" \
Target="/{properties}" Id="R2"/>
</Relationships>
"""

CORE = """\
<?xml version="1.0" encoding="utf-8"?>
<coreProperties xmlns:dc="http://purl.org/dc/elements/1.1/" \
xmlns="http://schemas.openxmlformats.org/package/2006/metadata/core-properties">
  <dc:creator>{authors}</dc:creator>
  <dc:description>{description}</dc:description>
  <dc:identifier>{id}</dc:identifier>
  <version>{version}</version>
  <keywords>{tags}</keywords>
</coreProperties>
"""


def content_types(names):
    """A type for each ending: without one, OPC's readers do not see a part."""
    known = {"rels": "application/vnd.openxmlformats-package.relationships+xml",
             "psmdcp": "application/vnd.openxmlformats-package.core-properties+xml"}
    endings = sorted({Path(name).suffix[1:] for name in names if Path(name).suffix} | set(known))
    rows = [f'  <Default Extension="{end}" ContentType="{known.get(end, "application/octet")}"/>' for end in endings]
    bare = sorted(name for name in names if not Path(name).suffix)
    rows += [f'  <Override PartName="/{name}" ContentType="application/octet"/>' for name in bare]
    return ('<?xml version="1.0" encoding="utf-8"?>\n'
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">\n'
            + "\n".join(rows) + "\n</Types>\n")


def main(nuspec, folder, out):
    nuspec, folder = Path(nuspec), Path(folder)
    metadata = xml.parse(nuspec).getroot().find(f"{NUSPEC}metadata")
    about = {key: escape(metadata.findtext(f"{NUSPEC}{key}")) for key in
             ("id", "version", "authors", "description", "tags")}
    parts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    parts[nuspec.name] = nuspec.read_bytes()
    types = content_types(parts)
    parts["_rels/.rels"] = RELATIONS.format(nuspec=nuspec.name, properties=PROPERTIES).encode()
    parts[PROPERTIES] = CORE.format(**about).encode()
    parts["[Content_Types].xml"] = types.encode()
    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(out, "w") as package:
        for name, content in sorted(parts.items()):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            package.writestr(entry, content)


main(*sys.argv[1:])
