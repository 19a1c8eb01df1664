"""Consistent-hashing metadata: bytes as Apache Hudi writes them, later versions, and invalid documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.features.consistent_hashing.hashing_metadata import (
    MAX_HASH,
    HashingNode,
    HashRing,
    NodeTag,
    hashing_path,
    initial_hashing_metadata,
    mark_path,
    parse_hashing_file,
)
from tests.support.golden_tables import open_golden


@pytest.mark.parametrize(
    ("partition", "nodes"),
    [
        (
            "p0",
            {
                536870912: "a1ba364b-fbde-3906-b865-53e4c35f3556",
                1073741824: "29428436-b4af-3680-bc5a-5ac61c04d8f0",
                1610612736: "28f89699-1b7e-3130-a371-646372cdf972",
                2147483647: "ddd512a0-10e2-31e7-b326-8550d5f6acf3",
            },
        ),
        ("", {1073741824: "a9ce6eae-46a4-38bf-9258-2a07d0a9b6bb", 2147483647: "7615f770-1c61-323c-bfc4-d5a37c3f2e39"}),
        (
            "2026/01/01",
            {
                715827883: "75515cb2-ef9f-3fc9-9053-086197adde62",
                1431655766: "46a698db-6d67-34c7-b07f-9078c016df38",
                2147483647: "0929c9df-2726-3c6c-b614-c3c4b4d63b78",
            },
        ),
    ],
)
def test_initial_hash_ring_equals_that_of_hudi(partition: str, nodes: dict[int, str]) -> None:
    ring = initial_hashing_metadata(partition, len(nodes))
    assert {node.value: node.prefix for node in ring.nodes} == nodes
    assert (ring.instant, ring.sequence, ring.first_count) == ("00000000000000", 0, len(nodes))


def test_hash_ring_files_of_hudi_are_rewritten_byte_for_byte(tmp_path: Path) -> None:
    root = open_golden("mor_consistent_bucket", tmp_path).path
    found = sorted((root / ".hoodie/.bucket_index").rglob("*.hashing_meta"))
    assert len(found) == 3
    for path in found:
        data = path.read_bytes()
        ring = HashRing.decode(data)
        assert ring.encode() == data
        assert initial_hashing_metadata(ring.partition, ring.first_count) == ring
        assert root / hashing_path(ring.partition, ring.instant) == path


def test_hash_ring_after_a_resize() -> None:
    ring = initial_hashing_metadata("p", 2)
    low, high = ring.nodes
    children = [
        HashingNode(7, "mid", NodeTag.REPLACE),
        HashingNode(low.value, "low", NodeTag.REPLACE),
        HashingNode(high.value, None, NodeTag.DELETE),
    ]
    after = ring.changed("20260101000000000", children)
    assert after.nodes == (HashingNode(7, "mid"), HashingNode(low.value, "low"))
    assert (after.sequence, after.first_count, after.instant) == (1, 2, "20260101000000000")
    assert HashRing.decode(after.encode()) == after


@given(st.integers(1, 3000))
def test_initial_hash_ring_ends_at_the_maximum_hash(count: int) -> None:
    assert initial_hashing_metadata("p", count).nodes[-1].value == MAX_HASH


@pytest.mark.parametrize(
    "change",
    [
        ('"seqNo" : 0', '"seqNo" : "x"'),
        ('"seqNo" : 0,', ""),
        ("536870912", "-1"),
        ("536870912", "2147483647"),
        ('"NORMAL"', '"REPLACE"'),
        ('"NORMAL"', '"OTHER"'),
        ('"a1ba364b-fbde-3906-b865-53e4c35f3556"', "null"),
        ('"nodes" : [', '"nodes" : [ ], "x" : ['),
        (
            "{",
            "[",
        ),
    ],
)
def test_invalid_hash_ring_is_corrupt(change: tuple[str, str]) -> None:
    text = initial_hashing_metadata("p0", 4).encode().decode()
    assert change[0] in text
    with pytest.raises(CorruptData):
        HashRing.decode(text.replace(change[0], change[1], 1).encode())


def test_truncated_hash_ring_is_corrupt() -> None:
    data = initial_hashing_metadata("p0", 2).encode()
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            HashRing.decode(data[:end])


def test_names() -> None:
    assert parse_hashing_file(hashing_path("a/b", "20260101000000000")) == ("20260101000000000", ".hashing_meta")
    assert parse_hashing_file(mark_path("", "00000000000000")) == ("00000000000000", ".commit")
    for name in ("1.hashing_meta", "00000000000000.hashing_meta.uuid", "00000000000000.hashing_config", "x.commit"):
        assert parse_hashing_file(name) is None
    for count in (0, -1, MAX_HASH + 1):
        with pytest.raises(InvalidRequest):
            initial_hashing_metadata("p", count)
