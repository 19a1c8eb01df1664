"""Record keys and partition paths as native Spark columns, identical to those of `records.keys`.

Native expressions cover SIMPLE, COMPLEX, NON_PARTITION and GLOBAL_DELETE over booleans, integers, strings, binaries,
dates, decimals with scale up to six and timestamps as microseconds. Everything else (times formatted by a pattern,
floating point numbers, larger scales, `timestamp_ntz`, timestamps in Java's format) uses an Arrow UDF over the key
columns that calls `records.keys`.

The expressions are SQL text, because each call of a PySpark function takes several JVM round trips.

A null or empty key, and a path that no store supports, fail the job with a refusal (see jobs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from pyhudi.engines.spark.jobs import REFUSAL
from pyhudi.engines.spark.type_conversion import column, literal, quote_spark_name
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.keys.key_spec import KeySpec, PartitionFieldType, partition_columns
from pyhudi.records.keys.partition_paths import (
    DEFAULT_PARTITION,
    ENCODED_CHARACTERS,
    NEEDS_ENCODING,
    UNUSABLE_PATHS,
    encode_partition_value,
    partition_paths,
)
from pyhudi.records.keys.record_keys import EMPTY_KEY_PART, NULL_KEY_PART, record_keys

_NATIVE_DECIMALS = 6
"""Up to this scale Spark and Java's BigDecimal format a decimal identically; beyond it Java may use exponents."""


def key_column(spec: KeySpec, schema: pa.Schema) -> Column:
    """The record key of each row, never null or empty.

    Args:
        spec: Key generator; its key fields are columns of `schema`.
        schema: The DataFrame's columns as Arrow.
    """
    texts = [_native_text(spec, schema, name) for name in spec.record_fields]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        return _through_arrow(record_keys, spec, spec.record_fields)
    return F.expr(_key_text(spec, schema, known))


def path_column(spec: KeySpec, schema: pa.Schema) -> Column:
    """The partition path of each row, never null; '' for an unpartitioned table."""
    if not spec.partition_fields:
        return F.lit("")
    if any(field.kind is not PartitionFieldType.SIMPLE for field in spec.partition_fields):
        return _through_arrow(partition_paths, spec, partition_columns(spec))
    parts: list[str] = []
    free_text = False
    for field in spec.partition_fields:
        text = _native_text(spec, schema, field.name)
        if text is None:
            return _through_arrow(partition_paths, spec, partition_columns(spec))
        kind = field_at(schema, field.name).type
        encoded = _encoded(text) if spec.url_encode and pa.types.is_string(kind) else text
        encoded = f"replace({encoded}, '-', '/')" if spec.slash_dates else encoded
        value = f"CASE WHEN {_is_null_or_empty(text)} THEN {literal(DEFAULT_PARTITION)} ELSE {encoded} END"
        free_text = free_text or pa.types.is_string(kind)
        parts.append(f"concat({literal(field.name + '=')}, {value})" if spec.hive_style else value)
    path = parts[0] if len(parts) == 1 else f"concat_ws('/', {', '.join(parts)})"
    return F.expr(_usable(path) if free_text else path)


def auto_key_column(instant_time: str) -> Column:
    """Generated keys as in `auto_record_keys`: instant, task partition, row of the partition."""
    # monotonically_increasing_id has the partition in its upper bits and the row in its lower 33.
    row = f"CAST(monotonically_increasing_id() & {(1 << 33) - 1} AS STRING)"
    return F.expr(f"concat({literal(f'{instant_time}_')}, CAST(spark_partition_id() AS STRING), '_', {row})")


def _key_text(spec: KeySpec, schema: pa.Schema, texts: Sequence[str]) -> str:
    """The record key as SQL.  texts: SQL of the key fields."""
    if not spec.is_composite:
        why = f"the record key field {spec.record_fields[0]!r} is null or empty in a row: every row needs a key"
        return raise_if(texts[0], _is_null_or_empty(texts[0]), why)
    parts: list[str] = []
    gaps: list[str] = []
    for position, (name, text) in enumerate(zip(spec.record_fields, texts, strict=True)):
        parts.append(literal(("," if position else "") + name + ":"))
        field = field_at(schema, name)
        if not field.nullable and not _may_be_empty(field.type):
            parts.append(text)
            continue
        gaps.append(_is_null_or_empty(text))
        unset, empty = literal(NULL_KEY_PART), literal(EMPTY_KEY_PART)
        parts.append(f"CASE WHEN {text} IS NULL THEN {unset} WHEN {text} = '' THEN {empty} ELSE {text} END")
    key = f"concat({', '.join(parts)})"
    if len(gaps) < len(texts):
        return key
    names = ", ".join(repr(name) for name in spec.record_fields)
    why = f"the record key fields {names} are all null or empty in a row: every row needs a key"
    return raise_if(key, " AND ".join(f"({gap})" for gap in gaps), why)


def _usable(path: str) -> str:
    """SQL that fails for a path that no store supports."""
    cases = " ".join(f"WHEN {path} RLIKE {literal(pattern)} THEN {literal(what)}" for pattern, what in UNUSABLE_PATHS)
    before, after = literal(REFUSAL + "the partition path '"), literal("' ")
    why = f"concat({before}, {path}, {after}, CASE {cases} ELSE '' END)"
    unusable = literal("|".join(pattern for pattern, _ in UNUSABLE_PATHS))
    return f"CASE WHEN {path} RLIKE {unusable} THEN raise_error({why}) ELSE {path} END"


def _native_text(spec: KeySpec, schema: pa.Schema, name: str) -> str | None:
    """The text of a column as SQL; None if Spark's text differs from Hudi's."""
    kind = field_at(schema, name).type
    types = pa.types
    value = quote_spark_name(name)
    if types.is_string(kind):
        return value
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind):
        return f"CAST({value} AS STRING)"
    if types.is_decimal(kind) and kind.scale <= _NATIVE_DECIMALS:
        return f"CAST({value} AS STRING)"
    if types.is_timestamp(kind) and kind.tz is not None and not spec.consistent_timestamps:
        return f"CAST(unix_micros({value}) AS STRING)"
    if types.is_binary(kind):
        return f"lower(hex({value}))"
    return None


def _may_be_empty(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_null_or_empty(text: str) -> str:
    return f"{text} IS NULL OR {text} = ''"


def raise_if(value: str, bad: str, reason: str) -> str:
    """SQL of a value that fails with a refusal where the condition `bad` is true."""
    return f"CASE WHEN {bad} THEN raise_error({literal(REFUSAL + reason)}) ELSE {value} END"


def _encoded(text: str) -> str:
    encoded = text
    for character in ENCODED_CHARACTERS:
        encoded = f"replace({encoded}, {literal(character)}, {literal(encode_partition_value(character))})"
    return f"CASE WHEN {text} RLIKE {literal(NEEDS_ENCODING)} THEN {encoded} ELSE {text} END"


def _through_arrow(function: Callable[[KeySpec, pa.RecordBatch], pa.Array], spec: KeySpec, names: tuple[str, ...]) -> Column:
    heads = list(dict.fromkeys(name.split(".")[0] for name in names))

    def texts(*columns: pa.Array) -> pa.Array:
        return function(spec, pa.RecordBatch.from_arrays(list(columns), names=heads))

    # Annotations must be objects: PySpark resolves them, and this module's annotations are strings.
    texts.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    udf = F.arrow_udf(texts, "string")  # type: ignore[attr-defined]  # exported without a stub
    keys: Column = udf(*[column(name) for name in heads])
    return keys
