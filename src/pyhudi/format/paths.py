"""Where things lie in a table: the folders and files of `.hoodie`, and paths relative to the table.

A path has its parts joined by '/', with none in front and none at the end; '' is the table itself, or its only partition when it
is not partitioned.  No other module spells a folder of `.hoodie` or takes a path apart.

Source: docs/formats/timeline.md.
"""

from __future__ import annotations

from typing import Final

META_FOLDER: Final = ".hoodie"
PROPERTIES_FILE: Final = f"{META_FOLDER}/hoodie.properties"
PROPERTIES_BACKUP: Final = f"{PROPERTIES_FILE}.backup"

TIMELINE_NAME: Final = "timeline"
HISTORY_NAME: Final = "history"
ARCHIVE_NAME: Final = "archived"
"""What the table properties that name these folders say by default; the last one before table version 8."""
TIMELINE_FOLDER: Final = f"{META_FOLDER}/{TIMELINE_NAME}"
ARCHIVE_FOLDER: Final = f"{META_FOLDER}/{ARCHIVE_NAME}"

METADATA_FOLDER: Final = f"{META_FOLDER}/metadata"
"""The metadata table, which is a table with a `.hoodie` of its own."""

MARKER_FOLDER: Final = f"{META_FOLDER}/.temp"
STAGED_FOLDER: Final = f"{META_FOLDER}/.staged"
"""Below it, a folder for each write, lie rows on their way from tasks to the commit that takes them in."""
HEARTBEAT_FOLDER: Final = f"{META_FOLDER}/.heartbeat"
LOCK_FOLDER: Final = f"{META_FOLDER}/.locks"
SCHEMA_FOLDER: Final = f"{META_FOLDER}/.schema"
AUX_FOLDER: Final = f"{META_FOLDER}/.aux"
REBUILD_MARKER_FILE: Final = f"{AUX_FOLDER}/timeline.remaking"
"""Exists while a timeline is rebuilt: which instants it will have, and the indexes to build after it."""
BOOTSTRAP_PARTITIONS_FOLDER: Final = f"{AUX_FOLDER}/.bootstrap/.partitions"
BOOTSTRAP_FILE_IDS_FOLDER: Final = f"{AUX_FOLDER}/.bootstrap/.fileids"
INDEX_DEFINITIONS_FOLDER: Final = f"{META_FOLDER}/.index_defs"
INDEX_DEFINITIONS_FILE: Final = f"{INDEX_DEFINITIONS_FOLDER}/index.json"
RING_FOLDER: Final = f"{META_FOLDER}/.bucket_index/consistent_hashing_metadata"
"""Below it, by partition, lie the rings of a consistent hashing index."""
BUCKET_COUNTS_FOLDER: Final = f"{META_FOLDER}/.bucket_index/partition_bucket_index_meta/configs"
"""Files here give partitions of a simple bucket index bucket counts of their own."""
SIDE_FOLDER: Final = f"{METADATA_FOLDER}/{MARKER_FOLDER}"
"""Below it, by instant, a write keeps what it has found for the metadata table and has not committed there yet."""

PARTITION_METADATA_FILE: Final = ".hoodie_partition_metadata"
"""In each partition's folder; as Parquet or ORC it has their suffix."""


def join_path(*parts: str) -> str:
    """The parts joined by '/'; empty ones vanish, so that '' may stand for the table or the unpartitioned folder."""
    return "/".join(part for part in parts if part)


def file_name(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def parent_folder(path: str) -> str:
    """A path without its last part; '' for a path of one part."""
    return path.rpartition("/")[0]


def split_path(path: str) -> list[str]:
    """The parts of a path, of which '' has none."""
    return path.split("/") if path else []
