"""Point lookup: plan the query for the rows of given keys.

    record keys   strings as in `_hoodie_record_key`
    rows          the record key fields, and the partition fields too if a key is looked up only in its partition

A lookup is a snapshot query with a filter on keys, so it prunes files like any query: by the record index if there is
one; else by buckets, bloom filters and key ranges; and then by the key column, which is read before the others.

Source: docs/formats/writing.md, "Indexes used for writing"; docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import SnapshotQuery, load_latest_snapshot, plan_snapshot_query, table_schema
from pyhudi.planning.time_travel import parse_as_of
from pyhudi.records.column_statistics import stored_value
from pyhudi.records.filters.filter_ast import And, Compare, Constant, Expr, In, Or
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.keys.key_values import check_key_argument
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.schema_cast import conform
from pyhudi.records.utf8_checks import check_utf8
from pyhudi.table.key_form import has_two_forms
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.snapshot_cache import SnapshotCache
from pyhudi.table.table_context import TableContext
from pyhudi.table.tags import resolve_tag

MAX_COMBINATIONS = 1000
"""Maximum number of composite keys per lookup in a table without meta columns, which compares field by field."""


def plan_read_lookup(
    context: TableContext,
    keys: pa.Table | pa.StringArray,
    columns: Sequence[str] | None,
    settings: ReadSettings,
    *,
    as_of: str | None = None,
    values_from_path: bool = False,
    cached: SnapshotCache | None = None,
) -> SnapshotQuery:
    """Plan the query for the rows of some keys, each row once, in no order.

    Args:
        keys: Record keys as string array, or rows with at least the record key fields.
        columns: Output columns.
        settings: How files are found.
        as_of: Time travel.
        values_from_path: Read partition columns from the path.

    Raises:
        InvalidRequest: Keys are null, lack a key field, or cannot exist in the table.
        TableState: The table has no schema.
    """
    as_of = None if as_of is None else resolve_tag(context, as_of)
    if isinstance(keys, pa.Table):
        if as_of is None:
            snapshot = load_latest_snapshot(context, settings, cached)
        else:
            snapshot = load_snapshot(context, settings.listing, as_of=parse_as_of(as_of), external_files=settings.external_files)
        if snapshot.schema is None:
            raise TableState(f"the table at {context.storage.uri} has no commit yet, so there are no records to look up")
        config, schema = context.config, table_schema(snapshot, meta_columns=False)
        condition = _condition_of_rows(config.keys, keys, schema, has_meta_columns=config.populate_meta_fields)
    else:
        condition = _condition_of_texts(context, keys)
    return plan_snapshot_query(
        context, columns, condition, as_of=as_of, values_from_path=values_from_path, settings=settings, cached=cached
    )


def _condition_of_texts(context: TableContext, keys: pa.StringArray) -> Expr:
    if not len(keys):
        return Constant(False)
    if not context.config.populate_meta_fields:
        raise InvalidRequest(
            f"the table at {context.storage.uri} does not store record keys; pass rows with its key fields "
            f"({', '.join(context.config.keys.record_fields)})"
        )
    if keys.null_count:
        raise InvalidRequest("a record key is null")
    keys = _spellings(context.config.keys, keys)
    return In(RECORD_KEY, tuple(pc.unique(keys).to_pylist()))


def _spellings(spec: KeySpec, keys: pa.StringArray) -> pa.StringArray:
    """Return all stored forms of keys with one field: `value`, or `field:value`, depending on the writer."""
    if not has_two_forms(spec):
        return keys
    name = f"{spec.record_fields[0]}:"
    is_named = pc.starts_with(keys, name)
    named, values = keys.filter(is_named), keys.filter(pc.invert(is_named))
    bare = pc.utf8_slice_codeunits(named, len(name))
    return pa.concat_arrays([named, bare, values, pc.binary_join_element_wise(spec.record_fields[0], values, ":")])


def _condition_of_rows(spec: KeySpec, rows: pa.Table, schema: pa.Schema, *, has_meta_columns: bool) -> Expr:
    if spec.generates_keys:
        raise InvalidRequest("the table generates its record keys: look records up by `_hoodie_record_key`")
    fields = spec.record_fields
    missing = [name for name in fields if name.split(".")[0] not in rows.column_names]
    if missing:
        raise InvalidRequest(f"the keys lack the record key fields {', '.join(missing)}")
    places = [name for name in partition_columns(spec) if name.split(".")[0] in rows.column_names]
    if len(places) < len(partition_columns(spec)) or any("." in name for name in (*fields, *places)):
        places = []
    heads = list(dict.fromkeys(name.split(".")[0] for name in (*fields, *places)))
    key_schema = pa.schema([schema.field(name).with_nullable(True) for name in heads])
    for field in key_schema:
        check_key_argument(field.name, rows.schema.field(field.name).type, field.type)
    batches = [conform(batch, key_schema) for batch in rows.select(heads).combine_chunks().to_batches()]
    parts: list[Expr] = []
    for batch in batches:
        check_utf8(batch)
        texts = record_keys(spec, batch)
        for place, chosen in _by_partition(batch, places):
            by_key = _by_key(spec, batch.take(chosen), texts.take(chosen), has_meta_columns=has_meta_columns)
            parts.append(And((*place, by_key)) if place else by_key)
    if not parts:
        return Constant(False)
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _by_partition(batch: pa.RecordBatch, candidates: Sequence[str]) -> list[tuple[list[Expr], pa.Array]]:
    """Return the comparisons and the rows of each combination of partition values."""
    everything = pa.array(np.arange(batch.num_rows))
    if not candidates:
        return [([], everything)] if batch.num_rows else []
    if any(batch.column(name).null_count for name in candidates):
        raise InvalidRequest(f"a partition field of a key is null: {', '.join(candidates)}")
    table = pa.table({name: batch.column(name) for name in candidates}).append_column("\x00row", everything)
    groups = table.group_by(list(candidates), use_threads=False).aggregate([("\x00row", "list")])
    return [
        (
            [Compare(name, "=", filter_literal(groups.column(name)[row])) for name in candidates],
            groups.column("\x00row_list")[row].values,
        )
        for row in range(groups.num_rows)
    ]


def _by_key(spec: KeySpec, batch: pa.RecordBatch, texts: pa.StringArray, *, has_meta_columns: bool) -> Expr:
    fields = spec.record_fields
    if len(fields) == 1 and "." not in fields[0]:
        # Compare the field itself: the stored form of a key with one field depends on the version that wrote it.
        return In(fields[0], tuple(filter_literal(scalar) for scalar in pc.unique(batch.column(fields[0]))))
    if has_meta_columns:
        return In(RECORD_KEY, tuple(pc.unique(texts).to_pylist()))
    if batch.num_rows > MAX_COMBINATIONS or any("." in name for name in fields):
        raise InvalidRequest(
            f"the table does not store record keys, which limits a lookup to {MAX_COMBINATIONS} keys of several "
            "fields; use fewer keys"
        )
    each = [
        And(tuple(Compare(name, "=", filter_literal(batch.column(name)[row])) for name in fields))
        for row in range(batch.num_rows)
    ]
    return Or(tuple(each)) if len(each) > 1 else each[0]


def filter_literal(scalar: pa.Scalar) -> object:
    """Convert a scalar to a filter literal."""
    type_ = scalar.type
    return scalar.as_py() if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else stored_value(scalar)
