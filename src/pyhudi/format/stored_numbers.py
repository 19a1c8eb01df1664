"""Numbers that files of a table store as decimal text, such as versions, depths and counts."""

from __future__ import annotations


def parse_digits(text: str, most_digits: int = 18) -> int | None:
    """Return the number that ASCII digits write; None for any other text, and for more digits than `most_digits`.

    Python reads the digits of all scripts, and refuses long numbers with an error of its own.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else None
