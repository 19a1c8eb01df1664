"""Names of tables in the configuration of a Spark session: `pyhudi.table.<name>` is the path of a table.

The session has them as long as it lives, on Spark Connect too; those in its own configuration at its start are names as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.engines.spark.type_conversion import SparkSession

_PREFIX = "pyhudi.table."


def registered_path(session: SparkSession, name: str) -> str | None:
    """The path that a name stands for, without regard to capitals; None where it stands for none."""
    found: str | None = session.conf.get(_PREFIX + name.lower(), None)
    return found


def register_path(session: SparkSession, name: str, path: str) -> None:
    """Let a name stand for a path."""
    session.conf.set(_PREFIX + name.lower(), path)


def unregister_path(session: SparkSession, name: str) -> bool:
    """Let a name stand for nothing.  Whether it stood for something."""
    there = registered_path(session, name) is not None
    session.conf.unset(_PREFIX + name.lower())
    return there


def names(session: SparkSession) -> list[str]:
    """The names that stand for paths."""
    every: Mapping[str, str] = session.conf.getAll
    return sorted(key.removeprefix(_PREFIX) for key in every if key.startswith(_PREFIX))
