"""Numbers that files store as text, and the documents that hold them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pyhudi.errors import CorruptData, HudiError, InvalidRequest, Unsupported
from pyhudi.features.ingestion.kafka_source import parse_offsets
from pyhudi.format.hudi_types import parse_hudi_type
from pyhudi.format.lsm_timeline import parse_version
from pyhudi.format.partition_metadata import PartitionMetadata
from pyhudi.format.stored_numbers import parse_digits
from pyhudi.planning.bucket_routing import _parsed
from pyhudi.records.schema_on_read.column_ids import type_from_name
from pyhudi.storage.process_identity import Process


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_0", " 1", "\u0661", "\u00b2", "1e3", "9" * 19, "9" * 5_000])
def test_only_some_ascii_digits_are_a_number(text: str) -> None:
    assert parse_digits(text) is None
    assert parse_version(text.encode()) is None or text == " 1"
    assert Process.parse(f"h~b~s~{text}~{text}") is None or text == "9" * 19


def test_digits_are_a_number() -> None:
    assert [parse_digits(text) for text in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]
    assert [parse_digits("1234", most) for most in (3, 4)] == [None, 1234]


_LONG = "9" * 5_000
_DOCUMENTS: dict[str, Callable[[], object]] = {
    "vector": lambda: parse_hudi_type(f"VECTOR({_LONG})"),
    "decimal of a schema": lambda: type_from_name(f"decimal({_LONG}, 0)"),
    "decimal with a large precision": lambda: type_from_name("decimal(999, 2)"),
    "decimal with a large scale": lambda: type_from_name("decimal(3, 4)"),
    "decimal without numbers": lambda: type_from_name("decimal"),
    "fixed of a schema": lambda: type_from_name(f"fixed[{_LONG}]"),
    "fixed without a number": lambda: type_from_name("fixed"),
    "partition depth": lambda: PartitionMetadata.from_pairs({"commitTime": "1", "partitionDepth": _LONG}),
    "offset of Kafka": lambda: parse_offsets(f"t,0:{_LONG}", "t"),
    "bucket count": lambda: _parsed(f"a,{_LONG}"),
}


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_long_numbers_are_errors_of_their_own(document: str) -> None:
    with pytest.raises((CorruptData, InvalidRequest, Unsupported)) as raised:
        _DOCUMENTS[document]()
    assert isinstance(raised.value, HudiError)


def test_type_names_of_schemas_with_ids() -> None:
    names = {"decimal(10, 2)": pa.decimal128(10, 2), "fixed[16]": pa.binary(16)}
    assert {name: type_from_name(name) for name in names} == names
