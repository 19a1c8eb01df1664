"""Normalization of Arrow schemas to the canonical types, which `format.arrow_to_avro` maps to Avro."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.arrow_to_avro import check_name
from pyhudi.format.avro_to_arrow import ARROW_TYPES, COMMENT, LOCAL_TIMESTAMP, TIMESTAMP
from pyhudi.format.hudi_types import HUDI_TYPE, VARIANT_TYPE, given_hudi_type, hudi_type_name, is_vector, parse_hudi_type
from pyhudi.records.java_strings import is_binary_like, is_string_like
from pyhudi.records.variants.variant_shredding import is_shredded


def normalize_types(schema: pa.Schema) -> pa.Schema:
    """Return the columns in canonical types.

    Large, view, dictionary and run-end layouts become plain ones; fixed size lists become lists, except vectors (elements
    that are not nullable) and columns whose metadata entry `hudi_type` names a vector, such as VECTOR(4); int8, int16, uint8 and
    uint16 become int32; uint32 becomes int64; float16 becomes float32; decimal32 and decimal64 become decimal128;
    date64 becomes date32; fixed_size_binary becomes binary; timestamps become microseconds, in UTC if they have a time
    zone. (`records.timestamp_coercion` decides which timestamps without a time zone a table accepts.)

    Not supported: uint64, decimal256, null, time, duration, interval, union, extension types except JSON, structs
    without fields, maps whose keys are not strings, and two columns of one struct or table whose names differ only in
    case. Nullability and the field metadata entries `comment` and `hudi_type` are kept; all other metadata is dropped.

    Raises:
        InvalidRequest: Lists every column that Hudi cannot store.
    """
    problems: list[str] = []
    fields = _normal_fields(list(schema), "", problems)
    if problems:
        raise InvalidRequest("Hudi cannot store these columns:\n  " + "\n  ".join(problems))
    return pa.schema(fields)


def _normal_fields(fields: Sequence[pa.Field], path: str, problems: list[str]) -> list[pa.Field]:
    seen: dict[str, str] = {}
    for field in fields:
        other = seen.get(field.name.lower())
        if other == field.name:
            problems.append(f"{path}{field.name}: there are two columns of this name")
        elif other is not None:
            problems.append(f"{path}{field.name}: its name differs from {path}{other} only in case, and SQL ignores case")
        seen.setdefault(field.name.lower(), field.name)
    return [_normal_field(field, path, problems) for field in fields]


def _normal_field(field: pa.Field, path: str, problems: list[str]) -> pa.Field:
    column_path = path + field.name
    try:
        check_name(field.name, column_path)
    except InvalidRequest:
        problems.append(
            f"{column_path}: a name may contain letters, digits and underscores, and must not begin with a digit: rename it"
        )
    named = given_hudi_type(field)
    comment = (field.metadata or {}).get(COMMENT)
    metadata = {key: value for key, value in ((COMMENT, comment), (HUDI_TYPE, named)) if value}
    if nesting_depth(field.type) > MAX_NESTING:
        problems.append(f"{column_path}: it has more than {MAX_NESTING} levels of nested types: store its inner levels as JSON")
        return field
    type_ = _normal_type(field.type, column_path, problems) if named is None else _named_type(field, named, column_path, problems)
    if "." in column_path and is_vector(type_):
        problems.append(f"{column_path}: {_NESTED_VECTOR}")
    return pa.field(field.name, type_, field.nullable, metadata=metadata or None)


MAX_NESTING = 48
"""Levels of structs, lists and maps in a column. Avro schemas have two levels for each, and at most 100 are read."""


def nesting_depth(type_: pa.DataType) -> int:
    """Return the number of nested types around the deepest value, at most `MAX_NESTING` + 1."""
    level, depth = [type_], 0
    while level and depth <= MAX_NESTING:
        level = [part.field(at).type for part in level if pa.types.is_nested(part) for at in range(part.num_fields)]
        depth += bool(level)
    return depth


def _named_type(field: pa.Field, named: bytes, path: str, problems: list[str]) -> pa.DataType:
    """Return the type that the field's metadata names, if the field has such values."""
    name = named.decode(errors="replace")
    try:
        type_ = parse_hudi_type(name)
    except InvalidRequest as error:
        problems.append(f"{path}: {error}")
        return field.type
    if pa.types.is_struct(type_):
        source = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        if not fits_record(_normal_type(source, path, []), type_):
            problems.append(f"{path}: {takes_record(name, type_)}, not {field.type}")
        return type_
    if not (is_list_like(field.type) or pa.types.is_null(field.type)):
        problems.append(f"{path}: {name} takes lists of numbers, not {field.type}")
    if is_vector(field.type) and field.type != type_:
        problems.append(f"{path}: its metadata names {name}, and its type is {hudi_type_name(field.type)}")
    return type_


def fits_record(incoming: pa.DataType, record: pa.DataType) -> bool:
    """Return True if values of a canonical type may become those of a record of Hudi 1.2. Fields may be missing."""
    types = pa.types
    if incoming == record or types.is_null(incoming) or (record == VARIANT_TYPE and is_shredded(incoming)):
        return True
    if not (types.is_struct(incoming) and types.is_struct(record)):
        return bool(types.is_integer(incoming) and types.is_int64(record))
    known = {field.name: field.type for field in record.fields}
    return all(field.name in known and fits_record(field.type, known[field.name]) for field in incoming.fields)


def takes_record(name: str, record: pa.DataType) -> str:
    """Return the sentence of an error about values of another type in a column of a record of Hudi 1.2."""
    return f"a column of type {name} takes {record}"


def _normal_type(type_: pa.DataType, path: str, problems: list[str]) -> pa.DataType:
    types = pa.types
    simple = _normal_scalar(type_)
    if simple is not None:
        return simple
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return _normal_type(type_.value_type, path, problems)
    if is_vector(type_):
        return type_
    if is_list_like(type_):
        value = type_.value_field
        _check_entry(value, f"{path}[]", problems)
        return pa.list_(pa.field("element", _normal_type(value.type, path + "[]", problems), value.nullable))
    if types.is_map(type_):
        key = _normal_type(type_.key_type, path + "{key}", problems)
        if not types.is_string(key):
            problems.append(f"{path}: the keys of a map must be strings, these are {type_.key_type}: use an array of structs")
        item = _normal_type(type_.item_type, path + "{}", problems)
        _check_entry(type_.item_field, f"{path}{{}}", problems)
        return pa.map_(pa.field("key", pa.string(), False), pa.field("value", item, type_.item_field.nullable))
    if types.is_struct(type_):
        if type_.num_fields == 0:
            problems.append(f"{path}: a struct needs at least one field")
        return pa.struct(_normal_fields(list(type_.fields), path + ".", problems))
    if isinstance(type_, pa.BaseExtensionType) and type_.extension_name == "arrow.json":
        return pa.string()
    problems.append(f"{path}: type {type_}: {_refusal(type_)}")
    return type_


def _check_entry(field: pa.Field, path: str, problems: list[str]) -> None:
    """Refuse the types of Hudi 1.2 as entries of lists and maps."""
    if is_vector(field.type):
        problems.append(f"{path}: {_NESTED_VECTOR}")
    elif given_hudi_type(field) is not None:
        problems.append(f"{path}: a {_given_name(field)} must not be an entry of a list or map")


def _given_name(field: pa.Field) -> str:
    return (given_hudi_type(field) or b"").decode(errors="replace")


_NESTED_VECTOR = "a vector must be a column of its own, not a part of a struct, list or map"


def _normal_scalar(type_: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if any(type_ == known for known, _ in ARROW_TYPES):
        return type_
    if is_string_like(type_):
        return pa.string()
    if is_binary_like(type_):
        return pa.binary()
    if types.is_timestamp(type_):
        return LOCAL_TIMESTAMP if type_.tz is None else TIMESTAMP
    if types.is_date(type_):
        return pa.date32()
    if types.is_int8(type_) or types.is_int16(type_) or types.is_uint8(type_) or types.is_uint16(type_):
        return pa.int32()
    if types.is_uint32(type_):
        return pa.int64()
    if types.is_float16(type_):
        return pa.float32()
    if types.is_decimal(type_) and not types.is_decimal256(type_) and 0 <= type_.scale <= type_.precision:
        return pa.decimal128(type_.precision, type_.scale)
    return None


def is_list_like(type_: pa.DataType) -> bool:
    """Return True if the type is a list in any of Arrow's layouts."""
    types = pa.types
    return bool(
        types.is_list(type_)
        or types.is_large_list(type_)
        or types.is_fixed_size_list(type_)
        or types.is_list_view(type_)
        or types.is_large_list_view(type_)
    )


def _refusal(type_: pa.DataType) -> str:
    types = pa.types
    if types.is_null(type_):
        return "a column of only nulls has no type: cast it to its intended type"
    if types.is_uint64(type_):
        return "Hudi has no unsigned numbers: cast to int64 if the values fit, else to decimal128(20, 0)"
    if types.is_decimal256(type_):
        return "a decimal has at most 38 digits: cast to decimal128"
    if types.is_decimal(type_):
        return "the scale of a decimal must be between 0 and its precision: cast it"
    if types.is_time(type_):
        return "Hudi has no time-of-day type that Spark can read: cast to int64 microseconds or to string"
    if types.is_duration(type_) or types.is_interval(type_):
        return "Hudi has no duration type: cast to int64"
    if isinstance(type_, pa.BaseExtensionType):
        return f"cast it to its storage type {type_.storage_type}"
    return "Hudi has no such type"
