"""Reader of BLOB values: `Table.read_blobs`, and `read_blob` in SQL.

read_blobs    the bytes of inline values, and of ranges of outside files below the allowed roots
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "BlobReader": "read_blobs",
    "blobs_of": "read_blobs",
}
__getattr__ = exports(__name__, _EXPORTS)
