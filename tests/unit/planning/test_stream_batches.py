"""The end of a stream's next batch."""

from __future__ import annotations

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.options.supported import parse_options
from pyhudi.planning.stream_batches import BEGINNING, BatchLimits, StreamStep, batch_end, parse_start

STEPS = [StreamStep("3", 1, 10), StreamStep("1", 2, 100), StreamStep("2", 4, 5)]


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        (BatchLimits(), "3"),
        (BatchLimits(instants=1), "1"),
        (BatchLimits(instants=2), "2"),
        (BatchLimits(files=1), "1"),
        (BatchLimits(files=6), "2"),
        (BatchLimits(files=7), "3"),
        (BatchLimits(size_bytes=1), "1"),
        (BatchLimits(size_bytes=105), "2"),
        (BatchLimits(instants=3, size_bytes=104), "1"),
    ],
)
def test_limits(limits: BatchLimits, end: str) -> None:
    assert batch_end(STEPS, limits) == end
    assert batch_end([], limits) is None


def test_archived_steps_are_read_in_one_go() -> None:
    steps = [StreamStep(str(n), 0, 0, is_archived=n < 4) for n in range(1, 7)]
    assert batch_end(steps, BatchLimits(instants=1)) == "3"
    assert batch_end(steps[3:], BatchLimits(instants=1)) == "4"


def test_where_a_stream_begins() -> None:
    assert [parse_start(text) for text in ("earliest", " Latest ", "20261121")] == [BEGINNING, None, "20261121"]
    with pytest.raises(InvalidRequest):
        parse_start("2026-11-21")


def test_limits_from_options() -> None:
    given = parse_options({"pyhudi.stream.max.instants": 2, "pyhudi.stream.max.bytes": 7})
    assert BatchLimits.of(given) == BatchLimits(2, None, 7) and BatchLimits.of(given).any
    assert not BatchLimits.of(parse_options({})).any
    with pytest.raises(InvalidRequest, match="positive"):
        BatchLimits.of(parse_options({"pyhudi.stream.max.files": 0}))
