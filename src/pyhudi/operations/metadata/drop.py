"""Dropping the metadata table or one index of it, when the caller asks for it.

The table's properties forget a partition before its folder goes, so readers are never sent to what is not there; the definition
of a secondary or expression index goes first, or real Hudi's next writer would build the index again.

Source: storage format, "Metadata table", when real writers rebuild, trim or delete it.
"""

from __future__ import annotations

from pyhudi.errors import InvalidRequest
from pyhudi.format.index_definitions import DEFAULT_PATH, format_index_definitions
from pyhudi.format.metadata.partitions import COLUMN_STATS, PARTITION_STATS
from pyhudi.operations.metadata.store import drop_partitions, drop_store
from pyhudi.table.context import TableContext
from pyhudi.table.metadata.records import load_index_definitions


def drop_metadata_table(context: TableContext, lock_wait_ms: int) -> None:
    """Remove the whole metadata table, if there is one; readers list directories from then on.

    The next write builds it anew, unless its options say hoodie.metadata.enable=false.
    """
    with context.lock.held(lock_wait_ms):
        drop_store(context.reloaded())


def drop_index(context: TableContext, name: str, lock_wait_ms: int) -> None:
    """Remove one partition of the metadata table.  Without column statistics there are none of partitions either.

    Raises InvalidRequest when the table has no such index.
    """
    with context.lock.held(lock_wait_ms):
        context = context.reloaded()
        config = context.config
        there = (*config.metadata_partitions, *config.metadata_partitions_inflight)
        definitions = load_index_definitions(context)
        if name not in there and name not in definitions:
            raise InvalidRequest(f"the table at {context.storage.uri} has no index {name!r}; it has {', '.join(sorted(there))}")
        if name in definitions and name != COLUMN_STATS:
            kept = [definition for definition in definitions.values() if definition.name != name]
            context.storage.put(DEFAULT_PATH, format_index_definitions(kept))
        gone = {name, PARTITION_STATS} if name == COLUMN_STATS else {name}
        drop_partitions(context, gone.intersection(there))
