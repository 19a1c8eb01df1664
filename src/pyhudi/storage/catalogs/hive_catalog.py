"""Catalog of the Hive metastore over thriftpy2.

Changes of tables and partitions read the entry first, so that properties set by other tools are preserved. A request is
sent once: one without a response may have been executed, and the catalog sync checks the state.

No SASL (Kerberos) and no TLS; hive-site.xml is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pyhudi.errors import InvalidRequest, StorageUnavailable, TableState
from pyhudi.storage.catalogs.catalog_client import CatalogColumn, CatalogPartition, CatalogTable, ChangeRefused, batches
from pyhudi.storage.thrift_client import connect_to_first, load_messages, metastore_address

_ANSWER_TIMEOUT_MS = 60_000
_EXTERNAL = "EXTERNAL_TABLE"
_MANAGED = "MANAGED_TABLE"
_ALL = -1
_TABLES_OF_A_REQUEST = 100
"""Limit of a partition listing: unlimited."""


class HiveCatalog:
    """A Hive metastore.

    uris: of its servers; the first that answers is used.  option: the option that contains them, for messages.

    Raises:
        InvalidRequest: A URI is not thrift://host:port, or thriftpy2 is not installed.
    """

    def __init__(self, uris: Sequence[str], option: str) -> None:
        self._uris = tuple(uris)
        self._servers = tuple(metastore_address(option, uri) for uri in uris)
        _messages()
        self._client: Any = None

    @property
    def name(self) -> str:
        return f"the Hive metastore {self._uris[0]}"

    @property
    def table_parameters(self) -> Mapping[str, str]:
        return {}

    def format_location(self, location: str) -> str:
        return location

    def databases(self) -> Sequence[str]:
        return list(self._request("get_all_databases"))

    def has_database(self, database: str) -> bool:
        try:
            self._request("get_database", database)
        except _messages().NoSuchObjectException:
            return False
        return True

    def create_database(self, database: str, description: str) -> None:
        new_database = _messages().Database(name=database, description=description, parameters={})
        with suppress(_messages().AlreadyExistsException):
            self._request("create_database", new_database)

    def tables(self, database: str) -> Iterator[CatalogTable]:
        for names in batches(self._request("get_all_tables", database), _TABLES_OF_A_REQUEST):
            yield from map(_table, self._request("get_table_objects_by_name", database, names))

    def table(self, database: str, name: str) -> CatalogTable | None:
        stored = self._stored(database, name)
        return None if stored is None else _table(stored)

    def create_table(self, table: CatalogTable) -> None:
        messages = _messages()
        storage = messages.StorageDescriptor(
            compressed=False, numBuckets=0, bucketCols=[], sortCols=[], parameters={}, serdeInfo=messages.SerDeInfo()
        )
        new_table = messages.Table(
            tableName=table.name,
            dbName=table.database,
            owner=table.owner,
            createTime=0,
            lastAccessTime=0,
            retention=0,
            sd=storage,
            partitionKeys=_fields(table.partition_columns),
        )
        _fill(new_table, table)
        self._request("create_table", new_table)

    def change_table(self, table: CatalogTable) -> None:
        stored = self._require(table)
        # Partitions have their own columns; changing them takes long if there are many.
        cascades = bool(table.partition_columns) and _columns(stored.sd.cols) != table.columns
        _fill(stored, table)
        context = _messages().EnvironmentContext(properties={"CASCADE": "true"} if cascades else {})
        try:
            self._request("alter_table_with_environment_context", table.database, table.name, stored, context)
        except TableState as error:
            if isinstance(error.__cause__, _messages().InvalidOperationException):
                raise ChangeRefused(str(error)) from error
            raise

    def drop_table(self, database: str, name: str) -> None:
        with suppress(_messages().NoSuchObjectException):
            self._request("drop_table", database, name, False)

    def partitions(self, table: CatalogTable) -> Sequence[CatalogPartition]:
        listed = self._request("get_partitions", table.database, table.name, _ALL)
        return [CatalogPartition(tuple(entry.values), entry.sd.location or "") for entry in listed]

    def add_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        messages = _messages()
        for batch in batches(partitions, batch_size):
            stored = self._require(table)
            new_partitions = [
                messages.Partition(
                    values=list(partition.values),
                    dbName=table.database,
                    tableName=table.name,
                    createTime=0,
                    lastAccessTime=0,
                    sd=_storage_of(stored, partition.location),
                    parameters={},
                )
                for partition in batch
            ]
            request = messages.AddPartitionsRequest(
                dbName=table.database, tblName=table.name, parts=new_partitions, ifNotExists=True, needResult=False
            )
            self._request("add_partitions_req", request)

    def move_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        for batch in batches(partitions, batch_size):
            moved = []
            for partition in batch:
                values = list(partition.values)
                entry = self._request("get_partition", table.database, table.name, values)
                entry.sd.location = partition.location
                moved.append(entry)
            self._request("alter_partitions", table.database, table.name, moved)

    def drop_partitions(self, table: CatalogTable, partitions: Iterable[tuple[str, ...]], *, batch_size: int) -> None:
        # The metastore drops several partitions per request only by names, in its own notation.
        for values in partitions:
            value_list = list(values)
            with suppress(_messages().NoSuchObjectException):
                self._request("drop_partition", table.database, table.name, value_list, False)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _stored(self, database: str, name: str) -> Any:
        """The table in the server's representation; None if it does not exist."""
        try:
            return self._request("get_table", database, name)
        except _messages().NoSuchObjectException:
            return None

    def _require(self, table: CatalogTable) -> Any:
        stored = self._stored(table.database, table.name)
        if stored is None:
            raise TableState(f"{self.name}: {table.full_name} was dropped concurrently. Synchronise again")
        return stored

    def _request(self, call: str, *arguments: Any) -> Any:
        """Send one request and return its response. The server's NoSuchObjectException and AlreadyExistsException propagate."""
        from thriftpy2.thrift import TException

        messages = _messages()
        try:
            if self._client is None:
                self._client = connect_to_first(messages.HiveMetastore, self._servers, self.name, _ANSWER_TIMEOUT_MS)
            return getattr(self._client, call)(*arguments)
        except (messages.NoSuchObjectException, messages.AlreadyExistsException):
            raise
        except messages.InvalidObjectException as error:
            raise InvalidRequest(f"{self.name} rejects the request: {error.message}") from error
        except (messages.InvalidOperationException, messages.MetaException) as error:
            raise TableState(f"{self.name} refuses it: {error.message}") from error
        except (TException, OSError) as error:
            # Further data on this connection may belong to the failed request.
            self.close()
            raise StorageUnavailable(f"{self.name} did not execute the request: {error!r}") from error


def _table(stored: Any) -> CatalogTable:
    storage = stored.sd
    return CatalogTable(
        database=stored.dbName,
        name=stored.tableName,
        location=storage.location or "",
        columns=_columns(storage.cols),
        partition_columns=_columns(stored.partitionKeys),
        input_format=storage.inputFormat or "",
        output_format=storage.outputFormat or "",
        serde=storage.serdeInfo.serializationLib or "",
        is_external=stored.tableType == _EXTERNAL,
        owner=stored.owner or "",
        serde_parameters=dict(storage.serdeInfo.parameters or {}),
        parameters=dict(stored.parameters or {}),
    )


def _fill(stored: Any, table: CatalogTable) -> None:
    """Write the table into the server's representation, preserving fields outside of this interface."""
    stored.tableType = _EXTERNAL if table.is_external else _MANAGED
    stored.parameters = dict(table.parameters)
    storage = stored.sd
    storage.cols = _fields(table.columns)
    storage.location = table.location
    storage.inputFormat, storage.outputFormat = table.input_format, table.output_format
    storage.serdeInfo.serializationLib = table.serde
    storage.serdeInfo.parameters = dict(table.serde_parameters)


def _storage_of(stored: Any, location: str) -> Any:
    """Storage descriptor of a new partition, copied from its table."""
    storage, messages = stored.sd, _messages()
    return messages.StorageDescriptor(
        cols=storage.cols,
        location=location,
        inputFormat=storage.inputFormat,
        outputFormat=storage.outputFormat,
        compressed=False,
        numBuckets=storage.numBuckets,
        serdeInfo=storage.serdeInfo,
        bucketCols=storage.bucketCols,
        sortCols=storage.sortCols,
        parameters={},
    )


def _columns(fields: Any) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(field.name, field.type, field.comment or "") for field in fields or ())


def _fields(columns: Iterable[CatalogColumn]) -> list[Any]:
    return [_messages().FieldSchema(name=column.name, type=column.type, comment=column.comment) for column in columns]


@cache
def _messages() -> Any:
    """Messages and service of the Thrift definition next to this module."""
    return load_messages(
        Path(__file__).with_name("hive_metastore.thrift"), "pyhudi_hive_catalog_thrift", "the Hive metastore catalog"
    )
