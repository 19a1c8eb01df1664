"""Locations of record keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, decode_locations, encode_locations

FILE_ID = "286bd8a3-789d-4a0b-bfe9-3ac4f0725bee-0"


def batch(*rows: tuple[str | None, str, int]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, LOCATION_SCHEMA, strict=True)], schema=LOCATION_SCHEMA
    )


def test_a_real_value() -> None:
    value = encode_locations(batch(("part=aa", FILE_ID, 1795237168915)))[0].as_py()
    before = bytes.fromhex("0000000000" + "00" + "0a" + "000000" + "02" + "020e")
    after = bytes.fromhex("0296a8ea89efa8eceb50" + "02a390edf8e1cee2968001" + "0200" + "0200" + "02a69ccac7bf68" + "000000")
    assert value == before + b"part=aa" + after


def test_other_file_ids_are_kept_as_text() -> None:
    rows = [
        ("", FILE_ID[:-2], 0),
        ("p", FILE_ID[:-1] + "12", 5),
        ("p", "not-a-uuid-0", -5),
        ("p", FILE_ID.upper(), 1),
        ("p", FILE_ID[:-1] + "01", 1),
        ("p", FILE_ID[:-1] + "99999999999", 1),
    ]
    values = encode_locations(batch(*rows))
    assert decode_locations(values, RECORD_SCHEMA).equals(batch(*rows))
    # High and low half -1, index -1, then the text.
    assert bytes.fromhex("020102010201") + bytes([2, 24]) + b"not-a-uuid-0" in values[2].as_py()


uuids = st.uuids().map(str)
file_ids = uuids | st.builds("{}-{}".format, uuids, st.integers(0, 999_999_999)) | st.text(min_size=1, max_size=8)


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "é"]), file_ids, st.integers(-(2**63), 2**63 - 1)), max_size=20),
    st.integers(1, 3),
)
def test_round_trip(rows: list[tuple[str, str, int]], times: int) -> None:
    locations = batch(*rows * times)
    values = encode_locations(locations)
    assert decode_locations(values, RECORD_SCHEMA).equals(locations)
    assert decode_locations(values[1:], RECORD_SCHEMA).equals(locations[1:])


def test_invalid_record_location_is_rejected() -> None:
    with pytest.raises(InvalidRequest):
        encode_locations(batch(("p", "", 1)))
    with pytest.raises(InvalidRequest):
        encode_locations(batch((None, FILE_ID, 1)))
    value = bytearray(encode_locations(batch(("p", FILE_ID, 1)))[0].as_py())
    assert value[-3] == 0
    value[-3] = 4
    with pytest.raises(Unsupported):
        decode_locations(pa.array([bytes(value)], pa.binary()), RECORD_SCHEMA)
