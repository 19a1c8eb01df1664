"""Tables whose base files another table format wrote, as Apache XTable and Delta UniForm register them in commits."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi import Table

OFF = {"hoodie.metadata.enable": False}
FIELDS = [
    {"name": "id", "type": ["null", "int"]},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
]
AT = datetime(2026, 11, 21, 12, 30)
FIRST, SECOND = "day=2026-11-01", "day=2026-11-02"


def time_of(number: int) -> str:
    return f"202406170838400{number:02d}"


def registered(path: Path, version: int, commits: list[dict[str, Any]], extra: tuple[str, ...] = ()) -> Table:
    """A table of another format, partitioned by day, whose files lack the column of the day.

    commits: each `add`: path of a file -> its ids, and `replace`: paths.
    """
    timeline = path / ".hoodie" / ("timeline" if version > 6 else "")
    timeline.mkdir(parents=True)
    for number, commit in enumerate(commits):
        stats: dict[str, list[dict[str, Any]]] = {}
        instant = time_of(number)
        for file, ids in commit.get("add", {}).items():
            partition, _, name = file.rpartition("/")
            (path / partition).mkdir(exist_ok=True)
            rows = pa.table({"id": pa.array(ids, pa.int32()), "at": pa.array([AT] * len(ids), pa.timestamp("us"))})
            # As Spark writes Parquet of Delta tables.
            pq.write_table(rows, path / file, use_deprecated_int96_timestamps=True)
            stat = {"fileId": name, "path": f"{file}_{instant}_hudiext", "prevCommit": "null", "partitionPath": partition}
            size = (path / file).stat().st_size
            stats.setdefault(partition, []).append({**stat, "numWrites": len(ids), "fileSizeInBytes": size})
        replaced: dict[str, list[str]] = {}
        for file in commit.get("replace", ()):
            partition, _, name = file.rpartition("/")
            replaced.setdefault(partition, []).append(name)
        metadata = {
            "partitionToWriteStats": stats,
            "extraMetadata": {"schema": json.dumps({"type": "record", "name": "struct", "fields": FIELDS})},
            "operationType": "INSERT",
            "partitionToReplaceFileIds": replaced,
        }
        completed = f"{instant}_{instant}" if version > 6 else instant
        action = commit.get("action", "replacecommit")
        (timeline / f"{instant}.{action}.requested").write_text("")
        (timeline / f"{instant}.{'inflight' if action == 'commit' else 'replacecommit.inflight'}").write_text("")
        (timeline / f"{completed}.{action}").write_text(json.dumps(metadata))
    lines = [
        "hoodie.table.name=t",
        "hoodie.table.type=COPY_ON_WRITE",
        f"hoodie.table.version={version}",
        f"hoodie.timeline.layout.version={2 if version > 6 else 1}",
        "hoodie.populate.meta.fields=false",
        "hoodie.table.partition.fields=day",
        "hoodie.table.recordkey.fields=id",
        "hoodie.datasource.write.hive_style_partitioning=true",
        "hoodie.table.keygenerator.class=org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.table.metadata.partitions=column_stats,files" if version == 6 else "",
    ]
    (path / ".hoodie" / "hoodie.properties").write_text("\n".join([*lines, *extra, ""]))
    return Table(path, options=OFF)


COMMITS: list[dict[str, Any]] = [
    {"add": {f"{FIRST}/part-00000-c000.snappy.parquet": [1, 2], f"{FIRST}/part_1.parquet": [3]}},
    {"add": {f"{SECOND}/part-00000-c000.snappy.parquet": [4], f"{FIRST}/2.parquet": [5]}, "replace": [f"{FIRST}/part_1.parquet"]},
]
LATEST = {1: 1, 2: 1, 4: 2, 5: 1}
"""id -> day of the month."""
