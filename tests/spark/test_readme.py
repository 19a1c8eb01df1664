"""The README's snippet for Spark runs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.test_docs import ROOT, snippets


def test_the_spark_snippet_runs(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, object] = {"spark": spark}
    for block in snippets(ROOT / "README.md")[:2]:
        code = block.replace("/tmp/pyhudi-quick-start", str(tmp_path))
        exec(compile(code, "README.md", "exec"), names)
