"""Infer hoodie.properties from data files when both the file and its backup are missing.

    name              the metadata table's own name; or the schemas in files, if they spell it unchanged
    version           the metadata table's; without one 8 and 9 are indistinguishable
    type              logs of records, and delta commits, imply merge on read; commits other than compactions copy on
                      write
    record key        the column that equals the key in every row of every file, if it is unique; composite keys name
                      theirs
    partition fields  the columns that form the folders, level by level, if unique for each; `field=value` names it
    URL encoding      a value that would be written in two ways
    meta columns, format of base files, change data, omitted columns, metadata table, definitions of indexes: as they
        exist

Properties that files do not determine have to be given, and given ones must not contradict the files: `infer` returns
both the properties and the required input. Features without a trace in files are off, and listed in `assumed_off`.

Pure: facts in, properties out.  Source: docs/formats/timeline.md, "Inferring properties from files".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from pyhudi.errors import InvalidRequest
from pyhudi.format.log.cdc_blocks import CdcMode
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, META_FOLDER, TIMELINE_FOLDER, file_name, parent_folder, split_path
from pyhudi.format.properties import split_list
from pyhudi.format.table_versions import TableVersion, parse_table_version
from pyhudi.options import table_options as props
from pyhudi.records.keys.key_spec import KeyGenerator, infer_key_generator
from pyhudi.records.keys.partition_paths import NEEDS_ENCODING, encode_partition_value
from pyhudi.records.merge_mode import infer_merge_settings
from pyhudi.table.table_config import NATIVE, TableType, merge_properties

_NAME = props.NAME.stored_as
_VERSION = props.VERSION.stored_as
_TYPE = props.TABLE_TYPE.stored_as


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """Facts about the rows of a base file.

    Attributes:
        columns: By dotted name, without meta columns.
        has_meta: Whether the meta columns exist.
        key_columns: Columns whose text is the record key in every row.
        composite: The fields of composite keys, () for other keys.
        constant: The text of columns that hold one value, as in a path.
        schema_name: Of its Avro schema, '' without one.
        mismatch: How a row contradicts the spec that was verified.
        damage: Why the file cannot be read.
    """

    path: str
    rows: int = 0
    columns: tuple[str, ...] = ()
    has_meta: bool = True
    key_columns: frozenset[str] = frozenset()
    composite: tuple[str, ...] = ()
    constant: Mapping[str, str] = field(default_factory=dict)
    schema_name: str = ""
    mismatch: str | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts about a table's files.

    Attributes:
        metadata: The properties of its metadata table, {} without one.
        indexes: The complete partitions of the metadata table.
        schema_names: The names in the Avro schemas of its files.
        has_timeline_folder: None if there is no instant at all.
        types: The table types implied by the names of files and instants, mostly one.
        formats: Of base files.
        folders: Those with data files.
        cdc: The supplemental logging mode, None without such files.
        facts: Of base files.
    """

    metadata: Mapping[str, str]
    indexes: tuple[str, ...]
    has_definitions: bool
    schema_names: frozenset[str]
    has_timeline_folder: bool | None
    types: Mapping[TableType, str]
    formats: frozenset[str]
    folders: frozenset[str]
    cdc: CdcMode | None
    is_bootstrapped: bool
    facts: tuple[KeyFacts, ...]


@dataclass(frozen=True, slots=True)
class Inferred:
    """Inferred properties, and the input that is still required.

    Attributes:
    values: All properties.
    sources: Property -> its evidence.
    required_input: Property -> why files do not determine it, and possible values.
    assumed_off: Features that are off since no file shows them.
    """

    values: Mapping[str, str]
    sources: Mapping[str, str]
    required_input: Mapping[str, str]
    assumed_off: tuple[str, ...]


@dataclass(slots=True)
class _Inference:
    arguments: Mapping[str, str]
    values: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    required_input: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: str, source: str) -> None:
        """Set a property from files.  Raises InvalidRequest if the caller gave another value."""
        other = self.arguments.get(key)
        if other is not None and other.strip().lower() != value.lower():
            raise InvalidRequest(f"{key}={other} contradicts the files, which have {value} ({source})")
        self.values[key] = value
        self.sources[key] = source

    def require_input(self, key: str, reason: str) -> str | None:
        """Return the given value of a property that files do not determine, None without one."""
        if key not in self.arguments:
            self.required_input[key] = reason
            return None
        self.values[key] = self.arguments[key]
        self.sources[key] = "given"
        return self.arguments[key]


def infer(evidence: TableFacts, user_options: Mapping[str, str]) -> Inferred:
    """Infer the properties from files and given values.  Raises InvalidRequest if the two contradict each other."""
    telling = _Inference(user_options)
    _infer_name(telling, evidence)
    version = _infer_version(telling, evidence)
    _infer_type(telling, evidence)
    _infer_files(telling, evidence, version)
    facts = [fact for fact in evidence.facts if fact.damage is None and fact.rows]
    record_fields = _infer_record_key(telling, evidence, facts)
    partition_fields = _infer_partitions(telling, evidence, facts)
    if record_fields is not None and partition_fields is not None:
        _infer_generator(telling, record_fields, partition_fields)
    _infer_merging(telling, version or TableVersion.current())
    left = [name for key, name in _OPTIONAL.items() if key not in user_options and key not in telling.values]
    for key, text in user_options.items():
        telling.values.setdefault(key, text)
        telling.sources.setdefault(key, "given")
    return Inferred(telling.values, telling.sources, telling.required_input, tuple(left))


_OPTIONAL = {
    props.DATABASE.stored_as: "a database",
    props.TIME_ZONE.stored_as: "a time zone of instants other than that of the process (LOCAL)",
    props.CHANGES.stored_as: "change data capture",
}


def _infer_name(inference: _Inference, evidence: TableFacts) -> None:
    own = evidence.metadata.get(_NAME, "")
    if own.endswith("_metadata"):
        inference.set(_NAME, own.removesuffix("_metadata"), "the metadata table's name")
        return
    # A schema replaces each character that Avro names cannot contain by an underscore.
    spelled = {match[1] for name in evidence.schema_names if (match := re.fullmatch(r"hoodie\.([A-Za-z0-9]+)\.\1_record", name))}
    if len(spelled) == 1 and len(evidence.schema_names) == 1:
        inference.set(_NAME, spelled.pop(), "the schemas of files")
    else:
        inference.require_input(_NAME, "neither a metadata table nor the schemas of files determine it")


def _infer_version(inference: _Inference, evidence: TableFacts) -> TableVersion | None:
    text = evidence.metadata.get(_VERSION)
    if text is not None:
        inference.set(_VERSION, text, "the metadata table's properties")
    else:
        text = inference.require_input(_VERSION, "without a metadata table the version is ambiguous; set 6, 8 or 9")
    if text is None:
        return None
    version = parse_table_version(text)
    layout = version.layout
    if evidence.has_timeline_folder not in (None, layout.has_timeline_folder):
        there = TIMELINE_FOLDER if evidence.has_timeline_folder else META_FOLDER
        raise InvalidRequest(f"{_VERSION}={text} contradicts the instants in {there}, which that version does not use")
    inference.set(props.LAYOUT.stored_as, str(int(layout)), "the version")
    if layout.has_timeline_folder:
        for key, name in props.FOLDERS.items():
            inference.set(key, name, "the version")
    if version.names_format:
        inference.set(props.FORMAT.stored_as, NATIVE, "its files")
    return version


def _infer_type(inference: _Inference, evidence: TableFacts) -> None:
    if len(evidence.types) == 1:
        ((table_type, source),) = evidence.types.items()
        inference.set(_TYPE, str(table_type), source)
        return
    why = "no file or instant determines it" if not evidence.types else "files and instants imply both"
    inference.require_input(_TYPE, f"{why}; give {' or '.join(TableType)}")


def _infer_files(inference: _Inference, evidence: TableFacts, version: TableVersion | None) -> None:
    if len(evidence.formats) == 1:
        inference.set(props.BASE_FORMAT.stored_as, next(iter(evidence.formats)), "the names of base files")
    else:
        why = "there are base files of several formats" if evidence.formats else "there are no base files"
        inference.require_input(props.BASE_FORMAT.stored_as, f"{why}; give PARQUET or ORC")
    held = {fact.has_meta for fact in evidence.facts if fact.damage is None}
    if len(held) == 1:
        inference.set(props.META_COLUMNS.stored_as, "true" if held == {True} else "false", "the columns of base files")
    else:
        inference.require_input(props.META_COLUMNS.stored_as, "base files do not determine it; set true or false")
    if evidence.cdc is not None:
        inference.set(props.CHANGES.stored_as, "true", "files of changes")
        inference.set(props.CHANGES_MODE.stored_as, str(evidence.cdc), "files of changes")
    if evidence.is_bootstrapped:
        inference.require_input(props.BOOTSTRAP_BASE_PATH.stored_as, "files have their rows in a folder that they do not name")
    if evidence.indexes:
        inference.set(props.METADATA_PARTITIONS.stored_as, ",".join(sorted(evidence.indexes)), "the metadata table")
    if evidence.has_definitions and version is not None and version.layout.has_timeline_folder:
        inference.set(props.INDEX_DEFINITIONS_PATH.stored_as, INDEX_DEFINITIONS_FILE, "the file is there")


def _infer_record_key(inference: _Inference, evidence: TableFacts, facts: Sequence[KeyFacts]) -> tuple[str, ...] | None:
    keyed = [fact for fact in facts if fact.has_meta]
    composed = {fact.composite for fact in keyed}
    same = frozenset.intersection(*(fact.key_columns for fact in keyed)) if keyed else frozenset[str]()
    if len(composed) == 1 and composed != {()} and not same:
        fields = composed.pop()
        inference.set(props.RECORD_KEY_FIELDS.stored_as, ",".join(fields), "the keys name their fields")
        return fields
    if len(same) == 1:
        (name,) = same
        inference.set(
            props.RECORD_KEY_FIELDS.stored_as, name, f"in each of {sum(fact.rows for fact in keyed):,} rows it is the key"
        )
        return (name,)
    why = f"{', '.join(sorted(same))} are all the key in every row" if same else "no column is the key in every row"
    answer = inference.require_input(
        props.RECORD_KEY_FIELDS.stored_as,
        f"{why}; give the fields, or nothing where keys are generated ({props.RECORD_KEY_FIELDS.stored_as}=)",
    )
    return None if answer is None else split_list(answer)


def _infer_partitions(inference: _Inference, evidence: TableFacts, facts: Sequence[KeyFacts]) -> tuple[str, ...] | None:
    if evidence.folders == {""}:
        inference.set(props.PARTITION_FIELDS.stored_as, "", "all files lie in the table's own folder")
        inference.set(props.HIVE_STYLE.stored_as, "false", "there are no folders")
        inference.set(props.URL_ENCODE.stored_as, "false", "there are no folders")
        return ()
    paths = [(parent_folder(fact.path), fact) for fact in facts]
    readings = [] if not paths else [*_hive_readings(paths), *_plain_readings(paths)]
    if len({(reading.fields, reading.is_hive) for reading in readings}) == 1:
        reading = readings[0]
        inference.set(props.PARTITION_FIELDS.stored_as, ",".join(reading.fields), "folders have their values")
        inference.set(props.HIVE_STYLE.stored_as, "true" if reading.is_hive else "false", "the names of folders")
        encodings = {one.is_encoded for one in readings} - {None}
        if len(encodings) == 1:
            inference.set(props.URL_ENCODE.stored_as, "true" if encodings == {True} else "false", "the names of folders")
        else:
            inference.require_input(
                props.URL_ENCODE.stored_as, "no value in a folder's name would be encoded; give true or false"
            )
        columns = {name for fact in facts for name in fact.columns}
        if not set(reading.fields) <= columns:
            inference.set(props.OMIT.stored_as, "true", "files lack the columns")
        return reading.fields
    why = "several columns have the values of folders" if readings else "no columns have the values of folders"
    answer = inference.require_input(props.PARTITION_FIELDS.stored_as, f"{why}; give them, in order")
    for key in (props.HIVE_STYLE.stored_as, props.URL_ENCODE.stored_as):
        inference.require_input(key, "it is not known how folders are made; give true or false")
    return None if answer is None else split_list(answer)


@dataclass(frozen=True, slots=True)
class _PartitionStyle:
    """A possible format of partition folders. is_encoded: None if URL encoding changes no name."""

    fields: tuple[str, ...]
    is_hive: bool
    is_encoded: bool | None


def _hive_readings(paths: Sequence[tuple[str, KeyFacts]]) -> list[_PartitionStyle]:
    named = {tuple(part.partition("=")[0] for part in split_path(path)) for path, _ in paths}
    if len(named) != 1 or not all("=" in part for path, _ in paths for part in split_path(path)):
        return []
    (fields,) = named
    values = [([part.partition("=")[2] for part in split_path(path)], fact) for path, fact in paths]
    return _fitting(fields, values, is_hive=True)


def _plain_readings(paths: Sequence[tuple[str, KeyFacts]]) -> list[_PartitionStyle]:
    styles: list[_PartitionStyle] = []
    by_level = [(split_path(path), fact) for path, fact in paths]
    whole = [([path], fact) for path, fact in paths]
    for values in (by_level, whole) if any(len(parts) > 1 for parts, _ in by_level) else (whole,):
        depths = {len(parts) for parts, _ in values}
        if len(depths) != 1:
            continue
        levels = [_columns_of(values, level) for level in range(depths.pop())]
        if any(not level for level in levels):
            continue
        for fields in list(product(*levels))[:_MOST_READINGS]:
            if len(set(fields)) == len(fields):
                styles += _fitting(fields, values, is_hive=False)
    return styles


def _columns_of(values: Sequence[tuple[Sequence[str], KeyFacts]], level: int) -> list[str]:
    """The columns that have, in every file, the value that a level of its folder has."""
    candidates: set[str] | None = None
    for parts, fact in values:
        texts = {name for name, text in fact.constant.items() if parts[level] in (text, encode_partition_value(text))}
        candidates = texts if candidates is None else candidates & texts
    return sorted(candidates or ())


def _fitting(fields: Sequence[str], values: Sequence[tuple[Sequence[str], KeyFacts]], *, is_hive: bool) -> list[_PartitionStyle]:
    """The reading by these fields, where every file of which the column is known fits it."""
    encoded: bool | None = None
    for parts, fact in values:
        for name, part in zip(fields, parts, strict=True):
            if name not in fact.columns:
                continue
            text = fact.constant.get(name)
            if text is None or part not in (text, encode_partition_value(text)):
                return []
            if re.search(NEEDS_ENCODING, text):
                now = part != text
                if encoded not in (None, now):
                    return []
                encoded = now
    return [_PartitionStyle(tuple(fields), is_hive, encoded)]


def _infer_generator(inference: _Inference, record_fields: Sequence[str], partition_fields: Sequence[str]) -> None:
    if props.GENERATOR_CLASS.stored_as in inference.arguments or props.GENERATOR_TYPE.stored_as in inference.arguments:
        return
    type_ = infer_key_generator(record_fields, partition_fields)
    is_prefixed = inference.sources[props.RECORD_KEY_FIELDS.stored_as] == "the keys name their fields" and len(record_fields) == 1
    if is_prefixed:
        type_ = KeyGenerator.COMPLEX if partition_fields else KeyGenerator.NON_PARTITION
        if inference.values.get(_VERSION) != str(int(TableVersion.NINE)) or not partition_fields:
            inference.require_input(
                props.GENERATOR_TYPE.stored_as,
                "several generators make keys of one field that name it; give COMPLEX or GLOBAL_DELETE",
            )
            return
    inference.set(props.GENERATOR_TYPE.stored_as, str(type_), "what the fields call for, others make the same keys and folders")


def _infer_merging(inference: _Inference, version: TableVersion) -> None:
    given = inference.arguments
    ordering = given.get(props.ORDERING_FIELDS, given.get(props.ORDERING.stored_as))
    if ordering is None:
        key = props.ORDERING_FIELDS if version.has_ordering_fields else props.ORDERING.stored_as
        inference.require_input(key, f"no file records the ordering field; set it, or an empty text if there is none ({key}=)")
    rules = (props.MERGE_MODE.stored_as, props.PAYLOAD.stored_as, props.STRATEGY_ID.stored_as, props.LEGACY_PAYLOAD.stored_as)
    if not any(given.get(key) for key in rules):
        wanted = props.MERGE_MODE.stored_as if version.has_merge_mode else props.PAYLOAD.stored_as
        what = "EVENT_TIME_ORDERING, COMMIT_TIME_ORDERING or CUSTOM" if version.has_merge_mode else "the payload class"
        inference.require_input(wanted, f"no file records the merge rule; set {what}")
        return
    if ordering is None:
        return
    fields = split_list(ordering)
    if fields:
        inference.values[props.ORDERING_FIELDS if version.has_merge_mode else props.ORDERING.stored_as] = ",".join(fields)
        if version.has_merge_mode and not version.has_ordering_fields:
            inference.values[props.ORDERING.stored_as] = ",".join(fields)
    if not version.has_merge_mode or version.merges_by_modes:
        return
    settings = infer_merge_settings(
        mode=given.get(props.MERGE_MODE.stored_as),
        payload_class=given.get(props.PAYLOAD.stored_as),
        strategy_id=given.get(props.STRATEGY_ID.stored_as),
        ordering_field=fields[0] if fields else None,
        version=version,
    )
    for key, text in merge_properties(settings).items():
        inference.values.setdefault(key, text)
        inference.sources.setdefault(key, "the merge rule that was given")


def table_types(names: Iterable[tuple[str, bool, bool]], *, deltas: bool, commits: bool) -> dict[TableType, str]:
    """Return the types that files and instants imply. names: (path, is a log, is of changes); deltas: whether there are
    delta commits; commits: whether there are commits other than compactions.
    """
    sources: dict[TableType, str] = {}
    log = next((file_name(path) for path, is_log, is_cdc in names if is_log and not is_cdc), None)
    if log is not None or deltas:
        sources[TableType.MERGE_ON_READ] = f"the log {log}" if log is not None else "delta commits"
    if commits:
        sources[TableType.COPY_ON_WRITE] = "commits that no compaction made"
    return sources


_MOST_READINGS = 64
"""Maximum number of tried folder formats: if several fit, the caller has to give the format."""
