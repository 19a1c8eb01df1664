"""Tables of ours in the catalog of a session, so that `spark.table` and Spark's SQL read them by name.

An entry is `CREATE TABLE name USING pyhudi LOCATION path` without columns: Spark asks the source for them, which puts the path in
(source.py).  It has the columns of that moment, and is made anew when the table's have changed.  Dropping one leaves the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyhudi.engines.spark.type_conversion import catalogued_path, quote_spark_name
from pyhudi.errors import InvalidRequest, TableExists

_FORMAT = "pyhudi"
_WAREHOUSE = "spark.sql.warehouse.dir"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A name of the catalog and the place that it stands for.  exists: whether the catalog has it already."""

    spark: SparkSession
    name: str
    path: str
    exists: bool

    @property
    def parts(self) -> list[str]:
        """The parts of the name, of which the last one is the table's own."""
        return [part.strip("`") for part in self.name.split(".")]

    @classmethod
    def of(cls, spark: SparkSession, name: str, path: str | os.PathLike[str] | None) -> CatalogEntry:
        """The table of a name.  path: None for the place that the catalog has, else one below the warehouse.

        Raises TableExists where the name stands for something else, InvalidRequest where it has another place.
        """
        plain = ".".join(part.strip("`") for part in name.split("."))
        asked = None if path is None else os.fspath(path)
        if not spark.catalog.tableExists(plain):
            warehouse = str(spark.conf.get(_WAREHOUSE)).rstrip("/")
            return cls(spark, plain, asked or f"{warehouse}/{'/'.join(plain.split('.'))}", False)
        there = catalogued_path(spark, plain)
        if there is None:
            raise TableExists(f"the session's catalog has {plain} already, and that is no table of PyHudi's: choose another name")
        if asked is not None and _bare(asked) != _bare(there):
            raise InvalidRequest(f"table {plain} of the session's catalog lies at {there}, and path= says {asked}")
        return cls(spark, plain, asked or there, True)

    def enter(self) -> None:
        """Let the catalog have the table with its present columns."""
        text = self.path.replace("\\", "\\\\").replace("'", "\\'")
        if self.exists:
            stored = self.spark.table(quote_spark_name(self.name)).schema
            if stored.names == (now := self.spark.read.format(_FORMAT).load(self.path).schema).names and all(
                old.dataType == new.dataType for old, new in zip(stored, now, strict=True)
            ):
                return
            self.spark.sql(f"DROP TABLE {quote_spark_name(self.name)}")
        self.spark.sql(f"CREATE TABLE {quote_spark_name(self.name)} USING {_FORMAT} LOCATION '{text}'")


def _bare(location: str) -> str:
    """A place without the scheme of local files."""
    return location.removeprefix("file://").removeprefix("file:").rstrip("/")
