r"""The checksum files that Hadoop's local file system keeps beside files: `.name.crc` beside `name`.

    "crc\0"  int32 512  (int32 CRC-32 of each 512 bytes)*        big-endian

No sidecar, no check.  A stale one makes Hadoop refuse the file, so whoever writes, overwrites, renames or deletes a file on
a local path without Hadoop deletes its sidecar too; and a listing hides every sidecar.
"""

from __future__ import annotations

import struct
import zlib

CHUNK_BYTES = 512
_HEADER = b"crc\x00" + struct.pack(">I", CHUNK_BYTES)


def sidecar_path(path: str) -> str:
    """The path of the sidecar of the file at `path` ('/' separated)."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def is_sidecar(path: str) -> bool:
    """Whether the file at `path` is a sidecar of another."""
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(".crc") and len(name) > len(".crc")


def encode_sidecar(data: bytes) -> bytes:
    """The sidecar of a file that holds `data`."""
    sums = [zlib.crc32(data[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES)]
    return _HEADER + struct.pack(f">{len(sums)}I", *sums)
