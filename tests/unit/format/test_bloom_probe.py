"""Bloom filter probes on encoded text give the answers of the whole filter, and detect damage."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.bloom_filter import BloomFilter, BloomKind
from pyhudi.format.bloom_probe import MAX_KEYS, text_might_contain

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=40)


@given(TEXTS, st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8), st.sampled_from(BloomKind), st.integers(1, 13))
def test_probe_results_equal_those_of_the_decoded_filter(
    held: list[str], others: list[str], kind: BloomKind, entries: int
) -> None:
    made = BloomFilter.create(kind, entries, 0.1, 30)
    made.add(pa.array(held, pa.string()))
    text = made.to_text().encode()
    for key in [*held, *others]:
        asked = pa.array([key], pa.string())
        assert text_might_contain(text, kind, asked) == made.might_contain(asked)[0]
    asked = pa.array(others, pa.string())
    assert text_might_contain(text, kind, asked) == made.might_contain(asked).any()


def test_any_number_of_keys() -> None:
    made = BloomFilter.create()
    made.add(pa.array(["there"]))
    text = made.to_text().encode()
    absent = [f"absent {number}" for number in range(MAX_KEYS)]
    for keys, found in (([], False), (absent, False), ([*absent, "gone"], False), (["there", *absent], True), (["there"], True)):
        assert text_might_contain(text, made.filter_type, pa.array(keys, pa.string())) is found


def test_damaged_bloom_filter_is_rejected() -> None:
    made = BloomFilter.create(BloomKind.SIMPLE, 100)
    made.add(pa.array(["there"]))
    text, asked = made.to_text().encode(), pa.array(["there"])
    for bad in (text[:-4], text[1:], b"", text[:50] + b"*" * (len(text) - 50), b"A" * len(text)):
        with pytest.raises((CorruptData, Unsupported)):
            text_might_contain(bad, made.filter_type, asked)
    with pytest.raises(Unsupported):
        text_might_contain(text, "CUCKOO", asked)
    jenkins = bytearray(made.encode())
    jenkins[8] = 0
    with pytest.raises(Unsupported):
        text_might_contain(base64.b64encode(jenkins), made.filter_type, asked)
