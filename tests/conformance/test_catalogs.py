"""The catalog suite on SQLite, and what only SQLite can do wrong."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import pyhudi as hp
from tests.conformance.catalog_suite import CatalogSuite


class TestSqlite(CatalogSuite):
    @pytest.fixture
    def uri(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/catalog.db"

    def test_a_damaged_file(self, lake: hp.Catalog, tmp_path: Path) -> None:
        lake.create_table("sales.t", record_key="id")
        connection = sqlite3.connect(tmp_path / "catalog.db")
        connection.execute("UPDATE pyhudi_tables SET storage_options = '['")
        connection.commit()
        connection.close()
        with pytest.raises(hp.CorruptData, match="invalid JSON"):
            lake.load_table("sales.t")
        (tmp_path / "catalog.db").write_bytes(b"no database" * 500)
        with pytest.raises(hp.InvalidRequest, match="not a database"):
            lake.list_namespaces()

    def test_places_that_cannot_hold_a_catalog(self, tmp_path: Path) -> None:
        with pytest.raises(hp.StorageUnavailable, match="unable to open"):
            hp.Catalog("lake", uri=f"sqlite:///{tmp_path}/none/catalog.db").list_namespaces()
        with pytest.raises(hp.InvalidRequest, match=r"hp\.Catalog\(\)"):
            hp.Catalog("lake", uri="sqlite:///:memory:")
