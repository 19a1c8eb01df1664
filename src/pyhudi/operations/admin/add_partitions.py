"""Add partitions without rows, as Hudi's ALTER TABLE ... ADD PARTITION does: a folder with its metadata file.

Readers that list directories find such a partition. A metadata table lists it from the next time it is built.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import INIT_INSTANT_TIME
from pyhudi.format.partition_metadata import PARTITION_METADATA_FILES, PartitionMetadata, partition_depth
from pyhudi.format.paths import join_path
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.write_base_files import mark_partition


def add_partitions(context: TableContext, partitions: Sequence[str], *, exist_ok: bool) -> None:
    """Create partitions.

    Args:
        context: The table.
        partitions: Partition paths.
        exist_ok: Skip partitions that exist.

    Raises:
        InvalidRequest: A partition exists, and `exist_ok` is False; or it is in the folder of another table.
        Unsupported: This version must not write the table.
    """
    context = context.reloaded()
    check_writable(context, retains_indexes=False)
    storage = context.storage
    existing = [
        partition
        for partition in partitions
        if any(storage.read(join_path(partition, name)) is not None for name in PARTITION_METADATA_FILES)
    ]
    if existing and not exist_ok:
        raise InvalidRequest(f"partition {existing[0]} of {storage.uri} exists already: write ADD IF NOT EXISTS PARTITION")
    for partition in partitions:
        if partition not in existing:
            metadata = PartitionMetadata(INIT_INSTANT_TIME, partition_depth(partition))
            mark_partition(storage, partition, metadata, context.env.now_ms())
