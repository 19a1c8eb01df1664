from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.planning.bucket_routing import BucketLayout
from pyhudi.planning.data_skipping import key_hashes
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import And, Compare
from pyhudi.records.hashing import bucket_hashes
from pyhudi.records.keys.key_spec import KeyGenerator, KeySpec, PartitionField
from pyhudi.records.keys.record_keys import record_keys

SCHEMA = pa.schema({"n": pa.int32(), "item": pa.string(), "flag": pa.bool_(), "day": pa.string()})
VALUES: dict[str, list[Any]] = {
    "n": [0, -7, 12, None],
    "item": ["pen", "", "__null__", "__empty__", "null", "é😀", None],
    "flag": [True, False, None],
}


def key_spec(fields: tuple[str, ...], form: str) -> KeySpec:
    if form == "GLOBAL_DELETE":
        return KeySpec(KeyGenerator.GLOBAL_DELETE, fields)
    return KeySpec(KeyGenerator.COMPLEX, fields, (PartitionField("day"),), prefix_single_key=form == "prefixed")


@pytest.mark.parametrize("form", ["bare", "prefixed", "GLOBAL_DELETE"])
@pytest.mark.parametrize(
    ("fields", "hashed"),
    [
        (("n",), ()),
        (("item",), ("item",)),
        (("n", "item"), ()),
        (("n", "item"), ("n",)),
        (("n", "item"), ("item",)),
        (("n", "item"), ("item", "n")),
        (("n", "item", "flag"), ("flag", "item")),
    ],
)
def test_hashes_of_a_filter_include_those_of_its_rows(fields: tuple[str, ...], hashed: tuple[str, ...], form: str) -> None:
    spec, layout = key_spec(fields, form), BucketLayout(8, hashed)
    determined = 0
    for values in product(*(VALUES[name] for name in fields)):
        row = dict(zip(fields, values, strict=True))
        if all(value in (None, "") for value in values):
            continue
        batch = pa.RecordBatch.from_pydict({name: pa.array([row[name]], SCHEMA.field(name).type) for name in fields})
        stored = bucket_hashes(record_keys(spec, batch), fields, hashed).tolist()
        literals = {name: row[name] for name in hashed or fields}
        if None in literals.values():
            continue
        condition = bind(And(tuple(Compare(name, "=", value) for name, value in literals.items())), SCHEMA)
        hashes = key_hashes(condition, spec, SCHEMA, layout)
        assert hashes is None or set(hashes) >= set(stored), row
        determined += hashes is not None
    assert determined
