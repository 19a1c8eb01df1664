"""Merges of a table with a DataFrame, joined by Spark.

    1. cache      the source, which is read more than once and must return the same rows each time
    2. bound      query the source for the minimum and maximum of the match columns: files outside of them are pruned
    3. join       the table with it, as an outer join if clauses apply to unmatched rows; each row gets the number of
                  the first clause whose condition is true, and is dropped without one
    4. change     the rows (update_delete.py), which are then upserted

Inserted rows must not have the key of an existing record. If rows match by the record key alone, an unmatched row has a
new key; otherwise it is compared with all keys of the table, which requires reading them. The same applies to records
that move to another partition.

Source: docs/updates-and-merges.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from pyhudi.engines.spark.column_expressions import (
    MatchCondition,
    copied_column,
    expression,
    message,
    refused,
    side,
    stored_as,
)
from pyhudi.engines.spark.dataframe_cache import CacheSettingGuard
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.engines.spark.input_frames import with_plain_strings
from pyhudi.engines.spark.jobs import translated_errors
from pyhudi.engines.spark.type_conversion import (
    Column,
    DataFrame,
    SparkSession,
    column,
    quote_spark_name,
    to_arrow_schema,
    to_spark_schema,
)
from pyhudi.engines.spark.update_delete import (
    CLAUSE,
    TARGET,
    ClauseColumns,
    OneRow,
    UpdateTarget,
    assigned,
    changed_rows,
    load_data_columns,
    resolve_assignments,
)
from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.operations.admin.table_settings import zone_mode
from pyhudi.operations.changes.bound_clauses import assigned_column, evolved_schema, source_ordering
from pyhudi.operations.changes.changed_rows import UNMATCHED_NULL, columns_to_read
from pyhudi.operations.changes.run_changes import on_columns, one_row_per_record, run_changes
from pyhudi.operations.changes.statement import Clause, ClauseAction, ClauseRows, MergeStatement
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In
from pyhudi.records.filters.pushdown import compares_identically
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.schema_cast import same_type
from pyhudi.records.schema_evolution import typed_nulls
from pyhudi.records.timestamp_coercion import with_zones
from pyhudi.records.type_normalization import normalize_types
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext

_SOURCE = "#source"
"""True in rows of the source, null in unmatched rows of the table."""

_LISTED_PARTITIONS = 1000
"""Maximum number of partition values of a source to list; beyond it only their minimum and maximum prune files."""


def run_spark_merge(context: TableContext, merge: MergeStatement, settings: WriteSettings) -> WriteResult:
    """Merge the rows of a source into the table.  Errors as in `pyhudi.api.merge.Merge.execute`."""
    session = merge.source.sparkSession
    plain = CacheSettingGuard(session)
    # The rows are read more than once, and must be the same each time.
    plain.enter()
    cached_source = with_plain_strings(merge.source).withColumn(_SOURCE, F.lit(True)).persist()
    try:
        columns = to_arrow_schema(cached_source.drop(_SOURCE).schema)
        merge_run = on_columns(context, columns, lambda known: _SparkMergeRun.of(known, merge, settings, cached_source))
        with translated_errors():
            return run_changes(
                context,
                SparkEngine(session),
                merge_run.plan,
                merge_run.changed,
                settings,
                description="a merge",
                one_row=one_row_per_record(context.config, has_source=True),
                first_columns=columns,
            )
    finally:
        cached_source.unpersist()
        plain.release()


@dataclass(frozen=True, slots=True)
class _SparkMergeRun:
    """A merge with a cached source.  source: its rows with the column _SOURCE; table: data columns of the table."""

    merge: MergeStatement
    config: TableConfig
    settings: WriteSettings
    table: pa.Schema
    source: DataFrame
    matched: MatchCondition

    @classmethod
    def of(cls, context: TableContext, merge: MergeStatement, settings: WriteSettings, source: DataFrame) -> _SparkMergeRun:
        """Raises InvalidRequest for columns that either side lacks."""
        names = [name for name in source.columns if name != _SOURCE]
        table, session = load_data_columns(context), source.sparkSession
        on: Any = (merge.on,) if merge.on in table.names and merge.on in names else merge.on
        if isinstance(on, tuple):
            for which, available in (("source", names), ("table", table.names)):
                missing = [name for name in on if resolve_assignments(name, available, session) is None]
                if missing:
                    raise InvalidRequest(
                        f"on= names {', '.join(missing)}, but the columns of the {which} are {', '.join(available)}"
                    )
            matched = MatchCondition.names(on, merge.target_alias, merge.source_alias)
        elif isinstance(on, str):
            matched = MatchCondition.text(on, merge.target_alias, merge.source_alias)
        else:
            matched = MatchCondition(on, (), False)
        pairs = [
            (resolve_assignments(ours, table.names, session), resolve_assignments(theirs, names, session))
            for ours, theirs in matched.pairs
        ]
        known = tuple((ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None)
        resolved = replace(matched, pairs=known, is_equality_only=matched.is_equality_only and len(known) == len(pairs))
        return cls(merge, context.config, settings, table, source, resolved)

    @property
    def session(self) -> SparkSession:
        """The session of the source."""
        return self.source.sparkSession

    @property
    def keys(self) -> frozenset[str]:
        """The record key fields."""
        return frozenset(self.config.keys.record_fields)

    @property
    def partition_columns(self) -> frozenset[str]:
        """The columns of the partition path."""
        return frozenset(partition_columns(self.config.keys))

    def plan(self, current_context: TableContext) -> SnapshotQuery:
        """Rows that may match the source; all rows if a clause or an insert concerns unmatched rows of the table."""
        clauses, names = self.merge.clauses, columns_to_read(current_context.config)
        reads_all = any(
            c.rows is ClauseRows.OF_TARGET or (c.action is ClauseAction.INSERT and self._may_duplicate_key(c)) for c in clauses
        )
        # A record that moves to another partition is compared with the keys in it.
        match_columns = self.keys if any(map(self._moves, clauses)) else self.keys | self.partition_columns
        source_schema = to_arrow_schema(self.source.schema)
        pairs = [
            (ours, theirs)
            for ours, theirs in self.matched.pairs
            if ours in match_columns
            and compares_identically(self.table.field(ours).type)
            and not pa.types.is_boolean(self.table.field(ours).type)
            and same_type(self.table.field(ours).type, source_schema.field(theirs).type)
        ]
        return plan_snapshot_query(current_context, names, None if reads_all or not pairs else self._ranges(pairs))

    def _ranges(self, pairs: Sequence[tuple[str, str]]) -> Expr:
        """Filter from the source's values of the match columns."""
        ends = [end(quote_spark_name(theirs)) for _, theirs in pairs for end in (F.min, F.max)]
        bounds = self.source.agg(*[end.alias(f"_{at}") for at, end in enumerate(ends)]).collect()[0]
        parts: list[Expr] = []
        for at, (ours, theirs) in enumerate(pairs):
            low, high = bounds[2 * at], bounds[2 * at + 1]
            if low is None:
                return Constant(False)
            parts += [Compare(ours, ">=", low), Compare(ours, "<=", high)]
            if ours in self.partition_columns:
                partition_rows = self.source.select(quote_spark_name(theirs)).distinct().limit(_LISTED_PARTITIONS + 1).collect()
                if len(partition_rows) <= _LISTED_PARTITIONS:
                    parts.append(In(ours, tuple(row[0] for row in partition_rows if row[0] is not None)))
        return And(tuple(parts))

    def changed(self, query: SnapshotQuery) -> DataFrame:
        """The rows to upsert, with DELETE_COLUMN."""
        merge = self.merge
        target = UpdateTarget.of(query, self.settings, merge.target_alias)
        rows = {clause.rows for clause in merge.clauses}
        how = _JOIN_TYPES[ClauseRows.OF_SOURCE in rows, ClauseRows.OF_TARGET in rows]
        ours, theirs = target.frame(self.session).alias(merge.target_alias), self.source.alias(merge.source_alias)
        pairs = ours.join(theirs, self.matched.condition, how)
        in_table, in_source = column(TARGET).isNotNull(), column(_SOURCE).isNotNull()
        row_conditions = {
            ClauseRows.MATCHED: in_table & in_source,
            ClauseRows.OF_SOURCE: ~in_table,
            ClauseRows.OF_TARGET: ~in_source,
        }
        after = target.table
        bound: list[ClauseColumns] = []
        number: Column = F.lit(None).cast("int")
        for at, clause in reversed(list(enumerate(merge.clauses))):
            applies = row_conditions[clause.rows]
            if clause.where is not None:
                applies = applies & expression(clause.where)
            number = F.when(applies, F.lit(at)).otherwise(number)
        for clause in merge.clauses:
            bound_clause, after = self._bound(target, clause, pairs, after)
            bound.append(bound_clause)
        values = self._ordering_values(target, pairs)
        one_row = None
        if (any(map(self._moves, merge.clauses)) and not self._is_global) or not (values is None or self._are_stored()):
            # The write compares the ordering values of changed rows, and does not know where moved records were.
            one_row = OneRow(one_row_per_record(self.config, has_source=True), values)
        chosen = pairs.withColumn(CLAUSE, number).where(column(CLAUSE).isNotNull())
        if values is not None:
            chosen = self._without_outdated_deletes(target, values, chosen)
        return changed_rows(target, bound, after, chosen, one_row)

    @property
    def _is_global(self) -> bool:
        return self.settings.index.index_type.is_global

    def _ordering_values(self, target: UpdateTarget, pairs: DataFrame) -> list[Column] | None:
        """The ordering values of source rows; None if the source has none, or they do not decide."""
        named = self._by_name()
        ordering = source_ordering(self.config, list(named))
        if ordering is None:
            return None
        heads = target.stored({head: side(self.merge.source_alias, named[head]) for head in ordering.heads}, pairs)
        return [reduce(Column.getField, parts, heads[head]) for head, *parts in (name.split(".") for name in ordering.fields)]

    def _are_stored(self) -> bool:
        """Whether each row that comes from a source row gets the ordering values of that row."""
        named, heads = self._by_name(), self.config.merge.ordering.heads
        clauses = [c for c in self.merge.clauses if c.action is not ClauseAction.DELETE and c.rows is not ClauseRows.OF_TARGET]
        return all(self._copies(clause).get(head) == named[head] for clause in clauses for head in heads)

    def _without_outdated_deletes(self, target: UpdateTarget, values: Sequence[Column], chosen: DataFrame) -> DataFrame:
        """The pairs without those whose source row would delete a table row with a larger ordering value."""
        clauses = enumerate(self.merge.clauses)
        deleting = [at for at, c in clauses if c.action is ClauseAction.DELETE and c.rows is ClauseRows.MATCHED]
        if not deleting:
            return chosen
        smaller, equal = F.lit(False), F.lit(True)
        fields = self.config.merge.ordering.fields
        for field, theirs in zip(fields, values, strict=True):
            head, *parts = field.split(".")
            ours = reduce(Column.getField, parts, target.old(head))
            if len(fields) == 1:
                # A null value deletes any row.
                smaller = F.coalesce(theirs < ours, F.lit(False))
                break
            is_smaller = F.coalesce(theirs < ours, theirs.isNull() & ours.isNotNull())
            smaller, equal = smaller | (equal & is_smaller), equal & theirs.eqNullSafe(ours)
        return chosen.where(~(column(CLAUSE).isin(deleting) & smaller))

    def _bound(self, target: UpdateTarget, clause: Clause, pairs: DataFrame, after: pa.Schema) -> tuple[ClauseColumns, pa.Schema]:
        """A clause with bound values, and the columns of the table including them."""
        if clause.action is ClauseAction.DELETE:
            return ClauseColumns(clause.action, self._deleting_values(target, clause, pairs)), after
        if clause.values is None:
            values, after = self._all_columns(after)
        else:
            values = target.stored(assigned(target.table, clause.values, self.session, self.settings), pairs, clause.values)
        unchecked = self._may_duplicate_key(clause)
        if clause.action is ClauseAction.UPDATE and not self._moves(clause):
            values = {name: value for name, value in values.items() if name not in self.partition_columns}
        if clause.action is ClauseAction.INSERT and not unchecked and len(self.matched.pairs) > 1:
            values = self._without_nulls(values)
        return ClauseColumns(clause.action, values, unchecked), after

    def _deleting_values(self, target: UpdateTarget, clause: Clause, pairs: DataFrame) -> dict[str, Column]:
        """The ordering values of the source row that deletes a record, by which it is compared with others of the record."""
        named = self._by_name()
        ordering = source_ordering(self.config, list(named)) if clause.rows is ClauseRows.MATCHED else None
        heads = set(ordering.heads if ordering else ()) - self.keys - self.partition_columns
        values = target.stored({head: side(self.merge.source_alias, named[head]) for head in sorted(heads)}, pairs)
        return {head: F.coalesce(value, target.old(head)) for head, value in values.items()}

    def _all_columns(self, after: pa.Schema) -> tuple[dict[str, Column], pa.Schema]:
        """All columns of the source by column of the table, and the columns of the table including them."""
        named = self._by_name()
        source_schema = self.source.select(*[column(theirs).alias(ours) for ours, theirs in named.items()]).schema
        zones = zone_mode(self.settings.without_zone, self.config.version)
        source_types = typed_nulls(with_zones(to_arrow_schema(source_schema), self.table, zones), self.table)
        # Values of columns that the table has are cast to their types.
        known = {field.name for field in after if not pa.types.is_nested(field.type)}
        kept = [after.field(f.name).with_nullable(f.nullable) if f.name in known else f for f in source_types]
        after = evolved_schema(after, normalize_types(pa.schema(kept)), self.settings)
        types = {field.name: field.dataType for field in to_spark_schema(after).fields}
        alias, fixed = self.merge.source_alias, fixed_columns(self.config)
        values = {
            field.name: stored_as(
                side(alias, named[field.name]),
                field.dataType,
                types[field.name],
                field.name,
                exactly=field.name in fixed,
                by_name=True,
            )
            for field in source_schema.fields
        }
        return values, after

    def _without_nulls(self, values: Mapping[str, Column]) -> dict[str, Column]:
        """The values of a row to insert; a null in a match column fails the job, because it was compared with no record."""
        ours, _ = self.matched.pairs[0]
        absent: Column = F.lit(False)
        for _, theirs in self.matched.pairs:
            absent = absent | side(self.merge.source_alias, theirs).isNull()
        why = message(UNMATCHED_NULL, names=F.lit(", ".join(theirs for _, theirs in self.matched.pairs)))
        return {**values, ours: refused(absent, why, values[ours])}

    def _by_name(self) -> dict[str, str]:
        """The data columns of the source by their target column of the table."""
        names = [name for name in self.source.columns if name not in META_COLUMNS and name != _SOURCE]
        return {resolve_assignments(name, self.table.names, self.session) or name: name for name in names}

    def _copies(self, clause: Clause) -> dict[str, str | None]:
        """The columns that a clause assigns, each with the column of the source that it copies, if it is a plain copy."""
        if clause.values is None:
            return dict(self._by_name()) if clause.action is not ClauseAction.DELETE else {}
        copies: dict[str, str | None] = {}
        for assigned_name, value in clause.values.items():
            copied = copied_column(value, self.merge.source_alias)
            name = None if copied is None else resolve_assignments(copied, self.source.columns, self.session)
            copies[assigned_column(assigned_name, self.table, partial(resolve_assignments, session=self.session))] = name
        return copies

    def _moves(self, clause: Clause) -> bool:
        """Whether an update may move records to other partitions."""
        copies, equated = self._copies(clause), dict(self.matched.pairs)
        assigned = self.partition_columns.intersection(copies)
        return clause.action is ClauseAction.UPDATE and any(
            copies[name] is None or copies[name] != equated.get(name) for name in assigned
        )

    def _may_duplicate_key(self, clause: Clause) -> bool:
        """Whether a record that a clause adds to a partition may have the key of an existing record that was not compared."""
        equated = dict(self.matched.pairs)
        if not self.matched.is_equality_only:
            return True
        if clause.action is ClauseAction.UPDATE:
            # Another record of the key matches too and is changed, which the write detects as a duplicate.
            every = any(c.rows is ClauseRows.MATCHED and c.where is None for c in self.merge.clauses)
            return clause.rows is not ClauseRows.MATCHED or not every or equated.keys() != self.keys
        if not self.keys <= equated.keys() <= self.keys | self.partition_columns:
            return True
        if self._is_global and self.partition_columns & equated.keys():
            return True
        copies = self._copies(clause)
        return any(copies.get(ours) != theirs for ours, theirs in equated.items())


_JOIN_TYPES = {(False, False): "inner", (True, False): "right", (False, True): "left", (True, True): "full"}
"""Join type, by whether clauses apply to unmatched rows of the source and of the table."""
