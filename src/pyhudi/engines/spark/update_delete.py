"""Updates and deletes evaluated by Spark, and what merges share with them: conditions and values have Spark's semantics.

Each row has the number of the clause that applies to it; an update has one clause. Each column is the value that the
clause assigns, else the stored one. DELETE_COLUMN marks rows that only delete their key. A record that moves to another
partition becomes two rows, a delete in the old partition and the record in the new one, unless the index is global and
the write moves records itself. The rows are upserted; a second row of a record fails the write.

Source: docs/updates-and-merges.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi.engines.spark.column_expressions import expression, files_condition, is_column, message, refused, side, stored_as
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.engines.spark.jobs import translated_errors
from pyhudi.engines.spark.native_keys import key_column, path_column
from pyhudi.engines.spark.read_dataframe import query_dataframe, spark_cast
from pyhudi.engines.spark.type_conversion import (
    Column,
    DataFrame,
    SparkSession,
    column,
    quote_spark_name,
    to_arrow_schema,
    to_spark_schema,
)
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.operations.changes.bound_clauses import assigned_values, check_text
from pyhudi.operations.changes.changed_rows import (
    EXISTING_RECORD,
    KEYLESS_MOVE,
    OTHER_KEY,
    STAYING_RECORD,
    columns_to_read,
    data_columns,
    stored_key_columns,
)
from pyhudi.operations.changes.run_changes import one_row_per_record, run_changes
from pyhudi.operations.changes.statement import ClauseAction, Computed, DeleteStatement, UpdateStatement
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query, table_schema
from pyhudi.operations.write.delete_where import key_names, run_delete_where
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.record_merge import OneRowPerRecord
from pyhudi.records.schema_cast import same_type
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.incoming_layout import DELETE_COLUMN

CLAUSE = "#clause"
"""Number of the clause that applies to the row."""

TARGET = "#target"
"""For a row of the table: whether its columns match the key and partition that it is stored under. Null for other rows."""

_OLD_PATH = "#old_path"
_NEW_PATH = "#new_path"
_LEAVES = "#leaves"
_NEW = "#new"
_OLD = "#old_"
_KNOWN = "#known_"
_ORDERING = "#ordering_"
_NUMBER, _HERE, _NEXT = "#number", "#here", "#next"


def run_spark_update(
    context: TableContext, session: SparkSession, update: UpdateStatement, settings: WriteSettings
) -> WriteResult:
    """Update the rows for which a condition is true.  Errors as in `pyhudi.spark.update`."""

    def plan(now: TableContext) -> SnapshotQuery:
        table = load_data_columns(now)
        moves = not set(assigned(table, update.values, session, settings)).isdisjoint(partition_columns(now.config.keys))
        # A record that moves to another partition is compared with the keys in it, so all files are read.
        known = None if moves else files_condition(update.where, update.alias, table)
        return plan_snapshot_query(now, columns_to_read(now.config), known)

    def change(query: SnapshotQuery) -> DataFrame:
        target = UpdateTarget.of(query, settings, update.alias)
        frame = _called(target.frame(session), update.alias)
        values = target.stored(assigned(target.table, update.values, session, settings), frame, update.values)
        chosen = frame if update.where is None else frame.where(update.where)
        return changed_rows(
            target, [ClauseColumns(ClauseAction.UPDATE, values)], target.table, chosen.withColumn(CLAUSE, F.lit(0))
        )

    engine = SparkEngine(session)
    with translated_errors():
        one_row = one_row_per_record(context.config, has_source=False)
        return run_changes(context, engine, plan, change, settings, description="an update", one_row=one_row)


def run_spark_delete(
    context: TableContext, session: SparkSession, delete: DeleteStatement, settings: WriteSettings
) -> WriteResult:
    """Delete the rows for which a condition is true."""

    def keys_of(query: SnapshotQuery) -> DataFrame:
        frame = _called(query_dataframe(session, query), delete.alias)
        chosen = frame if delete.where is None else frame.where(delete.where)
        return chosen.select(*map(quote_spark_name, key_names(context.config)))

    known = files_condition(delete.where, delete.alias, load_data_columns(context))
    with translated_errors():
        return run_delete_where(context, SparkEngine(session), known, settings, keys_of, all_columns=True)


# ---------------------------------------------------------------------------------------------------------------------
# The table


@dataclass(frozen=True, slots=True)
class UpdateTarget:
    """The rows of the table that are read.  table: their data columns."""

    query: SnapshotQuery
    config: TableConfig
    settings: WriteSettings
    table: pa.Schema
    alias: str | None

    @classmethod
    def of(cls, query: SnapshotQuery, settings: WriteSettings, alias: str | None) -> UpdateTarget:
        return cls(query, query.snapshot.config, settings, data_columns(query.schema), alias)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The record key fields."""
        return self.config.keys.record_fields

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns of the partition path."""
        return partition_columns(self.config.keys)

    def frame(self, session: SparkSession) -> DataFrame:
        """The rows, with columns for whether each can be written back in place, and its partition path."""
        rows = query_dataframe(session, self.query)
        path = path_column(self.config.keys, self.table)
        if not self.config.populate_meta_fields:
            return rows.withColumns({TARGET: F.lit(True), _OLD_PATH: path})
        if self.config.keys.generates_keys:
            return rows.withColumns({TARGET: path.eqNullSafe(column(PARTITION_PATH)), _OLD_PATH: column(PARTITION_PATH)})
        same = key_column(self.config.keys, self.table).eqNullSafe(column(RECORD_KEY))
        return rows.withColumns({TARGET: same & path.eqNullSafe(column(PARTITION_PATH)), _OLD_PATH: column(PARTITION_PATH)})

    def stored(
        self, values: Mapping[str, Column], other_rows: DataFrame, expressions: Mapping[str, Any] | None = None
    ) -> dict[str, Column]:
        """Values cast to their columns' types.

        Args:
            values: The values by column.
            other_rows: The rows over which they are expressions.
            expressions: The values as the caller wrote them.

        Raises:
            InvalidRequest: A column cannot hold its value, or SQL text of a caller in Python is no text for a column of text.
        """
        types = {field.name: field.dataType for field in to_spark_schema(self.table).fields}
        value_types = _types_of(values, other_rows)
        for name, text in zip(values, (expressions or {}).values(), strict=False):
            if isinstance(text, str) and not is_column(text):
                value_type = to_arrow_schema(T.StructType([T.StructField(name, value_types[name])])).field(0).type
                check_text(self.table.field(name), value_type, text)
        fixed = fixed_columns(self.config)
        in_sql = {name for name, value in zip(values, (expressions or {}).values(), strict=False) if isinstance(value, Computed)}
        return {
            name: stored_as(value, value_types[name], types[name], name, exactly=name in fixed, by_name=name not in in_sql)
            for name, value in values.items()
        }

    def old(self, name: str) -> Column:
        """The stored value of a column; null if there is no stored row."""
        return side(self.alias, name)


def load_data_columns(context: TableContext) -> pa.Schema:
    """The current data columns of the table."""
    return table_schema(load_snapshot(context), meta_columns=False)


def _called(frame: DataFrame, alias: str | None) -> DataFrame:
    return frame if alias is None else frame.alias(alias)


def assigned(table: pa.Schema, values: Any, session: SparkSession, settings: WriteSettings) -> dict[str, Column]:
    """The assigned values by column of the table. Raises the errors of `assigned_values`."""
    named = assigned_values(values, table, settings, partial(resolve_assignments, session=session))
    return {name: expression(value) for name, value in named.items()}


def _types_of(values: Mapping[str, Column], other_rows: DataFrame) -> dict[str, Any]:
    names = list(values)
    fields = other_rows.select(*[values[name].alias(f"_{at}") for at, name in enumerate(names)]).schema.fields
    return dict(zip(names, (field.dataType for field in fields), strict=True))


def resolve_assignments(name: str, names: Collection[str], session: SparkSession) -> str | None:
    """The name that matches by the session's case sensitivity; None if there is none, or several."""
    if name in names:
        return name
    if str(session.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return None
    matching = [other for other in names if other.casefold() == name.casefold()]
    return matching[0] if len(matching) == 1 else None


# ---------------------------------------------------------------------------------------------------------------------
# Changed rows


@dataclass(frozen=True, slots=True)
class ClauseColumns:
    """A clause as Columns.

    Attributes:
        action: What the clause does.
        values: Values by column of the table.
        is_unchecked: Inserted or moved records may have the key of a record that they were not compared with.
    """

    action: ClauseAction
    values: Mapping[str, Column]
    is_unchecked: bool = True


def changed_rows(
    target: UpdateTarget, clauses: Sequence[ClauseColumns], after: pa.Schema, chosen: DataFrame, one_row: OneRow | None = None
) -> DataFrame:
    """The rows to upsert, with DELETE_COLUMN.

    Args:
        target: The rows of the table.
        clauses: Clauses in order.
        after: Columns of the table after the write.
        chosen: Rows over both sides, with the number of their clause.
        one_row: How rows of one record are compared before records move; None leaves that to the write.
    """
    number, old_row, by_key_alone = column(CLAUSE), column(TARGET), target.settings.index.index_type.is_global
    types = to_spark_schema(after)
    names: dict[str, Column] = {}
    for field, spark in zip(after, types.fields, strict=True):
        before: Column = F.lit(None).cast(spark.dataType)
        if field.name in target.table.names:
            before = _widened(target.old(field.name), target.table.field(field.name), field)
        value = before
        for at, clause in enumerate(clauses):
            if field.name in clause.values:
                value = F.when(number == at, clause.values[field.name]).otherwise(value)
        if field.name in target.fixed:
            why = message(OTHER_KEY, column=F.lit(field.name), old=before, new=value)
            if any(field.name in clause.values and clause.action is ClauseAction.UPDATE for clause in clauses):
                value = refused(old_row.isNotNull() & ~value.eqNullSafe(before), why, value)
            why = F.lit(
                "a row is stored under another record key or partition path than its columns make: it cannot be written back"
            )
            value = refused(old_row.eqNullSafe(F.lit(False)), why, value)
        names[field.name] = value
    flags = number.isin(_numbers(clauses, ClauseAction.DELETE))
    moving = [
        at
        for at, clause in enumerate(clauses)
        if clause.action is ClauseAction.UPDATE and not set(target.partition_columns).isdisjoint(clause.values)
    ]
    stored_names = stored_key_columns(target.config)
    if moving and stored_names:
        raise InvalidRequest(KEYLESS_MOVE.format(", ".join(target.partition_columns)))
    unchecked_inserts = [at for at, clause in enumerate(clauses) if clause.is_unchecked and clause.action is ClauseAction.INSERT]
    # A global index finds the record that moves in any partition.
    unchecked_moves = [at for at in moving if clauses[at].is_unchecked and not by_key_alone]
    moves = number.isin(moving)
    rows = chosen.select(
        *[value.alias(name) for name, value in names.items()],
        flags.alias(DELETE_COLUMN),
        moves.alias(_LEAVES),
        number.isin([*unchecked_inserts, *unchecked_moves]).alias(_NEW),
        column(_OLD_PATH),
        *[target.old(name).alias(name) for name in stored_names],
        *[target.old(name).alias(_OLD + name) for name in (target.partition_columns if moving else ())],
        *[value.alias(f"{_ORDERING}{at}") for at, value in enumerate((one_row and one_row.values) or ())],
    )
    if one_row is not None and not stored_names:
        rows = _one_row_per_record(target, rows, after, one_row)
    if moving:
        rows = _moved(target, rows, after) if not by_key_alone else _moved_by_index(target, rows, after)
    if (unchecked_inserts or unchecked_moves) and not stored_names:
        rows = _check_new_keys(target, rows, after, by_key_only=by_key_alone)
    return rows.select(*map(quote_spark_name, [*after.names, *stored_names, DELETE_COLUMN]))


@dataclass(frozen=True, slots=True)
class OneRow:
    """How changed rows of one record are compared.

    Attributes:
        rule: The rule.
        values: Ordering values of the source rows; None compares those of the changed rows.
    """

    rule: OneRowPerRecord
    values: Sequence[Column] | None


def _one_row_per_record(target: UpdateTarget, rows: DataFrame, after: pa.Schema, one_row: OneRow) -> DataFrame:
    """The rows without those that lose against another one of their record; the job fails if two have the largest value."""
    fields = one_row.rule.ordering.fields
    if one_row.values is None:
        values = [reduce(Column.getField, rest, column(head)) for head, *rest in (name.split(".") for name in fields)]
    else:
        values = [column(f"{_ORDERING}{at}") for at in range(len(one_row.values))]
    place = F.coalesce(column(_OLD_PATH), path_column(target.config.keys, after))
    places = [] if target.settings.index.index_type.is_global else [place]
    order = [value.desc_nulls_last() for value in values] or [F.lit(0)]
    ordered = Window.partitionBy(*map(column, target.fixed), *places).orderBy(*order)
    here = F.struct(F.struct(*map(column, after.names)).alias("row"), F.struct(F.lit(0), *values).alias("value"))
    rows = rows.withColumns({_NUMBER: F.row_number().over(ordered), _HERE: here, _NEXT: F.lead(here).over(ordered)})
    tie = column(_NEXT).getField("value").eqNullSafe(column(_HERE).getField("value"))
    both = F.concat_ws(" and ", *[F.to_json(column(name).getField("row")) for name in (_HERE, _NEXT)])
    key = F.concat_ws(", ", *[column(name).cast("string") for name in target.fixed])
    why = message(one_row.rule.text, key=key, rows=both)
    first = target.fixed[0]
    return rows.where(column(_NUMBER) == 1).withColumn(first, refused(column(_NEXT).isNotNull() & tie, why, column(first)))


def _numbers(clauses: Sequence[ClauseColumns], action: ClauseAction) -> list[int]:
    return [at for at, clause in enumerate(clauses) if clause.action is action]


def _widened(value: Column, before: pa.Field, after: pa.Field) -> Column:
    """A stored value cast to the new type of its column."""
    if same_type(before.type, after.type):
        return value
    widened = spark_cast(value, before.type, after.type)
    if widened is None and pa.types.is_nested(after.type):
        raise Unsupported(
            f"a merge that changes column {after.name!r} from {before.type} to {after.type}: upsert rows of the new type first"
        )
    return value.cast(to_spark_schema(pa.schema([after])).fields[0].dataType) if widened is None else widened


def _moved(target: UpdateTarget, rows: DataFrame, after: pa.Schema) -> DataFrame:
    """Records that move to another partition as two rows: a delete in the old partition, and the record as a new one."""
    goes = column(_LEAVES) & (column(_NEW_PATH) != column(_OLD_PATH))
    both = F.when(goes, F.array(F.lit(True), F.lit(False)))
    rows = rows.withColumn(_NEW_PATH, path_column(target.config.keys, after))
    rows = rows.withColumn(_NEW, column(_NEW) & (goes | ~column(_LEAVES)))
    rows = rows.withColumn(_LEAVES, F.explode(both.otherwise(F.array(F.lit(False)))))
    leaves = column(_LEAVES)
    placed = {name: F.when(leaves, column(_OLD + name)).otherwise(column(name)) for name in target.partition_columns}
    return rows.withColumns({**placed, DELETE_COLUMN: column(DELETE_COLUMN) | leaves, _NEW: column(_NEW) & ~leaves})


def _moved_by_index(target: UpdateTarget, rows: DataFrame, after: pa.Schema) -> DataFrame:
    """Records that move to another partition, which the write moves itself if its index is configured so."""
    index = target.settings.index
    if index.update_partition_path:
        return rows
    goes = column(_LEAVES) & (path_column(target.config.keys, after) != column(_OLD_PATH))
    why = F.lit(STAYING_RECORD.format(index.index_type))
    name = target.partition_columns[0]
    return rows.withColumn(name, refused(goes, why, column(name)))


def _check_new_keys(target: UpdateTarget, rows: DataFrame, after: pa.Schema, *, by_key_only: bool) -> DataFrame:
    """The rows; the job fails if a new one has the key of an existing record."""
    keys = target.fixed
    rows = rows.withColumn(_NEW_PATH, path_column(target.config.keys, after))
    stored = target.frame(rows.sparkSession).select(
        *[column(name).alias(_KNOWN + name) for name in keys], column(_OLD_PATH).alias(_KNOWN)
    )
    same = column(_NEW)
    for name in keys:
        same = same & column(name).eqNullSafe(column(_KNOWN + name))
    if not by_key_only:
        same = same & (column(_NEW_PATH) == column(_KNOWN))
    joined = rows.join(stored, same, "left")
    key = F.concat_ws(", ", *[column(name).cast("string") for name in keys])
    why = message(EXISTING_RECORD, key=key, path=column(_NEW_PATH))
    return joined.withColumn(keys[0], refused(column(_KNOWN).isNotNull(), why, column(keys[0])))
