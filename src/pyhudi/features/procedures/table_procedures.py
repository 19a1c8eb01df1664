"""Procedures on whole tables and partitions: delete rows, copy, compare, export the timeline, list procedures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.procedures.procedure import Parameter, Procedure, ProcedureCall, Rows, schema
from pyhudi.format.instants import Action
from pyhudi.format.paths import file_name
from pyhudi.options.index_options import BUCKET_INDEX_PARTITION_EXPRESSIONS
from pyhudi.options.read_options import AS_OF, QUERY_TYPE, READ_BEGIN_INSTANTTIME, READ_END_INSTANTTIME
from pyhudi.table.partition_buckets import load_counts

OTHER_PATH = "other_path"
"""Argument for the second table of commits_compare; Hudi calls it `path`, which names the table of the call here."""

_EXPORTED = "clean,commit,deltacommit,rollback,savepoint,restore"


def drop_partition(call: ProcedureCall) -> Rows:
    """Delete all records of a partition."""
    call.table.delete_partitions(call.text("partition"), spark=call.spark)
    yield {"result": "Success"}


def truncate_table(call: ProcedureCall) -> Rows:
    """Delete all records, or those of some partitions, in one commit."""
    env = call.table.context.env
    started_ms = env.monotonic_ms()
    call.table.delete_partitions(call.names("partitions") or "*", spark=call.spark)
    yield {"result": "Success", "time_cost": env.monotonic_ms() - started_ms}


def commits_compare(call: ProcedureCall) -> Rows:
    """Compare the newest completed writes of the table and of the table at `path`."""
    source, target = (_write_times(table) for table in (call.table, Table(call.text(OTHER_PATH), call.storage_options)))
    newest = [max(times, default="0") for times in (source, target)]
    behind = newest[1] > newest[0]
    missing = [time for time in (target if behind else source) if time > min(newest)]
    name = call.table.config.name
    direction = "behind" if behind else "ahead"
    detail = f"Source {name} is {direction} by {len(missing)} commits. Commits to catch up - [{', '.join(missing)}]"
    yield {"compare_detail": detail}


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
    yield {"export_detail": f"Exported {len(instants)} Instants to {call.text('local_folder')}"}


def copy_to_table(call: ProcedureCall) -> Rows:
    """Copy the rows of a query to a table of the Spark catalog. `status` is 0; errors are raised."""
    if call.spark is None:
        raise Unsupported("copy_to_table writes to the catalog of a Spark session: use hs.call, or hp.write with Table.scan")
    columns = call.names("columns")
    frame = _query(call)
    (frame.select(*columns) if columns else frame).write.mode(call.text("save_mode")).saveAsTable(call.text("new_table"))
    yield {"status": 0}


def copy_to_temp_view(call: ProcedureCall) -> Rows:
    """Register the rows of a query as a temporary view of the Spark session. `status` is 0; errors are raised."""
    if call.spark is None:
        raise Unsupported("copy_to_temp_view needs a Spark session: use hs.call, or hp.register for hp.sql")
    prefix = "createOrReplace" if call.flag("replace") else "create"
    suffix = "GlobalTempView" if call.flag("global") else "TempView"
    getattr(_query(call), prefix + suffix)(call.text("view_name"))
    yield {"status": 0}


def partition_bucket_index_manager(call: ProcedureCall) -> Rows:
    """Show the bucket counts of partitions."""
    changes = [name for name in ("overwrite", "add", "rollback", "options") if call.text(name)]
    if changes or not call.flag("show_config"):
        raise Unsupported(
            f"partition_bucket_index_manager supports show_config=true, not {', '.join(changes) or 'changes'}: "
            f"bucket counts are set at table creation by {BUCKET_INDEX_PARTITION_EXPRESSIONS}"
        )
    context = call.table.context
    counts = load_counts(context, context.timeline.load())
    details = "" if counts is None else counts.encode().decode()
    yield {"result": "SUCCESS", "operation": "SHOW_CONFIG", "details": details}


def _write_times(table: Table) -> list[str]:
    return [instant.request_time for instant in table.timeline().completed_writes()]


def _query(call: ProcedureCall) -> Any:
    """The rows of the query that the arguments describe, as a Spark DataFrame."""
    from pyhudi import spark as hs

    options = {option: call.text(name) for name, option in _QUERY.items() if call.text(name)}
    return hs.read(call.spark, call.path, options=options, storage_options=call.storage_options)


_QUERY = {
    "query_type": QUERY_TYPE.key,
    "begin_instance_time": READ_BEGIN_INSTANTTIME.key,
    "end_instance_time": READ_END_INSTANTTIME.key,
    "as_of_instant": AS_OF.key,
}
_QUERY_PARAMETERS = (Parameter("query_type", default="snapshot"),)
_RANGE_PARAMETERS = (
    Parameter("begin_instance_time", default=""),
    Parameter("end_instance_time", default=""),
    Parameter("as_of_instant", default=""),
)

PROCEDURES = (
    Procedure(
        "drop_partition",
        (Parameter("partition", required=True),),
        schema("result string"),
        drop_partition,
        "Delete all records of a partition.",
    ),
    Procedure(
        "truncate_table",
        (Parameter("partitions"),),
        schema("result string, time_cost bigint"),
        truncate_table,
        "Delete all records, or those of some partitions.",
    ),
    Procedure(
        "commits_compare",
        (Parameter(OTHER_PATH, required=True),),
        schema("compare_detail string"),
        commits_compare,
        "Compare the newest commits of two tables.",
    ),
    Procedure(
        "export_instants",
        (
            Parameter("local_folder", required=True),
            Parameter("limit", int, -1),
            Parameter("actions", default=_EXPORTED),
            Parameter("desc", bool, False),
        ),
        schema("export_detail string"),
        export_instants,
        "Copy completed files of the timeline to a local folder.",
    ),
    Procedure(
        "copy_to_table",
        (
            *_QUERY_PARAMETERS,
            Parameter("new_table", required=True),
            *_RANGE_PARAMETERS,
            Parameter("save_mode", default="overwrite"),
            Parameter("columns", default=""),
        ),
        schema("status int"),
        copy_to_table,
        "Copy the rows of a query to a table of the Spark catalog.",
    ),
    Procedure(
        "copy_to_temp_view",
        (
            *_QUERY_PARAMETERS,
            Parameter("view_name", required=True),
            *_RANGE_PARAMETERS,
            Parameter("replace", bool, False),
            Parameter("global", bool, False),
        ),
        schema("status int"),
        copy_to_temp_view,
        "Register the rows of a query as a temporary view of the Spark session.",
    ),
    Procedure(
        "partition_bucket_index_manager",
        (
            Parameter("overwrite"),
            Parameter("bucket_number", int, -1),
            Parameter("add"),
            Parameter("dry_run", bool, True),
            Parameter("rollback"),
            Parameter("show_config", bool, False),
            Parameter("rule", default="regex"),
            Parameter("options"),
        ),
        schema("result string, operation string, details string"),
        partition_bucket_index_manager,
        "Show the bucket counts of partitions.",
    ),
)
