"""Schema evolution: the table schema after a write, and the changes that each schema mode allows.

Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.format.hudi_types import hudi_type_name, is_vector, record_type, stated_hudi_type
from pyhudi.options import write_options
from pyhudi.records.schema_cast import same_type
from pyhudi.records.type_normalization import fits_record, is_list_like, normalize_types, takes_record

_MODE_OPTION = "set pyhudi.schema.mode"
RECORD_KEY_ROLE = "a record key field"
# Allowed type promotions of a table column, by the type of the incoming column: those allowed by both Hudi's writer
# rules and its read-compatibility checks. `conform` can read old files under each of them.
_WIDENINGS: Mapping[str, tuple[str, ...]] = {
    "int32": ("int64", "float", "double", "string"),
    "int64": ("float", "double", "string"),
    "float": ("double", "string"),
    "double": ("string",),
}
# Promotions that keep every value exactly.
_LOSSLESS: Mapping[str, tuple[str, ...]] = {"int32": ("int64", "double"), "float": ("double",)}


class SchemaMode(StrEnum):
    """Changes of a table's columns that a batch may make.

    Attributes:
        STRICT: None.
        MERGE: New columns, and promotions to types that represent every value exactly.
        WIDEN: Also required columns become nullable where the batch's are.
        EVOLVE: As Hudi by default: also whole numbers to floating point, which rounds large ones, and numbers to
            strings.
    """

    STRICT = "strict"
    MERGE = "merge"
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
    """Changes allowed to a write, and the collected changes of its batch that are not allowed (`problems`)."""

    mode: SchemaMode
    fixed: Mapping[str, str]
    null_for_missing: bool
    allow_drop: bool
    problems: list[_SchemaDifference]
    partial: bool

    @property
    def lifts_required(self) -> bool:
        """Whether a required column may become nullable."""
        return self.mode in (SchemaMode.WIDEN, SchemaMode.EVOLVE)


def evolve(
    table: pa.Schema | None,
    incoming: pa.Schema,
    mode: SchemaMode = SchemaMode.MERGE,
    *,
    fixed: Mapping[str, str] | None = None,
    null_for_missing: bool = False,
    allow_drop: bool = False,
    partial: bool = False,
) -> pa.Schema:
    """Compute the table schema after a write, which the commit records and batches are cast to.

    - The table's column order is kept. New columns are appended as nullable, at every level of nesting; STRICT rejects
      them.
    - A wider incoming number widens the table: int to long and double, float to double; under EVOLVE also int to float
      and string, long to float, double and string, float and double to string; under STRICT none. Values of other types
      are cast to the table's type if it represents each one exactly: a narrower number, a string for a decimal or date
      column, a number for a decimal column, a decimal for a floating point column, an integer for a fixed integer column.
      A fixed string column takes integers, but no other numbers and no dates: the text of 1.0 is not the text of 1.
    - A column keeps the table's nullability. Under WIDEN and EVOLVE it becomes nullable if the incoming one is, unless it
      is a record key field or has a default that is not null.
    - A column that `incoming` lacks is an error, unless null_for_missing (the column stays; the written rows get null,
      or the default if it is not nullable) or allow_drop (the column is dropped). With both, null_for_missing wins,
      because it keeps data.
    - A name that differs only in case is not the table's column, and is rejected as a new one.

    Timestamp to long, binary to string and back, and changes of a decimal's precision or scale in the table are always
    rejected: Hudi's readers misread files on either side of such a change.

    Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".

    Args:
        table: Canonical schema of the table, None for a new table; without meta columns.
        incoming: Schema of the batch, normalized first; without meta columns.
        fixed: Columns whose type must not change, by dotted name, with their role in the table.
        null_for_missing: Keep columns that the batch lacks.
        allow_drop: Drop columns that the batch lacks.
        partial: Columns that the batch lacks keep their stored values, and so their nullability.

    Raises:
        InvalidRequest: Changes that are not allowed; lists each column, both types and the option that would allow it.
    """
    incoming = normalize_types(incoming)
    if table is None:
        return incoming
    rules = _Evolution(mode, fixed or {}, null_for_missing, allow_drop, [], partial)
    fields = _evolve_fields(list(table), list(incoming), "", rules)
    if rules.problems:
        raise InvalidRequest(_difference_text(rules.problems))
    return pa.schema(fields)


def continues(before: pa.Schema, after: pa.Schema, mode: SchemaMode = SchemaMode.MERGE) -> bool:
    """Return True if a table of schema `before` may continue with schema `after`: common columns keep their types or
    are promoted as the mode allows.
    """
    try:
        evolved = evolve(before, after, mode, allow_drop=True)
    except InvalidRequest:
        return False
    return all(evolved.field(field.name).type.equals(field.type) for field in after)


def typed_nulls(incoming: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Replace the type null in the incoming columns, at any depth, by the type of the table's column.

    Arrow infers the type null for a column, struct field, list or map that contains only nulls. A part that the table
    lacks, or has in another shape, keeps its type.
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
        # Rows are cast to the table's list type, for any layout of the incoming list.
        return incoming if value.type == incoming.value_type else pa.list_(value)
    if types.is_map(incoming) and types.is_map(table):
        key = table.key_field if types.is_null(incoming.key_type) else incoming.key_field
        item = _typed_field(incoming.item_field, table.item_field)
        same = key.type == incoming.key_type and item.type == incoming.item_type
        return incoming if same else pa.map_(key, item)
    return incoming


def schema_changes(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """Describe the differences between two schemas of a table, one short string per column."""
    return tuple(_changes_of(list(before), list(after), ""))


def _changes_of(before: Sequence[pa.Field], after: Sequence[pa.Field], path: str) -> Iterator[str]:
    known = {field.name: field for field in before}
    for field in after:
        column_path = path + field.name
        old = known.pop(field.name, None)
        if old is None:
            yield f"{column_path} {field.type} is new"
        elif pa.types.is_struct(old.type) and pa.types.is_struct(field.type):
            yield from _changes_of(list(old.type.fields), list(field.type.fields), column_path + ".")
        elif not same_type(old.type, field.type):
            yield f"{column_path} was {old.type} and is {field.type}"
        if old is not None and field.nullable and not old.nullable:
            yield f"{column_path} may be null"
    yield from (f"{path}{name} is dropped" for name in known)


def _evolve_fields(table: Sequence[pa.Field], incoming: Sequence[pa.Field], path: str, rules: _Evolution) -> list[pa.Field]:
    incoming_by_name = {field.name: field for field in incoming}
    names = {field.name for field in table}
    names_by_lower_case = {field.name.lower(): field.name for field in table}
    result: list[pa.Field] = []
    for field in table:
        column_path = path + field.name
        other = incoming_by_name.get(field.name)
        if other is not None:
            type_ = _evolve_field(field, other, column_path, rules)
            result.append(field.with_type(type_).with_nullable(_nullable_after(field, other, column_path, rules)))
        elif rules.partial or (rules.null_for_missing and (field.nullable or _has_default(field))):
            result.append(field)
        elif rules.null_for_missing and rules.lifts_required:
            result.append(field.with_nullable(True))
        elif rules.null_for_missing:
            required = f"a column that may not be null: pass values for it, or {_MODE_OPTION}=widen to make it nullable"
            rules.problems.append(_SchemaDifference(column_path, str(field.type), "missing", required))
        elif not rules.allow_drop:
            problem = _missing_problem(column_path, rules)
            rules.problems.append(_SchemaDifference(column_path, str(field.type), "missing", problem))
    for field in incoming:
        if field.name in names:
            continue
        same_name_in_table = names_by_lower_case.get(field.name.lower())
        problem = ""
        if same_name_in_table is not None:
            problem = f"it differs only in case from the table's column {path}{same_name_in_table}: names are case sensitive"
        elif rules.mode is SchemaMode.STRICT:
            problem = f"schema mode strict allows no new columns: leave it out, or {_MODE_OPTION}=merge to add it"
        if problem:
            rules.problems.append(_SchemaDifference(path + field.name, "missing", str(field.type), problem))
        result.append(field.with_nullable(True))
    return result


def _missing_problem(path: str, rules: _Evolution) -> str:
    for name, role in rules.fixed.items():
        if name == path or name.startswith(path + "."):
            return f"{name!r} is {role}: add it to the data"
    return (
        f'pass missing_columns="null" ({write_options.SET_NULL_FOR_MISSING_COLUMNS}=true) to write nulls, or "keep" in an upsert '
        "to retain the stored values; "
        f"{write_options.SCHEMA_ALLOW_AUTO_EVOLUTION_COLUMN_DROP}=true drops it from the table"
    )


def _has_default(field: pa.Field) -> bool:
    """True for a required field with a default, which fills older files; a nullable field loses its default."""
    return not field.nullable and column_default(field) is not None


def _nullable_after(own: pa.Field, theirs: pa.Field, path: str, rules: _Evolution) -> bool:
    if own.nullable or not theirs.nullable or not rules.lifts_required:
        return bool(own.nullable)
    return not _has_default(own) and rules.fixed.get(path) != RECORD_KEY_ROLE


def _evolve_field(table: pa.Field, incoming: pa.Field, path: str, rules: _Evolution) -> pa.DataType:
    record = record_type(table)
    if record is None:
        return _evolve_type(table.type, incoming.type, path, rules)
    name = stated_hudi_type(table) or ""
    if stated_hudi_type(incoming) not in (name, None) or not fits_record(incoming.type, record):
        problem = f"{takes_record(name, record)}, and keeps its type"
        rules.problems.append(_SchemaDifference(path, name, str(incoming.type), problem))
    return table.type


def _evolve_type(table: pa.DataType, incoming: pa.DataType, path: str, rules: _Evolution) -> pa.DataType:
    types = pa.types
    if table == incoming:
        return table
    if types.is_struct(table) and types.is_struct(incoming):
        return pa.struct(_evolve_fields(list(table.fields), list(incoming.fields), path + ".", rules))
    if types.is_list(table) and types.is_list(incoming):
        ours, theirs = table.value_field, incoming.value_field
        type_ = _evolve_type(ours.type, theirs.type, path + "[]", rules)
        return pa.list_(pa.field("element", type_, _nullable_after(ours, theirs, path + "[]", rules)))
    if types.is_map(table) and types.is_map(incoming):
        ours, theirs = table.item_field, incoming.item_field
        type_ = _evolve_type(ours.type, theirs.type, path + "{}", rules)
        return pa.map_(
            pa.field("key", pa.string(), False), pa.field("value", type_, _nullable_after(ours, theirs, path + "{}", rules))
        )
    casts = _casts_to_table(incoming, table) or (is_vector(table) and _is_number_list(incoming))
    # A key keeps its type, and takes the values that this type represents exactly.
    casts = casts or (path in rules.fixed and types.is_integer(table) and types.is_integer(incoming))
    fixed_text = path in rules.fixed and types.is_string(table) and not types.is_integer(incoming)
    if casts and not fixed_text:
        return table
    # A string never widens a decimal or date column: the cases above cast it.
    if not casts and str(incoming) not in _WIDENINGS.get(str(table), ()):
        problem = _incompatibility(table, incoming)
    elif path in rules.fixed:
        problem = f"it is {rules.fixed[path]}, whose type cannot change: cast the column to the table's type"
        problem += integer_hint(table, incoming)
    elif rules.mode is SchemaMode.EVOLVE or (
        rules.mode is not SchemaMode.STRICT and str(incoming) in _LOSSLESS.get(str(table), ())
    ):
        return incoming
    elif rules.mode is SchemaMode.STRICT:
        problem = f"schema mode strict allows no type changes: cast the column, or {_MODE_OPTION}=merge or evolve"
    else:
        cast = "cast the column to the table's type" + integer_hint(table, incoming)
        problem = f"this promotion can change stored values: {cast}, or {_MODE_OPTION}=evolve"
    rules.problems.append(_SchemaDifference(path, str(table), str(incoming), problem))
    return table


def integer_hint(table: pa.DataType, incoming: pa.DataType) -> str:
    """Return a hint on how to keep whole numbers with missing values, which pandas stores as float64; "" for other types."""
    is_text = pa.types.is_string(table)
    if not (pa.types.is_floating(incoming) and (is_text or pa.types.is_integer(table))):
        return ""
    cast = 'astype("Int64").astype("string")' if is_text else f'astype("{str(table).capitalize()}")'
    return f" (in pandas a missing value makes whole numbers float64: {cast} keeps them)"


def _casts_to_table(incoming: pa.DataType, table: pa.DataType) -> bool:
    types = pa.types
    if str(table) in _WIDENINGS.get(str(incoming), ()):
        return True
    if types.is_string(table):
        return bool(types.is_date32(incoming) or types.is_decimal128(incoming))
    if types.is_string(incoming):
        return bool(types.is_date32(table) or types.is_decimal128(table))
    if types.is_decimal128(table):
        return bool(types.is_decimal128(incoming) or types.is_floating(incoming) or types.is_integer(incoming))
    if types.is_decimal128(incoming):
        return bool(types.is_floating(table))
    return bool(types.is_fixed_size_binary(table) and types.is_binary(incoming))


def _is_number_list(type_: pa.DataType) -> bool:
    """Return True for lists whose elements may become those of a vector; each row is checked when it is cast."""
    types = pa.types
    return bool(types.is_list(type_) and (types.is_integer(type_.value_type) or types.is_floating(type_.value_type)))


def _incompatibility(table: pa.DataType, incoming: pa.DataType) -> str:
    types = pa.types
    if is_vector(table):
        return f"a column of type {hudi_type_name(table)} takes lists of {table.list_size} numbers, and keeps its type"
    if types.is_timestamp(table) and types.is_timestamp(incoming):
        return "a column cannot mix timestamps with and without a time zone: cast the column to the table's type"
    if types.is_timestamp(table) or types.is_timestamp(incoming):
        return "a column cannot change between a timestamp and another type: cast the column to the table's type"
    return "not castable: cast the column to the table's type"


def _difference_text(problems: Sequence[_SchemaDifference]) -> str:
    rows = [("column", "table", "incoming", "problem")]
    rows += [(p.column, p.table, p.incoming, p.problem) for p in problems]
    widths = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[3] for row in rows
    ]
    return "the incoming columns do not fit the table:\n" + "\n".join(lines)
