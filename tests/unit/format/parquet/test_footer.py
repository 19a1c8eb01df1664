from __future__ import annotations

import ast
import io
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.footer import closing_without
from pyhudi.format.parquet.parquet_file import open_parquet
from tests.support.parquet_files import ROWS, files_of_others, look_at, written


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


def test_footers_of_other_writers_are_checked() -> None:
    found = files_of_others()
    assert len(found) > 100
    for content in found.values():
        open_parquet(pa.BufferReader(content))


@pytest.mark.sample(2)
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_footers_of_well_compressed_columns_are_checked(codec: str) -> None:
    rows = pa.table(
        {
            "n": pa.array([0] * 2_000_000, pa.int64()),
            "t": pa.repeat("x" * 50, 2_000_000),
            "none": pa.nulls(2_000_000, pa.date32()),
        }
    )
    for data in (rows, rows.slice(0, 0), rows.slice(0, 1)):
        for dictionary in (True, False):
            sink = io.BytesIO()
            pq.write_table(data, sink, compression=codec, use_dictionary=dictionary, write_page_index=dictionary)
            look_at(sink.getvalue())


MUTANTS = """
import random, sys
from pyhudi.errors import CorruptData
from tests.support.parquet_files import files_of_others, look_at, written
import pyarrow as pa
found, seen = [*list(files_of_others().values())[::40], written()], {"read": 0, "refused": 0, "arrow": 0}
choice = random.Random(7)
for number in range(600):
    content = bytearray(found[number % len(found)])
    length = int.from_bytes(content[-8:-4], "little")
    for _ in range(choice.randint(1, 3)):
        content[-9 - choice.randrange(length)] = choice.choice((0, 1, 255, 127, choice.randrange(256)))
    try:
        look_at(bytes(content))
    except CorruptData:
        seen["refused"] += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        seen["arrow"] += 1
    else:
        seen["read"] += 1
print(seen)
"""


def test_damaged_footers_of_other_writers_do_not_crash_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", MUTANTS], capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-1000:]}"
    seen = ast.literal_eval(done.stdout)
    assert sum(seen.values()) == 600 and seen["refused"] > 100, seen
