"""Which writes may append to file groups that other writers append to at the same moment.

Nobody waits for anybody and nobody's work is done again, so the result must be the same in whatever order the writes complete:

    merge on read    every write is a log file of its own; a new base file would hide what others append to the old one
    bucket index     the key alone says which file group takes a record, so that all writers name the same one
    event time       of two records of one key the ordering field decides, not who came last
    whole rows       a row that was completed from what stood there would undo what others write meanwhile
    no key index     what a write brings to an index of keys depends on what others do to those keys meanwhile

Compaction alone makes base files.  It takes what completed before it was planned; the rest follows its base file.

Source: docs/lock-providers.md, "Non-blocking concurrency control".
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.metadata_table.codecs.metadata_partitions import RECORD_INDEX, SECONDARY_INDEX_PREFIX
from pyhudi.operations.commit.commit_settings import CONCURRENCY, INDEX_TYPE, NON_BLOCKING
from pyhudi.records.merge_mode import MergeMode, MergeSettings

_MODE = f"{CONCURRENCY}={NON_BLOCKING}"


def check_operation(operation: str, index: str, *, replaces: bool, partial: bool) -> None:
    """What the options alone tell.  operation, index: their names.  Raises InvalidRequest, Unsupported."""
    if replaces:
        raise InvalidRequest(
            f"{operation} does not go with {_MODE}: it would replace file groups to which others append; run it while nobody "
            "else writes, under another mode"
        )
    if index != "BUCKET":
        raise InvalidRequest(
            f"{_MODE} needs {INDEX_TYPE}=BUCKET, not {index}: only its bucket leads all writers of a key to one file group"
        )
    if partial:
        raise Unsupported(
            f"a partial update under {_MODE}: columns that it leaves as they are may change meanwhile; upsert whole rows"
        )


def check_table(uri: str, merge: MergeSettings, indexes: Iterable[str], *, is_cow: bool) -> None:
    """What the table tells.  indexes: partitions of its metadata table, those that are being built too.

    Raises InvalidRequest, Unsupported.
    """
    if is_cow:
        raise InvalidRequest(f"{_MODE} needs a merge-on-read table, and the one at {uri} is copy on write: it has no log files")
    if merge.mode is not MergeMode.EVENT_TIME_ORDERING or not merge.ordering:
        raise InvalidRequest(
            f"{_MODE} needs a table that merges by {MergeMode.EVENT_TIME_ORDERING} and has an ordering field, not one like "
            f"{uri} ({merge.mode}): writers complete in any order, so something else has to say which record is newer"
        )
    if merge.update_mode is not None:
        raise Unsupported(
            f"{_MODE} for the table at {uri}, whose records take values from older ones (update mode {merge.update_mode}): "
            "which ones depends on the order of the writes; use OPTIMISTIC_CONCURRENCY_CONTROL"
        )
    keyed = sorted(name for name in indexes if name == RECORD_INDEX or name.startswith(SECONDARY_INDEX_PREFIX))
    if keyed:
        raise Unsupported(
            f"{_MODE} for the table at {uri}, which has or gets the index {', '.join(keyed)}: which keys are there "
            "cannot be told while others write them; drop the index, or use OPTIMISTIC_CONCURRENCY_CONTROL"
        )
