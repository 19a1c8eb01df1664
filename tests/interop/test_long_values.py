"""Short bounds of long texts in statistics: Apache Hudi finds rows at their borders, and both write on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from tests.interop.oracle import ApacheHudi

pytestmark = pytest.mark.interop

TEXTS = ("a" * 255, "a" * 251 + "b", "a" * 300 + "x", "a" * 20_000, "é" * 5000, "\U0001f600" * 2000, "b")
SKIPPING = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}


def write(path: Path, version: int) -> hp.Table:
    """One file for each text, in partitions of two."""
    options = {"hoodie.write.table.version": version}
    table = hp.Table.create(path, name="t", record_key="id", partition_by="p", ordering="ts", options=options)
    for number, text in enumerate(TEXTS):
        rows = {"id": [f"k{number}"], "p": [f"p{number % 2}"], "ts": [1], "text": [text]}
        table.bulk_insert(pa.table(rows))
    return hp.Table(path)


@pytest.mark.parametrize(("release", "version"), [("apache_hudi", 8), ("real_newer_hudi", 9)])
def test_hudi_finds_rows_at_the_borders_of_short_bounds(
    release: str, version: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    hudi: ApacheHudi = request.getfixturevalue(release)
    path = tmp_path / "t"
    table = write(path, version)
    filters = {f"text {op} '{text}'": (op, text) for text in (*TEXTS, "a" * 252) for op in ("=", "<", ">=")}
    found = hudi.read_each(path, list(filters), **SKIPPING)
    for (op, border), rows in zip(filters.values(), found, strict=True):
        expected = {
            "=": [text for text in TEXTS if text == border],
            "<": [text for text in TEXTS if text < border],
            ">=": [text for text in TEXTS if text >= border],
        }[op]
        assert sorted(rows["text"].to_pylist()) == sorted(expected), (op, border[:4], len(border))
    update = pa.table({"id": ["k0", "k1"], "p": ["p0", "p1"], "ts": [2, 2], "text": ["a" * 400, "c" * 400]})
    options: dict[str, Any] = {
        **SKIPPING,
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.write.table.version": version,
        "hoodie.metadata.index.column.stats.enable": True,
        "hoodie.metadata.index.partition.stats.enable": True,
    }
    hudi.write(update, path, **options)
    table = hp.Table(path)
    assert table.validate().ok, str(table.validate())
    for text in ("a" * 400, "c" * 400, "é" * 5000):
        assert table.scan(filter=("text", "=", text)).count() == 1
    table.upsert(update)
    assert table.validate().ok and table.count() == len(TEXTS)
