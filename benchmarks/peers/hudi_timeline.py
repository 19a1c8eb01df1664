"""Completion times and current files of a plain local Hudi table, from file names: no failed writes."""

from __future__ import annotations

from pathlib import Path

_COMPLETED = {".commit", ".deltacommit", ".replacecommit"}


def completion_times(path: str) -> list[str]:
    """The completion times of all writes, oldest first: `.hoodie/timeline/<request time>_<completion time>.<action>`."""
    names = (file.name for file in (Path(path) / ".hoodie" / "timeline").iterdir() if file.suffix in _COMPLETED)
    return sorted(name.split(".")[0].split("_")[1] for name in names)


def incremental_start(path: str) -> str:
    """Start of a range with the newest commit only: its completion time, or the one before if version 9 excludes the start."""
    is_open = "hoodie.table.version=9" in (Path(path) / ".hoodie" / "hoodie.properties").read_text().split()
    return completion_times(path)[-2 if is_open else -1]


def newest_base_files(path: str) -> list[str]:
    """The base files of the snapshot of a Copy-on-Write table without replaced file groups: of each file id the one with the
    newest instant.

    Names read `<file id>_<write token>_<instant>.parquet`; times of one length sort as text.
    """
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    for file in Path(path).rglob("*.parquet"):
        if ".hoodie" in file.parts or file.name.startswith("."):
            continue
        file_id, _, instant = file.stem.rsplit("_", 2)
        group = (str(file.parent), file_id)
        newest[group] = max(newest.get(group, ("", "")), (instant, str(file)))
    return sorted(name for _, name in newest.values())
