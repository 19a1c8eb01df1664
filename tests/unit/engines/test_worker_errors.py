"""Errors of workers arrive by pickle and as a note in the text of a traceback."""

from __future__ import annotations

import inspect
import pickle
import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyhudi import errors
from pyhudi.errors import CommitUnknown, CorruptData, EngineFailed, HudiError, InvalidRequest, ServiceFailed, WriteConflict

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from pyhudi.engines.spark.jobs import extract_error, translated_errors
from pyhudi.engines.spark.worker_errors import format_error, parse_error, with_error_fields

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HudiError)]
EXAMPLES = [
    *(kind("what, where\nand what to do") for kind in KINDS),
    CorruptData("bad magic", offset=7, expected=1, found=2).with_path("s3://b/t/f"),
    WriteConflict("lost", instants=("1", "2")),
    CommitUnknown("who knows", instant="1"),
    ServiceFailed("stands", instant="1", service="clean"),
]


def same(found: HudiError | None, error: HudiError) -> None:
    assert type(found) is type(error)
    assert (found.args, str(found)) == (error.args, str(error))
    assert {k: v for k, v in found.__dict__.items() if k != "__notes__"} == error.__dict__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_round_trip(error: HudiError) -> None:
    same(pickle.loads(pickle.dumps(error)), error)
    same(parse_error(f"Traceback ...\n{format_error(error)}\n\nJVM stacktrace:\n at org.apache..."), error)


class Job:
    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        raise WriteConflict("lost the race", instants=("20260101000000000",))


def test_job_errors_are_raised() -> None:
    job = pickle.loads(pickle.dumps(Job()))
    batch = pa.record_batch({"x": [1]})
    with pytest.raises(WriteConflict) as raised:
        list(job(iter([batch])))
    text = "".join(traceback.format_exception(raised.value))
    found = extract_error(f"[PYTHON_EXCEPTION] {text}\n\tat org.apache.spark.api.python")
    assert isinstance(found, WriteConflict)
    assert (str(found), found.instants) == ("lost the race", ("20260101000000000",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pyhudi-error: {",
        'pyhudi-error: {"kind": "os", "args": [], "state": {}}',
        'pyhudi-error: {"kind": "Any", "args": ["x"], "state": {}}',
        'pyhudi-error: {"kind": "HudiError", "args": [[1]], "state": {}}',
        'pyhudi-error: {"kind": 1}',
        "pyhudi-error: []",
    ],
)
def test_other_texts_make_no_error(text: str) -> None:
    assert parse_error(text) is None
    assert extract_error(text) is None


def test_error_type_is_parsed_from_text_without_a_note() -> None:
    found = extract_error("pyhudi.errors.InvalidRequest: column x is missing\n\nJVM stacktrace:\n...")
    assert type(found) is InvalidRequest and str(found) == "column x is missing"


class Py4JJavaError(Exception):
    """Test double of py4j's class: py4j is not installed where only Spark Connect is used."""

    __module__ = "py4j.protocol"


DEAD = """An error occurred while calling o89.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:744)
\t... 14 more
Driver stacktrace:"""


@pytest.mark.parametrize("kind", [Py4JJavaError, PySparkException])
def test_crashed_worker_is_an_engine_failure(kind: type[Exception]) -> None:
    with pytest.raises(EngineFailed, match=r"Task 0 .*Python worker exited unexpectedly") as caught, translated_errors():
        raise kind(DEAD)
    assert "\n" not in str(caught.value)
    assert "PythonRunner.scala" not in str(caught.value)
    assert isinstance(caught.value.__cause__, kind)


def test_pyhudi_error_inside_a_jvm_error_is_extracted() -> None:
    with pytest.raises(InvalidRequest, match="no such column"), translated_errors():
        raise Py4JJavaError("An error occurred.\npyhudi.errors.InvalidRequest: no such column\n\n\tat org.apache.spark.x")


@pytest.mark.parametrize("error", [PySparkException("[UNRESOLVED_COLUMN] no x"), ValueError("theirs")])
def test_errors_of_the_callers_plan_are_not_translated(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translated_errors():
        raise error
    assert caught.value is error
