"""What test_job.py runs as a user would: `venv/bin/python job_program.py FOLDER MASTER`, nothing said about interpreters."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyhudi import spark as hs


def main(folder: Path, master: str) -> None:
    """Print one line of JSON: what the first write of a process gave, and what was read after it."""
    spark = SparkSession.builder.master(master).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    path = str(folder / "t")
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    rows = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) id", "id n")
    first = hs.write(rows, path, options=options)
    read = spark.read.format("pyhudi").load(path)
    found = {"inserted": first.rows_inserted, "read": hs.read(spark, path).count(), "format": read.where("n > 6").count()}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
