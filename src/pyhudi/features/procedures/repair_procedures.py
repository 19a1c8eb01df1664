"""Procedures for repair: partition metadata, hoodie.properties, damaged cleans, markers, the metadata table."""

from __future__ import annotations

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest
from pyhudi.features.procedures.procedure import Parameter, Procedure, ProcedureCall, Rows, schema
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.instants import Action, State
from pyhudi.format.properties import parse_properties, redact_secret
from pyhudi.operations.admin.repair import find_unmarked_partitions
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.storage import open_storage
from pyhudi.storage.markers import Markers, marked_instants
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.table_config import store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.write_base_files import ensure_partition


def repair_add_partition_meta(call: ProcedureCall) -> Rows:
    """List partitions with and without their metadata file; write missing ones unless `dry_run`.

    Hudi only finds folders three levels deep; here every folder with data files counts.
    """
    dry_run = call.flag("dry_run")
    context = call.table.context if dry_run else _writable(call)
    unmarked = find_unmarked_partitions(context)
    for partition in sorted({*unmarked, *DirectoryListing(context.storage).partitions()}):
        missing = partition in unmarked
        if missing and not dry_run:
            ensure_partition(context.storage, partition, unmarked[partition])
        yield {
            "partition_path": partition,
            "metadata_is_present": "No" if missing else "Yes",
            "action": "Repaired" if missing and not dry_run else "None",
        }


def repair_overwrite_hoodie_props(call: ProcedureCall) -> Rows:
    """Replace the table's properties with those of a file; returns each key of either with its old and new value."""
    folder, _, name = call.text("new_props_file_path").rpartition("/")
    data = open_storage(folder or ("/" if call.text("new_props_file_path").startswith("/") else ".")).read(name)
    if data is None:
        raise InvalidRequest(f"properties file {call.text('new_props_file_path')} does not exist")
    new_properties = parse_properties(data)
    context = _writable(call)
    with context.locked(LOCK_WAIT_MS) as locked:
        old = dict(locked.reloaded().config.properties)
        new = dict(store_table_config(locked.storage, {**dict.fromkeys(old), **new_properties}, context.env).properties)
    for key in sorted({*old, *new}):
        yield {
            "property": key,
            "old_value": redact_secret(key, old.get(key, "null")),
            "new_value": redact_secret(key, new.get(key, "null")),
        }


def repair_corrupted_clean_files(call: ProcedureCall) -> Rows:
    """Delete files of cleans on the timeline that are empty or cannot be decoded; timeline readers fail on them."""
    context = _writable(call)
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
    yield {"result": True}


def delete_marker(call: ProcedureCall) -> Rows:
    """Delete the markers of an instant. Only safe for an instant that is rolled back and whose writer is dead."""
    storage, instant = _writable(call).storage, call.text("instant_time")
    if instant not in marked_instants(storage):
        raise InstantNotFound(f"{call.table.uri} has no markers of instant {instant}")
    Markers(storage, instant).delete()
    yield {"delete_marker_result": True}


def delete_metadata_table(call: ProcedureCall) -> Rows:
    """Delete the metadata table."""
    call.table.drop_metadata_table()
    yield {"result": "Removed Metadata Table"}


def _writable(call: ProcedureCall) -> TableContext:
    context = call.table.context.reloaded()
    check_writable(context, retains_indexes=False)
    return context


LOCK_WAIT_MS = 60_000
"""How long a procedure waits for the table lock."""

_DRY_RUN = Parameter("dry_run", bool, True)

PROCEDURES = (
    Procedure(
        "repair_add_partition_meta",
        (_DRY_RUN,),
        schema("partition_path string, metadata_is_present string, action string"),
        repair_add_partition_meta,
        "Write partition metadata where it is missing.",
    ),
    Procedure(
        "repair_overwrite_hoodie_props",
        (Parameter("new_props_file_path", required=True),),
        schema("property string, old_value string, new_value string"),
        repair_overwrite_hoodie_props,
        "Replace hoodie.properties.",
    ),
    Procedure(
        "repair_corrupted_clean_files",
        (),
        schema("result boolean"),
        repair_corrupted_clean_files,
        "Remove cleans that cannot be read.",
    ),
    Procedure(
        "delete_marker",
        (Parameter("instant_time", required=True),),
        schema("delete_marker_result boolean"),
        delete_marker,
        "Remove the markers of an instant.",
    ),
    Procedure("delete_metadata_table", (), schema("result string"), delete_metadata_table, "Remove the metadata table."),
)
