"""Key lookup: what SIMPLE finds, BLOOM finds, and how little BLOOM reads for it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.format.names import WriteToken, parse_base_file
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.storage import Storage
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.table.file_slices import BaseFile, FileSlice
from pyhudi.tasks import tag_location
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from pyhudi.tasks.tag_location import FileGroupCandidate, LookupByKeyColumns, LookupByKeyFilters, TagHits, TagTask, run_tag
from pyhudi.tasks.write_base_files import run_create, run_merge
from pyhudi.tasks.write_tasks import CreateTask, MergeTask
from tests.support.base_writer import KEYS, incoming, new_storage, spec

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
Pairs = set[tuple[str, int, int]]


def files(
    storage: Storage, contents: Sequence[Sequence[str]], *, populate: bool = True, options: dict[str, object] | None = None
) -> tuple[FileGroupCandidate, ...]:
    """One base file of each list of keys."""
    made = spec(storage, SCHEMA, populate=populate, options=options)
    found = []
    for number, keys in enumerate(contents):
        rows = incoming(pa.table({"id": pa.array(keys, pa.string()), "ts": pa.array([0] * len(keys), pa.int64())}))
        if not keys:
            # A file whose rows were all deleted.
            (status,) = run_create(made, CreateTask("", f"g{number}", WriteToken(0, 0, 0)), [one()])
            found.append(place(number, emptied(storage, populate, status.stat.path or "", number)))
            continue
        (created,) = run_create(made, CreateTask("", f"g{number}", WriteToken(0, 0, 0)), [rows])
        found.append(place(number, created.stat.path or ""))
    return tuple(found)


def place(number: int, path: str) -> FileGroupCandidate:
    name = parse_base_file(path)
    assert name is not None
    return FileGroupCandidate("", f"g{number}-0", FileSlice("", f"g{number}-0", "1", BaseFile(path, name, 1)))


def one() -> pa.Table:
    return incoming(pa.table({"id": ["x"], "ts": pa.array([0], pa.int64())}))


def emptied(storage: Storage, populate: bool, path: str, number: int) -> str:
    made = spec(storage, SCHEMA, "20260102000000000", populate=populate)
    gone = pa.table({"_hoodie_record_key": ["x"], "_hoodie_partition_path": [""], DELETE_COLUMN: [True]})
    return run_merge(made, MergeTask("", f"g{number}-0", path, WriteToken(0, 0, 0)), gone, made.rule).stat.path or ""


def pairs(hits: TagHits, keys: Sequence[str]) -> Pairs:
    return {(keys[r], f, p) for r, f, p in zip(hits.row.tolist(), hits.candidate.tolist(), hits.position.tolist(), strict=True)}


def task(
    storage: Storage, found: tuple[FileGroupCandidate, ...], *, bloom: bool, ranges: bool = True, populate: bool = True
) -> TagTask:
    return TagTask(storage.spec(), found, KEYS, populate, LookupByKeyFilters(ranges) if bloom else LookupByKeyColumns())


CONTENTS: tuple[list[str], ...] = (["b", "a", "c"], [], ["k", "a", "a"], ["m", "n"])
EXPECTED = {
    "a": {(0, 1), (2, 1), (2, 2)},
    "c": {(0, 2)},
    "k": {(2, 0)},
    "n": {(3, 1)},
    "d": set(),
}


@pytest.mark.parametrize("populate", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("bloom", [True, False])
@pytest.mark.parametrize("kind", ["SIMPLE", "DYNAMIC_V0"])
def test_every_copy_is_found(bloom: bool, ranges: bool, populate: bool, kind: str) -> None:
    storage = new_storage()
    found = files(storage, CONTENTS, populate=populate, options={"hoodie.bloom.index.filter.type": kind})
    wanted = task(storage, found, bloom=bloom, ranges=ranges, populate=populate)
    sets = [list(EXPECTED), ["m"], [], ["zz"]]
    first, second, third, fourth = run_tag(wanted, [pa.array(keys, pa.string()) for keys in sets])
    assert pairs(first, sets[0]) == {(key, f, p) for key, places in EXPECTED.items() for f, p in places}
    assert pairs(second, sets[1]) == {("m", 3, 0)}
    assert pairs(third, sets[2]) == pairs(fourth, sets[3]) == set()


def test_no_files() -> None:
    (hits,) = run_tag(task(new_storage(), (), bloom=False), [pa.array(["a"])])
    assert (len(hits.row), len(hits.candidate), len(hits.position)) == (0, 0, 0)


def test_many_keys_are_looked_up_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.tasks.tag_location.KEYS_PER_LOOKUP", 2)
    storage = new_storage()
    (hits,) = run_tag(task(storage, files(storage, CONTENTS), bloom=False), [pa.array(["a", "n"])])
    assert pairs(hits, ["a", "n"]) == {("a", 0, 1), ("a", 2, 1), ("a", 2, 2), ("n", 3, 1)}


def files_read(
    found: tuple[FileGroupCandidate, ...], inner: Storage, keys: list[str], *, bloom: bool, ranges: bool = True
) -> int:
    """How many files had their keys read."""
    read: list[int] = []
    original = tag_location._keys_in

    def noting(file: pq.ParquetFile, spec: KeySpec, *, populate_meta_fields: bool) -> pa.Array:
        read.append(file.metadata.num_rows)
        return original(file, spec, populate_meta_fields=populate_meta_fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tag_location, "_keys_in", noting)
        run_tag(task(inner, found, bloom=bloom, ranges=ranges), [pa.array(keys)])
    return len(read)


def test_footers_keep_files_from_being_read() -> None:
    storage = new_storage()
    found = files(storage, [["a", "c"], ["d", "e", "f"], ["g", "h", "i", "j"]])
    assert files_read(found, storage, ["e"], bloom=False) == 3
    assert files_read(found, storage, ["e"], bloom=True) == 1
    assert files_read(found, storage, ["e"], bloom=True, ranges=False) == 1
    # Between two keys of a file: its range holds the key, its filter does not.
    assert files_read(found, storage, ["b"], bloom=True) == 0
    assert files_read(found, storage, ["zz"], bloom=True) == 0


def test_files_without_footers_are_always_read() -> None:
    storage = new_storage()
    found = files(storage, [["a"], ["b"]], options={"hoodie.parquet.bloom.filter.enabled": False})
    (hits,) = run_tag(task(storage, found, bloom=True), [pa.array(["b", "z"])])
    assert pairs(hits, ["b", "z"]) == {("b", 1, 0)}


@pytest.mark.parametrize("bloom", [True, False])
def test_each_file_is_opened_once(bloom: bool) -> None:
    inner = new_storage()
    found = files(inner, CONTENTS)
    storage = FaultyStorage(inner)
    run_tag(task(storage, found, bloom=bloom), [pa.array(["a"])] * 5)
    assert [call.operation for call in storage.calls] == ["open_input"] * len(found)


@given(
    st.lists(st.lists(st.text("ab\uff01😀", max_size=3).filter(bool), max_size=5), max_size=4),
    st.sets(st.text("ab\uff01😀", max_size=3).filter(bool), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_against_a_scan(contents: list[list[str]], keys: set[str], bloom: bool, ranges: bool) -> None:
    storage = new_storage()
    asked = sorted(keys)
    (hits,) = run_tag(task(storage, files(storage, contents), bloom=bloom, ranges=ranges), [pa.array(asked, pa.string())])
    expected = {(key, f, p) for f, held in enumerate(contents) for p, key in enumerate(held) if key in keys}
    assert pairs(hits, asked) == expected
    assert len(hits.row) == len(expected)


@pytest.mark.parametrize(("least", "greatest"), [("z", "😀"), ("z", "\uff01")])
def test_bounds_by_another_order(least: str, greatest: str) -> None:
    """Apache Hudi takes the bounds by UTF-16 units in one of its writers, and by UTF-8 in the other."""
    assert tag_location._within(pa.array(["z", "\uff01", "😀"]), least, greatest).all()
    assert not tag_location._within(pa.array(["y", "aa"]), least, greatest).any()
