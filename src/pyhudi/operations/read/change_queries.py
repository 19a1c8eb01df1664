"""Queries of change data: from a range of instants to the sources that tasks read (`tasks.read_changes`).

    by completion time   `Table.changes` and streams: both ends included (or the start left out), so that a consumer which goes on
                         from the last completion time that it saw misses nothing
    by request time      Hudi's own options: the start left out, the end included

Archived instants count as long as their files are there.

Source: docs/formats/reading.md, "Change data".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Instant
from pyhudi.operations.commit.commit_settings import DELETE_FIELD
from pyhudi.operations.read.checkpoints import check_checkpoint_not_restored
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.projection import narrowed
from pyhudi.operations.read.query import archived_instants, check_columns_compatible, read_spec, with_latest_columns
from pyhudi.planning.change_data import ChangePlan, ChangeSource, changed_partitions, changes_records, plan_changes
from pyhudi.planning.incremental_query import CompletionRange, RequestRange, select_instants
from pyhudi.planning.partition_pruning import PruningStep
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_parser import Filter, parse_filter
from pyhudi.table.bootstrap_sources import with_sources
from pyhudi.table.file_slices import build_file_groups
from pyhudi.table.snapshot import Snapshot, load_snapshot, read_commit, retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.read_changes import CHANGE_COLUMNS, ChangeSpec, change_schema, run_changes

_DEFAULT_SETTINGS = ReadSettings()


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """The sources of `plan`, read as `spec` says, from the table's state in `snapshot`."""

    snapshot: Snapshot
    spec: ChangeSpec
    plan: ChangePlan

    @property
    def schema(self) -> pa.Schema:
        """The columns that the query gives."""
        return self.spec.output

    @property
    def tasks(self) -> tuple[ChangeSource, ...]:
        """What `reader` reads, one after the other or side by side."""
        return self.plan.sources

    @property
    def reader(self) -> Callable[[ChangeSource], Iterator[pa.Table]]:
        """Reads one task; picklable."""
        return partial(run_changes, self.spec)

    def without_columns(self) -> ChangeQuery:
        """The same rows without any column, to be counted."""
        return replace(self, spec=replace(self.spec, output=pa.schema([])))

    def narrowed(self, columns: Sequence[str] | None, condition: Expr | None) -> ChangeQuery:
        """Some of the columns and rows that this query gives.  columns: None for all.  condition: on them, bound to them."""
        return replace(self, spec=narrowed(self.spec, columns, condition))


@retry_on_stale_files
def plan_change_query(
    context: TableContext,
    range_: CompletionRange | RequestRange,
    columns: Sequence[str] | None = None,
    condition: Filter | None = None,
    *,
    typed: bool = False,
    settings: ReadSettings = _DEFAULT_SETTINGS,
) -> ChangeQuery:
    """What the instants of a range changed, change by change.

    columns: of op, ts_ms, before, after; None or "*" for all.  condition: on these columns.  typed: images are structs.
    Raises TableState for a table that records no change data, and when files that tell changes are gone, or the range goes on
    from what was taken back since; InvalidRequest for columns or filters that do not fit.
    """
    if not context.config.cdc_enabled:
        raise TableState(
            f"the table at {context.storage.uri} records no change data: it was created without hoodie.table.cdc.enabled=true; "
            f"an incremental query gives the changed records in their latest state"
        )
    if settings.marker is not None:
        raise Unsupported(f"{DELETE_FIELD} in a query of change data: it tells changes as they were written")
    snapshot = load_snapshot(context, settings.listing)
    check_checkpoint_not_restored(snapshot, range_)
    active = select_instants(snapshot.timeline, range_)
    archived = archived_instants(snapshot, range_)
    commits = {instant: read_commit(context.timeline, instant) for instant in active}
    commits.update({instant: _archived_commit(snapshot, instant) for instant in archived})
    chosen = {instant: metadata for instant, metadata in commits.items() if changes_records(metadata)}
    snapshot = with_latest_columns(snapshot, chosen)
    check_columns_compatible(snapshot, {**_before_replaced(snapshot, chosen), **chosen})
    reader = read_spec(snapshot, ["*"], None)
    schema = change_schema(reader.table_schema, typed=typed)
    spec = ChangeSpec(
        reader=reader,
        output=chosen_change_columns(schema, columns),
        condition=None if condition is None else bind(parse_filter(condition), schema),
        typed=typed,
    )
    total = len(snapshot.timeline.completed_writes()) + len(archived)
    prunings = (
        PruningStep("times", "instants", len(commits), total),
        PruningStep("operations", "instants", len(chosen), len(commits)),
    )
    files = snapshot.listing.files(changed_partitions(chosen.values())) if chosen else {}
    sizes = {info.path: info.size_bytes for infos in files.values() for info in infos}
    groups = {partition: build_file_groups(partition, infos, snapshot.slicing) for partition, infos in files.items()}
    sources = _with_rows(context, plan_changes(chosen, sizes, groups, snapshot.slicing, context.config.cdc_mode))
    return ChangeQuery(snapshot, spec, ChangePlan.of(sources, prunings))


def _with_rows(context: TableContext, sources: tuple[ChangeSource, ...]) -> tuple[ChangeSource, ...]:
    """The sources, with the files outside of the table that hold the rows of some slices."""
    if context.config.bootstrap_base_path is None:
        return sources
    every = iter(with_sources(context, [s for source in sources for s in (source.before, source.after) if s is not None]))
    return tuple(
        replace(
            source,
            before=None if source.before is None else next(every),
            after=None if source.after is None else next(every),
        )
        for source in sources
    )


def _before_replaced(snapshot: Snapshot, commits: Mapping[Instant, CommitMetadata]) -> dict[Instant, CommitMetadata]:
    """The last write before each of the commits that replaces files, whose rows are the before images."""
    writes, found = snapshot.timeline.completed_writes(), {}
    for replacing in (instant for instant, metadata in commits.items() if metadata.partition_to_replace_file_ids):
        earlier = [instant for instant in writes if instant.request_time < replacing.request_time]
        found.update({instant: read_commit(snapshot.context.timeline, instant) for instant in earlier[-1:]})
    return found


def chosen_change_columns(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Those of the columns of change data that are asked for; None or "*" for CHANGE_COLUMNS.  Raises InvalidRequest for others.

    schema: of `change_schema`.
    """
    names = ["*"] if columns is None else [columns] if isinstance(columns, str) else list(columns)
    names = [other for name in names for other in (CHANGE_COLUMNS if name == "*" else (name,))]
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise InvalidRequest(f"change data has no column {unknown[0]!r}; its columns are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])


def _archived_commit(snapshot: Snapshot, instant: Instant) -> CommitMetadata:
    row = snapshot.context.timeline.history.find(instant.request_time, instant.action)
    metadata = decode_completed(instant.action, row.metadata) if row is not None and row.metadata else None
    if not isinstance(metadata, CommitMetadata):
        raise TableState(
            f"the changes of instant {instant.request_time} cannot be told any more: it was archived without what it wrote; "
            f"begin after it"
        )
    return metadata
