"""Features that need PySpark name the missing extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
sys.modules["pyspark"] = None
import pyhudi
try:
    from pyhudi import spark
except ModuleNotFoundError as error:
    print(error.name, error)
"""


@pytest.mark.full
def test_the_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == 'pyspark this needs PySpark: pip install "pyhudi[spark]"\n'
