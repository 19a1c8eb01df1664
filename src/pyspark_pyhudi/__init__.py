"""Makes `spark.read.format("pyhudi")` work without registration.

Spark imports every module named `pyspark_*` and registers its `DefaultSource`. It does so in any session that uses a
Python source, so this module loads PyHudi only when the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyhudi.engines.spark.data_source import HudiSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The source `pyhudi`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pyhudi"

    def schema(self) -> StructType:
        """The table's columns."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of some of the table's columns."""
        return self._source().reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends rows."""
        return self._source().writer(schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of some of the table's columns."""
        return self._source().streamReader(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A writer of the batches of a stream."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> HudiSource:
        from pyhudi.engines.spark.data_source import HudiSource

        return HudiSource(self.options)
