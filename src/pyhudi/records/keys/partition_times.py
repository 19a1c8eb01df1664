"""Partition path parts of timestamp fields.

Source: docs/formats/record-keys.md, "Formatted times".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options.table_options import TIME_PREFIXES
from pyhudi.records.java_strings import is_string_like, timestamp_micros
from pyhudi.records.joda_timestamps import MAX_INSTANT_MS, MIN_INSTANT_MS, TimePattern, local_ms, parse_pattern, time_zone
from pyhudi.records.keys.key_spec import KeySpec, PartitionField, PartitionFieldType
from pyhudi.records.keys.key_values import value_codes
from pyhudi.records.keys.timestamp_key_rule import UNIT_MS, UNITS_PER_MS, TimeRule, TimeType


def time_parts(spec: KeySpec, field: PartitionField, array: pa.Array) -> tuple[np.ndarray, pa.StringArray]:
    """Return the code of each row's formatted time, and the distinct strings."""
    if field.kind is PartitionFieldType.UNKNOWN:
        raise InvalidRequest(
            f"the type of the partition field {field.name!r} is not known: specify {field.name}:SIMPLE or :TIMESTAMP"
        )
    if spec.time is None:
        raise InvalidRequest(f"the time format of the partition field {field.name!r} is not known: set {TIME_PREFIXES[0]}*")
    instants = _instants_ms(spec, spec.time, field.name, array)
    zone = time_zone(spec.time.output_zone)
    pattern = parse_pattern(spec.time.output_pattern)
    step = 1 if pattern.has_offset else pattern.granularity_ms
    local = instants if pattern.has_offset else local_ms(instants, zone)
    encoded = pc.dictionary_encode(pa.array(local // step))
    printed_zone = zone if pattern.has_offset else time_zone("UTC")
    texts = [pattern.format(value * step, printed_zone) for value in encoded.dictionary.to_pylist()]
    return value_codes(encoded.indices, 0), pa.array(texts, pa.string())


def _instants_ms(spec: KeySpec, rule: TimeRule, name: str, array: pa.Array) -> np.ndarray:
    if is_string_like(array.type):
        if not rule.type.is_textual:
            raise InvalidRequest(
                f"column {name!r} contains strings, but the time type is {rule.type}: use DATE_STRING and an input pattern"
            )
        return _parsed_instants(rule, name, array)
    if spec.consistent_timestamps and pa.types.is_timestamp(array.type):
        null = _null_instant_ms(rule) if array.null_count else 0
        millis: np.ndarray = pc.fill_null(pc.divide(timestamp_micros(array), 1000), null).to_numpy(zero_copy_only=False)
        return _checked_range(millis, millis, name)
    if rule.type.is_textual:
        raise InvalidRequest(f"column {name!r} has type {array.type}, but the time type {rule.type} requires strings")
    numbers = _whole_numbers(array, name)
    unit = _time_unit(rule)
    # Hudi reads a null as the number 1, in the unit of the column.
    filled: np.ndarray = pc.fill_null(numbers, 1).to_numpy(zero_copy_only=False)
    instants: np.ndarray
    if unit in UNIT_MS:
        factor = UNIT_MS[unit]
        _checked_range(filled, filled, name, MIN_INSTANT_MS // factor, MAX_INSTANT_MS // factor)
        instants = filled * factor
    else:
        # Java's conversion truncates towards zero.
        divisor = UNITS_PER_MS[unit]
        instants = np.where(filled < 0, -(-filled // divisor), filled // divisor)
        _checked_range(instants, filled, name)
    return instants


def _null_instant_ms(rule: TimeRule) -> int:
    """The instant of a null: 1 in the unit of the column, or the text of 1 ms after the epoch in the first pattern, parsed."""
    if not rule.type.is_textual:
        unit = _time_unit(rule)
        return UNIT_MS[unit] if unit in UNIT_MS else 1 // UNITS_PER_MS[unit]
    text = parse_pattern(rule.input_patterns[0]).format(1, time_zone(rule.null_zone or rule.input_zone))
    instant = _first_parsed(_parsers(rule), text)
    if instant is None:
        raise InvalidRequest(
            f"a null is the text {text!r}, which matches none of the input patterns {', '.join(rule.input_patterns)}"
        )
    return instant


def _time_unit(rule: TimeRule) -> str:
    named: Mapping[TimeType, str] = {
        TimeType.UNIX_TIMESTAMP: "SECONDS",
        TimeType.EPOCHMILLISECONDS: "MILLISECONDS",
        TimeType.EPOCHMICROSECONDS: "MICROSECONDS",
    }
    return named.get(rule.type, rule.scalar_unit)


def _whole_numbers(array: pa.Array, name: str) -> pa.Int64Array:
    types = pa.types
    type_ = array.type
    if types.is_timestamp(type_):
        return timestamp_micros(array)
    if types.is_date32(type_):
        return pc.cast(pc.cast(array, pa.int32()), pa.int64())
    if types.is_integer(type_):
        return pc.cast(array, pa.int64())
    if types.is_floating(type_) or types.is_decimal(type_):
        try:
            return pc.cast(pc.trunc(array), pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidRequest(f"column {name!r} contains a number that is not a time: {error}") from error
    raise InvalidRequest(f"column {name!r} of type {type_} cannot be a time: use a number, string, date or timestamp")


def _checked_range(
    instants: np.ndarray, values: np.ndarray, name: str, low: int = MIN_INSTANT_MS, high: int = MAX_INSTANT_MS
) -> np.ndarray:
    outside = np.flatnonzero((instants < low) | (instants > high))
    if len(outside):
        row = outside[0]
        raise InvalidRequest(
            f"column {name!r} contains {values[row]} in row {row} (counted from 0), which is not a time in the years 1 to 9999: "
            "check the time type and unit"
        )
    return instants


def _parsed_instants(rule: TimeRule, name: str, array: pa.Array) -> np.ndarray:
    encoded = pc.dictionary_encode(pc.cast(array, pa.string()))
    parsers = _parsers(rule)
    instants: list[int] = []
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        instant = _first_parsed(parsers, text)
        if instant is None:
            row = pc.index(encoded.indices, pa.scalar(code, encoded.indices.type)).as_py()
            raise InvalidRequest(
                f"column {name!r} contains {text!r} in row {row} (counted from 0), which matches none of the input patterns "
                f"{', '.join(rule.input_patterns)}"
            )
        instants.append(instant)
    # The last entry is the instant of a null.
    by_code: np.ndarray = np.array([*instants, _null_instant_ms(rule) if array.null_count else 0], dtype=np.int64)
    rows: np.ndarray = by_code[value_codes(encoded.indices, len(instants))]
    return rows


def _parsers(rule: TimeRule) -> list[Callable[[str], int]]:
    zone = time_zone(rule.input_zone)
    return [_parser(parse_pattern(text), zone) for text in rule.input_patterns]


def _parser(pattern: TimePattern, zone: tzinfo) -> Callable[[str], int]:
    return lambda text: pattern.parse(text, zone)


def _first_parsed(parsers: Iterable[Callable[[str], int]], text: str) -> int | None:
    return next((found for found in (_attempt(parse, text) for parse in parsers) if found is not None), None)


def _attempt(parse: Callable[[str], int], text: str) -> int | None:
    try:
        return parse(text)
    except Unsupported:
        raise
    except InvalidRequest:
        return None
