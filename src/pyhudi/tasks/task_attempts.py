"""Attempts at tasks that end when their write is over.

A job that failed, or has its answer, may leave attempts behind that its cluster has not ended yet.  What such an attempt writes
comes after the rollback or the commit that was to delete it, and a file of an instant that nobody has completed counts once the
active timeline begins after it.

    attempt      marker, file, and at its end one question: is there a heartbeat?  Where there is none, it deletes its own files
    the others   who rolls a write back, or has committed it, removes the heartbeat, and then looks at its markers once more

So a file either is there when the others look, or its attempt sees that the heartbeat is gone.

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
    """One attempt at a task of a write, whose files bear this token.  One request where the write is under way.

    Raises WriteConflict where the write is over when the attempt ends; then nothing of its files is left.
    """
    try:
        yield
    except BaseException as error:
        try:
            _remove_if_over(storage, instant_time, token)
        except HudiError as failure:
            error.add_note(f"whether instant {instant_time} is over was not to be had: {failure}")
        raise
    if _remove_if_over(storage, instant_time, token):
        raise WriteConflict(
            f"instant {instant_time} of {storage.uri} was taken back while a task of it wrote; write again",
            instants=(instant_time,),
        )


def _remove_if_over(storage: Storage, instant_time: str, token: WriteToken) -> bool:
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
