"""Conversion between table versions 8 and 9, which releases 1.1 and 1.2 write.

    8 -> 9   1. roll failed writes back; compact a merge-on-read table until no file slice has a log file: a payload
                class and a merge mode would merge the logs differently
             2. set version "V1" in index definitions without a version: it remains the layout of their records
             3. set in the properties version 9, a merge mode in place of the payload class, and the ordering fields
                under their newer name
             4. set version 9 in the metadata table's own properties
    9 -> 8   1. drop indexes with a later layout, partition statistics along with column statistics
             2. as 1. above: deletes of version 9 may have ordering values that readers of version 8 cannot decode
             3. set version 8 in the metadata table's own properties
             4. set in the properties version 8, and the payload class that is equivalent to the merge mode

    payload class                   mode         update mode       delete field             ordering fields
    OverwriteWithLatest             commit time
    Default, EventTime              event time                     from the options
    OverwriteNonDefaults...         commit time  IGNORE_DEFAULTS
    PartialUpdate                   event time   IGNORE_DEFAULTS
    AWSDms                          commit time                    Op = D
    debezium.PostgresDebezium       event time   FILL_UNAVAILABLE  _change_operation_type   _event_lsn
    debezium.MySqlDebezium          event time                     _change_operation_type   _event_bin_file, _event_pos
    with a custom merger            unchanged, and its strategy id

Instants, data files and the records of the metadata table do not change. A crash leaves a table of either version; one
of version 9 may then have a metadata table with version 8, which readers and writers of version 9 accept.

Source: docs/formats/timeline.md, "Version 9".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from pyhudi.errors import TableNotFound, Unsupported
from pyhudi.format.paths import METADATA_FOLDER
from pyhudi.format.table_versions import TableVersion
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions, put_index_definitions
from pyhudi.metadata_table.writer.metadata_store import drop_partitions
from pyhudi.operations.admin.versions.version_step import (
    StepContext,
    VersionChange,
    VersionStep,
    check_can_prepare,
    check_index_builds,
    check_prepared,
    check_version,
    prepare_version_change,
)
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.options import table_options as props
from pyhudi.records.merge_mode import (
    DEFAULT_PAYLOAD,
    EVENT_TIME_PAYLOAD,
    MARKER_FIELD,
    MARKER_TEXT,
    MYSQL_PAYLOAD,
    OVERWRITE_PAYLOAD,
    PAYLOAD_BY_MODE,
    PAYLOAD_STRATEGY,
    STRATEGY_BY_MODE,
    TRANSLATIONS,
    MergeMode,
    Translation,
    modern_payload_name,
)
from pyhudi.records.payloads import FIRST_VALUE_PAYLOAD, MYSQL_POSITION, PAYLOAD_ALIASES
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_config import TableConfig, load_table_config, store_table_config
from pyhudi.table.table_context import TableContext

_VERSION = props.VERSION.stored_as

_PAYLOADS_KEPT_WITH_MODES = (OVERWRITE_PAYLOAD, DEFAULT_PAYLOAD, EVENT_TIME_PAYLOAD)
"""Payload classes that version 8 stores together with their merge mode; all others are CUSTOM there."""


class V8V9(VersionStep):
    """Step between version 8 and version 9, which releases 1.1 and 1.2 write."""

    lower = TableVersion.EIGHT
    upper = TableVersion.NINE

    def check_up(self, context: TableContext) -> None:
        config, uri = context.config, context.storage.uri
        if _payload_of(config) == FIRST_VALUE_PAYLOAD:
            raise Unsupported(
                f"the table at {uri} merges by {FIRST_VALUE_PAYLOAD}, which releases with table version 9 do not support"
            )
        if config.version.is_writable:
            check_writable(context, retains_indexes=False)
        check_index_builds(context)
        translation = _translation(config)
        if translation is not None:
            _check_columns(context, translation.ordering, f"{_payload_of(config)} orders records by it in version 9")
        for definition in load_index_definitions(context).values():
            # Accessed for its error: an unknown layout cannot be converted.
            _ = definition.layout

    def up(self, context: TableContext, step_context: StepContext) -> VersionChange:
        rolled_back, compaction = prepare_version_change(context, step_context)
        with context.locked(step_context.lock_wait_ms) as locked:
            locked = locked.reloaded()
            check_version(locked, self.lower)
            self.check_up(locked)
            check_prepared(locked)
            _name_layouts(locked)
            changes = _properties_of_9(locked.config, step_context.settings.marker)
            locked = replace(locked, config=store_table_config(locked.storage, changes, locked.env))
            self.finish_up(locked)
        return VersionChange(8, 9, rolled_back=rolled_back, compaction=compaction)

    def finish_up(self, locked_context: TableContext) -> None:
        _set_metadata_version(locked_context, self.upper)

    def check_down(self, context: TableContext) -> None:
        config, uri = context.config, context.storage.uri
        payload = _payload_of(config)
        ordering = _ordering_of_8(config)
        if len(ordering) > 1:
            raise Unsupported(
                f"the table at {uri} has several ordering fields ({', '.join(ordering)}), and version 8 supports one"
            )
        if payload == MYSQL_PAYLOAD:
            _check_columns(context, ordering, f"{payload} orders records by it in version 8")
        translation = _translation(config)
        has = config.merge.mode, config.merge.update_mode
        if (
            (translation.mode, translation.update_mode) != has
            if translation is not None
            else config.merge.update_mode is not None
        ):
            raise Unsupported(
                f"the table at {uri} merges by {config.merge.mode} with "
                f"{props.UPDATE_MODE.stored_as}={config.merge.update_mode}, for "
                f"which version 8 has no payload class ({props.LEGACY_PAYLOAD.stored_as}={payload or ''})"
            )
        index = load_index_definitions(context).get(RECORD_INDEX)
        if index is not None and index.by_partition:
            raise Unsupported(
                f"the record index of the table at {uri} is partitioned, which readers of version 8 would treat as "
                f"global; drop it first: Table.index.drop({RECORD_INDEX!r})"
            )
        check_writable(context, retains_indexes=False)
        check_index_builds(context)
        # Reading the schema refuses columns of types that release 1.2 introduced.
        load_snapshot(context)

    def down(self, context: TableContext, step_context: StepContext) -> VersionChange:
        check_can_prepare(context)
        with context.locked(step_context.lock_wait_ms) as locked:
            locked = locked.reloaded()
            check_version(locked, self.upper)
            self.check_down(locked)
            dropped = _drop_later_layouts(locked)
        rolled_back, compaction = prepare_version_change(context.reloaded(), step_context)
        with context.locked(step_context.lock_wait_ms) as locked:
            locked = locked.reloaded()
            check_version(locked, self.upper)
            self.check_down(locked)
            check_prepared(locked)
            # A concurrent writer may have rebuilt them.
            dropped |= _drop_later_layouts(locked)
            locked = locked.reloaded()
            _set_metadata_version(locked, self.lower)
            store_table_config(locked.storage, _properties_of_8(locked.config), locked.env)
        return VersionChange(9, 8, rolled_back=rolled_back, compaction=compaction, dropped_indexes=tuple(sorted(dropped)))

    def finish_down(self, locked_context: TableContext) -> None:
        """Nothing remains: the properties change last."""


def _check_columns(context: TableContext, names: tuple[str, ...], reason: str) -> None:
    schema = load_snapshot(context).schema
    columns = pa.schema([]) if schema is None else schema.arrow
    missing = [name for name in names if schema is not None and name not in columns.names]
    if missing:
        raise Unsupported(f"the table at {context.storage.uri} has no column {missing[0]}; {reason}")


# Indexes


def _name_layouts(locked_context: TableContext) -> None:
    """Set the layout version in index definitions without one."""
    definitions = load_index_definitions(locked_context)
    if not all(definition.names_layout for definition in definitions.values()):
        named = [definition.with_declared_layout() for definition in definitions.values()]
        put_index_definitions(locked_context, named)


def _drop_later_layouts(locked_context: TableContext) -> set[str]:
    """Drop the indexes that readers of version 8 cannot decode; return their partitions."""
    # The definitions are removed last, so that a later attempt can complete this one.
    definitions = load_index_definitions(locked_context)
    later = {name for name, definition in definitions.items() if definition.layout > 1}
    existing = {*locked_context.config.metadata_partitions, *locked_context.config.metadata_partitions_inflight}
    # Statistics have the layout in the definition of column statistics; without a definition the layout is unknown.
    later |= {COLUMN_STATS} & existing - definitions.keys()
    if COLUMN_STATS in later or COLUMN_STATS not in definitions:
        later |= {PARTITION_STATS} & existing
    if not later:
        return later
    drop_partitions(locked_context, later)
    remaining = [definition for name, definition in definitions.items() if name not in later]
    if len(remaining) < len(definitions):
        put_index_definitions(locked_context, remaining)
    return later


def _set_metadata_version(locked_context: TableContext, version: TableVersion) -> None:
    """Set the version in the metadata table's own properties, if there is one."""
    child = locked_context.storage.child(METADATA_FOLDER)
    try:
        config = load_table_config(child)
    except TableNotFound:
        return
    if config.version is not version:
        store_table_config(child, {_VERSION: str(int(version))}, locked_context.env)


# Properties


def _payload_of(config: TableConfig) -> str:
    """Return the payload class by which the table merges, or that is equivalent to its merge mode; '' if there is none."""
    name = modern_payload_name(config.property(props.LEGACY_PAYLOAD.stored_as) or config.property(props.PAYLOAD.stored_as))
    return PAYLOAD_ALIASES.get(name, name)


def _translation(config: TableConfig) -> Translation | None:
    return None if _has_merger(config) else TRANSLATIONS.get(_payload_of(config))


def _has_merger(config: TableConfig) -> bool:
    """Return True for a custom merger: it overrides the payload class that every table of version 8 has."""
    return config.merge.mode is MergeMode.CUSTOM and not config.merge.by_payload


def _properties_of_9(config: TableConfig, marker: DeleteMarker | None) -> Mapping[str, str | None]:
    """Return the properties of version 9; ``marker`` is the delete marker in the options of version 8 writers."""
    changes: dict[str, str | None] = {_VERSION: "9", props.ORDERING.stored_as: None}
    translation = _translation(config)
    if config.merge.mode is not MergeMode.CUSTOM:
        changes[props.STRATEGY_ID.stored_as] = None
    elif translation is not None:
        strategy = STRATEGY_BY_MODE[translation.mode]
        changes |= {
            props.MERGE_MODE.stored_as: str(translation.mode),
            props.STRATEGY_ID.stored_as: strategy,
            props.STRATEGY_ALIAS: strategy,
        }
    elif _has_merger(config):
        changes |= {props.LEGACY_PAYLOAD.stored_as: _payload_of(config) or None, props.PAYLOAD.stored_as: None}
    marker_properties: Mapping[str, str] = {} if marker is None else {MARKER_FIELD: marker.field, MARKER_TEXT: marker.text}
    ordering = config.ordering_fields
    if translation is not None:
        changes |= {props.LEGACY_PAYLOAD.stored_as: _payload_of(config), props.PAYLOAD.stored_as: None}
        if translation.update_mode is not None:
            changes[props.UPDATE_MODE.stored_as] = str(translation.update_mode)
        marker_properties = dict(translation.properties) or marker_properties
        ordering = translation.ordering or ordering
    if ordering:
        changes[props.ORDERING_FIELDS] = ",".join(ordering)
    return {**changes, **{props.MERGE_PROPERTY + name: text for name, text in marker_properties.items()}}


def _ordering_of_8(config: TableConfig) -> tuple[str, ...]:
    return (MYSQL_POSITION,) if _payload_of(config) == MYSQL_PAYLOAD else config.ordering_fields


def _properties_of_8(config: TableConfig) -> Mapping[str, str | None]:
    changes: dict[str, str | None] = {_VERSION: "8", props.UPDATE_MODE.stored_as: None, props.ORDERING_FIELDS: None}
    changes[props.ORDERING.stored_as] = next(iter(_ordering_of_8(config)), None)
    mode, payload, translation = config.merge.mode, _payload_of(config), _translation(config)
    if mode is not MergeMode.CUSTOM:
        changes |= {props.PAYLOAD.stored_as: payload or PAYLOAD_BY_MODE[mode], props.LEGACY_PAYLOAD.stored_as: None}
        if payload in _PAYLOADS_KEPT_WITH_MODES or not payload:
            strategy = STRATEGY_BY_MODE[mode]
        else:
            strategy = PAYLOAD_STRATEGY
            changes[props.MERGE_MODE.stored_as] = str(MergeMode.CUSTOM)
        changes |= {props.STRATEGY_ID.stored_as: strategy, props.STRATEGY_ALIAS: strategy}
    elif _has_merger(config):
        changes |= {props.PAYLOAD.stored_as: payload or DEFAULT_PAYLOAD, props.LEGACY_PAYLOAD.stored_as: None}
    # The payload class implies these; a delete marker of the table stays, although writers read it from options only.
    implied = translation.properties if translation is not None else ()
    return {**changes, **{props.MERGE_PROPERTY + name: None for name, _ in implied}}
