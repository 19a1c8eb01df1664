"""Imports of a Spark worker, each measured in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

SOURCES = Path(__file__).parents[3] / "src"


def run(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_tasks_import_neither_pandas_nor_the_public_api() -> None:
    found = run(
        "import sys\n"
        "from pyspark import TaskContext\n"
        "TaskContext._setTaskContext(TaskContext())\n"
        "import pyhudi.engines.spark.worker_tasks, pyhudi.engines.spark.jobs\n"
        "early = ('pandas', 'pyhudi.api.table', 'pyhudi.cli', 'pyhudi.operations.write.write_rows')\n"
        "print([name for name in early if name in sys.modules])"
    )
    assert found == "[]"


@pytest.mark.full
def test_planning_a_source_read_imports_no_pandas() -> None:
    found = run(
        "import sys\n"
        "from importlib.machinery import ModuleSpec\n"
        "sys.modules['__main__'].__spec__ = ModuleSpec('pyspark.daemon', None)\n"
        "import pyhudi.engines.spark.data_source\n"
        "print('pandas' in sys.modules)"
    )
    assert found == "False"


@pytest.mark.full
def test_on_the_driver_nothing_is_hidden() -> None:
    pytest.importorskip("pandas")
    found = run("import sys, pyhudi.engines.spark\nimport pyarrow as pa\npa.array([1])\nprint('pandas' in sys.modules)")
    assert found == "True"


@pytest.mark.full
def test_pandas_that_is_imported_later_is_known_to_arrow() -> None:
    pytest.importorskip("pandas")
    found = run(
        "import sys\n"
        "from pyhudi.engines.spark.skip_pandas_import import spare_pandas\n"
        "spare_pandas()\n"
        "import pyarrow as pa\n"
        "pa.array([1])\n"
        "before = 'pandas' in sys.modules\n"
        "import pandas as pd\n"
        "nulls = pa.array(pd.Series([1.0, float('nan')])).null_count\n"
        "frame = pa.table({'a': [1, 2]}).to_pandas()\n"
        "spare_pandas()\n"
        "print(before, nulls, list(frame.a), pd.__spec__.loader.is_package('pandas'))"
    )
    assert found == "False 1 [1, 2] True"


def test_public_names_are_imported_on_first_use() -> None:
    found = run(
        "import sys, pyhudi\n"
        "api = 'pyhudi.api.table'\n"
        "print(api in sys.modules, pyhudi.Table.__module__, api in sys.modules, 'Scan' in dir(pyhudi))\n"
        "from pyhudi import *\n"
        "assert CorruptData is pyhudi.errors.CorruptData and WriteResult and register_merger\n"
        "try: pyhudi.nothing\n"
        "except AttributeError as error: print(error)"
    )
    assert found.splitlines() == ["False pyhudi.api.table True True", "module 'pyhudi' has no attribute 'nothing'"]
