"""Client of the HBase table in which index HBASE stores record locations, over HBase's second Thrift interface.

A row is a record key, in UTF-8.  Its cells are in the column family `_s`, all of them text:

    commit_ts        instant of the write that brought the record to its location
    file_name        id of the file group
    partition_path   its partition
    deleting         PyHudi only: instant of a write that deletes the record, or "" (see
                     `features.hbase_index.hbase_tasks`);
                     if it is the only cell, the record is deleted since that write

The first three are those of Apache Hudi's index. HBase gives every put the time of its region server, all cells of one
put the same. Rows pass through Thrift one object each, which limits the throughput of any client.

Source: docs/formats/writing.md, "Indexes used for writing".

Limits: the client creates no tables, and does not support Kerberos or TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.options.index_options import INDEX_HBASE_TABLE
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.thrift_client import connect_to_first, load_messages
from pyhudi.tasks.hbase_lookup import HbaseSettings

T = TypeVar("T")


FAMILY = b"_s"
COMMIT, FILE, PARTITION, DELETING = b"commit_ts", b"file_name", b"partition_path", b"deleting"

_ANSWER_TIMEOUT_MS = 120_000
_ROWS_OF_SCAN = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """Index entry of a key.  commit, file_id, partition: "" if `deleting` is the only cell.  deleting: "" for none;
    deleting_ms: when that was put, by the server's clock.
    """

    commit: str
    file_id: str
    partition: str
    deleting: str = ""
    deleting_ms: int = 0


class HbaseTable:
    """A connection to the table of an index.  Not thread-safe; use `open_hbase`."""

    def __init__(self, settings: HbaseSettings, client: Any) -> None:
        self._settings = settings
        self._name = (settings.table or "").encode()
        self._client = client
        self._m = _messages()

    def check(self) -> None:
        """Raise InvalidRequest if the table does not exist."""
        if not self._request(self._client.tableExists, self._table_name()):
            raise InvalidRequest(
                f"{INDEX_HBASE_TABLE}={self._settings.table}: HBase has no such table; make it first, `create "
                f"'{self._settings.table}', "
                f"'{FAMILY.decode()}'` in its shell"
            )

    def get(self, keys: Sequence[str]) -> Iterator[Entry | None]:
        """Return the entry of each key, in order; None for a key without one."""
        for batch in _batches(keys, self._settings.get_batch_size):
            columns = [self._m.TColumn(FAMILY, name) for name in (COMMIT, FILE, PARTITION, DELETING)]
            gets = [self._m.TGet(key.encode(), columns) for key in batch]
            results = self._request(self._client.getMultiple, self._name, gets)
            yield from map(_entry, results)
            _pause(self._settings.get_pause_ms)

    def put(self, rows: Iterable[tuple[str, Mapping[bytes, str]]]) -> None:
        """Write cells: of each key, values by column.  Those of one key appear atomically."""
        for batch in _batches(rows, self._settings.put_batch_size):
            puts = [
                self._m.TPut(key.encode(), [self._m.TColumnValue(FAMILY, name, value.encode()) for name, value in cells.items()])
                for key, cells in batch
            ]
            self._request(self._client.putMultiple, self._name, puts)
            _pause(self._settings.put_pause_ms)

    def delete_locations(self, rows: Iterable[tuple[str, int]]) -> None:
        """Delete the locations of keys, but not `deleting`, if put at or before a time: ms of the server's clock."""
        self._delete(
            rows, self._m.TDeleteType.DELETE_COLUMNS, [self._m.TColumn(FAMILY, name) for name in (COMMIT, FILE, PARTITION)]
        )

    def delete_written(self, rows: Iterable[tuple[str, int]]) -> None:
        """Delete the cells of keys that were put at a time; if HBase retains earlier versions, those reappear."""
        self._delete(rows, self._m.TDeleteType.DELETE_FAMILY_VERSION, [self._m.TColumn(FAMILY)])

    def changed_since(self, time_ms: int) -> Iterator[tuple[str, Mapping[bytes, tuple[str, int]]]]:
        """Return the keys whose cells were put at a time or later, each with the newest value of such cells and its time."""
        scan = self._m.TScan(
            columns=[self._m.TColumn(FAMILY)],
            caching=_ROWS_OF_SCAN,
            timeRange=self._m.TTimeRange(max(0, time_ms), (1 << 63) - 1),
        )
        number = self._request(self._client.openScanner, self._name, scan)
        try:
            while results := self._request(self._client.getScannerRows, number, _ROWS_OF_SCAN):
                for row in results:
                    yield row.row.decode(), {c.qualifier: (c.value.decode(), c.timestamp) for c in row.columnValues}
        finally:
            self._request(self._client.closeScanner, number)

    def _delete(self, rows: Iterable[tuple[str, int]], delete_type: Any, columns: Sequence[Any]) -> None:
        for batch in _batches(rows, self._settings.put_batch_size):
            deletes = [
                # A time of the whole deletion does not go for columns that are named.
                self._m.TDelete(
                    key.encode(),
                    [self._m.TColumn(c.family, c.qualifier, time_ms) for c in columns],
                    timestamp=time_ms,
                    deleteType=delete_type,
                )
                for key, time_ms in batch
            ]
            left = self._request(self._client.deleteMultiple, self._name, deletes)
            if left:
                raise StorageUnavailable(f"{self._where}: {len(left)} of {len(deletes)} deletions failed")
            _pause(self._settings.put_pause_ms)

    def _table_name(self) -> Any:
        space, _, name = (self._settings.table or "").rpartition(":")
        return self._m.TTableName(ns=space.encode() or None, qualifier=name.encode())

    @property
    def _where(self) -> str:
        return f"index HBASE in table {self._settings.table} ({', '.join(self._settings.servers)})"

    def _request(self, call: Callable[..., Any], *arguments: Any) -> Any:
        from thriftpy2.thrift import TException

        try:
            return call(*arguments)
        except (TException, OSError) as error:
            raise StorageUnavailable(f"{self._where} does not respond: {getattr(error, 'message', None) or error!r}") from error


@contextmanager
def open_hbase(settings: HbaseSettings) -> Iterator[HbaseTable]:
    """Open a connection to the first server that responds, until the block ends.

    Raises:
        InvalidRequest: An option is missing or thriftpy2 is not installed.
        StorageUnavailable: No server responds; also raised by requests inside the block.
    """
    addresses = settings.addresses
    client = connect_to_first(
        _messages().THBaseService, addresses, "index HBASE", _ANSWER_TIMEOUT_MS, server="Thrift server of HBase"
    )
    try:
        yield HbaseTable(settings, client)
    finally:
        client.close()


@cache
def _messages() -> Any:
    return load_messages(Path(__file__).with_name("hbase.thrift"), "pyhudi_hbase_thrift", "index HBASE", extra="hbase")


def _entry(result: Any) -> Entry | None:
    cells = {c.qualifier: (c.value.decode(), c.timestamp) for c in result.columnValues}
    deleting, deleting_ms = cells.get(DELETING, ("", 0))
    if {COMMIT, FILE, PARTITION} <= cells.keys():
        return Entry(cells[COMMIT][0], cells[FILE][0], cells[PARTITION][0], deleting, deleting_ms)
    # What another writer has removed since a put of ours leaves nothing, or an empty `deleting`.
    return Entry("", "", "", deleting, deleting_ms) if deleting else None


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _pause(duration_ms: int) -> None:
    if duration_ms:
        SystemEnvironment().sleep_ms(duration_ms)
