"""Table features that PyHudi rejects: tables that it would misread are not read, and tables that it would damage are not written.

Operations that read no rows (properties, the timeline) stay available.  Source: docs/formats/timeline.md, "Other files
of a table".
"""

from __future__ import annotations

from pyhudi.errors import Unsupported
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, CommitMetadata
from pyhudi.options import table_options
from pyhudi.options.table_options import OMIT
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext


def check_open(context: TableContext) -> None:
    """Raise Unsupported if files omit a partition column that is nested in another column: such a table is not even read."""
    _check_whole_columns(context.config)


def check_not_bootstrapped(context: TableContext) -> None:
    """Raise Unsupported for a bootstrapped table, whose version cannot be changed."""
    source = context.config.bootstrap_base_path
    if source:
        raise Unsupported(
            f"the table at {context.storage.uri} was bootstrapped from {source}, so it cannot be upgraded or downgraded"
        )


def check_omission(config: TableConfig) -> None:
    """Raise Unsupported for a table whose writers would omit columns from its files that these need."""
    _check_whole_columns(config)
    if not config.omitted_columns:
        return
    setting = f"{OMIT.stored_as}=true"
    if not config.populate_meta_fields:
        raise Unsupported(f"{setting} in a table without meta columns: its files would not identify the record of a row")
    both = sorted({*config.omitted_columns}.intersection(name.split(".")[0] for name in config.ordering_fields))
    if both:
        raise Unsupported(f"{setting} in a table that orders records by {both[0]}, a partition column: files must contain it")


def check_commit_open(metadata: CommitMetadata) -> None:
    """Raise Unsupported for a commit of a table with schema on read (`table.schema_on_read_history`), for callers that
    resolve columns by name.
    """
    if metadata.extra_metadata.get(LATEST_SCHEMA_KEY):
        raise Unsupported(
            f"the table uses schema on read ({table_options.SCHEMA_ON_READ}; {LATEST_SCHEMA_KEY} in a commit), but its schema "
            "history in .hoodie/.schema is missing, so columns cannot be resolved by id: restore that folder, or rewrite the "
            "table with Apache Hudi"
        )


def _check_whole_columns(config: TableConfig) -> None:
    nested = [name for name in config.path_columns if "." in name]
    if nested:
        raise Unsupported(
            f"the table {config.name} leaves its partition columns out of its files ({OMIT.stored_as}), and "
            f"{nested[0]} is a part of another column; such tables are neither read nor written"
        )
