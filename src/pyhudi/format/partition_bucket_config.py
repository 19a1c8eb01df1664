"""Bucket counts per partition of the simple bucket index (Hudi 1.1: PartitionBucketIndexHashingConfig).

    file    below `BUCKET_COUNTS_FOLDER`: `<instant>.hashing_config`, JSON in Jackson's spacing. The instant is fourteen
            zeros in the file of a new table, else that of the replacecommit that changed the counts of partitions
    rules   `<regular expression>,<count>`, joined by ';': the first expression found in a partition's path determines its
            count; without a match, the default count applies

`table.partition_buckets` selects the effective one of several files.

Specification: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.json_document import jackson_text, parse_json
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER, file_name, join_path

FIRST_INSTANT = "00000000000000"
"""Instant of the counts of a new table."""

_SUFFIX = ".hashing_config"
_FILE = re.compile(r"([0-9]{14}|[0-9]{17})\.hashing_config")
_REGEX = "regex"


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """Content of one file.

    Attributes:
        expressions: The rules as written.
        default: Count of partitions that match no rule, at least 1.
        instant: The instant in the file's name.
    """

    expressions: str
    default: int
    instant: str = FIRST_INSTANT

    def __post_init__(self) -> None:
        if self.default < 1 or not self.expressions.strip():
            raise CorruptData(f"invalid bucket counts by partition: rules {self.expressions!r}, default {self.default}")

    def encode(self) -> bytes:
        """Return the JSON, field by field as Hudi writes it."""
        document = {
            "expressions": self.expressions,
            "defaultBucketNumber": self.default,
            "rule": _REGEX,
            "version": 1,
            "instant": self.instant,
        }
        return jackson_text(document).encode()

    @classmethod
    def decode(cls, data: bytes) -> BucketCounts:
        """Decode the JSON.

        Raises:
            CorruptData: The document is invalid.
            Unsupported: Rules that are not regular expressions.
        """
        document = parse_json(data, "bucket counts by partition are")
        try:
            rule, expressions = document["rule"], document["expressions"]
            default, instant = document["defaultBucketNumber"], document["instant"]
        except (KeyError, TypeError) as error:
            raise CorruptData(f"bucket counts by partition are missing a field: {error!r}") from error
        texts = (rule, expressions, instant)
        if not all(isinstance(text, str) for text in texts) or not isinstance(default, int) or isinstance(default, bool):
            raise CorruptData(f"bucket counts by partition have a field of another type: {document!r}")
        if rule.lower() != _REGEX:
            raise Unsupported(f"bucket counts by partition have rules of type {rule}, but only {_REGEX} is supported")
        return cls(expressions, default, instant)


def counts_path(instant: str) -> str:
    """Return the path of the file of an instant."""
    return join_path(BUCKET_COUNTS_FOLDER, instant + _SUFFIX)


def parse_counts_file(path: str) -> str | None:
    """Return the instant in the name of such a file; None for another file."""
    match = _FILE.fullmatch(file_name(path))
    return match[1] if match else None
