"""Writes the one layer of the HostProcess image: the files that Windows requires of a base layer, and ours.

    layer.py SECONDS OUT FILE...

SECONDS is the time of every file, since 1970; FILE is put at the root of the container. The required files are those of
the HostProcess base image (microsoft/windows-host-process-containers-base-image): five registry hives, which Windows
Server 2025 requires to be valid. These have one key and no value.
"""
import io
import os
import struct
import sys
import tarfile

HIVES = ["DEFAULT", "SAM", "SECURITY", "SOFTWARE", "SYSTEM"]
BLOCK = 4096
NONE = 0xFFFFFFFF


def sid(*parts):
    return struct.pack(">BBHI", 1, len(parts), 0, 5) + struct.pack(f"<{len(parts)}I", *parts)


def security_descriptor():
    """SYSTEM and Administrators have all rights; they own it."""
    system, administrators = sid(18), sid(32, 544)
    aces = b"".join(struct.pack("<BBHI", 0, 2, 8 + len(who), 0xF003F) + who for who in (system, administrators))
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(aces), 2, 0) + aces
    # Self-relative, with a list of rights: the owner, the group, and the list follow the head of 20 bytes.
    owner, group = 20, 20 + len(administrators)
    head = struct.pack("<BBHIIII", 1, 0, 0x8004, owner, group, 0, group + len(system))
    return head + administrators + system + acl


def cell(content):
    """A cell in use: its negative size, and a multiple of eight bytes."""
    size = (4 + len(content) + 7) // 8 * 8
    return struct.pack("<i", -size) + content.ljust(size - 4, b"\0")


def hive(name):
    """A registry hive, format 1.5, with an empty root key."""
    # The first cell follows the head of the bin.
    root = 32
    key_name = name.encode("ascii")
    # A root that cannot be deleted, whose name is in ASCII.
    key = struct.pack("<2sHQIIIIIIII", b"nk", 0x2C, 0, 0, NONE, 0, 0, NONE, NONE, 0, NONE)
    security = root + len(cell(key + b"\0" * 32 + key_name))
    key += struct.pack("<IIIIIIIHH", security, NONE, 0, 0, 0, 0, 0, len(key_name), 0) + key_name
    rights = security_descriptor()
    # It is the only one, so it is before and after itself.
    guard = struct.pack("<2sHIIII", b"sk", 0, security, security, 1, len(rights)) + rights
    cells = cell(key) + cell(guard)
    free = BLOCK - root - len(cells)
    first_bin = struct.pack("<4sIIQQI", b"hbin", 0, BLOCK, 0, 0, 0) + cells + struct.pack("<i", free).ljust(free, b"\0")
    base = struct.pack("<4sIIQIIIIIII", b"regf", 1, 1, 0, 1, 5, 0, 1, root, BLOCK, 1).ljust(508, b"\0")
    checksum = 0
    for (word,) in struct.iter_unpack("<I", base):
        checksum ^= word
    return (base + struct.pack("<I", checksum)).ljust(BLOCK, b"\0") + first_bin


def main(seconds, out, *files):
    def entry(name, size=0, folder=False):
        info = tarfile.TarInfo(name)
        info.size, info.mtime = size, int(seconds)
        info.type, info.mode = (tarfile.DIRTYPE, 0o755) if folder else (tarfile.REGTYPE, 0o644)
        return info

    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as layer:
        for folder in ["Files", "Files/Windows", "Files/Windows/System32", "Files/Windows/System32/config"]:
            layer.addfile(entry(folder, folder=True))
        for name in HIVES:
            content = hive(name)
            layer.addfile(entry(f"Files/Windows/System32/config/{name}", len(content)), io.BytesIO(content))
        for file in files:
            with open(file, "rb") as content:
                size = os.fstat(content.fileno()).st_size
                layer.addfile(entry(f"Files/{os.path.basename(file)}", size), content)


if __name__ == "__main__":
    main(*sys.argv[1:])
