"""Tables that PyHudi refuses: what it would take for something else is not read, and what it could not keep so is not written.

What can be told without rows (properties, the timeline) stays open.  Source: docs/formats/timeline.md, "Other files
of a table".
"""

from __future__ import annotations

from pyhudi.errors import Unsupported
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, CommitMetadata
from pyhudi.table.table_config import OMIT_COLUMNS, TableConfig
from pyhudi.table.table_context import TableContext


def check_open(context: TableContext) -> None:
    """Raises Unsupported where files lack a partition column that is a part of another: such a table is not even read."""
    _check_whole_columns(context.config)


def check_not_bootstrapped(context: TableContext) -> None:
    """Raises Unsupported for a table that was made over files outside of it: it stays of its version."""
    source = context.config.bootstrap_base_path
    if source:
        raise Unsupported(
            f"the table at {context.storage.uri} was bootstrapped from {source}; such tables are not taken to another version"
        )


def check_omission(config: TableConfig) -> None:
    """Raises Unsupported for a table whose writers would leave columns out of its files that they need there."""
    _check_whole_columns(config)
    if not config.omitted_columns:
        return
    setting = f"{OMIT_COLUMNS}=true"
    if not config.populate_meta_fields:
        raise Unsupported(f"{setting} in a table without meta columns: nothing in its files would say which record a row is")
    both = sorted({*config.omitted_columns}.intersection(name.split(".")[0] for name in config.ordering_fields))
    if both:
        raise Unsupported(f"{setting} in a table that orders records by {both[0]}, a partition column: files have to hold it")


def check_commit_open(metadata: CommitMetadata) -> None:
    """Raises Unsupported for the commit of a table whose columns go by ids (`table.schema_on_read_history`), for who goes by
    names.
    """
    if metadata.extra_metadata.get(LATEST_SCHEMA_KEY):
        raise Unsupported(
            f"the table evolved on read (hoodie.schema.on.read.enable): a commit carries {LATEST_SCHEMA_KEY}, and its columns go "
            "by ids, not by names; such a table is read while it has its history in .hoodie/.schema, and not written: write it "
            "anew with Apache Hudi"
        )


def _check_whole_columns(config: TableConfig) -> None:
    nested = [name for name in config.path_columns if "." in name]
    if nested:
        raise Unsupported(
            f"the table {config.name} leaves its partition columns out of its files ({OMIT_COLUMNS}), and {nested[0]} is a part "
            "of another column; such tables are neither read nor written"
        )
