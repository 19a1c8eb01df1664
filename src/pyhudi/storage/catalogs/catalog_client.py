"""A catalog of tables, as Hive's metastore and AWS Glue both are: what passes through it, and what every catalog promises.

Names are written in lower case by both, so a caller gives them so.  Errors are those of `pyhudi.errors`: InvalidRequest for what
the catalog will not take (a name, credentials), ChangeRefused for an entry that cannot become the other (by a column's type),
TableState for whatever else stands in the way, StorageUnavailable for one that did not answer.  A catalog is used from one
thread and closed by who opened it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pyhudi.errors import TableState

T = TypeVar("T")


class ChangeRefused(TableState):
    """An entry cannot be changed into what is asked for; dropping it and making it anew is the way."""


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column.  type: in Hive's words."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as a catalog has it.  location, of it and of partitions: a URI as Hadoop prints it.

    is_external: dropping it leaves its files alone.  parameters: of the table; serde_parameters: of what reads its files.
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
    """Tables and their partitions.  The module's head says what holds for every method."""

    @property
    def name(self) -> str:
        """What it is and where, for messages."""
        ...

    @property
    def table_parameters(self) -> Mapping[str, str]:
        """Parameters that every table has there."""
        ...

    def format_location(self, location: str) -> str:
        """A location as the catalog's readers spell it."""
        ...

    def has_database(self, database: str) -> bool:
        """Whether there is such a database."""
        ...

    def create_database(self, database: str, description: str) -> None:
        """Make a database; one that is there already is left as it is."""
        ...

    def table(self, database: str, name: str) -> CatalogTable | None:
        """A table; None when there is none."""
        ...

    def create_table(self, table: CatalogTable) -> None:
        """Register a table that is not there."""
        ...

    def change_table(self, table: CatalogTable) -> None:
        """Make the table of that name be this one; what the interface does not name of it stays.

        Where partitions have columns of their own these become the table's too.
        """
        ...

    def drop_table(self, database: str, name: str) -> None:
        """Forget a table with its partitions.  No file is removed."""
        ...

    def partitions(self, table: CatalogTable) -> Sequence[CatalogPartition]:
        """All partitions of a table."""
        ...

    def add_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        """Register partitions, at most so many in a request; those that are there already are left as they are."""
        ...

    def move_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        """Give partitions that are there another location, at most so many in a request."""
        ...

    def drop_partitions(self, table: CatalogTable, partitions: Iterable[tuple[str, ...]], *, batch_size: int) -> None:
        """Forget partitions, by their values; absent ones are no error.  No file is removed."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most so many."""
    found = iter(items)
    while batch := list(itertools.islice(found, size)):
        yield batch
