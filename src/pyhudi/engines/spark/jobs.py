"""Run Python tasks on the cluster, and translate their errors.

Tasks and results are pickled values, sent as binary rows of a small DataFrame through `mapInArrow`. One Spark task runs
one task, so Spark's retry and speculation apply to each.

Errors: an error that PyHudi raises on a worker is re-created on the driver, with its fields (see `worker_errors`). A
native expression refuses a row through `raise_error` with the prefix `REFUSAL`; it becomes InvalidRequest. A job that
failed because a worker died, lacks PyHudi, or within the JVM, raises EngineFailed. Errors of the caller's own plan (a
missing column, a user function that raised) remain Spark's exceptions.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyhudi import errors
from pyhudi.engines.spark.job_progress import spark_stage
from pyhudi.engines.spark.type_conversion import ddl
from pyhudi.engines.spark.worker_errors import parse_error, with_error_fields
from pyhudi.errors import EngineFailed, HudiError, Internal, InvalidRequest
from pyhudi.tasks.base_file_reader import missing_error
from pyhudi.tasks.progress import stage_name

# Which Python the workers of a session run.
#
#     PYSPARK_PYTHON is set    that one, as the user configured it
#     a local master           this interpreter, which has PyHudi; Spark's default is the first `python3` of PATH, even
#                              in a program that was started as `venv/bin/python job.py`
#     a cluster, Connect       their configured Python: a path of this machine is meaningless there
#
# If workers lack PyHudi or run another Python version, tasks fail at their start: `wrong_worker_hint` detects that by
# its text.

_SPARK_DEFAULT_PYTHON = "python3"
_WRONG_WORKER = re.compile(
    r"No module named '(?:pyhudi|pyarrow)'|PYTHON_VERSION_MISMATCH|Python in worker has different version|"
    r'Cannot run program "[^"]*python[^"]*"'
)


def set_worker_python(session: SparkSession) -> bool:
    """Make a local session run its workers with this interpreter, unless configured. Returns whether it changed the session."""
    if os.environ.get("PYSPARK_PYTHON") or type(session).__module__.startswith("pyspark.sql.connect"):
        return False
    context = session.sparkContext
    if context.pythonExec != _SPARK_DEFAULT_PYTHON or not str(context.master).startswith("local"):
        return False
    context.pythonExec = sys.executable
    return True


def wrong_worker_hint(text: str) -> str | None:
    """Advice for a failure whose text shows that the workers' Python cannot run PyHudi; None for others."""
    matched = _WRONG_WORKER.search(text)
    if matched is None:
        return None
    return (
        f"the Python of Spark's workers cannot run PyHudi ({matched[0]}): export PYSPARK_PYTHON={sys.executable}, or another "
        "Python with PyHudi, before the session starts, or install PyHudi on the workers; `pyhudi doctor` checks it"
    )


A = TypeVar("A")
R = TypeVar("R")

REFUSAL = "pyhudi refuses: "
"""Prefix of the text of `raise_error` in native expressions."""

_CLOSURE_BYTES = 1 << 20
"""Tasks up to this size are pickled with the function; Spark sends it to every task, and no shuffle is needed."""

_MOST_SPARK_TASKS = 4096

_RAISED = re.compile(r"^pyhudi\.errors\.(\w+): ", re.MULTILINE)
_JVM_TRACE = re.compile(r"\n\s*JVM stacktrace:.*|\n\s+at org\.apache\..*", re.DOTALL)

_MISSING_FILE = re.compile(r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.?\s")
"""A file of Spark's scan was removed since the scan was defined."""

_DEAD_WORKER = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|Python worker failed to connect back")
_PY4J_HEAD = re.compile(r"^An error occurred while calling [^\n]*\n: ")
_SUMMARY_CHARACTERS = 600

_CORES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def run_tasks(session: SparkSession, function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
    """Run independent tasks on the cluster; results in the order of the tasks.  function and tasks must be picklable."""
    todo = list(tasks)
    if not todo:
        return []
    frame = task_rows(session, _ResultRows(function), todo, ddl(("task", "long"), ("result", "binary")))
    with translated_errors(), spark_stage(session, stage_name(getattr(function, "func", function))):
        answers = frame.toArrow()
    results: list[Any] = [None] * len(todo)
    seen = 0
    for number, blob in zip(answers.column("task").to_pylist(), answers.column("result").to_pylist(), strict=True):
        results[number] = pickle.loads(blob)
        seen += 1
    if seen != len(todo):
        raise Internal(f"{len(todo)} tasks were sent to Spark and {seen} results were returned")
    return results


def task_rows(
    session: SparkSession, work: Callable[[int, Any], Iterator[pa.RecordBatch]], tasks: Iterable[Any], schema: T.StructType | str
) -> DataFrame:
    """The batches that `work` creates from each task and its number, as a DataFrame.

    Up to a limit each task has its own Spark partition. The partitions, and the rows in each of them, are in the order
    of the tasks. work and tasks must be picklable. schema: of the batches.
    """
    set_worker_python(session)
    blobs = [pickle.dumps(task, protocol=5) for task in tasks]
    slots = min(len(blobs), _MOST_SPARK_TASKS)
    if sum(len(blob) for blob in blobs) <= _CLOSURE_BYTES and slots == len(blobs):
        return session.range(0, slots, 1, slots).mapInArrow(_TaskRunner(work, tuple(blobs)), schema)
    rows = pa.table({"task": pa.array(range(len(blobs)), pa.int64()), "blob": pa.array(blobs, pa.binary())})
    dealt = session.createDataFrame(rows).repartitionById(slots, F.expr(f"cast(task * {slots} div {len(blobs)} as int)"))
    return dealt.sortWithinPartitions("task").mapInArrow(_TaskRunner(work), schema)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Re-raise PyHudi's errors of a Spark job as themselves, and failures of the cluster as EngineFailed."""
    try:
        yield
    except Exception as error:
        # JVM errors without a PySpark class are raised as those of py4j, which Spark Connect does not use.
        of_jvm = type(error).__module__.startswith("py4j.")
        if not of_jvm and not isinstance(error, PySparkException):
            raise
        text = str(error)
        translated = extract_error(text)
        remedy = wrong_worker_hint(text) if translated is None else None
        if remedy is not None:
            translated = EngineFailed(remedy)
        if translated is None and (of_jvm or _DEAD_WORKER.search(text)):
            translated = EngineFailed(f"Spark failed while it ran tasks of PyHudi; their results are discarded: {_summary(text)}")
        if translated is None:
            raise
        raise translated from error


def extract_error(text: str) -> HudiError | None:
    """PyHudi's error in the message of a Spark exception, None if there is none."""
    parsed = parse_error(text)
    if parsed is not None:
        return parsed
    missing = _MISSING_FILE.search(text)
    if missing is not None:
        return missing_error(missing[1])
    text = _JVM_TRACE.sub("", text)
    raised = list(_RAISED.finditer(text))
    if raised:
        kind = getattr(errors, raised[-1].group(1), None)
        if isinstance(kind, type) and issubclass(kind, HudiError):
            return kind(text[raised[-1].end() :].strip())
    at = text.find(REFUSAL)
    if at >= 0:
        return InvalidRequest(re.sub(r"\s*SQLSTATE: \w+\s*$", "", text[at + len(REFUSAL) :].strip()))
    return None


def _summary(text: str) -> str:
    """Spark's message on one line, without JVM stack traces."""
    lines = (line.strip() for line in _PY4J_HEAD.sub("", text).splitlines())
    summary = " ".join(line for line in lines if line and not line.startswith(("at ", "...")))
    return summary if len(summary) <= _SUMMARY_CHARACTERS else f"{summary[:_SUMMARY_CHARACTERS]}..."


def parallelism(session: SparkSession) -> int:
    """Number of tasks that the cluster runs concurrently, as Spark estimates it; at least 1.  Cached per session."""
    known = _CORES.get(session)
    if known is None:
        numbers = session.range(1 << 16).select(F.spark_partition_id().alias("n")).agg(F.max("n").alias("n"))
        known = _CORES[session] = int(numbers.collect()[0]["n"]) + 1
    return known


class _TaskRunner:
    """Executes the tasks of its rows in order.  blobs: the tasks, if the rows contain only their numbers."""

    def __init__(self, work: Callable[[int, Any], Iterator[pa.RecordBatch]], blobs: tuple[bytes, ...] | None = None) -> None:
        self._work = work
        self._blobs = blobs

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            blobs = batch.column(1).to_pylist() if self._blobs is None else [self._blobs[number] for number in numbers]
            for number, blob in zip(numbers, blobs, strict=True):
                yield from self._work(number, pickle.loads(blob))


class _ResultRows:
    """The result of a function as a row: the task's number and the pickled result."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, number: int, task: Any) -> Iterator[pa.RecordBatch]:
        result = pickle.dumps(self._function(task), protocol=5)
        yield pa.RecordBatch.from_arrays(
            [pa.array([number], pa.int64()), pa.array([result], pa.binary())], names=["task", "result"]
        )
