"""Key configuration of a table: key generator, record key fields and partition fields.

Six key generators are supported (docs/formats/record-keys.md):

    generator       record key                                       partition path
    SIMPLE          value                                            value
    COMPLEX         one field: value; more: `f1:v1,f2:v2`            `v1/v2`
    NON_PARTITION   as COMPLEX                                       empty
    TIMESTAMP       as SIMPLE                                        a time, formatted
    CUSTOM          one field: value; more: `f1:v1,f2:v2`            per field as SIMPLE or as TIMESTAMP
    GLOBAL_DELETE   `f1:v1`, also for one field                      empty

Tables of user-defined generator classes and of Spark SQL's UUID keys (USER_PROVIDED) are read by their stored keys and
paths, and not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.properties import split_list
from pyhudi.options import table_options as props
from pyhudi.records.joda_timestamps import time_zone
from pyhudi.records.keys.timestamp_key_rule import TimeRule

_SLASH_DATES_CLASS = "SlashEncodedDayPartitionValueExtractor"
_CLASS_PACKAGES = ("org.apache.hudi.keygen", "com.uber.hoodie", "com.uber.hoodie.keygen", "org.apache.hudi")


class KeyGenerator(StrEnum):
    """Key generator types; the names are those of `hoodie.table.keygenerator.type`."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    GLOBAL_DELETE = "GLOBAL_DELETE"
    USER_PROVIDED = "USER_PROVIDED"
    """A class that PyHudi does not have: neither keys nor paths can be computed."""


class PartitionFieldType(StrEnum):
    """How a partition field is converted to its part of the path."""

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"
    UNKNOWN = "UNKNOWN"
    """Field of a custom generator in a table that does not store the type (before table version 8), or of a generator that
    the user provides: readable, not writable.
    """


_GENERATORS_BY_CLASS: Mapping[str, KeyGenerator | None] = {
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
    # These wrap the generator that is inferred from the fields.
    "AutoRecordGenWrapperKeyGenerator": None,
    "AutoRecordGenWrapperAvroKeyGenerator": None,
    "SqlKeyGenerator": None,
    "MergeIntoKeyGenerator": None,
    "HoodieTableMetadataKeyGenerator": None,
}
_SUPPORTED = tuple(kind for kind in KeyGenerator if kind is not KeyGenerator.USER_PROVIDED)
_GENERATORS_BY_TYPE: Mapping[str, KeyGenerator | None] = {
    **{kind.value: kind for kind in _SUPPORTED},
    **{f"{kind.value}_AVRO": kind for kind in _SUPPORTED},
    **dict.fromkeys(("AUTO_RECORD", "AUTO_RECORD_AVRO", "SPARK_SQL", "SPARK_SQL_MERGE_INTO", "HOODIE_TABLE_METADATA")),
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field.

    Attributes:
        name: Dotted name of the column.
        kind: How its values are converted to a part of the path.
    """

    name: str
    kind: PartitionFieldType = PartitionFieldType.SIMPLE


@dataclass(frozen=True, slots=True)
class KeySpec:
    """Key configuration of a table.

    Attributes:
        generator: Key generator.
        record_fields: Dotted names of the record key fields; empty if keys are generated.
        partition_fields: Partition fields; empty for an unpartitioned table.
        hive_style: Folders are named `field=value`.
        url_encode: Values are percent-encoded in paths.
        time: Rule of TIMESTAMP fields. None if the table does not store it; then the table is readable but not
            writable.
        prefix_single_key: A single key field is written as `field:value` too, as in COMPLEX tables of Hudi up to 0.14.0
            and from 1.1 on. Only a stored key shows which form a table has.
        consistent_timestamps: Timestamps are converted to `2024-05-06 07:08:09.123` in timestamp_zone instead of
            microseconds (milliseconds without trailing zeros, as Java prints them).
        timestamp_zone: Time zone of `consistent_timestamps`.
        slash_dates: The path of the one partition field is its value with `/` for each `-`.
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
    slash_dates: bool = False

    def __post_init__(self) -> None:
        names = [field.name for field in self.partition_fields]
        for role, fields in (("record key", self.record_fields), ("partition", names)):
            if len(set(fields)) < len(fields):
                raise InvalidRequest(f"a {role} field is named twice: {', '.join(fields)}")
            if not all(fields):
                raise InvalidRequest(f"a {role} field has no name")
        generator, count = self.generator, len(self.partition_fields)
        if generator in (KeyGenerator.SIMPLE, KeyGenerator.TIMESTAMP):
            # Hudi Streamer made tables without partitions with SimpleKeyGenerator.
            if len(self.record_fields) > 1 or count > 1 or (not count and generator is KeyGenerator.TIMESTAMP):
                raise _wrong_field_count(generator, len(self.record_fields), count)
        elif generator in (KeyGenerator.NON_PARTITION, KeyGenerator.GLOBAL_DELETE) and count:
            raise InvalidRequest(f"the {generator} key generator takes no partition field: {', '.join(names)}")
        kinds = {field.kind for field in self.partition_fields}
        allowed = {
            KeyGenerator.CUSTOM: set(PartitionFieldType),
            KeyGenerator.TIMESTAMP: {PartitionFieldType.TIMESTAMP},
            KeyGenerator.USER_PROVIDED: {PartitionFieldType.UNKNOWN},
        }.get(generator, {PartitionFieldType.SIMPLE})
        if not kinds <= allowed:
            raise InvalidRequest(f"the {generator} key generator has no fields of kind {', '.join(sorted(kinds - allowed))}")
        time_zone(self.timestamp_zone)
        if self.slash_dates and (count != 1 or kinds != {PartitionFieldType.SIMPLE}):
            raise InvalidRequest(
                f"{props.SLASH_DATES.stored_as} takes one partition field whose value is the path: {', '.join(names)}"
            )
        if self.slash_dates and self.url_encode:
            raise Unsupported(f"{props.SLASH_DATES.stored_as} and {props.URL_ENCODE.stored_as} in one table are not supported")

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
        """Create the key configuration of a new table.

        Args:
            record_fields: Record key fields.
            partition_fields: Partition fields, with an optional type (`day:TIMESTAMP`).
            generator: Type name, class name of Hudi, or None to infer it.
            hive_style: As in `KeySpec`.
            url_encode: As in `KeySpec`.
            time: As in `KeySpec`.
        """
        generator_ = parse_key_generator(generator) if isinstance(generator, str) else generator
        if generator_ is None:
            generator_ = infer_key_generator(record_fields, partition_fields)
        if generator_ in (KeyGenerator.NON_PARTITION, KeyGenerator.GLOBAL_DELETE) and not any(partition_fields):
            partition_fields = ()
        if generator_ is KeyGenerator.SIMPLE and not partition_fields:
            raise _wrong_field_count(generator_, len(record_fields), 0)
        return cls(
            generator=generator_,
            record_fields=tuple(record_fields),
            partition_fields=tuple(_partition_field(text, generator_) for text in partition_fields),
            hive_style=hive_style,
            url_encode=url_encode,
            time=time,
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> KeySpec:
        """Read the key configuration from `hoodie.properties`.

        The class that reads dates from slash-separated paths sets `slash_dates` unless the property decides: a file has
        to confirm it (`table.slash_dates`).

        A generator class overrides a type, as in Hudi; without either, the generator is inferred from the fields.

        Raises:
            InvalidRequest: Values that contradict each other.
        """
        record_fields = split_list(properties.get(props.RECORD_KEY_FIELDS.stored_as))
        partition_texts = split_list(properties.get(props.PARTITION_FIELDS.stored_as))
        generator: KeyGenerator | None = None
        name = properties.get(props.GENERATOR_CLASS.stored_as) or properties.get(props.GENERATOR_TYPE.stored_as)
        if name:
            generator = parse_key_generator(name) if is_supported_generator(name) else KeyGenerator.USER_PROVIDED
        if generator is None:
            generator = infer_key_generator(record_fields, partition_texts)
        partition_fields = tuple(_partition_field(text, generator) for text in partition_texts)
        extractor = properties.get(props.PARTITION_EXTRACTOR.stored_as, "").strip().rpartition(".")[2]
        # With several fields Hudi ignores the option.
        has_one_plain_field = [field.kind for field in partition_fields] == [PartitionFieldType.SIMPLE]
        slashes = (
            _flag(properties, props.SLASH_DATES.stored_as)
            if props.SLASH_DATES.stored_as in properties
            else extractor == _SLASH_DATES_CLASS
        )
        return cls(
            generator=generator,
            record_fields=record_fields,
            partition_fields=partition_fields,
            hive_style=_flag(properties, props.HIVE_STYLE.stored_as),
            url_encode=_flag(properties, props.URL_ENCODE.stored_as),
            # Writers of table version 6 store only the output format.
            time=TimeRule.from_properties(properties) if _has_time_type(properties) else None,
            consistent_timestamps=_flag(properties, props.CONSISTENT_TIMESTAMPS.stored_as),
            slash_dates=slashes and has_one_plain_field,
        )

    def to_properties(self) -> dict[str, str]:
        """Return the `hoodie.properties` entries of a new table.

        The time rule is stored for CUSTOM too: Hudi reads it from there, and would otherwise require it in every write.
        """
        if any(field.kind is PartitionFieldType.UNKNOWN for field in self.partition_fields):
            raise InvalidRequest(
                "the types of the partition fields are not known: specify them as field:SIMPLE or field:TIMESTAMP"
            )
        result: dict[str, str] = {}
        if self.record_fields:
            result[props.RECORD_KEY_FIELDS.stored_as] = ",".join(self.record_fields)
        custom = self.generator is KeyGenerator.CUSTOM
        texts = [f"{field.name}:{field.kind.value}" if custom else field.name for field in self.partition_fields]
        result[props.PARTITION_FIELDS.stored_as] = ",".join(texts)
        result[props.GENERATOR_TYPE.stored_as] = self.generator.value
        result[props.HIVE_STYLE.stored_as] = "true" if self.hive_style else "false"
        result[props.URL_ENCODE.stored_as] = "true" if self.url_encode else "false"
        if self.time is not None:
            result.update(self.time.to_properties())
        if self.consistent_timestamps:
            result[props.CONSISTENT_TIMESTAMPS.stored_as] = "true"
        if self.slash_dates:
            result[props.SLASH_DATES.stored_as] = "true"
        return result

    @property
    def generates_keys(self) -> bool:
        """True if record keys are generated (see `auto_record_keys`)."""
        return not self.record_fields

    @property
    def is_user_provided(self) -> bool:
        """True if a class of the user computes keys and paths, so that they exist only in the table's files."""
        return self.generator is KeyGenerator.USER_PROVIDED

    @property
    def is_composite(self) -> bool:
        """True if a record key is written as `field:value` pairs."""
        return len(self.record_fields) > 1 or self.prefix_single_key or self.generator is KeyGenerator.GLOBAL_DELETE


def infer_key_generator(record_fields: Sequence[str], partition_fields: Sequence[str]) -> KeyGenerator:
    """Infer the key generator from the fields.

    No partition field: NON_PARTITION. A partition field with a type (`day:TIMESTAMP`): CUSTOM. One partition field and
    at most one key field: SIMPLE. Else COMPLEX.

    Source: docs/formats/record-keys.md, "Record keys".
    """
    named = [field for field in partition_fields if field]
    if not named:
        return KeyGenerator.NON_PARTITION
    if any(":" in field for field in named):
        return KeyGenerator.CUSTOM
    return KeyGenerator.SIMPLE if len(named) == 1 and len(record_fields) <= 1 else KeyGenerator.COMPLEX


def parse_key_generator(name: str) -> KeyGenerator | None:
    """Return the generator of a type or class name; None if it is inferred from the fields.

    Raises:
        Unsupported: A user-defined generator.
    """
    if not is_supported_generator(name):
        raise Unsupported(f"the key generator {name} is not supported: use one of {', '.join(_SUPPORTED)}")
    by_type = _GENERATORS_BY_TYPE
    return by_type[name.upper()] if name.upper() in by_type else _GENERATORS_BY_CLASS[name.rpartition(".")[2]]


def is_supported_generator(name: str) -> bool:
    """Return whether PyHudi has the generator of a type or class name."""
    package, _, simple = name.rpartition(".")
    is_hudi_class = not package or package in (*_CLASS_PACKAGES, "org.apache.hudi.metadata", "org.apache.spark.sql.hudi.command")
    return name.upper() in _GENERATORS_BY_TYPE or (is_hudi_class and simple in _GENERATORS_BY_CLASS)


def partition_columns(spec: KeySpec) -> tuple[str, ...]:
    """Return the dotted names of the partition columns, in path order."""
    return tuple(field.name for field in spec.partition_fields)


def path_valued_columns(spec: KeySpec) -> tuple[str, ...]:
    """Return the partition columns whose values can be parsed from paths; those of timestamp fields are only in the files."""
    return tuple(field.name for field in spec.partition_fields if field.kind is PartitionFieldType.SIMPLE)


def _wrong_field_count(generator: KeyGenerator, record_count: int, partition_count: int) -> InvalidRequest:
    return InvalidRequest(
        f"the {generator} key generator takes one record key field and one partition field, not {record_count} and "
        f"{partition_count}: use {'COMPLEX' if partition_count or record_count > 1 else 'NON_PARTITION'}"
    )


def _has_time_type(properties: Mapping[str, str]) -> bool:
    return any(prefix + "timestamp.type" in properties for prefix in props.TIME_PREFIXES)


def _flag(properties: Mapping[str, str], name: str) -> bool:
    text = properties.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _partition_field(text: str, kind: KeyGenerator) -> PartitionField:
    name, colon, type_name = text.partition(":")
    name = name.strip()
    if kind is KeyGenerator.TIMESTAMP:
        return PartitionField(name, PartitionFieldType.TIMESTAMP)
    if kind is KeyGenerator.USER_PROVIDED:
        return PartitionField(name, PartitionFieldType.UNKNOWN)
    if kind is not KeyGenerator.CUSTOM:
        return PartitionField(name)
    if not colon:
        return PartitionField(name, PartitionFieldType.UNKNOWN)
    if type_name.strip().upper() not in (PartitionFieldType.SIMPLE, PartitionFieldType.TIMESTAMP):
        raise InvalidRequest(f"the partition field {text!r} has an unknown type: use {name}:SIMPLE or {name}:TIMESTAMP")
    return PartitionField(name, PartitionFieldType(type_name.strip().upper()))
