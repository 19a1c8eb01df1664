"""Skip the import of pandas at the start of Python workers of Spark.

At its first conversion PyArrow imports pandas if it is installed. That takes more than a second of processor time in
every new worker, most of the cost of starting one, and PyHudi's tasks do not need pandas. So

    1. in a worker, PyArrow's check runs while pandas is hidden;
    2. when user code imports pandas later (workers run all functions of a session), PyArrow's check is repeated at
       once, so that it recognizes Series and their nulls as usual.

Nothing is changed on the driver, or if pandas is already imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pyarrow as pa
from pyspark import TaskContext

_NAME = "pandas"


def spare_pandas() -> None:
    """Defer PyArrow's import of pandas until user code imports pandas."""
    if _NAME in sys.modules or any(isinstance(finder, _PandasImportHook) for finder in sys.meta_path):
        return
    watch = _PandasImportHook()
    sys.meta_path.insert(0, watch)
    pa.array([])
    watch.is_active = False


class _PandasImportHook(MetaPathFinder):
    """Hides pandas at first, then waits for its import and repeats PyArrow's check."""

    def __init__(self) -> None:
        self.is_active = True

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _NAME:
            return None
        if self.is_active:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
        sys.meta_path.remove(self)
        spec = find_spec(_NAME)
        loader = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                # A conversion to pandas triggers PyArrow's check.
                with suppress(Exception):
                    pa.array([], pa.int8()).to_pandas()

            loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


def _is_worker() -> bool:
    """Whether Spark started this process: to run tasks, or to plan the reads of a Python source, without a task context."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return TaskContext.get() is not None or (main is not None and main.name.startswith("pyspark."))


if _is_worker():
    spare_pandas()
