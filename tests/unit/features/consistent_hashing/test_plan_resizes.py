"""Resize plans: which buckets split or merge, and names of the new ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.features.consistent_hashing.hashing_metadata import (
    MAX_HASH,
    HashingNode,
    HashRing,
    NodeTag,
    decode_nodes,
    encode_nodes,
    initial_hashing_metadata,
)
from pyhudi.features.consistent_hashing.plan_resizes import ResizeGroup, ResizeRules, plan_resize
from pyhudi.format.names import BaseFileName
from pyhudi.options.supported import parse_options
from pyhudi.table.file_slices import BaseFile, FileSlice

INSTANT = "20260101000000000"


def uuids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012}"


def slices(ring: HashRing, sizes: Sequence[int | None]) -> list[FileSlice]:
    """One for each node, of so many bytes; None for a node that has none."""
    found = []
    for node, size in zip(ring.nodes, sizes, strict=True):
        if size is not None:
            base = BaseFile("p/file", BaseFileName(node.file_id, "0-0-0", INSTANT, ".parquet"), size)
            found.append(FileSlice("p", node.file_id, INSTANT, base))
    return found


def planned(ring: HashRing, sizes: Sequence[int | None], **rules: int) -> list[tuple[list[int], list[tuple[int, NodeTag]]]]:
    """For each group the places of its nodes, and those that take their place."""
    given = ResizeRules(**{"split_bytes": 100, "merge_bytes": 10, "min_nodes": 1, "max_nodes": 8, **rules})
    groups = plan_resize(ring, slices(ring, sizes), given, uuids())
    place = {node.file_id: node.value for node in ring.nodes}
    check(ring, groups)
    return [([place[s.file_id] for s in g.slices], [(node.value, node.tag) for node in g.change.nodes]) for g in groups]


def check(ring: HashRing, groups: Sequence[ResizeGroup]) -> None:
    """Every group splits its own range, and no more; the hashing metadata stays complete."""
    after = ring.changed(INSTANT, (node for group in groups for node in group.change.nodes))
    for group in groups:
        assert group.change.sequence == ring.sequence
        assert {node.value for node in group.change.new_nodes} <= {node.value for node in after.nodes}
    files = [slice_.file_id for group in groups for slice_ in group.slices]
    assert len(set(files)) == len(files)
    assert after.sequence == ring.sequence + 1


COMES, GOES = NodeTag.REPLACE, NodeTag.DELETE
FOUR = initial_hashing_metadata("p", 4)
A, B, C, D = (node.value for node in FOUR.nodes)


def test_large_nodes_split_half_way() -> None:
    assert planned(FOUR, [50, 101, 50, 100]) == [
        ([B], [((A + B) // 2, COMES), (B, COMES)]),
        ([A], [(A, COMES)]),
        ([C], [(C, COMES)]),
        ([D], [(D, COMES)]),
    ]
    # The first one's half lies between the last, which is the greatest hash, and itself.
    assert planned(FOUR, [101, 50, 50, 50])[0] == ([A], [((A - 1) // 2, COMES), (A, COMES)])


def test_the_most_nodes() -> None:
    groups = planned(FOUR, [101, 101, 101, 101], max_nodes=6)
    assert [len(nodes) for _, nodes in groups] == [2, 2, 1, 1]
    assert all(len(nodes) == 1 for _, nodes in planned(FOUR, [101] * 4, max_nodes=4))


def test_single_node_splits_at_the_opposite_hash() -> None:
    one = HashRing("p", INSTANT, 1, 3, (HashingNode(A, "11111111-1111-1111-1111-111111111111"),))
    assert planned(one, [101]) == [([A], [((A + (1 << 30)) % (1 << 31), COMES), (A, COMES)])]
    last = HashRing("p", INSTANT, 1, 3, (HashingNode(MAX_HASH, "11111111-1111-1111-1111-111111111111"),))
    assert planned(last, [101])[0][1][0] == ((MAX_HASH + (1 << 30)) % (1 << 31), COMES)


def test_adjacent_nodes_do_not_split() -> None:
    close = HashRing("p", INSTANT, 2, 0, (HashingNode(7, "1" * 8), HashingNode(8, "2" * 8)))
    assert planned(close, [5, 101], merge_bytes=0) == [([7], [(7, COMES)]), ([8], [(8, COMES)])]


def test_small_adjacent_nodes_merge_around_the_ring() -> None:
    """As Apache Hudi's plan for four small nodes: from the first one backward all the way round."""
    assert planned(FOUR, [1, 1, 1, 1]) == [([B, C, D, A], [(B, GOES), (C, GOES), (D, GOES), (A, COMES)])]
    assert planned(FOUR, [50, 5, 5, 50]) == [([B, C], [(B, GOES), (C, COMES)]), ([A], [(A, COMES)]), ([D], [(D, COMES)])]
    assert planned(FOUR, [1, 50, 50, 1])[0] == ([D, A], [(D, GOES), (A, COMES)])
    # What was gathered stays within the limit before the next one joins, which may take it beyond.
    assert planned(FOUR, [50, 10, 10, 10], min_nodes=1)[0] == ([B, C], [(B, GOES), (C, COMES)])


def test_the_fewest_nodes() -> None:
    assert planned(FOUR, [1, 1, 1, 1], min_nodes=3)[0] == ([D, A], [(D, GOES), (A, COMES)])
    assert all(len(nodes) == 1 for _, nodes in planned(FOUR, [1] * 4, min_nodes=4))
    # A node that splits makes room for one more that goes.
    groups = planned(FOUR, [1, 1, 101, 50], min_nodes=4)
    assert ([A, B], [(A, GOES), (B, COMES)]) in groups


def test_nodes_without_files_stay() -> None:
    assert planned(FOUR, [1, None, 1, 50]) == [([A], [(A, COMES)]), ([C], [(C, COMES)]), ([D], [(D, COMES)])]
    assert planned(FOUR, [None] * 4) == []


def test_nodes_of_plans() -> None:
    nodes = (HashingNode(5, None, GOES), HashingNode(9, "a1ba364b-fbde-3906-b865-53e4c35f3556", COMES))
    text = encode_nodes(nodes)
    assert text == (
        '[ {\n  "value" : 5,\n  "fileIdPrefix" : null,\n  "tag" : "DELETE"\n}, {\n  "value" : 9,\n'
        '  "fileIdPrefix" : "a1ba364b-fbde-3906-b865-53e4c35f3556",\n  "tag" : "REPLACE"\n} ]'
    )
    assert decode_nodes(text) == nodes
    for wrong in ("", "[1]", "{}", text.replace("DELETE", "NORMAL"), text.replace("REPLACE", "DELETE"), text[:-30]):
        with pytest.raises(CorruptData):
            decode_nodes(wrong)


def test_rules_from_options() -> None:
    options = {"hoodie.bucket.index.num.buckets": 4, "hoodie.parquet.max.file.size": 1000}
    assert ResizeRules.of(parse_options(options)) == ResizeRules(2000, 200, 4, 4)
    given = {"hoodie.bucket.index.max.num.buckets": 8, "hoodie.bucket.index.min.num.buckets": 2}
    more = {"hoodie.bucket.index.split.threshold": 0.5, "hoodie.bucket.index.merge.threshold": 0}
    assert ResizeRules.of(parse_options({**options, **given, **more})) == ResizeRules(500, 0, 2, 8)
    for wrong in ({"min": 5}, {"max": 3}, {"min": 0}):
        bad = {f"hoodie.bucket.index.{name}.num.buckets": value for name, value in wrong.items()}
        with pytest.raises(InvalidRequest, match=r"num\.buckets"):
            ResizeRules.of(parse_options({**options, **bad}))
