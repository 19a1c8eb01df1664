"""CDC read tasks: the changes of one file group by one commit.

    op        `i`, `u` or `d`
    ts_ms     request time of the commit, as text
    before    the record before the change; null for `i`
    after     the record after the change; null for `d`
    completion_time   of the commit; for queries that select the column

Images are JSON strings (records/json_strings.py), or structs of the table's data columns if a query requests them. (The
reader of Apache Hudi mixes three text formats, some with meta columns, and has the text `null` for some absent images.)

Memory: one row group, and the changed rows of one file group; for change logs that lack images, some blocks at a time.

Source: docs/formats/reading.md, "Change data".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.log.cdc_blocks import DELETE, INSERT, UPDATE, CdcMode, cdc_mode
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey
from pyhudi.format.meta_columns import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from pyhudi.planning.change_data import ChangeKind, ChangePart, ChangeSource
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_visitor import columns
from pyhudi.records.json_strings import json_text
from pyhudi.records.keys.partition_paths import with_folder_values
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.ordering import BoolMask
from pyhudi.records.schema_cast import relabel_array
from pyhudi.records.stored_rows import in_table_columns
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice, LogFile
from pyhudi.tasks.base_file_reader import open_ranges
from pyhudi.tasks.incoming_layout import as_batch, rows_without_columns
from pyhudi.tasks.log_scan import read_headers, scan_logs
from pyhudi.tasks.read_slice import ReadSpec, merge_columns, partition_path_values, run_read, values_of_folder, with_constants

CHANGE_COLUMNS = ("op", "ts_ms", "before", "after")
"""The columns of change data, as Hudi has them."""

COMPLETION_TIME = "completion_time"
"""Optional column: rows sorted by it and `op` are in the order of the changes."""

_PIECE_ROWS = 1 << 15
"""Rows whose images are printed at once."""

_LOOKUP_ROWS = 1 << 17
"""Rows of change logs whose images are looked up at once."""


@dataclass(frozen=True, slots=True)
class ChangeSpec:
    """Settings shared by all tasks of one CDC query.

    Attributes:
        reader: Reads whole stored rows, including meta columns; its validity includes every completed instant.
        output: The requested columns.
        condition: Bound to `change_schema`, None for all changes.
        typed: Images are structs.
        data_schema: The table's data columns, all nullable.
        schema: All columns.
    """

    reader: ReadSpec
    output: pa.Schema
    condition: Expr | None
    typed: bool
    data_schema: pa.Schema = field(init=False)
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_schema", change_data_columns(self.reader.table_schema))
        object.__setattr__(self, "schema", change_schema(self.reader.table_schema, typed=self.typed))


def change_data_columns(table_schema: pa.Schema) -> pa.Schema:
    """Return the data columns of a stored layout, nullable as in images."""
    return pa.schema([field.with_nullable(True) for field in table_schema if field.name not in META_COLUMNS])


def change_schema(table_schema: pa.Schema, *, typed: bool) -> pa.Schema:
    """CHANGE_COLUMNS and COMPLETION_TIME: all nullable; images are strings, or structs of the table's data columns."""
    image = pa.struct(list(change_data_columns(table_schema))) if typed else pa.string()
    kinds = (pa.string(), pa.string(), image, image, pa.string())
    return pa.schema(list(zip((*CHANGE_COLUMNS, COMPLETION_TIME), kinds, strict=True)))


def run_changes(spec: ChangeSpec, source: ChangeSource) -> Iterator[pa.Table]:
    """Yield the changes of one source, as tables with the output's columns; at least one, maybe empty.

    Raises CorruptData for a torn change log, TableState for a file that was deleted since the query was planned.
    """
    storage = open_storage(spec.reader.storage)
    for read in _READERS[source.change_type](storage, spec, source):
        changes = _filtered(read, _of_part(source, read.operations))
        for start in range(0, changes.row_count, _PIECE_ROWS):
            yield _table(spec, source, changes.slice(start, _PIECE_ROWS))
    yield spec.output.empty_table()


@dataclass(frozen=True, slots=True)
class _Changes:
    """Aligned: operations, and images as tables of the data columns with the rows that have one; None where no row has."""

    operations: pa.Array
    before: pa.StructArray | None
    after: pa.StructArray | None

    @property
    def row_count(self) -> int:
        return len(self.operations)

    def slice(self, start: int, count: int) -> _Changes:
        return _Changes(
            self.operations.slice(start, count),
            None if self.before is None else self.before.slice(start, count),
            None if self.after is None else self.after.slice(start, count),
        )


def _of_part(source: ChangeSource, operations: pa.Array) -> BoolMask:
    """Which changes of a file group are those of the source's part."""
    if source.part is ChangePart.ALL:
        return np.ones(len(operations), dtype=np.bool_)
    are_deletes = np.asarray(pc.equal(operations, DELETE), dtype=np.bool_)
    return are_deletes if source.part is ChangePart.DELETES else ~are_deletes


def _table(spec: ChangeSpec, source: ChangeSource, changes: _Changes) -> pa.Table:
    count = changes.row_count
    wanted = set(spec.output.names)
    if spec.condition is not None:
        wanted |= {name.split(".")[0] for name in columns(spec.condition)}
    schema = pa.schema([field for field in spec.schema if field.name in wanted])
    if not schema.names:
        return rows_without_columns(count)
    images = {"before": changes.before, "after": changes.after}
    printed = _images(spec, {name: image for name, image in images.items() if name in wanted}, count)
    builders: dict[str, Callable[[], pa.Array]] = {
        "op": lambda: changes.operations,
        "ts_ms": lambda: _repeat(source.instant_time, count),
        COMPLETION_TIME: lambda: _repeat(source.completion_time, count),
        "before": lambda: printed["before"],
        "after": lambda: printed["after"],
    }
    rows = pa.table([builders[name]() for name in schema.names], schema=schema)
    if spec.condition is not None:
        rows = row_filter(spec.condition, schema).select(rows)
    return rows.select(spec.output.names) if spec.output.names else rows_without_columns(rows.num_rows)


def _images(spec: ChangeSpec, images: Mapping[str, pa.StructArray | None], count: int) -> dict[str, pa.Array]:
    """Images by column. Both are printed in one step: for few rows a step costs more than its rows."""
    present = {name: image for name, image in images.items() if image is not None}
    if present and not spec.typed:
        texts = json_text(pa.concat_arrays(list(present.values())))
        present = {name: texts.slice(number * count, count) for number, name in enumerate(present)}
    absent = pa.nulls(count, spec.schema.field("before").type)
    return {name: present.get(name, absent) for name in images}


# One function for each kind of source


def _inserted(storage: Storage, spec: ChangeSpec, source: ChangeSource) -> Iterator[_Changes]:
    for rows in _rows(spec, source.after):
        yield _Changes(_repeat(INSERT, rows.num_rows), None, _structs(spec, rows))


def _deleted(storage: Storage, spec: ChangeSpec, source: ChangeSource) -> Iterator[_Changes]:
    for rows in _rows(spec, source.before):
        yield _Changes(_repeat(DELETE, rows.num_rows), _structs(spec, rows), None)


def _logged(storage: Storage, spec: ChangeSpec, source: ChangeSource) -> Iterator[_Changes]:
    for log in source.change_logs:
        held: list[pa.Table] = []
        mode = CdcMode.DATA_BEFORE_AFTER
        for mode, rows in _log_rows(storage, source, log):
            if mode is CdcMode.DATA_BEFORE_AFTER:
                yield _Changes(rows.column("op"), *(_conformed(spec, source, rows, name) for name in ("before", "after")))
                continue
            held.append(pa.Table.from_batches([rows]))
            if sum(table.num_rows for table in held) >= _LOOKUP_ROWS:
                yield _completed(spec, source, mode, as_batch(pa.concat_tables(held)))
                held = []
        if held:
            yield _completed(spec, source, mode, as_batch(pa.concat_tables(held)))


def _rewritten(storage: Storage, spec: ChangeSpec, source: ChangeSource) -> Iterator[_Changes]:
    """Return the rows that this commit wrote to the new base file, and the rows of the old one that are missing in it."""
    if not spec.reader.populate_meta_fields:
        raise Unsupported(
            f"the change log of {source.file_id} at {source.instant_time} is missing, and without meta columns changed rows "
            f"cannot be identified"
        )
    fresh: list[pa.Table] = []
    keys: list[pa.Array] = []
    for rows in _rows(spec, source.after):
        keys.append(_keys(spec, rows))
        fresh.append(rows.filter(pc.equal(rows.column(COMMIT_TIME), source.instant_time)))
    after = _RowsByKey(spec, fresh)
    present = _KeyReader(keys)
    changed, gone = [], []
    for rows in _rows(spec, source.before):
        own = _keys(spec, rows)
        changed.append(rows.filter(after.keys.contains(own)))
        gone.append(rows.filter(pa.array(~np.asarray(present.contains(own)))))
    before = _RowsByKey(spec, changed)
    yield _paired(spec, after.keys.values, before, after)
    for rows in gone:
        yield _Changes(_repeat(DELETE, rows.num_rows), _structs(spec, rows), None)


def _appended(storage: Storage, spec: ChangeSpec, source: ChangeSource) -> Iterator[_Changes]:
    """Yield each key of the log before and after the log was written; an entry that lost to an older one is omitted."""
    assert source.log is not None and source.before is not None and source.after is not None, "plan_changes fills them in"
    reader = spec.reader
    needed = merge_columns(replace(reader, output=pa.schema([])))
    scan = scan_logs(storage, [source.log], reader.of_logs(needed))
    touched = _KeyReader([scan.records.keys])
    before, after = (
        _RowsByKey(spec, [rows.filter(touched.contains(_keys(spec, rows))) for rows in _rows(spec, slice_)])
        for slice_ in (source.before, source.after)
    )
    changes = _paired(spec, touched.values, before, after)
    real = ~np.asarray(pc.equal(changes.operations, UPDATE), dtype=np.bool_)
    if reader.populate_meta_fields:
        stamped = after.column(COMMIT_TIME, touched.values)
        real |= np.asarray(pc.fill_null(pc.equal(stamped, source.instant_time), False), dtype=np.bool_)
    if not real.all() and changes.before is not None and changes.after is not None:
        # A merge may keep the older record's commit time; then only the values show whether the record changed.
        unlike = pc.not_equal(json_text(changes.before), json_text(changes.after))
        real |= np.asarray(pc.fill_null(unlike, True), dtype=np.bool_)
    # Keys that are in neither slice were deleted without being there.
    somewhere = np.asarray(pc.or_(before.contains(touched.values), after.contains(touched.values)), dtype=np.bool_)
    yield _filtered(changes, real & somewhere)


_READERS: dict[ChangeKind, Callable[[Storage, ChangeSpec, ChangeSource], Iterator[_Changes]]] = {
    ChangeKind.INSERTED: _inserted,
    ChangeKind.DELETED: _deleted,
    ChangeKind.LOGGED: _logged,
    ChangeKind.REWRITTEN: _rewritten,
    ChangeKind.APPENDED: _appended,
}


# Change logs


def _log_rows(storage: Storage, source: ChangeSource, log: LogFile) -> Iterator[tuple[CdcMode, pa.RecordBatch]]:
    """The rows of a change log as they are stored."""
    where = storage.absolute(log.path)
    for block in read_headers(storage, log):
        if isinstance(block, CorruptBlock):
            raise CorruptData("a change log is torn: a block of it cannot be read", offset=block.offset).with_path(where)
        if block.kind is not BlockType.CDC:
            raise CorruptData("a change log holds a block of another type", offset=block.offset, found=block.kind.name).with_path(
                where
            )
        if block.instant_time != source.instant_time:
            raise CorruptData(
                "a change log is of another instant", offset=block.offset, expected=source.instant_time, found=block.instant_time
            ).with_path(where)
        text = block.required(HeaderKey.SCHEMA)
        try:
            mode = cdc_mode(text)
            content = block.read_content(open_ranges(storage, log.path))
            for rows in decode_content(BlockType.CDC, text, content):
                # Images are looked up for no other row.
                yield mode, _checked(rows).filter(pa.array(_of_part(source, rows.column("op"))))
        except CorruptData as error:
            raise error if error.path is not None else error.with_path(where) from error


def _checked(rows: pa.RecordBatch) -> pa.RecordBatch:
    known = pc.is_in(rows.column("op"), value_set=pa.array([INSERT, UPDATE, DELETE]))
    if not pc.all(known).as_py() and rows.num_rows:
        strange = rows.column("op").filter(pc.invert(known))
        raise CorruptData("a change log holds an unknown operation", expected="i, u or d", found=strange[0].as_py())
    return rows


def _completed(spec: ChangeSpec, source: ChangeSource, mode: CdcMode, rows: pa.RecordBatch) -> _Changes:
    """Rows of a change log with the images that it leaves out, looked up by key."""
    operations, keys = rows.column("op"), rows.column("record_key")
    after = _find_records(spec, source, source.after, keys, pc.not_equal(operations, DELETE))
    if mode is CdcMode.DATA_BEFORE:
        return _Changes(operations, _conformed(spec, source, rows, "before"), after)
    return _Changes(operations, _find_records(spec, source, source.before, keys, pc.not_equal(operations, INSERT)), after)


def _find_records(
    spec: ChangeSpec, source: ChangeSource, slice_: FileSlice | None, keys: pa.Array, lookup_keys: pa.Array
) -> pa.StructArray | None:
    """The records of some keys in a slice, null where they are not requested."""
    if not pc.any(lookup_keys).as_py():
        return None
    if slice_ is None:
        raise TableState(
            f"the change log of {source.file_id} at {source.instant_time} lacks images, and the base file that holds "
            "them is missing"
        )
    searched = _KeyReader([keys.filter(lookup_keys)])
    records = (rows.filter(searched.contains(_keys(spec, rows))) for rows in _rows(spec, slice_))
    known = _RowsByKey(spec, list(records))
    lacking = pc.and_(lookup_keys, pc.invert(known.contains(keys)))
    if pc.any(lacking).as_py():
        key = keys.filter(lacking)[0].as_py()
        path = slice_.base.path if slice_.base else source.file_id
        raise CorruptData(f"a change log names record {key!r}, which is not in {path}")
    return known.structs(pc.if_else(lookup_keys, keys, pa.scalar(None, pa.string())))


def _conformed(spec: ChangeSpec, source: ChangeSource, rows: pa.RecordBatch, name: str) -> pa.StructArray:
    """Convert an image of a change log to the current columns."""
    image = rows.column(name)
    fields = pa.RecordBatch.from_arrays(image.flatten(), schema=pa.schema(list(image.type)))
    constants = partition_path_values(spec.reader, source.partition, spec.data_schema)
    ids = spec.reader.ids
    origins = None if ids is None else ids.origins(source.instant_time)
    table = in_table_columns(pa.Table.from_batches([fields]), origins, spec.data_schema)
    of_folder = values_of_folder(spec.reader, source.partition, spec.data_schema)
    table = with_folder_values(with_constants(table, constants, spec.data_schema), of_folder)
    return _as_struct(spec, table, image.is_null())


# Rows by key


class _KeyReader:
    """Record keys for lookups."""

    def __init__(self, parts: list[pa.Array]) -> None:
        self.values: pa.Array = pc.unique(pa.concat_arrays([pa.array([], pa.string()), *parts]))

    def contains(self, keys: pa.Array) -> pa.Array:
        """True where a key is among these."""
        return pc.is_in(keys, value_set=self.values)


class _RowsByKey:
    """Rows by key; of several rows with one key the last one."""

    def __init__(self, spec: ChangeSpec, tables: list[pa.Table]) -> None:
        self._spec = spec
        self._rows = pa.concat_tables([spec.reader.output.empty_table(), *tables])
        own = _keys(spec, self._rows)
        encoded = own.dictionary_encode()
        last = np.zeros(len(encoded.dictionary), dtype=np.int64)
        # Of several values for one place numpy keeps the last.
        last[np.asarray(encoded.indices, dtype=np.int64)] = np.arange(len(own))
        self._last = last
        self.keys = _KeyReader([encoded.dictionary])

    def contains(self, keys: pa.Array) -> pa.Array:
        """True where there is a row of the key."""
        return self.keys.contains(keys)

    def column(self, name: str, keys: pa.Array) -> pa.Array:
        """The values of a column for keys, null where there is no row."""
        taken = self._rows.column(name).take(self._at(keys))
        return pa.concat_arrays(taken.chunks) if taken.num_chunks else pa.nulls(0, taken.type)

    def structs(self, keys: pa.Array) -> pa.StructArray:
        """The rows of keys as images, null where there is none."""
        at = self._at(keys)
        return _as_struct(self._spec, self._rows.select(self._spec.data_schema.names).take(at), at.is_null())

    def _at(self, keys: pa.Array) -> pa.Array:
        code = pc.index_in(keys, value_set=self.keys.values, skip_nulls=True)
        return pa.array(self._last, pa.int64()).take(code)


def _paired(spec: ChangeSpec, keys: pa.Array, before: _RowsByKey, after: _RowsByKey) -> _Changes:
    """Classify keys: `i` without a row before, `d` without one after, else `u`."""
    was, is_ = before.contains(keys), after.contains(keys)
    operations = pc.if_else(was, pc.if_else(is_, UPDATE, DELETE), INSERT)
    return _Changes(operations, before.structs(keys), after.structs(keys))


def _filtered(changes: _Changes, mask: BoolMask) -> _Changes:
    if mask.all():
        return changes
    selection = pa.array(mask)
    return _Changes(
        changes.operations.filter(selection),
        None if changes.before is None else changes.before.filter(selection),
        None if changes.after is None else changes.after.filter(selection),
    )


def _rows(spec: ChangeSpec, slice_: FileSlice | None) -> Iterator[pa.Table]:
    """The stored rows of a slice."""
    if slice_ is not None:
        yield from run_read(spec.reader, slice_)


def _keys(spec: ChangeSpec, rows: pa.Table) -> pa.Array:
    if spec.reader.populate_meta_fields:
        return as_batch(rows.select([RECORD_KEY])).column(0)
    return record_keys(spec.reader.keys, as_batch(rows))


def _structs(spec: ChangeSpec, rows: pa.Table) -> pa.StructArray:
    return _as_struct(spec, rows.select(spec.data_schema.names), None)


def _as_struct(spec: ChangeSpec, rows: pa.Table, absent: pa.Array | None) -> pa.StructArray:
    batch = as_batch(rows)
    fields = list(spec.data_schema)
    mask = absent if absent is not None and absent.true_count else None
    return pa.StructArray.from_arrays(
        [relabel_array(values, field) for values, field in zip(batch.columns, fields, strict=True)], fields=fields, mask=mask
    )


def _repeat(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
