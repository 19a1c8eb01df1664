"""One size of one axis with rows, by delta-rs, in a process of its own interpreter: a line of JSON for each step.

.venv-bench-delta-rs/bin/python -m benchmarks.curves.delta_rs_process AXIS KIND SIZE FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.curves.steps import measured


class DeltaRs:
    """Its tables have one kind: every update rewrites files."""

    def processor(self) -> float:
        return time.process_time()

    def create(self, folder: Path, kind: str, rows: pa.RecordBatchReader) -> None:
        write_deltalake(str(folder), rows, partition_by=["part"])

    def upsert(self, folder: Path, rows: pa.Table) -> None:
        merge = DeltaTable(str(folder)).merge(rows, "t.id = s.id and t.part = s.part", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self, folder: Path, part: str | None) -> int:
        rows = pa.table(DeltaTable(str(folder)).scan(predicate=part and f"part = '{part}'"))
        return int(rows.num_rows)


def main() -> None:
    axis, kind, size, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    for step in measured(DeltaRs(), axis, kind, size, folder):
        peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
        print(json.dumps({**asdict(step), "peak_mib": peak}), flush=True)


if __name__ == "__main__":
    main()
