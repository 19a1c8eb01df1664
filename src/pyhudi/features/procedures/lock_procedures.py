"""Procedures for the audit of the storage lock, which Hudi has since 1.1 (`set`, `show`) and 1.2 (`validate`, `cleanup`)."""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import InvalidRequest
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.paths import parent_folder
from pyhudi.storage import FileInfo
from pyhudi.storage.locks import (
    AUDIT_FOLDER,
    AUDIT_SUFFIX,
    AUDIT_SWITCH_PATH,
    AuditedHold,
    is_audit_enabled,
    set_audit_enabled,
)

_DAY_MS = 24 * 3_600_000
_STATES = {"enabled": True, "disabled": False}


@procedure("state string required", "table string, audit_state string, message string")
def set_audit_lock(call: ProcedureCall) -> Rows:
    """Switch the audit of the storage lock on (`enabled`) or off (`disabled`), for all writers of the table."""
    state = call.text("state").lower()
    if state not in _STATES:
        raise InvalidRequest(f"state={call.text('state')} of set_audit_lock is neither enabled nor disabled")
    set_audit_enabled(call.writable_context().storage, enabled=_STATES[state])
    yield call.label, state, f"Lock audit logging successfully {state}"


@procedure("", "table string, audit_enabled boolean, config_path string, audit_folder_path string")
def show_audit_lock_status(call: ProcedureCall) -> Rows:
    """Show whether the storage lock is audited, and where the audit is stored."""
    storage = call.table.context.storage
    yield call.label, is_audit_enabled(storage), storage.absolute(AUDIT_SWITCH_PATH), storage.absolute(AUDIT_FOLDER)


@procedure("", "table string, validation_result string, transactions_validated int, issues_found int, details string")
def validate_audit_lock(call: ProcedureCall) -> Rows:
    """Check that no two holders of the storage lock overlap, and list holders that did not release it.

    `validation_result` is PASSED, WARNING (a holder did not release the lock), or FAILED (holders overlap, or a file
    cannot be parsed).
    """
    storage, files = call.table.context.storage, _audit_files(call)
    if not files:
        yield call.label, "PASSED", 0, 0, f"No audit {'folder' if files is None else 'files'} found - nothing to validate"
        return
    decoded = [(file.name, AuditedHold.decode(file.name, storage.read(file.path) or b"")) for file in files]
    holds = sorted((hold for _, hold in decoded if hold is not None), key=lambda hold: hold.started_ms)
    if not holds:
        yield call.label, "FAILED", 0, len(files), "Failed to parse any audit files"
        return
    errors = [f"[ERROR] {hold.name} => overlaps with {other}" for hold, other in _overlaps(holds)]
    errors += [f"[ERROR] Failed to parse audit file: {name}" for name, hold in decoded if hold is None]
    warnings = [
        f"[WARNING] {hold.name} => transaction did not end gracefully. This could be due to driver OOM or non-graceful shutdown."
        for hold in holds
        if hold.ended_ms is None
    ]
    counts = f"Audit Files: {len(files)} total, {len(holds)} parsed successfully, {len(files) - len(holds)} failed to parse"
    issues = [*errors, *warnings]
    if not issues:
        yield call.label, "PASSED", len(holds), 0, f"All audit lock transactions validated successfully. {counts}"
        return
    yield call.label, "FAILED" if errors else "WARNING", len(holds), len(issues), f"{counts}. {', '.join(issues)}"


@procedure(
    "dry_run boolean = false, age_days int = 7",
    "table string, files_cleaned int, dry_run boolean, age_days int, message string",
)
def cleanup_audit_lock(call: ProcedureCall) -> Rows:
    """Delete files of the audit that were not changed for `age_days` days; only count them with `dry_run`."""
    dry_run, days = call.flag("dry_run"), call.number("age_days")
    if days <= 0:
        raise InvalidRequest(f"age_days={days} of cleanup_audit_lock is not positive: pass the number of days to keep")
    context = call.table.context if dry_run else call.writable_context()
    files = _audit_files(call)
    old = [file.path for file in files or () if file.modified_ms < context.env.now_ms() - days * _DAY_MS]
    if files is None:
        message = "No audit folder found - nothing to cleanup"
    elif not old:
        message = f"No audit files older than {days} days found"
    elif dry_run:
        message = f"Dry run: Would delete {len(old)} audit files older than {days} days"
    else:
        context.storage.delete(old)
        message = f"Successfully deleted {len(old)} audit files older than {days} days"
    yield call.label, len(old), dry_run, days, message


def _audit_files(call: ProcedureCall) -> Sequence[FileInfo] | None:
    """The files of the audit; None if there is no folder for them."""
    storage = call.table.context.storage
    if AUDIT_FOLDER not in storage.list(parent_folder(AUDIT_FOLDER)).folders:
        return None
    return [file for file in storage.list(AUDIT_FOLDER).files if file.name.endswith(AUDIT_SUFFIX)]


def _overlaps(holds: Sequence[AuditedHold]) -> Rows:
    """Each hold with the names of later ones that began before its end.  holds: by their start."""
    for position, hold in enumerate(holds):
        for later in holds[position + 1 :]:
            if later.started_ms >= hold.end_ms:
                break
            yield hold, later.name
