"""Updates and merges in Arrow, without a SQL engine: conditions are filters, rows match by columns, nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.operations.changes.bound_clauses import SOURCE, TARGET, BoundClause
from pyhudi.operations.changes.changed_rows import JoinedRows, columns_to_read, data_columns
from pyhudi.operations.changes.run_changes import read_rows, run_embedded_changes
from pyhudi.operations.changes.statement import Clause, ClauseAction, ClauseRows, MergeStatement
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.key_lookup import plan_read_lookup
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_parser import Filter, parse_filter
from pyhudi.records.schema_cast import conform_table
from pyhudi.records.schema_evolution import SchemaMode, evolve
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.incoming_layout import as_batch

Ints = npt.NDArray[np.int64]

_MAX_KEYS_LOOKED_UP = 10_000
"""Maximum number of source rows for which a merge by key looks up keys; with more rows every file is read."""

_SOURCE_ROW, _TARGET_ROW = "\x00source", "\x00target"
"""Reserved column names."""


def run_update(
    context: TableContext, engine: Engine, values: Mapping[str, Any], where: Filter | None, settings: WriteSettings
) -> WriteResult:
    """Update the rows that match a filter. Errors as in `run_embedded_changes`."""
    return run_embedded_changes(context, engine, _FilteredRows(engine, where, values), settings)


def run_merge(context: TableContext, engine: Engine, statement: MergeStatement, settings: WriteSettings) -> WriteResult:
    """Merge the rows of an Arrow table that match by columns. Errors as in `run_embedded_changes`."""
    aliases, source = (statement.target_alias, statement.source_alias), statement.source
    evaluator = _RowsByColumns(engine, source, statement.on, statement.clauses, aliases)
    return run_embedded_changes(context, engine, evaluator, settings, first_columns=source.schema, aliases=aliases)


@dataclass(frozen=True, slots=True)
class _FilteredRows:
    """Evaluator of an update: the rows that match a filter."""

    engine: Engine
    where: Filter | None
    values: Mapping[str, Any]

    def equated(self, table: pa.Schema, source: pa.Schema) -> None:
        """Return None: there is no source."""

    def load(self, config: TableConfig, table: pa.Schema) -> tuple[None, Sequence[Clause]]:
        """Return the only clause."""
        return None, (Clause(ClauseAction.UPDATE, self.values, rows=ClauseRows.OF_TARGET),)

    def plan(self, context: TableContext) -> SnapshotQuery:
        """Plan the query of the rows that match the filter."""
        return plan_snapshot_query(context, columns_to_read(context.config), self.where)

    def join(self, query: SnapshotQuery, source: pa.Table | None, clauses: Sequence[BoundClause]) -> Sequence[JoinedRows]:
        """Return the rows of the only clause."""
        return [JoinedRows(None, read_rows(self.engine, query), {})]


@dataclass(frozen=True, slots=True)
class _RowsByColumns:
    """Evaluator of a merge whose rows match by columns of equal names.

    Attributes:
        engine: Reads the rows.
        source: The source rows.
        on: Columns that are equal in matching rows; a null matches nothing.
        clauses: The clauses.
        aliases: Qualifiers of the columns of table and source in conditions.
    """

    engine: Engine
    source: pa.Table
    on: tuple[str, ...]
    clauses: tuple[Clause, ...]
    aliases: tuple[str, str] = (TARGET, SOURCE)

    def __post_init__(self) -> None:
        missing = [name for name in self.on if name not in self.source.column_names]
        if missing:
            raise InvalidRequest(
                f"on= names {', '.join(missing)}, which the source lacks; its columns are {', '.join(self.source.column_names)}"
            )

    def equated(self, table: pa.Schema, source: pa.Schema) -> Mapping[str, str]:
        """Return the columns by which rows match."""
        return dict(zip(self.on, self.on, strict=True))

    @property
    def _reads_all(self) -> bool:
        return any(clause.rows is ClauseRows.OF_TARGET for clause in self.clauses)

    def load(self, config: TableConfig, table: pa.Schema) -> tuple[pa.Table, Sequence[Clause]]:
        """Return the source rows and the clauses."""
        return self.source, self.clauses

    def plan(self, context: TableContext) -> SnapshotQuery:
        """Plan the query of the rows that source rows may match, by their keys if the key fields are matched."""
        columns, keys = columns_to_read(context.config), context.config.keys.record_fields
        few = keys and self.source.num_rows <= _MAX_KEYS_LOOKED_UP and set(keys) <= set(self.on)
        if few and not self._reads_all:
            # Other columns in `on` are compared after the rows have been read.
            return plan_read_lookup(context, self.source.select(list(self.on)).drop_null(), columns, ReadSettings())
        return plan_snapshot_query(context, columns)

    def join(self, query: SnapshotQuery, source: pa.Table | None, clauses: Sequence[BoundClause]) -> Sequence[JoinedRows]:
        """Return the rows of each clause."""
        assert source is not None, "a merge has a source"
        names = data_columns(query.schema).names
        keys = _join_keys(source, data_columns(query.schema), self.on)
        matching = partial(_matching, keys=keys, on=self.on)
        target = read_rows(self.engine, query) if self._reads_all else read_rows(self.engine, query, matching)
        pairs = _pairs(target, keys, self.on)
        source_rows: Ints = pairs.column(_SOURCE_ROW).to_numpy()
        target_rows: Ints = pairs.column(_TARGET_ROW).to_numpy()
        unmatched = {
            ClauseRows.OF_SOURCE: np.setdiff1d(np.arange(source.num_rows, dtype=np.int64), source_rows),
            ClauseRows.OF_TARGET: np.setdiff1d(np.arange(target.num_rows, dtype=np.int64), target_rows),
        }
        joined = []
        for clause in clauses:
            if clause.rows is ClauseRows.MATCHED:
                sides = {TARGET: target.select(names).take(pa.array(target_rows)), SOURCE: source.take(pa.array(source_rows))}
                chosen = self._chosen(sides, clause.where)
                joined.append(JoinedRows(pa.array(source_rows[chosen]), target.take(pa.array(target_rows[chosen])), {}))
                source_rows, target_rows = np.delete(source_rows, chosen), np.delete(target_rows, chosen)
                continue
            of_source, rows = clause.rows is ClauseRows.OF_SOURCE, unmatched[clause.rows]
            sides = {SOURCE: source} if of_source else {TARGET: target.select(names)}
            chosen = self._chosen({side: table.take(pa.array(rows)) for side, table in sides.items()}, clause.where)
            numbers = pa.array(rows[chosen])
            joined.append(JoinedRows(numbers, None, {}) if of_source else JoinedRows(None, target.take(numbers), {}))
            unmatched[clause.rows] = np.delete(rows, chosen)
        return joined

    def _chosen(self, sides: Mapping[str, pa.Table], where: Filter | None) -> Ints:
        """Return the numbers of the joined rows for which a condition is true."""
        every = np.arange(next(iter(sides.values())).num_rows, dtype=np.int64)
        if where is None:
            return every
        named = {self.aliases[0] if side == TARGET else self.aliases[1]: as_batch(rows) for side, rows in sides.items()}
        structs = {alias: pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)) for alias, batch in named.items()}
        schema = pa.schema([pa.field(alias, array.type, False) for alias, array in structs.items()])
        numbered = pa.table(list(structs.values()), schema=schema).append_column(_SOURCE_ROW, pa.array(every))
        matching: Ints = row_filter(parse_filter(where), schema).select(numbered).column(_SOURCE_ROW).to_numpy()
        return matching


def _matching(rows: pa.Table, *, keys: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """Return the rows that match a source row."""
    return rows.take(pc.unique(_pairs(rows, keys, on).column(_TARGET_ROW)))


def _pairs(rows: pa.Table, keys: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """Return the row numbers of matching source and table rows, in order. A null matches nothing."""
    numbered = rows.select(on).append_column(_TARGET_ROW, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    matches = keys.join(numbered, list(on), join_type="inner", use_threads=False).select([_SOURCE_ROW, _TARGET_ROW])
    return matches.sort_by([(_SOURCE_ROW, "ascending"), (_TARGET_ROW, "ascending")]).combine_chunks()


def _join_keys(source: pa.Table, table: pa.Schema, on: Sequence[str]) -> pa.Table:
    """The join keys of source rows in the table's types, with row numbers. Rows with a null match nothing and are omitted."""
    missing = [name for name in on if name not in table.names]
    if missing:
        raise InvalidRequest(f"on= names {', '.join(missing)}, which the table lacks; its columns are {', '.join(table.names)}")
    key_schema = pa.schema([table.field(name).with_nullable(True) for name in on])
    evolve(key_schema, pa.schema([source.schema.field(name).with_nullable(True) for name in on]), SchemaMode.STRICT)
    keys = conform_table(source.select(list(on)), key_schema)
    return keys.append_column(_SOURCE_ROW, pa.array(np.arange(source.num_rows, dtype=np.int64))).drop_null()
