"""The file groups that an overwriting write replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.errors import HudiError
from pyhudi.metadata_table.writer.metadata_store import in_threads
from pyhudi.operations.write.resolve_blockers import refuse_planned_compactions, settle_groups_under_service
from pyhudi.operations.write.write_attempt import Attempt
from pyhudi.planning.conflicts import FileGroupId
from pyhudi.records.schema_evolution import continues
from pyhudi.table.snapshot import Snapshot
from pyhudi.tasks.base_file_reader import open_base_file

_COUNTED_FILES = 1000
"""Of more files the footers are not read for a count."""


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


def count_replaced_rows(snapshot: Snapshot, replaced: Mapping[str, Iterable[str]] | None) -> int | None:
    """How many records the replaced file groups held, by the footers of their base files.

    Returns:
        None where this is not known without reading rows: a file group has log files, which may hold deletes, updates and
        inserts; more than 1,000 files are replaced; or a footer could not be read.
    """
    if not replaced:
        return 0
    groups = {partition: set(ids) for partition, ids in replaced.items()}
    slices = [one for part, found in snapshot.slices(list(groups)).items() for one in found if one.file_id in groups[part]]
    if any(one.logs for one in slices) or len(slices) > _COUNTED_FILES:
        return None
    storage = snapshot.context.storage

    def count_rows(path: str) -> int:
        with open_base_file(storage, path) as file:
            return int(file.metadata.num_rows)

    try:
        return sum(in_threads(count_rows, [one.base.path for one in slices if one.base is not None]))
    except HudiError:
        # The write is committed; a file that another writer's clean deleted since must not make it fail.
        return None
