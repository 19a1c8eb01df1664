"""The documents are true: worked bytes are what the codecs make, and every snippet of the README and the pages runs.

The snippets of a page run in order, as a reader would run them: Python in one namespace, shell lines in one folder, `pyhudi` as
the command line.  Where a shell line ends in `# exit code N`, that is what it must give.  `TABLE` is a table that the
page made.  Blocks that use `spark` run in tests/spark/test_pages.py.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.format.actions.savepoint_metadata import SavepointMetadata, SavepointPartitionMetadata
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.hfile.blocks import BlockKind
from pyhudi.format.hfile.blocks import encode_block as encode_block_of_hfile
from pyhudi.format.hfile.cells import encode_cells
from pyhudi.format.hfile.compression import Codec
from pyhudi.format.instants import parse_instant_file
from pyhudi.format.log.delete_blocks import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, encode_block
from pyhudi.format.names import parse_base_file
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, encode_locations
from pyhudi.metadata_table.codecs.secondary_index_codec import encode_secondary_values, format_secondary_keys
from pyhudi.records.filters.filter_functions import FUNCTIONS
from scripts import compatibility_page, dependencies_page, options_page
from tests.support import public_api, sources
from tests.support.doc_pages import PAGES, ROOT, run_page, snippets


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


def test_the_worked_records_of_the_metadata_table() -> None:
    place = ["part=aa", "286bd8a3-789d-4a0b-bfe9-3ac4f0725bee-0", 1795237168915]
    location = pa.RecordBatch.from_arrays([pa.array([value]) for value in place], schema=LOCATION_SCHEMA)
    assert worked_bytes("metadata-table.md", "record-index") == encode_locations(location)[0].as_py()
    assert worked_bytes("metadata-table.md", "secondary-index") == encode_secondary_values(1)[0].as_py()
    assert format_secondary_keys(pa.array(["chen$nai\\x"]), pa.array(["3"])).to_pylist() == ["chen\\$nai\\\\x$3"]


def test_the_worked_block_of_an_hfile() -> None:
    entry = encode_cells(pa.array([b"a"]), pa.array([b"1"]))[0].as_py()
    block = encode_block_of_hfile(BlockKind.DATA, entry, Codec.NONE, previous_offset=-1, level=1)
    assert worked_bytes("hfile.md", "hfile-data-block") == block


def test_the_worked_document() -> None:
    mark = bytes(range(16))
    kept = SavepointPartitionMetadata("sf", ("f1-0_2-3-4_20260101000000000.parquet",))
    document = SavepointMetadata("ada", 1795000000000, "", {"sf": kept}).encode(mark)
    assert worked_bytes("timeline.md", "savepoint-block") == document[document.index(mark) :]


def test_the_worked_names() -> None:
    text = (ROOT / "docs" / "formats" / "timeline.md").read_text()
    rows = re.findall(r"^\| `(\d[\w.]+)` \| (\d+) \| (\w+) \| (\w+) \| (?:(\d+) )?\|$", text, re.M)
    assert len(rows) == 7
    for name, *expected in rows:
        found = parse_instant_file(name)
        assert found is not None
        assert [found.request_time, found.action, found.state.name, found.completion_time or ""] == expected
        assert found.file_name() == name


def test_the_worked_row(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "formats" / "base-file.md").read_text()
    found = re.search(r"`(\d{17})` \| `(\d+)_(\d)_(\d)` \| `t3` \| `sf` \| `([\w.-]+)`", text)
    assert found is not None
    name = parse_base_file(found[5])
    assert name is not None and name.instant_time == found[1] == found[2] and name.write_token.split("-")[0] == found[3]
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="city")
    table.upsert(pa.table({"id": ["t1", "t2", "t3"], "city": ["sf"] * 3}))
    row = table.scan(["*"], filter="id = 't3'").to_arrow().to_pylist()[0]
    assert list(row) == re.findall(r"`(\w+)`", text[found.start() - 300 : found.start()].splitlines()[-3])
    assert row["_hoodie_commit_seqno"] == f"{row['_hoodie_commit_time']}_0_{found[4]}"
    assert (row["_hoodie_record_key"], row["_hoodie_partition_path"]) == ("t3", "sf")


WITH_SNIPPETS = [page for page in PAGES if any(not snippet.needs_spark for snippet in snippets(page))]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: page.stem)
def test_the_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path, {}, on_spark=False)


def test_outputs_of_the_quick_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed result is that of the code before it; instants and sizes in bytes vary."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "quick-start.md").read_text()
    found = re.search(r"```python\n(.*?print\(second\)\n)```.*?```text\n(.*?)```", text, re.S)
    assert found is not None
    exec(found[1], {})
    varying = re.compile(r"\b[0-9]{17}\b|[0-9,]+(?= written)|[0-9,]+(?= of them)")
    shown, printed = (varying.sub("#", part).splitlines() for part in (found[2], capsys.readouterr().out))
    *lines, last = shown
    assert last.strip() == "..."
    assert printed[: len(lines)] == lines


def test_pages_make_tables_in_folders_of_their_own() -> None:
    """A reader follows one page after the other in the same folder."""
    makers: dict[str, str] = {}
    for page in (page for page in PAGES if page.name != "README.md"):
        text = "".join(snippet.text for snippet in snippets(page))
        for name in set(re.findall(r'Table\.create\(\s*"([\w-]+)"|^pyhudi create ([\w-]+)', text, re.M)):
            folder = name[0] or name[1]
            assert makers.setdefault(folder, page.name) == page.name, f"{page.name} and {makers[folder]} make {folder}"


def test_the_quick_start_shows_the_output_of_its_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "quick-start.md"
    shown = re.search(r"^```text\n(upsert .*?)  \.\.\.\n```", page.read_text(), re.S | re.M)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(snippets(page)[1].text, str(page), "exec"), names)
    expected, printed = shown[1].splitlines()[1:], str(names["second"]).splitlines()[1:]
    numbers = re.compile(r"[\d,]+(?= written|,? of them)|(?<=written, )[\d,]+")
    for wanted, line in zip(expected, printed, strict=False):
        if "bytes" not in wanted:
            assert line == wanted
            continue
        assert numbers.sub("N", line) == numbers.sub("N", wanted)
        for one, other in zip(numbers.findall(line), numbers.findall(wanted), strict=True):
            # Versions of Arrow write files of slightly different sizes.
            assert abs(int(one.replace(",", "")) / int(other.replace(",", "")) - 1) < 0.2, (line, wanted)


def test_every_page_with_commands_is_among_those_that_run() -> None:
    """A fence in another spelling would be skipped silently."""
    for page in PAGES:
        fences = set(re.findall(r"^```([^\n`]+)$", page.read_text("utf-8"), re.M))
        assert all(fence in ("python", "sh", "text") or fence.startswith("hex ") for fence in fences), (page, fences)


def test_every_page_that_is_linked_exists() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+\.md)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_options_page_matches_the_registry() -> None:
    assert options_page.PAGE.read_text() == options_page.render(), "run `python -m scripts.options_page`"


def test_the_page_of_dependencies_matches_pyproject() -> None:
    assert dependencies_page.PAGE.read_text() == dependencies_page.render(), "run `python -m scripts.dependencies_page`"


def test_the_compatibility_page_counts_the_rows_of_the_specification() -> None:
    assert compatibility_page.PAGE.read_text("utf-8") == compatibility_page.render(), "run `python -m scripts.compatibility_page`"
    assert compatibility_page.BEGIN in compatibility_page.render()


def test_the_page_of_filters_names_every_function() -> None:
    page = (ROOT / "docs" / "filters.md").read_text("utf-8")
    assert [name for name in FUNCTIONS if name.isidentifier() and f"`{name}" not in page] == []


def test_every_decision_lists_alternatives_and_consequences() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in decisions] == list(range(1, len(decisions) + 1))
    for page in decisions:
        text = page.read_text()
        assert text.startswith(f"# {int(page.name[:4])}. "), page.name
        assert re.findall("^## (.+)$", text, re.M) == ["Status", "Context", "Decision", "Alternatives", "Consequences"], page.name


def test_every_page_is_in_the_navigation() -> None:
    """MkDocs reports this too, but only when the site is built."""
    named = set(re.findall(r"[\w/-]+\.md\b", (ROOT / "mkdocs.yml").read_text()))
    assert named == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def specified() -> list[list[str]]:
    """The rows of the page of the specification, as cells."""
    return [row for _, row in compatibility_page.rows((ROOT / "docs" / "specification.md").read_text("utf-8"))]


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """The test functions of a file, those of its classes too, and the state machines that it gives a name."""
    tree = ast.parse(path.read_text("utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    given = {
        target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)
    }
    return frozenset(name for name in functions | given if name.lower().startswith("test"))


def test_each_row_of_the_specification_has_its_modules_and_its_test() -> None:
    rows = specified()
    assert len(rows) > 200, "the rows were not found"
    wrong = []
    for row in rows:
        assert len(row) == 4, row
        paths = re.findall(r"`([^`]+)`", row[1])
        wrong += [f"{row[0]}: src/pyhudi/{path} is gone" for path in paths if not (ROOT / "src" / "pyhudi" / path).is_file()]
        path, _, name = row[2].strip("`").partition("::")
        if not (ROOT / "tests" / path).is_file() or name not in names_of_tests(ROOT / "tests" / path):
            wrong.append(f"{row[0]}: tests/{path}::{name} is gone")
        if not paths:
            wrong.append(f"{row[0]}: no module")
    assert not wrong, "docs/specification.md names what is not there:\n" + "\n".join(wrong)


def test_unsupported_specification_rows_are_limitations() -> None:
    """Support for such a feature removes it from docs/limitations.md and from the specification page."""
    _, _, limits = (ROOT / "docs" / "limitations.md").read_text("utf-8").partition("## Unsupported")
    limits = " ".join(limits.partition("\n## ")[0].split())
    for item, _, _, notes in specified():
        quoted = re.findall(r'"([^"]+)"', notes)
        assert notes.startswith("**not built**") == bool(quoted), f"{item}: quote the words of docs/limitations.md"
        for words in quoted:
            assert words in limits, f"docs/specification.md: {item!r} is not built, and docs/limitations.md lacks {words!r}"


def test_every_page_named_in_sources_exists() -> None:
    found = list(sources.sources())
    assert len(found) > 100, "the sources were not found"
    wrong = [f"{where}: {fault}" for where, one in found if one.startswith("docs/") and (fault := sources.fault_of(one))]
    assert not wrong, "\n".join(wrong)


def test_every_named_source_is_a_repository_page_or_a_public_specification() -> None:
    found = sources.missing()
    assert not found, f"{len(found)} sources are not in the repository; write them down in docs/formats:\n" + "\n".join(found)


def test_public_api_matches_the_recorded_file() -> None:
    """Names and signatures that users rely on change on purpose, and only then."""
    kept = public_api.GOLDEN.read_text(encoding="utf-8").splitlines()
    now = "\n".join(public_api.described()).splitlines()
    gone = [line for line in kept if line not in now]
    new = [line for line in now if line not in kept]
    assert now == kept, (
        "the public API differs from tests/support/public_api.txt; if that is meant, run `python -m tests.support.public_api` "
        f"and say it in CHANGELOG.md\ngone: {gone}\nnew: {new}"
    )


def test_reference_has_an_example_of_each_operation() -> None:
    """The services and plans apart, which are listed by their own headings there and shown on the pages of services."""
    code = "".join(snippet.text for snippet in snippets(ROOT / "docs" / "reference" / "table.md"))
    elsewhere = {
        "context",
        "serve",
        "background_services",
        "log_compact",
        "run_ttl",
        "sync",
        "write_batch",
        "alter",
        "plot",
        "services",
    }
    operations = {name for name in vars(hp.Table) if not name.startswith("_")} - elsewhere
    shown = set(re.findall(r"\.([a-z_]+)\b", code))
    planned = {name for name in operations if "schedule" in name}
    assert operations - planned - shown - {"uri"} == set()
