from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet_footer import closing_without

NESTED = pa.array([{"x": 1.0, "y": [2.0]}, {"x": math.nan, "y": None}, None])
ROWS = pa.table({"a": [1.5, math.nan, None], "b": [1, 2, 3], "c": ["x", None, "z"], "s": NESTED, "flag": [True, False, None]})


def written(row_group_size: int = 2) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, ROWS.schema, write_page_index=True) as writer:
        writer.write_table(ROWS, row_group_size=row_group_size)
        writer.add_key_value_metadata({"key": "value"})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def bounds(content: bytes) -> dict[str, list[bool]]:
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    found: dict[str, list[bool]] = {}
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            found.setdefault(chunk.path_in_schema, []).append(chunk.statistics is not None and chunk.statistics.has_min_max)
    return found


@pytest.mark.parametrize("row_group_size", [1, 2, 3])
def test_the_second_footer_counts(row_group_size: int) -> None:
    content = written(row_group_size)
    edited = content + closing_without(content, {"a", "s.x"})
    before, after = bounds(content), bounds(edited)
    assert after == {path: [False] * len(flags) if path in ("a", "s.x") else flags for path, flags in before.items()}
    assert before["a"][0]
    file, other = (pq.ParquetFile(pa.BufferReader(data)) for data in (edited, content))
    assert str(file.read().to_pylist()) == str(ROWS.to_pylist())
    assert file.metadata.metadata == other.metadata.metadata
    assert file.metadata.created_by == other.metadata.created_by
    assert file.schema.equals(other.schema)
    assert closing_without(content, set()) == content[-len(closing_without(content, set())) :]


def test_encodings_of_pages_are_left_out() -> None:
    content = written()
    other = pq.ParquetFile(pa.BufferReader(content + closing_without(content, (), {"a"})))
    assert bounds(content + closing_without(content, (), {"a"})) == bounds(content)
    assert str(other.read().to_pylist()) == str(ROWS.to_pylist())
    assert len(closing_without(content, ())) > len(closing_without(content, (), {"a"}))


def test_damage_is_found() -> None:
    content = written()
    closing = closing_without(content, set())
    for bad in (b"", closing[:-1], closing[-8:], closing[9:], content[:-8] + b"\xff\xff\xff\x7fPAR1"):
        with pytest.raises(CorruptData):
            closing_without(bad, {"a"})
    for place in range(len(closing) - 8):
        flipped = bytearray(closing)
        flipped[place] ^= 0x55
        try:
            closing_without(bytes(flipped), {"a"})
        except CorruptData:
            continue
