"""Catalogs of other engines, in which tables are registered: the Hive metastore and AWS Glue behind one interface."""

from __future__ import annotations

from pyhudi.storage.catalogs.catalog_client import CatalogColumn, CatalogPartition, CatalogTable, ChangeRefused, MetastoreCatalog

__all__ = ["MetastoreCatalog", "CatalogColumn", "CatalogPartition", "CatalogTable", "ChangeRefused"]
