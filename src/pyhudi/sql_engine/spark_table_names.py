"""Table names in the configuration of a Spark session: `pyhudi.table.<name>` is the path of a table.

They live as long as the session, also on Spark Connect. Names in the session's configuration at its start are included.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.engines.spark.type_conversion import SparkSession

_PREFIX = "pyhudi.table."


def registered_path(session: SparkSession, name: str) -> str | None:
    """Path registered for a name, case-insensitively; None if there is none."""
    path: str | None = session.conf.get(_PREFIX + name.lower(), None)
    return path


def register_path(session: SparkSession, name: str, path: str) -> None:
    """Register the path of a name."""
    session.conf.set(_PREFIX + name.lower(), path)


def unregister_path(session: SparkSession, name: str) -> bool:
    """Remove the registration of a name, and return whether it existed."""
    existed = registered_path(session, name) is not None
    session.conf.unset(_PREFIX + name.lower())
    return existed


def names(session: SparkSession) -> list[str]:
    """All registered names."""
    configuration: Mapping[str, str] = session.conf.getAll
    return sorted(key.removeprefix(_PREFIX) for key in configuration if key.startswith(_PREFIX))
