"""Log compactions that Apache Hudi plans and executes in merge-on-read tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyhudi import Table
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action
from pyhudi.table.snapshot import read_commit
from tests.interop.oracle import ApacheHudi

MANUAL = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.log.compaction.blocks.threshold": 2,
}


def real_options(mode: str, log_format: str, **more: object) -> dict[str, Any]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.write.record.merge.mode": mode,
        "hoodie.logfile.data.block.format": log_format,
        "hoodie.metadata.enable": False,
        **MANUAL,
        **more,
    }


def commit_of(path: Path, instant: str) -> CommitMetadata:
    table = Table(str(path))
    return read_commit(table.context.timeline, table.timeline().find(instant, Action.COMMIT, Action.DELTACOMMIT))


def real_log_compaction(hudi: ApacheHudi, path: Path, mode: str, log_format: str, instant: str | None = None) -> str:
    """Apache Hudi plans a log compaction, or executes that of `instant`."""
    schema = commit_of(path, Table(str(path)).timeline().completed_writes()[0].request_time).extra_metadata["schema"]
    planned = hudi.log_compact(path, schema, instant, **real_options(mode, log_format))
    assert planned is not None
    return planned
