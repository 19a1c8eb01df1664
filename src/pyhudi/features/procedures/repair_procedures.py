"""Procedures for repair: partition metadata, hoodie.properties, damaged cleans, markers, the metadata table."""

from __future__ import annotations

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest
from pyhudi.features.procedures.file_procedures import open_metadata_table
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.instants import Action, State
from pyhudi.format.paths import METADATA_FOLDER
from pyhudi.format.properties import parse_properties, redact_secret
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS
from pyhudi.metadata_table.reader.index_lookups import find_partitions
from pyhudi.operations.admin.repair import find_unmarked_partitions
from pyhudi.storage import open_storage
from pyhudi.storage.markers import Markers, marked_instants
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.table_config import store_table_config
from pyhudi.tasks.write_base_files import ensure_partition


@procedure("dry_run boolean = true", "partition_path string, metadata_is_present string, action string")
def repair_add_partition_meta(call: ProcedureCall) -> Rows:
    """List partitions with and without their metadata file; write missing ones unless `dry_run`.

    Hudi only finds folders three levels deep; here every folder with data files counts.
    """
    dry_run = call.flag("dry_run")
    context = call.table.context if dry_run else call.writable_context()
    unmarked = find_unmarked_partitions(context)
    for partition in sorted({*unmarked, *DirectoryListing(context.storage).partitions()}):
        missing = partition in unmarked
        if missing and not dry_run:
            ensure_partition(context.storage, partition, unmarked[partition])
        yield partition, "No" if missing else "Yes", "Repaired" if missing and not dry_run else "None"


@procedure("new_props_file_path string required", "property string, old_value string, new_value string")
def repair_overwrite_hoodie_props(call: ProcedureCall) -> Rows:
    """Replace the table's properties with those of a file; returns each key of either with its old and new value."""
    folder, _, name = call.text("new_props_file_path").rpartition("/")
    data = open_storage(folder or ("/" if call.text("new_props_file_path").startswith("/") else ".")).read(name)
    if data is None:
        raise InvalidRequest(f"properties file {call.text('new_props_file_path')} does not exist")
    new_properties = parse_properties(data)
    context = call.writable_context()
    with context.locked(LOCK_WAIT_MS) as locked:
        old = dict(locked.reloaded().config.properties)
        new = dict(store_table_config(locked.storage, {**dict.fromkeys(old), **new_properties}, context.env).properties)
    for key in sorted({*old, *new}):
        yield key, *(redact_secret(key, properties.get(key, "null")) for properties in (old, new))


@procedure("", "result boolean")
def repair_corrupted_clean_files(call: ProcedureCall) -> Rows:
    """Delete files of cleans on the timeline that are empty or cannot be decoded; timeline readers fail on them."""
    context = call.writable_context()
    with context.locked(LOCK_WAIT_MS) as locked:
        store = locked.timeline
        for instant in store.load_files():
            if instant.action is not Action.CLEAN:
                continue
            data = store.read(instant)
            if instant.state is State.INFLIGHT and not data:
                # An inflight clean is legitimately empty: its plan is stored in the requested file.
                continue
            try:
                (CleanMetadata if instant.state is State.COMPLETED else CleanerPlan).decode(data)
            except CorruptData:
                locked.storage.delete([store.path(instant)])
    yield (True,)


@procedure("instant_time string required", "delete_marker_result boolean")
def delete_marker(call: ProcedureCall) -> Rows:
    """Delete the markers of an instant. Only safe for an instant that is rolled back and whose writer is dead."""
    storage, instant = call.writable_context().storage, call.text("instant_time")
    if instant not in marked_instants(storage):
        raise InstantNotFound(f"{call.table.uri} has no markers of instant {instant}")
    Markers(storage, instant).delete()
    yield (True,)


@procedure("", "result string")
def create_metadata_table(call: ProcedureCall) -> Rows:
    """Build the metadata table. Raises an error if the table has one."""
    if call.table.context.reloaded().config.has_metadata_table:
        raise InvalidRequest(f"create_metadata_table: the table at {call.table.uri} has a metadata table; delete it first")
    started_ms = call.table.context.env.monotonic_ms()
    call.table.index.create(COLUMN_STATS, spark=call.spark)
    yield (_metadata_result(call, "Created", started_ms),)


@procedure("read_only boolean = false", "result string")
def init_metadata_table(call: ProcedureCall) -> Rows:
    """Open the metadata table, which each write keeps up to date. Raises an error if the table has none."""
    started_ms = call.table.context.env.monotonic_ms()
    find_partitions(open_metadata_table(call))
    yield (_metadata_result(call, "Opened" if call.flag("read_only") else "Initialized", started_ms),)


def _metadata_result(call: ProcedureCall, verb: str, started_ms: int) -> str:
    context = call.table.context
    seconds = (context.env.monotonic_ms() - started_ms) / 1000
    return f"{verb} Metadata Table in {context.storage.absolute(METADATA_FOLDER)} (duration={seconds}secs)"


@procedure("", "result string")
def delete_metadata_table(call: ProcedureCall) -> Rows:
    """Delete the metadata table."""
    call.table.drop_metadata_table()
    yield ("Removed Metadata Table",)


LOCK_WAIT_MS = 60_000
"""How long a procedure waits for the table lock."""
