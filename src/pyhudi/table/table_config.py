"""Table configuration: `hoodie.properties` as a typed value, loaded, created and changed.

A change is crash-safe by the backup rule: the new content is written to `hoodie.properties.backup` first, then replaces
the file; a reader that finds the file missing or its checksum wrong reads the backup.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, TableExists, TableNotFound, TableState, Unsupported
from pyhudi.format.instants import Action, parse_instant_file
from pyhudi.format.log.cdc_blocks import CdcMode
from pyhudi.format.names import BASE_EXTENSIONS
from pyhudi.format.paths import (
    ARCHIVE_NAME,
    AUX_FOLDER,
    HISTORY_NAME,
    MARKER_FOLDER,
    META_FOLDER,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    SCHEMA_FOLDER,
    TIMELINE_FOLDER,
    TIMELINE_NAME,
)
from pyhudi.format.properties import (
    check_checksum,
    format_checksummed_properties,
    format_saved_comments,
    format_updated_comments,
    parse_properties,
    split_list,
    table_checksum,
)
from pyhudi.format.table_versions import TableVersion, TimelineLayout, parse_table_version, parse_timeline_layout
from pyhudi.format.timestamp_units import in_millis
from pyhudi.metadata_table.codecs.metadata_partitions import FILES
from pyhudi.options import table_options as props
from pyhudi.options.declaration import Option
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.merge_mode import EVENT_TIME_PAYLOAD, MergeMode, MergeSettings, UpdateMode, infer_merge_settings
from pyhudi.records.ordering import Ordering
from pyhudi.records.update_modes import check_merge_properties
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.table.key_form import find_key_prefix, has_two_forms
from pyhudi.table.retry_on_corrupt import retry_while_corrupt
from pyhudi.table.slash_dates import find_slash_dates

NATIVE = "native"
"""Value of `hoodie.table.format` in a table of Hudi's own files; the default."""

_E = TypeVar("_E", bound=StrEnum)


class TableType(StrEnum):
    """`hoodie.table.type`."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


@dataclass(frozen=True, slots=True)
class TableConfig:
    """The content of `hoodie.properties`.

    Attributes:
        properties: Every key as stored, known or not.
        ordering_fields: Those that the properties name, even if the merge mode ignores them; a table with several
            is read and not written.
    """

    name: str
    database: str
    table_type: TableType
    version: TableVersion
    timeline_path: str
    history_path: str
    keys: KeySpec
    merge: MergeSettings
    ordering_fields: tuple[str, ...]
    populate_meta_fields: bool
    drop_partition_columns: bool
    cdc_enabled: bool
    cdc_mode: CdcMode
    zone: tzinfo
    base_file_format: str
    several_formats: bool
    create_schema: str | None
    metadata_partitions: tuple[str, ...]
    metadata_partitions_inflight: tuple[str, ...]
    index_definitions_path: str | None
    bootstrap_base_path: str | None
    properties: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def is_cow(self) -> bool:
        """True for a copy-on-write table."""
        return self.table_type is TableType.COPY_ON_WRITE

    @property
    def path_columns(self) -> tuple[str, ...]:
        """The partition columns, if the table declares that files omit them and paths hold their values; else none."""
        return partition_columns(self.keys) if self.drop_partition_columns else ()

    @property
    def omitted_columns(self) -> tuple[str, ...]:
        """The partition columns that writers omit from files.

        Hudi omits them in copy-on-write tables only: files of a merge-on-read table hold them regardless of the property.
        """
        return self.path_columns if self.is_cow else ()

    @property
    def may_hold_files_before_nine(self) -> bool:
        """True if releases before 1.1, which know no version 9, may have written files of the table."""
        return self.version.may_hold_older_files(dict(self.properties).get(props.INITIAL_VERSION.stored_as))

    def columns_of_unknown_unit(self, schema: pa.Schema) -> frozenset[str]:
        """Return the columns whose statistics in the metadata table may be in milliseconds or in microseconds.

        Releases before 1.1 stored milliseconds of Avro's millisecond types, and their entries stay in an upgraded table.
        """
        return frozenset(field.name for field in schema if in_millis(field)) if self.may_hold_files_before_nine else frozenset()

    def base_extension(self, explicit: str | None) -> str:
        """Return the extension of new base files.

        explicit: the requested format, which applies if the table may have several. Raises Unsupported for a format
        that is not written.
        """
        form = explicit if explicit is not None and self.several_formats else self.base_file_format
        extension = BASE_EXTENSIONS.get(form)
        if extension is None:
            raise Unsupported(f"base files of the format {form} are not written, only Parquet and ORC")
        return extension

    @property
    def has_metadata_table(self) -> bool:
        """True when readers may list files through the metadata table."""
        return FILES in self.metadata_partitions

    @property
    def ordering_field(self) -> str | None:
        """The column that decides which record is newer; None if there is none, or several."""
        return self.merge.ordering_field

    def property(self, key: str, default: str = "") -> str:
        """Return a stored property as text."""
        return dict(self.properties).get(key, default)

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> TableConfig:
        """Parse the properties.

        Raises:
            CorruptData: A mandatory key is missing or a value is invalid.
            Unsupported: A table version that PyHudi cannot read.
        """
        name = values.get(props.NAME.stored_as, "")
        if not name:
            raise CorruptData("hoodie.properties names no table", expected=props.NAME.stored_as)
        database = values.get(props.DATABASE.stored_as, "")
        checksum = values.get(props.CHECKSUM.stored_as)
        if checksum is not None and checksum.strip() != str(table_checksum(database, name)):
            raise CorruptData(
                "the checksum in hoodie.properties does not fit the table's name",
                expected=str(table_checksum(database, name)),
                found=checksum,
            )
        version = parse_table_version(values.get(props.VERSION.stored_as))
        if not version.is_readable:
            raise _unreadable(version)
        if values.get(props.FORMAT.stored_as, NATIVE) != NATIVE:
            raise Unsupported(
                f"the table has {props.FORMAT.stored_as}={values[props.FORMAT.stored_as]}, the format of a plug-in; PyHudi reads "
                f"{NATIVE} alone"
            )
        table_type = _parse_enum(TableType, values, props.TABLE_TYPE.stored_as, TableType.COPY_ON_WRITE)
        base_file_format = values.get(props.BASE_FORMAT.stored_as, "PARQUET").upper()
        _check_known(values, base_file_format)
        ordering = _ordering_fields(values)
        merge = _merge_settings(values, ordering, version)
        if table_type is TableType.MERGE_ON_READ:
            # Without log files nothing is merged, so a copy-on-write table is read regardless of its merge properties.
            check_merge_properties(merge)
        folder = values.get(props.TIMELINE_PATH.stored_as, TIMELINE_NAME)
        partitions = split_list(values.get(props.METADATA_PARTITIONS.stored_as))
        zone_name = values.get(props.TIME_ZONE.stored_as, "LOCAL").upper()
        return cls(
            name=name,
            database=database,
            table_type=table_type,
            version=version,
            timeline_path=f"{META_FOLDER}/{folder}" if version.layout.has_timeline_folder else META_FOLDER,
            history_path=f"{META_FOLDER}/{folder}/{values.get(props.HISTORY_PATH.stored_as, HISTORY_NAME)}"
            if version.layout.has_timeline_folder
            else f"{META_FOLDER}/{values.get(props.ARCHIVE_FOLDER.stored_as, ARCHIVE_NAME)}",
            keys=_key_spec(values, version),
            merge=merge,
            ordering_fields=ordering,
            populate_meta_fields=parse_bool(values, props.META_COLUMNS),
            drop_partition_columns=parse_bool(values, props.OMIT),
            cdc_enabled=parse_bool(values, props.CHANGES),
            cdc_mode=_parse_enum(CdcMode, values, props.CHANGES_MODE.stored_as, CdcMode.DATA_BEFORE_AFTER),
            zone=UTC if zone_name == "UTC" else local_zone(),
            base_file_format=base_file_format,
            several_formats=parse_bool(values, props.SEVERAL_FORMATS),
            create_schema=values.get(props.CREATE_SCHEMA.stored_as) or None,
            metadata_partitions=partitions,
            metadata_partitions_inflight=split_list(values.get(props.METADATA_INFLIGHT.stored_as)),
            index_definitions_path=values.get(props.INDEX_DEFINITIONS_PATH.stored_as) or None,
            bootstrap_base_path=values.get(props.BOOTSTRAP_BASE_PATH.stored_as) or None,
            properties=tuple(sorted(values.items())),
        )


def local_zone_name() -> str | None:
    """Return the IANA name of this process's time zone; None when the system does not provide it."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named and not named.startswith("/"):
        return named
    target = os.path.realpath("/etc/localtime")
    _, folder, name = target.partition("zoneinfo/")
    if folder:
        return name
    return None if os.path.exists("/etc/localtime") else "UTC"


def local_zone() -> tzinfo:
    """Return the time zone of this process, with its rules for daylight saving."""
    return _LOCAL_ZONE


def load_table_config(storage: Storage, env: Environment | None = None) -> TableConfig:
    """Read `hoodie.properties`, or its backup when the file is missing or damaged.

    Hudi removes the file and the backup one after the other while it changes them, so both are read twice before
    TableNotFound is raised. Hudi also writes them in place, so a damaged file is read again. A file without checksum
    may be truncated, and is used only if no file has a checksum, as in Hudi.

    Raises:
        TableNotFound: Neither file exists.
        CorruptData: No file is usable.
        Unsupported: A table version that PyHudi cannot read.
    """
    try:
        return retry_while_corrupt(lambda: _load_once(storage), env)
    except _NoVersion as error:
        raise Unsupported(str(error)) from None


def _load_once(storage: Storage) -> TableConfig:
    damage: CorruptData | None = None
    doubtful: TableConfig | None = None
    for path in (PROPERTIES_FILE, PROPERTIES_BACKUP) * 2:
        data = storage.read(path)
        if data is None:
            continue
        try:
            config = _config_of(data)
            config = _with_file_evidence(storage, config, data)
            if config.property(props.CHECKSUM.stored_as):
                return config
            doubtful = doubtful or config
        except CorruptData as error:
            damage = damage or error.with_path(storage.absolute(path))
        except Unsupported as error:
            raise Unsupported(f"{error} [{storage.absolute(path)}]") from error
    if doubtful is not None:
        return doubtful
    if damage is not None:
        raise damage
    raise TableNotFound(
        f"there is no Hudi table at {storage.uri} (no {PROPERTIES_FILE}); create one with Table.create or check the path"
    )


class _NoVersion(CorruptData):
    """The properties are those of version 0, or of a truncated file: another try or the backup may be complete."""


def _unreadable(version: TableVersion, note: str = "") -> Unsupported:
    readable = ", ".join(str(int(known)) for known in TableVersion if known.is_readable)
    way = "; a write of Apache Hudi 0.14 or 0.15 makes it one of version 6 (1.0 does not), and Table.upgrade goes on"
    way = way if version.precedes_readable else ""
    return Unsupported(f"the table has version {int(version)}{note}; PyHudi reads versions {readable}{way}")


_PROPERTIES_OF_VERSION_ZERO = frozenset(
    {
        props.NAME.stored_as,
        props.TABLE_TYPE.stored_as,
        props.LAYOUT.stored_as,
        props.ARCHIVE_FOLDER.stored_as,
        props.PAYLOAD.stored_as,
        props.ORDERING.stored_as,
        *props.BASE_FORMAT.aliases,
        *props.LOG_FORMAT.aliases,
    }
)
"""What releases before 0.6 store, which introduced the version."""


def _is_version_zero(values: Mapping[str, str]) -> bool:
    """Return whether properties are those of a release before 0.6, and not later ones that lack the version."""
    needed = {props.NAME.stored_as, props.TABLE_TYPE.stored_as, props.LAYOUT.stored_as}
    return needed <= values.keys() <= _PROPERTIES_OF_VERSION_ZERO and values[props.LAYOUT.stored_as].strip() in ("0", "1")


_decisions: dict[tuple[str, bytes, str], bool] = {}
"""What files show, by location, properties (which change when a table is replaced) and subject."""


def _with_file_evidence(storage: Storage, config: TableConfig, data: bytes) -> TableConfig:
    """Return the settings with what the files show of the keys, where the properties do not define it."""
    keys = config.keys
    if keys.slash_dates and not config.property(props.SLASH_DATES.stored_as):
        slash_dates = _decided(storage, data, "slash dates", lambda: find_slash_dates(storage, keys))
        keys = replace(keys, slash_dates=slash_dates is not False)
    if has_two_forms(keys) and config.populate_meta_fields:
        prefix = _decided(storage, data, "key prefix", lambda: find_key_prefix(storage, keys))
        keys = keys if prefix is None else replace(keys, prefix_single_key=prefix)
    return config if keys == config.keys else replace(config, keys=keys)


def _decided(storage: Storage, data: bytes, subject: str, find: Callable[[], bool | None]) -> bool | None:
    key = storage.uri, data, subject
    if key not in _decisions:
        evidence = find()
        if evidence is None:
            return None
        if len(_decisions) >= _MOST_DECISIONS:
            _decisions.clear()
        _decisions[key] = evidence
    return _decisions[key]


_MOST_DECISIONS = 64


def missing_property(values: Mapping[str, str]) -> str | None:
    """Return a mandatory property that is missing; None if all are present.

    Without a checksum, further properties are mandatory: readers would take a missing version for the newest, and a
    missing type for copy on write.
    """
    needed = [props.NAME.stored_as, props.LAYOUT.stored_as]
    if props.CHECKSUM.stored_as not in values:
        needed += [props.VERSION.stored_as, props.TABLE_TYPE.stored_as]
    return next((key for key in needed if key not in values), None)


@lru_cache(maxsize=64)
def _config_of(data: bytes) -> TableConfig:
    """Parse the file, with a cache: a table that is reopened before and after each write mostly has the same bytes."""
    values = parse_properties(data)
    missing = missing_property(values)
    if missing is not None and _is_version_zero(values):
        raise _NoVersion(str(_unreadable(TableVersion.ZERO, f" (no {props.VERSION.stored_as})")))
    if missing is not None:
        raise CorruptData(f"hoodie.properties has no {missing}: this is not a usable Hudi table")
    config = TableConfig.from_properties(values)
    layout = parse_timeline_layout(values[props.LAYOUT.stored_as])
    if layout is not config.version.layout:
        raise CorruptData(
            f"hoodie.properties has {props.LAYOUT.stored_as}={int(layout)}, but a table of version {int(config.version)} "
            "has another layout",
            expected=int(config.version.layout),
            found=int(layout),
        )
    check_checksum(data)
    return config


def store_table_config(storage: Storage, changes: Mapping[str, str | None], env: Environment) -> TableConfig:
    """Change properties of a table, crash-safe; the caller holds the table lock.

    changes: new values; None removes the key.  Returns the settings as stored.
    """
    current = dict(load_table_config(storage, env).properties)
    for key, value in (*changes.items(), (props.CHECKSUM.stored_as, None)):
        if value is None:
            current.pop(key, None)
        else:
            current[key] = value
    current[props.CHECKSUM.stored_as] = str(
        table_checksum(current.get(props.DATABASE.stored_as, ""), current[props.NAME.stored_as])
    )
    config = TableConfig.from_properties(current)
    data = format_checksummed_properties(current, format_updated_comments(env.now_ms()))
    storage.put(PROPERTIES_BACKUP, data)
    storage.put(PROPERTIES_FILE, data)
    storage.delete([PROPERTIES_BACKUP])
    return _with_file_evidence(storage, config, data)


def new_table_config(values: Mapping[str, str]) -> TableConfig:
    """Return the settings of a new table with these properties, without the checksum."""
    return TableConfig.from_properties(_with_checksum(values))


def create_table_files(storage: Storage, values: Mapping[str, str], env: Environment) -> TableConfig:
    """Create a table: the folders that Hudi creates, then `hoodie.properties`, whose appearance creates the table.

    Raises TableExists when the file exists, also when another process has just created it, and as `check_properties_not_lost`.
    """
    full = _with_checksum(values)
    config = TableConfig.from_properties(full)
    content = format_checksummed_properties(full, format_saved_comments(env.now_ms()))
    # An existing table gets no folders of another layout.
    exists = TableExists(f"there is a Hudi table at {storage.uri} already; open it with Table(uri)")
    if storage.stat(PROPERTIES_FILE) is not None or storage.stat(PROPERTIES_BACKUP) is not None:
        raise exists
    try:
        check_properties_not_lost(storage)
    except TableState as error:
        # Another process may have created the table and written to it since.
        raise exists if storage.stat(PROPERTIES_FILE) is not None else error from None
    for folder in (config.timeline_path, config.history_path, MARKER_FOLDER, SCHEMA_FOLDER, AUX_FOLDER):
        storage.make_folder(folder)
    if not storage.put_if_absent(PROPERTIES_FILE, content):
        raise exists
    return config


_TIMELINES = ((TIMELINE_FOLDER, TimelineLayout.V2), (META_FOLDER, TimelineLayout.V1))


def check_properties_not_lost(storage: Storage) -> None:
    """Raise TableState if a folder without `hoodie.properties` holds the timeline of a table.

    The data files would become part of a table that is created there. Rollbacks alone do not count: the removal of a
    new table whose first write failed may leave them.
    """
    for folder, layout in _TIMELINES:
        for info in storage.list(folder).files:
            instant = parse_instant_file(info.name, layout)
            if instant is not None and instant.action is not Action.ROLLBACK:
                raise TableState(
                    f"{PROPERTIES_FILE} of the table at {storage.uri} is missing, and so is its backup, but its timeline exists "
                    f"({info.path}). Restore the file with hp.restore_properties or `pyhudi repair --property`; delete the "
                    "folder if the table was being dropped"
                )


def _with_checksum(values: Mapping[str, str]) -> dict[str, str]:
    full = {key: value for key, value in values.items() if key != props.CHECKSUM.stored_as}
    full[props.CHECKSUM.stored_as] = str(table_checksum(full.get(props.DATABASE.stored_as, ""), full[props.NAME.stored_as]))
    return full


def merge_properties(settings: MergeSettings) -> dict[str, str]:
    """Return the three properties in which a table of version 8 stores its merge rule."""
    return {
        props.MERGE_MODE.stored_as: str(settings.mode),
        props.STRATEGY_ID.stored_as: settings.strategy_id,
        props.PAYLOAD.stored_as: settings.payload_class,
    }


def mode_properties(settings: MergeSettings) -> dict[str, str]:
    """The properties in which a table with merge modes stores its merge rule; properties that the mode implies are omitted."""
    values = {props.MERGE_MODE.stored_as: str(settings.mode)}
    if settings.mode is MergeMode.CUSTOM:
        values[props.STRATEGY_ID.stored_as] = settings.strategy_id
    if settings.by_payload:
        values[props.PAYLOAD.stored_as] = settings.payload_class
    if settings.translated:
        values[props.LEGACY_PAYLOAD.stored_as] = settings.translated
    if settings.update_mode is not None:
        values[props.UPDATE_MODE.stored_as] = str(settings.update_mode)
    return {**values, **{props.MERGE_PROPERTY + name: text for name, text in settings.properties}}


def parse_bool(values: Mapping[str, str], option: Option) -> bool:
    """Parse a property that is `true` or `false`, in any case.  Raises CorruptData for anything else."""
    text = (values.get(option.stored_as) or "").strip().lower() or option.default
    if text not in ("true", "false"):
        raise CorruptData(f"property {option.stored_as} is neither true nor false", expected="true or false", found=text)
    return text == "true"


class _LocalZone(tzinfo):
    """The zone of the process, with the rules of `datetime.astimezone()`; a fixed offset has none."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        if dt is None:
            return None
        return dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else dt.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, dt: datetime) -> datetime:
        return dt.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)

    def __reduce__(self) -> tuple[object, ...]:
        return local_zone, ()


_LOCAL_ZONE = _LocalZone()


def _key_spec(values: Mapping[str, str], version: TableVersion) -> KeySpec:
    """How the table names records; without stored keys their form is that of new tables of the version."""
    keys = KeySpec.from_properties(values)
    return replace(keys, prefix_single_key=True) if version.prefixes_single_keys and has_two_forms(keys) else keys


def _ordering_fields(values: Mapping[str, str]) -> tuple[str, ...]:
    """The fields that either key names.  If they differ, releases would order by different fields: that is an error."""
    newer, older = split_list(values.get(props.ORDERING_FIELDS)), split_list(values.get(props.ORDERING.stored_as))
    if newer and older and newer != older:
        raise CorruptData(
            f"{props.ORDERING_FIELDS} and {props.ORDERING.stored_as} name different fields, so that releases of Hudi order "
            "records differently",
            expected=",".join(newer),
            found=",".join(older),
        )
    return newer or older


def _merge_settings(values: Mapping[str, str], ordering: tuple[str, ...], version: TableVersion) -> MergeSettings:
    """The merge rule that the properties define."""
    by = Ordering(ordering, null_is_zero=version.merges_by_modes)
    if version.merges_by_modes:
        return _merge_by_modes(values, by)
    mode = values.get(props.MERGE_MODE.stored_as)
    strategy = values.get(props.STRATEGY_ID.stored_as) or values.get(props.STRATEGY_ALIAS)
    payload = values.get(props.PAYLOAD.stored_as)
    if payload == EVENT_TIME_PAYLOAD and mode == MergeMode.EVENT_TIME_ORDERING:
        # A downgrade from version 9 keeps the payload class and its merge mode, and all writers merge by the mode.
        payload = None
    try:
        settings = infer_merge_settings(
            mode=mode,
            payload_class=payload,
            strategy_id=strategy,
            ordering_field=ordering[0] if ordering else None,
            version=version,
        )
    except InvalidRequest as error:
        raise CorruptData(f"the merge settings in hoodie.properties contradict each other: {error}") from error
    return replace(settings, ordering=by)


def _merge_by_modes(values: Mapping[str, str], ordering: Ordering) -> MergeSettings:
    """Merge rule of version 9: the mode decides; a payload class next to a mode other than CUSTOM serves a downgrade."""
    default = MergeMode.EVENT_TIME_ORDERING if ordering else MergeMode.COMMIT_TIME_ORDERING
    mode = _parse_enum(MergeMode, values, props.MERGE_MODE.stored_as, default)
    strategy = values.get(props.STRATEGY_ID.stored_as) or values.get(props.STRATEGY_ALIAS)
    payload = values.get(props.PAYLOAD.stored_as)
    if mode is not MergeMode.CUSTOM:
        strategy = payload = None
    try:
        settings = infer_merge_settings(
            mode=str(mode), payload_class=payload, strategy_id=strategy, ordering_field=None, version=TableVersion.NINE
        )
    except InvalidRequest as error:
        raise CorruptData(f"the merge settings in hoodie.properties contradict each other: {error}") from error
    update_mode = None
    if values.get(props.UPDATE_MODE.stored_as):
        update_mode = _parse_enum(UpdateMode, values, props.UPDATE_MODE.stored_as, UpdateMode.IGNORE_DEFAULTS)
    properties = {
        key.removeprefix(props.MERGE_PROPERTY): text for key, text in values.items() if key.startswith(props.MERGE_PROPERTY)
    }
    return replace(
        settings,
        ordering=ordering,
        by_modes=True,
        update_mode=update_mode,
        properties=tuple(sorted(properties.items())),
        translated=values.get(props.LEGACY_PAYLOAD.stored_as) or None,
    )


def _check_known(values: Mapping[str, str], base_file_format: str) -> None:
    """Raise Unsupported for features of releases after 1.0 that PyHudi would misread."""
    if base_file_format == "LANCE":
        raise Unsupported(f"{props.BASE_FORMAT}=LANCE: Lance base files (release 1.2) are not read, only Parquet and ORC")
    layout = values.get(props.STORAGE_LAYOUT.stored_as)
    if layout == "lsm_tree":
        raise Unsupported(f"{props.STORAGE_LAYOUT}={layout}: native log files (release 1.3) are neither read nor written")


def _parse_enum(enum: type[_E], values: Mapping[str, str], key: str, default: _E) -> _E:
    text = values.get(key)
    if text is None:
        return default
    try:
        return enum(text.strip().upper())
    except ValueError:
        raise CorruptData(f"property {key} has no known value", expected=", ".join(enum), found=text) from None
