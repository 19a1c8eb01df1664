"""The table's next schema: what a write may change of its columns.  Source: docs/formats/writing.md, "Writer schema";
docs/formats/reading.md, "Schema".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.records.schema_cast import same_type
from pyhudi.records.type_normalization import is_list_like, normalise

_INTEGER_BITS = {"int32": 32, "int64": 64}
_MODE_OPTION = "set pyhudi.schema.mode"
# What a table's column may become, by the type of the incoming column: only what both the writer rules and the checks of
# reading back agree on.  Everything here is readable from the old files by `conform`.
_WIDENINGS: Mapping[str, tuple[str, ...]] = {
    "int32": ("int64", "float", "double", "string"),
    "int64": ("float", "double", "string"),
    "float": ("double", "string"),
    "double": ("string",),
}
# Of these the ones in which each value stays what it is.
_LOSSLESS: Mapping[str, tuple[str, ...]] = {"int32": ("int64", "double"), "float": ("double",)}


class SchemaMode(StrEnum):
    """What a batch may change of a table's columns.

    STRICT: nothing.  WIDEN: it may bring new columns, and types that hold every value of the table's and every value exactly.
    EVOLVE: as Hudi does by itself, also whole numbers to floating point, which rounds the large ones, and numbers to text.
    """

    STRICT = "strict"
    WIDEN = "widen"
    EVOLVE = "evolve"


@dataclass(frozen=True, slots=True)
class _SchemaDifference:
    column: str
    table: str
    incoming: str
    problem: str


@dataclass(frozen=True, slots=True)
class _Evolution:
    """What a write may do to the columns, and what it may not that its batch asks for (`problems`, collected)."""

    mode: SchemaMode
    fixed: Mapping[str, str]
    null_for_missing: bool
    allow_drop: bool
    problems: list[_SchemaDifference]


def evolve(
    table: pa.Schema | None,
    incoming: pa.Schema,
    mode: SchemaMode = SchemaMode.WIDEN,
    *,
    fixed: Mapping[str, str] | None = None,
    null_for_missing: bool = False,
    allow_drop: bool = False,
) -> pa.Schema:
    """The table's schema after a write of `incoming`: what the commit states and what batches are conformed to.

    table: canonical, None for a new table; incoming: any, it is normalised first; both without meta columns.  fixed: columns
    whose type no batch changes, by dotted name, and what each is to the table.
    - The table's column order wins; new columns come at the end, nullable, at every level of nesting; not under STRICT.
    - A wider incoming number widens the table: int to long and double, float to double; under EVOLVE also int to float and
      string, long to float, double and string, float and double to string; under STRICT none.  A narrower one, and text for a
      decimal or date column, is cast to the table's type.
    - A column is nullable when it is so on either side; under STRICT as it was, and with a default that is not null, too.
    - A column that the table has and `incoming` lacks is an error, unless null_for_missing (it stays, the written rows get null,
      or its default where it may not be null) or allow_drop (it leaves the schema).  With both, null_for_missing wins, because it
      keeps data.
    - A name that differs in case is not the table's column; it is refused even as a new one.
    Anything else is one InvalidRequest that lists each column, both types and the option that would allow it.  Timestamp to
    long, binary to string and back, and changes of a decimal's precision or scale in the table are always refused: Hudi's
    readers misread files on either side of such a change.
    Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".
    """
    incoming = normalise(incoming)
    if table is None:
        return incoming
    rules = _Evolution(mode, fixed or {}, null_for_missing, allow_drop, [])
    fields = _evolve_fields(list(table), list(incoming), "", rules)
    if rules.problems:
        raise InvalidRequest(_difference_text(rules.problems))
    return pa.schema(fields)


def continues(before: pa.Schema, after: pa.Schema, mode: SchemaMode = SchemaMode.WIDEN) -> bool:
    """Whether a table of some columns can go on with others: those that stay keep their types, or get ones of the mode."""
    try:
        evolved = evolve(before, after, mode, allow_drop=True)
    except InvalidRequest:
        return False
    return all(evolved.field(field.name).type.equals(field.type) for field in after)


def typed_nulls(incoming: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The incoming columns, in which every part of type null, at any depth, has the type of the table's part.

    Arrow infers the type null for a column, struct field, list or map that holds nulls alone.  A part that the table lacks,
    or has in another shape, keeps its type.
    """
    known = {field.name: field for field in table}
    return pa.schema(
        [_typed_field(field, known[field.name]) if field.name in known else field for field in incoming],
        metadata=incoming.metadata,
    )


def _typed_field(field: pa.Field, table: pa.Field) -> pa.Field:
    return field.with_type(_typed_type(field.type, table.type))


def _typed_type(incoming: pa.DataType, table: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_null(incoming):
        return table
    if types.is_dictionary(incoming) or types.is_run_end_encoded(incoming):
        return table if types.is_null(incoming.value_type) else incoming
    if types.is_struct(incoming) and types.is_struct(table):
        known = {field.name: field for field in table.fields}
        return pa.struct([_typed_field(field, known[field.name]) if field.name in known else field for field in incoming.fields])
    if is_list_like(incoming) and types.is_list(table):
        value = _typed_field(incoming.value_field, table.value_field)
        # The rows are cast to the table's list whatever the layout of theirs.
        return incoming if value.type == incoming.value_type else pa.list_(value)
    if types.is_map(incoming) and types.is_map(table):
        key = table.key_field if types.is_null(incoming.key_type) else incoming.key_field
        item = _typed_field(incoming.item_field, table.item_field)
        same = key.type == incoming.key_type and item.type == incoming.item_type
        return incoming if same else pa.map_(key, item)
    return incoming


def schema_changes(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """What differs between two states of a table's columns, one short text for each column."""
    return tuple(_changes_of(list(before), list(after), ""))


def _changes_of(before: Sequence[pa.Field], after: Sequence[pa.Field], path: str) -> Iterator[str]:
    known = {field.name: field for field in before}
    for field in after:
        here = path + field.name
        old = known.pop(field.name, None)
        if old is None:
            yield f"{here} {field.type} is new"
        elif pa.types.is_struct(old.type) and pa.types.is_struct(field.type):
            yield from _changes_of(list(old.type.fields), list(field.type.fields), here + ".")
        elif not same_type(old.type, field.type):
            yield f"{here} was {old.type} and is {field.type}"
        if old is not None and field.nullable and not old.nullable:
            yield f"{here} may be null"
    yield from (f"{path}{name} is dropped" for name in known)


def _evolve_fields(table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: str, rules: _Evolution) -> list[pa.Field]:
    arriving = {field.name: field for field in incoming}
    names = {field.name for field in table}
    folded = {field.name.lower(): field.name for field in table}
    result: list[pa.Field] = []
    for field in table:
        here = path + field.name
        other = arriving.get(field.name)
        if other is not None:
            type_ = _evolve_type(field.type, other.type, here, rules)
            result.append(field.with_type(type_).with_nullable(_either_nullable(field, other, rules)))
        elif rules.null_for_missing:
            result.append(field if _has_default(field) else field.with_nullable(True))
        elif not rules.allow_drop:
            rules.problems.append(
                _SchemaDifference(
                    here,
                    str(field.type),
                    "missing",
                    "set hoodie.write.set.null.for.missing.columns=true to write nulls, or "
                    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop=true to drop it from the table",
                )
            )
    for field in incoming:
        if field.name in names:
            continue
        twin = folded.get(field.name.lower())
        problem = None
        if twin is not None:
            problem = f"the table calls it {path}{twin}: names are case sensitive"
        elif rules.mode is SchemaMode.STRICT:
            problem = f"a new column is not taken by schema mode strict: leave it out, or {_MODE_OPTION}=widen to add it"
        if problem is not None:
            rules.problems.append(_SchemaDifference(path + field.name, "missing", str(field.type), problem))
        result.append(field.with_nullable(True))
    return result


def _has_default(field: pa.Field) -> bool:
    """Whether it may not be null and has a default, by which older files are read: it would be lost with the one or the other."""
    return not field.nullable and column_default(field) is not None


def _either_nullable(own: pa.Field, theirs: pa.Field, rules: _Evolution) -> bool:
    return not _has_default(own) and bool(own.nullable or (theirs.nullable and rules.mode is not SchemaMode.STRICT))


def _evolve_type(table: pa.DataType, incoming: pa.DataType, path: str, rules: _Evolution) -> pa.DataType:
    types = pa.types
    if table == incoming:
        return table
    if types.is_struct(table) and types.is_struct(incoming):
        return pa.struct(_evolve_fields(list(table.fields), list(incoming.fields), path + ".", rules))
    if types.is_list(table) and types.is_list(incoming):
        ours, theirs = table.value_field, incoming.value_field
        type_ = _evolve_type(ours.type, theirs.type, path + "[]", rules)
        return pa.list_(pa.field("element", type_, _either_nullable(ours, theirs, rules)))
    if types.is_map(table) and types.is_map(incoming):
        ours, theirs = table.item_field, incoming.item_field
        type_ = _evolve_type(ours.type, theirs.type, path + "{}", rules)
        return pa.map_(pa.field("key", pa.string(), False), pa.field("value", type_, _either_nullable(ours, theirs, rules)))
    if _casts_to_table(incoming, table):
        return table
    # Text never widens a decimal or date column: those were the cases above.
    if str(incoming) not in _WIDENINGS.get(str(table), ()):
        problem = _why_not(table, incoming)
    elif path in rules.fixed:
        problem = f"it is {rules.fixed[path]}, whose type no batch changes: cast the column to the table's type"
        problem += integer_hint(table, incoming)
    elif rules.mode is SchemaMode.EVOLVE or (rules.mode is SchemaMode.WIDEN and str(incoming) in _LOSSLESS.get(str(table), ())):
        return incoming
    elif rules.mode is SchemaMode.STRICT:
        problem = f"another type is not taken by schema mode strict: cast the column, or {_MODE_OPTION}=widen or evolve"
    else:
        cast = "cast the column to the table's type" + integer_hint(table, incoming)
        problem = f"that would change what the table holds: {cast}, or {_MODE_OPTION}=evolve"
    rules.problems.append(_SchemaDifference(path, str(table), str(incoming), problem))
    return table


def integer_hint(table: pa.DataType, incoming: pa.DataType) -> str:
    """How whole numbers with missing values, which pandas holds as floating point, become whole again; "" for other types."""
    if not (pa.types.is_integer(table) and pa.types.is_floating(incoming)):
        return ""
    return f' (in pandas a missing value makes whole numbers float64: astype("{str(table).capitalize()}") keeps them)'


def _casts_to_table(incoming: pa.DataType, table: pa.DataType) -> bool:
    types = pa.types
    if str(table) in _WIDENINGS.get(str(incoming), ()):
        return True
    if types.is_string(table):
        return bool(types.is_date32(incoming) or types.is_decimal128(incoming))
    if types.is_string(incoming):
        return bool(types.is_date32(table) or types.is_decimal128(table))
    if types.is_decimal128(table) and types.is_decimal128(incoming):
        whole_digits = table.precision - table.scale
        return bool(incoming.scale <= table.scale and incoming.precision - incoming.scale <= whole_digits)
    if types.is_decimal128(table):
        return str(incoming) in _INTEGER_BITS
    return bool(types.is_fixed_size_binary(table) and types.is_binary(incoming))


def _why_not(table: pa.DataType, incoming: pa.DataType) -> str:
    types = pa.types
    if types.is_timestamp(table) and types.is_timestamp(incoming):
        return "moments and timestamps without a zone cannot follow one another in a table: cast the column to the table's type"
    if types.is_timestamp(table) or types.is_timestamp(incoming):
        return "a timestamp and another type cannot follow one another in a table: cast the column to the table's type"
    if types.is_decimal(table) and types.is_decimal(incoming):
        return "a decimal of the table cannot change precision or scale: cast the column to the table's type"
    return "not castable: cast the column to the table's type"


def _difference_text(problems: Sequence[_SchemaDifference]) -> str:
    rows = [("column", "table", "incoming", "problem")]
    rows += [(p.column, p.table, p.incoming, p.problem) for p in problems]
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[3] for row in rows
    ]
    return "the incoming columns do not fit the table:\n" + "\n".join(lines)
