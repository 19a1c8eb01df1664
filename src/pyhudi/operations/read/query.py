"""Queries: from a caller's request to the file slices, columns and predicate that tasks read.

    snapshot         the latest state, or the state as of a request time (time travel)
    read optimized   the base files of the latest state only
    incremental      the records changed by instants that completed in a range, in their state as of the end of the
                     range

An engine reads a `SnapshotQuery`; no layer below decides which files belong to a query.

Source: docs/formats/reading.md, "Time travel" and "Incremental queries".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial

import pyarrow as pa

from pyhudi.errors import InvalidRequest, SnapshotOutdated, TableState, Unsupported
from pyhudi.format.actions.archived_instants import COMMIT_LIKE
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.avro_to_arrow import check_supported
from pyhudi.format.instants import Instant, State
from pyhudi.format.meta_columns import COMMIT_TIME, META_COLUMNS, with_meta_fields
from pyhudi.format.names import BASE_EXTENSIONS, is_log_file
from pyhudi.format.paths import file_name
from pyhudi.format.table_versions import TableVersion, parse_table_version
from pyhudi.operations.read.checkpoints import check_checkpoint_not_restored, earliest_request
from pyhudi.operations.read.file_pruning import ReadSettings, plan_filtered_read
from pyhudi.operations.read.projection import narrowed
from pyhudi.operations.read.time_travel_checks import check_as_of, check_not_before_first, resolve_local_time
from pyhudi.options import read_options
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import AS_OF, COLUMNS, FILTER, INCREMENTAL_FORMAT, QUERY_TYPE, RANGE_VERSION, VALUES_FROM_PATH
from pyhudi.planning.incremental_query import CompletionRange, RequestRange, changed_files, restricted_timeline, select_instants
from pyhudi.planning.partition_pruning import PruningStep, ReadPlan, plan_slices, prune_partitions
from pyhudi.planning.time_travel import parse_as_of
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Expr, In
from pyhudi.records.filters.filter_parser import Filter, parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.mergers import marked_rule, merge_rule
from pyhudi.records.record_merge import CommitTimeRule
from pyhudi.records.schema_evolution import SchemaMode, continues, schema_changes
from pyhudi.storage.base import FileInfo
from pyhudi.table.bootstrap_sources import with_sources
from pyhudi.table.file_slices import FileSlice, SlicingState, build_file_groups, visible_slices
from pyhudi.table.log_file_sizes import check_size, sizes_in
from pyhudi.table.snapshot import Snapshot, TableSchema, load_snapshot, newest_schema, read_commit, retry_on_stale_files
from pyhudi.table.snapshot_cache import SnapshotCache
from pyhudi.table.table_context import TableContext
from pyhudi.table.tags import resolve_tag
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import ReadSpec, run_read

QUERY_OPTIONS = (
    QUERY_TYPE,
    INCREMENTAL_FORMAT,
    AS_OF,
    read_options.READ_BEGIN_INSTANTTIME,
    read_options.READ_END_INSTANTTIME,
    RANGE_VERSION,
    read_options.READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE,
    VALUES_FROM_PATH,
    COLUMNS,
    FILTER,
)
"""Options of Spark readers that describe a query; `ReadSettings` has those that describe how files are found."""

_DEFAULT_SETTINGS = ReadSettings()


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """The file slices of ``plan``, with the columns and the predicate of ``spec``, on ``snapshot``.

    Attributes:
        snapshot: The snapshot.
        spec: Columns and predicate.
        plan: File slices and pruning steps.
        is_latest: The query returns all rows of the latest state.
        found_by: How its slices were found; None if instants determined them.
    """

    snapshot: Snapshot
    spec: ReadSpec
    plan: ReadPlan
    is_latest: bool = False
    found_by: CandidateSearch | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self.spec.output

    @property
    def tasks(self) -> tuple[FileSlice, ...]:
        """Inputs of `reader`, to read sequentially or in parallel."""
        return self.plan.slices

    @property
    def reader(self) -> Callable[[FileSlice], Iterator[pa.Table]]:
        """Return a picklable function that reads one task."""
        return partial(run_read, self.spec)

    def without_columns(self) -> SnapshotQuery:
        """Return the query for the same rows without columns, to count them."""
        return replace(self, spec=replace(self.spec, output=pa.schema([])))

    def narrowed(self, columns: Sequence[str] | None, condition: Expr | None) -> SnapshotQuery:
        """Push projection and predicate down into the query, on the same snapshot.

        Args:
            columns: Output columns, None for all.
            condition: Predicate, bound to the columns of this query; slices without matching rows are pruned.
        """
        query = replace(self, spec=narrowed(self.spec, columns, condition), is_latest=False)
        return query if condition is None else replace(query, plan=query._without_excluded())

    def _without_excluded(self) -> ReadPlan:
        """The plan without slices that the predicate prunes. Files that were cleaned concurrently are not detected here."""
        slices, spec = self.plan.slices, self.spec
        if self.found_by is not None:
            with suppress(SnapshotOutdated):
                plan = self.found_by.plan(self.snapshot, spec)
                remaining = {(slice_.partition, slice_.file_id) for slice_ in plan.slices}
                return ReadPlan(tuple(s for s in slices if (s.partition, s.file_id) in remaining), plan.prunings)
        slice_partitions = {slice_.partition for slice_ in slices}
        partitions, pruning = prune_partitions(slice_partitions, spec.keys, spec.table_schema, spec.condition, spec.path_columns)
        steps = (*self.plan.prunings, *((pruning,) if pruning else ()))
        return ReadPlan(tuple(s for s in slices if s.partition in partitions), steps)


@dataclass(frozen=True, slots=True)
class CandidateSearch:
    """How file slices that may match a predicate are found."""

    settings: ReadSettings
    as_of: str | None = None
    base_files_only: bool = False

    def plan(self, snapshot: Snapshot, spec: ReadSpec) -> ReadPlan:
        """Return the file slices that may have rows matching the predicate of ``spec``."""
        return plan_filtered_read(snapshot, spec, self.settings, as_of=self.as_of, base_files_only=self.base_files_only)


@retry_on_stale_files
def plan_snapshot_query(
    context: TableContext,
    columns: Sequence[str] | None = None,
    condition: Filter | None = None,
    *,
    as_of: str | None = None,
    base_files_only: bool = False,
    values_from_path: bool = False,
    settings: ReadSettings = _DEFAULT_SETTINGS,
    cached: SnapshotCache | None = None,
) -> SnapshotQuery:
    """Plan a snapshot, time travel or read-optimized query.

    Args:
        columns: Output columns, None for all.
        condition: Predicate.
        as_of: An instant, a time in a form of `planning.time_travel`, or a tag (`table.tags`).
        base_files_only: Read-optimized query.
        values_from_path: Read partition columns from the path.
        settings: How files are found.
        cached: Cached snapshot, used if it is current.

    Raises:
        InvalidRequest: Columns or predicate are invalid for the table, or ``as_of`` is malformed or before the first
            commit.
        TableState: The table has no schema, or the state as of the time may be missing or may still change.
    """
    as_of = None if as_of is None else parse_as_of(resolve_tag(context, as_of))
    timeline = None
    if as_of is not None and context.config.zone is not UTC:
        timeline = context.timeline.load()
        as_of = resolve_local_time(context, timeline, as_of)
    if as_of is None:
        snapshot = load_latest_snapshot(context, settings, cached)
    else:
        snapshot = load_snapshot(context, settings.listing, as_of, timeline, external_files=settings.external_files)
        check_not_before_first(snapshot, as_of)
        check_as_of(snapshot, as_of)
    spec = _read_spec(
        snapshot, columns, condition, _validity(snapshot, as_of), values_from_path=values_from_path, settings=settings
    )
    if context.config.bootstrap_base_path is not None:
        # Statistics do not cover rows in bootstrap source files.
        settings = replace(settings, skip_data=False)
    if cached is not None:
        spec = replace(spec, footers=cached.footers)
    search = CandidateSearch(settings, as_of, base_files_only)
    plan = _with_sources(context, search.plan(snapshot, spec))
    return SnapshotQuery(snapshot, spec, plan, is_latest=as_of is None and not base_files_only, found_by=search)


def load_latest_snapshot(context: TableContext, settings: ReadSettings, cached: SnapshotCache | None) -> Snapshot:
    """Load the latest snapshot, from the cache if it is current. The cache is not used when directories are listed."""
    if cached is None or not settings.use_metadata_table:
        return load_snapshot(context, settings.listing, external_files=settings.external_files)
    return cached.snapshot(context)


def incremental_range(options: Options, version: TableVersion, start: str, end: str | None) -> CompletionRange | RequestRange:
    """Build the range of an incremental query from options.

    Bounds are completion times (see `completion_range`). Before table version 8, which stores none, they are request
    times with the start excluded. `hoodie.datasource.read.incr.table.version` selects one of the two by version.
    """
    range_version = options.text(RANGE_VERSION)
    layout = version.layout if range_version is None else parse_table_version(range_version).layout
    return completion_range(version, start, end) if layout.has_completion_time_in_names else RequestRange.parse(start, end)


def completion_range(version: TableVersion, start: str, end: str | None) -> CompletionRange:
    """Build a range of completion times, end included; the start is interpreted as Hudi does for that table version."""
    return replace(CompletionRange.parse(start, end), open_start=version.has_open_ranges)


@retry_on_stale_files
def plan_incremental_query(
    context: TableContext,
    range_: CompletionRange | RequestRange,
    columns: Sequence[str] | None = None,
    condition: Filter | None = None,
    *,
    fall_back: bool = True,
    values_from_path: bool = False,
    historical_columns: bool = True,
    settings: ReadSettings = _DEFAULT_SETTINGS,
) -> SnapshotQuery:
    """Plan a query for the records changed by the instants of a range, in their state as of the last of them.

    If an overwrite has since changed column types incompatibly, the rows have the columns of that time.

    Args:
        columns: Output columns, None for all.
        condition: Predicate.
        fall_back: If files of those instants were cleaned or the instants archived, read the latest state and filter by
            commit time; row versions that base files have overwritten since are missing then. False raises TableState
            instead.
        values_from_path: Read partition columns from the path.
        historical_columns: False raises TableState if an overwrite changed columns, for callers with fixed columns.
        settings: How files are found.

    Raises:
        InvalidRequest: The table has no meta columns, hence no commit times.
        TableState: The range continues from an instant that was rolled back since.
    """
    if not context.config.populate_meta_fields:
        raise InvalidRequest(
            f"incremental queries of the table at {context.storage.uri} are not possible: it has no meta columns"
        )
    snapshot = load_snapshot(context, settings.listing)
    check_checkpoint_not_restored(snapshot, range_)
    active = select_instants(snapshot.timeline, range_)
    archived = archived_instants(snapshot, range_)
    instants = (*archived, *active)
    commits = {} if archived else {instant: read_commit(context.timeline, instant, needs_content=True) for instant in active}
    snapshot_then = with_latest_columns(snapshot, commits)
    if snapshot_then is not snapshot and not historical_columns:
        check_columns_compatible(snapshot, commits)
    snapshot = snapshot_then
    spec = _read_spec(snapshot, columns, condition, _validity(snapshot), values_from_path=values_from_path, settings=settings)
    in_range = bind(In(COMMIT_TIME, tuple(i.request_time for i in instants)), spec.table_schema)
    spec = replace(spec, condition=in_range if spec.condition is None else And((in_range, spec.condition)))
    if not instants:
        return SnapshotQuery(snapshot, spec, ReadPlan((), (PruningStep("completion times", "instants", 0, 0),)))
    total = len(snapshot.timeline.completed_writes()) + len(archived)
    chosen = PruningStep("completion times", "instants", len(instants), total)
    slices = None
    if not archived:
        slices = _slices_of_range(snapshot, commits)
    if slices is None:
        if not fall_back:
            raise TableState(
                f"files of the instants from {range_.start} to {range_.end or 'now'} were cleaned, or the instants "
                "archived; allow the fallback to the latest state "
                f"({read_options.READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE}=true) or begin later"
            )
        every, schema = snapshot.listing.partitions(), spec.table_schema
        partitions, pruning = prune_partitions(every, context.config.keys, schema, spec.condition, spec.path_columns)
        # Log blocks written after the range must not hide the earlier values of their keys.
        before = _validity(snapshot, max(i.request_time for i in instants))
        plan = _with_steps(plan_slices(snapshot.slices(partitions), pruning), chosen, "fallback to the latest state")
        return SnapshotQuery(snapshot, replace(spec, validity=before), _with_sources(context, plan))
    # A base file of the range may hold rows from before it, which must not hide late rows of the range.
    spec = replace(spec, base_condition=in_range)
    validity = replace(spec.validity, completed=frozenset(i.request_time for i in instants), start=None)
    past = _validity(snapshot, max(i.request_time for i in instants))
    plan = _with_sources(context, _with_steps(plan_slices(slices, None), chosen))
    return SnapshotQuery(snapshot, replace(spec, validity=validity, historical_columns=past), plan)


def with_latest_columns(snapshot: Snapshot, commits: Mapping[Instant, CommitMetadata]) -> Snapshot:
    """Return the snapshot with the columns of the newest commit, if an overwrite has changed column types incompatibly
    since.

    With columns resolved by id, all data is read with the current columns.
    """
    if snapshot.ids is not None:
        return snapshot
    then = newest_schema(metadata for _, metadata in sorted(commits.items(), key=lambda item: item[0].request_time, reverse=True))
    if not then or snapshot.schema is None or then == snapshot.schema.avro:
        return snapshot
    schema = TableSchema.stored(then, snapshot.config)
    return snapshot if continues(schema.arrow, snapshot.schema.arrow, SchemaMode.EVOLVE) else replace(snapshot, schema=schema)


def check_columns_compatible(snapshot: Snapshot, commits: Mapping[Instant, CommitMetadata]) -> None:
    """Raise TableState if data of one of the commits cannot be read with the columns of the snapshot."""
    if snapshot.ids is not None:
        return
    for instant, metadata in sorted(commits.items(), key=lambda item: item[0].request_time):
        text = newest_schema([metadata])
        if not text or snapshot.schema is None or text == snapshot.schema.avro:
            continue
        then = TableSchema.stored(text, snapshot.config).arrow
        if not continues(then, snapshot.schema.arrow, SchemaMode.EVOLVE):
            changes = ", ".join(schema_changes(then, snapshot.schema.arrow))
            raise TableState(
                f"the range has rows of instant {instant.request_time}, and a later overwrite of "
                f"{snapshot.context.storage.uri} changed column types incompatibly ({changes}). Query what completed "
                "before the overwrite separately from what completed after it."
            )


def table_schema(snapshot: Snapshot, *, meta_columns: bool) -> pa.Schema:
    """Return the table's columns, with those that only paths store at the end.

    Raises:
        TableState: The table has no commits and was created without a schema.
    """
    if snapshot.schema is None:
        raise TableState(
            f"the table at {snapshot.context.storage.uri} has no commit yet and was created without a schema; write to it first"
        )
    columns = pa.schema([*snapshot.schema.arrow, *snapshot.path_fields])
    return with_meta_fields(columns) if meta_columns else columns


def read_spec(snapshot: Snapshot, columns: Sequence[str] | None) -> ReadSpec:
    """Return how tasks read the current rows of the snapshot. Raises the errors of `plan_snapshot_query`."""
    spec = _read_spec(snapshot, columns, None, _validity(snapshot), values_from_path=False)
    return replace(spec, folder_values=False)


def _validity(snapshot: Snapshot, as_of: str | None = None) -> InstantValidity:
    shared = not snapshot.config.version.has_one_log_file_per_commit
    return InstantValidity.of(snapshot.timeline, as_of, shared_logs=shared)


def _read_spec(
    snapshot: Snapshot,
    columns: Sequence[str] | None,
    condition: Filter | None,
    validity: InstantValidity,
    *,
    values_from_path: bool,
    settings: ReadSettings = _DEFAULT_SETTINGS,
) -> ReadSpec:
    config = snapshot.config
    if config.base_file_format not in BASE_EXTENSIONS:
        raise Unsupported(
            f"cannot read {snapshot.context.storage.uri}: base files of format {config.base_file_format} are not "
            "supported, only Parquet and ORC"
        )
    stored = table_schema(snapshot, meta_columns=True)
    # Without log files nothing is merged, so a copy-on-write table may have an unknown merge rule.
    rule = CommitTimeRule() if config.is_cow else merge_rule(config.merge, snapshot.defaults)
    spec = ReadSpec.of(
        snapshot.context.storage.spec(),
        config,
        stored,
        validity,
        rule=marked_rule(rule, settings.marker, stored),
        ids=snapshot.ids,
        columns=_chosen_columns(stored, columns),
        use_positions=settings.use_positions,
    )
    bound = None if condition is None else bind(parse_filter(condition), stored)
    used = {*spec.output.names, *(() if bound is None else (name.split(".")[0] for name in filter_columns(bound)))}
    check_supported((field for field in stored if field.name in used), f"cannot read {snapshot.context.storage.uri}")
    path_columns = tuple(snapshot.path_fields.names)
    return replace(
        spec,
        condition=bound,
        values_from_path=values_from_path,
        folder_values=True,
        path_columns=path_columns,
        checksums=settings.checksums,
    )


def _chosen_columns(stored: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return [name for name in stored.names if name not in META_COLUMNS]
    names: list[str] = []
    for name in [columns] if isinstance(columns, str) else columns:
        if name == "*":
            names.extend(stored.names)
            continue
        field_at(stored, name)
        if stored.get_field_index(name) < 0:
            whole = name.split(".")[0]
            raise Unsupported(f"column {name!r} is a field of {whole!r}; select the whole column {whole!r}")
        names.append(name)
    return list(dict.fromkeys(names))


def archived_instants(snapshot: Snapshot, range_: CompletionRange | RequestRange) -> tuple[Instant, ...]:
    """Return the archived writes in the range, by request time."""
    store = snapshot.context.timeline
    if isinstance(range_, RequestRange):
        requested, completed = Bounds(range_.start, range_.end), Bounds()
    else:
        requested, completed = Bounds(earliest_request(range_.start, store), range_.end), Bounds(range_.start, range_.end)
    # A reader between the two steps of an archival sees an instant in both places.
    active = {instant.request_time for instant in snapshot.timeline.completed_writes()}
    archived = store.history.instants(requested, completed)
    return tuple(i for i in archived if i.action in COMMIT_LIKE and i.request_time not in active and range_.contains_instant(i))


def _slices_of_range(snapshot: Snapshot, commits: dict[Instant, CommitMetadata]) -> dict[str, tuple[FileSlice, ...]] | None:
    """Build file slices from the files that the commits wrote; None if one of those files is missing."""
    version = snapshot.config.version
    changed = changed_files(commits, snapshot.timeline, one_log_per_commit=version.has_one_log_file_per_commit)
    existing = snapshot.listing.files(list(changed))
    files: dict[str, list[FileInfo]] = {}
    for partition, paths in changed.items():
        by_path = {info.path: info for info in existing.get(partition, ())}
        if any(path not in by_path for path in paths):
            return None
        for metadata in commits.values():
            for path, size_bytes in sizes_in(metadata, paths).items():
                if is_log_file(file_name(path)):
                    check_size(snapshot.context.storage, path, by_path[path].size_bytes, {path: size_bytes})
        files[partition] = [by_path[path] for path in sorted(paths)]
    timeline = restricted_timeline(snapshot.timeline, commits)
    # A clustering may have been requested before the last write of the range and have completed after it.
    times = {instant.request_time for instant in commits}
    replaced = {group: time for group, time in snapshot.slicing.replaced.items() if time in times}
    state = SlicingState(timeline, replaced, snapshot.slicing.pending_compactions, snapshot.slicing.by_completion_time)
    last = max(instant.request_time for instant in commits if instant.state is State.COMPLETED)
    chosen = {p: visible_slices(build_file_groups(p, infos, state), state, last) for p, infos in files.items()}
    return {p: _within_slices(snapshot, slices, existing.get(p, ())) for p, slices in chosen.items()}


def _within_slices(snapshot: Snapshot, parts: tuple[FileSlice, ...], files: Iterable[FileInfo]) -> tuple[FileSlice, ...]:
    """Attach slices that have only log files to the table's slice that contains their last log file."""
    if all(part.base is not None for part in parts):
        return parts
    owners = {
        log.path: whole
        for group in build_file_groups(parts[0].partition, files, snapshot.slicing)
        for whole in group.slices
        for log in whole.logs
    }
    return tuple(
        part if part.base or not part.logs else replace(part, full_slice=owners.get(part.logs[-1].path)) for part in parts
    )


def _with_sources(context: TableContext, plan: ReadPlan) -> ReadPlan:
    """Add to the plan the bootstrap files that store the rows of some slices."""
    if context.config.bootstrap_base_path is None:
        return plan
    slices = with_sources(context, plan.slices)
    wholes = iter(with_sources(context, [slice_.full_slice for slice_ in slices if slice_.full_slice is not None]))
    return replace(plan, slices=tuple(s if s.full_slice is None else replace(s, full_slice=next(wholes)) for s in slices))


def _with_steps(plan: ReadPlan, first: PruningStep, note: str | None = None) -> ReadPlan:
    steps: Iterable[PruningStep] = (first, *plan.prunings)
    if note is not None:
        steps = (*steps, PruningStep(note, "file slices", len(plan.slices), len(plan.slices)))
    return replace(plan, prunings=tuple(steps))
