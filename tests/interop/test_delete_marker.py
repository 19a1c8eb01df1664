"""A custom delete marker column deletes the same rows in PyHudi and Apache Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi

pytestmark = pytest.mark.interop

MARKED = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"}
_PACKAGE = "org.apache.hudi.common.model."
MERGING: dict[str, dict[str, object]] = {
    "EVENT": {},
    "COMMIT": {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "EventTime": {"hoodie.datasource.write.payload.class": _PACKAGE + "EventTimeAvroPayload"},
    "FirstValue": {"hoodie.datasource.write.payload.class": _PACKAGE + "FirstValueAvroPayload"},
    "PartialUpdate": {"hoodie.datasource.write.payload.class": _PACKAGE + "PartialUpdateAvroPayload"},
}
COMPACTING = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
_COLUMNS = ["id", "ts", "op"]


def rows(*values: tuple[str, int, str], flagged: str = "") -> pa.Table:
    data = [{"id": key, "ts": ts, "op": op, "_hoodie_is_deleted": key in flagged} for key, ts, op in values]
    kinds = [("id", pa.string()), ("ts", pa.int64()), ("op", pa.string()), ("_hoodie_is_deleted", pa.bool_())]
    return pa.Table.from_pylist(data, pa.schema(kinds))


BASE = rows(*((key, 5, "I") for key in "abcdefg"), ("z", 5, "D"))
CHANGES = rows(
    ("a", 7, "D"), ("b", 3, "D"), ("c", 7, "I"), ("d", 7, "I"), ("e", 5, "D"), ("f", 7, "D"), ("new", 7, "D"), flagged="cf"
)


def options(table_type: str, merging: str, **more: object) -> dict[str, Any]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.metadata.enable": False,
        "hoodie.clean.automatic": False,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.compact.inline": False,
        **MERGING[merging],
        **more,
    }


def in_order(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(found.column(name).to_pylist() for name in _COLUMNS), strict=True))


def both(hudi: ApacheHudi, path: Path, **more: Any) -> list[tuple[Any, ...]]:
    """What PyHudi reads, once Apache Hudi reads the same."""
    ours = in_order(Table(str(path)).scan(_COLUMNS, options=more).to_arrow())
    assert in_order(hudi.read(path, columns=_COLUMNS, **{"hoodie.metadata.enable": False, **more})) == ours
    return ours


def begun(hudi: ApacheHudi, folder: Path, table_type: str, merging: str) -> tuple[Path, Path]:
    """Two tables with the same rows in base files: of Apache Hudi, and of PyHudi."""
    real, mine = folder / "real", folder / "mine"
    settings = options(table_type, merging)
    hudi.write(BASE, real, partitions=1, **settings)
    Table.create(str(mine), record_key="id", options={k: v for k, v in settings.items()}).upsert(BASE)
    return real, mine


@pytest.mark.parametrize(
    ("table_type", "merging"),
    [
        ("COPY_ON_WRITE", "FirstValue"),
        ("MERGE_ON_READ", "EVENT"),
        pytest.param("COPY_ON_WRITE", "EVENT", marks=pytest.mark.wide),
        pytest.param("MERGE_ON_READ", "FirstValue", marks=pytest.mark.wide),
    ],
)
def test_marked_writes(hudi: ApacheHudi, tmp_path: Path, table_type: str, merging: str) -> None:
    real, mine = begun(hudi, tmp_path, table_type, merging)
    settings = options(table_type, merging, **MARKED)
    hudi.write(CHANGES, real, partitions=1, **settings)
    Table(str(mine), options=settings).upsert(CHANGES)
    found = both(hudi, mine)
    assert both(hudi, real) == found
    assert "a" not in {key for key, _, _ in found} and "new" not in {key for key, _, _ in found}
    # The tables change hands: each side deletes in the other's.
    more = rows(("d", 9, "D"), ("g", 9, "I"))
    hudi.write(more, mine, partitions=1, **settings)
    Table(str(real), options=settings).upsert(more)
    found = both(hudi, mine)
    assert both(hudi, real) == found
    assert "d" not in {key for key, _, _ in found} and ("g", 9, "I") in found


@pytest.mark.parametrize(
    "merging",
    ["COMMIT", "EVENT", *(pytest.param(n, marks=pytest.mark.wide) for n in ("EventTime", "FirstValue", "PartialUpdate"))],
)
def test_marked_reads_and_compactions(hudi: ApacheHudi, tmp_path: Path, merging: str) -> None:
    real, mine = begun(hudi, tmp_path, "MERGE_ON_READ", merging)
    settings = options("MERGE_ON_READ", merging)
    hudi.write(CHANGES, real, partitions=1, **settings)
    Table(str(mine), options=settings).upsert(CHANGES)
    plain, marked = both(hudi, mine), both(hudi, mine, **MARKED)
    assert both(hudi, real) == plain and both(hudi, real, **MARKED) == marked
    assert "a" in {key for key, _, _ in plain} - {key for key, _, _ in marked} and ("z", 5, "D") in marked
    last = rows(("d", 9, "I"))
    hudi.write(
        last,
        real,
        partitions=1,
        **{**settings, **COMPACTING, **MARKED},
    )
    Table(str(mine), options=settings).upsert(last)
    Table(str(mine)).compact(options=MARKED)
    assert both(hudi, mine) == [("d", 9, "I") if row[0] == "d" else row for row in marked]
    assert both(hudi, real) == both(hudi, mine)
