"""Which operations accept which options, and how unsupported combinations are rejected.

An operation lists the settings that it reads; their options are the ones it accepts. Options reach it in two ways:

    call options    passed with the call: the operation must accept each of them, or the call is refused with the names of
                    the operations that do
    table options   passed with the table, or in the one mapping of a Spark job: they may belong to other calls. Options that
                    choose the rows of a read, or what a write does, must still be accepted unless their value is the
                    default: otherwise the result would differ from the request. Reads ignore options that choose writes,
                    and services ignore both

Options that are table properties are allowed in every call: they are compared with the table.

Rationale: docs/decisions/0011-option-scopes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyhudi import features
from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.alter_columns import AlterSettings
from pyhudi.operations.admin.repair import RepairSettings
from pyhudi.operations.admin.table_settings import TableSettings
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.metrics_settings import MetricsSettings
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import QUERY_OPTIONS
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.clean import CleanSettings
from pyhudi.operations.services.cluster import ClusterSettings
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.operations.services.partition_ttl import TtlSettings
from pyhudi.operations.services.run_services import ServiceRunSettings
from pyhudi.operations.write.micro_batches import SinkSettings
from pyhudi.operations.write.write_settings import OPERATIONS_ON_INPUT_ROWS, WriteOperation, WriteSettings
from pyhudi.options.declaration import Option, Options, settings_options
from pyhudi.options.file_options import PARQUET_COMPRESSION_CODEC
from pyhudi.options.read_options import (
    AS_OF,
    BLOB_ROOTS,
    INCREMENTAL_FORMAT,
    QUERY_TYPE,
    RANGE_VERSION,
    READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE,
    START_OFFSET,
    VALUES_FROM_PATH,
)
from pyhudi.options.supported import SUPPORTED
from pyhudi.options.table_options import STORED_OPTIONS
from pyhudi.options.write_options import COMMIT_METADATA, ONCE, OPERATION, PARTITIONS_TO_DELETE, SAVE_MODE, THREADS
from pyhudi.planning.stream_batches import BatchLimits
from pyhudi.storage.locks import LockSettings

TABLE_OPTIONS = settings_options(TableSettings)
"""Options that are table properties: every operation compares them with the table."""


class OperationFamily(StrEnum):
    """The family of an operation: it returns rows, it changes rows, or it maintains the table."""

    READ = "read"
    WRITE = "write"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class TableOperation:
    """One operation.

    Attributes:
        name: Name for messages.
        family: The family.
        accepted: The options that affect it.
        implied: Options that select an operation, with the value that selects this one.
    """

    name: str
    family: OperationFamily
    accepted: frozenset[Option]
    implied: Mapping[Option, str] = field(default_factory=dict)

    def accepts(self, option: Option) -> bool:
        """Return True if the option affects the operation, or is compared with the table."""
        return option in self.accepted or option in TABLE_OPTIONS


def operation_for(operation: WriteOperation) -> TableOperation:
    """Return the table operation of a write operation."""
    return TABLE_OPERATIONS["delete_partitions" if operation is WriteOperation.DELETE_PARTITION else str(operation)]


def spark_write_operation(operation: WriteOperation) -> TableOperation:
    """Return a write operation as `pyhudi.spark.write` executes it, where options select the operation."""
    selecting = {OPERATION, SAVE_MODE} | ({PARTITIONS_TO_DELETE} if operation is WriteOperation.DELETE_PARTITION else set())
    return TableOperation("pyhudi.spark.write", OperationFamily.WRITE, operation_for(operation).accepted | selecting)


def check_call_options(operation: TableOperation, options: Options) -> None:
    """Raise InvalidRequest for call options that have no effect on the operation, or select another one."""
    for key, value in options.values:
        option, assignment = SUPPORTED[key], f"{key}={redact_secret(key, value)}"
        if option in operation.implied:
            _check_implied_value(operation, option, value)
        elif not operation.accepts(option):
            raise InvalidRequest(f"option {assignment} has no effect on {operation.name}; {_list_operations(option)}")


def check_table_options(operation: TableOperation, options: Options) -> None:
    """Raise InvalidRequest for table options that choose what a read or a write does, but that this operation does not use."""
    for key, value in options.values:
        option, assignment = SUPPORTED[key], f"{key}={redact_secret(key, value)}"
        is_relevant = operation.family is OperationFamily.WRITE or (
            operation.family is OperationFamily.READ and option.chooses == "read"
        )
        if not option.chooses or not is_relevant or value == option.default:
            continue
        if option in operation.implied:
            _check_implied_value(operation, option, value)
        elif not operation.accepts(option):
            raise InvalidRequest(
                f"option {assignment} chooses what a {option.chooses} does, but {operation.name} does not support it; "
                f"{_list_operations(option)}"
            )


def _check_implied_value(operation: TableOperation, option: Option, value: str) -> None:
    if operation.implied[option] != value:
        implying = next((other.name for other in TABLE_OPERATIONS.values() if other.implied.get(option) == value), None)
        hint = f"; {_list_operations(option)}" if implying is None else f"; call {implying}"
        raise InvalidRequest(
            f"option {option}={value} contradicts {operation.name}, which requires {option}={operation.implied[option]}{hint}"
        )


_MAX_LISTED = 6


def _list_operations(option: Option) -> str:
    """The operations that use an option, as half a sentence."""
    names = [operation.name for operation in TABLE_OPERATIONS.values() if option in operation.accepted] or ["Table(...)"]
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"it is used by {', '.join(names[:_MAX_LISTED])}{more}"


def _operation(
    name: str,
    family: OperationFamily,
    *settings: type,
    extra_options: Iterable[Option] = (),
    implied: Mapping[Option, str] | None = None,
    operation: str | None = None,
) -> TableOperation:
    """operation: the name in `Option.operations` for this one; its own name if omitted."""
    options = {*extra_options, *(option for part in settings for option in settings_options(part))}
    if family is not OperationFamily.READ:
        options |= settings_options(LockSettings) | settings_options(MetricsSettings)
    effective = {option for option in options if not option.operations or (operation or name) in option.operations}
    return TableOperation(name, family, frozenset(effective - TABLE_OPTIONS), implied or {})


def _write(name: str, operation: WriteOperation) -> TableOperation:
    return _operation(name, OperationFamily.WRITE, WriteSettings, extra_options=(THREADS,), implied={OPERATION: str(operation)})


def _computed_upsert(name: str) -> TableOperation:
    """An operation that upserts rows which it computes itself."""
    upsert = _write("upsert", WriteOperation.UPSERT)
    return TableOperation(name, OperationFamily.WRITE, upsert.accepted - frozenset(OPERATIONS_ON_INPUT_ROWS), upsert.implied)


_COMMITTING = ("compact", "log_compact", "cluster", "schedule_", "run_ttl", "alter.")
"""Services whose commit or plan stores entries of the caller."""


def _service(name: str, *settings: type, extra_options: Iterable[Option] = (THREADS,)) -> TableOperation:
    service = _operation(name, OperationFamily.SERVICE, *settings, extra_options=extra_options, operation="delete_partitions")
    without = {ONCE} if name.startswith(_COMMITTING) and "constraint" not in name else {ONCE, COMMIT_METADATA}
    return replace(service, accepted=service.accepted - without)


def _read(
    name: str, *settings: type, extra_options: Iterable[Option] = (), implied: Mapping[Option, str] | None = None
) -> TableOperation:
    return _operation(
        name, OperationFamily.READ, ReadSettings, *settings, extra_options=(THREADS, *extra_options), implied=implied
    )


_SNAPSHOT = {INCREMENTAL_FORMAT: "latest_state"}
_WRITES = (
    *(_write(str(operation), operation) for operation in WriteOperation if operation is not WriteOperation.DELETE_PARTITION),
    _write("delete_partitions", WriteOperation.DELETE_PARTITION),
)
_ANY_WRITE = frozenset(option for operation in _WRITES for option in operation.accepted)


def _bootstrap_operation() -> Iterator[TableOperation]:
    """The operation of the bootstrap feature, if installed."""
    bootstrap = features.find("bootstrap")
    if bootstrap is not None:
        yield _operation(
            "pyhudi.bootstrap",
            OperationFamily.WRITE,
            bootstrap.BootstrapSettings,
            extra_options=(THREADS,),
            operation="bulk_insert",
        )


TABLE_OPERATIONS: Mapping[str, TableOperation] = {
    operation.name: operation
    for operation in (
        *_WRITES,
        _computed_upsert("update"),
        _computed_upsert("merge"),
        TableOperation("write_batch", OperationFamily.WRITE, _ANY_WRITE - {ONCE}),
        *_bootstrap_operation(),
        _service("rollback", CommitSettings, extra_options=()),
        _service("restore", CommitSettings, extra_options=()),
        _service("savepoint", CommitSettings, extra_options=()),
        _service("delete_savepoint", CommitSettings, extra_options=()),
        _service("set_properties", CommitSettings, extra_options=()),
        _service("drop", CommitSettings, extra_options=()),
        _service("clean", CleanSettings, extra_options=()),
        _service("archive", ArchiveSettings, extra_options=()),
        _service("cluster", ClusterSettings),
        _service("schedule_clustering", ClusterSettings),
        _service("unschedule_clustering", CommitSettings, extra_options=()),
        _service("compact", CompactSettings),
        _service("schedule_compaction", CompactSettings, extra_options=()),
        _service("unschedule_compaction", CompactSettings, extra_options=()),
        _service("log_compact", CompactSettings),
        _service("schedule_log_compaction", CompactSettings),
        _service("run_services", ServiceRunSettings, WriteSettings),
        _service("serve", ServiceRunSettings, WriteSettings),
        _service("background_services", ServiceRunSettings, WriteSettings),
        _service("run_ttl", TtlSettings, WriteSettings),
        TableOperation("expired_partitions", OperationFamily.SERVICE, settings_options(TtlSettings)),
        TableOperation("sync", OperationFamily.SERVICE, settings_options(SyncSettings)),
        _service("drop_metadata_table", CommitSettings, extra_options=()),
        _service("upgrade", CompactSettings, extra_options=(THREADS, PARQUET_COMPRESSION_CODEC)),
        _service("downgrade", CompactSettings),
        _service("repair", RepairSettings),
        *(
            _service(f"alter.{name}", AlterSettings, extra_options=())
            for name in ("add", "drop", "rename", "retype", "reorder", "comment", "allow_nulls")
        ),
        _service("alter.add_constraint", CommitSettings, extra_options=()),
        _service("alter.drop_constraint", CommitSettings, extra_options=()),
        _service("index.create", IndexSettings),
        _service("index.schedule", IndexSettings),
        _service("index.run", IndexSettings),
        _service("index.abort", IndexSettings, extra_options=()),
        _service("index.drop", CommitSettings, extra_options=()),
        _service("index.rebuild", IndexSettings),
        _read("scan", extra_options=(AS_OF, VALUES_FROM_PATH), implied={QUERY_TYPE: "snapshot", **_SNAPSHOT}),
        _read("read_optimized", extra_options=(AS_OF, VALUES_FROM_PATH), implied={QUERY_TYPE: "read_optimized", **_SNAPSHOT}),
        _read("lookup", extra_options=(AS_OF, VALUES_FROM_PATH), implied={QUERY_TYPE: "snapshot", **_SNAPSHOT}),
        _read("filter_exists", implied={QUERY_TYPE: "snapshot", **_SNAPSHOT}),
        _read(
            "incremental",
            extra_options=(INCREMENTAL_FORMAT, RANGE_VERSION, READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE, VALUES_FROM_PATH),
            implied={QUERY_TYPE: "incremental"},
        ),
        _read("changes", implied={QUERY_TYPE: "incremental", INCREMENTAL_FORMAT: "cdc"}),
        TableOperation("read_blobs", OperationFamily.READ, frozenset({BLOB_ROOTS})),
        _read("pyhudi.spark.read", extra_options=QUERY_OPTIONS),
        _read('readStream.format("pyhudi")', BatchLimits, extra_options=(*QUERY_OPTIONS, START_OFFSET)),
        TableOperation(
            "pyhudi.spark.write",
            OperationFamily.WRITE,
            _ANY_WRITE | {OPERATION, PARTITIONS_TO_DELETE, SAVE_MODE},
        ),
        _computed_upsert("pyhudi.spark.update"),
        replace(_write("delete", WriteOperation.DELETE), name="pyhudi.spark.delete"),
        _computed_upsert("pyhudi.spark.merge"),
        TableOperation("pyhudi.spark.sql", OperationFamily.WRITE, _ANY_WRITE | {STORED_OPTIONS}),
        TableOperation(
            "pyhudi.spark.write_stream",
            OperationFamily.WRITE,
            (_ANY_WRITE - {ONCE}) | {OPERATION} | settings_options(SinkSettings),
        ),
    )
}
"""All operations that take options, by name."""
