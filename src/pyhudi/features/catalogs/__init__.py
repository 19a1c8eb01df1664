"""Catalogs: names of tables in SQLite, PostgreSQL, a Hive metastore or AWS Glue (`hp.Catalog`, `hp.open`).

catalog           `Catalog`: namespaces and tables; create, register, load, rename and drop
resolver          which names denote a table of a catalog: the rule of `hp.open`, SQL and the command line
catalog_settings  catalogs and profiles of the configuration file and the environment; references to secrets
catalog_store     what a catalog stores, and its interface
sql_store         SQLite and PostgreSQL
metastore_store   Hive metastore and AWS Glue, to list and load
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "Catalog": "catalog",
    "TableEntry": "catalog_store",
    "configured_settings": "catalog_settings",
    "find_catalog": "resolver",
    "locate": "resolver",
    "open": "resolver",
    "resolve": "resolver",
    "resolve_namespace": "resolver",
}
__getattr__ = exports(__name__, _EXPORTS)
