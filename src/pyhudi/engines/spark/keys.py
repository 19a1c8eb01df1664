"""Record keys and partition paths as native columns, letter for letter those of `records.keys`.

Native expressions cover SIMPLE, COMPLEX, NON_PARTITION and GLOBAL_DELETE over booleans, whole numbers, strings, binaries,
dates, decimals with up to six decimals and timestamps as microseconds.  Everything else (times formatted by a pattern, floating
point numbers, finer decimals, `timestamp_ntz`, timestamps as Java prints them) goes through an Arrow UDF over the key columns
that calls `records.keys` itself.

A null or empty key, and a path that no store can hold, make the job fail with a refusal (see jobs.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from pyhudi.engines.spark.convert import column
from pyhudi.engines.spark.jobs import REFUSAL
from pyhudi.records.columns import field_at
from pyhudi.records.keys.partition_paths import (
    DEFAULT_PARTITION,
    ENCODED_CHARACTERS,
    NEEDS_ENCODING,
    UNUSABLE_PATHS,
    encode_partition_value,
    partition_paths,
)
from pyhudi.records.keys.record_keys import EMPTY_KEY_PART, NULL_KEY_PART, record_keys
from pyhudi.records.keys.spec import KeySpec, PartitionKind, partition_columns

_NATIVE_DECIMALS = 6
"""Up to this scale Spark and Java's BigDecimal print a decimal alike; beyond it Java may turn to exponents."""


def key_column(spec: KeySpec, schema: pa.Schema) -> Column:
    """The record key of each row, never null or empty.  schema: the DataFrame's columns as Arrow; spec names key fields."""
    texts = [_native_text(spec, schema, name) for name in spec.record_fields]
    if any(text is None for text in texts):
        return _through_arrow(record_keys, spec, spec.record_fields)
    known = [text for text in texts if text is not None]
    required = [not field_at(schema, name).nullable for name in spec.record_fields]
    if not spec.is_composite:
        return _refused(
            known[0],
            _is_gap(known[0]),
            f"the record key field {spec.record_fields[0]!r} is null or empty in a row: every row needs a key",
        )
    parts: list[Column] = []
    gaps: Column | None = None
    for position, (name, text) in enumerate(zip(spec.record_fields, known, strict=True)):
        parts.append(F.lit(("," if position else "") + name + ":"))
        never_empty = required[position] and not _may_be_empty(field_at(schema, name).type)
        filled = (
            text
            if never_empty
            else F.when(text.isNull(), F.lit(NULL_KEY_PART)).when(text == "", F.lit(EMPTY_KEY_PART)).otherwise(text)
        )
        parts.append(filled)
        gap = F.lit(False) if never_empty else _is_gap(text)
        gaps = gap if gaps is None else gaps & gap
    key = F.concat(*parts)
    if any(ok and not _may_be_empty(field_at(schema, name).type) for ok, name in zip(required, spec.record_fields, strict=True)):
        return key
    names = ", ".join(repr(name) for name in spec.record_fields)
    assert gaps is not None
    return _refused(key, gaps, f"the record key fields {names} are all null or empty in a row: every row needs a key")


def path_column(spec: KeySpec, schema: pa.Schema) -> Column:
    """The partition path of each row, never null; '' for an unpartitioned table."""
    if not spec.partition_fields:
        return F.lit("")
    if any(field.kind is not PartitionKind.SIMPLE for field in spec.partition_fields):
        return _through_arrow(partition_paths, spec, partition_columns(spec))
    parts: list[Column] = []
    free_text = False
    for field in spec.partition_fields:
        text = _native_text(spec, schema, field.name)
        if text is None:
            return _through_arrow(partition_paths, spec, partition_columns(spec))
        kind = field_at(schema, field.name).type
        value = F.when(_is_gap(text), F.lit(DEFAULT_PARTITION)).otherwise(
            _encoded(text) if spec.url_encode and pa.types.is_string(kind) else text
        )
        free_text = free_text or pa.types.is_string(kind)
        parts.append(F.concat(F.lit(field.name + "="), value) if spec.hive_style else value)
    path = parts[0] if len(parts) == 1 else F.concat_ws("/", *parts)
    if not free_text:
        return path
    why = F.lit("")
    for pattern, what in reversed(UNUSABLE_PATHS):
        why = F.when(path.rlike(pattern), F.lit(what)).otherwise(why)
    refusal = F.raise_error(F.concat(F.lit(REFUSAL + "the partition path '"), path, F.lit("' "), why))
    return F.when(path.rlike("|".join(pattern for pattern, _ in UNUSABLE_PATHS)), refusal).otherwise(path)


def auto_key_column(instant_time: str) -> Column:
    """Keys for rows without any, as `auto_record_keys` makes them: instant, task partition, row of the partition."""
    # monotonically_increasing_id carries the partition in its upper bits and the row in its lower 33.
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return F.concat(F.lit(f"{instant_time}_"), F.spark_partition_id().cast("string"), F.lit("_"), row.cast("string"))


def _native_text(spec: KeySpec, schema: pa.Schema, name: str) -> Column | None:
    kind = field_at(schema, name).type
    types = pa.types
    value = column(name)
    if types.is_string(kind):
        return value
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind):
        return value.cast("string")
    if types.is_decimal(kind) and kind.scale <= _NATIVE_DECIMALS:
        return value.cast("string")
    if types.is_timestamp(kind) and kind.tz is not None and not spec.consistent_timestamps:
        return F.unix_micros(value).cast("string")
    if types.is_binary(kind):
        return F.lower(F.hex(value))
    return None


def _may_be_empty(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_gap(text: Column) -> Column:
    return text.isNull() | (text == "")


def _refused(value: Column, bad: Column, why: str) -> Column:
    return F.when(bad, F.raise_error(F.lit(REFUSAL + why))).otherwise(value)


def _encoded(text: Column) -> Column:
    encoded = text
    for character in ENCODED_CHARACTERS:
        encoded = F.replace(encoded, F.lit(character), F.lit(encode_partition_value(character)))
    return F.when(text.rlike(NEEDS_ENCODING), encoded).otherwise(text)


def _through_arrow(function: Callable[[KeySpec, pa.RecordBatch], pa.Array], spec: KeySpec, names: tuple[str, ...]) -> Column:
    heads = list(dict.fromkeys(name.split(".")[0] for name in names))

    def texts(*columns: pa.Array) -> pa.Array:
        return function(spec, pa.RecordBatch.from_arrays(list(columns), names=heads))

    # Annotations are given as objects: PySpark resolves them, and this module's annotations are strings.
    texts.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    udf = F.arrow_udf(texts, "string")  # type: ignore[attr-defined]  # exported without a stub
    found: Column = udf(*[column(name) for name in heads])
    return found
