"""Folders of other formats: creating a table requires force, opening names the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp

FORCED = {"pyhudi.create.force": True}


def delta(folder: Path) -> None:
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{}")


def iceberg(folder: Path) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").write_text("{}")


def parquet(folder: Path) -> None:
    (folder / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "day=1" / "part-0.parquet")


FOREIGN = pytest.mark.parametrize(
    ("make", "message"),
    [(delta, "a Delta Lake table"), (iceberg, "an Iceberg table"), (parquet, "data files without a table")],
)


@FOREIGN
def test_no_table_is_created_in_a_foreign_folder_unless_forced(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "t")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(hp.InvalidRequest, match=rf"the folder holds {message}.*pyhudi\.create\.force=true"):
        hp.Table.create(tmp_path / "t", record_key="id")
    with pytest.raises(hp.InvalidRequest, match=message):
        hp.sql(f"CREATE TABLE hudi.`{tmp_path / 't'}` USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT 1 AS id")
    assert sorted(tmp_path.rglob("*")) == before
    table = hp.Table.create(tmp_path / "t", record_key="id", options=FORCED)
    table.upsert(pa.table({"id": [1, 2]}))
    assert hp.Table(tmp_path / "t").scan().count() == 2
    # A table that is there is named as such.
    with pytest.raises(hp.TableExists):
        hp.Table.create(tmp_path / "t", record_key="id")


def test_sql_forces_by_a_property(tmp_path: Path) -> None:
    parquet(tmp_path / "t")
    properties = "TBLPROPERTIES (primaryKey = 'id', 'pyhudi.create.force' = 'true')"
    hp.sql(f"CREATE TABLE hudi.`{tmp_path / 't'}` (id BIGINT) USING hudi {properties}")
    assert hp.Table.exists(tmp_path / "t")


@FOREIGN
def test_error_on_opening_a_foreign_folder_names_its_content(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "t")
    with pytest.raises(hp.TableNotFound, match=message):
        hp.Table(tmp_path / "t")
    assert not hp.Table.exists(tmp_path / "t")


def test_other_files_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "notes.json").write_text("{}")
    (tmp_path / "t" / "README").write_text("mine")
    hp.Table.create(tmp_path / "t", record_key="id")
    with pytest.raises(hp.TableNotFound, match=r"no \.hoodie/hoodie\.properties"):
        hp.Table(tmp_path / "elsewhere")
