"""HFile version 3: the sorted key-value file of the metadata table.

    data blocks, between them leaf index blocks | meta blocks | intermediate index blocks
    root index | meta index | file info           (the load-on-open section)
    trailer, 4096 bytes

    trailer.py       the last 4096 bytes        file_info.py     named byte strings about the file
    blocks.py        header, data, checksums    compression.py, checksums.py
    index.py         block index entries        cells.py         entries of a data block as Arrow arrays
    hfile_reader.py  open, scan, look up        hfile_writer.py  encoder of a new file

Pure: a reader takes a function that reads a range, an encoder returns bytes.

Specification: docs/formats/hfile.md.
"""

from __future__ import annotations

from pyhudi.format.hfile.cells import CELL_SCHEMA, decode_joined
from pyhudi.format.hfile.compression import Codec
from pyhudi.format.hfile.hfile_reader import HFile, open_hfile, open_hfile_bytes, read_data_blocks
from pyhudi.format.hfile.hfile_writer import HFileEncoder, HFileOptions, encode_hfile

__all__ = [
    "CELL_SCHEMA",
    "Codec",
    "HFile",
    "HFileEncoder",
    "HFileOptions",
    "decode_joined",
    "encode_hfile",
    "open_hfile",
    "open_hfile_bytes",
    "read_data_blocks",
]
