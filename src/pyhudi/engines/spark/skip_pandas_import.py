"""What a Python worker of Spark does before anything else of PyHudi: it spares itself the import of pandas.

The first time that PyArrow converts anything it looks for pandas, and imports it where it is installed: more than a second of
processor time in every new worker, most of what starting one costs, and PyHudi's tasks have no use for it.  So

    1. in a worker, PyArrow is made to look while pandas cannot be found;
    2. when somebody imports pandas later (workers serve all functions of a session), PyArrow is made to look again, right then:
       from there on it knows Series and their nulls as if nothing had been.

Nothing is done on the driver, and nothing where pandas is there already.
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
    """Let PyArrow go without pandas until somebody imports it."""
    if _NAME in sys.modules or any(isinstance(finder, _PandasImportHook) for finder in sys.meta_path):
        return
    watch = _PandasImportHook()
    sys.meta_path.insert(0, watch)
    pa.array([])
    watch.is_hiding = False


class _PandasImportHook(MetaPathFinder):
    """Hides pandas at first, then waits for its import and tells PyArrow of it."""

    def __init__(self) -> None:
        self.is_hiding = True

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _NAME:
            return None
        if self.is_hiding:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
        sys.meta_path.remove(self)
        spec = find_spec(_NAME)
        loader = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                # A conversion to pandas is what makes PyArrow look again.
                with suppress(Exception):
                    pa.array([], pa.int8()).to_pandas()

            loader.exec_module = load_and_tell  # type: ignore[method-assign]
        return spec


def _is_worker() -> bool:
    """Whether Spark started this process: to run tasks, or to make and plan the reads of a Python source, which knows no task."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return TaskContext.get() is not None or (main is not None and main.name.startswith("pyspark."))


if _is_worker():
    spare_pandas()
