"""The snippets of the README and the pages that use Spark run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.doc_pages import PAGES, run_page, snippets

ON_SPARK = [page for page in PAGES if any(snippet.needs_spark for snippet in snippets(page))]


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.stem)
def test_the_snippets_run_on_spark(page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path, {"spark": spark}, on_spark=True)
