"""Consistent hashing bucket index: route record keys to the nodes of their partitions.

Cells are the hash intervals between the nodes of all loaded partitions together, so the cell of a key is independent
of its partition, and belongs to one node of each partition.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.features.consistent_hashing.hashing_metadata import MAX_HASH, HashRing
from pyhudi.options.declaration import OptionSettings
from pyhudi.options.index_options import BUCKET_COUNT, BUCKET_INDEX_HASH_FIELD
from pyhudi.planning.bucket_routing import hashed_fields
from pyhudi.records.hashing import consistent_hashes
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.table.file_slices import FileSlice

MAX_NODES = 1_000_000
"""Maximum number of nodes; the metadata is one document that every write reads."""


@dataclass(frozen=True, slots=True)
class ConsistentHashingSettings(OptionSettings):
    """Initial layout of partitions in a consistent hashing index.

    first_count: nodes of a new partition, at least 1; hash_fields: empty for all record key fields.
    """

    first_count: Annotated[int, BUCKET_COUNT]
    hash_fields: Annotated[tuple[str, ...], BUCKET_INDEX_HASH_FIELD] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.first_count <= MAX_NODES:
            raise InvalidRequest(f"option {BUCKET_COUNT}={self.first_count} has to be from 1 to {MAX_NODES}")


@dataclass(frozen=True, slots=True)
class ConsistentHashingLayout:
    """Consistent hashing metadata of partitions, as a `Placement`.  hash_fields: as in `ConsistentHashingSettings`."""

    rings: Mapping[str, HashRing]
    hash_fields: tuple[str, ...] = ()
    _bounds: npt.NDArray[np.int64] = field(init=False, repr=False)
    _nodes: Mapping[str, npt.NDArray[np.int64]] = field(init=False, repr=False)
    _buckets: Mapping[tuple[str, str], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = {node.value for ring in self.rings.values() for node in ring.nodes} | {MAX_HASH}
        bounds = np.array(sorted(values), dtype=np.int64)
        nodes = {partition: _places(ring)(bounds) for partition, ring in self.rings.items()}
        buckets = {
            (partition, file_id): number for partition, ring in self.rings.items() for number, file_id in enumerate(ring.file_ids)
        }
        object.__setattr__(self, "_bounds", bounds)
        object.__setattr__(self, "_nodes", nodes)
        object.__setattr__(self, "_buckets", buckets)

    @property
    def cell_count(self) -> int:
        """As in `Placement`."""
        return len(self._bounds)

    def cells_for_keys(self, keys: KeySpec, texts: pa.StringArray, paths: pa.StringArray | None = None) -> npt.NDArray[np.int32]:
        """As in `Placement`; the cells of all partitions are the same."""
        hashes = consistent_hashes(texts, keys.record_fields, hashed_fields(keys, self.hash_fields))
        return np.searchsorted(self._bounds, hashes, side="left").astype(np.int32)

    def bucket_at(self, partition: str, cell: int) -> int | None:
        """As in `Placement`: the number of a node."""
        nodes = self._nodes.get(partition)
        return None if nodes is None else int(nodes[cell])

    def buckets_at(self, partition: str, cells: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the numbers of the nodes of cells, in a partition with consistent hashing metadata."""
        return self._nodes[partition][cells]

    def bucket_from_file_id(self, partition: str, file_id: str) -> int | None:
        """As in `Placement`."""
        return self._buckets.get((partition, file_id))

    def node_file_id(self, partition: str, bucket: int) -> str:
        """The file id of a node's group."""
        return self.rings[partition].nodes[bucket].file_id


def _places(ring: HashRing) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Hashes to the numbers of nodes: the first at or after a hash, the first of all beyond the last."""
    values = np.array([node.value for node in ring.nodes], dtype=np.int64)
    return lambda hashes: np.searchsorted(values, hashes, side="left") % len(values)


def check_hashing_groups(slices: Iterable[FileSlice], layout: ConsistentHashingLayout) -> None:
    """Raise TableState for file groups without node, whose keys no write would find."""
    for slice_ in slices:
        if layout.bucket_from_file_id(slice_.partition, slice_.file_id) is None:
            place = slice_.partition or "the table"
            raise TableState(
                f"file group {slice_.file_id} in {place} belongs to no node of the consistent hashing metadata: "
                "another index has written it, or "
                "the metadata is damaged; run validate() for details"
            )
