"""Merges whose rows Spark joins: of a table with a DataFrame.

    1. keep       the source, whose rows are looked at more than once and have to be the same ones each time
    2. ask        it for the least and largest values of what rows match by: files beyond them are not read
    3. join       the table with it, outer where clauses speak of rows that match nothing; each row gets the number of the first
                  clause whose condition is true, and goes where none is
    4. change     the rows (change.py), which then are upserted

What is inserted must not have the key of a record that is there.  Where rows match by the record key alone, a row that matches
nothing has a new one; otherwise the keys of the table are asked for it, which are all read then.  So it is with records that go
to another partition.

Source: docs/updates-and-merges.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from pyhudi.engines.spark.column_expressions import MatchCondition, copied_column, expression, refused, side, stored_as
from pyhudi.engines.spark.dataframe_cache import CacheSettingGuard
from pyhudi.engines.spark.engine import SparkEngine
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
    BoundClause,
    UpdateTarget,
    assigned,
    changed_rows,
    load_data_columns,
    resolve_assignments,
    resolve_column,
)
from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.operations.admin.table_settings import zone_mode
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.write.update_merge import Clause, ClauseAction, ClauseRows, columns_to_read, evolved, run_merge_changes
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In
from pyhudi.records.filters.pushdown import compares_identically
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.schema_cast import same_type
from pyhudi.records.schema_evolution import typed_nulls
from pyhudi.records.timestamp_coercion import with_zones
from pyhudi.records.type_normalization import normalise
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext

_SOURCE = "#source"
"""True in rows of the source, null where there is none."""

_LISTED_PARTITIONS = 1000
"""Partition values of a source up to which they are listed; beyond it the least and the largest say what is read."""


_REPEATED = (
    "several rows of the source match record {key!r}, or two of them would insert it, or the table holds it twice, and each "
    "would change it: leave one of them in the source"
)


@dataclass(frozen=True, slots=True)
class SparkMerge:
    """A merge.  on: names of columns, or a condition."""

    source: DataFrame
    on: str | tuple[str, ...] | Column
    clauses: tuple[Clause, ...]
    target_alias: str
    source_alias: str


def run_spark_merge(context: TableContext, merge: SparkMerge, settings: WriteSettings) -> WriteResult:
    """Let the rows of a source meet those of the table.  Errors as of `pyhudi.api.merge.Merge.execute`."""
    if not merge.clauses:
        raise InvalidRequest("a merge without clauses does nothing: say what becomes of the rows, with when_matched_update() say")
    session = merge.source.sparkSession
    plain = CacheSettingGuard(session)
    # The rows are looked at more than once, and have to be the same ones each time.
    plain.enter()
    kept = merge.source.withColumn(_SOURCE, F.lit(True)).persist()
    try:
        found = _SparkMergeRun.of(context, merge, settings, kept)
        with translated_errors():
            return run_merge_changes(
                context,
                SparkEngine(session),
                found.plan,
                found.changed,
                settings,
                description="a merge",
                repeated=_REPEATED,
            )
    finally:
        kept.unpersist()
        plain.release()


@dataclass(frozen=True, slots=True)
class _SparkMergeRun:
    """A merge whose source is kept.  source: its rows, _SOURCE among their columns; table: the columns that are matched."""

    merge: SparkMerge
    config: TableConfig
    settings: WriteSettings
    table: pa.Schema
    source: DataFrame
    matched: MatchCondition

    @classmethod
    def of(cls, context: TableContext, merge: SparkMerge, settings: WriteSettings, source: DataFrame) -> _SparkMergeRun:
        """Raises InvalidRequest for columns that either side lacks."""
        names = [name for name in source.columns if name != _SOURCE]
        table, session = load_data_columns(context), source.sparkSession
        on: Any = (merge.on,) if merge.on in table.names and merge.on in names else merge.on
        if isinstance(on, tuple):
            for which, held in (("source", names), ("table", table.names)):
                missing = [name for name in on if resolve_assignments(name, held, session) is None]
                if missing:
                    raise InvalidRequest(f"on= names {', '.join(missing)}, and the columns of the {which} are {', '.join(held)}")
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
        found = replace(matched, pairs=known, is_equality_only=matched.is_equality_only and len(known) == len(pairs))
        return cls(merge, context.config, settings, table, source, found)

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
        """The columns of which the partition path is made."""
        return frozenset(partition_columns(self.config.keys))

    def plan(self, current_context: TableContext) -> SnapshotQuery:
        """The rows that those of the source may match; all of them where a clause speaks of the others, or an insert is to be
        compared with them.
        """
        clauses, names = self.merge.clauses, columns_to_read(current_context.config)
        everything = any(
            c.rows is ClauseRows.OF_TARGET or (c.outcome is ClauseAction.INSERT and self._is_unsure(c)) for c in clauses
        )
        # What goes to another partition is compared with the keys that are there.
        wanted = self.keys if any(map(self._moves, clauses)) else self.keys | self.partition_columns
        given = to_arrow_schema(self.source.schema)
        pairs = [
            (ours, theirs)
            for ours, theirs in self.matched.pairs
            if ours in wanted
            and compares_identically(self.table.field(ours).type)
            and not pa.types.is_boolean(self.table.field(ours).type)
            and same_type(self.table.field(ours).type, given.field(theirs).type)
        ]
        return plan_snapshot_query(current_context, names, None if everything or not pairs else self._ranges(pairs))

    def _ranges(self, pairs: Sequence[tuple[str, str]]) -> Expr:
        """What the source says of the columns by which rows match."""
        ends = [end(quote_spark_name(theirs)) for _, theirs in pairs for end in (F.min, F.max)]
        found = self.source.agg(*[end.alias(f"_{at}") for at, end in enumerate(ends)]).collect()[0]
        parts: list[Expr] = []
        for at, (ours, theirs) in enumerate(pairs):
            low, high = found[2 * at], found[2 * at + 1]
            if low is None:
                return Constant(False)
            parts += [Compare(ours, ">=", low), Compare(ours, "<=", high)]
            if ours in self.partition_columns:
                some = self.source.select(quote_spark_name(theirs)).distinct().limit(_LISTED_PARTITIONS + 1).collect()
                if len(some) <= _LISTED_PARTITIONS:
                    parts.append(In(ours, tuple(row[0] for row in some if row[0] is not None)))
        return And(tuple(parts))

    def changed(self, query: SnapshotQuery) -> DataFrame:
        """The rows to upsert, with DELETE_COLUMN."""
        merge = self.merge
        target = UpdateTarget.of(query, self.settings, merge.target_alias)
        rows = {clause.rows for clause in merge.clauses}
        how = _HOW[ClauseRows.OF_SOURCE in rows, ClauseRows.OF_TARGET in rows]
        ours, theirs = target.frame(self.session).alias(merge.target_alias), self.source.alias(merge.source_alias)
        pairs = ours.join(theirs, self.matched.condition, how)
        there, given = column(TARGET).isNotNull(), column(_SOURCE).isNotNull()
        present = {ClauseRows.MATCHED: there & given, ClauseRows.OF_SOURCE: ~there, ClauseRows.OF_TARGET: ~given}
        after = target.table
        bound: list[BoundClause] = []
        number: Column = F.lit(None).cast("int")
        for at, clause in reversed(list(enumerate(merge.clauses))):
            speaks = present[clause.rows]
            if clause.where is not None:
                speaks = speaks & expression(clause.where)
            number = F.when(speaks, F.lit(at)).otherwise(number)
        for clause in merge.clauses:
            one, after = self._bound(target, clause, pairs, after)
            bound.append(one)
        return changed_rows(target, bound, after, pairs.withColumn(CLAUSE, number).where(column(CLAUSE).isNotNull()))

    def _bound(self, target: UpdateTarget, clause: Clause, pairs: DataFrame, after: pa.Schema) -> tuple[BoundClause, pa.Schema]:
        """A clause with its values, and the columns of the table once these are in them."""
        if clause.outcome is ClauseAction.DELETE:
            return BoundClause(clause.outcome, {}), after
        if clause.values is None:
            values, after = self._all_columns(after)
        else:
            values = target.stored(assigned(target.table, clause.values, self.session), pairs)
        unsure = self._is_unsure(clause)
        if clause.outcome is ClauseAction.UPDATE and not self._moves(clause):
            values = {name: value for name, value in values.items() if name not in self.partition_columns}
        if clause.outcome is ClauseAction.INSERT and not unsure and len(self.matched.pairs) > 1:
            values = self._without_nulls(values)
        return BoundClause(clause.outcome, values, unsure), after

    def _all_columns(self, after: pa.Schema) -> tuple[dict[str, Column], pa.Schema]:
        """All columns of the source, by column of the table, and the columns of the table with them."""
        named = self._by_name()
        given = self.source.select(*[column(theirs).alias(ours) for ours, theirs in named.items()]).schema
        zones = zone_mode(self.settings.without_zone, self.config.version)
        brought = typed_nulls(with_zones(to_arrow_schema(given), self.table, zones), self.table)
        after = evolved(after, normalise(brought), self.settings)
        types = {field.name: field.dataType for field in to_spark_schema(after).fields}
        alias = self.merge.source_alias
        values = {
            field.name: stored_as(side(alias, named[field.name]), field.dataType, types[field.name], field.name, exactly=True)
            for field in given.fields
        }
        return values, after

    def _without_nulls(self, values: Mapping[str, Column]) -> dict[str, Column]:
        """The values of a row to insert; a null among what rows match by fails the job, for it was compared with no record."""
        ours, _ = self.matched.pairs[0]
        absent: Column = F.lit(False)
        for _, theirs in self.matched.pairs:
            absent = absent | side(self.merge.source_alias, theirs).isNull()
        names = ", ".join(theirs for _, theirs in self.matched.pairs)
        why = F.lit(
            f"a row of the source that would be inserted has a null in {names}, which matches nothing: a record with that null "
            "may be there; match rows by <=> in place of ="
        )
        return {**values, ours: refused(absent, why, values[ours])}

    def _by_name(self) -> dict[str, str]:
        """The data columns of the source, by the column of the table that each is meant for."""
        names = [name for name in self.source.columns if name not in META_COLUMNS and name != _SOURCE]
        return {resolve_assignments(name, self.table.names, self.session) or name: name for name in names}

    def _copies(self, clause: Clause) -> dict[str, str | None]:
        """The columns that a clause assigns, each with the column of the source that it is a copy of, where it is one."""
        if clause.values is None:
            return dict(self._by_name()) if clause.outcome is not ClauseAction.DELETE else {}
        found: dict[str, str | None] = {}
        for given, value in clause.values.items():
            copied = copied_column(value, self.merge.source_alias)
            name = None if copied is None else resolve_assignments(copied, self.source.columns, self.session)
            found[resolve_column(given, self.table, self.session)] = name
        return found

    def _moves(self, clause: Clause) -> bool:
        """Whether an update may take records to other partitions."""
        copies, equated = self._copies(clause), dict(self.matched.pairs)
        assigned = self.partition_columns.intersection(copies)
        return clause.outcome is ClauseAction.UPDATE and any(
            copies[name] is None or copies[name] != equated.get(name) for name in assigned
        )

    def _is_unsure(self, clause: Clause) -> bool:
        """Whether what a clause adds to a partition may have the key of a record there that no row of the source was compared
        with, or that the merge leaves there.
        """
        equated = dict(self.matched.pairs)
        if not self.matched.is_equality_only:
            return True
        if clause.outcome is ClauseAction.UPDATE:
            # Another record of the key is matched too, so it is changed, and then one of them is one too many.
            every = any(c.rows is ClauseRows.MATCHED and c.where is None for c in self.merge.clauses)
            return clause.rows is not ClauseRows.MATCHED or not every or equated.keys() != self.keys
        if not self.keys <= equated.keys() <= self.keys | self.partition_columns:
            return True
        if self.settings.index.index_type.is_global and self.partition_columns & equated.keys():
            return True
        copies = self._copies(clause)
        return any(copies.get(ours) != theirs for ours, theirs in equated.items())


_HOW = {(False, False): "inner", (True, False): "right", (False, True): "left", (True, True): "full"}
"""How the table is joined, by whether a clause speaks of rows of the source, or of the table, that match nothing."""
