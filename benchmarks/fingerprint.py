"""Content of a table as a few numbers independent of row order: one definition for Arrow and for Spark SQL.

Every value of lineitem is weighted with a small number of its row's key, so a value in another row changes the sum:
    weight = (l_orderkey * 7 + l_linenumber) % 1009;  decimal = unscaled value;  date = days since 1970
    text   = 31 * length + 7 * code of the first letter + code of the last
    group  = sum over its columns and all rows of weight * value
Sums stay below 2^58 at scale 4. Any other table (id, part, ts, ...) is compared by row count and sum of ts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Fingerprint = dict[str, int]

# Column -> (group, kind). Together these are all columns of the table, in its order.
COLUMNS = {
    "l_orderkey": ("keys", "integer"),
    "l_partkey": ("numbers", "integer"),
    "l_suppkey": ("numbers", "integer"),
    "l_linenumber": ("keys", "integer"),
    "l_quantity": ("numbers", "decimal"),
    "l_extendedprice": ("numbers", "decimal"),
    "l_discount": ("numbers", "decimal"),
    "l_tax": ("numbers", "decimal"),
    "l_returnflag": ("text", "text"),
    "l_linestatus": ("text", "text"),
    "l_shipdate": ("dates", "date"),
    "l_commitdate": ("dates", "date"),
    "l_receiptdate": ("dates", "date"),
    "l_shipinstruct": ("text", "text"),
    "l_shipmode": ("text", "text"),
    "l_comment": ("text", "text"),
    "l_shipyear": ("partition", "text"),
    "ts": ("ordering", "integer"),
}
GROUPS = tuple(dict.fromkeys(group for group, _ in COLUMNS.values()))


def of_batches(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    """The fingerprint of Arrow batches with at least COLUMNS."""
    total = dict.fromkeys(("rows", "nulls", *GROUPS), 0)
    for batch in batches:
        total["rows"] += batch.num_rows
        for group, value in _terms(batch):
            total[group] += value
    return total


def of_rows(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    """Row count and sum of ts, for tables of another layout."""
    import pyarrow.compute as pc

    parts = [(batch.num_rows, pc.sum(batch.column("ts")).as_py() or 0) for batch in batches]
    return {"rows": sum(rows for rows, _ in parts), "ts": sum(ts for _, ts in parts)}


ROWS_SQL = ["count(*) as rows", "coalesce(sum(ts), 0L) as ts"]


def sql_expressions() -> list[str]:
    """`of_batches` in Spark SQL: one aggregate per group, named like it."""
    weight = "((l_orderkey * 7L + l_linenumber) % 1009L)"
    kinds = {
        "integer": "cast({0} as bigint)",
        "decimal": "cast({0} * 100 as bigint)",
        "date": "cast(unix_date({0}) as bigint)",
        "text": "(31L * length({0}) + 7L * ascii(substring({0}, 1, 1)) + ascii(substring({0}, -1, 1)))",
    }
    terms: dict[str, list[str]] = {group: [] for group in GROUPS}
    for column, (group, kind) in COLUMNS.items():
        terms[group].append(f"coalesce({kinds[kind].format(column)}, 0L)")
    sums = [f"coalesce(sum({weight} * ({' + '.join(values)})), 0L) as {group}" for group, values in terms.items()]
    nulls = " + ".join(f"(case when {column} is null then 1L else 0L end)" for column in COLUMNS)
    return ["count(*) as rows", f"coalesce(sum({nulls}), 0L) as nulls", *sums]


def _terms(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    import pyarrow as pa

    columns = {name: batch.column(name) for name in COLUMNS}
    keys = _integers(columns["l_orderkey"], "integer") * 7 + _integers(columns["l_linenumber"], "integer")
    weight = keys % 1009
    for name, (group, kind) in COLUMNS.items():
        column = columns[name]
        if kind == "text" and column.type != pa.string():
            column = column.cast(pa.string())
        yield "nulls", column.null_count
        yield group, int((weight * _integers(column, kind)).sum())


def _integers(column: pa.Array, kind: str) -> np.ndarray:
    """The int64 that stands for each value of a column; 0 for null."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "text":
        length = pc.utf8_length(column).cast(pa.int64())
        first, last = pc.utf8_slice_codeunits(column, 0, 1), pc.utf8_slice_codeunits(column, -1)
        values: np.ndarray = 31 * _filled(length) + 7 * _letters(first) + _letters(last)
        return values
    if kind == "decimal":
        whole = column.cast(pa.decimal128(15, 2)).fill_null(0)
        # Sixteen bytes little endian each, and no value here needs more than the lower eight.
        words: np.ndarray = np.frombuffer(whole.buffers()[1], dtype="<i8")
        return words[2 * whole.offset : 2 * (whole.offset + len(whole)) : 2]
    if kind == "date":
        column = column.cast(pa.date32()).cast(pa.int32())
    return _filled(column.cast(pa.int64()))


def _letters(column: pa.Array) -> np.ndarray:
    """The code of each one-letter string; 0 for null or empty. The letters are few, so each is looked at once."""
    import numpy as np
    import pyarrow as pa

    encoded = column.fill_null("").dictionary_encode()
    codes: np.ndarray = np.array(
        [ord(letter) if letter else 0 for letter in encoded.dictionary.to_pylist()] or [0], dtype=np.int64
    )
    found: np.ndarray = codes[encoded.indices.cast(pa.int64()).to_numpy(zero_copy_only=False)]
    return found


def _filled(column: pa.Array) -> np.ndarray:
    values: np.ndarray = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values
