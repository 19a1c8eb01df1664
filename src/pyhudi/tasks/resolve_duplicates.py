"""Resolve keys that a lookup found in more than one file group.

A base file still has a key that a log of its group deleted, and an insert without lookup may put that key into another
group.  A change written to both would restore the deleted row next to the other one.  So if a key was found in several
file groups (only then), those with logs are read, and these candidates remain

    all that hold a row of it      inserts may duplicate keys, and each copy is changed
    the newest, if none does       the one whose base file was written last; of several the first

A key found in one file group stays there, even if its row is deleted, as in Hudi: the group inserts it again.

Source: docs/formats/writing.md, "Indexes used for writing".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.engine_protocol import TagRequest
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys
from pyhudi.tasks.tag_location import FileGroupCandidate

Ints = npt.NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""Rows and the numbers of the candidates that hold their keys: two arrays of one length, each pair once."""


@dataclass(frozen=True, slots=True)
class LiveKeysTask:
    """Find which of some keys have a row in a slice.  keys: strings, distinct."""

    reader: ReadSpec
    slice: FileSlice
    keys: pa.Array


def run_live_keys(task: LiveKeysTask) -> pa.Array:
    """Return those of the task's keys that have a row."""
    live = [stored.filter(pc.is_in(stored, value_set=task.keys)) for stored in read_live_keys(task.reader, task.slice)]
    return pc.unique(pa.concat_arrays([task.keys.slice(0, 0), *(part.cast(task.keys.type) for part in live)]))


def has_logs(candidate: FileGroupCandidate) -> bool:
    """Whether logs may have deleted keys that were found in the candidate."""
    return candidate.slice is not None and bool(candidate.slice.logs)


def by_age(candidates: Sequence[FileGroupCandidate], numbers: Sequence[int]) -> list[int]:
    """Return the numbers of candidates, the newest first."""

    def written(number: int) -> str:
        slice_ = candidates[number].slice
        return "" if slice_ is None else slice_.base_instant

    return sorted(sorted(numbers), key=written, reverse=True)


def filter_live(
    request: TagRequest,
    keys: Sequence[pa.Array],
    pairs: Sequence[Pairs],
    run: Callable[[list[LiveKeysTask]], list[pa.Array]],
) -> list[Pairs]:
    """Return the pairs of a lookup without candidates that hold no row of a key which another candidate holds.

    keys, pairs: of several sets of rows; keys: the record key of each row.  run: executes tasks, results in their
    order. Raises as reading does.
    """
    sets = [_CandidatePairs(*pair) for pair in pairs]
    if not any(hits.several.any() for hits in sets):
        return list(pairs)
    logged = np.array([has_logs(place) for place in request.candidates], dtype=np.bool_)
    doubted = [np.flatnonzero(hits.several & logged[hits.candidates]) for hits in sets]
    numbers: list[int] = np.unique(np.concatenate([hits.candidates[at] for hits, at in zip(sets, doubted, strict=True)])).tolist()
    if not numbers:
        return list(pairs)
    asked = [[at[hits.candidates[at] == number] for hits, at in zip(sets, doubted, strict=True)] for number in numbers]
    named = [[texts.take(pa.array(hits.rows[at])) for texts, hits, at in zip(keys, sets, parts, strict=True)] for parts in asked]
    reader = request.log_reader
    tasks = [
        LiveKeysTask(reader, _slice_of(request.candidates[number]), pc.unique(pa.concat_arrays(texts)))
        for number, texts in zip(numbers, named, strict=True)
    ]
    for live, parts, texts in zip(run(tasks), asked, named, strict=True):
        for hits, at, names in zip(sets, parts, texts, strict=True):
            hits.is_live[at] = np.asarray(pc.is_in(names, value_set=live), dtype=np.bool_)
    rank = np.zeros(len(request.candidates), dtype=np.int64)
    involved: list[int] = np.unique(np.concatenate([hits.candidates[hits.several] for hits in sets])).tolist()
    rank[by_age(request.candidates, involved)] = np.arange(len(involved))
    return [hits.live_pairs(rank) for hits in sets]


class _CandidatePairs:
    """The pairs of one set.  several: those whose row has more than one; is_live: those that hold a row of the key."""

    def __init__(self, rows: Ints, positions: Ints) -> None:
        self.rows = rows
        self.candidates = positions
        self.counts = np.bincount(rows) if len(rows) else np.zeros(0, dtype=np.int64)
        self.several = self.counts[rows] > 1
        self.is_live = np.ones(len(rows), dtype=np.bool_)

    def live_pairs(self, rank: Ints) -> Pairs:
        """Return the live pairs, and for keys without one the pair of the newest candidate (that of the lowest rank)."""
        living = np.zeros(len(self.counts), dtype=np.bool_)
        living[self.rows[self.is_live]] = True
        lost = np.flatnonzero(~living[self.rows])
        order = lost[np.lexsort((rank[self.candidates[lost]], self.rows[lost]))]
        first = np.r_[True, self.rows[order][1:] != self.rows[order][:-1]] if len(order) else np.zeros(0, dtype=np.bool_)
        keep = self.is_live.copy()
        keep[order[first]] = True
        return self.rows[keep], self.candidates[keep]


def _slice_of(candidate: FileGroupCandidate) -> FileSlice:
    assert candidate.slice is not None, "a new file group has no logs"
    return candidate.slice
