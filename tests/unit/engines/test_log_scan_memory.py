"""A million Avro records in the logs of one file group are merged and read within 1 GB, by position and by key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table

ROWS = 1_000_000
BUDGET_BYTES = 1 << 30
OPTIONS = {
    "hoodie.parquet.max.file.size": 1 << 30,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "pyhudi.threads": 1,
}

# A process of its own, so that its peak is that of the scan.  Peak: the most that was resident, the interpreter included.
PROGRAM = """
import sys
from pyhudi import Table

path, by_position = sys.argv[1:]
table = Table(path, options={"hoodie.merge.use.record.positions": by_position, "pyhudi.threads": 1})
rows = changed = 0
for batch in table.scan().to_batches():
    rows += batch.num_rows
    changed += batch.filter(batch.column("ts").cast("bool")).num_rows
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(rows, changed, peak)
"""


def rows(ts: int) -> pa.Table:
    numbers = np.arange(ROWS)
    texts = pa.array(numbers).cast(pa.string())
    return pa.table(
        {
            "id": pc.binary_join_element_wise("key-of-record-", pc.utf8_lpad(texts, 10, "0"), ""),
            "ts": np.full(ROWS, ts),
            "a": numbers * 3.5,
            "b": numbers % 1000,
            "note": pc.binary_join_element_wise("a note of some length, number ", texts, ""),
            "flag": numbers % 2 == 0,
        }
    )


def measured(path: Path, by_position: bool) -> tuple[int, int, int]:
    program = [sys.executable, "-c", PROGRAM, str(path), str(by_position).lower()]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    count, changed, peak = map(int, done.stdout.split())
    print(f"{'by position' if by_position else 'by key'}: peak {peak / 1e6:.0f} MB")
    return count, changed, peak


@pytest.mark.slow
def test_a_million_log_records_stay_below_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(path, name="t", record_key="id", ordering="ts", table_type="mor", options=OPTIONS)
    table.insert(rows(0))
    table.upsert(rows(1))
    logs = [file for file in path.iterdir() if ".log." in file.name]
    assert len(logs) == 1
    assert logs[0].stat().st_size > 150 << 20
    for by_position in (True, False):
        count, changed, peak = measured(path, by_position)
        assert (count, changed) == (ROWS, ROWS)
        assert peak < BUDGET_BYTES
