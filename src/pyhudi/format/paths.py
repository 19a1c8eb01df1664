"""Layout of a table: folders and files of `.hoodie`, and paths relative to the table.

A path has parts joined by '/', without a leading or trailing slash. '' is the table itself, or the only partition of a
non-partitioned table. No other module contains names of `.hoodie` folders or splits paths.

Specification: docs/formats/timeline.md.
"""

from __future__ import annotations

from typing import Final

META_FOLDER: Final = ".hoodie"
PROPERTIES_FILE: Final = f"{META_FOLDER}/hoodie.properties"
PROPERTIES_BACKUP: Final = f"{PROPERTIES_FILE}.backup"

TIMELINE_NAME: Final = "timeline"
HISTORY_NAME: Final = "history"
ARCHIVE_NAME: Final = "archived"
"""Default values of the table properties that name these folders; the last one applies before table version 8."""
TIMELINE_FOLDER: Final = f"{META_FOLDER}/{TIMELINE_NAME}"
ARCHIVE_FOLDER: Final = f"{META_FOLDER}/{ARCHIVE_NAME}"

METADATA_FOLDER: Final = f"{META_FOLDER}/metadata"
"""The metadata table, which is a table with its own `.hoodie`."""

MARKER_FOLDER: Final = f"{META_FOLDER}/.temp"
STAGED_FOLDER: Final = f"{META_FOLDER}/.staged"
"""Contains one folder per write, with rows that tasks staged for their commit."""
GROUP_FOLDER: Final = f"{META_FOLDER}/.group"
"""Contains the batches of writers that wait for a group commit."""
CALLBACK_FOLDER: Final = f"{META_FOLDER}/.callbacks"
"""Contains a notice of each commit whose callbacks are not delivered yet."""
HEARTBEAT_FOLDER: Final = f"{META_FOLDER}/.heartbeat"
LOCK_FOLDER: Final = f"{META_FOLDER}/.locks"
SCHEMA_FOLDER: Final = f"{META_FOLDER}/.schema"
AUX_FOLDER: Final = f"{META_FOLDER}/.aux"
REBUILD_MARKER_FILE: Final = f"{AUX_FOLDER}/timeline.remaking"
"""Exists during a rebuild of the timeline: the instants it will have, and the indexes to build after it."""
BOOTSTRAP_PARTITIONS_FOLDER: Final = f"{AUX_FOLDER}/.bootstrap/.partitions"
BOOTSTRAP_FILE_IDS_FOLDER: Final = f"{AUX_FOLDER}/.bootstrap/.fileids"
INDEX_DEFINITIONS_FOLDER: Final = f"{META_FOLDER}/.index_defs"
INDEX_DEFINITIONS_FILE: Final = f"{INDEX_DEFINITIONS_FOLDER}/index.json"
HASHING_FOLDER: Final = f"{META_FOLDER}/.bucket_index/consistent_hashing_metadata"
"""Contains, by partition, the hashing metadata of a consistent hashing index."""
BUCKET_COUNTS_FOLDER: Final = f"{META_FOLDER}/.bucket_index/partition_bucket_index_meta/configs"
"""Contains the bucket counts per partition of a simple bucket index."""
SIDE_FOLDER: Final = f"{METADATA_FOLDER}/{MARKER_FOLDER}"
"""Contains, by instant, the records for the metadata table that a write has collected and not yet committed."""

PARTITION_METADATA_FILE: Final = ".hoodie_partition_metadata"
"""Stored in each partition's folder; its Parquet or ORC variant has their suffix."""


def join_path(*parts: str) -> str:
    """Join parts by '/'; empty parts are dropped, so that '' may be the table or the non-partitioned folder."""
    return "/".join(part for part in parts if part)


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def parent_folder(path: str) -> str:
    """Return a path without its last part; '' for a path of one part."""
    return path.rpartition("/")[0]


def split_path(path: str) -> list[str]:
    """Return the parts of a path; '' has none."""
    return path.split("/") if path else []
