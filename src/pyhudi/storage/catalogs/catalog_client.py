"""Interface of catalogs of tables (Hive metastore, AWS Glue) and its value types.

Both catalogs use lower-case names, and so must callers. Errors are those of `pyhudi.errors`. InvalidRequest: the
catalog rejects a name or credentials. ChangeRefused: an entry cannot be changed as requested (by a column's type).
TableState: any other refusal. StorageUnavailable: no response. A catalog is used by one thread and closed by the code
that opened it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pyhudi.errors import TableState

T = TypeVar("T")


class ChangeRefused(TableState):
    """An entry cannot be changed as requested; drop and re-create it."""


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column.

    Attributes:
        name: In lower case.
        type: A Hive type.
        comment: Comment.
    """

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table entry of a catalog.

    location, of tables and partitions: a URI as Hadoop prints it.  is_external: dropping the table keeps its files.
    parameters: of the table.  serde_parameters: of the SerDe that reads its files.
    """

    database: str
    name: str
    location: str
    columns: tuple[CatalogColumn, ...]
    partition_columns: tuple[CatalogColumn, ...]
    input_format: str
    output_format: str
    serde: str
    is_external: bool = True
    owner: str = ""
    serde_parameters: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """`database.name`."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """A partition of a table.  values: of the partition columns, in their order."""

    values: tuple[str, ...]
    location: str


class MetastoreCatalog(Protocol):
    """Tables and their partitions.  The module's docstring lists the errors of every method."""

    @property
    def name(self) -> str:
        """Type and location of the catalog, for messages."""
        ...

    @property
    def table_parameters(self) -> Mapping[str, str]:
        """Parameters that the catalog adds to every table."""
        ...

    def format_location(self, location: str) -> str:
        """A location in the spelling of the catalog's readers."""
        ...

    def databases(self) -> Sequence[str]:
        """Names of all databases."""
        ...

    def has_database(self, database: str) -> bool:
        """Whether a database exists."""
        ...

    def create_database(self, database: str, description: str) -> None:
        """Create a database; an existing one is unchanged."""
        ...

    def tables(self, database: str) -> Iterator[CatalogTable]:
        """All table entries of a database; none if it does not exist."""
        ...

    def table(self, database: str, name: str) -> CatalogTable | None:
        """A table entry; None if it does not exist."""
        ...

    def create_table(self, table: CatalogTable) -> None:
        """Register a new table."""
        ...

    def change_table(self, table: CatalogTable) -> None:
        """Replace the entry of a table; properties outside of this interface are preserved.

        If partitions have their own columns, these are replaced too.
        """
        ...

    def drop_table(self, database: str, name: str) -> None:
        """Remove the entry of a table and its partitions.  No file is deleted."""
        ...

    def partitions(self, table: CatalogTable) -> Sequence[CatalogPartition]:
        """All partitions of a table."""
        ...

    def add_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        """Register partitions, at most `batch_size` per request; existing ones are unchanged."""
        ...

    def move_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        """Change the locations of existing partitions, at most `batch_size` per request."""
        ...

    def drop_partitions(self, table: CatalogTable, partitions: Iterable[tuple[str, ...]], *, batch_size: int) -> None:
        """Remove the entries of partitions by their values; missing ones are ignored.  No file is deleted."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Split items into lists of at most `size`."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
