"""A custom delete key and marker is refused wherever it may be given, and nothing is written or hidden because of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import Unsupported

_ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1], "op": ["I", "D"]})

_KEYS = ("hoodie.payload.delete.field", "hoodie.payload.delete.marker")
_MARKED: list[dict[str, object]] = [{_KEYS[0]: "op", _KEYS[1]: "D"}, {_KEYS[0]: "op"}, {_KEYS[1]: "D"}]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("options", _MARKED)
def test_a_custom_delete_marker_is_refused(tmp_path: Path, table_type: str, options: dict[str, object]) -> None:
    path = str(tmp_path / "t")
    table = Table.create(path, record_key="id", ordering="ts", table_type=table_type)
    table.upsert(_ROWS)
    table.upsert(_ROWS.set_column(1, "ts", pa.array([2, 2])))
    written = table.timeline().instants

    for refused in (
        lambda: table.upsert(_ROWS, options=options),
        lambda: table.insert(_ROWS, options=options),
        lambda: table.scan(options=options),
        lambda: table.read_optimized(options=options),
        lambda: table.compact(options=options),
        lambda: Table(path, options=options),
        lambda: Table.create(str(tmp_path / "other"), record_key="id", options=options),
    ):
        with pytest.raises(Unsupported, match=r"hoodie\.payload\.delete\.(field|marker)=.* is refused: .*_hoodie_is_deleted"):
            refused()

    assert table.timeline().instants == written
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_empty_marker_asks_for_nothing(tmp_path: Path, table_type: str) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type=table_type)
    table.upsert(_ROWS, options=dict.fromkeys(_KEYS, ""))
    assert sorted(Table(str(tmp_path / "t")).scan().to_arrow().column("op").to_pylist()) == ["D", "I"]
