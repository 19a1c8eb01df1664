"""The rows that a statement upserts, from joined rows of the table and its source.

    1. values       each column has the value that the clause assigns, else that of the table row, else null
    2. identity     a record keeps its key; one whose partition columns change moves to another partition
    3. duplicates   of several changed rows of a record, the one with the largest ordering value remains
    4. new places   a record that is inserted, or moves to another partition, must not meet one of its key there
    5. moves        the old place is deleted; a global index does so by itself

An evaluator joins the rows, chooses their clauses and computes expressions (`JoinedRows`); everything else is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.operations.changes.bound_clauses import (
    SOURCE,
    BoundClause,
    Value,
    check_text,
    evolved_schema,
    resolve_name,
    source_ordering,
)
from pyhudi.operations.changes.statement import ClauseAction, Computed
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.dotted_columns import column_at, field_at
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.keys.partition_paths import partition_paths
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.ordering import delete_applies
from pyhudi.records.record_merge import OneRowPerRecord, combine_duplicates, combine_to_array
from pyhudi.records.schema_cast import conform, conform_table, refuse_rounding
from pyhudi.records.store_assignment import store_column
from pyhudi.table.table_config import TableConfig
from pyhudi.tasks.incoming_layout import DELETE_COLUMN, as_batch

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_OLD_PATH, _NEW_PLACE, _OLD, _ORDERING, _ROW = "#old_path", "#new_place", "#old_", "#ordering_", "#row"


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The joined rows to which one clause applies.

    Attributes:
        source: Numbers of the source rows; None for rows that have none.
        target: Rows of the table, with the meta columns that identify them; None for rows to insert.
        computed: Values of the clause's expressions by column.
    """

    source: pa.Array | None
    target: pa.Table | None
    computed: Mapping[str, pa.Array]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.source) if self.source is not None else 0 if self.target is None else self.target.num_rows


@dataclass(frozen=True, slots=True)
class RowChanges:
    """A statement on one snapshot of a table.

    Attributes:
        config: Configuration of the table.
        settings: Settings of the write.
        table: Data columns of the table.
        source: The source rows; None for a statement without source.
        clauses: The clauses.
        equated: Columns of the source by the column of the table that they equal in matching rows; None if rows match by
            another condition.
        by_name: Fields of structs are matched by name, and may be added; False matches them by position.
        one_row: Rule between changed rows of one record.
    """

    config: TableConfig
    settings: WriteSettings
    table: pa.Schema
    source: pa.Table | None
    clauses: Sequence[BoundClause]
    equated: Mapping[str, str] | None
    by_name: bool
    one_row: OneRowPerRecord

    def rows(self, joined: Sequence[JoinedRows], read_places: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Return the rows to upsert, with DELETE_COLUMN.

        Args:
            joined: The joined rows of each clause.
            read_places: Returns record keys and partition paths of the stored rows that may have the record keys of rows.

        Raises:
            InvalidRequest: A value does not fit its column, a record would get another key, or meet another one of its key.
            TableState: The columns of a stored row do not produce the key that it is stored under.
        """
        after = self._schema_after()
        parts = [self._part(clause, rows, after) for clause, rows in zip(self.clauses, joined, strict=True)]
        rows = self._one_row_per_record(pa.concat_tables(parts))
        self._check_new_places(rows, read_places)
        return self._moved(rows).select([*after.names, *stored_key_columns(self.config), DELETE_COLUMN])

    @property
    def _is_global(self) -> bool:
        return self.settings.index.index_type.is_global

    def _schema_after(self) -> pa.Schema:
        """The table's columns after the statement."""
        after = self.table
        if not self.by_name:
            return after
        for clause in self.clauses:
            copied = [(name, value) for name, value in clause.values.items() if isinstance(value, ColumnRef)]
            if clause.action is not ClauseAction.DELETE and copied:
                after = evolved_schema(after, pa.schema([self._copied_field(after, *pair) for pair in copied]), self.settings)
        return after

    def _copied_field(self, table: pa.Schema, name: str, value: ColumnRef) -> pa.Field:
        """The field that a copied column requires. Values of columns that are not nested are cast to the table's type."""
        side, _, column = value.name.partition(".")
        field = field_at(self.table if side != SOURCE or self.source is None else self.source.schema, column).with_name(name)
        known = table.get_field_index(name) >= 0 and not pa.types.is_nested(table.field(name).type)
        return table.field(name).with_nullable(field.nullable) if known else field

    # -- values ---------------------------------------------------------------------------------------------------------

    def _part(self, clause: BoundClause, joined: JoinedRows, after: pa.Schema) -> pa.Table:
        """The changed rows of one clause, with the key and the partition path that they have and had."""
        if clause.action is ClauseAction.DELETE and clause.values:
            joined = self._without_outdated(clause, joined)
        target, deletes = joined.target, clause.action is ClauseAction.DELETE
        if target is not None:
            check_identity(self.config, target)
        rows = self._assigned(clause, joined, after)
        batch = as_batch(rows)
        paths = partition_paths(self.config.keys, batch)
        placing = partition_columns(self.config.keys)
        if target is None:
            self._refuse_unmatched_nulls(joined)
            is_keyed = not self.config.keys.generates_keys
            keys = record_keys(self.config.keys, batch) if is_keyed else pa.nulls(rows.num_rows, pa.string())
            old_paths, is_new = paths, pa.array(self._may_exist(rows, joined))
            old = {_OLD + name: rows.column(name) for name in placing}
        else:
            keys, old_paths = stored_places(self.config, target)
            self._check_keys_stay(clause, rows, target)
            is_new = pc.not_equal(paths, old_paths)
            old = {_OLD + name: target.column(name) for name in placing}
            if self.config.keys.generates_keys and pc.any(is_new, min_count=0).as_py():
                raise InvalidRequest(KEYLESS_MOVE.format(", ".join(placing)))
        old |= {_ORDERING + head: column for head, column in self._ordering_values(rows, joined).items()}
        more: dict[str, pa.Array | pa.ChunkedArray] = {
            DELETE_COLUMN: pa.repeat(pa.scalar(deletes), rows.num_rows),
            RECORD_KEY: keys,
            PARTITION_PATH: paths,
        }
        more |= {_OLD_PATH: old_paths, _NEW_PLACE: is_new}
        more |= old
        for name, column in more.items():
            rows = rows.append_column(pa.field(name, column.type), column)
        return rows

    def _values(self, value: Value, joined: JoinedRows, name: str) -> pa.Array:
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, joined.num_rows)
        if isinstance(value, Computed):
            return joined.computed[name]
        side, _, column = value.name.partition(".")
        if side == SOURCE:
            assert self.source is not None and joined.source is not None, "the clause has source rows"
            return combine_to_array(column_at(self.source, column).take(joined.source))
        assert joined.target is not None, "the clause has rows of the table"
        return combine_to_array(column_at(joined.target, column))

    def _assigned(self, clause: BoundClause, joined: JoinedRows, after: pa.Schema) -> pa.Table:
        """Rows in the columns after the statement: assigned values, else those of the table row, else null."""
        keys, target = self.config.keys, joined.target
        columns = {} if target is None else {name: combine_to_array(target.column(name)) for name in self.table.names}
        for name, value in clause.values.items():
            array, field = self._values(value, joined, name), after.field(name)
            if self.by_name and isinstance(value, Computed):
                check_text(field, array.type, value.expression)
            if clause.action is ClauseAction.DELETE:
                # The row has the ordering value of the source, if that has one.
                if name in (*keys.record_fields, *partition_columns(keys)):
                    continue
                array = pc.coalesce(store_column(array, field.with_nullable(True)), columns[name])
            if self.by_name and pa.types.is_nested(field.type) and isinstance(value, ColumnRef):
                columns[name] = array
            else:
                exact = name in fixed_columns(self.config)
                columns[name] = store_column(array, field, exact=exact, by_name=self.by_name)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        refuse_rounding(batch, after)
        return pa.Table.from_batches([conform(batch, after)], after)

    def _ordering_values(self, rows: pa.Table, joined: JoinedRows) -> dict[str, pa.ChunkedArray]:
        """The values by which rows of one record are compared: those of the source rows, if the source has them."""
        names = () if self.source is None else self.source.column_names
        ordering = source_ordering(self.config, names)
        if ordering is None or joined.source is None or self.source is None:
            return {head: rows.column(head) for head in self.one_row.ordering.heads}
        values = {}
        for head in ordering.heads:
            column = self.source.column(resolve_name(head, names) or head).take(joined.source)
            values[head] = pa.chunked_array([store_column(combine_to_array(column), rows.schema.field(head).with_nullable(True))])
        return values

    def _without_outdated(self, clause: BoundClause, joined: JoinedRows) -> JoinedRows:
        """The rows without those whose source row has a smaller ordering value than the stored row that it would delete."""
        ordering = source_ordering(self.config, () if self.source is None else self.source.column_names)
        if ordering is None or joined.target is None:
            return joined
        columns = pa.schema([self.table.field(name).with_nullable(True) for name in ordering.heads])
        values = pa.table({name: self._values(clause.values[name], joined, name) for name in ordering.heads})
        applies = pa.array(delete_applies(ordering, joined.target, conform_table(values, columns)))
        assert joined.source is not None, "a delete by a source row has one"
        return JoinedRows(joined.source.filter(applies), joined.target.filter(applies), {})

    # -- identity -------------------------------------------------------------------------------------------------------

    def _check_keys_stay(self, clause: BoundClause, rows: pa.Table, target: pa.Table) -> None:
        """Raise InvalidRequest if an update would give a record another key."""
        if clause.action is not ClauseAction.UPDATE:
            return
        for name in self.config.keys.record_fields:
            if name not in clause.values:
                continue
            old, new = combine_to_array(target.column(name)), combine_to_array(rows.column(name))
            same = pc.or_(pc.fill_null(pc.equal(old, new), False), pc.and_(pc.is_null(old), pc.is_null(new)))
            row = pc.index(same, False).as_py()
            if row >= 0:
                raise InvalidRequest(OTHER_KEY.format(column=name, old=old[row].as_py(), new=new[row].as_py()))

    def _refuse_unmatched_nulls(self, joined: JoinedRows) -> None:
        """Raise InvalidRequest for a row to insert with a null in its match columns, which was compared with no record."""
        if not self.equated or len(self.equated) < 2 or self.source is None or joined.source is None:
            return
        matched = self.source.select(list(self.equated.values())).take(joined.source)
        if any(column.null_count for column in matched.columns):
            raise InvalidRequest(UNMATCHED_NULL.format(names=", ".join(matched.column_names)))

    def _may_exist(self, rows: pa.Table, joined: JoinedRows) -> Mask:
        """Where an inserted record may have the key of an existing one that no source row was compared with."""
        places, keys = set(partition_columns(self.config.keys)), set(self.config.keys.record_fields)
        if not keys:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        equated = self.equated
        is_by_key = equated is not None and keys <= set(equated) <= keys | places
        if (
            equated is None
            or not is_by_key
            or (self._is_global and places & set(equated))
            or self.source is None
            or joined.source is None
        ):
            return np.ones(rows.num_rows, dtype=np.bool_)
        differs = np.zeros(rows.num_rows, dtype=np.bool_)
        matched = self.source.select(list(equated.values())).take(joined.source)
        for ours, theirs in equated.items():
            field = rows.schema.field(ours).with_nullable(True)
            compared = store_column(combine_to_array(matched.column(theirs)), field)
            differs |= ~np.asarray(pc.fill_null(pc.equal(compared, rows.column(ours)), False).combine_chunks(), dtype=np.bool_)
        return differs

    # -- duplicates, new places, moves ----------------------------------------------------------------------------------

    def _one_row_per_record(self, rows: pa.Table) -> pa.Table:
        """The rows without those that lose against another one of their record, which the stored place identifies."""
        compared = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        for head in self.one_row.ordering.heads:
            compared = compared.set_column(rows.schema.get_field_index(head), head, rows.column(_ORDERING + head))
        identity = [RECORD_KEY] if self._is_global else [RECORD_KEY, _OLD_PATH]
        # Rows to insert into a table that generates its keys have none yet.
        is_keyed = pc.is_valid(rows.column(RECORD_KEY))
        chosen = combine_duplicates(compared.filter(is_keyed), identity, self.one_row).column(_ROW)
        added = compared.filter(pc.invert(is_keyed)).column(_ROW)
        return rows if len(chosen) + len(added) == rows.num_rows else rows.take(pa.chunked_array([*chosen.chunks, *added.chunks]))

    def _check_new_places(self, rows: pa.Table, read_places: Callable[[pa.Table], pa.Table]) -> None:
        """Raise InvalidRequest if a record would be inserted or moved to where another one of its key is."""
        is_new = rows.column(_NEW_PLACE)
        if self._is_global:
            # The index finds a record that moves in any partition.
            is_new = pc.and_(is_new, pc.equal(rows.column(_OLD_PATH), rows.column(PARTITION_PATH)))
        added = rows.filter(is_new)
        if not added.num_rows:
            return
        names = [RECORD_KEY] if self._is_global else [RECORD_KEY, PARTITION_PATH]
        existing = read_places(added.select([*self.config.keys.record_fields])).select(names)
        found = added.select([RECORD_KEY, PARTITION_PATH]).join(existing, names, join_type="left semi", use_threads=False)
        if found.num_rows:
            key, path = (found.column(name)[0].as_py() for name in (RECORD_KEY, PARTITION_PATH))
            raise InvalidRequest(EXISTING_RECORD.format(key=key, path=path))

    def _moved(self, rows: pa.Table) -> pa.Table:
        """Rows whose record moves to another partition as two: a delete in the old partition, and the record in the new one."""
        goes = pc.not_equal(rows.column(_OLD_PATH), rows.column(PARTITION_PATH))
        if not pc.any(goes, min_count=0).as_py():
            return rows
        if self._is_global:
            if not self.settings.index.update_partition_path:
                raise InvalidRequest(STAYING_RECORD.format(self.settings.index.index_type))
            return rows
        leaving = rows.filter(goes)
        for name in (*partition_columns(self.config.keys), DELETE_COLUMN):
            marks = pa.chunked_array([pa.repeat(pa.scalar(True), leaving.num_rows)])
            values = marks if name == DELETE_COLUMN else leaving.column(_OLD + name)
            leaving = leaving.set_column(leaving.schema.get_field_index(name), leaving.schema.field(name), values)
        return pa.concat_tables([leaving, rows])


OTHER_KEY = (
    "column {column!r} is a record key field, and record {old} would get {new}: a record keeps its key; delete it and insert it "
    "under the other one"
)
"""Error of a record that would get another key."""

UNMATCHED_NULL = (
    "a row of the source to insert has a null in {names}, which matches nothing: a record with that null may exist; match rows "
    "by <=> in place of ="
)
"""Error of a row to insert that was compared with no record."""

EXISTING_RECORD = (
    "record {key} would be added to partition {path!r}, and the table holds one of its key there that it was not compared with: "
    "match rows by the record key"
)
"""Error of a record that would be inserted or moved to where another one of its key is."""

STAYING_RECORD = (
    "a record would change its partition, and index {} leaves records where they are: set its option update.partition.path"
)
"""Error of a record that would move under a global index that does not move records."""

KEYLESS_MOVE = (
    "partition column {} is assigned: a row of a table without record key keeps its partition. Delete the row and insert it again"
)
"""Error of an update that would move a row of a table that generates its keys."""


def stored_key_columns(config: TableConfig) -> tuple[str, ...]:
    """Return the meta columns by which changed rows name their records, in a table that generates its keys."""
    return (RECORD_KEY, PARTITION_PATH) if config.keys.generates_keys else ()


def columns_to_read(config: TableConfig) -> list[str] | None:
    """Return None for all columns, or all columns with the meta columns that identify a record."""
    return ["*"] if config.populate_meta_fields else None


def data_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns without the meta columns."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def identifying_columns(schema: pa.Schema) -> pa.Schema:
    """Return the data columns, and the meta columns that identify a record."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS or field.name in (RECORD_KEY, PARTITION_PATH)])


def stored_places(config: TableConfig, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return record keys and partition paths of rows of the table."""
    if config.populate_meta_fields:
        keys, paths = (combine_to_array(rows.column(name)).cast(pa.string()) for name in (RECORD_KEY, PARTITION_PATH))
        return keys, paths
    batch = as_batch(rows)
    return record_keys(config.keys, batch), partition_paths(config.keys, batch)


def check_identity(config: TableConfig, rows: pa.Table) -> None:
    """Raise TableState if the columns of a row produce another key or partition than the one it is stored with."""
    if not config.populate_meta_fields or not rows.num_rows:
        return
    batch = as_batch(rows.drop_columns([RECORD_KEY, PARTITION_PATH]))
    expected = {PARTITION_PATH: partition_paths(config.keys, batch)}
    if not config.keys.generates_keys:
        expected[RECORD_KEY] = record_keys(config.keys, batch)
    for name, computed in expected.items():
        stored = pc.cast(rows.column(name), pa.string()).combine_chunks()
        wrong = pc.index(pc.equal(stored, computed), False).as_py()
        if wrong >= 0:
            raise TableState(
                f"a row is stored with {name} {stored[wrong].as_py()!r}, and its columns produce "
                f"{computed[wrong].as_py()!r}: it cannot be written back"
            )
