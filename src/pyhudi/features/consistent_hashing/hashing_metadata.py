"""Consistent hashing metadata: which file group of a partition takes the hash of a record key.

    node       a hash value, 1 to 2^31 - 1, and the prefix of the file id that takes the hashes up to it
    metadata   the nodes of one partition in ascending order; hashes beyond the last node go to the first
    files      below `HASHING_FOLDER`, in a folder named as the partition:
               <instant>.hashing_meta   metadata as JSON, in Jackson's spacing; the first one's instant is fourteen
                                        zeros
               <instant>.commit         empty: that metadata is committed

While a resize is pending, writes put the rows of its nodes into logs of two file groups: `.<old>_<own
instant>.log.1_<token>`, and for the new node `.<new>_<instant of the resize>.log.<n>_<token>`, whose blocks hold the
write's instant. Readers see the second one from the completion of the resize on, when the first is replaced.

The initial metadata depends only on the partition's path and the number of its nodes, so that writers who create a
partition concurrently create the same one. A resize stores new metadata; `features.consistent_hashing.hashing_store`
decides which is valid.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import md5
from itertools import pairwise
from typing import Any

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.json_document import jackson_text, parse_json
from pyhudi.format.names import format_file_id, parse_log_file
from pyhudi.format.paths import HASHING_FOLDER, file_name, join_path

MAX_HASH = (1 << 31) - 1
"""The largest hash, and the value of the last initial node."""

FIRST_INSTANT = "00000000000000"
"""Instant of the initial metadata of a partition."""

RING_SUFFIX = ".hashing_meta"
MARK_SUFFIX = ".commit"

_FILE = re.compile(r"([0-9]{14}|[0-9]{17})(\.hashing_meta|\.commit)")


class NodeTag(StrEnum):
    """State of a node: NORMAL in stored metadata, the others in the plan of a resize."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class HashingNode:
    """A node.  prefix: of the file id of its group; None for one that a resize removes."""

    value: int
    prefix: str | None
    tag: NodeTag = NodeTag.NORMAL

    @property
    def file_id(self) -> str:
        """The file id of the node's group."""
        if self.prefix is None:
            raise InvalidRequest(f"node {self.value} is removed by the resize, and has no file group")
        return format_file_id(self.prefix, 0)


@dataclass(frozen=True, slots=True)
class HashRing:
    """Consistent hashing metadata of a partition: nodes in ascending order, and the instant that created it.

    first_count: initial number of nodes, unchanged by resizes.  sequence: 0, incremented by each resize.
    """

    partition: str
    instant: str
    first_count: int
    sequence: int
    nodes: tuple[HashingNode, ...]

    def __post_init__(self) -> None:
        values = [node.value for node in self.nodes]
        if not values or any(low >= high for low, high in pairwise(values)):
            raise CorruptData(f"consistent hashing metadata has nodes at {values}, which must be ascending")
        if not 0 <= values[0] <= values[-1] <= MAX_HASH:
            raise CorruptData(f"consistent hashing metadata has nodes at {values}, which must be from 0 to {MAX_HASH}")
        if any(node.prefix is None or node.tag is not NodeTag.NORMAL for node in self.nodes):
            raise CorruptData("consistent hashing metadata holds a node of a pending resize")

    @property
    def file_ids(self) -> tuple[str, ...]:
        """The file id of each node."""
        return tuple(node.file_id for node in self.nodes)

    def changed(self, instant: str, children: Iterable[HashingNode]) -> HashRing:
        """Return the metadata after a resize.  children: added, replaced and removed nodes."""
        nodes = {node.value: node for node in self.nodes}
        for child in children:
            if child.tag is NodeTag.DELETE:
                nodes.pop(child.value, None)
            else:
                nodes[child.value] = replace(child, tag=NodeTag.NORMAL)
        ordered = tuple(nodes[value] for value in sorted(nodes))
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=ordered)

    def encode(self) -> bytes:
        """Encode as JSON, byte by byte as Hudi does."""
        document = {
            "version": 0,
            "partitionPath": self.partition,
            "instant": self.instant,
            "numBuckets": self.first_count,
            "seqNo": self.sequence,
            "nodes": [_document(node) for node in self.nodes],
        }
        return jackson_text(document).encode()

    def former_value(self, value: int) -> int:
        """Return the value of the preceding node; that of the last for the first, and its own for a single node."""
        values = [node.value for node in self.nodes]
        return values[values.index(value) - 1]

    @classmethod
    def decode(cls, data: bytes) -> HashRing:
        """Decode JSON.  Raises CorruptData for invalid metadata."""
        document = parse_json(data, "the ring of a partition is")
        try:
            return cls(
                partition=_typed(document["partitionPath"], str),
                instant=_typed(document["instant"], str),
                first_count=_typed(document["numBuckets"], int),
                sequence=_typed(document["seqNo"], int),
                nodes=tuple(_node(entry) for entry in _typed(document["nodes"], list)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"consistent hashing metadata lacks a field, or has one of another type: {error!r}") from error


def initial_hashing_metadata(partition: str, count: int) -> HashRing:
    """Return the initial metadata of a partition.  count: its nodes, at least 1."""
    if not 1 <= count <= MAX_HASH:
        raise InvalidRequest(f"a partition with consistent hashing has at least one node, not {count}")
    step = -(-MAX_HASH // count)
    ends = [min(step * number, MAX_HASH) for number in range(1, count + 1)]
    if len(set(ends)) < count:
        raise InvalidRequest(f"a partition with consistent hashing cannot have {count} nodes")
    nodes = []
    start = 0
    for end in ends:
        seed = start.to_bytes(8, "big") + end.to_bytes(8, "big") + partition.encode()
        nodes.append(HashingNode(end, _name_uuid(seed)))
        start = end
    return HashRing(partition, FIRST_INSTANT, count, 0, tuple(nodes))


def encode_nodes(nodes: Iterable[HashingNode]) -> str:
    """Encode added and removed nodes for the plan of a resize."""
    return jackson_text([_document(node) for node in nodes])


def decode_nodes(text: str) -> tuple[HashingNode, ...]:
    """Decode the nodes in the plan of a resize.  Raises CorruptData for invalid ones."""
    document = parse_json(text.encode(), "the nodes in the plan of a resize are")
    try:
        nodes = tuple(_node(entry) for entry in _typed(document, list))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"a node in the plan of a resize lacks a field, or has one of another type: {error!r}") from error
    if any((node.prefix is None) != (node.tag is NodeTag.DELETE) or node.tag is NodeTag.NORMAL for node in nodes):
        raise CorruptData(f"nodes in the plan of a resize are neither added nor removed: {text[:200]}")
    return nodes


def is_copy(path: str, instant_time: str) -> bool:
    """Whether a log file that a write created, from table version 8 on, is a duplicate for a pending resize:
    its name holds the resize's instant.
    """
    name = parse_log_file(file_name(path))
    return name is not None and name.instant_time != instant_time


def hashing_folder(partition: str) -> str:
    """Return the folder of a partition's consistent hashing metadata."""
    return join_path(HASHING_FOLDER, partition)


def hashing_path(partition: str, instant: str) -> str:
    """Return the path of the metadata that an instant created."""
    return f"{hashing_folder(partition)}/{instant}{RING_SUFFIX}"


def mark_path(partition: str, instant: str) -> str:
    """Return the path of the marker that the metadata of an instant is committed."""
    return f"{hashing_folder(partition)}/{instant}{MARK_SUFFIX}"


def parse_hashing_file(path: str) -> tuple[str, str] | None:
    """Return instant and suffix of a file in a metadata folder; None for any other file."""
    match = _FILE.fullmatch(file_name(path))
    return None if match is None else (match[1], match[2])


# ---------------------------------------------------------------------------------------------------------------------


def _name_uuid(name: bytes) -> str:
    """Java's UUID of a name: MD5, marked as version 3 of the usual variant."""
    digest = bytearray(md5(name, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _document(node: HashingNode) -> Mapping[str, Any]:
    return {"value": node.value, "fileIdPrefix": node.prefix, "tag": node.tag.value}


def _node(entry: Mapping[str, Any]) -> HashingNode:
    prefix = entry["fileIdPrefix"]
    return HashingNode(_typed(entry["value"], int), None if prefix is None else _typed(prefix, str), NodeTag(entry["tag"]))


def _typed(value: Any, expected: type) -> Any:
    if not isinstance(value, expected) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no {expected.__name__}")
    return value
