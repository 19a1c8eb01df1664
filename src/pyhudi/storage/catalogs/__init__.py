"""Clients of external catalogs that tables are registered in: the Hive metastore and AWS Glue, behind one interface."""

from __future__ import annotations

from pyhudi.storage.catalogs.catalog_client import CatalogColumn, CatalogPartition, CatalogTable, ChangeRefused, MetastoreCatalog

__all__ = ["MetastoreCatalog", "CatalogColumn", "CatalogPartition", "CatalogTable", "ChangeRefused"]
