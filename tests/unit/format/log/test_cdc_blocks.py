"""CDC blocks: the three schemas, and round trips of rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.log.cdc_blocks import CdcMode, cdc_batch, cdc_mode, cdc_schema
from pyhudi.format.log.data_blocks import decode_content, encode_avro
from pyhudi.format.log.framing import BlockType, HeaderKey, encode_block

TABLE = arrow_to_avro(pa.schema([("id", pa.string()), ("price", pa.decimal128(10, 2))]), "my table")
ROW = pa.struct(list(avro_to_arrow(TABLE)))


def test_schema_with_only_keys() -> None:
    assert cdc_schema(CdcMode.OP_KEY_ONLY, TABLE) == (
        '{"type":"record","name":"Record","fields":[{"name":"op","type":["string","null"]},'
        '{"name":"record_key","type":["string","null"]}]}'
    )


@pytest.mark.parametrize("mode", [CdcMode.DATA_BEFORE, CdcMode.DATA_BEFORE_AFTER])
def test_schemas_with_images(mode: CdcMode) -> None:
    schema = json.loads(cdc_schema(mode, TABLE))
    assert (schema["name"], schema["namespace"]) == ("CDC", "hoodie.my__table")
    assert all((field["doc"], field["default"]) == ("", None) for field in schema["fields"])
    types = {field["name"]: field["type"] for field in schema["fields"]}
    assert types["op"] == ["null", "string"]
    assert types["before"] == ["null", json.loads(TABLE)]
    assert types.get("after") == (None if mode is CdcMode.DATA_BEFORE else ["null", "hoodie.my__table.my__table_record"])


@pytest.mark.parametrize("mode", list(CdcMode))
def test_cdc_rows_round_trip(mode: CdcMode) -> None:
    operations = pa.array(["i", "u", "d"])
    before = pa.array([None, {"id": "b"}, {"id": "c"}], ROW)
    after = pa.array([{"id": "a"}, {"id": "b"}, None], ROW)
    rows = cdc_batch(mode, TABLE, operations, pa.array(["a", "b", "c"]), "20261121051904428", before=before, after=after)
    schema = cdc_schema(mode, TABLE)
    assert cdc_mode(schema) is mode
    (found,) = decode_content(BlockType.CDC, schema, encode_avro(schema, [rows]))
    assert found.equals(rows)
    if mode is CdcMode.DATA_BEFORE_AFTER:
        assert found.column("ts_ms").to_pylist() == ["20261121051904428"] * 3
        assert found.column("after").null_count == found.column("before").null_count == 1


def test_block_of_the_reference() -> None:
    schema = cdc_schema(CdcMode.OP_KEY_ONLY, TABLE)
    rows = cdc_batch(
        CdcMode.OP_KEY_ONLY, TABLE, pa.array(["d", "d"]), pa.array(["k2", "k3"]), "", before=pa.nulls(2), after=pa.nulls(2)
    )
    content = encode_avro(schema, [rows])
    assert content.hex() == "0000000300000002" + "00000007" + "000264" + "00046b32" + "00000007" + "000264" + "00046b33"
    block = encode_block(BlockType.CDC, {HeaderKey.INSTANT_TIME: "20261121051904428", HeaderKey.SCHEMA: schema}, content)
    assert (len(block), block[13], block[-1]) == (239, 0xE1, 0xE7)


def test_invalid_cdc_batch_is_rejected() -> None:
    with pytest.raises(CorruptData, match="columns"):
        cdc_mode(TABLE)
    with pytest.raises(InvalidRequest):
        cdc_batch(CdcMode.DATA_BEFORE, TABLE, pa.array(["i"]), pa.array(["a"]), "1", before=pa.array([1]), after=pa.nulls(1))
