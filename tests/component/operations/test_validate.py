"""Validation finds nothing in intact tables and names each kind of damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from pyhudi.api.table import Table
from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.operations.admin import validate_data
from pyhudi.operations.admin.validate import FINDINGS_SCHEMA, ValidationResult
from tests.support.golden_tables import CLOSED_TRAITS, golden_cases, open_golden

INDEXES: dict[str, Any] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
}


@pytest.mark.sample(43)
@pytest.mark.parametrize("name", golden_cases(without_traits=CLOSED_TRAITS))
def test_the_tables_of_apache_hudi_are_in_order(name: str, tmp_path: Path) -> None:
    result = Table(open_golden(name, tmp_path).path).validate()
    if name == "mor_v9_two_secondary":
        # Apache Hudi that wrote it keeps the first of several secondary indexes alone up to date with logs.
        assert not result.ok and str(result).startswith(f"{result.uri}: NOT OK, 0 errors, 0 warnings, 1 not checked")
        assert {(f.severity, f.check) for f in result.findings} == {("unchecked", "secondary_index_by_qty")}
        return
    assert result.ok, str(result)
    assert bool(result.findings) == ("failed_write" in result.uri or name.endswith("rolled_back")), str(result)
    assert str(result).startswith(f"{result.uri}: ok")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of ours with all indexes, three commits long."""
    path = tmp_path_factory.mktemp("validate") / "t"
    table = Table.create(path, name="t", record_key="id", partition_by="city", ordering="ts", options=INDEXES)
    rows = pa.table(
        {
            "id": [f"k{n:03d}" for n in range(60)],
            "ts": pa.array([1] * 60, pa.int64()),
            "fare": [None if n % 7 == 0 else n / 4 for n in range(60)],
            "city": [("oslo", "rome", "bern")[n % 3] for n in range(60)],
        }
    )
    table.insert(rows)
    table.upsert(rows.slice(0, 9))
    table.delete(rows.slice(30, 3))
    return path


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copytree(path, folder / "copy"))


def test_table_written_by_pyhudi_is_valid(written: Path) -> None:
    result = Table(written).validate()
    assert result.ok and not result.findings, str(result)
    assert dict(result.checks)["record_index"] == "57 keys, 57 rows"
    assert result.skipped == ()
    assert result.to_arrow().schema == FINDINGS_SCHEMA and result.to_arrow().num_rows == 0
    assert dict(Table(written).validate(sample=1).checks)["base files"] == "1 opened"
    with pytest.raises(InvalidRequest):
        Table(written).validate(sample=-1)


def newest_base(path: Path) -> Path:
    return max(path.glob("oslo/*.parquet"), key=lambda file: file.name.rsplit("_", 1)[1])


def _remove(path: Path) -> None:
    newest_base(path).unlink()


def _cut(path: Path) -> None:
    file = newest_base(path)
    file.write_bytes(file.read_bytes()[:-10])


def _orphan(path: Path) -> None:
    file = newest_base(path)
    shutil.copy(file, file.with_name(f"{'0' * 8}-1111-2222-3333-444444444444-0_1-0-1_29991231235959999.parquet"))


def _add(path: Path) -> None:
    file = newest_base(path)
    instant = file.stem.rsplit("_", 1)[1]
    shutil.copy(file, file.with_name(f"{'0' * 8}-1111-2222-3333-444444444444-0_1-0-1_{instant}.parquet"))


def _without_log(partition: str) -> Callable[[Path], None]:
    def remove(path: Path) -> None:
        for log in (path / ".hoodie" / "metadata" / partition).glob("*"):
            if log.suffix == ".hfile" or log.stat().st_size > 500:
                log.unlink()

    return remove


def _without_metadata(path: Path) -> None:
    shutil.rmtree(path / ".hoodie" / "metadata")


def _without_definition(path: Path) -> None:
    (path / ".hoodie" / ".index_defs" / "index.json").write_text('{"indexDefinitions": {}}')


@pytest.mark.parametrize(
    ("damage", "check", "message"),
    [
        (_remove, "timeline", "is missing, 19 rows"),
        (_remove, "files", "listed in the metadata table, but the file does not exist"),
        (_cut, "timeline", "committed"),
        (_cut, "base files", "parquet"),
        (_cut, "files", "in the metadata table"),
        (_orphan, "timeline", "no instant 29991231235959999"),
        (_add, "files", "missing in the metadata table"),
        (_add, "record_index", "have another location in the index"),
        (_without_log("record_index"), "record_index", "keys are missing"),
        (_without_log("column_stats"), "column_stats", "have no statistics"),
        (_without_metadata, "files", "cannot be read"),
        (_without_definition, "column_stats", "no entry column_stats"),
    ],
)
def test_damage_is_found(written: Path, tmp_path: Path, damage: Callable[[Path], None], check: str, message: str) -> None:
    path = copied(written, tmp_path)
    damage(path)
    result = Table(path).validate()
    found = [finding for finding in result.findings if finding.check == check and message.lower() in finding.detail.lower()]
    assert found, str(result)
    if message != "have no statistics":
        assert not result.ok and "NOT OK" in str(result)
    assert result.to_arrow().num_rows == len(result.findings)
    remedy = {"timeline": "data files", "base files": "data files"}.get(check, "metadata table")
    remedy = "orphaned files" if damage is _orphan else "data files" if damage is _cut else remedy
    assert result.ok or any(told.startswith(remedy) for told in result.remedies), str(result)
    assert str(result).count("  remedy  ") == len(result.remedies)


def test_suggested_remedy_repairs_the_metadata_table(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    _without_log("record_index")(path)
    table = Table(path)
    assert [remedy.split(":")[0] for remedy in table.validate().remedies] == ["metadata table"]
    table.index.rebuild()
    assert Table(path).validate().ok


def test_metadata_table_entries_without_rows_are_errors(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    # The log file that took three keys out of the index.
    logs = sorted((path / ".hoodie" / "metadata" / "record_index").glob(".*.log.*"), key=lambda log: log.name.split("_")[1])
    logs[-1].unlink()
    result = Table(path).validate()
    assert any("keys, but the table has 57" in finding.detail for finding in result.findings), str(result)


def test_statistics_that_are_too_narrow(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    table = Table(path)
    place = next(s for s in table.scan().explain().slices if s.partition == "oslo")
    assert place.base is not None
    file = path / place.base.path
    rows = pa.parquet.read_table(file, partitioning=None)
    at = rows.schema.get_field_index("fare")
    metadata = rows.schema.metadata
    rows = rows.set_column(at, rows.schema.field(at), pa.array([1e6] * (rows.num_rows - 1) + [None]))
    pa.parquet.write_table(rows.replace_schema_metadata(metadata), file)
    result = Table(path).validate()
    narrow = [f for f in result.findings if f.check == "column_stats" and "1000000.0" in f.detail]
    assert narrow and narrow[0].path == place.base.path, str(result)


def test_an_empty_table(tmp_path: Path) -> None:
    result = Table.create(tmp_path / "t", name="t", record_key="id").validate()
    assert result.ok and not result.findings
    assert result.skipped == ("files", "column_stats", "record_index")


def test_amounts_are_aligned_after_the_longest_name() -> None:
    checks = (("files", "3 of 3"), ("secondary_index_of_a_long_name", "2 keys"))
    lines = str(ValidationResult("memory://t", (), checks, ("record_index",))).splitlines()[1:]
    assert [line.index(amount) for line, amount in zip(lines, ("3 of", "2 keys", "none"), strict=True)] == [34, 34, 34]


@pytest.mark.parametrize("base", ["PARQUET", "ORC"])
def test_damaged_pages_are_found(tmp_path: Path, base: str) -> None:
    options = {"hoodie.table.base.file.format": base}
    table = Table.create(tmp_path / "t", record_key="id", options=options)
    table.upsert({"id": [str(i) for i in range(5000)], "v": [float(i * 7919 % 5000) for i in range(5000)]})
    whole = table.validate(checksums="all")
    assert whole.ok and whole.unverified_bytes == 0 and ("page checksums", "1 of 1 base files compared") in whole.checks
    if base == "ORC":
        # Its row groups have no checksums, and are decoded.
        return
    (path,) = [info.path for info in table.context.storage.walk("") if info.name.endswith(".parquet")]
    data = bytearray(table.context.storage.read(path) or b"")
    data[len(data) // 5 : len(data) // 5 + 200] = bytes(200)
    table.context.storage.put(path, bytes(data))
    with pytest.raises(CorruptData):
        table.scan().to_arrow()
    for result in (table.validate(), table.validate(checksums="all")):
        assert [(finding.check, finding.path) for finding in result.findings if finding.check == "page checksums"] == [
            ("page checksums", path)
        ]
    unread = table.validate(checksums="none")
    assert unread.unverified_bytes == len(data) and "not compared: page checksums" in str(unread)
    with pytest.raises(InvalidRequest, match="checksums='some' is none of none, sample, all"):
        table.validate(checksums="some")  # type: ignore[arg-type]


def test_a_sample_of_pages_reports_what_was_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate_data, "SAMPLE_BYTES", 1)
    table = Table.create(tmp_path / "t", record_key="id", partition_by="p")
    table.upsert({"id": [str(i) for i in range(30)], "p": [f"p{i % 3}" for i in range(30)]})
    result = table.validate()
    sizes = [info.size_bytes for info in table.context.storage.walk("") if info.name.endswith(".parquet")]
    assert result.ok and sum(sizes) - max(sizes) <= result.unverified_bytes < sum(sizes)
    assert "checksums='all'" in str(result) and table.validate(checksums="all").unverified_bytes == 0


def test_metadata_table_of_version_6_is_no_error(tmp_path: Path) -> None:
    """It is not read, as files are listed in their folders."""
    table = Table.create(tmp_path, record_key="id")
    table.insert(pa.table({"id": [1]}))
    table.downgrade(6)
    properties = tmp_path / ".hoodie" / "hoodie.properties"
    lines = [
        line for line in properties.read_text().splitlines() if not line.startswith("#") and "metadata.partitions" not in line
    ]
    properties.write_text("\n".join([*lines, "hoodie.table.metadata.partitions=files,column_stats", ""]))
    result = Table(tmp_path).validate()
    assert result.ok, str(result)
    assert "not read before table version 8" in str(result)
