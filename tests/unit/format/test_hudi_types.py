"""Vector types: names, Avro nodes, bytes and pickles."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.hudi_types import (
    bytes_to_vectors,
    hudi_type_name,
    is_vector,
    parse_hudi_type,
    vector_from_avro,
    vector_to_avro,
    vectors_to_bytes,
)


@pytest.mark.parametrize("name", ["VECTOR(1)", "VECTOR(768)", "VECTOR(2, DOUBLE)", "VECTOR(3, INT8)"])
def test_name_avro_and_pickle_of_a_vector_type(name: str) -> None:
    type_ = parse_hudi_type(name)
    assert hudi_type_name(type_) == name and parse_hudi_type(f" {name.lower()} ") == type_
    assert vector_from_avro(vector_to_avro(type_)) == type_
    again = pickle.loads(pickle.dumps(pa.schema([pa.field("v", type_)]))).field(0).type
    assert again == type_ and is_vector(again)


def test_values_are_little_endian_and_not_copied() -> None:
    type_ = parse_hudi_type("VECTOR(4)")
    values = pa.array([[0, 0, 0, 0], [9, 8, 7, 6], None, [1, 2, 3, -0.0]], type_)
    stored = vectors_to_bytes(values.slice(1))
    assert stored[0].as_py().hex() == "00001041000000410000e0400000c040" and stored.null_count == 1
    assert stored.buffers()[1].address == values.values.buffers()[1].address + 16
    again = bytes_to_vectors(stored, type_)
    again.validate(full=True)
    assert again.equals(values.slice(1)) and np.signbit(again[2].as_py()[3])
    assert bytes_to_vectors(stored.slice(1, 2), type_).to_pylist() == [None, [1.0, 2.0, 3.0, -0.0]]
    assert len(vectors_to_bytes(values.slice(4))) == len(bytes_to_vectors(stored.slice(3), type_)) == 0


@pytest.mark.parametrize("change", [{"size": 15}, {"dimension": 5}, {"dimension": 0}, {"dimension": "4"}])
def test_size_that_does_not_fit_the_dimension_is_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptData, match="size of a vector"):
        vector_from_avro(vector_to_avro(parse_hudi_type("VECTOR(4)")) | change)
    with pytest.raises(CorruptData, match="another size"):
        bytes_to_vectors(pa.array([b"123"], pa.binary(3)), parse_hudi_type("VECTOR(4)"))


def test_second_use_of_a_type_is_its_name() -> None:
    schema = (
        '{"type":"record","name":"r","namespace":"hoodie.t","fields":[{"name":"a","type":{"type":"fixed","name":"vector_float_2",'
        '"namespace":"","size":8,"logicalType":"vector","dimension":2,"elementType":"FLOAT","storageBacking":"FIXED_BYTES"}},'
        '{"name":"b","type":["null","vector_float_2"]}]}'
    )
    assert [field.type for field in avro_to_arrow(schema)] == [parse_hudi_type("VECTOR(2)")] * 2
