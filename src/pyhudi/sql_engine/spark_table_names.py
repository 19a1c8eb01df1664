"""Table names in the configuration of a Spark session: `pyhudi.table.<name>` is the path of a table.

They live as long as the session, also on Spark Connect. Names in the session's configuration at its start are included.
`pyhudi.view.<name>` is a view. Options of SET are keys of the configuration, as in Hudi.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyhudi.engines.spark.type_conversion import SparkSession
from pyhudi.sql_engine.session_state import SPARK_OVERWRITE_MODE, View, metadata_prefix

_PREFIX = "pyhudi.table."
_READ_OPTIMIZED_PREFIX = "pyhudi.readoptimized."
_MANAGED_PREFIX = "pyhudi.managed."
_VIEW_PREFIX = "pyhudi.view."


def registered_path(session: SparkSession, name: str) -> str | None:
    """Path registered for a name, case-insensitively; None if there is none."""
    path: str | None = session.conf.get(_PREFIX + name.lower(), None)
    return path


def register_path(session: SparkSession, name: str, path: str, *, read_optimized: bool = False, managed: bool = False) -> None:
    """Register the path of a name. read_optimized: queries by this name read base files only; managed: DROP deletes files."""
    session.conf.set(_PREFIX + name.lower(), path)
    for applies, prefix in ((read_optimized, _READ_OPTIMIZED_PREFIX), (managed, _MANAGED_PREFIX)):
        if applies:
            session.conf.set(prefix + name.lower(), "true")
        else:
            session.conf.unset(prefix + name.lower())


def is_read_optimized(session: SparkSession, name: str) -> bool:
    """Return True for a name that was registered as read optimized."""
    return session.conf.get(_READ_OPTIMIZED_PREFIX + name.lower(), None) is not None


def is_managed(session: SparkSession, name: str) -> bool:
    """Return True for a name that was registered as managed."""
    return session.conf.get(_MANAGED_PREFIX + name.lower(), None) is not None


def unregister_path(session: SparkSession, name: str) -> bool:
    """Remove the registration of a name, and return whether it existed."""
    existed = registered_path(session, name) is not None
    session.conf.unset(_PREFIX + name.lower())
    session.conf.unset(_READ_OPTIMIZED_PREFIX + name.lower())
    session.conf.unset(_MANAGED_PREFIX + name.lower())
    return existed


def registered_paths(session: SparkSession) -> dict[str, str]:
    """Paths by registered name, sorted."""
    configuration: Mapping[str, str] = session.conf.getAll
    return {key.removeprefix(_PREFIX): configuration[key] for key in sorted(configuration) if key.startswith(_PREFIX)}


def stored_view(session: SparkSession, name: str) -> View | None:
    """View of a name, case-insensitively; None if there is none."""
    text: str | None = session.conf.get(_VIEW_PREFIX + name.lower(), None)
    if text is None:
        return None
    document = json.loads(text)
    return View(document["text"], tuple(document["columns"]))


def store_view(session: SparkSession, name: str, view: View | None) -> None:
    """Store a view under a name, or remove it."""
    if view is None:
        session.conf.unset(_VIEW_PREFIX + name.lower())
    else:
        session.conf.set(_VIEW_PREFIX + name.lower(), json.dumps({"text": view.text, "columns": view.columns}))


def settings(session: SparkSession) -> dict[str, str]:
    """Options of Hudi and PyHudi in the session's configuration, as SET stores them.

    Keys with the prefix of commit metadata are among them. `spark.hoodie.*` are those of `hoodie.*` that are not set:
    spark-submit accepts only names that begin with spark.
    """
    configuration: Mapping[str, str] = session.conf.getAll
    from_spark = {key.removeprefix("spark."): value for key, value in configuration.items() if key.startswith("spark.hoodie.")}
    own = from_spark | {
        key: value
        for key, value in configuration.items()
        if key.startswith(("hoodie.", "pyhudi."))
        and not key.startswith((_PREFIX, _READ_OPTIMIZED_PREFIX, _MANAGED_PREFIX, _VIEW_PREFIX))
    }
    prefix = metadata_prefix(own)
    if prefix:
        own |= {key: value for key, value in configuration.items() if key.startswith(prefix) and not key.startswith("spark.")}
    mode: str | None = session.conf.get(SPARK_OVERWRITE_MODE, None)
    return own if mode is None else {**own, SPARK_OVERWRITE_MODE: mode}
