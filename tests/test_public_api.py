"""Names and signatures that users rely on change on purpose, and only then."""

from __future__ import annotations

from tests.public_api import GOLDEN, described


def test_the_public_api_is_what_the_file_says() -> None:
    kept = GOLDEN.read_text(encoding="utf-8").splitlines()
    now = "\n".join(described()).splitlines()
    gone = [line for line in kept if line not in now]
    new = [line for line in now if line not in kept]
    assert now == kept, (
        "the public API differs from tests/public_api.txt; if that is meant, run `python -m tests.public_api` and say it in "
        f"CHANGELOG.md\ngone: {gone}\nnew: {new}"
    )
