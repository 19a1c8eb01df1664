"""Validation of a record index in ranges of keys finds defects at the first and the last key of every range."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.metadata_table.codecs.metadata_partitions import RECORD_INDEX
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, encode_locations
from pyhudi.metadata_table.file_tasks import LogTask, MetadataFile, run_metadata_log
from pyhudi.metadata_table.indexes import record_index_check
from pyhudi.metadata_table.metadata_records import MetadataRecords, build_records, by_shard
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.records.hashing import key_shards
from pyhudi.table.snapshot import load_snapshot

ROWS = 6_000
GROUPS = 2
OTHER_FILE = "00000000-0000-0000-0000-000000000000-0"


@pytest.fixture(params=["base files", "base files and logs"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    # Several blocks of an HFile for each file group, a range for each of them, and several chunks of each slice.
    monkeypatch.setattr(record_index_check, "RANGE_CELLS", 500)
    monkeypatch.setattr(record_index_check, "CHUNK_ROWS", 1_000)
    options = {
        "hoodie.metadata.record.index.enable": True,
        "hoodie.metadata.record.index.min.filegroup.count": GROUPS,
        "hoodie.metadata.record.index.max.filegroup.count": GROUPS,
    }
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part", options=options)
    table.bulk_insert(rows(0, ROWS // 2))
    table.bulk_insert(rows(1, ROWS // 2))
    table.index.rebuild(RECORD_INDEX)
    if request.param != "base files":
        # Each slice has a local file of its own; otherwise all share one.
        monkeypatch.setattr(record_index_check, "_FILE_BYTES", 1)
        table.upsert(rows(ROWS, 200))
        table.delete(keys=rows(ROWS, 100).select(["id", "part"]))
    return table


def rows(first: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(first).permutation(np.arange(first, first + 2 * count, 2))
    return pa.table({"id": [f"key-{number:06}" for number in numbers], "part": [f"p{number % 3}" for number in numbers]})


def border_keys(table: Table) -> list[str]:
    """The first and the last key of each range of the index."""
    context = table.context.reloaded()
    metadata = MetadataTable(context, load_snapshot(context).timeline)
    keys = table.scan(columns=["id"]).to_arrow()["id"].combine_chunks()
    shards = key_shards(keys, GROUPS)
    result: list[str] = []
    for number, slice_ in enumerate(metadata.partition(RECORD_INDEX).slices):
        group_keys = sorted(keys.filter(pa.array(shards == number)).to_pylist())
        bounds = metadata.open_group(slice_).bounds(record_index_check.RANGE_CELLS)
        assert len(bounds) >= 2
        for start, stop in itertools.pairwise([None, *bounds, None]):
            inside = [k for k in group_keys if (start is None or k.encode() >= start) and (stop is None or k.encode() < stop)]
            assert inside
            result += {inside[0], inside[-1]}
    return result


def missing(keys: list[str]) -> MetadataRecords:
    return build_records(deletes=pa.array(keys))


def misplaced(keys: list[str]) -> MetadataRecords:
    return located(keys)


def additional(keys: list[str]) -> MetadataRecords:
    return located([f"{key}+" for key in keys])


def located(keys: list[str]) -> MetadataRecords:
    location = pa.RecordBatch.from_pylist([{"partition": "p0", "file_id": OTHER_FILE, "instant_ms": 1}], LOCATION_SCHEMA)
    return build_records(pa.array(keys), encode_locations(location.take(pa.array([0] * len(keys)))))


def add_to_index(table: Table, records: MetadataRecords) -> None:
    store = MetadataStore.open(table.context.reloaded())
    last = table.timeline().last_completed_write()
    assert last is not None
    for shard, piece in by_shard(records, GROUPS).items():
        file_id = store.groups.of(RECORD_INDEX)[shard].file_id
        file = MetadataFile(store.storage.spec(), RECORD_INDEX, file_id, last.request_time, "9-9-9")
        run_metadata_log(LogTask(file, piece))


def index_findings(table: Table) -> list[tuple[str, str]]:
    result = table.validate()
    return [(finding.path, finding.detail) for finding in result.findings if finding.check == RECORD_INDEX]


def test_sound_index(table: Table) -> None:
    result = table.validate()
    count = table.scan().to_arrow().num_rows
    assert result.ok
    assert dict(result.checks)[RECORD_INDEX] == f"{count:,} keys, {count:,} rows"


@pytest.mark.parametrize(
    ("damage", "text"), [(missing, "keys are missing: "), (misplaced, "keys have another location in the index: ")]
)
def test_every_first_and_last_key_of_a_range(table: Table, damage: Callable[[list[str]], MetadataRecords], text: str) -> None:
    keys = border_keys(table)
    stored = table.scan(columns=["_hoodie_record_key", "_hoodie_file_name"]).to_arrow()
    add_to_index(table, damage(keys))
    damaged = stored.filter(pc.is_in(stored["_hoodie_record_key"], value_set=pa.array(keys)))
    expected: dict[str, list[str]] = {}
    for row in damaged.to_pylist():
        expected.setdefault(row["_hoodie_file_name"].split("_")[0], []).append(row["_hoodie_record_key"])
    details = dict(detail.split(": ", 1) for _, detail in index_findings(table))
    assert set(details) == set(expected)
    for file_id, damaged_keys in expected.items():
        assert details[file_id].startswith(f"{len(damaged_keys)} {text}")
        # Scans return rows in the order of the file, and the finding names the first ones.
        first = ", ".join(map(repr, damaged_keys[:5])) + (", ..." if len(damaged_keys) > 5 else "")
        assert details[file_id].split(text)[1].split(";")[0] == first
        assert (OTHER_FILE in details[file_id]) is (damage is misplaced)


def test_additional_key_after_every_first_and_last_key_of_a_range(table: Table) -> None:
    keys = border_keys(table)
    count = table.scan().to_arrow().num_rows
    add_to_index(table, additional(keys))
    detail = f"has {count + len(keys)} keys, but the table has {count}: writers would treat new records as updates"
    assert index_findings(table) == [("", detail)]


def test_duplicate_keys_within_a_file_and_in_two_files(table: Table) -> None:
    """Within a file they are counted; the copy in another file is not where the index locates it."""
    keys = border_keys(table)[:3]
    before = table.scan().to_arrow().num_rows
    copies = pa.table({"id": [*keys, *keys[:1]], "part": ["p9"] * 4})
    table.bulk_insert(copies)
    findings = index_findings(table)
    slices = [slice_ for group in load_snapshot(table.context.reloaded()).slices().values() for slice_ in group]
    copied = next(slice_.file_id for slice_ in slices if slice_.partition == "p9")
    assert ("p9", f"{copied}: 1 duplicate keys") in findings
    named = [(path, detail) for path, detail in findings if "another location" in detail]
    # The index knows the last written location.
    assert sum(int(detail.split(": ")[1].split()[0]) for _, detail in named) == len(keys)
    assert all(path != "p9" and detail.endswith(f"the first in 'p9', {copied}") for path, detail in named)
    assert dict(table.validate().checks)[RECORD_INDEX] == f"{before:,} keys, {before + 3:,} rows"
