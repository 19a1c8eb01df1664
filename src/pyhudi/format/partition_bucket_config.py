"""Bucket counts of their own for partitions of a simple bucket index, as release 1.1 of the real Hudi keeps them.

    file    below `BUCKET_COUNTS_FOLDER`: `<instant>.hashing_config`, JSON in Jackson's spacing.  The instant is fourteen zeros in
            the file with which a table begins, else that of the replacecommit that gave partitions other counts
    rules   `<regular expression>,<count>`, joined by ';': the first one that is found in a partition's path says its count;
            where none is, the default counts

Which of several files counts is for `table.partition_buckets` to say.

Source: docs/formats/writing.md, "Bucket index".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.json_document import jackson_text, parse_json
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER, file_name, join_path

FIRST_INSTANT = "00000000000000"
"""Instant of the counts with which a table begins."""

_SUFFIX = ".hashing_config"
_FILE = re.compile(r"([0-9]{14}|[0-9]{17})\.hashing_config")
_REGEX = "regex"


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """The counts of one file.  expressions: the rules as they are written; default: at least 1."""

    expressions: str
    default: int
    instant: str = FIRST_INSTANT

    def __post_init__(self) -> None:
        if self.default < 1 or not self.expressions.strip():
            raise CorruptData(f"bucket counts by partition say {self.expressions!r}, and {self.default} where no rule does")

    def encode(self) -> bytes:
        """As JSON, field by field as the real Hudi writes it."""
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
        """Raises CorruptData for what are no counts, Unsupported for rules of another kind than regular expressions."""
        document = parse_json(data, "bucket counts by partition are")
        try:
            rule, expressions = document["rule"], document["expressions"]
            default, instant = document["defaultBucketNumber"], document["instant"]
        except (KeyError, TypeError) as error:
            raise CorruptData(f"bucket counts by partition lack a field: {error!r}") from error
        texts = (rule, expressions, instant)
        if not all(isinstance(text, str) for text in texts) or not isinstance(default, int) or isinstance(default, bool):
            raise CorruptData(f"bucket counts by partition have another kind in a field: {document!r}")
        if rule.lower() != _REGEX:
            raise Unsupported(f"bucket counts by partition go by rules of type {rule}, and PyHudi knows {_REGEX}")
        return cls(expressions, default, instant)


def counts_path(instant: str) -> str:
    """Where the counts of an instant lie."""
    return join_path(BUCKET_COUNTS_FOLDER, instant + _SUFFIX)


def parse_counts_file(path: str) -> str | None:
    """The instant of a file of counts; None for another file."""
    found = _FILE.fullmatch(file_name(path))
    return found[1] if found else None
