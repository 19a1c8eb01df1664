"""ORC writer: Arrow writes the rows, this module adds user metadata.

Specification: docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa
import pyarrow.orc as po

from pyhudi.format.orc.orc_columns import orc_schema, to_orc
from pyhudi.format.orc.orc_reader import OrcFooter
from pyhudi.format.orc.orc_tail import with_user_metadata
from pyhudi.format.tail_buffer import Sink, TailBufferSink


class OrcWriter:
    """Writes rows to a sink that the caller opens and closes. After an error nothing more is written.

    Args:
        schema: The columns of a data file of the table.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, *, codec: str, stripe_bytes: int) -> None:
        self._sink = TailBufferSink(sink)
        self._given = schema
        self._schema = orc_schema(schema)
        self._row_count = 0
        kind = "uncompressed" if codec == "NONE" else codec.lower()
        self._writer = po.ORCWriter(pa.PythonFile(self._sink, mode="w"), compression=kind, stripe_size=stripe_bytes)

    def write_table(self, table: pa.Table) -> None:
        """Write rows. Raises InvalidRequest for a timestamp that Arrow's ORC files cannot hold."""
        self._writer.write(to_orc(table, self._schema))
        self._sink.flush_pieces()
        self._row_count += table.num_rows

    def close(self, metadata: Mapping[str, str]) -> OrcFooter:
        """Write the last stripe and the footer, with these entries of user metadata."""
        if not self._row_count:
            # Arrow declares the columns in the file with the first rows.
            self._writer.write(self._schema.empty_table())
        self._sink.start_buffering()
        self._writer.close()
        buffered = self._sink.buffered
        entries = {key: value.encode() for key, value in metadata.items()}
        self._sink.release(with_user_metadata(buffered, entries))
        return OrcFooter.of(self._given, (self._row_count,), {key.encode(): value for key, value in entries.items()})

    def discard(self) -> None:
        """Abort: drop everything that pyarrow still writes, now or when it is collected."""
        self._sink.start_buffering(discards=True)
        with suppress(Exception):
            self._writer.close()
