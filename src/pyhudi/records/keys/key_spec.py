"""How a table identifies its rows: the key generator, the key fields and the partition fields.

Six key generators (storage format, Record keys and partition paths):

    generator       record key                                       partition path
    SIMPLE          value                                            value
    COMPLEX         one field: value; more: `f1:v1,f2:v2`            `v1/v2`
    NON_PARTITION   as COMPLEX                                       empty
    TIMESTAMP       as SIMPLE                                        a time, formatted
    CUSTOM          one field: value; more: `f1:v1,f2:v2`            per field as SIMPLE or as TIMESTAMP
    GLOBAL_DELETE   `f1:v1`, also for one field                      empty

What is not done: user-defined generator classes, and Spark SQL's UUID keys, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.joda_timestamps import time_zone
from pyhudi.records.keys.timestamp_key_rule import TIME_PREFIXES, TimeRule

RECORD_FIELDS = "hoodie.table.recordkey.fields"
PARTITION_FIELDS = "hoodie.table.partition.fields"
GENERATOR_TYPE = "hoodie.table.keygenerator.type"
GENERATOR_CLASS = "hoodie.table.keygenerator.class"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
CONSISTENT_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
"""The table properties that describe keys."""
_CLASS_PACKAGES = ("org.apache.hudi.keygen", "com.uber.hoodie", "com.uber.hoodie.keygen", "org.apache.hudi")


class KeyGenerator(StrEnum):
    """How keys and paths are made; the names are those of `hoodie.table.keygenerator.type`."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    GLOBAL_DELETE = "GLOBAL_DELETE"


class PartitionFieldType(StrEnum):
    """How one partition field becomes a part of the path."""

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"
    UNKNOWN = "UNKNOWN"
    """A custom generator whose table does not say (before table version 8): readable, not writable."""


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
    kind: PartitionFieldType = PartitionFieldType.SIMPLE


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
        allowed = {KeyGenerator.CUSTOM: set(PartitionFieldType), KeyGenerator.TIMESTAMP: {PartitionFieldType.TIMESTAMP}}.get(
            kind, {PartitionFieldType.SIMPLE}
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
        if any(field.kind is PartitionFieldType.UNKNOWN for field in self.partition_fields):
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


def infer_key_generator(record_fields: Sequence[str], partition_fields: Sequence[str]) -> KeyGenerator:
    """The generator that the fields call for.  Source: docs/formats/record-keys.md, "Record keys".

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
    return tuple(field.name for field in spec.partition_fields if field.kind is PartitionFieldType.SIMPLE)


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
        return PartitionField(name, PartitionFieldType.TIMESTAMP)
    if kind is not KeyGenerator.CUSTOM:
        return PartitionField(name)
    if not colon:
        return PartitionField(name, PartitionFieldType.UNKNOWN)
    if given.strip().upper() not in (PartitionFieldType.SIMPLE, PartitionFieldType.TIMESTAMP):
        raise InvalidRequest(f"the partition field {text!r} has an unknown kind: use {name}:SIMPLE or {name}:TIMESTAMP")
    return PartitionField(name, PartitionFieldType(given.strip().upper()))
