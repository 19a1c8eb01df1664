"""What each extra installs is enough for what it adds, and nothing more is needed to import the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Import names of the packages of all extras, apart from PySpark and pandas, which `pyhudi.spark` needs.
_OPTIONAL = ("boto3", "duckdb", "kazoo", "matplotlib", "polars", "rich", "sqlglot", "thriftpy2", "typer")
_SCRIPT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import pyarrow as pa
{statement}
"""


def run_without(missing: tuple[str, ...], statement: str) -> str:
    script = _SCRIPT.format(missing=missing, statement=statement)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return ended.stderr.strip().rpartition("\n")[2]


def test_pyhudi_spark_needs_the_extra_spark_only() -> None:
    assert run_without(_OPTIONAL, "from pyhudi import spark; spark.read") == ""


def test_the_embedded_engine_needs_no_extra() -> None:
    statement = """
import pyhudi as hp
table = hp.Table.create("memory://optional/trips", record_key="id")
table.upsert(pa.table({"id": [1, 2], "fare": [1.0, 3.0]}))
table.update({"fare": 2.0}, where="id = 2")
assert table.scan(filter="fare > 1").to_arrow().num_rows == 1
hp.Catalog
"""
    assert run_without((*_OPTIONAL, "pandas", "pyspark"), statement) == ""


@pytest.mark.parametrize(
    ("missing", "statement", "extra"),
    [
        (("sqlglot",), "import pyhudi as hp; hp.sql('SELECT 1')", "sql"),
        pytest.param(("duckdb",), "import pyhudi as hp; hp.sql('SELECT 1')", "sql", marks=pytest.mark.full),
    ],
)
def test_the_error_names_the_extra(missing: tuple[str, ...], statement: str, extra: str) -> None:
    message = run_without(missing, statement)
    assert message.startswith("pyhudi.errors.InvalidRequest") and f"pyhudi[{extra}]" in message
