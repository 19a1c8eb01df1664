"""Payload classes, Hudi's class-based merge rules, implemented on whole columns.

    class                              between two records of one batch      between the incoming and the stored record
    EventTimeAvroPayload               larger ordering value, tie: later     a delete always wins; else the larger
                                       ordering value, tie: incoming
    OverwriteNonDefaultsWithLatest...  the same                              incoming, its nulls filled from the stored
                                       record; a delete wins
    PartialUpdateAvroPayload           larger one, its nulls filled          larger one, its nulls filled from the
                                       other; a delete wins
    FirstValueAvroPayload              larger one, tie: earlier              larger ordering value, tie: stored
    AWSDmsAvroPayload                  larger one, tie: later                incoming; `Op` = D deletes
    debezium.MySqlDebezium...          larger one, tie: later                later binlog position `_event_seq`, tie:
                                       stored; `d` deletes
    debezium.PostgresDebezium...       larger one, tie: later                larger `_event_lsn`, tie: incoming; `d`
                                       deletes; columns missing in the change keep the stored value

DefaultHoodieRecordPayload and OverwriteWithLatestAvroPayload are the two built-in merge modes. In log files deletes are
resolved by ordering value before a payload class is applied (see `records.log_merge.merge_log_blocks`).

Source: docs/formats/reading.md, "Payload classes".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import is_meta_field
from pyhudi.records.merge_mode import EVENT_TIME_PAYLOAD, MODEL_PACKAGE, MYSQL_PAYLOAD
from pyhudi.records.ordering import BoolMask, Ordering, newer_or_equal
from pyhudi.records.record_merge import CommonRule, DeleteMarker, Merged, choose_rows, delete_flags, deleted_rows
from pyhudi.records.schema_cast import relabel_column

UNAVAILABLE = "__debezium_unavailable_value"
"""Placeholder that Debezium writes for a large value that a change did not include."""

_CHANGE_TYPE = "_change_operation_type"
MYSQL_POSITION = "_event_seq"
_POSTGRES_POSITION = "_event_lsn"
_DMS_OPERATION = "Op"


@dataclass(frozen=True, slots=True)
class PayloadRule(CommonRule):
    """Merge rule of one payload class."""

    payload_class: str
    ordering: Ordering
    delete_is_barrier: bool = False
    marker: DeleteMarker | None = None

    def newer_wins(self, older: pa.Table, newer: pa.Table, newer_is_plain_delete: BoolMask | None) -> BoolMask:
        """Return a mask of pairs in which the newer record wins by ordering value alone."""
        return ~_older_is_larger(older, newer, self.ordering)

    def deletes(self, rows: pa.Table) -> BoolMask | None:
        """Return a mask of the rows that delete their key."""
        class_deletes = _DELETES.get(self.payload_class)
        if class_deletes is None:
            return deleted_rows(rows, self.marker)
        flags = class_deletes(rows)
        marked = None if self.marker is None else self.marker.flags(rows)
        return flags if marked is None else _union(flags, marked)

    def with_marker(self, marker: DeleteMarker | None) -> PayloadRule:
        """Return the same rule with another delete marker."""
        return replace(self, marker=marker)

    def merge(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge stored (older) with incoming (newer) records."""
        return _MERGES[self.payload_class](older, newer, self)

    def combine(self, older: pa.Table, newer: pa.Table) -> Merged:
        """Merge two records of one batch; a delete remains a row with its flag."""
        all_rows = np.ones(newer.num_rows, dtype=np.bool_)
        if self.payload_class == _PARTIAL_UPDATE:
            return Merged(_combine_partial(older, newer, self.ordering), all_rows, all_rows)
        wins = ~_older_is_larger(older, newer, self.ordering, tie=self.payload_class == FIRST_VALUE_PAYLOAD)
        return Merged(choose_rows(older, newer, wins), all_rows, wins)


def payload_rule(payload_class: str, ordering: Ordering, *, delete_is_barrier: bool = False) -> PayloadRule | None:
    """Return the rule of a payload class; None for an unknown class. `delete_is_barrier` as in `RecordMergeRule`."""
    name = PAYLOAD_ALIASES.get(payload_class, payload_class)
    return PayloadRule(name, ordering, delete_is_barrier) if name in _MERGES else None


def supported_payloads() -> tuple[str, ...]:
    """Return the payload classes that PyHudi implements."""
    return tuple(_MERGES)


FIRST_VALUE_PAYLOAD = MODEL_PACKAGE + "FirstValueAvroPayload"
MARKER_PAYLOADS = (FIRST_VALUE_PAYLOAD,)
"""Payload classes, besides the default one, whose writes apply delete markers. Hudi's EventTimeAvroPayload applies them
to new keys only: it stores marked updates of a copy-on-write table and fails on those of a merge-on-read table.
"""

_NON_DEFAULTS = MODEL_PACKAGE + "OverwriteNonDefaultsWithLatestAvroPayload"
_PARTIAL_UPDATE = MODEL_PACKAGE + "PartialUpdateAvroPayload"
_DMS = MODEL_PACKAGE + "AWSDmsAvroPayload"
_POSTGRES = MODEL_PACKAGE + "debezium.PostgresDebeziumAvroPayload"
PAYLOAD_ALIASES = {"org.apache.hudi.payload.AWSDmsAvroPayload": _DMS}
"""Alternative names of payload classes in table properties."""


def _merge_event_time(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    deleted = _flags(rule.deletes(newer), newer.num_rows)
    wins = ~_older_is_larger(older, newer, rule.ordering) | deleted
    return Merged(choose_rows(older, newer, wins), ~deleted, wins)


def _merge_non_defaults(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    deleted = _flags(delete_flags(newer), newer.num_rows)
    return Merged(_fill_nulls(newer, older), ~deleted, np.ones(newer.num_rows, dtype=np.bool_))


def _merge_partial_update(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    deleted = _flags(delete_flags(newer), newer.num_rows)
    stored_is_larger = _older_is_larger(older, newer, rule.ordering)
    rows = choose_rows(_fill_nulls(older, newer, meta_source=newer), _fill_nulls(newer, older), ~stored_is_larger)
    return Merged(rows, ~deleted, np.ones(newer.num_rows, dtype=np.bool_))


def _merge_first_value(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    wins = ~_older_is_larger(older, newer, rule.ordering, tie=True)
    deleted = _flags(rule.deletes(newer), newer.num_rows) & wins
    return Merged(choose_rows(older, newer, wins), ~deleted, wins)


def _merge_dms(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    return Merged(newer, ~_flags(_dms_deletes(newer), newer.num_rows), np.ones(newer.num_rows, dtype=np.bool_))


def _merge_mysql(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    stored, incoming = _binlog_positions(older), _binlog_positions(newer)
    if incoming[0].null_count:
        raise InvalidRequest(
            f"{MYSQL_POSITION} is null in {incoming[0].null_count} changes; every MySQL change must have a binlog position"
        )
    later = pc.or_(
        pc.greater(incoming[0], stored[0]), pc.and_(pc.equal(incoming[0], stored[0]), pc.greater(incoming[1], stored[1]))
    )
    wins = np.asarray(pc.fill_null(later, True), dtype=np.bool_)
    deleted = _flags(_change_deletes(newer), newer.num_rows) & wins
    return Merged(choose_rows(older, newer, wins), ~deleted, wins)


def _merge_postgres(older: pa.Table, newer: pa.Table, rule: PayloadRule) -> Merged:
    stored, incoming = _log_positions(older), _log_positions(newer)
    wins = np.asarray(pc.fill_null(pc.greater_equal(incoming, stored), True), dtype=np.bool_)
    deleted = _flags(_change_deletes(newer), newer.num_rows) & wins
    columns = []
    for field in newer.schema:
        column = newer.column(field.name)
        if not is_meta_field(field.name) and (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            marker = pa.scalar(UNAVAILABLE if pa.types.is_string(field.type) else UNAVAILABLE.encode(), field.type)
            column = pc.if_else(
                pc.fill_null(pc.equal(column, marker), False), relabel_column(older.column(field.name), field), column
            )
        columns.append(column)
    return Merged(choose_rows(older, pa.table(columns, schema=newer.schema), wins), ~deleted, wins)


def _combine_partial(older: pa.Table, newer: pa.Table, ordering: Ordering) -> pa.Table:
    older_first = _older_is_larger(older, newer, ordering)
    older_deleted = _flags(delete_flags(older), older.num_rows)
    merged = choose_rows(_fill_nulls(older, newer, meta_source=newer), _fill_nulls(newer, older), ~older_first)
    return choose_rows(merged, newer, older_first & older_deleted)


def _fill_nulls(rows: pa.Table, other: pa.Table, meta_source: pa.Table | None = None) -> pa.Table:
    """Return `rows` with nulls of data columns filled from `other`; meta columns come from `meta_source` if it is set."""
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        if is_meta_field(field.name):
            columns.append(column if meta_source is None else meta_source.column(field.name))
        elif column.null_count == 0:
            columns.append(column)
        else:
            columns.append(_coalesce(column, relabel_column(other.column(field.name), field)))
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in rows.schema]))


def _coalesce(column: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    missing = np.asarray(pc.is_null(column).combine_chunks(), dtype=np.bool_)
    count = len(missing)
    positions = np.arange(count, dtype=np.int64) + np.where(missing, count, 0)
    return pa.chunked_array([*column.chunks, *other.chunks], type=column.type).take(pa.array(positions))


def _older_is_larger(older: pa.Table, newer: pa.Table, ordering: Ordering, *, tie: bool = False) -> BoolMask:
    """Return where the older ordering value is larger (with `tie`, not smaller). A null is never larger."""
    if not ordering:
        return np.full(newer.num_rows, tie, dtype=np.bool_)
    if len(ordering.fields) > 1:
        first, second = ordering.values(older), ordering.values(newer)
        return newer_or_equal(second, first) if tie else ~newer_or_equal(first, second)
    compare = pc.greater_equal if tie else pc.greater
    larger = pc.fill_null(compare(ordering.values(older), ordering.values(newer)), False)
    return np.asarray(larger, dtype=np.bool_)


def _flags(mask: BoolMask | None, count: int) -> BoolMask:
    return np.zeros(count, dtype=np.bool_) if mask is None else mask


def _union(first: BoolMask | None, second: BoolMask) -> BoolMask | None:
    mask = second if first is None else first | second
    return mask if mask.any() else None


def _dms_deletes(rows: pa.Table) -> BoolMask | None:
    operation = pc.fill_null(pc.equal(pc.utf8_upper(_column(rows, _DMS_OPERATION)), "D"), False)
    return _union(delete_flags(rows), np.asarray(operation, dtype=np.bool_))


def _change_deletes(rows: pa.Table) -> BoolMask | None:
    operation = pc.fill_null(pc.equal(_column(rows, _CHANGE_TYPE), "d"), False)
    return _union(delete_flags(rows), np.asarray(operation, dtype=np.bool_))


def _binlog_positions(rows: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    parts = pc.extract_regex(_column(rows, MYSQL_POSITION), r"^(?P<file>[0-9]+)\.(?P<position>[0-9]+)$")
    return pc.struct_field(parts, "file").cast(pa.int64()), pc.struct_field(parts, "position").cast(pa.int64())


def _log_positions(rows: pa.Table) -> pa.ChunkedArray:
    positions = _column(rows, _POSTGRES_POSITION)
    if not pa.types.is_integer(positions.type):
        raise InvalidRequest(
            f"column {_POSTGRES_POSITION} has type {positions.type}: the table's payload class compares whole numbers; "
            "cast it to int64"
        )
    return positions.cast(pa.int64())


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in rows.column_names:
        raise InvalidRequest(f"the table's payload class requires column {name!r}; columns: {', '.join(rows.column_names)}")
    return rows.column(name)


_DELETES: dict[str, Callable[[pa.Table], BoolMask | None]] = {
    _DMS: _dms_deletes,
    MYSQL_PAYLOAD: _change_deletes,
    _POSTGRES: _change_deletes,
}

_MERGES: dict[str, Callable[[pa.Table, pa.Table, PayloadRule], Merged]] = {
    EVENT_TIME_PAYLOAD: _merge_event_time,
    _NON_DEFAULTS: _merge_non_defaults,
    _PARTIAL_UPDATE: _merge_partial_update,
    FIRST_VALUE_PAYLOAD: _merge_first_value,
    _DMS: _merge_dms,
    MYSQL_PAYLOAD: _merge_mysql,
    _POSTGRES: _merge_postgres,
}
