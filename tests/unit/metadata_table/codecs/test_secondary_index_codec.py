"""Keys of secondary indexes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData
from pyhudi.metadata_table.codecs.secondary_index_codec import (
    format_secondary_keys,
    format_secondary_prefixes,
    parse_secondary_keys,
)

texts = st.text(alphabet="a$\\\né", max_size=6)


def strings(*values: str | None) -> pa.StringArray:
    return pa.array(values, pa.string())


def test_a_real_key() -> None:
    assert format_secondary_keys(strings("chen$nai\\x", None), strings("3", "4")).to_pylist() == ["chen\\$nai\\\\x$3", None]


@given(st.lists(st.tuples(texts, texts), max_size=6))
def test_round_trip(pairs: list[tuple[str, str]]) -> None:
    values, keys = strings(*(value for value, _ in pairs)), strings(*(key for _, key in pairs))
    made = format_secondary_keys(values, keys)
    assert [part.to_pylist() for part in parse_secondary_keys(made)] == [values.to_pylist(), keys.to_pylist()]
    prefixes = format_secondary_prefixes(values).to_pylist()
    for (value, _), key in zip(pairs, made.to_pylist(), strict=True):
        for (other, _), prefix in zip(pairs, prefixes, strict=True):
            assert key.startswith(prefix) == (value == other)


@pytest.mark.parametrize("key", ["", "a", "a\\$b", "a$b$c", "a$b\\"])
def test_keys_of_another_form(key: str) -> None:
    with pytest.raises(CorruptData):
        parse_secondary_keys(strings("a$b", key))
