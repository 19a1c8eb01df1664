"""CHECK constraints of a table: conditions that every row has to satisfy when PyHudi writes it.

They are properties of the table under `CONSTRAINT_PREFIX`, which Hudi keeps and does not enforce. A condition that is
null for a row is satisfied, as in SQL.

A constraint is added under the table lock, after all rows of the latest state were found to satisfy it, and while no
write is in progress. A write compares the constraints that its rows were checked against with those of the table when
its instant begins, so none commits unchecked rows.
"""

from __future__ import annotations

import re

from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.operations.admin.stored_settings import table_constraints
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.read.query import plan_snapshot_query, table_schema
from pyhudi.operations.write.resolve_blockers import rollback_failed_if_eager
from pyhudi.options.table_options import CONSTRAINT_PREFIX
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.mergers import merge_rule
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_config import store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.read_slice import run_read

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ATTEMPTS = 5


@observed("add_constraint")
def run_add_constraint(context: TableContext, settings: CommitSettings, name: str, condition: str) -> None:
    """Add a constraint.

    Raises:
        InvalidRequest: The name is invalid or taken, the condition does not fit the columns, or a row violates it.
        Unsupported: The table merges records in a way that can produce rows which no write has checked.
        WriteConflict: Other writes are in progress.
        TableState: The table has no columns.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is no name of a constraint: use letters, digits and underscores")
    check_writable(context, retains_indexes=False)
    rollback_failed_if_eager(context, settings)
    for _ in range(_ATTEMPTS):
        context = context.reloaded()
        if any(name == known for known, _ in table_constraints(context.config)):
            raise InvalidRequest(f"table {context.storage.uri} has a constraint {name!r}: drop it first, or use another name")
        snapshot = load_snapshot(context)
        expression = parse_filter(condition)
        _check_condition(snapshot, name, expression)
        _check_rows(context, name, condition, expression)
        with context.locked(settings.lock_wait_ms) as locked:
            check_same_version(locked)
            timeline = locked.timeline.load()
            pending = timeline.pending_writes()
            if pending:
                raise WriteConflict(
                    f"cannot add constraint {name!r} to {context.storage.uri}: write {pending[0].request_time} is in progress. "
                    "Add it again when the write is done, or roll the write back"
                )
            unchanged = timeline.completed_writes() == snapshot.timeline.completed_writes()
            if unchanged and locked.reloaded().config.properties == context.config.properties:
                store_table_config(locked.storage, {CONSTRAINT_PREFIX + name: condition}, context.env)
                return
    raise WriteConflict(f"cannot add constraint {name!r} to {context.storage.uri}: other writers change the table; try again")


@observed("drop_constraint")
def run_drop_constraint(context: TableContext, settings: CommitSettings, name: str) -> None:
    """Drop a constraint. Raises InvalidRequest if it does not exist."""
    check_writable(context, retains_indexes=False)
    with context.locked(settings.lock_wait_ms) as locked:
        check_same_version(locked)
        known = [known for known, _ in table_constraints(locked.reloaded().config)]
        if name not in known:
            raise InvalidRequest(f"table {context.storage.uri} has no constraint {name!r}: it has {', '.join(known) or 'none'}")
        store_table_config(locked.storage, {CONSTRAINT_PREFIX + name: None}, context.env)


def _check_condition(snapshot: Snapshot, name: str, expression: Expr) -> None:
    schema, uri = snapshot.schema, snapshot.context.storage.uri
    if schema is None:
        raise TableState(f"table {uri} has no columns yet: write first, or create it with a schema")
    used = filter_columns(bind(expression, table_schema(snapshot, meta_columns=False)))
    if not used:
        raise InvalidRequest(f"constraint {name!r} names no column")
    rule = merge_rule(snapshot.context.config.merge, schema.defaults)
    if rule.custom_merge:
        raise Unsupported(f"constraint {name!r}: the merger of {uri} can produce rows that no write has checked")
    if len(used) > 1 and not rule.selects_one_side:
        raise Unsupported(
            f"constraint {name!r} reads {len(used)} columns, and {uri} merges records column by column: use one for each column"
        )


def _check_rows(context: TableContext, name: str, condition: str, expression: Expr) -> None:
    query = plan_snapshot_query(context, list(dict.fromkeys(n.split(".")[0] for n in filter_columns(expression))), ~expression)
    for slice_ in query.plan.slices:
        for rows in run_read(query.spec, slice_):
            if rows.num_rows:
                raise InvalidRequest(
                    f"cannot add constraint {name!r} ({condition}) to {context.storage.uri}: a row violates it: "
                    f"{rows.slice(0, 1).to_pylist()[0]!r:.200}. Change or delete such rows first"
                )
