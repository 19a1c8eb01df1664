"""Hash functions of Hudi for placing records and for keys of the metadata table.

    java_string_hash      String.hashCode over UTF-16 units      buckets of the bucket index, shards of metadata
                          partitions
    consistent_hashes     XXH32, seed 0                          hash of a consistent hashing bucket index
    name_hash, file_hash  XXH64 and MD5 as base64                parts of keys of the metadata table

Array functions are vectorized in numpy over slices of rows, which bounds memory. XXH32 groups rows by byte length, each
group a matrix of bytes. The Java hash multiplies all units of a slice by powers of 31.

The test vectors were generated with Apache Hudi.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pyhudi.errors import InvalidRequest
from pyhudi.options import index_options
from pyhudi.records.keys.record_keys import split_record_keys

_SLICE_ROWS = 1 << 16
_NAME_SEED = 0xFFFFFFFFDABADABA


def java_string_hash(texts: pa.StringArray) -> np.ndarray:
    """Compute `String.hashCode` of each string, int32; 0 for null and for the empty string.

    A character above U+FFFF counts as its two UTF-16 units. Source: docs/formats/metadata-table.md.
    """
    result = np.zeros(len(texts), dtype=np.int32)
    for start in range(0, len(texts), _SLICE_ROWS):
        slice_ = texts.slice(start, _SLICE_ROWS)
        data, offsets = _bytes_of(slice_)
        units, bounds = _utf16(data, offsets)
        result[start : start + len(slice_)] = _polynomial(units, bounds)
    return result


def key_shards(keys: pa.StringArray, shard_count: int) -> np.ndarray:
    """Compute the file group, 0 to shard_count - 1, of each key of a metadata partition (int32).

    Source: docs/formats/metadata-table.md.
    """
    _require_positive(shard_count, "shard_count")
    # Java's abs leaves -2^31 negative and its remainder keeps the sign, so the result is the abs of the remainder.
    magnitude = np.abs(java_string_hash(keys).astype(np.int64))
    return (magnitude % shard_count).astype(np.int32)


def bucket_ids(
    keys: pa.StringArray, bucket_count: int, record_fields: Sequence[str], hash_fields: Sequence[str] = ()
) -> np.ndarray:
    """Compute the bucket, 0 to bucket_count - 1, of each record key (int32). Arguments and errors as in `bucket_hashes`."""
    _require_positive(bucket_count, "bucket_count")
    return (bucket_hashes(keys, record_fields, hash_fields) % bucket_count).astype(np.int32)


def bucket_hashes(keys: pa.StringArray, record_fields: Sequence[str], hash_fields: Sequence[str] = ()) -> np.ndarray:
    """Compute the bucket hash of each record key, 0 to 2^31 - 1; the bucket is its remainder.

    Source: docs/formats/writing.md, "Bucket index".

    Args:
        keys: Record keys.
        record_fields: Record key fields.
        hash_fields: Fields of `hoodie.bucket.index.hash.field`; empty for all record key fields.

    Raises:
        InvalidRequest: A hash field is not a record key field.
    """
    return _list_hashes(_hash_parts(keys, record_fields, hash_fields)) & 0x7FFFFFFF


def consistent_hashes(keys: pa.StringArray, record_fields: Sequence[str], hash_fields: Sequence[str] = ()) -> np.ndarray:
    """Compute the hash of each record key in a consistent hashing bucket index, 0 to 2^31 - 1 (int64).

    Arguments and errors as in `bucket_hashes`. Source: docs/formats/writing.md, "Bucket index".
    """
    parts = _hash_parts(keys, record_fields, hash_fields)
    if parts.values.null_count:
        # Java joins null as the string "null".
        parts = pa.ListArray.from_arrays(parts.offsets, pc.fill_null(parts.values, "null"))
    joined = pc.binary_join(parts, "")
    return _by_length(pc.fill_null(joined, ""), _xxh32_matrix, np.int64) & 0x7FFFFFFF


@lru_cache(maxsize=1 << 12)
def name_hash(text: str) -> str:
    """Return the 12 characters that encode a column or partition name in keys of the metadata table; `""` counts as `.`.

    Source: docs/formats/metadata-table.md.
    """
    return base64.b64encode(xxhash.xxh64(_or_root(text).encode(), seed=_NAME_SEED).digest()).decode()


def path_hash(path: str) -> str:
    """Return the 16 upper-case hexadecimal digits that encode a table's base path in lock names.

    Source: docs/formats/writing.md, "Conflicts".
    """
    return xxhash.xxh64(path.encode(), seed=_NAME_SEED).hexdigest().upper()


def file_hash(file_name: str) -> str:
    """Return the 24 characters that encode a file name without folder in keys of the metadata table.

    Source: docs/formats/metadata-table.md.
    """
    return base64.b64encode(hashlib.md5(file_name.encode(), usedforsecurity=False).digest()).decode()


# ---------------------------------------------------------------------------------------------------------------------


def _require_positive(number: int, name: str) -> None:
    if number < 1:
        raise InvalidRequest(f"{name} must be at least 1, not {number}")


def _or_root(text: str) -> str:
    return text or "."


def _bytes_of(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of all strings, concatenated, and their offsets (one more than rows); null is empty."""
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    buffers = texts.buffers()
    if not len(texts):
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(buffers[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(buffers[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets - offsets[0]


def _utf16(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert concatenated UTF-8 strings to UTF-16 units and their offsets."""
    if not len(data) or data.max() < 0x80:
        return data, offsets
    units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), dtype="<u2")
    # One unit for each byte that begins a character, one more for characters of four bytes.
    begins = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0)
    return units, np.concatenate([[0], np.cumsum(begins)])[offsets]


def _polynomial(units: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    lengths = np.diff(bounds)
    result = np.zeros(len(lengths), dtype=np.int32)
    if not len(units):
        return result
    powers = np.full(int(lengths.max()), 31, dtype=np.uint32)
    powers[0] = 1
    powers = np.multiply.accumulate(powers, dtype=np.uint32)
    # The last unit of a string has power 0, the one before it power 1, and so on.
    from_end = np.repeat(bounds[1:], lengths) - 1 - np.arange(len(units))
    products = units.astype(np.uint32) * powers[from_end]
    non_empty = np.flatnonzero(lengths)
    result[non_empty] = np.add.reduceat(products, bounds[:-1][non_empty], dtype=np.uint32).view(np.int32)
    return result


def _hash_parts(keys: pa.StringArray, record_fields: Sequence[str], hash_fields: Sequence[str]) -> pa.ListArray:
    """Return the hashed values of each key, in key order: list<string>, null for `__null__`."""
    unknown = [field for field in hash_fields if field not in record_fields]
    if unknown:
        raise InvalidRequest(
            f"{index_options.BUCKET_INDEX_HASH_FIELD} must name record key fields ({', '.join(record_fields)}), not "
            f"{', '.join(unknown)}"
        )
    fields = hash_fields or record_fields
    parts = split_record_keys(keys)
    flat = parts.flatten()
    names, values = flat.field("name"), flat.field("value")
    # A key without field names is one value, hashed whole.
    is_hashed = pc.or_(pc.is_null(names), pc.fill_null(pc.is_in(names, pa.array(fields, pa.string())), False))
    hashed_mask: np.ndarray = is_hashed.to_numpy(zero_copy_only=False)
    counts = pc.fill_null(pc.list_value_length(parts), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(counts)])
    offsets = np.concatenate([[0], np.cumsum(hashed_mask)])[ends].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.filter(is_hashed))


def _list_hashes(parts: pa.ListArray) -> np.ndarray:
    """Compute `List.hashCode` of each list of strings, as int64: h = 31 * h + hash, from 1, in 32 bits; null counts 0."""
    hashes = java_string_hash(parts.values).view(np.uint32)
    offsets: np.ndarray = parts.offsets.to_numpy()
    counts = np.diff(offsets)
    result = np.ones(len(parts), dtype=np.uint32)
    for position in range(int(counts.max()) if len(counts) else 0):
        rows = np.flatnonzero(counts > position)
        result[rows] = result[rows] * np.uint32(31) + hashes[offsets[rows] + position]
    return result.view(np.int32).astype(np.int64)


def _runs(texts: pa.StringArray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield groups of rows of equal byte length: row numbers, and their bytes as a matrix with one row each."""
    for start in range(0, len(texts), _SLICE_ROWS):
        data, bounds = _bytes_of(texts.slice(start, _SLICE_ROWS))
        lengths = np.diff(bounds)
        order = np.argsort(lengths, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
            if len(rows):
                positions = bounds[rows][:, None] + np.arange(lengths[rows[0]])
                yield start + rows, data[positions]


def _by_length(texts: pa.StringArray, kernel: Callable[[np.ndarray], np.ndarray], dtype: type) -> np.ndarray:
    result: np.ndarray = np.zeros(len(texts), dtype=dtype)
    for rows, matrix in _runs(texts):
        result[rows] = kernel(matrix)
    return result


def _rotate(values: np.ndarray, bits: np.uint32) -> np.ndarray:
    return (values << bits) | (values >> (np.uint32(32) - bits))


_XXH32_PRIMES = tuple(np.uint32(prime) for prime in (2654435761, 2246822519, 3266489917, 668265263, 374761393))


def _xxh32_matrix(matrix: np.ndarray) -> np.ndarray:
    count, length = matrix.shape
    p1, p2, p3, p4, p5 = _XXH32_PRIMES
    full = length // 4 * 4
    words = (
        np.ascontiguousarray(np.ascontiguousarray(matrix[:, :full]).view("<u4").T) if full else np.zeros((0, count), np.uint32)
    )
    done = length // 16 * 4
    if done:
        # The sums overflow on purpose; numpy warns about overflow of scalars only.
        starts = [(int(p1) + int(p2)) & 0xFFFFFFFF, int(p2), 0, -int(p1) & 0xFFFFFFFF]
        lanes = [np.full(count, value, dtype=np.uint32) for value in starts]
        for block in range(0, done, 4):
            lanes = [_rotate(lane + words[block + index] * p2, np.uint32(13)) * p1 for index, lane in enumerate(lanes)]
        rotations = (1, 7, 12, 18)
        result = sum((_rotate(lane, np.uint32(t)) for lane, t in zip(lanes, rotations, strict=True)), np.zeros(count, np.uint32))
    else:
        result = np.full(count, p5, dtype=np.uint32)
    result = result + np.uint32(length & 0xFFFFFFFF)
    for word in words[done:]:
        result = _rotate(result + word * p3, np.uint32(17)) * p4
    for column in range(full, length):
        result = _rotate(result + matrix[:, column].astype(np.uint32) * p5, np.uint32(11)) * p1
    result = (result ^ (result >> np.uint32(15))) * p2
    result = (result ^ (result >> np.uint32(13))) * p3
    return (result ^ (result >> np.uint32(16))).astype(np.int64)
