"""Detect folders that contain a table of another format, or data files of other programs."""

from __future__ import annotations

from itertools import islice

from pyhudi.errors import InvalidRequest
from pyhudi.format.names import BASE_EXTENSIONS, parse_base_file
from pyhudi.format.paths import META_FOLDER, file_name
from pyhudi.options.table_options import FORCE
from pyhudi.storage.base import Storage

_MAX_INSPECTED_FILES = 200
"""Number of files that are checked in a folder."""

_DELTA, _ICEBERG = "_delta_log", "metadata"
_REMEDIES = {
    "a Delta Lake table": "Read it with deltalake, and write its rows to a Hudi table at another path",
    "an Iceberg table": "Read it with pyiceberg, and write its rows to a Hudi table at another path",
    "data files without a table": "pyhudi.bootstrap converts them to a table",
}


def describe_foreign(storage: Storage) -> tuple[str, str] | None:
    """Describe the foreign content of a folder, and what to do with it; None if there is none.

    Detects a Delta log, Iceberg metadata, and Parquet or ORC files whose names are not those of Hudi base files, among
    the first 200 files.
    """
    foreign_file = _find_foreign(storage)
    return None if foreign_file is None else (foreign_file, _REMEDIES[foreign_file])


def check_no_foreign(storage: Storage) -> None:
    """Raise InvalidRequest if a folder for a new table contains foreign files."""
    foreign_content = describe_foreign(storage)
    if foreign_content is not None:
        kind, remedy = foreign_content
        raise InvalidRequest(
            f"cannot create a Hudi table at {storage.uri}: the folder holds {kind}. {remedy}; or create it with {FORCE}=true"
        )


def _find_foreign(storage: Storage) -> str | None:
    folders = {file_name(folder) for folder in storage.list("").folders}
    if _DELTA in folders and any(info.name.endswith(".json") for info in storage.list(_DELTA).files):
        return "a Delta Lake table"
    if _ICEBERG in folders and any(info.name.endswith(".metadata.json") for info in storage.list(_ICEBERG).files):
        return "an Iceberg table"
    extensions = tuple(BASE_EXTENSIONS.values())
    for info in islice(storage.walk(""), _MAX_INSPECTED_FILES):
        inside = info.path.startswith(f"{META_FOLDER}/")
        if not inside and info.name.endswith(extensions) and parse_base_file(info.name) is None:
            return "data files without a table"
    return None
