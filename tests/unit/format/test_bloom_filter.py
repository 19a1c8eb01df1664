"""Bloom filters: bytes of Apache Hudi, growth, and damaged bytes."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.bloom_filter import BloomFilter, BloomKind, bloom_size, murmur2
from tests.support.vectors import vector, vector_body

KEYS = st.lists(st.text(min_size=1, max_size=12), min_size=0, max_size=60)


def reference_hash(key: bytes, seed: int) -> int:
    mask = 0xFFFFFFFF
    h = (seed ^ len(key)) & mask
    full = len(key) // 4 * 4
    for at in range(0, full, 4):
        k = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ (k >> 24)) * 0x5BD1E995 & mask
        h = (h * 0x5BD1E995 & mask) ^ k
    if len(key) > full:
        for place, byte in enumerate(reversed(key[full:])):
            h ^= ((byte - 256 if byte > 127 else byte) << (8 * place)) & mask
        h = h * 0x5BD1E995 & mask
    h ^= h >> 13
    h = h * 0x5BD1E995 & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def reference_bits(key: bytes, bits: int, hash_count: int) -> list[int]:
    iv, positions = 0, []
    for _ in range(hash_count):
        iv = reference_hash(key, iv)
        positions.append(abs(iv) % bits)
    return positions


def reference_dynamic(keys: Sequence[str], num_entries: int, fpp: float, max_entries: int) -> bytes:
    """The rule as it is stated, one key at a time."""
    bits, hash_count = bloom_size(num_entries, fpp)
    rows: list[set[int]] = [set()]
    counted, turn, full = 0, 0, False
    for key in keys:
        if full:
            row = rows[turn % len(rows)]
            turn += 1
        elif counted >= num_entries and len(rows) * num_entries < max_entries:
            rows.append(set())
            counted = 0
            row = rows[-1]
        elif counted >= num_entries:
            full = True
            row = rows[0]
        else:
            row = rows[-1]
        row.update(reference_bits(key.encode(), bits, hash_count))
        counted += 1
    head = b"\xff\xff\xff\xff" + hash_count.to_bytes(4, "big") + b"\x01" + bits.to_bytes(4, "big")
    out = head + b"".join(n.to_bytes(4, "big") for n in (num_entries, counted, len(rows)))
    for row in rows:
        body = bytearray((bits + 7) // 8)
        for bit in row:
            body[bit >> 3] |= 1 << (bit & 7)
        out += head + bytes(body)
    return out


@pytest.mark.parametrize(
    ("key", "seed", "expected"),
    [
        (b"0", 0, 1111412596),
        (b"a", 0, -1838653602),
        (b"abc", 0, 1775488903),
        (b"hello world", 7, -1879093374),
        (b"\xff\xfe\xfd", 0, 992110096),
        ("sé0".encode(), 0, 984062311),
    ],
)
def test_murmur2_of_the_reference(key: bytes, seed: int, expected: int) -> None:
    assert murmur2(pa.array([key], pa.binary()), seed).tolist() == [expected]
    assert reference_hash(key, seed) == expected


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=40), st.integers(-(2**31), 2**31 - 1))
def test_murmur2_of_many_keys_is_that_of_each(keys: list[bytes], seed: int) -> None:
    assert murmur2(pa.array(keys, pa.binary()), seed).tolist() == [reference_hash(key, seed) for key in keys]


def test_sizes() -> None:
    assert bloom_size(60_000, 0.000000001) == (2_587_966, 30)
    assert bloom_size(10, 0.1) == (48, 4)
    assert BloomFilter.create("SIMPLE").size_bytes == 323_509
    assert len(BloomFilter.create("DYNAMIC_V0").to_text()) == 4 * ((323_509 + 25 + 2) // 3)


def test_simple_filter_of_the_reference() -> None:
    simple = BloomFilter.create(BloomKind.SIMPLE, 10, 0.1)
    simple.add(pa.array(["a", "é", "b"]))
    assert simple.to_text() == "/////wAAAAQBAAAAMC4ghAFgUA=="
    again = BloomFilter.from_text(simple.to_text(), "SIMPLE")
    assert again.might_contain(pa.array(["b", "nobody", "é", "a"])).tolist() == [True, False, True, True]
    assert again.encode() == simple.encode()


def test_dynamic_filter_of_the_reference() -> None:
    dynamic = BloomFilter.create("DYNAMIC_V0", 2, 0.1)
    dynamic.add(pa.array(["a", "é", "b"]))
    assert dynamic.encode().hex() == (
        "ffffffff00000004010000000a"
        + "000000020000000100000002"
        + "ffffffff00000004010000000a1d02"
        + "ffffffff00000004010000000aa102"
    )
    assert BloomFilter.from_text(dynamic.to_text(), "DYNAMIC_V0").might_contain(pa.array(["a", "é", "b"])).all()


def test_full_dynamic_filter_counts_on() -> None:
    dynamic = BloomFilter.create("DYNAMIC_V0", 10, 0.1, 25)
    dynamic.add(pa.array([f"k{i}" for i in range(40)]))
    assert dynamic.row_count == 3
    assert dynamic.encode()[13:25].hex() == "0000000a0000001400000003"


@given(KEYS, st.integers(1, 8), st.integers(1, 20), st.data())
def test_dynamic_rule_holds_for_any_cut_of_the_keys(keys: list[str], entries: int, most: int, data: st.DataObject) -> None:
    expected = reference_dynamic(keys, entries, 0.05, most)
    dynamic = BloomFilter.create("DYNAMIC_V0", entries, 0.05, most)
    at = 0
    while at < len(keys):
        step = data.draw(st.integers(1, len(keys) - at))
        dynamic.add(pa.array(keys[at : at + step], pa.string()))
        at += step
        # A writer that goes on with the filter of an older file continues where that one stopped.
        if data.draw(st.booleans()):
            dynamic = BloomFilter.from_text(dynamic.to_text(), "DYNAMIC_V0", most)
    assert dynamic.encode() == expected
    if keys:
        assert dynamic.might_contain(pa.array(keys, pa.string())).all()


@given(KEYS, KEYS)
def test_membership_is_that_of_the_bits(keys: list[str], others: list[str]) -> None:
    simple = BloomFilter.create("SIMPLE", 20, 0.2)
    simple.add(pa.array(keys, pa.string()))
    bits, hash_count = bloom_size(20, 0.2)
    present = {bit for key in keys for bit in reference_bits(key.encode(), bits, hash_count)}
    asked = others + keys
    expected = [set(reference_bits(key.encode(), bits, hash_count)) <= present for key in asked]
    assert simple.might_contain(pa.array(asked, pa.string())).tolist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()])
def test_key_types_and_slices_leave_the_same_bytes(kind: pa.DataType) -> None:
    keys = [f"key-{i % 13 * 'x'}{i}" for i in range(500)]
    expected = BloomFilter.create("SIMPLE", 500, 0.01)
    expected.add(pa.array(keys))
    array = pa.array(["", *keys, ""]).cast(kind).slice(1, 500)
    for given_keys in (array, pa.chunked_array([array.slice(0, 7), array.slice(7)])):
        simple = BloomFilter.create("SIMPLE", 500, 0.01)
        simple.add(given_keys)
        assert simple.encode() == expected.encode()


@pytest.mark.full
def test_many_chunks_and_long_keys() -> None:
    keys = [f"{i:09d}" for i in range(40_000)] + ["y" * 100_000 + str(i) for i in range(12)]
    simple = BloomFilter.create("SIMPLE", 50_000, 0.001)
    simple.add(pa.array(keys))
    bits, hash_count = bloom_size(50_000, 0.001)
    expected = np.zeros(bits, np.bool_)
    for key in keys[:200] + keys[-2:]:
        expected[reference_bits(key.encode(), bits, hash_count)] = True
    held = np.unpackbits(np.frombuffer(simple.encode()[13:], np.uint8), count=bits, bitorder="little").astype(bool)
    assert (held & expected).sum() == expected.sum()
    assert simple.might_contain(pa.array(keys)).all()
    absent = simple.might_contain(pa.array([f"absent-{i}" for i in range(40_000)]))
    assert absent.sum() < 200


def test_a_copy_is_independent() -> None:
    first = BloomFilter.create("DYNAMIC_V0", 5, 0.1, 5)
    first.add(pa.array(["a"]))
    before = first.encode()
    second = first.copy(max_entries=100)
    second.add(pa.array([f"k{i}" for i in range(30)]))
    assert first.encode() == before
    assert second.row_count > 1
    assert second.might_contain(pa.array(["a"])).all()


@pytest.mark.parametrize("keys", [pa.array(["a", None]), pa.array([1, 2])])
def test_refused_keys(keys: pa.Array) -> None:
    simple = BloomFilter.create("SIMPLE", 5, 0.1)
    with pytest.raises(InvalidRequest):
        simple.add(keys)
    with pytest.raises(InvalidRequest):
        simple.might_contain(keys)


@pytest.mark.parametrize(("entries", "fpp", "most"), [(0, 0.1, 1), (1, 0.0, 1), (1, 1.0, 1), (1, 0.1, 0), (10**9, 1e-9, 1)])
def test_refused_sizes(entries: int, fpp: float, most: int) -> None:
    with pytest.raises(InvalidRequest):
        BloomFilter.create("DYNAMIC_V0", entries, fpp, most)


def test_no_keys() -> None:
    simple = BloomFilter.create("SIMPLE", 5, 0.1)
    simple.add(pa.array([], pa.string()))
    assert simple.might_contain(pa.chunked_array([], pa.string())).tolist() == []
    assert not any(simple.encode()[13:])


def test_unsupported_bloom_filter_is_rejected() -> None:
    with pytest.raises(Unsupported, match="unversioned"):
        BloomFilter.decode(bytes.fromhex("0000000400000030") + bytes(20))
    with pytest.raises(Unsupported, match="Jenkins"):
        BloomFilter.decode(bytes.fromhex("ffffffff0000000400000000302e2084016050"))
    with pytest.raises(Unsupported, match="type"):
        BloomFilter.decode(b"", "BLOCKED")
    with pytest.raises(CorruptData):
        BloomFilter.from_text("not base64!")


@pytest.mark.parametrize("kind", list(BloomKind))
def test_every_truncation_is_an_error(kind: BloomKind) -> None:
    whole = BloomFilter.create(kind, 2, 0.1)
    whole.add(pa.array(["a", "b", "c"]))
    data = whole.encode()
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            BloomFilter.decode(data[:end], kind)
    with pytest.raises(CorruptData):
        BloomFilter.decode(data + b"\0", kind)


@pytest.mark.parametrize("kind", list(BloomKind))
def test_flipped_bits_give_a_filter_or_an_error(kind: BloomKind) -> None:
    whole = BloomFilter.create(kind, 2, 0.1)
    whole.add(pa.array(["a", "b", "c"]))
    data = whole.encode()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            BloomFilter.decode(bytes(damaged), kind).might_contain(pa.array(["a", "zz"]))
        except (CorruptData, Unsupported):
            pass


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from(list(BloomKind)))
def test_any_bytes_give_a_filter_or_an_error(data: bytes, kind: BloomKind) -> None:
    try:
        BloomFilter.from_text(base64.b64encode(data), kind)
    except (CorruptData, Unsupported):
        pass


@pytest.mark.parametrize(
    ("name", "kind", "entries", "most"),
    [("simple_200_000001_murmur", "SIMPLE", 200, 1), ("dynamic_200_000001_murmur_1000", "DYNAMIC_V0", 200, 1000)],
)
def test_filters_of_apache_hudi(name: str, kind: str, entries: int, most: int) -> None:
    text = vector_body(f"bloom/{name}.bf.data").strip()
    listing = gzip.decompress(vector("bloom/all_10000.keys.data.gz"))
    keys = pa.array(listing[listing.index(b"*/") + 2 :].decode().strip().split(","))
    assert len(keys) == 10_000
    assert BloomFilter.from_text(text, kind).might_contain(keys).all()
    ours = BloomFilter.create(kind, entries, 0.000001, most)
    ours.add(keys)
    assert ours.to_text().encode() == text


def test_an_empty_key_is_added_to_no_filter_and_may_be_in_every_one() -> None:
    for kind in BloomKind:
        made = BloomFilter.create(kind, 10, 0.001, 100)
        with pytest.raises(InvalidRequest, match="empty"):
            made.add(pa.array(["a", ""]))
        made.add(pa.array(["a"]))
        assert made.might_contain(pa.array(["", "a", "zzz", ""])).tolist() == [True, True, False, True]
        assert made.might_contain(pa.array([""])).tolist() == [True]


@pytest.mark.parametrize("counts", [(10, 20), (100, 90, 50), (250, 250, 10)])
@pytest.mark.parametrize("kind", list(BloomKind))
def test_merged_filters_contain_all_keys_in_a_limited_number_of_rows(kind: BloomKind, counts: tuple[int, ...]) -> None:
    keys = [pa.array([f"{part}-{number}" for number in range(count)]) for part, count in enumerate(counts)]
    filters = []
    for part in keys:
        filters.append(BloomFilter.create(kind, 100, 0.001, 250))
        filters[-1].add(part)
    before = [each.encode() for each in filters]
    merged = BloomFilter.merged(filters, 250)
    assert merged is not None
    assert all(merged.might_contain(part).all() for part in keys)
    assert merged.row_count <= (1 if kind is BloomKind.SIMPLE else 3)
    assert [each.encode() for each in filters] == before, "the sources are unchanged"
    again = BloomFilter.decode(merged.encode(), kind, 250)
    again.add(pa.array(["one more"]))
    assert again.might_contain(pa.array(["one more", "0-1"])).all()


def test_filters_of_other_sizes_are_not_merged() -> None:
    small, large = BloomFilter.create(num_entries=64), BloomFilter.create(num_entries=128)
    assert BloomFilter.merged([small, large]) is None
    assert BloomFilter.merged([small, BloomFilter.create("SIMPLE", 64)]) is None
