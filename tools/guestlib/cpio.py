"""Writes cpio archives in the "newc" format, which the kernel unpacks as initramfs.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import stat


def _entry(inode, name, mode, data):
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4)


def archive(files):
    """Returns an archive. `files` maps a path to (mode, contents); folders above the paths are added."""
    out = []
    made = set()
    for path, (mode, data) in files.items():
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            directory = "/".join(parts[:depth])
            if directory not in made:
                made.add(directory)
                out.append(_entry(len(out) + 1, directory, stat.S_IFDIR | 0o755, b""))
        out.append(_entry(len(out) + 1, path, stat.S_IFREG | mode, data))
    out.append(_entry(0, "TRAILER!!!", 0, b""))
    return b"".join(out)
