"""Schema history of tables with schema on read (`hoodie.schema.on.read.enable`): column ids over time.

    `.hoodie/.schema/<t>_<c>.schemacommit`   all schemas with ids; written before the commit of instant t
    `latest_schema` of commits               the schema that was valid when the commit was written

A schema of the history is valid if its instant completed: the history is written first, and remains if that instant
failed or was rolled back. After the instant left the timeline, the archived timeline decides, or a history file of a
later completed instant. A file was written by the schema in its own commit; without one, by the newest whose instant is
not after it.

Writers without schema on read record no ids.  Their columns are matched by name to the schema before: same names
keep their ids, others are new.  (Apache Hudi reads the whole table by names after such a write.)

Source: docs/formats/reading.md, "Columns by ids"; docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY, CommitMetadata, Operation
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import Action, Instant, State, parse_instant_file
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.paths import SCHEMA_FOLDER, join_path
from pyhudi.format.schema_history import (
    StructType,
    VersionedSchema,
    all_ids,
    decode_schema,
    decode_schema_history,
    encode_schema_history,
)
from pyhudi.records.schema_on_read.column_ids import (
    FIRST_UNKNOWN,
    ColumnIds,
    identified,
    is_successor,
    numbered,
    reconciled,
    resolve_columns,
    same_columns,
)
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

_SCHEMA_COMMIT = ".schemacommit"
_ATTEMPTS = 4


CommitReader = Callable[[TimelineStore, Instant], CommitMetadata]


@dataclass(frozen=True, slots=True)
class WrittenColumns:
    """The columns of a write, as its commit has to record them.

    Attributes:
        basis: Schema that was valid when the write was planned.
        schema: Schema that its commit records.
        changes: Whether the write changes the schema.
        ids: Column ids that its tasks read by.
        assigns_ids: The table had no ids, so its history begins with this change.
    """

    basis: VersionedSchema
    schema: VersionedSchema
    changes: bool
    ids: ColumnIds
    assigns_ids: bool = False


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """The columns of a table over time.

    Attributes:
        ids: Column ids for readers of files.
        entries: Valid schemas of the history, newest first.
        found: The same schemas as stored in the table's files, aligned with the starts of `ids`.
        held: The newest schema stored in the history or a commit.
        by_names: The newest write records no ids.
        is_new: The table has no history yet; this is the one it would begin with.
    """

    ids: ColumnIds
    entries: tuple[VersionedSchema, ...]
    found: tuple[VersionedSchema, ...]
    cached: VersionedSchema
    by_names: bool = False
    is_new: bool = False

    @classmethod
    def first(cls, data_schema: pa.Schema) -> ColumnHistory:
        """Return the initial history of a table before its first change. data_schema: its columns, without meta columns."""
        columns = numbered(with_meta_fields(data_schema))
        return cls(ColumnIds(columns, ("",), (columns,)), (columns,), (columns,), columns, is_new=True)

    def at(self, instant_time: str) -> VersionedSchema:
        """Return the schema that was valid at a request time, as stored in the table's files."""
        return self.found[bisect_right(self.ids.starts, instant_time) - 1]

    def written(self, instant_time: str, data_schema: pa.Schema) -> WrittenColumns:
        """Return the record of a write at an instant that leaves the table with these columns, without meta columns."""
        basis = self.at(instant_time)
        own = self.numbered(instant_time, data_schema)
        if own.columns == basis.columns:
            return WrittenColumns(basis, self.cached, False, self.ids)
        return self.changed(instant_time, own)

    def numbered(self, instant_time: str, data_schema: pa.Schema) -> VersionedSchema:
        """Assign ids, valid from an instant on, to columns without meta columns."""
        # Ids are never reused, even if the newest schema lacks them.
        highest = max(schema.max_column_id for schema in (self.cached, *self.entries))
        return reconciled(replace(self.cached, max_column_id=highest), with_meta_fields(data_schema), int(instant_time))

    def history_with(self, own_schema: VersionedSchema) -> tuple[VersionedSchema, ...]:
        """Return the schemas of the history, newest first, for a commit that stores one of them or another one.

        Schemas of writes by names become part of it: after these are archived, only the history describes their files.
        """
        highest = max(schema.max_column_id for schema in (own_schema, self.cached, *self.entries))
        there = {schema.version_id for schema in self.entries}
        recorded = zip(map(_version, self.ids.starts), self.found, strict=True)
        lacking = [schema for schema in resolve_columns(list(recorded), own_schema, highest) if schema.version_id not in there]
        return tuple(sorted((*lacking, *self.entries), key=lambda schema: schema.version_id, reverse=True))

    @property
    def first_unrecorded(self) -> str | None:
        """Return the request time of the first write by names that added columns and whose schema the history lacks."""
        there = {schema.version_id for schema in self.entries}
        for start, schema in zip(self.ids.starts, self.found, strict=True):
            if _version(start) not in there and any(i >= FIRST_UNKNOWN for i in all_ids(StructType(schema.columns))):
                return start
        return None

    def changed(self, instant_time: str, own_schema: VersionedSchema) -> WrittenColumns:
        """Return the record of an instant that changes the schema."""
        distinct = identified((*self.found, own_schema))
        ids = ColumnIds(distinct[-1], (*self.ids.starts, instant_time), distinct)
        return WrittenColumns(self.at(instant_time), own_schema, True, ids, self.is_new)


def _version(start: str) -> int:
    return int(start or 0)


def load_column_history(context: TableContext, timeline: Timeline | None, read: CommitReader) -> ColumnHistory | None:
    """Load the schema history of a table up to the end of a timeline; None for a table without one.

    timeline: Loaded on demand if None and the table has a history. read: Reads the metadata of a completed write.

    Raises:
        CorruptData: The history is damaged.
        Unsupported: Apache Hudi has reassigned the column ids.
        TableState: Files of the history were deleted repeatedly during the read.
    """
    contents = _read_histories(context)
    if not contents:
        return None
    timeline = timeline or context.timeline.load()
    history = _load_history(context, timeline, contents)
    if not history:
        return None
    starts: list[str] = []
    schemas: list[VersionedSchema] = []
    known, is_known = history[0], True
    for start, schema, is_known in _over_time(context.timeline, timeline, history, read):
        known = schema if is_known else known
        # Order and comments count: a write that preserves them changes nothing.
        if not schemas or schemas[-1].columns != schema.columns:
            starts.append(start)
            schemas.append(schema)
    distinct = identified(schemas)
    entries = tuple(history[version] for version in sorted(history, reverse=True))
    return ColumnHistory(ColumnIds(distinct[-1], tuple(starts), distinct), entries, tuple(schemas), known, not is_known)


def stored_schemas(context: TableContext) -> tuple[Mapping[int, VersionedSchema], Mapping[str, str]]:
    """Return all schemas of the history by version, valid or not, and request time -> completion time of its files.

    Raises CorruptData for a history that is damaged.
    """
    contents = _read_histories(context)
    beside = [instant for name in contents if (instant := parse_instant_file(name)) is not None]
    times = {instant.request_time: instant.completion_time or "" for instant in beside}
    return _decoded_histories(context, contents), times


def store_history(
    locked_context: TableContext, instant_time: str, completion_time: str, schemas: Iterable[VersionedSchema]
) -> None:
    """Write the history file of an instant that is about to complete.

    held: The table under its lock. completion_time: Completion time of the history, before that of the instant.
    schemas: Newest first.
    """
    requested = Instant(instant_time, Action.SCHEMACOMMIT, State.REQUESTED)
    files = (requested, replace(requested, state=State.INFLIGHT))
    done = Instant(instant_time, Action.SCHEMACOMMIT, State.COMPLETED, completion_time)
    for instant in files:
        locked_context.storage.put(join_path(SCHEMA_FOLDER, instant.file_name()), b"")
    locked_context.storage.put(join_path(SCHEMA_FOLDER, done.file_name()), encode_schema_history(schemas))


def drop_older_histories(context: TableContext, timeline: Timeline) -> None:
    """Delete histories of instants that left the timeline; the newest file contains their schemas."""
    files = {info.path: parse_instant_file(info.name) for info in context.storage.list(SCHEMA_FOLDER).files}
    newest = max((path for path in files if path.endswith(_SCHEMA_COMMIT)), default="")
    old = [path for path, instant in files.items() if instant is not None and timeline.is_before_start(instant.request_time)]
    context.storage.delete([path for path in old if path != newest])


def _read_histories(context: TableContext) -> dict[str, bytes]:
    """The files of the history by name. Writers delete old files after a newer one exists, which an earlier listing lacks."""
    storage = context.storage
    for _ in range(_ATTEMPTS):
        files = [info for info in storage.list(SCHEMA_FOLDER).files if info.name.endswith(_SCHEMA_COMMIT)]
        contents = {info.name: data for info in files if (data := storage.read(info.path)) is not None}
        if len(contents) == len(files):
            return contents
    raise TableState(
        f"histories of columns below {storage.absolute(SCHEMA_FOLDER)} were deleted repeatedly while they were read; try again"
    )


def _load_history(context: TableContext, timeline: Timeline, contents: Mapping[str, bytes]) -> Mapping[int, VersionedSchema]:
    """The valid schemas of the history by version; of a version in several files, that of the newest file."""
    decoded = _decoded_histories(context, contents)
    vouched: set[int] = set()
    for name in contents:
        schemas = decode_schema_history(contents[name])
        beside = parse_instant_file(name)
        if beside is not None and _is_on_timeline(timeline, beside.request_time):
            vouched.update(schema.version_id for schema in schemas)
    has_archive = bool(context.timeline.history.folder)
    completed = [v for v in decoded if v and (v in vouched or _has_completed(timeline, str(v), has_archive=has_archive))]
    if completed and 0 not in decoded:
        lacking = CorruptData("the history of columns lacks the schema before the first change", expected=0, found=min(completed))
        raise lacking.with_path(context.storage.absolute(SCHEMA_FOLDER))
    return {version: decoded[version] for version in (0, *completed)} if completed else {}


def _decoded_histories(context: TableContext, contents: Mapping[str, bytes]) -> dict[int, VersionedSchema]:
    """The schemas in all files of the history by version; of a version in several files, that of the newest file."""
    by_version: dict[int, VersionedSchema] = {}
    for name in sorted(contents, reverse=True):
        try:
            schemas = decode_schema_history(contents[name])
        except CorruptData as error:
            raise error.with_path(context.storage.absolute(join_path(SCHEMA_FOLDER, name))) from error
        for schema in schemas:
            by_version.setdefault(schema.version_id, schema)
    return by_version


def _is_on_timeline(timeline: Timeline, request_time: str) -> bool:
    """Whether an instant is on the timeline and completed."""
    return timeline.is_completed(request_time) and not timeline.is_before_start(request_time)


def _has_completed(timeline: Timeline, request_time: str, *, has_archive: bool) -> bool:
    """Whether an instant completed and was not rolled back; instants before the timeline are looked up in the archive."""
    if has_archive and timeline.is_before_start(request_time):
        return timeline.completion_time(request_time) is not None
    return timeline.is_completed(request_time)


def _sets_columns(metadata: CommitMetadata) -> bool:
    return metadata.operation.sets_schema and bool(metadata.extra_metadata.get(SCHEMA_KEY))


def _over_time(
    store: TimelineStore, timeline: Timeline, history: Mapping[int, VersionedSchema], read: CommitReader
) -> Iterator[tuple[str, VersionedSchema, bool]]:
    """Start of validity of each schema, oldest first, and whether the files store it; a schema may repeat."""
    yield "", history[0], True
    held = history[0]
    versions = sorted(version for version in history if version)
    by_names = False
    fresh = FIRST_UNKNOWN
    for instant in timeline.completed_writes():
        before = held
        while versions and str(versions[0]) <= instant.request_time:
            before = held if str(versions[0]) == instant.request_time else history[versions[0]]
            held = history[versions.pop(0)]
            yield str(held.version_id), held, True
        metadata = read(store, instant)
        if not _sets_columns(metadata) or (held.version_id == 0 and LATEST_SCHEMA_KEY not in metadata.extra_metadata):
            continue
        text = metadata.extra_metadata.get(LATEST_SCHEMA_KEY)
        is_change = by_names and metadata.operation is Operation.ALTER_SCHEMA
        if text and is_change and not is_successor(before, _decoded(store, instant, text)):
            raise Unsupported(
                f"instant {instant.request_time} of {store.storage.uri} changed the columns after a write by names, and Apache "
                "Hudi has reassigned the column ids: columns of older files cannot be identified; rewrite the table with "
                "Apache Hudi"
            )
        by_names = not text
        if text:
            held = _decoded(store, instant, text)
        else:
            columns = with_meta_fields(avro_to_arrow(metadata.extra_metadata[SCHEMA_KEY]))
            known = reconciled(held, columns, int(instant.request_time), fresh)
            fresh = max(fresh, known.max_column_id + 1)
            held = known if not same_columns(held, known) else held
        yield instant.request_time, held, bool(text)
    for version in versions:
        yield str(version), history[version], True


def _decoded(store: TimelineStore, instant: Instant, text: str) -> VersionedSchema:
    with store.errors_with_path(instant):
        return decode_schema(text)
