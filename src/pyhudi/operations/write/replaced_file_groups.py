"""The file groups that an overwriting write replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.operations.write.resolve_blockers import refuse_planned_compactions, settle_groups_under_service
from pyhudi.operations.write.write_attempt import Attempt
from pyhudi.planning.conflicts import FileGroupId
from pyhudi.records.schema_evolution import continues
from pyhudi.table.snapshot import Snapshot


def replaced_groups(attempt: Attempt, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The file groups that make way for the rows.  paths: the partition paths of these.

    Raises TableState where a clustering is about to rewrite some.
    """
    settings, snapshot = attempt.settings, attempt.snapshot
    partitions = (
        snapshot.listing.partitions() if attempt.shape.everything else {*paths, *(settings.partitions_to_overwrite or ())}
    )
    replaced = live_file_ids(snapshot, partitions)
    groups = groups_of(replaced)
    settle_groups_under_service(snapshot, groups, settings)
    if settings.anew and snapshot.schema is not None and not continues(snapshot.schema.arrow, attempt.schemas.data_schema):
        refuse_planned_compactions(snapshot, groups, settings)
    attempt.check_early(groups)
    return replaced


def groups_of(file_ids: Mapping[str, Iterable[str]] | None) -> list[FileGroupId]:
    """File ids by partition path, one by one."""
    return [(partition, file_id) for partition, ids in (file_ids or {}).items() for file_id in ids]


def live_file_ids(snapshot: Snapshot, partitions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The file groups of partitions that a snapshot query sees; partitions without any are left out."""
    slices = snapshot.slices(list(partitions))
    return {partition: tuple(s.file_id for s in found) for partition, found in slices.items() if found}
