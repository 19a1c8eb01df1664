"""Merge incoming rows into the rows of an old base file, one batch at a time.

Source: docs/formats/reading.md, "Merging".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.meta_columns import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, constant
from pyhudi.records.mergers import partial_merge
from pyhudi.records.ordering import BoolMask
from pyhudi.records.record_merge import Merged, RecordMergeRule, combine_to_array
from pyhudi.records.schema_cast import same_values
from pyhudi.tasks.cdc_writer import ChangeLog
from pyhudi.tasks.dictionary_columns import CODED, decode_dictionaries, replace_coded
from pyhudi.tasks.file_stats import KeyChanges
from pyhudi.tasks.row_layouts import completed_rows, key_only_deletes, stored_keys, stored_rows
from pyhudi.tasks.write_tasks import MergeTask, WriterSpec


@dataclass(slots=True)
class MergeCounts:
    """How many rows of a file a merge added, changed and deleted."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0


class RowMerger:
    """Merges incoming rows into the batches of one old file, one batch at a time."""

    def __init__(
        self,
        spec: WriterSpec,
        task: MergeTask,
        incoming: pa.Table,
        rule: RecordMergeRule,
        *,
        counts: MergeCounts,
        matched: BoolMask,
        changes: KeyChanges,
        log: ChangeLog | None,
    ) -> None:
        self._spec = spec
        self._log = log
        self._changes = changes
        self._task = task
        self._rule = rule
        self._counts = counts
        self._matched = matched
        self._incoming = incoming
        self._keys = incoming.column(RECORD_KEY).combine_chunks() if task.match_keys else pa.array([], pa.string())
        self._key_only = key_only_deletes(incoming)

    def merge(self, rows: pa.Table) -> pa.Table:
        """Return the batch for the new file."""
        if not len(self._keys):
            return rows
        matches = combine_to_array(pc.index_in(stored_keys(self._spec, rows), value_set=self._keys))
        hits = np.asarray(matches.is_valid(), dtype=np.bool_)
        if not hits.any():
            return rows
        positions = np.flatnonzero(hits)
        sources = np.asarray(matches.drop_null(), dtype=np.int64)
        self._matched[sources] = True
        older = decode_dictionaries(rows.take(pa.array(positions)))
        newer = self._incoming.take(pa.array(sources))
        key_only = None if self._key_only is None else self._key_only[sources]
        replaced, removed, values = self._decide(older, newer, key_only)
        stamped = self._counts.updates
        self._counts.updates += int(replaced.sum())
        self._counts.deletes += int(removed.sum())
        merged = rows
        if self._log is not None:
            self._log.update(self._keys.take(pa.array(sources[replaced])), older.filter(pa.array(replaced)), values)
            self._log.delete(self._keys.take(pa.array(sources[removed])), older.filter(pa.array(removed)))
        if replaced.any():
            mask = np.zeros(rows.num_rows, dtype=np.bool_)
            mask[positions[replaced]] = True
            stored = stored_rows(self._spec, values, self._task.token.partition, stamped)
            before = older if replaced.all() else older.filter(pa.array(replaced))
            merged = _overlay(rows, stored, mask, before)
        if removed.any():
            self._changes.add(self._keys.take(pa.array(sources[removed])), deleted=True)
            keep = np.ones(rows.num_rows, dtype=np.bool_)
            keep[positions[removed]] = False
            merged = merged.filter(pa.array(keep))
        return merged

    def _decide(self, older: pa.Table, newer: pa.Table, key_only: BoolMask | None) -> tuple[BoolMask, BoolMask, pa.Table]:
        if key_only is not None and key_only.all():
            return ~key_only, key_only, newer.slice(0, 0)
        partial = self._spec.partial
        data = self._spec.data_schema.names if partial is None else partial.data_schema.names
        if self._rule.selects_one_side:
            wins = self._rule.newer_wins(older.select(data), newer.select(data), key_only)
            soft_deletes = self._rule.deletes(newer)
            deleted = np.zeros(len(wins), dtype=np.bool_)
            if soft_deletes is not None:
                deleted |= soft_deletes
            if key_only is not None:
                deleted |= key_only
            replaced = wins & ~deleted
            values = newer.filter(pa.array(replaced))
            if partial is not None and replaced.any():
                values = completed_rows(self._spec, values, older.filter(pa.array(replaced)))
            return replaced, wins & deleted, values
        live = np.ones(newer.num_rows, dtype=np.bool_) if key_only is None else ~key_only
        all_columns = self._spec.data_schema.names
        if partial is not None and self._rule.filling is not None:
            newer, data = completed_rows(self._spec, newer, older), all_columns
        merge = self._rule.merge if len(data) == len(all_columns) else functools.partial(partial_merge, self._rule)
        # A custom merge rule gets the commit time of both rows, as in log merges. A row that it returns unchanged is no
        # update.
        times = [COMMIT_TIME] if self._rule.custom_merge and self._spec.populate_meta_fields else []
        stored = older.select([*all_columns, *times]).filter(pa.array(live))
        incoming = newer.select(data).filter(pa.array(live))
        if times:
            incoming = incoming.append_column(
                stored.schema.field(COMMIT_TIME), constant(self._spec.instant_time, incoming.num_rows)
            )
        outcome: Merged = merge(stored, incoming)
        if times:
            outcome = _unchanged_where_kept(outcome, stored, self._spec.instant_time)
        removed = np.ones(newer.num_rows, dtype=np.bool_)
        removed[live] = ~outcome.is_live
        replaced = np.zeros(newer.num_rows, dtype=np.bool_)
        replaced[live] = outcome.is_live & outcome.changed
        values = outcome.rows.filter(pa.array(outcome.is_live & outcome.changed))
        keyed = newer.select([RECORD_KEY, PARTITION_PATH]).filter(pa.array(replaced))
        for field in values.schema:
            keyed = keyed.append_column(field, values.column(field.name))
        return replaced, removed, keyed


def _unchanged_where_kept(outcome: Merged, stored_rows: pa.Table, instant_time: str) -> Merged:
    """Return the outcome without the commit times that identify unchanged stored rows."""
    # If the rule changed values of a row but kept the stored commit time, all such rows of the batch count as changed.
    times = outcome.rows.column(COMMIT_TIME)
    rows = outcome.rows.drop_columns([COMMIT_TIME])
    is_kept = pa.chunked_array(pc.fill_null(pc.not_equal(times, instant_time), False))
    is_whole = all(
        same_values(rows.column(name).filter(is_kept), stored_rows.column(name).filter(is_kept))
        for name in rows.column_names
        if name in stored_rows.column_names
    )
    changed = outcome.changed & ~np.asarray(is_kept, dtype=np.bool_) if is_whole else outcome.changed
    return replace(outcome, rows=rows, changed=changed)


def _overlay(rows: pa.Table, values: pa.Table, mask: BoolMask, before: pa.Table) -> pa.Table:
    """Replace the rows under the mask, in order, by the rows of `values`.  before: the replaced rows.

    Neither `values` nor `before` are dictionary-encoded. A column whose values do not change is not copied.
    """
    flags = pa.array(mask)
    gather: pa.Array | None = None
    columns: list[pa.Array | pa.ChunkedArray] = []
    for position, field in enumerate(rows.schema):
        fresh = combine_to_array(values.column(position))
        if _is_exact(fresh.type) and combine_to_array(before.column(position)).equals(fresh):
            columns.append(rows.column(position))
            continue
        column = combine_to_array(rows.column(position))
        if field.type == CODED:
            columns.append(replace_coded(column, mask, fresh))
        elif pa.types.is_nested(field.type):
            if gather is None:
                index = np.arange(len(mask), dtype=np.int64)
                index[mask] = len(mask) + np.arange(int(mask.sum()))
                gather = pa.array(index)
            columns.append(combine_to_array(pa.chunked_array([column, fresh]).take(gather)))
        else:
            columns.append(pc.replace_with_mask(column, flags, fresh))
    return pa.table(columns, schema=rows.schema)


def _is_exact(type_: pa.DataType) -> bool:
    """Return whether equal values of a type are identical; 0.0 and -0.0 are not."""
    return not (pa.types.is_floating(type_) or pa.types.is_nested(type_))
