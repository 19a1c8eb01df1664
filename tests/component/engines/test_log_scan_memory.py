"""Log files with a million Avro records are read by position and compacted by key within 1 GB.

The full tier also reads them by key and compacts them by position.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from tests.support.needs import WIDE

ROWS = 1_000_000
BUDGET_BYTES = 1 << 30
OPTIONS = {
    "hoodie.parquet.max.file.size": 1 << 30,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "pyhudi.threads": 1,
}

# A process of its own, so that its peak is that of the work.  Peak: the most that was resident, the interpreter included.
HEAD = """
import sys
from pyhudi import Table

def report(*figures):
    with open("/proc/self/status") as status:
        print(*figures, next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")))

path, by_position = sys.argv[1:]
table = Table(path, options={"hoodie.merge.use.record.positions": by_position, "pyhudi.threads": 1})
"""
READ = """
rows = changed = 0
for batch in table.scan().to_batches():
    rows += batch.num_rows
    changed += batch.filter(batch.column("ts").cast("bool")).num_rows
report(rows, changed)
"""
COMPACT = """
(done,) = table.compact().runs
report(done.rows_written, done.rows_updated)
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


def measured(work: str, path: Path, by_position: bool) -> tuple[int, int, int]:
    program = [sys.executable, "-c", HEAD + work, str(path), str(by_position).lower()]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    count, changed, peak = map(int, done.stdout.split())
    name = "read" if work is READ else "compacted"
    print(f"{name} {'by position' if by_position else 'by key'}: peak {peak / 1e6:.0f} MB")
    return count, changed, peak


@pytest.mark.full
def test_a_million_log_records_stay_below_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(path, name="t", record_key="id", ordering="ts", table_type="mor", options=OPTIONS)
    table.insert(rows(0))
    table.upsert(rows(1))
    logs = [file for file in path.iterdir() if ".log." in file.name]
    assert len(logs) == 1
    assert logs[0].stat().st_size > 150 << 20
    for work, by_position in [(READ, True), (COMPACT, False)] if not WIDE else itertools.product((READ, COMPACT), (True, False)):
        where = path if work is READ else tmp_path / f"compacted-{by_position}"
        if work is COMPACT:
            shutil.copytree(path, where)
        count, changed, peak = measured(work, where, by_position)
        assert (count, changed) == (ROWS, ROWS)
        assert peak < BUDGET_BYTES
        if work is COMPACT:
            assert pc.sum(Table(where).scan(["ts"]).to_arrow()["ts"]).as_py() == ROWS
            shutil.rmtree(where)
