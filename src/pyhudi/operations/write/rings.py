"""The rings that a write goes by, those that it makes, and whether they still count when it completes.

A write that makes a file group for a node, or a new ring, has read which ring counts.  Another write that gave the partition a
new ring meanwhile may have touched none of the same file groups, so this is looked at again under the lock.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.errors import TableState, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.format.rings import Ring
from pyhudi.plan.conflicts import FileGroupId
from pyhudi.plan.rings import RingLayout, RingSettings
from pyhudi.table.context import TableContext
from pyhudi.table.rings import load_or_make_ring, load_ring, prefixes_of, renewed, store_ring
from pyhudi.table.slices import FileSlice
from pyhudi.table.snapshot import Snapshot
from pyhudi.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class RingsOfWrite:
    """layout: where rows go.  counted: the rings that counted when the write was planned.  given_up: the file groups of the nodes
    that new rings take the place of, also of those that have no files.
    """

    layout: RingLayout
    counted: Mapping[str, Ring]
    given_up: tuple[FileGroupId, ...] = ()

    def check_still_count(self, context: TableContext, planned: Timeline, now: Timeline) -> None:
        """Raises WriteConflict where another ring counts by now.  planned: the timeline that the write was planned on."""
        # Nothing else makes rings.
        if set(now.completed(Action.REPLACECOMMIT)).issubset(planned.completed(Action.REPLACECOMMIT)):
            return
        for partition, ring in self.counted.items():
            present = load_ring(context, now, partition, prefixes_of(ring.file_ids))
            if present is None or present.instant != ring.instant:
                raise WriteConflict(
                    f"partition {partition!r} of {context.storage.uri} was given other file groups meanwhile (ring "
                    f"{present.instant if present else 'gone'} in place of {ring.instant}); plan the write again"
                )


def rings_to_write(
    context: TableContext,
    snapshot: Snapshot,
    slices: Mapping[str, Iterable[FileSlice]],
    settings: RingSettings,
    *,
    makes: bool,
) -> RingsOfWrite:
    """The rings of partitions.  slices: present ones, by partition.  makes: partitions without a ring get their first one.

    Raises TableState for a ring whose file groups were replaced, as the real Hudi's overwrites leave them.
    """
    counted: dict[str, Ring] = {}
    timeline = snapshot.timeline
    for partition, found in slices.items():
        present = prefixes_of(s.file_id for s in found if s.base is not None)
        if makes:
            counted[partition] = load_or_make_ring(context, timeline, partition, present, settings.first_count)
        elif (ring := load_ring(context, timeline, partition, present, marks=True)) is not None:
            counted[partition] = ring
    for partition, ring in counted.items():
        by = [time for file_id in ring.file_ids if (time := snapshot.slicing.replaced.get((partition, file_id)))]
        if by:
            raise TableState(
                f"replacecommit {max(by)} has replaced file groups of partition {partition!r} of {context.storage.uri} and left "
                "its ring as it was, so that rows written there would not be seen; overwrite it, which gives it a new ring"
            )
    return RingsOfWrite(RingLayout(counted, settings.hash_fields), counted)


def renew_rings(
    context: TableContext, snapshot: Snapshot, partitions: Iterable[str], instant: str, settings: RingSettings | None
) -> RingsOfWrite:
    """Rings of new file groups for partitions whose groups make way, stored; they count once the instant has completed.

    settings: how partitions begin that have no ring; None leaves these without one.
    """
    counted: dict[str, Ring] = {}
    made: dict[str, Ring] = {}
    slices = snapshot.slices(sorted(set(partitions)))
    for partition in sorted(set(partitions)):
        present = prefixes_of(s.file_id for s in slices.get(partition, ()) if s.base is not None)
        ring = load_ring(context, snapshot.timeline, partition, present, marks=True)
        if ring is not None:
            counted[partition] = ring
            made[partition] = renewed(ring, instant, context.env.uuid4)
            store_ring(context, made[partition])
        elif settings is not None:
            # Its file groups were never replaced, so the first ring will do.
            first = load_or_make_ring(context, snapshot.timeline, partition, present, settings.first_count)
            counted[partition] = made[partition] = first
    given_up = tuple((partition, file_id) for partition, ring in counted.items() for file_id in ring.file_ids)
    return RingsOfWrite(RingLayout(made, settings.hash_fields if settings else ()), counted, given_up)
