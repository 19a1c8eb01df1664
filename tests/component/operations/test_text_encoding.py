"""Text that is not UTF-8 is refused on entry; a file that holds such bytes remains writable."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest
from pyhudi.tasks import incoming_rows

_names = itertools.count()


def text(*values: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def made(table_type: str = "cow", **options: object) -> Table:
    uri = f"memory://text-{next(_names)}/t"
    return Table.create(uri, record_key="id", ordering="ts", table_type=table_type, options=options)


BAD = text(b"ok", b"\xff\xfe", b"z")
ROWS = pa.table({"id": ["a", "b", "c"], "ts": [1, 1, 1], "v": ["x", "y", "z"], "n": [1, 2, 3]})
BAD_VALUE, BAD_KEY = ROWS.set_column(2, "v", BAD), ROWS.set_column(0, "id", BAD)


def _operation(name: str) -> Callable[[Table, pa.Table], object]:
    return lambda table, rows: getattr(table, name)(rows)


WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    **{name: _operation(name) for name in ("upsert", "insert", "bulk_insert", "insert_overwrite")},
    "merge": lambda table, rows: table.merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute(),
    "INSERT": lambda table, rows: hp.sql("INSERT INTO t SELECT * FROM s", tables={"t": table, "s": rows}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("rows", [BAD_VALUE, BAD_KEY], ids=["value", "key"])
def test_other_bytes_are_refused(write: Callable[[Table, pa.Table], object], rows: pa.Table) -> None:
    table = made()
    table.upsert(ROWS)
    with pytest.raises(InvalidRequest, match=r"row 1 .* not UTF-8|[Ii]nvalid (unicode|UTF)"):
        write(table, rows)
    assert table.scan().count() == 3


def test_keys_to_delete_that_are_no_text_are_refused() -> None:
    table = made()
    table.upsert(ROWS)
    with pytest.raises(InvalidRequest, match=r"column 'id': row 1 .* not UTF-8"):
        table.delete(BAD_KEY.select(["id"]))


def test_files_with_other_bytes_are_not_bootstrapped(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pq.write_table(BAD_VALUE, tmp_path / "source" / "a.parquet")
    with pytest.raises(InvalidRequest, match=r"column 'v': row 1 .* not UTF-8"):
        hp.bootstrap(tmp_path / "source", tmp_path / "t", record_key="id", mode="full_record")


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_files_with_other_bytes_remain_writable(table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
    table = made(table_type, **statistics)
    with monkeypatch.context() as patched:
        patched.setattr(incoming_rows, "check_utf8", lambda rows: None)
        table.bulk_insert(BAD_VALUE)
    table.upsert({"id": ["c", "d"], "ts": [2, 2], "v": ["w", "q"], "n": [5, 6]})
    table.update({"n": 9}, where="id = 'a'")
    table.delete(["c"])
    if table_type == "mor":
        table.compact()
    table.cluster()
    assert table.validate().ok
    assert sorted(table.scan(["id", "n"]).to_arrow()["n"].to_pylist()) == [2, 6, 9]
    assert table.scan().to_arrow()["v"].cast(pa.binary()).to_pylist().count(b"\xff\xfe") == 1
    assert [table.scan(filter=f"v {where}").count() for where in ("= 'ok'", "= 'q'", "> 'r'", "< 'p'")] == [1, 1, 1, 1]
