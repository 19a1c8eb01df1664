"""PyHudi tables in the catalog of a session, so that `spark.table` and Spark's SQL read them by name.

An entry is `CREATE TABLE name USING pyhudi LOCATION path` without columns: Spark requests them from the source, which
stores the path in them (data_source.py). It has the columns at that time, and is re-created when the table's columns
change. Dropping an entry keeps the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyhudi.engines.spark.type_conversion import catalogued_path, quote_spark_name
from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.records.sql_quoting import quote_text

_FORMAT = "pyhudi"
_WAREHOUSE = "spark.sql.warehouse.dir"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A catalog name and the location of its table.  exists: whether the catalog has the entry already."""

    spark: SparkSession
    name: str
    path: str
    exists: bool

    @property
    def parts(self) -> list[str]:
        """The parts of the name; the last one is the table's own."""
        return [part.strip("`") for part in self.name.split(".")]

    @classmethod
    def of(cls, spark: SparkSession, name: str, path: str | os.PathLike[str] | None) -> CatalogEntry:
        """The entry of a name.  path: None for the location in the catalog, else one below the warehouse.

        Raises:
            TableExists: The name belongs to something else.
            InvalidRequest: The table has another location.
        """
        plain = ".".join(part.strip("`") for part in name.split("."))
        requested_path = None if path is None else os.fspath(path)
        if not spark.catalog.tableExists(plain):
            warehouse = str(spark.conf.get(_WAREHOUSE)).rstrip("/")
            return cls(spark, plain, requested_path or f"{warehouse}/{'/'.join(plain.split('.'))}", False)
        catalogued = catalogued_path(spark, plain)
        if catalogued is None:
            raise TableExists(f"the session's catalog has {plain} already, which is not a PyHudi table: choose another name")
        if requested_path is not None and _bare(requested_path) != _bare(catalogued):
            raise InvalidRequest(
                f"table {plain} of the session's catalog is located at {catalogued}, but path= is {requested_path}"
            )
        return cls(spark, plain, requested_path or catalogued, True)

    def enter(self) -> None:
        """Create the entry, or re-create it if the table's columns have changed."""
        if self.exists:
            stored = self.spark.table(quote_spark_name(self.name)).schema
            if stored.names == (now := self.spark.read.format(_FORMAT).load(self.path).schema).names and all(
                old.dataType == new.dataType for old, new in zip(stored, now, strict=True)
            ):
                return
            self.spark.sql(f"DROP TABLE {quote_spark_name(self.name)}")
        source = f"USING {_FORMAT} LOCATION {quote_text(self.path)}"
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {quote_spark_name(self.name)} {source}")


def _bare(location: str) -> str:
    """A location without the scheme of local files."""
    return location.removeprefix("file://").removeprefix("file:").rstrip("/")
