"""Clean up task attempts that end after their write was committed or rolled back.

A failed or completed job may leave attempts running on its cluster. Files of such an attempt appear after the rollback
or commit that should delete them, and an uncommitted file counts as committed once the active timeline begins after its
instant.

    attempt      marker, file, and at its end a check of the heartbeat; if there is none, it deletes its own files
    the others   a rollback, or a completed commit, removes the heartbeat, and then reads its markers once more

So either the file exists when the markers are read, or its attempt finds the heartbeat missing.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyhudi.errors import HudiError, WriteConflict
from pyhudi.format.names import WriteToken, parse_base_file, parse_log_file
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.heartbeats import last_heartbeat_ms
from pyhudi.storage.markers import Markers
from pyhudi.table.listing import DirectoryListing
from pyhudi.tasks.append_log import double_write_token


@contextmanager
def remove_if_write_ended(storage: Storage, instant_time: str, token: WriteToken) -> Iterator[None]:
    """Delete the files of one task attempt, whose names contain this token, if its write has ended.

    Costs one request if it has not.

    Raises:
        WriteConflict: The write has ended before the attempt, whose files were deleted.
    """
    try:
        yield
    except BaseException as error:
        try:
            _remove_if_ended(storage, instant_time, token)
        except HudiError as failure:
            error.add_note(f"it is unknown whether write {instant_time} has ended: {failure}")
        raise
    if _remove_if_ended(storage, instant_time, token):
        raise WriteConflict(
            f"instant {instant_time} of {storage.uri} was rolled back while one of its tasks was writing; write again",
            instants=(instant_time,),
        )


def _remove_if_ended(storage: Storage, instant_time: str, token: WriteToken) -> bool:
    if last_heartbeat_ms(storage, instant_time) is not None:
        return False
    listing = DirectoryListing(storage)
    found = (info for files in listing.files(listing.partitions()).values() for info in files)
    storage.delete([info.path for info in found if _is_of(info, instant_time, token)])
    Markers(storage, instant_time).delete()
    return True


def _is_of(info: FileInfo, instant_time: str, token: WriteToken) -> bool:
    name = parse_base_file(info.name) or parse_log_file(info.name)
    if name is None:
        return False
    own = name.instant_time == instant_time and name.write_token == token.text
    # Copies for a resize bear its time, and the time of their write in their token.
    return own or name.write_token == double_write_token(instant_time, token).text
