"""Which Python the workers of a session run.

    PYSPARK_PYTHON is set    that one: whoever set it knows the cluster
    a local master           this interpreter, which has PyHudi; Spark itself would take the first `python3` of PATH, also in a
                             program that was started as `venv/bin/python job.py`
    a cluster, Connect       what they are set up with: a path of this machine says nothing there

Where workers have no PyHudi, or another Python, tasks fail at their start: `of_wrong_worker` tells that failure by its text.
"""

from __future__ import annotations

import os
import re
import sys

from pyspark.sql import SparkSession

_SPARKS_OWN = "python3"
_WRONG_WORKER = re.compile(
    r"No module named '(?:pyhudi|pyarrow)'|PYTHON_VERSION_MISMATCH|Python in worker has different version|"
    r'Cannot run program "[^"]*python[^"]*"'
)


def use_this_python(session: SparkSession) -> bool:
    """Let a local session whose Python nobody chose run its workers with this interpreter.  Whether that was done just now."""
    if os.environ.get("PYSPARK_PYTHON") or type(session).__module__.startswith("pyspark.sql.connect"):
        return False
    context = session.sparkContext
    if context.pythonExec != _SPARKS_OWN or not str(context.master).startswith("local"):
        return False
    context.pythonExec = sys.executable
    return True


def of_wrong_worker(text: str) -> str | None:
    """What to do about a failure whose text says that the workers' Python cannot run PyHudi; None for any other."""
    found = _WRONG_WORKER.search(text)
    if found is None:
        return None
    return (
        f"the Python that Spark's workers run cannot run PyHudi ({found[0]}): export PYSPARK_PYTHON={sys.executable}, or another "
        "one that has PyHudi, before the session starts, or install PyHudi where the workers start; `pyhudi doctor` looks at it"
    )
