"""AWS Glue Data Catalog over boto3.

Limits per request: 100 created or changed partitions, 25 deleted ones, 1000 per page of a listing. A batch response
reports each refused partition. Each change of a table archives an old version, of which an account has a limited
number, unless the request disables that (`skip_archive`).

Locations are written as s3://, the only scheme that Athena reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyhudi.errors import InvalidRequest, StorageUnavailable, TableState
from pyhudi.options import lock_options, sync_options
from pyhudi.storage.catalogs.catalog_client import CatalogColumn, CatalogPartition, CatalogTable, batches

_CHANGED_AT_ONCE = 100
_DELETED_AT_ONCE = 25
_ANSWER_TIMEOUT_S = 60
_EXTERNAL = "EXTERNAL_TABLE"
# Fields of get_table's response that update_table accepts.
_INPUT_KEYS = frozenset(
    {
        "Name",
        "Description",
        "Owner",
        "LastAccessTime",
        "LastAnalyzedTime",
        "Retention",
        "StorageDescriptor",
        "PartitionKeys",
        "ViewOriginalText",
        "ViewExpandedText",
        "TableType",
        "Parameters",
        "TargetTable",
    }
)
_REFUSALS = frozenset(
    {"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"}
)
_INVALID_REQUEST_ERRORS = frozenset({"InvalidInputException", "ValidationException"})


class GlueCatalog:
    """The catalog of an account and region.

    region, catalog_id: None for those of the machine's configuration. credentials: access key, secret key and session
    token; None for those of the machine. lists_by_metadata: readers list files with the metadata table.

    Raises:
        InvalidRequest: boto3 is not installed, or the region is unknown.
    """

    def __init__(
        self,
        *,
        region: str | None,
        endpoint: str | None,
        catalog_id: str | None,
        credentials: tuple[str | None, str | None, str | None],
        skip_archive: bool,
        lists_by_metadata: bool,
    ) -> None:
        self._client = _client(region, endpoint, credentials)
        self._of_catalog = {} if catalog_id is None else {"CatalogId": catalog_id}
        self._skip_archive = skip_archive
        self._parameters = {"hudi.metadata-listing-enabled": "TRUE" if lists_by_metadata else "FALSE"}

    @property
    def name(self) -> str:
        return f"AWS Glue in {self._client.meta.region_name}"

    @property
    def table_parameters(self) -> Mapping[str, str]:
        return self._parameters

    def format_location(self, location: str) -> str:
        scheme, separator, bucket_path = location.partition("://")
        return f"s3://{bucket_path}" if separator and scheme in ("s3a", "s3n") else location

    def databases(self) -> Sequence[str]:
        return [entry["Name"] for page in self._pages(self._client.get_databases) for entry in page["DatabaseList"]]

    def has_database(self, database: str) -> bool:
        return self._request(self._client.get_database, Name=database, absent=True) is not None

    def create_database(self, database: str, description: str) -> None:
        database_input = {"Name": database, "Description": description}
        self._request(self._client.create_database, DatabaseInput=database_input, must_exist=True)

    def tables(self, database: str) -> Iterator[CatalogTable]:
        for page in self._pages(self._client.get_tables, DatabaseName=database, absent=True):
            yield from (_table(database, stored) for stored in page["TableList"])

    def table(self, database: str, name: str) -> CatalogTable | None:
        stored = self._stored(database, name)
        return None if stored is None else _table(database, stored)

    def create_table(self, table: CatalogTable) -> None:
        table_input = {"Name": table.name, "Owner": table.owner, "PartitionKeys": _fields(table.partition_columns)}
        _fill(table_input, table)
        self._request(self._client.create_table, DatabaseName=table.database, TableInput=table_input)

    def change_table(self, table: CatalogTable) -> None:
        stored = self._require(table)
        changed = {key: value for key, value in stored.items() if key in _INPUT_KEYS}
        _fill(changed, table)
        self._request(self._client.update_table, DatabaseName=table.database, TableInput=changed, SkipArchive=self._skip_archive)

    def drop_table(self, database: str, name: str) -> None:
        self._request(self._client.delete_table, DatabaseName=database, Name=name, absent=True)

    def partitions(self, table: CatalogTable) -> Sequence[CatalogPartition]:
        of_table = {"DatabaseName": table.database, "TableName": table.name, "ExcludeColumnSchema": True}
        return [
            CatalogPartition(tuple(entry["Values"]), entry.get("StorageDescriptor", {}).get("Location", ""))
            for page in self._pages(self._client.get_partitions, **of_table)
            for entry in page["Partitions"]
        ]

    def add_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        storage = self._require(table)["StorageDescriptor"]
        for batch in batches(partitions, min(batch_size, _CHANGED_AT_ONCE)):
            inputs = [_partition(storage, partition) for partition in batch]
            self._change(table, self._client.batch_create_partition, "AlreadyExistsException", PartitionInputList=inputs)

    def move_partitions(self, table: CatalogTable, partitions: Iterable[CatalogPartition], *, batch_size: int) -> None:
        storage = self._require(table)["StorageDescriptor"]
        for batch in batches(partitions, min(batch_size, _CHANGED_AT_ONCE)):
            moved = [
                {"PartitionValueList": list(partition.values), "PartitionInput": _partition(storage, partition)}
                for partition in batch
            ]
            self._change(table, self._client.batch_update_partition, "", Entries=moved)

    def drop_partitions(self, table: CatalogTable, partitions: Iterable[tuple[str, ...]], *, batch_size: int) -> None:
        for batch in batches(partitions, min(batch_size, _DELETED_AT_ONCE)):
            dropped = [{"Values": list(values)} for values in batch]
            self._change(table, self._client.batch_delete_partition, "EntityNotFoundException", PartitionsToDelete=dropped)

    def close(self) -> None:
        self._client.close()

    def _pages(self, call: Callable[..., Any], **what: Any) -> Iterator[Any]:
        """Send the requests of a listing; no page if the entity is missing and may be."""
        page = self._request(call, **what)
        while page is not None:
            yield page
            token = page.get("NextToken")
            page = self._request(call, **what, NextToken=token) if token else None

    def _stored(self, database: str, name: str) -> Any:
        """The table in Glue's representation; None if it does not exist."""
        answer = self._request(self._client.get_table, DatabaseName=database, Name=name, absent=True)
        return None if answer is None else answer["Table"]

    def _require(self, table: CatalogTable) -> Any:
        stored = self._stored(table.database, table.name)
        if stored is None:
            raise TableState(f"{self.name}: {table.full_name} was dropped concurrently. Synchronise again")
        return stored

    def _change(self, table: CatalogTable, call: Callable[..., Any], harmless: str, **what: Any) -> None:
        """Send a request about several partitions.  harmless: error code of partitions that need no change.

        Raises TableState for a partition that is refused with another code.
        """
        answer = self._request(call, DatabaseName=table.database, TableName=table.name, **what)
        for error in answer.get("Errors", ()):
            detail = error.get("ErrorDetail", {})
            if detail.get("ErrorCode") != harmless:
                values = "/".join(error.get("PartitionValues") or error.get("PartitionValueList") or ())
                raise TableState(
                    f"{self.name} refuses the partition {values} of {table.full_name}: {detail.get('ErrorCode')}: "
                    f"{detail.get('ErrorMessage')}"
                )

    def _request(self, call: Callable[..., Any], *, absent: bool = False, must_exist: bool = False, **what: Any) -> Any:
        """Send a request and return its response.  absent, must_exist: return None for a missing or an existing entity."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            return call(**self._of_catalog, **what)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if (absent and code == "EntityNotFoundException") or (must_exist and code == "AlreadyExistsException"):
                return None
            if code in _REFUSALS:
                raise InvalidRequest(
                    f"{self.name} refuses these credentials; check {lock_options.ACCESS_KEY}, {lock_options.SECRET_KEY} and "
                    f"{lock_options.SESSION_TOKEN}, or AWS_ACCESS_KEY_ID and its like: {error}"
                ) from error
            if code in _INVALID_REQUEST_ERRORS:
                raise InvalidRequest(f"{self.name} rejects the request: {error}") from error
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500 or code == "ThrottlingException":
                raise StorageUnavailable(f"{self.name} did not execute the request: {error}") from error
            raise TableState(f"{self.name} refuses it: {error}") from error
        except NoCredentialsError as error:
            raise InvalidRequest(
                f"{self.name}: no credentials found. Set {lock_options.ACCESS_KEY} and {lock_options.SECRET_KEY}, or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of the machine"
            ) from error
        except (BotoCoreError, OSError) as error:
            raise StorageUnavailable(f"{self.name} did not execute the request: {error}") from error


def _client(region: str | None, endpoint: str | None, credentials: tuple[str | None, str | None, str | None]) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError:
        raise InvalidRequest('the AWS Glue catalog needs boto3: pip install "pyhudi[aws]"') from None
    access_key, secret_key, token = credentials
    if (access_key is None) != (secret_key is None):
        raise InvalidRequest(f"{lock_options.ACCESS_KEY} and {lock_options.SECRET_KEY} go together: set both or none")
    try:
        return boto3.session.Session().client(
            "glue",
            region_name=region,
            endpoint_url=endpoint,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            aws_session_token=token,
            config=Config(connect_timeout=_ANSWER_TIMEOUT_S, read_timeout=_ANSWER_TIMEOUT_S),
        )
    except NoRegionError:
        raise InvalidRequest(f"AWS Glue needs a region: set {sync_options.AWS_GLUE_REGION}, or AWS_DEFAULT_REGION") from None


def _table(database: str, stored: Mapping[str, Any]) -> CatalogTable:
    storage = stored.get("StorageDescriptor", {})
    serde = storage.get("SerdeInfo", {})
    return CatalogTable(
        database=database,
        name=stored["Name"],
        location=storage.get("Location", ""),
        columns=_columns(storage.get("Columns")),
        partition_columns=_columns(stored.get("PartitionKeys")),
        input_format=storage.get("InputFormat", ""),
        output_format=storage.get("OutputFormat", ""),
        serde=serde.get("SerializationLibrary", ""),
        is_external=stored.get("TableType") == _EXTERNAL,
        owner=stored.get("Owner", ""),
        serde_parameters=dict(serde.get("Parameters", {})),
        parameters=dict(stored.get("Parameters", {})),
    )


def _fill(stored: dict[str, Any], table: CatalogTable) -> None:
    """Write the table into Glue's representation, preserving fields outside of this interface."""
    # Glue has no managed tables.
    stored["TableType"] = _EXTERNAL
    stored["Parameters"] = dict(table.parameters)
    storage = dict(stored.get("StorageDescriptor") or {"NumberOfBuckets": 0, "StoredAsSubDirectories": False})
    storage |= {
        "Columns": _fields(table.columns),
        "Location": table.location,
        "InputFormat": table.input_format,
        "OutputFormat": table.output_format,
        "SerdeInfo": {
            **storage.get("SerdeInfo", {}),
            "SerializationLibrary": table.serde,
            "Parameters": dict(table.serde_parameters),
        },
    }
    stored["StorageDescriptor"] = storage


def _partition(storage: Mapping[str, Any], partition: CatalogPartition) -> dict[str, Any]:
    """A partition with the storage descriptor of its table."""
    return {"Values": list(partition.values), "StorageDescriptor": {**storage, "Location": partition.location}}


def _columns(fields: Any) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(field["Name"], field.get("Type", ""), field.get("Comment", "")) for field in fields or ())


def _fields(columns: Iterable[CatalogColumn]) -> list[dict[str, str]]:
    return [{"Name": column.name, "Type": column.type, "Comment": column.comment} for column in columns]
