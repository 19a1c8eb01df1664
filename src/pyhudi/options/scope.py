"""On which verbs an option acts, and what becomes of one that reaches another verb.

A verb names the settings that it reads, and their options are those that act on it.  Options come to it in two ways:

    given       with the call itself: each has to act on the verb, or the call is refused and names the verbs on which it does
    standing    with the table, or in the one mapping that a Spark job hands to everything: it may speak of other calls.  What
                chooses the rows of a read, or what a write does, has to act all the same, unless its value is the default:
                passed over, it would be answered with something else than was asked for.  Reads pass over what chooses writes,
                and services both

Options that are properties of the table may stand in every call: they are compared with the table.

The reasons stand in docs/decisions/0011-option-scopes.md.
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
from pyhudi.operations.commit.commit_settings import THREADS, CommitSettings
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import (
    AS_OF,
    FALL_BACK,
    INCREMENTAL_FORMAT,
    QUERY_OPTIONS,
    QUERY_TYPE,
    RANGE_VERSION,
    VALUES_FROM_PATH,
)
from pyhudi.operations.read.stream_queries import START_OFFSET
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.async_indexing import IndexSettings
from pyhudi.operations.services.clean import CleanSettings
from pyhudi.operations.services.cluster import ClusterSettings
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.operations.services.partition_ttl import TtlSettings
from pyhudi.operations.services.run_services import ServiceRunSettings
from pyhudi.operations.write.micro_batches import SinkSettings
from pyhudi.operations.write.write_settings import (
    OPERATION,
    OPERATIONS_ON_INPUT_ROWS,
    PARTITIONS_TO_DELETE,
    SAVE_MODE,
    WriteOperation,
    WriteSettings,
)
from pyhudi.options.declaration import Option, Options, settings_options
from pyhudi.options.supported import SUPPORTED
from pyhudi.planning.stream_batches import BatchLimits
from pyhudi.storage.locks import LockSettings
from pyhudi.tasks.base_file_writer import CODEC

TABLE_OPTIONS = settings_options(TableSettings)
"""What the table is: compared with it by every verb."""


class OperationFamily(StrEnum):
    """What a verb does: it gives rows, it takes rows or conditions on them, or it serves the table."""

    READ = "read"
    WRITE = "write"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class TableOperation:
    """One verb.  accepted: the options that act on it.  implied: options that only name a verb, and the value that names this
    one.
    """

    name: str
    family: OperationFamily
    accepted: frozenset[Option]
    implied: Mapping[Option, str] = field(default_factory=dict)

    def accepts(self, option: Option) -> bool:
        """Whether the verb goes by the option, or compares it with the table."""
        return option in self.accepted or option in TABLE_OPTIONS


def operation_for(operation: WriteOperation) -> TableOperation:
    """The verb that carries an operation out."""
    return VERBS["delete_partitions" if operation is WriteOperation.DELETE_PARTITION else str(operation)]


def spark_write_verb(operation: WriteOperation) -> TableOperation:
    """An operation as `pyhudi.spark.write` carries it out, which the options name."""
    named = {OPERATION, SAVE_MODE} | ({PARTITIONS_TO_DELETE} if operation is WriteOperation.DELETE_PARTITION else set())
    return TableOperation("pyhudi.spark.write", OperationFamily.WRITE, operation_for(operation).accepted | named)


def check_call_options(verb: TableOperation, options: Options) -> None:
    """Raises InvalidRequest for options of a call that have no effect on its verb, or name another one."""
    for key, value in options.values:
        option, said = SUPPORTED[key], f"{key}={redact_secret(key, value)}"
        if option in verb.implied:
            _check_meaning(verb, option, value)
        elif not verb.accepts(option):
            raise InvalidRequest(f"option {said} has no effect on {verb.name}, so it is refused there; {_places(option)}")


def check_table_options(verb: TableOperation, options: Options) -> None:
    """Raises InvalidRequest for standing options that choose what a read or a write does, and that this verb does not go by."""
    for key, value in options.values:
        option, said = SUPPORTED[key], f"{key}={redact_secret(key, value)}"
        concerned = verb.family is OperationFamily.WRITE or (verb.family is OperationFamily.READ and option.chooses == "read")
        if not option.chooses or not concerned or value == option.default:
            continue
        if option in verb.implied:
            _check_meaning(verb, option, value)
        elif not verb.accepts(option):
            raise InvalidRequest(
                f"option {said} chooses what a {option.chooses} does, and {verb.name} does not go by it; {_places(option)}"
            )


def _check_meaning(verb: TableOperation, option: Option, value: str) -> None:
    if verb.implied[option] != value:
        others = [other.name for other in VERBS.values() if other.implied.get(option) == value]
        hint = f"; call {' or '.join(others)}" if others else f"; {_places(option)}"
        raise InvalidRequest(f"option {option}={value} contradicts {verb.name}, which is {option}={verb.implied[option]}{hint}")


_NAMED = 6


def _places(option: Option) -> str:
    """Where an option acts, as half a sentence."""
    names = [verb.name for verb in VERBS.values() if option in verb.accepted]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"it acts on {', '.join(names[:_NAMED])}{more}"


def _verb(
    name: str,
    family: OperationFamily,
    *settings: type,
    single: Iterable[Option] = (),
    implied: Mapping[Option, str] | None = None,
    operation: str | None = None,
) -> TableOperation:
    """operation: the verb that stands in `Option.verbs` for this one; its own name when left out."""
    found = {*single, *(option for one in settings for option in settings_options(one))}
    if family is not OperationFamily.READ:
        found |= settings_options(LockSettings)
    acting = {option for option in found if not option.verbs or (operation or name) in option.verbs}
    return TableOperation(name, family, frozenset(acting - TABLE_OPTIONS), implied or {})


def _write(name: str, operation: WriteOperation) -> TableOperation:
    return _verb(name, OperationFamily.WRITE, WriteSettings, single=(THREADS,), implied={OPERATION: str(operation)})


def _change(name: str) -> TableOperation:
    """A verb that upserts rows which it makes itself."""
    upsert = _write("upsert", WriteOperation.UPSERT)
    return TableOperation(name, OperationFamily.WRITE, upsert.accepted - frozenset(OPERATIONS_ON_INPUT_ROWS), upsert.implied)


def _service(name: str, *settings: type, single: Iterable[Option] = (THREADS,)) -> TableOperation:
    return _verb(name, OperationFamily.SERVICE, *settings, single=single, operation="delete_partitions")


def _read(
    name: str, *settings: type, single: Iterable[Option] = (), implied: Mapping[Option, str] | None = None
) -> TableOperation:
    return _verb(name, OperationFamily.READ, ReadSettings, *settings, single=(THREADS, *single), implied=implied)


_SNAPSHOT = {INCREMENTAL_FORMAT: "latest_state"}
_WRITES = (
    *(_write(str(operation), operation) for operation in WriteOperation if operation is not WriteOperation.DELETE_PARTITION),
    _write("delete_partitions", WriteOperation.DELETE_PARTITION),
)
_ANY_WRITE = frozenset(option for verb in _WRITES for option in verb.accepted)


def _bootstrap_verb() -> Iterator[TableOperation]:
    """The verb of the capability, where this installation has it."""
    bootstrap = features.find("bootstrap")
    if bootstrap is not None:
        yield _verb(
            "pyhudi.bootstrap", OperationFamily.WRITE, bootstrap.BootstrapSettings, single=(THREADS,), operation="bulk_insert"
        )


VERBS: Mapping[str, TableOperation] = {
    verb.name: verb
    for verb in (
        *_WRITES,
        _change("update"),
        _change("merge"),
        TableOperation("write_batch", OperationFamily.WRITE, _ANY_WRITE),
        *_bootstrap_verb(),
        _service("rollback", CommitSettings, single=()),
        _service("restore", CommitSettings, single=()),
        _service("savepoint", CommitSettings, single=()),
        _service("delete_savepoint", CommitSettings, single=()),
        _service("set_properties", CommitSettings, single=()),
        _service("clean", CleanSettings, single=()),
        _service("archive", ArchiveSettings, single=()),
        _service("cluster", ClusterSettings),
        _service("schedule_clustering", ClusterSettings),
        _service("unschedule_clustering", CommitSettings, single=()),
        _service("compact", CompactSettings),
        _service("schedule_compaction", CompactSettings, single=()),
        _service("unschedule_compaction", CompactSettings, single=()),
        _service("log_compact", CompactSettings),
        _service("schedule_log_compaction", CompactSettings),
        _service("run_services", ServiceRunSettings, WriteSettings),
        _service("serve", ServiceRunSettings, WriteSettings),
        _service("background_services", ServiceRunSettings, WriteSettings),
        _service("run_ttl", TtlSettings, WriteSettings),
        TableOperation("expired_partitions", OperationFamily.SERVICE, settings_options(TtlSettings)),
        TableOperation("sync", OperationFamily.SERVICE, settings_options(SyncSettings)),
        _service("drop_metadata_table", CommitSettings, single=()),
        _service("upgrade", CompactSettings, single=(THREADS, CODEC)),
        _service("downgrade", CompactSettings),
        _service("repair", RepairSettings),
        *(
            _service(f"alter.{name}", AlterSettings, single=())
            for name in ("add", "drop", "rename", "retype", "reorder", "comment")
        ),
        _service("index.create", IndexSettings),
        _service("index.schedule", IndexSettings),
        _service("index.run", IndexSettings),
        _service("index.abort", IndexSettings, single=()),
        _service("index.drop", CommitSettings, single=()),
        _service("index.rebuild", IndexSettings),
        _read("scan", single=(AS_OF, VALUES_FROM_PATH), implied={QUERY_TYPE: "snapshot", **_SNAPSHOT}),
        _read("read_optimized", single=(AS_OF, VALUES_FROM_PATH), implied={QUERY_TYPE: "read_optimized", **_SNAPSHOT}),
        _read("lookup", single=(AS_OF, VALUES_FROM_PATH), implied={QUERY_TYPE: "snapshot", **_SNAPSHOT}),
        _read("filter_exists", implied={QUERY_TYPE: "snapshot", **_SNAPSHOT}),
        _read(
            "incremental",
            single=(INCREMENTAL_FORMAT, RANGE_VERSION, FALL_BACK, VALUES_FROM_PATH),
            implied={QUERY_TYPE: "incremental"},
        ),
        _read("changes", implied={QUERY_TYPE: "incremental", INCREMENTAL_FORMAT: "cdc"}),
        _read("pyhudi.spark.read", single=QUERY_OPTIONS),
        _read('readStream.format("pyhudi")', BatchLimits, single=(*QUERY_OPTIONS, START_OFFSET)),
        TableOperation(
            "pyhudi.spark.write",
            OperationFamily.WRITE,
            _ANY_WRITE | {OPERATION, PARTITIONS_TO_DELETE, SAVE_MODE},
        ),
        _change("pyhudi.spark.update"),
        replace(_write("delete", WriteOperation.DELETE), name="pyhudi.spark.delete"),
        _change("pyhudi.spark.merge"),
        TableOperation("pyhudi.spark.sql", OperationFamily.WRITE, _ANY_WRITE),
        TableOperation(
            "pyhudi.spark.write_stream", OperationFamily.WRITE, _ANY_WRITE | {OPERATION} | settings_options(SinkSettings)
        ),
    )
}
"""Every verb that takes options, by name."""
