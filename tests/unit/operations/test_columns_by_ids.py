"""Tables whose columns go by ids, as ALTER TABLE of the real Hudi left them: `rider` became `driver`; `fare` was dropped and
added.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.actions.commit import SCHEMA_KEY, CommitMetadata
from tests.golden_tables import open_golden

CASES = ["cow_schema_on_read", "mor_schema_on_read"]


def history_file(path: Path) -> Path:
    (file,) = (path / ".hoodie" / ".schema").glob("*.schemacommit")
    return file


def times(table: Table) -> list[str]:
    return [instant.request_time for instant in table.timeline().completed_writes()]


@pytest.mark.parametrize("name", CASES)
def test_the_columns_of_each_time(name: str, tmp_path: Path) -> None:
    table = Table(open_golden(name, tmp_path).path)
    inserted, renamed, dropped, added, *_ = times(table)
    before = table.scan(as_of=inserted).to_arrow()
    assert before.column_names == ["id", "ts", "rider", "fare", "city"]
    assert None not in before["fare"].to_pylist()
    then = table.scan(as_of=renamed).to_arrow()
    assert then.column_names == ["id", "ts", "driver", "fare", "city"]
    assert then.rename_columns(before.column_names).sort_by("id").equals(before.sort_by("id"))
    assert table.scan(as_of=dropped).to_arrow().column_names == ["id", "ts", "driver", "city"]
    assert set(table.scan(as_of=added).to_arrow()["fare"].to_pylist()) == {None}
    assert table.read_optimized(["driver"]).to_arrow().num_rows == len(before) + name.startswith("cow")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wanted", ["driver = 'rider-3'", "fare IS NULL", "fare > 0", "fare IS NOT NULL AND driver IS NULL"])
def test_filters_go_by_ids(name: str, wanted: str, tmp_path: Path) -> None:
    table = Table(open_golden(name, tmp_path).path)
    rows = table.scan().to_arrow().to_pylist()
    chosen: dict[str, Callable[[dict[str, Any]], bool]] = {
        "driver = 'rider-3'": lambda row: row["driver"] == "rider-3",
        "fare IS NULL": lambda row: row["fare"] is None,
        "fare > 0": lambda row: row["fare"] is not None,
        "fare IS NOT NULL AND driver IS NULL": lambda row: row["fare"] is not None and row["driver"] is None,
    }
    found = table.scan(filter=wanted).to_arrow().to_pylist()
    key = lambda row: row["id"]  # noqa: E731
    assert sorted(found, key=key) == sorted(filter(chosen[wanted], rows), key=key)
    assert [row["id"] for row in table.lookup(["t003"]).to_arrow().to_pylist()] == ["t003"]


def test_incremental_queries_have_the_columns_of_now(tmp_path: Path) -> None:
    table = Table(open_golden("cow_schema_on_read", tmp_path).path)
    first = table.timeline().completed_writes()[0].completion_time
    assert first is not None
    rows = table.incremental("000", first).to_arrow()
    assert rows.column_names == ["id", "ts", "driver", "city", "fare"] and set(rows["fare"].to_pylist()) == {None}
    assert "rider-3" in rows["driver"].to_pylist()


def test_a_history_that_is_torn_or_damaged_gives_no_other_rows(tmp_path: Path) -> None:
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()
    file = history_file(path)
    whole = file.read_bytes()
    for end in range(0, len(whole), 199):
        file.write_bytes(whole[:end])
        with pytest.raises(CorruptData, match="schemacommit"):
            table.scan()
    for damage in (
        (b'"id":7', b'"id":8'),
        (b'"type":"string"', b'"type":"strong"'),
        (b'"max_column_id":9', b'"max_column_id":8'),
    ):
        file.write_bytes(whole.replace(*damage))
        with pytest.raises(CorruptData):
            table.scan()
    document = json.loads(whole)
    file.write_text(json.dumps({"schemas": document["schemas"][:-1]}))
    with pytest.raises(CorruptData, match="before the first change"):
        table.scan()
    file.write_bytes(whole)
    assert table.scan().to_arrow().equals(expected)


def rewritten(path: Path, instant: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """The commit of an instant with other extra metadata."""
    (file,) = (path / ".hoodie" / "timeline").glob(f"{instant}_*")
    metadata = CommitMetadata.decode(file.read_bytes())
    object.__setattr__(metadata, "extra_metadata", change(dict(metadata.extra_metadata)))
    file.write_bytes(metadata.encode())


def test_what_was_written_by_names_since_keeps_the_ids_of_its_columns(tmp_path: Path) -> None:
    """The last write of a writer that knows nothing of ids, which brought a column of its own."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()

    def by_names(extra: dict[str, str]) -> dict[str, str]:
        schema = json.loads(extra[SCHEMA_KEY])
        schema["fields"] = [*schema["fields"][5:], {"name": "more", "type": ["null", "int"], "default": None}]
        return {SCHEMA_KEY: json.dumps(schema)}

    rewritten(path, times(table)[-1], by_names)
    found = table.scan().to_arrow()
    assert found.drop_columns(["more"]).equals(expected) and set(found["more"].to_pylist()) == {None}


def test_a_change_after_a_write_by_names_is_refused(tmp_path: Path) -> None:
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    # The second change numbered the columns anew if the first had not been there for it to see.
    rewritten(path, times(table)[1], lambda extra: {SCHEMA_KEY: extra[SCHEMA_KEY]})
    with pytest.raises(Unsupported, match="numbered them anew"):
        table.scan()


def test_columns_that_the_history_lacks_are_named(tmp_path: Path) -> None:
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)

    def longer(extra: dict[str, str]) -> dict[str, str]:
        schema = json.loads(extra[SCHEMA_KEY])
        schema["fields"].append({"name": "more", "type": ["null", "int"], "default": None})
        return {**extra, SCHEMA_KEY: json.dumps(schema)}

    rewritten(path, times(table)[-1], longer)
    with pytest.raises(CorruptData, match="more"):
        table.scan()


def test_a_schema_of_a_change_that_died_does_not_count(tmp_path: Path) -> None:
    path = open_golden("mor_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()
    file = history_file(path)
    document = json.loads(file.read_bytes())
    newest = json.loads(json.dumps(document["schemas"][0]).replace("driver", "pilot"))
    newest["version_id"] = 29990101000000000
    later = file.with_name("29990101000000000_29990101000000001.schemacommit")
    later.write_text(json.dumps({"schemas": [newest, *document["schemas"]]}))
    # As the real Hudi leaves it: the history before it is gone.
    file.unlink()
    assert table.scan().to_arrow().equals(expected)


def test_no_rows_are_written_to_such_a_table_yet(tmp_path: Path) -> None:
    table = Table(open_golden("cow_schema_on_read", tmp_path).path)
    rows = table.scan().to_arrow()
    with pytest.raises(Unsupported, match="read, and not written"):
        table.upsert(rows)
