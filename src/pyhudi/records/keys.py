"""Record keys and partition paths: what identifies a row, and the folder it lives in.

Six key generators (storage format, Record keys and partition paths):

    generator       record key                                       partition path
    SIMPLE          value                                            value
    COMPLEX         one field: value; more: `f1:v1,f2:v2`            `v1/v2`
    NON_PARTITION   as COMPLEX                                       empty
    TIMESTAMP       as SIMPLE                                        a time, formatted
    CUSTOM          one field: value; more: `f1:v1,f2:v2`            per field as SIMPLE or as TIMESTAMP
    GLOBAL_DELETE   `f1:v1`, also for one field                      empty

A value becomes text as in text.py (the form of Hudi's upsert path, which its bulk insert of timestamps does not follow:
`2024-05-06 07:08:09.123` there, microseconds since the epoch here and on upsert).  In a composite key null is `__null__`
and the empty string `__empty__`; values are not escaped.  In a path null and the empty string are
`__HIVE_DEFAULT_PARTITION__`; `/` in a value makes folders unless values are percent-encoded.

Steps of a path: distinct values first (dictionary encoding), then text, encoding and prefix on those alone, then the paths
are spread back over the rows.  So Python sees each distinct value once and never a row.

Hudi takes the time zone of its JVM where a timestamp generator names none; a table must not depend on where a job ran, so
UTC is taken here, which is what Hudi documents.

What is not done: user-defined generator classes, and Spark SQL's UUID keys, are refused.  The keys of a table without key
fields are made from the instant by `auto_record_keys`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.records.schema import column_at, field_at
from pyhudi.records.text import has_text, is_binary_like, is_string_like, timestamp_micros, value_text
from pyhudi.records.timestamps import MAX_INSTANT_MS, MIN_INSTANT_MS, TimePattern, local_ms, parse_pattern, time_zone

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The path of a null or empty partition value."""

NULL_KEY_PART = "__null__"
EMPTY_KEY_PART = "__empty__"
"""What stands for null and for the empty string in a composite key."""

RECORD_FIELDS = "hoodie.table.recordkey.fields"
PARTITION_FIELDS = "hoodie.table.partition.fields"
GENERATOR_TYPE = "hoodie.table.keygenerator.type"
GENERATOR_CLASS = "hoodie.table.keygenerator.class"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
CONSISTENT_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
"""The table properties that describe keys."""

TIME_PREFIXES = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_CLASS_PACKAGES = ("org.apache.hudi.keygen", "com.uber.hoodie", "com.uber.hoodie.keygen", "org.apache.hudi")
_ENCODED = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^"))}
_NEEDS_ENCODING = r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
_UNIT_MS = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1_000, "MILLISECONDS": 1}
_UNITS_PER_MS = {"MICROSECONDS": 1_000, "NANOSECONDS": 1_000_000}


class KeyGenerator(StrEnum):
    """How keys and paths are made; the names are those of `hoodie.table.keygenerator.type`."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    GLOBAL_DELETE = "GLOBAL_DELETE"


class PartitionKind(StrEnum):
    """How one partition field becomes a part of the path."""

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"
    UNKNOWN = "UNKNOWN"
    """A custom generator whose table does not say (before table version 8): readable, not writable."""


class TimeType(StrEnum):
    """What the values of a time field are; the names are those of `timestamp.type`."""

    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    SCALAR = "SCALAR"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"

    @property
    def takes_text(self) -> bool:
        """Whether the values are texts to be parsed."""
        return self in (TimeType.DATE_STRING, TimeType.MIXED)


_KINDS_BY_CLASS: Mapping[str, KeyGenerator | None] = {
    "SimpleKeyGenerator": KeyGenerator.SIMPLE,
    "SimpleAvroKeyGenerator": KeyGenerator.SIMPLE,
    "ComplexKeyGenerator": KeyGenerator.COMPLEX,
    "ComplexAvroKeyGenerator": KeyGenerator.COMPLEX,
    "NonpartitionedKeyGenerator": KeyGenerator.NON_PARTITION,
    "NonpartitionedAvroKeyGenerator": KeyGenerator.NON_PARTITION,
    "TimestampBasedKeyGenerator": KeyGenerator.TIMESTAMP,
    "TimestampBasedAvroKeyGenerator": KeyGenerator.TIMESTAMP,
    "CustomKeyGenerator": KeyGenerator.CUSTOM,
    "CustomAvroKeyGenerator": KeyGenerator.CUSTOM,
    "GlobalDeleteKeyGenerator": KeyGenerator.GLOBAL_DELETE,
    "GlobalAvroDeleteKeyGenerator": KeyGenerator.GLOBAL_DELETE,
    # These wrap the generator that the fields themselves call for.
    "AutoRecordGenWrapperKeyGenerator": None,
    "AutoRecordGenWrapperAvroKeyGenerator": None,
    "SqlKeyGenerator": None,
    "MergeIntoKeyGenerator": None,
    "HoodieTableMetadataKeyGenerator": None,
}
_KINDS_BY_TYPE: Mapping[str, KeyGenerator | None] = {
    **{kind.value: kind for kind in KeyGenerator},
    **{f"{kind.value}_AVRO": kind for kind in KeyGenerator},
    **dict.fromkeys(("AUTO_RECORD", "AUTO_RECORD_AVRO", "SPARK_SQL", "SPARK_SQL_MERGE_INTO", "HOODIE_TABLE_METADATA")),
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column by its dotted name, and how its values become a part of the path."""

    name: str
    kind: PartitionKind = PartitionKind.SIMPLE


@dataclass(frozen=True, slots=True)
class TimeRule:
    """How a time field becomes a part of the path.  Source: storage format, Timestamp-based generator.

    type: what the values are; scalar_unit: their unit when type is SCALAR (DAYS ... NANOSECONDS); input_patterns: Joda
    patterns that are tried in order for texts; output_pattern: the Joda pattern of the path; zones by identifier.
    """

    type: TimeType
    output_pattern: str
    scalar_unit: str = "SECONDS"
    input_patterns: tuple[str, ...] = ()
    input_zone: str = "UTC"
    output_zone: str = "UTC"

    def __post_init__(self) -> None:
        parse_pattern(self.output_pattern)
        for pattern in self.input_patterns:
            parse_pattern(pattern)
        time_zone(self.input_zone)
        time_zone(self.output_zone)
        if self.scalar_unit not in (*_UNIT_MS, *_UNITS_PER_MS):
            raise InvalidRequest(f"unknown time unit {self.scalar_unit!r}: use one of {', '.join((*_UNIT_MS, *_UNITS_PER_MS))}")
        if self.type.takes_text and not self.input_patterns:
            raise InvalidRequest(f"the time type {self.type} needs hoodie.keygen.timebased.input.dateformat")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TimeRule | None:
        """The rule that `hoodie.keygen.timebased.*` describe, under the present or the old prefix; None when absent."""

        def value(name: str) -> str | None:
            found = (properties.get(prefix + name) for prefix in TIME_PREFIXES)
            return next((text for text in found if text is not None), None)

        type_, output = value("timestamp.type"), value("output.dateformat")
        if type_ is None and output is None:
            return None
        if type_ is None or output is None:
            missing = "timestamp.type" if type_ is None else "output.dateformat"
            raise InvalidRequest(f"a timestamp key generator needs {TIME_PREFIXES[0]}{missing}")
        if type_.upper() not in TimeType.__members__:
            raise InvalidRequest(f"unknown time type {type_!r}: use one of {', '.join(TimeType)}")
        delimiter = value("input.dateformat.list.delimiter.regex") or ","
        try:
            patterns = [part.strip() for part in re.split(delimiter, value("input.dateformat") or "")]
        except re.error as error:
            raise InvalidRequest(f"{TIME_PREFIXES[0]}input.dateformat.list.delimiter.regex is no pattern: {error}") from error
        zone = value("timezone")
        return cls(
            type=TimeType(type_.upper()),
            output_pattern=output,
            scalar_unit=(value("timestamp.scalar.time.unit") or "SECONDS").upper(),
            input_patterns=tuple(part for part in patterns if part),
            input_zone=value("input.timezone") or zone or "UTC",
            output_zone=value("output.timezone") or zone or "UTC",
        )

    def to_properties(self) -> dict[str, str]:
        """The properties that say the same; zones are always written, because Hudi's default is the zone of its JVM."""
        prefix = TIME_PREFIXES[0]
        result = {prefix + "timestamp.type": self.type.value, prefix + "output.dateformat": self.output_pattern}
        if self.type is TimeType.SCALAR:
            result[prefix + "timestamp.scalar.time.unit"] = self.scalar_unit
        if self.input_patterns:
            delimiter = next((mark for mark in (",", ";", "|", "~") if not any(mark in p for p in self.input_patterns)), None)
            if delimiter is None and len(self.input_patterns) > 1:
                raise InvalidRequest("the input patterns hold every separator that could stand between them")
            result[prefix + "input.dateformat"] = (delimiter or "").join(self.input_patterns)
            result[prefix + "input.dateformat.list.delimiter.regex"] = "" if delimiter is None else re.escape(delimiter)
        result[prefix + "input.timezone"] = self.input_zone
        result[prefix + "output.timezone"] = self.output_zone
        return result


@dataclass(frozen=True, slots=True)
class KeySpec:
    """How a table identifies its rows.

    record_fields: dotted names; empty when keys are generated.  partition_fields: empty when unpartitioned.
    hive_style: `field=value` folders; url_encode: percent-encode values.  time: the rule of TIMESTAMP fields; None where the
    table does not say, then such a table can be read and not written.
    prefix_single_key: write `field:value` for one key field, too, as COMPLEX tables of Hudi 0.14.0 and before and of 1.1 and
    after do; look at a stored key to know.  consistent_timestamps: timestamps become `2024-05-06 07:08:09.123` in
    timestamp_zone instead of microseconds (milliseconds with trailing zeros cut, as Java prints them).
    """

    generator: KeyGenerator
    record_fields: tuple[str, ...] = ()
    partition_fields: tuple[PartitionField, ...] = ()
    hive_style: bool = False
    url_encode: bool = False
    time: TimeRule | None = None
    prefix_single_key: bool = False
    consistent_timestamps: bool = False
    timestamp_zone: str = "UTC"

    def __post_init__(self) -> None:
        names = [field.name for field in self.partition_fields]
        for role, fields in (("record key", self.record_fields), ("partition", names)):
            if len(set(fields)) < len(fields):
                raise InvalidRequest(f"a {role} field is named twice: {', '.join(fields)}")
            if not all(fields):
                raise InvalidRequest(f"a {role} field has no name")
        kind, count = self.generator, len(self.partition_fields)
        if kind in (KeyGenerator.SIMPLE, KeyGenerator.TIMESTAMP):
            if len(self.record_fields) > 1 or count != 1:
                raise InvalidRequest(
                    f"the {kind} key generator takes one record key field and one partition field, not "
                    f"{len(self.record_fields)} and {count}: use COMPLEX"
                )
        elif kind in (KeyGenerator.NON_PARTITION, KeyGenerator.GLOBAL_DELETE) and count:
            raise InvalidRequest(f"the {kind} key generator takes no partition field: {', '.join(names)}")
        kinds = {field.kind for field in self.partition_fields}
        allowed = {KeyGenerator.CUSTOM: set(PartitionKind), KeyGenerator.TIMESTAMP: {PartitionKind.TIMESTAMP}}.get(
            kind, {PartitionKind.SIMPLE}
        )
        if not kinds <= allowed:
            raise InvalidRequest(f"the {kind} key generator has no fields of kind {', '.join(sorted(kinds - allowed))}")
        time_zone(self.timestamp_zone)

    @classmethod
    def for_fields(
        cls,
        record_fields: Sequence[str],
        partition_fields: Sequence[str],
        generator: KeyGenerator | str | None = None,
        *,
        hive_style: bool = False,
        url_encode: bool = False,
        time: TimeRule | None = None,
    ) -> KeySpec:
        """The spec of a new table from what a user names; a partition field may carry its kind (`day:TIMESTAMP`).

        generator: a type name, a class name of Hudi or None to infer it.
        """
        kind = parse_key_generator(generator) if isinstance(generator, str) else generator
        if kind is None:
            kind = infer_key_generator(record_fields, partition_fields)
        if kind in (KeyGenerator.NON_PARTITION, KeyGenerator.GLOBAL_DELETE) and not any(partition_fields):
            partition_fields = ()
        return cls(
            generator=kind,
            record_fields=tuple(record_fields),
            partition_fields=tuple(_partition_field(text, kind) for text in partition_fields),
            hive_style=hive_style,
            url_encode=url_encode,
            time=time,
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> KeySpec:
        """The spec that a table's `hoodie.properties` describe.

        A generator class wins over a type, as in Hudi; without either the generator is inferred from the fields.
        Raises Unsupported for generators of users, InvalidRequest for values that contradict each other.
        """
        record_fields = _names(properties.get(RECORD_FIELDS))
        partition_texts = _names(properties.get(PARTITION_FIELDS))
        kind: KeyGenerator | None = None
        name = properties.get(GENERATOR_CLASS) or properties.get(GENERATOR_TYPE)
        if name:
            kind = parse_key_generator(name)
        if kind is None:
            kind = infer_key_generator(record_fields, partition_texts)
        return cls(
            generator=kind,
            record_fields=record_fields,
            partition_fields=tuple(_partition_field(text, kind) for text in partition_texts),
            hive_style=_flag(properties, HIVE_STYLE),
            url_encode=_flag(properties, URL_ENCODE),
            # Writers of table version 6 store the format of the path alone.
            time=TimeRule.from_properties(properties) if _says_time_type(properties) else None,
            consistent_timestamps=_flag(properties, CONSISTENT_TIMESTAMPS),
        )

    def to_properties(self) -> dict[str, str]:
        """The entries of `hoodie.properties` for a new table.

        The time rule is stored for CUSTOM, too: Hudi reads it from there and would otherwise want it with every write.
        """
        if any(field.kind is PartitionKind.UNKNOWN for field in self.partition_fields):
            raise InvalidRequest("the kinds of the partition fields are not known: name them as field:SIMPLE or field:TIMESTAMP")
        result: dict[str, str] = {}
        if self.record_fields:
            result[RECORD_FIELDS] = ",".join(self.record_fields)
        custom = self.generator is KeyGenerator.CUSTOM
        texts = [f"{field.name}:{field.kind.value}" if custom else field.name for field in self.partition_fields]
        result[PARTITION_FIELDS] = ",".join(texts)
        result[GENERATOR_TYPE] = self.generator.value
        result[HIVE_STYLE] = "true" if self.hive_style else "false"
        result[URL_ENCODE] = "true" if self.url_encode else "false"
        if self.time is not None:
            result.update(self.time.to_properties())
        if self.consistent_timestamps:
            result[CONSISTENT_TIMESTAMPS] = "true"
        return result

    @property
    def generates_keys(self) -> bool:
        """Whether rows carry no key of their own (see `auto_record_keys`)."""
        return not self.record_fields

    @property
    def is_composite(self) -> bool:
        """Whether a record key is written as `field:value` pairs."""
        return len(self.record_fields) > 1 or self.prefix_single_key or self.generator is KeyGenerator.GLOBAL_DELETE


# ---------------------------------------------------------------------------------------------------------------------
# Public functions


def infer_key_generator(record_fields: Sequence[str], partition_fields: Sequence[str]) -> KeyGenerator:
    """The generator that the fields call for.  Source: storage format, Generators.

    No partition field: NON_PARTITION; a kind in a partition field (`day:TIMESTAMP`): CUSTOM; one partition field and at
    most one key field: SIMPLE; else COMPLEX.
    """
    named = [field for field in partition_fields if field]
    if not named:
        return KeyGenerator.NON_PARTITION
    if any(":" in field for field in named):
        return KeyGenerator.CUSTOM
    return KeyGenerator.SIMPLE if len(named) == 1 and len(record_fields) <= 1 else KeyGenerator.COMPLEX


def parse_key_generator(name: str) -> KeyGenerator | None:
    """The generator of a type or class name; None when the fields decide.  Raises Unsupported for generators of users."""
    if name.upper() in _KINDS_BY_TYPE:
        return _KINDS_BY_TYPE[name.upper()]
    package, _, simple = name.rpartition(".")
    ours = not package or package in (*_CLASS_PACKAGES, "org.apache.hudi.metadata", "org.apache.spark.sql.hudi.command")
    if ours and simple in _KINDS_BY_CLASS:
        return _KINDS_BY_CLASS[simple]
    raise Unsupported(f"the key generator {name} is not supported: use one of {', '.join(KeyGenerator)}")


def partition_columns(spec: KeySpec) -> tuple[str, ...]:
    """The dotted names of the partition columns, in the order of the path."""
    return tuple(field.name for field in spec.partition_fields)


def path_valued_columns(spec: KeySpec) -> tuple[str, ...]:
    """The partition columns whose values a path gives back; those of timestamp fields stand only in the files."""
    return tuple(field.name for field in spec.partition_fields if field.kind is PartitionKind.SIMPLE)


def record_keys(spec: KeySpec, batch: pa.RecordBatch) -> pa.StringArray:
    """The record key of each row, never null or empty, in the order of the rows.

    Raises InvalidRequest, naming field and row, for a null or empty key (in a composite key: when every part is), and for
    a key column that is missing or has no text form.  Source: storage format, Generators and value to text.
    """
    if spec.generates_keys:
        raise InvalidRequest("the table has no record key fields: its keys are generated, name hoodie.table.recordkey.fields")
    texts = [_column_text(spec, batch, name, "record key") for name in spec.record_fields]
    if not spec.is_composite:
        _refuse_keyless(texts, spec.record_fields)
        return texts[0]
    parts: list[Any] = []
    gaps = False
    for index, (name, text) in enumerate(zip(spec.record_fields, texts, strict=True)):
        filled, has_gaps = _key_part(text)
        gaps = gaps or has_gaps
        parts += [("," if index else "") + name + ":", filled]
    if gaps:
        _refuse_keyless(texts, spec.record_fields)
    return pc.binary_join_element_wise(*parts, "")


def auto_record_keys(instant_time: str, task_partition: int, first_row_index: int, row_count: int) -> pa.StringArray:
    """Keys for rows without any: `{instant}_{task partition}_{row index}`, the index counted from 0 within a task."""
    rows = pa.array(np.arange(first_row_index, first_row_index + row_count, dtype=np.int64))
    return pc.binary_join_element_wise(f"{instant_time}_{task_partition}_", pc.cast(rows, pa.string()), "")


def split_record_keys(keys: pa.StringArray) -> pa.ListArray:
    """The parts of composite keys: list<struct<name: string, value: string>>, one list a key, in key order.

    A key without both `,` and `:` is one part with a null name.  Otherwise a value ends at the last comma before the next
    `name:`, so it may hold commas and colons.  `__null__` becomes null and `__empty__` the empty string; null stays null.
    Source: storage format, split rule; write path, bucket index.
    """
    simple = _split_simple_keys(keys)
    if simple is not None:
        return simple
    plain = pc.invert(pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":")))
    mark = next((mark for mark in _split_marks() if not pc.any(pc.match_substring(keys, mark)).as_py()), None)
    if mark is None:
        raise Unsupported("the record keys hold every private character that could separate their parts")
    # The first name goes up to the first colon, commas included; only behind it does a comma separate.
    first = pc.extract_regex(keys, r"(?s)^(?P<name>[^:]*):(?P<rest>.*)$")
    rest = pc.replace_substring_regex(first.field("rest"), r",([^,:]*):", mark + r"\1:")
    marked = pc.if_else(plain, keys, pc.binary_join_element_wise(first.field("name"), rest, ":"))
    pieces = pc.split_pattern(marked, mark)
    flat = pieces.values.slice(pieces.offsets[0].as_py() if len(pieces) else 0, len(pieces.flatten()))
    counts = pc.fill_null(pc.list_value_length(pieces), 0).to_numpy(zero_copy_only=False)
    is_plain = pa.array(np.repeat(pc.fill_null(plain, True).to_numpy(zero_copy_only=False), counts))
    named = pc.extract_regex(flat, r"(?s)^(?P<name>[^:]*):(?P<value>.*)$")
    value = pc.if_else(is_plain, flat, named.field("value"))
    value = pc.if_else(pc.and_(pc.equal(value, NULL_KEY_PART), pc.invert(is_plain)), pa.scalar(None, pa.string()), value)
    value = pc.if_else(pc.and_(pc.equal(value, EMPTY_KEY_PART), pc.invert(is_plain)), "", value)
    name = pc.if_else(is_plain, pa.scalar(None, pa.string()), named.field("name"))
    parts = pa.StructArray.from_arrays([name, value], names=["name", "value"])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = keys.is_null() if keys.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), parts, mask=mask)


def partition_paths(spec: KeySpec, batch: pa.RecordBatch) -> pa.StringArray:
    """The partition path of each row, relative to the table, never null; empty for an unpartitioned table.

    Raises InvalidRequest, naming field and row, for a column that is missing or has no text form, a time that cannot be
    parsed, and a value that makes a path no store can hold (`..`, an empty folder name, a colon in the first folder).
    Source: storage format, Partition path formatting and Timestamp-based generator.
    """
    if not spec.partition_fields:
        return pa.array([""], pa.string()).take(pa.array(np.zeros(batch.num_rows, dtype=np.int64)))
    codes: list[np.ndarray] = []
    texts: list[pa.StringArray] = []
    for field in spec.partition_fields:
        array = column_at(batch, field.name)
        indices, distinct = (
            _time_parts(spec, field, array) if field.kind is not PartitionKind.SIMPLE else _parts(spec, field, array)
        )
        codes.append(indices)
        texts.append(_decorated(spec, field, distinct))
    rows, combined = _combined(codes, [len(text) for text in texts])
    paths = texts[0].take(pa.array(combined[0]))
    if len(texts) > 1:
        paths = pc.binary_join_element_wise(*(text.take(pa.array(code)) for text, code in zip(texts, combined, strict=True)), "/")
    _refuse_unusable(paths, rows)
    return paths.take(pa.array(rows))


def encode_partition_value(text: str) -> str:
    """Percent-encode one value of a path.  Source: storage format, Partition path formatting."""
    return text.translate(_ENCODED)


def decode_partition_value(text: str) -> str:
    """Undo `encode_partition_value`; a percent sign without two hexadecimal digits stands for itself."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)


def parse_partition_path(spec: KeySpec, path: str) -> tuple[str | None, ...]:
    """The text of each partition field, in the order of the spec; None for the default partition; `()` when unpartitioned.

    With one field the whole path is its value, slashes included.  With several, each takes one folder (a timestamp field as
    many as its pattern has), unless every field is found as `field=`, when all up to the next `field=` belongs to it.
    A value that begins with its own field name and `=` is taken as Hive style whatever the table says, as Hudi does.
    Raises TableState when the folders do not fit the fields.  Source: reading, Partitions and path filters.
    """
    fields = spec.partition_fields
    if not fields:
        if path:
            raise TableState(f"the table is not partitioned, but has the partition path {path!r}")
        return ()
    if len(fields) == 1:
        return (_parsed_value(spec, fields[0], path),)
    folders = path.split("/")
    starts = _hive_starts(fields, folders) or _counted_starts(spec, fields, folders)
    if starts is None:
        raise TableState(
            f"the partition path {path!r} has {len(folders)} folders for the {len(fields)} fields "
            f"{', '.join(field.name for field in fields)}: likely a slash in a value that was not encoded"
        )
    ends = [*starts[1:], len(folders)]
    return tuple(
        _parsed_value(spec, field, "/".join(folders[start:end])) for field, start, end in zip(fields, starts, ends, strict=True)
    )


def partition_value(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """A partition field's text as a value of its column's type, canonical as in schema.py; None gives null.

    A timestamp is read from microseconds (what Hudi writes) and from `2024-05-06 07:08:09.123`.
    Raises CorruptData when the text is no value of the type.
    """
    if text is None:
        return pa.scalar(None, type_)
    types = pa.types
    try:
        if types.is_string(type_):
            return pa.scalar(text, type_)
        if is_binary_like(type_):
            return pa.scalar(bytes.fromhex(text), type_)
        if types.is_timestamp(type_) and re.fullmatch(r"-?[0-9]+", text):
            return pa.scalar(int(text), pa.int64()).cast(type_)
        if types.is_floating(type_):
            return pa.scalar(float(text.replace("Infinity", "inf")), type_)
        if types.is_boolean(type_):
            return pa.scalar({"true": True, "false": False}[text.lower()], type_)
        if types.is_timestamp(type_):
            return pa.scalar(text).cast(pa.timestamp(type_.unit)).cast(type_)
        return pa.scalar(text).cast(type_)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise CorruptData("a partition path holds no value of its column's type", expected=str(type_), found=text) from error


def partition_values(spec: KeySpec, path: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The values that a path gives to its columns, by dotted name; without those that only the files know.

    schema: the table's, with or without meta columns.  Errors as of `parse_partition_path` and `partition_value`.
    """
    texts = parse_partition_path(spec, path)
    return {
        field.name: partition_value(text, field_at(schema, field.name).type)
        for field, text in zip(spec.partition_fields, texts, strict=True)
        if field.kind is PartitionKind.SIMPLE
    }


# ---------------------------------------------------------------------------------------------------------------------
# Reading properties


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _says_time_type(properties: Mapping[str, str]) -> bool:
    return any(prefix + "timestamp.type" in properties for prefix in TIME_PREFIXES)


def _flag(properties: Mapping[str, str], name: str) -> bool:
    text = properties.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _partition_field(text: str, kind: KeyGenerator) -> PartitionField:
    name, colon, given = text.partition(":")
    name = name.strip()
    if kind is KeyGenerator.TIMESTAMP:
        return PartitionField(name, PartitionKind.TIMESTAMP)
    if kind is not KeyGenerator.CUSTOM:
        return PartitionField(name)
    if not colon:
        return PartitionField(name, PartitionKind.UNKNOWN)
    if given.strip().upper() not in (PartitionKind.SIMPLE, PartitionKind.TIMESTAMP):
        raise InvalidRequest(f"the partition field {text!r} has an unknown kind: use {name}:SIMPLE or {name}:TIMESTAMP")
    return PartitionField(name, PartitionKind(given.strip().upper()))


# ---------------------------------------------------------------------------------------------------------------------
# Keys


def _column_text(spec: KeySpec, batch: pa.RecordBatch, name: str, role: str) -> pa.StringArray:
    array = column_at(batch, name)
    if not has_text(array.type):
        raise InvalidRequest(f"column {name!r} of type {array.type} cannot be a {role} field")
    return _text(spec, array)


def _text(spec: KeySpec, array: pa.Array) -> pa.StringArray:
    if spec.consistent_timestamps and pa.types.is_timestamp(array.type):
        return _java_timestamps(array, time_zone(spec.timestamp_zone))
    return value_text(array)


def _java_timestamps(array: pa.Array, zone: tzinfo) -> pa.StringArray:
    """`java.sql.Timestamp.toString` of each instant, cut to milliseconds as Hudi cuts it (towards zero)."""
    micros = timestamp_micros(array)
    quotient = pc.fill_null(pc.divide(micros, 1000), 0).to_numpy(zero_copy_only=False)
    local = pa.array(local_ms(quotient, zone)).cast(pa.timestamp("ms"))
    text = pc.utf8_rtrim(pc.strftime(local, "%Y-%m-%d %H:%M:%S"), characters="0")
    text = pc.if_else(pc.ends_with(text, "."), pc.binary_join_element_wise(text, "0", ""), text)
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, pa.string()))


def _key_part(text: pa.StringArray) -> tuple[pa.StringArray, bool]:
    """The part of a composite key, and whether any value was null or empty."""
    gaps = text.null_count > 0
    if gaps:
        text = pc.fill_null(text, NULL_KEY_PART)
    empty = pc.equal(pc.binary_length(text), 0)
    if pc.any(empty).as_py():
        return pc.if_else(empty, EMPTY_KEY_PART, text), True
    return text, gaps


def _refuse_keyless(texts: Sequence[pa.StringArray], names: Sequence[str]) -> None:
    keyless: pa.Array | None = None
    for text in texts:
        missing = pc.fill_null(pc.equal(pc.binary_length(text), 0), True)
        keyless = missing if keyless is None else pc.and_(keyless, missing)
    row = pc.index(keyless, True).as_py()
    if row >= 0:
        value = "null" if texts[0][row].as_py() is None else "empty"
        fields = ", ".join(repr(name) for name in names)
        what = (
            f"the record key field {fields} is {value}"
            if len(names) == 1
            else f"the record key fields {fields} are all null or empty"
        )
        raise InvalidRequest(f"{what} in row {row} (counted from 0): every row needs a key")


def _split_simple_keys(keys: pa.StringArray) -> pa.ListArray | None:
    """As `split_record_keys` when every key is composite and no value holds a comma or colon, which is quick to do."""
    if keys.null_count or not len(keys):
        return None
    pieces = pc.split_pattern(keys, ",")
    counts = pc.list_value_length(pieces)
    flat = pieces.flatten()
    if pc.min(counts).as_py() < 2 or not pc.all(pc.equal(pc.count_substring(flat, ":"), 1)).as_py():
        return None
    pairs = pc.split_pattern(flat, ":").flatten()
    value = pairs.take(pa.array(np.arange(1, len(pairs), 2)))
    value = pc.if_else(pc.equal(value, NULL_KEY_PART), pa.scalar(None, pa.string()), value)
    value = pc.if_else(pc.equal(value, EMPTY_KEY_PART), "", value)
    name = pairs.take(pa.array(np.arange(0, len(pairs), 2)))
    offsets = np.concatenate([[0], np.cumsum(counts.to_numpy())]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays([name, value], names=["name", "value"]))


def _split_marks() -> list[str]:
    return ["\x00", "\x01", "\x02", "\x1e", "\x1f", "\ufdd0", "\ufdd1", "\U0010fffe", "\U0010ffff"]


# ---------------------------------------------------------------------------------------------------------------------
# Paths


def _parts(spec: KeySpec, field: PartitionField, array: pa.Array) -> tuple[np.ndarray, pa.StringArray]:
    """For each row the number of its value, and the text of each value (the default partition included)."""
    if not has_text(array.type):
        raise InvalidRequest(f"column {field.name!r} of type {array.type} cannot be a partition field")
    encoded = _text(spec, array).dictionary_encode() if is_binary_like(array.type) else pc.dictionary_encode(array)
    distinct = _text(spec, encoded.dictionary)
    distinct = pc.if_else(pc.equal(pc.binary_length(distinct), 0), DEFAULT_PARTITION, distinct)
    return _codes(encoded.indices, len(distinct)), pa.concat_arrays([distinct, pa.array([DEFAULT_PARTITION])])


def _codes(indices: pa.Array, null_code: int) -> np.ndarray:
    codes: np.ndarray = pc.fill_null(pc.cast(indices, pa.int64()), null_code).to_numpy(zero_copy_only=False)
    return codes


def _decorated(spec: KeySpec, field: PartitionField, distinct: pa.StringArray) -> pa.StringArray:
    if spec.url_encode:
        needy = pc.match_substring_regex(distinct, _NEEDS_ENCODING)
        if pc.any(needy).as_py():
            encoded = [encode_partition_value(text) for text in distinct.filter(needy).to_pylist()]
            distinct = pc.replace_with_mask(distinct, needy, pa.array(encoded, pa.string()))
    return pc.binary_join_element_wise(f"{field.name}=", distinct, "") if spec.hive_style else distinct


def _combined(codes: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """For each row the number of its combination of values, and the values of each combination."""
    if len(codes) == 1:
        return codes[0], [np.arange(sizes[0])]
    rows, values = codes[0], [np.arange(sizes[0])]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        # Renumbering after each field keeps the product within 64 bits: rows of a batch times distinct values of a field.
        encoded = pc.dictionary_encode(pa.array(rows.astype(np.int64) * size + code))
        distinct = encoded.dictionary.to_numpy()
        rows = encoded.indices.to_numpy().astype(np.int64)
        values = [value[distinct // size] for value in values] + [distinct % size]
    return rows, values


def _refuse_unusable(paths: pa.StringArray, rows: np.ndarray) -> None:
    bad_folder = pc.match_substring_regex(paths, r"(^|/)(\.|\.\.|)(/|$)")
    colon = pc.match_substring_regex(paths, r"^[^/]*:")
    hidden = pc.match_substring_regex(paths, r"^\.hoodie(/|$)")
    for mask, why in (
        (bad_folder, "holds an empty folder name, '.' or '..'"),
        (colon, "has a colon in its first folder, which Hadoop takes for a scheme: set " + URL_ENCODE + "=true"),
        (hidden, "is the folder of Hudi's own files"),
    ):
        # The default partition has a number even when no row is in it, so a bad path counts only where a row has it.
        for code in np.flatnonzero(mask.to_numpy(zero_copy_only=False)):
            found = np.flatnonzero(rows == code)
            if len(found):
                raise InvalidRequest(f"the partition path {paths[int(code)].as_py()!r} of row {found[0]} (counted from 0) {why}")


def _hive_starts(fields: Sequence[PartitionField], folders: Sequence[str]) -> list[int] | None:
    starts: list[int] = []
    for index, folder in enumerate(folders):
        if len(starts) < len(fields) and folder.startswith(fields[len(starts)].name + "="):
            starts.append(index)
    return starts if len(starts) == len(fields) and starts[0] == 0 else None


def _counted_starts(spec: KeySpec, fields: Sequence[PartitionField], folders: Sequence[str]) -> list[int] | None:
    counts = []
    for field in fields:
        is_time = field.kind is PartitionKind.TIMESTAMP and spec.time is not None and not spec.url_encode
        counts.append(parse_pattern(spec.time.output_pattern).level_count if is_time and spec.time is not None else 1)
    if sum(counts) != len(folders):
        return None
    return [sum(counts[:index]) for index in range(len(counts))]


def _parsed_value(spec: KeySpec, field: PartitionField, text: str) -> str | None:
    text = text.removeprefix(field.name + "=")
    if text == DEFAULT_PARTITION:
        return None
    return decode_partition_value(text) if spec.url_encode else text


# ---------------------------------------------------------------------------------------------------------------------
# Times


def _time_parts(spec: KeySpec, field: PartitionField, array: pa.Array) -> tuple[np.ndarray, pa.StringArray]:
    """For each row the number of its formatted time, and the distinct texts; null is the time 1 ms after the epoch."""
    if field.kind is PartitionKind.UNKNOWN:
        raise InvalidRequest(
            f"the kind of the partition field {field.name!r} is not known: say {field.name}:SIMPLE or :TIMESTAMP"
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
    return _codes(encoded.indices, 0), pa.array(texts, pa.string())


def _instants_ms(spec: KeySpec, rule: TimeRule, name: str, array: pa.Array) -> np.ndarray:
    if is_string_like(array.type):
        if not rule.type.takes_text:
            raise InvalidRequest(
                f"column {name!r} holds text, but the time type is {rule.type}: use DATE_STRING and an input pattern"
            )
        return _parsed_instants(rule, name, array)
    if spec.consistent_timestamps and pa.types.is_timestamp(array.type):
        millis: np.ndarray = pc.fill_null(pc.divide(timestamp_micros(array), 1000), 1).to_numpy(zero_copy_only=False)
        return _checked_range(millis, millis, name)
    if rule.type.takes_text:
        raise InvalidRequest(f"column {name!r} of type {array.type} holds no text, but the time type is {rule.type}")
    numbers = _whole_numbers(array, name)
    unit = _time_unit(rule)
    filled: np.ndarray = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    instants: np.ndarray
    if unit in _UNIT_MS:
        factor = _UNIT_MS[unit]
        _checked_range(filled, filled, name, MIN_INSTANT_MS // factor, MAX_INSTANT_MS // factor)
        instants = filled * factor
    else:
        # Java's conversion cuts towards zero.
        divisor = _UNITS_PER_MS[unit]
        instants = np.where(filled < 0, -(-filled // divisor), filled // divisor)
        _checked_range(instants, filled, name)
    if numbers.null_count:
        instants = np.where(numbers.is_null().to_numpy(zero_copy_only=False), 1, instants)
    return instants


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
            raise InvalidRequest(f"column {name!r} holds a number that is no time: {error}") from error
    raise InvalidRequest(f"column {name!r} of type {type_} cannot be a time: use a number, a text, a date or a timestamp")


def _checked_range(
    instants: np.ndarray, values: np.ndarray, name: str, low: int = MIN_INSTANT_MS, high: int = MAX_INSTANT_MS
) -> np.ndarray:
    outside = np.flatnonzero((instants < low) | (instants > high))
    if len(outside):
        row = outside[0]
        raise InvalidRequest(
            f"column {name!r} holds {values[row]} in row {row} (counted from 0), which is no time in the years 1 to 9999: "
            "check the time type and unit"
        )
    return instants


def _parsed_instants(rule: TimeRule, name: str, array: pa.Array) -> np.ndarray:
    encoded = pc.dictionary_encode(pc.cast(array, pa.string()))
    zone = time_zone(rule.input_zone)
    parsers: list[Callable[[str], int]] = [_parser(parse_pattern(text), zone) for text in rule.input_patterns]
    instants: list[int] = []
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        instant = next((found for found in (_attempt(parse, text) for parse in parsers) if found is not None), None)
        if instant is None:
            row = pc.index(encoded.indices, pa.scalar(code, encoded.indices.type)).as_py()
            raise InvalidRequest(
                f"column {name!r} holds {text!r} in row {row} (counted from 0), which matches none of the input patterns "
                f"{', '.join(rule.input_patterns)}"
            )
        instants.append(instant)
    # The last entry is the instant of a null.
    by_code: np.ndarray = np.array([*instants, 1], dtype=np.int64)
    rows: np.ndarray = by_code[_codes(encoded.indices, len(instants))]
    return rows


def _parser(pattern: TimePattern, zone: tzinfo) -> Callable[[str], int]:
    return lambda text: pattern.parse(text, zone)


def _attempt(parse: Callable[[str], int], text: str) -> int | None:
    try:
        return parse(text)
    except Unsupported:
        raise
    except InvalidRequest:
        return None
