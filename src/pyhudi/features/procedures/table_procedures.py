"""Procedures on whole tables and partitions: delete rows, copy, compare, export the timeline, sync to a Hive metastore."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.instants import Action
from pyhudi.format.partition_bucket_config import counts_path, parse_counts_file
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER, file_name
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.operations.write.index_lookup import BucketRescale
from pyhudi.operations.write.rescale_buckets import plan_rescale, run_rescale
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.index_options import BUCKET_INDEX_HASH_FIELD
from pyhudi.options.read_options import AS_OF, QUERY_TYPE, READ_BEGIN_INSTANTTIME, READ_END_INSTANTTIME
from pyhudi.options.scope import operation_for
from pyhudi.options.sync_options import (
    HIVE_METASTORE_URIS,
    HIVE_MODE,
    HIVE_PARTITION_EXTRACTOR_CLASS,
    HIVE_PARTITION_FIELDS,
    HIVE_TABLE_STRATEGY,
    INCREMENTAL,
)
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext

OTHER_PATH = "other_path"
"""Argument for the second table of commits_compare; Hudi calls it `path`, which names the table of the call here."""

_QUERY = {
    "query_type": QUERY_TYPE.key,
    "begin_instance_time": READ_BEGIN_INSTANTTIME.key,
    "end_instance_time": READ_END_INSTANTTIME.key,
    "as_of_instant": AS_OF.key,
}
"""Arguments that describe the query of a copy, with their options."""

_SYNC = {
    "metastore_uri": HIVE_METASTORE_URIS.key,
    "mode": HIVE_MODE.key,
    "partition_fields": HIVE_PARTITION_FIELDS.key,
    "partition_extractor_class": HIVE_PARTITION_EXTRACTOR_CLASS.key,
    "strategy": HIVE_TABLE_STRATEGY.key,
    "sync_incremental": INCREMENTAL.key,
}
_HIVE_SERVER = ("username", "password", "use_jdbc")
_SYNC_ARGUMENTS = ("metastore_uri", *_HIVE_SERVER, *(name for name in _SYNC if name != "metastore_uri"))

_RANGE = "begin_instance_time string =, end_instance_time string =, as_of_instant string ="
_EXPORTED = "clean,commit,deltacommit,rollback,savepoint,restore"


@procedure("partition string required", "result string")
def drop_partition(call: ProcedureCall) -> Rows:
    """Delete all records of partitions, separated by commas; `*` matches any characters."""
    call.table.delete_partitions(call.names("partition"), spark=call.spark)
    yield ("Success",)


@procedure("partitions string", "result string, time_cost bigint")
def truncate_table(call: ProcedureCall) -> Rows:
    """Delete all records, or those of some partitions, in one commit."""
    env = call.table.context.env
    started_ms = env.monotonic_ms()
    call.table.delete_partitions(call.names("partitions") or "*", spark=call.spark)
    yield "Success", env.monotonic_ms() - started_ms


@procedure(f"table, path, {OTHER_PATH} string required", "compare_detail string")
def commits_compare(call: ProcedureCall) -> Rows:
    """Compare the newest completed writes of the table and of the table at `other_path`."""
    source, target = (_write_times(table) for table in (call.table, Table(call.text(OTHER_PATH), call.storage_options)))
    newest = [max(times, default="0") for times in (source, target)]
    behind = newest[1] > newest[0]
    missing = [time for time in (target if behind else source) if time > min(newest)]
    name = call.table.config.name
    direction = "behind" if behind else "ahead"
    detail = f"Source {name} is {direction} by {len(missing)} commits. Commits to catch up - [{', '.join(missing)}]"
    yield (detail,)


@procedure(
    f"local_folder string required, limit int = -1, actions string = {_EXPORTED}, desc boolean = false", "export_detail string"
)
def export_instants(call: ProcedureCall) -> Rows:
    """Copy completed files of the active timeline to a local folder."""
    folder = Path(call.text("local_folder"))
    if not folder.is_dir():
        raise InvalidRequest(f"local_folder={folder} of export_instants is not a folder: create it first")
    chosen = call.names("actions")
    unknown = sorted(set(chosen) - {str(action) for action in Action})
    if unknown:
        raise InvalidRequest(f"actions of export_instants: {', '.join(unknown)} is no action; choose from {_EXPORTED}")
    store = call.table.context.timeline
    instants = [instant for instant in store.load().completed() if str(instant.action) in chosen]
    if call.flag("desc"):
        instants.reverse()
    limit = call.number("limit")
    instants = instants if limit < 0 else instants[:limit]
    for instant in instants:
        (folder / file_name(store.path(instant))).write_bytes(store.read(instant))
    yield (f"Exported {len(instants)} Instants to {call.text('local_folder')}",)


@procedure(
    f"query_type string = snapshot, new_table string required, {_RANGE}, save_mode string = overwrite, columns string =",
    "status int",
)
def copy_to_table(call: ProcedureCall) -> Rows:
    """Copy the rows of a query to a table of the Spark catalog. `status` is 0; errors are raised."""
    if call.spark is None:
        raise Unsupported("copy_to_table writes to the catalog of a Spark session: use hs.call, or hp.write with Table.scan")
    columns = call.names("columns")
    frame = _query(call)
    (frame.select(*columns) if columns else frame).write.mode(call.text("save_mode")).saveAsTable(call.text("new_table"))
    yield (0,)


@procedure(
    f"query_type string = snapshot, view_name string required, {_RANGE}, replace boolean = false, global boolean = false",
    "status int",
)
def copy_to_temp_view(call: ProcedureCall) -> Rows:
    """Register the rows of a query as a temporary view of the Spark session. `status` is 0; errors are raised."""
    if call.spark is None:
        raise Unsupported("copy_to_temp_view needs a Spark session: use hs.call, or hp.register for hp.sql")
    prefix = "createOrReplace" if call.flag("replace") else "create"
    suffix = "GlobalTempView" if call.flag("global") else "TempView"
    getattr(_query(call), prefix + suffix)(call.text("view_name"))
    yield (0,)


@procedure(
    "overwrite string, bucket_number int = -1, add string, dry_run boolean = true, rollback string, "
    "show_config boolean = false, rule string = regex, options string",
    "result string, operation string, details string",
)
def partition_bucket_index_manager(call: ProcedureCall) -> Rows:
    """Change, or show, the bucket counts of partitions; partitions whose count changes are rewritten in one commit."""
    table, rollback, add = call.table, call.text("rollback"), call.text("add")
    context, rules = table.context, call.text("overwrite") or add
    if call.flag("show_config"):
        stored = sorted(info.path for info in context.storage.list(BUCKET_COUNTS_FOLDER).files if parse_counts_file(info.path))
        yield "SUCCESS", "SHOW_CONFIG", ";".join((context.storage.read(path) or b"").decode() for path in stored)
    elif rollback:
        if context.storage.stat(counts_path(rollback)) is None:
            raise InvalidRequest(f"rollback={rollback}: no bucket counts of {context.storage.uri} have that instant")
        table.rollback(rollback)
        yield "SUCCESS", "ROLLBACK", f"true to rollback {rollback}"
    elif rules:
        yield from _rescale(call, rules, add=not call.text("overwrite"))
    else:
        raise InvalidRequest("partition_bucket_index_manager needs overwrite, add, rollback or show_config=true")


def _rescale(call: ProcedureCall, rules: str, *, add: bool) -> Rows:
    if call.text("rule").lower() != "regex":
        raise Unsupported(f"rule={call.text('rule')} is not supported: rules are regular expressions (rule=regex)")
    handle = TableHandle(call.path, call.storage_options, call.session_options, call.table.context.env)
    count = call.number("bucket_number")
    options = handle.parse(operation_for(WriteOperation.INSERT_OVERWRITE), call.options())
    fields = options.names(BUCKET_INDEX_HASH_FIELD)

    def plan(context: TableContext, snapshot: Snapshot) -> BucketRescale:
        return plan_rescale(context, snapshot, rules, None if count == -1 else count, fields, add=add)

    context = handle.writable(options)
    planned = plan(context, load_snapshot(context))
    if call.flag("dry_run"):
        counts = (f"{partition} => {planned.after.bucket_count(partition)}" for partition in planned.partitions)
        yield "SUCCESS", "DRY_RUN_OVERWRITE", "; ".join(counts)
        return
    settings = WriteSettings.of(options, WriteOperation.INSERT_OVERWRITE)
    run_rescale(context, handle.engine(call.spark, options), plan, settings, partial(_rows_of, call.spark))
    details = f"Expression: {planned.after.rules}, Bucket Number: {planned.after.count}, Dry Run: false"
    yield "SUCCESS", "OVERWRITE", details


def _rows_of(spark: Any, query: SnapshotQuery) -> Any:
    if spark is None:
        return Scan(query).to_reader()
    from pyhudi.engines.spark.read_dataframe import query_dataframe

    return query_dataframe(spark, query)


@procedure(", ".join(f"{name} string =" for name in _SYNC_ARGUMENTS), "result string")
def hive_sync(call: ProcedureCall) -> Rows:
    """Register the table in a Hive metastore; empty arguments have no effect."""
    for name in _HIVE_SERVER:
        if call.text(name).strip().lower() not in (("", "false") if name == "use_jdbc" else ("",)):
            raise Unsupported(
                f"{name} of hive_sync is not supported: it applies to HiveServer2, and the metastore is updated directly; omit it"
            )
    call.table.sync(options={option: call.text(name) for name, option in _SYNC.items() if call.text(name)})
    yield ("hive sync success.",)


def _write_times(table: Table) -> list[str]:
    return [instant.request_time for instant in table.timeline().completed_writes()]


def _query(call: ProcedureCall) -> Any:
    """The rows of the query that the arguments describe, as a Spark DataFrame."""
    from pyhudi import spark as hs

    options = {
        **(call.session_options or {}),
        **{option: call.text(name) for name, option in _QUERY.items() if call.text(name)},
    }
    return hs.read(call.spark, call.path, options=options, storage_options=call.storage_options)
