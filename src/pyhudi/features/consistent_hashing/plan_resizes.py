"""Plan resizes of consistent hashing buckets: which nodes of a partition split, which merge, and which get a new file group.

    1. split   a node whose slice exceeds the split limit, half-way between the preceding node and itself, while the
               number of nodes is below the maximum
    2. merge   in ascending order, each slice within the merge limit with its neighbours, first preceding, then
               following ones, while they and the merged total are within the limit, down to the minimum number of nodes
    3. sort    every other slice is rewritten unchanged, into a file group of a new id

Slices hold the rows of nodes; a node without slice stays unchanged, and ends a merge.

Pure: metadata, slices and rules in, groups of slices with the nodes that replace them out.

Source: docs/formats/writing.md, "Resizing consistent hashing buckets".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.features.consistent_hashing.hashing_metadata import MAX_HASH, HashingNode, HashRing, NodeTag
from pyhudi.features.consistent_hashing.hashing_routing import MAX_NODES
from pyhudi.options import service_options
from pyhudi.options.declaration import Options
from pyhudi.options.index_options import BUCKET_COUNT
from pyhudi.options.write_options import MAX_FILE_SIZE
from pyhudi.table.file_slices import FileSlice


@dataclass(frozen=True, slots=True)
class ResizeRules:
    """When nodes split and merge. split_bytes, merge_bytes: limits for slices; min_nodes, max_nodes: limits of the
    number of nodes.
    """

    split_bytes: Annotated[int, service_options.BUCKET_INDEX_SPLIT_THRESHOLD, MAX_FILE_SIZE]
    merge_bytes: Annotated[int, service_options.BUCKET_INDEX_MERGE_THRESHOLD, MAX_FILE_SIZE]
    min_nodes: Annotated[int, service_options.BUCKET_INDEX_MIN_NUM_BUCKETS, BUCKET_COUNT]
    max_nodes: Annotated[int, service_options.BUCKET_INDEX_MAX_NUM_BUCKETS, BUCKET_COUNT]

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes <= MAX_NODES:
            raise InvalidRequest(
                f"{service_options.BUCKET_INDEX_MIN_NUM_BUCKETS}={self.min_nodes} and "
                f"{service_options.BUCKET_INDEX_MAX_NUM_BUCKETS}={self.max_nodes} have to rise, from 1 to {MAX_NODES}; "
                f"unset, they are {BUCKET_COUNT}"
            )
        if self.split_bytes < 0 or self.merge_bytes < 0:
            raise InvalidRequest(
                f"{service_options.BUCKET_INDEX_SPLIT_THRESHOLD} and {service_options.BUCKET_INDEX_MERGE_THRESHOLD} "
                "have to be 0 or more"
            )

    @classmethod
    def of(cls, options: Options) -> ResizeRules:
        """Build from checked options."""
        largest, count = options.integer(MAX_FILE_SIZE), options.integer(BUCKET_COUNT)
        fewest, most = (
            None if options.explicit(o) is None else options.integer(o)
            for o in (service_options.BUCKET_INDEX_MIN_NUM_BUCKETS, service_options.BUCKET_INDEX_MAX_NUM_BUCKETS)
        )
        return cls(
            split_bytes=int(options.number(service_options.BUCKET_INDEX_SPLIT_THRESHOLD) * largest),
            merge_bytes=int(options.number(service_options.BUCKET_INDEX_MERGE_THRESHOLD) * largest),
            min_nodes=count if fewest is None else fewest,
            max_nodes=count if most is None else most,
        )


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Replacement of some nodes.  nodes: added and removed ones; sequence: of the metadata that they belong to."""

    nodes: tuple[HashingNode, ...]
    sequence: int

    @property
    def new_nodes(self) -> tuple[HashingNode, ...]:
        """The nodes that receive rows."""
        return tuple(node for node in self.nodes if node.prefix is not None)


@dataclass(frozen=True, slots=True)
class ResizeGroup:
    """Slices that are rewritten together, and the change of their nodes."""

    slices: tuple[FileSlice, ...]
    change: NodeChange


def plan_resize(
    ring: HashRing, slices: Iterable[FileSlice], rules: ResizeRules, new_uuid: Callable[[], str]
) -> tuple[ResizeGroup, ...]:
    """Plan how the nodes of a partition change.  slices: those that may be rewritten, each of a node of the metadata."""
    by_file_id = {node.file_id: node for node in ring.nodes}
    placed = sorted(((by_file_id[slice_.file_id].value, slice_) for slice_ in slices), key=lambda entry: entry[0])
    groups: list[ResizeGroup] = []
    left: list[tuple[int, FileSlice]] = []
    splits = 0
    for value, slice_ in placed:
        middle = _middle(ring, value)
        if slice_.size_bytes > rules.split_bytes and len(ring.nodes) + splits < rules.max_nodes and middle is not None:
            splits += 1
            groups.append(_resized(ring, [slice_], [_new_node(middle, new_uuid), _new_node(value, new_uuid)]))
        else:
            left.append((value, slice_))
    merged: set[int] = set()
    for run in _runs(ring, left, rules.merge_bytes, len(ring.nodes) - rules.min_nodes + splits):
        going = [HashingNode(left[at][0], None, NodeTag.DELETE) for at in run[:-1]]
        groups.append(_resized(ring, [left[at][1] for at in run], [*going, _new_node(left[run[-1]][0], new_uuid)]))
        merged.update(run)
    for at, (value, slice_) in enumerate(left):
        if at not in merged:
            groups.append(_resized(ring, [slice_], [_new_node(value, new_uuid)]))
    return tuple(groups)


def _resized(ring: HashRing, slices: Sequence[FileSlice], nodes: Sequence[HashingNode]) -> ResizeGroup:
    return ResizeGroup(tuple(slices), NodeChange(tuple(nodes), ring.sequence))


def _new_node(value: int, new_uuid: Callable[[], str]) -> HashingNode:
    return HashingNode(value, new_uuid(), NodeTag.REPLACE)


def _middle(ring: HashRing, value: int) -> int | None:
    """The hash value half-way between the previous node and this one, or None if the two are adjacent."""
    former = ring.former_value(value)
    around = MAX_HASH + 1 if former >= value else 0
    middle = ((former + value + around) >> 1) & MAX_HASH
    return None if middle in (former, value) else middle


def _runs(ring: HashRing, remaining: Sequence[tuple[int, FileSlice]], limit_bytes: int, most: int) -> list[list[int]]:
    """Runs of adjacent nodes to merge, as indices of `remaining` in hash order. most: maximum number of removed nodes."""
    runs: list[list[int]] = []
    taken: set[int] = set()
    for begin, (_, slice_) in enumerate(remaining):
        if begin in taken or slice_.size_bytes > limit_bytes:
            continue
        run, total = [begin], slice_.size_bytes
        for step in (-1, 1):
            while most > 0 and total <= limit_bytes:
                end = run[0] if step < 0 else run[-1]
                at = (end + step) % len(remaining)
                earlier, later = (at, end) if step < 0 else (end, at)
                is_neighbour = ring.former_value(remaining[later][0]) == remaining[earlier][0]
                if at in run or at in taken or not is_neighbour or remaining[at][1].size_bytes > limit_bytes:
                    break
                run.insert(0, at) if step < 0 else run.append(at)
                total += remaining[at][1].size_bytes
                most -= 1
        if len(run) > 1:
            runs.append(run)
            taken.update(run)
    return runs
