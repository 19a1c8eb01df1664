"""Text of incoming rows that is not UTF-8 is found with its column and row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.records.utf8_checks import check_utf8

BYTES = [b"ok", "größer".encode(), None, b"\xff\xfe", b"z", b"\xc3"]
TEXT = pa.Array.from_buffers(pa.string(), 6, pa.array(BYTES, pa.binary()).buffers(), null_count=1)
LISTS = pa.ListArray.from_arrays([0, 2, 2, 6], TEXT)
NAMES = pa.array([str(number) for number in range(6)])


@pytest.mark.parametrize(
    ("column", "row"),
    [
        (TEXT, 3),
        (TEXT.slice(2), 1),
        (TEXT.slice(4), 1),
        (pa.StructArray.from_arrays([NAMES, TEXT], ["a", "b"]), 3),
        (LISTS, 2),
        (LISTS.slice(1), 1),
        (pa.MapArray.from_arrays(pa.array([0, 2, 2, 6], pa.int32()), NAMES, TEXT), 2),
        (pa.ListArray.from_arrays([0, 6], pa.StructArray.from_arrays([TEXT], ["a"])), 0),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_first_row_is_named(column: pa.Array, row: int) -> None:
    good = pa.nulls(len(column), pa.string())
    with pytest.raises(InvalidRequest, match=rf"column 'v': row {row} \(counted from 0\) has text that is not UTF-8"):
        check_utf8(pa.record_batch([good, column], names=["a", "v"]))


def test_valid_text_passes() -> None:
    check_utf8(pa.record_batch([TEXT.slice(0, 2), LISTS.slice(0, 2), pa.array([1, 2])], names=["v", "l", "n"]))
