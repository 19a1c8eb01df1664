"""Custom time generators: sources of instant times other than this machine's clock.

A value of `hoodie.time.generator.type` other than Hudi's own names a generator registered in this process with
`register_time_generator`, by a call or by a plug-in (see `plugins`). It returns the current time only. The table's time
zone, monotonicity against the timeline and the wait for clock skew are applied in
`operations.commit.transaction.new_instant_time`.

Source: docs/decisions/0001-instant-times-and-skew.md.
"""

from __future__ import annotations

from typing import Protocol

from pyhudi.errors import Unsupported
from pyhudi.options import write_options
from pyhudi.options.plugins import Registry

BUILT_IN = "WAIT_TO_ADJUST_SKEW"
"""Hudi's only generator: the local clock, with a wait for clock skew between machines."""


class TimeGenerator(Protocol):
    """A source of times that increase across all processes that write a table.

    It is called under the table's lock, once for each time. It must never return the same or a smaller time again, to
    this or any other process.
    """

    def now_ms(self, uri: str) -> int:
        """Milliseconds since the epoch, larger than every earlier result for the table at `uri`, in any process.

        Raises:
            StorageUnavailable: The time is currently unknown.  The action fails and may be retried.
        """
        ...


_registered: Registry[TimeGenerator] = Registry("time generator")


def register_time_generator(name: str, generator: TimeGenerator) -> None:
    """Register a time generator in this process; a later one of the same name replaces it.

    Args:
        name: Value of `hoodie.time.generator.type` that selects the generator.

    Raises:
        InvalidRequest: The name is empty.
    """
    _registered.register(name, generator)


def find_time_generator(name: str) -> TimeGenerator | None:
    """The generator registered under a name; None for Hudi's own, which uses the clock.

    Raises:
        Unsupported: No generator is registered under the name.
    """
    if name == BUILT_IN:
        return None
    generator = _registered.find(name)
    if generator is None:
        raise Unsupported(
            f"option {write_options.TIME_GENERATOR}={name} is refused: it is neither {BUILT_IN} nor a registered time generator. "
            "Register it with pyhudi.register_time_generator"
        )
    return generator
