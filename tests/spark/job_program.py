"""What test_job.py runs as a user would: `venv/bin/python job_program.py FOLDER MASTER [OPTION=VALUE]`, without settings of
interpreters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pyhudi import Table
from pyhudi import spark as hs


def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as they are; the first attempt at the second task ends when it has given some."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise OSError("a disk is gone")


def main(folder: Path, master: str, *more: str) -> None:
    """Print one line of JSON: what the first write of a process gave, and what was read.  more: options of that write."""
    spark = SparkSession.builder.master(master).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    path = str(folder / "t")
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    options |= dict(option.split("=") for option in more)
    rows = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) id", "id n")
    first = hs.write(rows, path, options=options)
    read = spark.read.format("pyhudi").load(path)
    # A task fails when it has written some of its rows, and is tried again.
    bulk = rows.mapInArrow(fails_at_first, "id string, n long").write.format("pyhudi").mode("append")
    bulk.options(**options, **{"hoodie.datasource.write.operation": "bulk_insert"}).save(str(folder / "bulk"))
    written = Table(folder / "bulk")
    files = written.inspect.files().num_rows
    whole = sorted(written.scan().to_arrow()["n"].to_pylist()) == list(range(10))
    found = {
        "inserted": first.rows_inserted,
        "read": hs.read(spark, path).count(),
        "format": read.where("n > 6").count(),
        "bulk": [whole, files, written.validate().ok],
        "base files": len(list((folder / "bulk").glob("*.parquet"))),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
