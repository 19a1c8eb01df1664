"""Change data capture (CDC) queries: from a range of instants to the sources that tasks read (`tasks.read_changes`).

    by completion time   `Table.changes` and streams: both ends included (or the start excluded), so that a consumer
                         that continues from the last completion time it has read misses nothing
    by request time      Hudi's own options: start excluded, end included

Archived instants are included as long as their files exist.

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
from pyhudi.operations.read.checkpoints import check_checkpoint_not_restored
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.projection import narrowed
from pyhudi.operations.read.query import archived_instants, check_columns_compatible, read_spec, with_latest_columns
from pyhudi.options import table_options
from pyhudi.options.write_options import DELETE_FIELD
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
    """A CDC query: the sources of ``plan``, read with ``spec``, on ``snapshot``."""

    snapshot: Snapshot
    spec: ChangeSpec
    plan: ChangePlan

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self.spec.output

    @property
    def tasks(self) -> tuple[ChangeSource, ...]:
        """Inputs of `reader`, to read sequentially or in parallel."""
        return self.plan.sources

    @property
    def reader(self) -> Callable[[ChangeSource], Iterator[pa.Table]]:
        """Return a picklable function that reads one task."""
        return partial(run_changes, self.spec)

    def without_columns(self) -> ChangeQuery:
        """Return the query for the same rows without columns, to count them."""
        return replace(self, spec=replace(self.spec, output=pa.schema([])))

    def narrowed(self, columns: Sequence[str] | None, condition: Expr | None) -> ChangeQuery:
        """Push projection and predicate down into the query.

        Args:
            columns: Output columns, None for all.
            condition: Predicate, bound to the columns of this query.
        """
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
    """Plan a query for all changes by the instants of a range.

    Args:
        columns: Of op, ts_ms, before, after; None or "*" for all.
        condition: Predicate on these columns.
        typed: Return images as structs.
        settings: How files are found.

    Raises:
        TableState: The table records no change data, files with changes are missing, or the range continues from an
            instant that was rolled back since.
        InvalidRequest: Columns or filter are invalid.
    """
    if not context.config.cdc_enabled:
        raise TableState(
            f"the table at {context.storage.uri} records no change data: it was created without "
            f"{table_options.CHANGES}=true; an incremental query returns the changed records in their latest "
            "state"
        )
    if settings.marker is not None:
        raise Unsupported(
            f"{DELETE_FIELD} does not apply to a query of change data, which returns changes as they were written; omit it"
        )
    snapshot = load_snapshot(context, settings.listing)
    check_checkpoint_not_restored(snapshot, range_)
    active = select_instants(snapshot.timeline, range_)
    archived = archived_instants(snapshot, range_)
    commits = {instant: read_commit(context.timeline, instant, needs_content=True) for instant in active}
    commits.update({instant: _archived_commit(snapshot, instant) for instant in archived})
    chosen = {instant: metadata for instant, metadata in commits.items() if changes_records(metadata)}
    snapshot = with_latest_columns(snapshot, chosen)
    check_columns_compatible(snapshot, {**_before_replaced(snapshot, chosen), **chosen})
    reader = replace(read_spec(snapshot, ["*"]), checksums=settings.checksums, folder_values=True)
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
    """Add to the sources the bootstrap files that store the rows of some file slices."""
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
    """Return the last write before each commit that replaces files; its rows are the before images."""
    writes, previous = snapshot.timeline.completed_writes(), {}
    for replacing in (instant for instant, metadata in commits.items() if metadata.partition_to_replace_file_ids):
        earlier = [instant for instant in writes if instant.request_time < replacing.request_time]
        previous.update({instant: read_commit(snapshot.context.timeline, instant) for instant in earlier[-1:]})
    return previous


def chosen_change_columns(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Select columns of change data from the schema of `change_schema`; None or "*" selects CHANGE_COLUMNS.

    Raises:
        InvalidRequest: A column does not exist.
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
            f"the changes of instant {instant.request_time} are not available: it was archived without its commit "
            "metadata; begin after it"
        )
    return metadata
