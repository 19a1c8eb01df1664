"""ORC files: rows of every type, user metadata, another writer's time zone, and damage."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc as po
import pytest

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.orc.orc_columns import from_orc
from pyhudi.format.orc.orc_reader import ORC_AVRO_SCHEMA_KEY, OrcFile
from pyhudi.format.orc.orc_tail import read_tail, with_user_metadata, writer_zone
from pyhudi.format.orc.orc_writer import OrcWriter
from pyhudi.format.protobuf import decode_fields, encode_bytes, encode_number

MOMENT = datetime.datetime(2026, 7, 1, 12, 30, 15, 123456, tzinfo=datetime.UTC)
OLD = datetime.datetime(1901, 2, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
PLACE = pa.struct([("lat", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("single", pa.float32()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("place", PLACE),
        ("places", pa.list_(pa.field("element", PLACE))),
        ("named", pa.map_(pa.string(), PLACE)),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {
            "id": n,
            "text": f"é{n}",
            "raw": bytes(range(n)),
            "flag": n % 2 == 0,
            "single": n / 4,
            "price": Decimal(n) / 4,
            "day": datetime.date(1901, 1, 1 + n),
            "at": (MOMENT, OLD)[n % 2] + datetime.timedelta(microseconds=n),
            "local": MOMENT.replace(tzinfo=None),
            "place": None if n == 3 else {"lat": 1.5, "at": MOMENT},
            "places": [{"lat": None, "at": OLD}, None][: n % 3],
            "named": [("home", {"lat": 0.0, "at": MOMENT}), ("none", None)][: n % 3],
        }
        for n in range(7)
    ]
    + [{"id": 7}],
    SCHEMA,
)
AVRO = arrow_to_avro(SCHEMA, "t")


def written(rows: pa.Table = ROWS, codec: str = "ZLIB", **metadata: str) -> bytes:
    sink = io.BytesIO()
    writer = OrcWriter(sink, rows.schema, codec=codec, stripe_bytes=1 << 20)
    if rows.num_rows:
        writer.write_table(rows)
    writer.close({ORC_AVRO_SCHEMA_KEY: AVRO, **metadata})
    return sink.getvalue()


def opened(data: bytes) -> OrcFile:
    return OrcFile(pa.BufferReader(data))


@pytest.mark.parametrize("codec", ("ZLIB", "ZSTD", "SNAPPY", "NONE"))
def test_rows_and_user_metadata(codec: str) -> None:
    # Longer than a block of a compressed file, which its chunks may not exceed.
    long = "x" * 200_000
    data = written(codec=codec, short="é", long=long)
    file = opened(data)
    assert file.schema_arrow.equals(SCHEMA)
    assert file.read().equals(ROWS)
    assert file.read(["text", "id"]).equals(ROWS.select(["text", "id"]))
    assert file.read_row_group(0, []).num_rows == 8
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (8, 1)
    assert (file.metadata.metadata[b"short"].decode(), file.metadata.metadata[b"long"].decode()) == ("é", long)
    # Another reader sees the same.
    other = po.ORCFile(io.BytesIO(data))
    assert dict(other.metadata)[b"long"] == long.encode()
    assert other.read().column("id").to_pylist() == list(range(8))


def test_parts_of_larger_arrays() -> None:
    """Of which Arrow by itself writes other rows' nested values."""
    many = pa.concat_tables([ROWS] * 400).combine_chunks()
    for part in (many.slice(1500, 1200), many.slice(3), pa.concat_tables([many.slice(5, 2), many.slice(100, 1100)])):
        assert opened(written(part)).read().equals(part)


def test_no_rows() -> None:
    file = opened(written(ROWS.slice(0, 0)))
    assert (file.metadata.num_rows, file.read().schema) == (0, SCHEMA)


def test_several_stripes() -> None:
    many = pa.table({"id": pa.array(range(30_000), pa.int64()), "text": [f"{n:09d}" * 9 for n in range(30_000)]})
    sink = io.BytesIO()
    writer = OrcWriter(sink, many.schema, codec="NONE", stripe_bytes=1 << 16)
    for start in range(0, 30_000, 3_000):
        writer.write_table(many.slice(start, 3_000))
    writer.close({})
    file = opened(sink.getvalue())
    assert file.metadata.num_row_groups > 3
    parts = [file.read_row_group(number, ["id"]) for number in range(file.metadata.num_row_groups)]
    assert [part.num_rows for part in parts] == [file.metadata.row_group(n).num_rows for n in range(len(parts))]
    assert pa.concat_tables(parts).column("id").to_pylist() == list(range(30_000))


def test_file_without_schema_metadata() -> None:
    sink = io.BytesIO()
    po.write_table(pa.table({"at": pa.array([MOMENT], pa.timestamp("us", "UTC")), "small": pa.array([1], pa.int16())}), sink)
    read = opened(sink.getvalue()).read()
    assert read.schema.types == [pa.timestamp("us", "UTC"), pa.int32()]
    assert read.to_pylist() == [{"at": MOMENT, "small": 1}]


def test_the_zone_of_the_writer() -> None:
    """A time is stored as wall clock, so without the zone it would be another instant."""
    data = written()
    source = pa.BufferReader(data)
    assert writer_zone(source, read_tail(source)) == "GMT"
    held = pa.table({"at": pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("ns"))})
    wanted = pa.schema([("at", pa.timestamp("us", "UTC"))])
    assert from_orc(held, wanted, "GMT").column("at").to_pylist() == [MOMENT, None]
    assert from_orc(held, wanted, "Europe/Berlin").column("at").to_pylist() == [MOMENT - datetime.timedelta(hours=2), None]


@pytest.mark.parametrize("year", [1600, 2400])
def test_times_that_arrow_could_not_read_back(year: int) -> None:
    rows = pa.table({"at": pa.array([MOMENT.replace(year=year)], pa.timestamp("us", "UTC"))})
    with pytest.raises(InvalidRequest, match=r"'at'.*1677 to 2262"):
        written(rows)


def test_other_compressions_are_refused_by_name() -> None:
    data = written()
    at = data.rindex(b"\x10\x01\x18")
    # The kind of the compression, in the postscript.
    with pytest.raises(Unsupported, match="LZ4"):
        opened(data[: at + 1] + b"\x04" + data[at + 2 :])


def test_files_that_are_cut_or_none() -> None:
    data = written()
    for damaged in (b"", b"ORC", data[:-1], data[: len(data) // 2], data[:-1] + b"\xff", b"PAR1" * 20):
        with pytest.raises(CorruptData):
            opened(damaged)


def test_damage_in_the_tail() -> None:
    """For every flipped bit of the footers: an error of PyHudi or of Arrow, or rows."""
    data = written(ROWS.select(["id", "text"]))
    for at in range(len(data) - 80, len(data)):
        for bit in (1, 0x80):
            damaged = bytearray(data)
            damaged[at] ^= bit
            try:
                opened(bytes(damaged)).read()
            except (CorruptData, Unsupported, pa.ArrowInvalid, OSError, UnicodeDecodeError, KeyError):
                continue


def test_metadata_is_added_to_what_is_there() -> None:
    data = written(first="1")
    tail = read_tail(pa.BufferReader(data))
    more = data[: tail.offset] + with_user_metadata(data[tail.offset :], {"second": b"2"})
    found = opened(more).metadata.metadata
    assert (found[b"first"], found[b"second"]) == (b"1", b"2")


DAYS = [datetime.date(1, 1, 1), datetime.date(1000, 2, 28), datetime.date(1582, 10, 4), datetime.date(1582, 10, 15), None]
HYBRID = pa.array([-719_164, -354_222, -141_428, -141_427, None], pa.int32()).cast(pa.date32())
"""The same days by the Julian calendar, up to the day on which the Gregorian one begins."""


def file_of_java(calendar: int | None, rows: pa.Table) -> bytes:
    """An ORC file as a writer of Java leaves it.

    calendar: the calendar of its dates, None for no entry.
    """
    sink = io.BytesIO()
    po.write_table(rows, sink, compression="uncompressed")
    whole = sink.getvalue()
    length = whole[-1]
    postscript = dict(decode_fields(ByteCursor(whole[-1 - length : -1])))
    footer_bytes = postscript[1]
    assert isinstance(footer_bytes, int)
    start = len(whole) - 1 - length - footer_bytes
    fields = [(number, value) for number, value in decode_fields(ByteCursor(whole[start : -1 - length])) if number != 9]
    footer = b"".join(encode_number(n, v) if isinstance(v, int) else encode_bytes(n, bytes(v)) for n, v in fields)
    footer += b"" if calendar is None else encode_number(11, calendar)
    postscript[1] = len(footer)
    end = b"".join(encode_number(n, v) if isinstance(v, int) else encode_bytes(n, bytes(v)) for n, v in postscript.items())
    return whole[:start] + footer + end + bytes([len(end)])


@pytest.mark.parametrize("calendar", [None, 1, 2])
def test_old_dates_of_external_files_follow_their_calendar(calendar: int | None) -> None:
    """Those of a table are Hudi's, which counts by the Gregorian calendar regardless of the file's entry."""
    # Each row: a list of a struct, and of a null; a map.
    nested = pa.StructArray.from_arrays(
        [HYBRID.take(pa.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]))], ["day"], mask=pa.array([False, True] * 5)
    )
    places = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6, 8, 10], pa.int32()), nested)
    named = pa.MapArray.from_arrays(pa.array(range(6), pa.int32()), pa.array(["k"] * 5), HYBRID)
    data = file_of_java(calendar, pa.table({"day": HYBRID, "places": places, "named": named, "n": [1, 2, 3, 4, 5]}))
    outside = OrcFile(pa.BufferReader(data), is_bootstrapped=True).read()
    inside = OrcFile(pa.BufferReader(data)).read()
    assert inside["day"].cast(pa.int32()).to_pylist() == HYBRID.cast(pa.int32()).to_pylist()
    if calendar == 2:
        assert outside.equals(inside)
        return
    assert outside["day"].to_pylist() == DAYS
    assert outside["places"].to_pylist() == [[{"day": day}, None] for day in DAYS]
    assert outside["named"].to_pylist() == [[("k", day)] for day in DAYS]
    assert outside["n"].to_pylist() == [1, 2, 3, 4, 5]


def test_writers_that_are_not_of_java_count_by_the_gregorian_calendar() -> None:
    sink = io.BytesIO()
    po.write_table(pa.table({"day": pa.array(DAYS, pa.date32())}), sink)
    assert OrcFile(pa.BufferReader(sink.getvalue()), is_bootstrapped=True).read()["day"].to_pylist() == DAYS
