"""The documents do not lie: worked bytes are what the codecs make, and the snippets of the README run."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from pyhudi.format.bloom import BloomFilter
from pyhudi.format.log.deletes import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, encode_block
from scripts import options_page

ROOT = Path(__file__).resolve().parents[1]


def worked_bytes(page: str, name: str) -> bytes:
    """The bytes of a `hex` block of a page: two-digit numbers at the start of each line, before the explanation."""
    text = (ROOT / "docs" / "formats" / page).read_text()
    found = re.search(rf"```hex {name}\n(.*?)```", text, re.S)
    assert found is not None, f"{page} has no block {name}"
    return bytes.fromhex(" ".join(" ".join(re.findall(r"^(?:[0-9a-f]{2} ?)+(?= |$)", line)) for line in found[1].splitlines()))


def test_the_worked_log_block() -> None:
    content = encode_deletes([deletes_batch(pa.array(["a"]), "")])
    block = encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "20260101000000000"}, content)
    assert worked_bytes("log-file.md", "log-delete-block") == block


def test_the_worked_filter() -> None:
    simple = BloomFilter.create("SIMPLE", 10, 0.1, 10)
    simple.add(pa.array(["a", "b"]))
    assert worked_bytes("bloom-filter.md", "bloom-simple") == simple.encode()


def snippets(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)


def test_the_quick_start_runs(tmp_path: Path) -> None:
    first = snippets(ROOT / "README.md")[0].replace("/tmp/pyhudi-quick-start", str(tmp_path))
    names: dict[str, object] = {}
    exec(compile(first, "README.md", "exec"), names)
    trips = names["trips"]
    assert {row["id"] for row in trips.scan(["id"]).to_arrow().to_pylist()} == {"t1", "t2", "t4"}  # type: ignore[attr-defined]


def test_every_page_that_is_linked_exists() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+\.md)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_options_is_what_the_registry_says() -> None:
    assert options_page.PAGE.read_text() == options_page.render(), "run `python -m scripts.options_page`"
