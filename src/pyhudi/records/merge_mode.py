"""Merge mode, merge strategy id and payload class of a table, and how they imply each other.

A table stores all three (`hoodie.record.merge.mode`, `hoodie.record.merge.strategy.id`,
`hoodie.compaction.payload.class`); they must agree, or Hudi's readers reject the table. `infer_merge_settings`
completes the settings that the caller omitted and rejects contradictions.

Source: docs/reference/mergers.md; docs/formats/reading.md, "Merging".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pyhudi.errors import InvalidRequest
from pyhudi.format.table_versions import TableVersion
from pyhudi.options import table_options, write_options
from pyhudi.records.ordering import Ordering

MODEL_PACKAGE = "org.apache.hudi.common.model."
DEFAULT_PAYLOAD = MODEL_PACKAGE + "DefaultHoodieRecordPayload"
OVERWRITE_PAYLOAD = MODEL_PACKAGE + "OverwriteWithLatestAvroPayload"
EVENT_TIME_PAYLOAD = MODEL_PACKAGE + "EventTimeAvroPayload"
MYSQL_PAYLOAD = MODEL_PACKAGE + "debezium.MySqlDebeziumAvroPayload"

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"


class MergeMode(StrEnum):
    """`hoodie.record.merge.mode`."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class UpdateMode(StrEnum):
    """`hoodie.table.partial.update.mode`: which values count as missing and are filled from the other record.

    Attributes:
        IGNORE_DEFAULTS: The default of the column in the Avro schema, which is usually null.
        FILL_UNAVAILABLE: In string and binary columns, the placeholder for a value that the change did not include.
    """

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Translation:
    """Merge settings that replace a payload class in tables that merge by mode (table version 9).

    Attributes:
        mode: Merge mode.
        update_mode: Partial update mode.
        properties: Merge properties without their prefix.
        ordering: Ordering fields of the class, which override those of the table.
    """

    mode: MergeMode
    update_mode: UpdateMode | None = None
    properties: tuple[tuple[str, str], ...] = ()
    ordering: tuple[str, ...] = ()


MARKER_FIELD = write_options.DELETE_FIELD.key
MARKER_TEXT = write_options.DELETE_MARKER.key
UNAVAILABLE_TEXT = write_options.UNAVAILABLE_VALUE
"""Merge properties: the delete marker, and the placeholder for a value that a change did not include."""

_DEBEZIUM_DELETES = ((MARKER_FIELD, "_change_operation_type"), (MARKER_TEXT, "d"))

TRANSLATIONS = {
    OVERWRITE_PAYLOAD: Translation(MergeMode.COMMIT_TIME_ORDERING),
    DEFAULT_PAYLOAD: Translation(MergeMode.EVENT_TIME_ORDERING),
    EVENT_TIME_PAYLOAD: Translation(MergeMode.EVENT_TIME_ORDERING),
    MODEL_PACKAGE + "OverwriteNonDefaultsWithLatestAvroPayload": Translation(
        MergeMode.COMMIT_TIME_ORDERING, UpdateMode.IGNORE_DEFAULTS
    ),
    MODEL_PACKAGE + "PartialUpdateAvroPayload": Translation(MergeMode.EVENT_TIME_ORDERING, UpdateMode.IGNORE_DEFAULTS),
    MODEL_PACKAGE + "AWSDmsAvroPayload": Translation(
        MergeMode.COMMIT_TIME_ORDERING, properties=((MARKER_FIELD, "Op"), (MARKER_TEXT, "D"))
    ),
    MODEL_PACKAGE + "debezium.PostgresDebeziumAvroPayload": Translation(
        MergeMode.EVENT_TIME_ORDERING,
        UpdateMode.FILL_UNAVAILABLE,
        (*_DEBEZIUM_DELETES, (UNAVAILABLE_TEXT, "__debezium_unavailable_value")),
        ("_event_lsn",),
    ),
    MYSQL_PAYLOAD: Translation(
        MergeMode.EVENT_TIME_ORDERING, properties=_DEBEZIUM_DELETES, ordering=("_event_bin_file", "_event_pos")
    ),
}
"""Payload classes that Hudi 1.1 translates, with the settings that replace them in a table of version 9."""


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Complete merge settings of a table.

    Attributes:
        mode: Merge mode.
        strategy_id: Merge strategy id.
        payload_class: Payload class.
        ordering: Ordering columns.
        by_modes: True if modes merge as in table version 9: deletes without an ordering value do not affect later
            records, and `update_mode` and `properties` apply.
        update_mode: Partial update mode.
        properties: Merge properties, `hoodie.record.merge.property.*` without that prefix.
        translated: Payload class that mode, update mode and properties replace; it has no effect itself.
    """

    mode: MergeMode
    strategy_id: str
    payload_class: str
    ordering: Ordering
    by_modes: bool = False
    update_mode: UpdateMode | None = None
    properties: tuple[tuple[str, str], ...] = ()
    translated: str | None = None

    @property
    def ordering_field(self) -> str | None:
        """The single ordering column, by its dotted name; None if there are none or several."""
        return self.ordering.fields[0] if len(self.ordering.fields) == 1 else None

    @property
    def by_payload(self) -> bool:
        """True if a payload class, not a record merger, merges records."""
        return self.mode is MergeMode.CUSTOM and self.strategy_id == PAYLOAD_STRATEGY


def infer_merge_settings(
    *,
    mode: str | None,
    payload_class: str | None,
    strategy_id: str | None,
    ordering_field: str | None,
    version: TableVersion = TableVersion.EIGHT,
) -> MergeSettings:
    """Complete merge settings from the arguments; None and '' mean not set.

    Raises:
        InvalidRequest: Two settings contradict each other, or CUSTOM lacks both a payload class and a strategy id.
    """
    payload_class = modern_payload_name(payload_class) if payload_class else None
    requested = _parse_mode(mode) if mode else None
    if not payload_class and not strategy_id:
        inferred = requested or (MergeMode.EVENT_TIME_ORDERING if ordering_field else MergeMode.COMMIT_TIME_ORDERING)
    else:
        by_payload = _mode_of_payload(payload_class) if payload_class else None
        by_strategy = _mode_of_strategy(strategy_id) if strategy_id else None
        contradiction = by_payload and by_strategy and by_strategy is not MergeMode.CUSTOM and by_payload is not by_strategy
        if version.has_merge_mode and contradiction:
            raise InvalidRequest(
                f"payload class {payload_class} and record merge strategy id {strategy_id} contradict each other; set "
                f"only one of them"
            )
        first, second = (by_strategy, by_payload) if version.has_merge_mode else (by_payload, by_strategy)
        inferred = first or second or MergeMode.CUSTOM
    if requested and requested is not inferred:
        raise InvalidRequest(
            f"record merge mode {requested} contradicts payload class {payload_class} and record merge strategy id "
            f"{strategy_id}, which imply {inferred}; set only one of them"
        )
    if inferred is not MergeMode.CUSTOM:
        return MergeSettings(inferred, STRATEGY_BY_MODE[inferred], PAYLOAD_BY_MODE[inferred], Ordering.by(ordering_field or None))
    if not payload_class and not strategy_id:
        raise InvalidRequest(
            f"record merge mode CUSTOM requires a payload class ({table_options.PAYLOAD}) "
            f"or a merge strategy id ({table_options.STRATEGY_ID})"
        )
    if strategy_id == PAYLOAD_STRATEGY and not payload_class:
        raise InvalidRequest(f"record merge strategy id {PAYLOAD_STRATEGY} requires a payload class; set {table_options.PAYLOAD}")
    if payload_class and not version.has_merge_mode:
        strategy_id = PAYLOAD_STRATEGY
    return MergeSettings(
        inferred,
        strategy_id or PAYLOAD_STRATEGY,
        payload_class or DEFAULT_PAYLOAD,
        Ordering.by(ordering_field or None),
    )


def infer_modes(
    *,
    mode: str | None,
    payload_class: str | None,
    strategy_id: str | None,
    ordering: tuple[str, ...],
    marker: tuple[str, str] | None = None,
) -> MergeSettings:
    """Complete merge settings of a table that merges by mode (version 9); a payload class is translated.

    Args:
        mode: As `infer_merge_settings`.
        payload_class: As `infer_merge_settings`.
        strategy_id: As `infer_merge_settings`.
        ordering: Ordering fields.
        marker: Delete field and marker. They become the table's own only with the default payload class.

    Raises:
        InvalidRequest: As `infer_merge_settings`, and if `ordering` differs from the ordering fields of the payload
            class.
    """
    payload = modern_payload_name(payload_class) if payload_class else None
    translation = TRANSLATIONS.get(payload) if payload else None
    if translation is None:
        settings = infer_merge_settings(
            mode=mode, payload_class=payload, strategy_id=strategy_id, ordering_field=ordering[0] if ordering else None
        )
        return replace(settings, ordering=Ordering(ordering, null_is_zero=True), by_modes=True)
    implied = _mode_of_strategy(strategy_id) if strategy_id and strategy_id != PAYLOAD_STRATEGY else None
    if (mode and _parse_mode(mode) is not translation.mode) or implied not in (None, translation.mode):
        raise InvalidRequest(
            f"record merge mode {mode or implied} contradicts payload class {payload}, which a table of version 9 "
            f"replaces by {translation.mode}; set only one of them"
        )
    settings = infer_merge_settings(mode=str(translation.mode), payload_class=None, strategy_id=None, ordering_field=None)
    if translation.ordering and ordering not in ((), translation.ordering):
        raise InvalidRequest(
            f"payload class {payload} orders records by {','.join(translation.ordering)}, not by ordering field "
            f"{','.join(ordering)}; leave the ordering field out"
        )
    properties = translation.properties
    if payload == DEFAULT_PAYLOAD and marker is not None:
        properties = ((MARKER_FIELD, marker[0]), (MARKER_TEXT, marker[1]))
    return replace(
        settings,
        ordering=Ordering(translation.ordering or ordering, null_is_zero=True),
        by_modes=True,
        update_mode=translation.update_mode,
        properties=tuple(sorted(properties)),
        translated=payload,
    )


def modern_payload_name(name: str) -> str:
    """Return a payload class name with the package `com.uber.hoodie` replaced by `org.apache.hudi`."""
    old_package = "com.uber.hoodie"
    return "org.apache.hudi" + name[len(old_package) :] if name.startswith(old_package) else name


STRATEGY_BY_MODE = {
    MergeMode.EVENT_TIME_ORDERING: EVENT_TIME_STRATEGY,
    MergeMode.COMMIT_TIME_ORDERING: COMMIT_TIME_STRATEGY,
}
PAYLOAD_BY_MODE = {
    MergeMode.EVENT_TIME_ORDERING: DEFAULT_PAYLOAD,
    MergeMode.COMMIT_TIME_ORDERING: OVERWRITE_PAYLOAD,
}


def _parse_mode(text: str) -> MergeMode:
    try:
        return MergeMode(text.strip().upper())
    except ValueError:
        raise InvalidRequest(f"record merge mode {text!r} is invalid; use one of {', '.join(MergeMode)}") from None


def _mode_of_payload(name: str) -> MergeMode:
    return {v: k for k, v in PAYLOAD_BY_MODE.items()}.get(name, MergeMode.CUSTOM)


def _mode_of_strategy(strategy_id: str) -> MergeMode:
    return {v: k for k, v in STRATEGY_BY_MODE.items()}.get(strategy_id, MergeMode.CUSTOM)
