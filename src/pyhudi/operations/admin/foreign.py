"""Folders that hold a table of another format, or data files of other programs."""

from __future__ import annotations

from itertools import islice

from pyhudi.errors import InvalidRequest
from pyhudi.format.names import BASE_EXTENSIONS, parse_base_file
from pyhudi.format.paths import META_FOLDER, file_name
from pyhudi.operations.admin.table_settings import FORCE
from pyhudi.storage.base import Storage

_FILES_LOOKED_AT = 200
"""A folder without a foreign file among so many is taken for one without any."""

_DELTA, _ICEBERG = "_delta_log", "metadata"
_REMEDIES = {
    "a Delta Lake table": "Read it with deltalake, and write its rows to a Hudi table at another path",
    "an Iceberg table": "Read it with pyiceberg, and write its rows to a Hudi table at another path",
    "data files without a table": "pyhudi.bootstrap makes a table of them",
}


def describe_foreign(storage: Storage) -> tuple[str, str] | None:
    """What a folder holds that is no Hudi table, and what to do with it; None where nothing was found.

    A Delta log, Iceberg metadata, and Parquet or ORC files whose names are not those of Hudi's base files are recognised; of
    files the first 200 are looked at.
    """
    found = _find_foreign(storage)
    return None if found is None else (found, _REMEDIES[found])


def check_no_foreign(storage: Storage) -> None:
    """Raises InvalidRequest for a folder in which a new table would lie among files that are not its own."""
    found = describe_foreign(storage)
    if found is not None:
        kind, remedy = found
        raise InvalidRequest(
            f"no Hudi table is created at {storage.uri}: the folder holds {kind}. {remedy}; or create it with {FORCE}=true"
        )


def _find_foreign(storage: Storage) -> str | None:
    folders = {file_name(folder) for folder in storage.list("").folders}
    if _DELTA in folders and any(info.name.endswith(".json") for info in storage.list(_DELTA).files):
        return "a Delta Lake table"
    if _ICEBERG in folders and any(info.name.endswith(".metadata.json") for info in storage.list(_ICEBERG).files):
        return "an Iceberg table"
    extensions = tuple(BASE_EXTENSIONS.values())
    for info in islice(storage.walk(""), _FILES_LOOKED_AT):
        inside = info.path.startswith(f"{META_FOLDER}/")
        if not inside and info.name.endswith(extensions) and parse_base_file(info.name) is None:
            return "data files without a table"
    return None
