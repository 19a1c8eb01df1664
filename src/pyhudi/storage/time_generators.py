"""Time generators of a user's own: where instant times come from when it is not this machine's clock.

A name for `hoodie.time.generator.type` other than Hudi's own is that of a generator that `register_time_generator` has made known
in this process, by a call or by a plug-in (see `plugins`).  It says what time it is; the zone of the table, the floor that the
timeline is, and the wait for clocks that differ stay with the table (`operations.commit.transaction.new_instant_time`).

Source: docs/decisions/0001-instant-times-and-skew.md.
"""

from __future__ import annotations

from typing import Protocol

from pyhudi.errors import Unsupported
from pyhudi.options.plugins import Registry

BUILT_IN = "WAIT_TO_ADJUST_SKEW"
"""Hudi's only generator: the clock, and a wait for those of others."""


class TimeGenerator(Protocol):
    """A source of times that grow over all processes that write a table.

    It is asked under the table's lock, once for each time, and keeps every answer from being given again or undercut, by itself
    or by any other process.
    """

    def now_ms(self, uri: str) -> int:
        """Milliseconds since the epoch, larger than every answer before for the table at `uri`, whoever got it.

        Raises StorageUnavailable where it cannot be known now: the action ends, and may be tried again.
        """
        ...


_registered: Registry[TimeGenerator] = Registry("time generator")


def register_time_generator(name: str, generator: TimeGenerator) -> None:
    """Make a time generator known in this process under a name for `hoodie.time.generator.type`; a later one takes its place."""
    _registered.register(name, generator)


def find_time_generator(name: str) -> TimeGenerator | None:
    """The generator of a name; None for Hudi's own, which is the clock.  Raises Unsupported for a name that nobody registered."""
    if name == BUILT_IN:
        return None
    found = _registered.find(name)
    if found is None:
        raise Unsupported(
            f"option hoodie.time.generator.type={name} is refused: it is neither {BUILT_IN} nor a time generator that was "
            "registered "
            "here, with pyhudi.register_time_generator"
        )
    return found
