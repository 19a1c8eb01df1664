"""Tables that stay closed: PyHudi would take their rows for others, so it neither reads nor writes nor services them.

    bootstrapped          METADATA_ONLY: base files hold meta columns alone, and the rows lie in files outside of the table

What can be told without rows (properties, the timeline) stays open.  Source: docs/formats/timeline.md, "Other files
of a table"; docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from pyhudi.errors import Unsupported
from pyhudi.format.actions.commit import LATEST_SCHEMA_KEY, CommitMetadata
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME
from pyhudi.format.paths import BOOTSTRAP_INDEX_FOLDER
from pyhudi.table.config import OMIT_COLUMNS, TableConfig
from pyhudi.table.context import TableContext
from pyhudi.timeline.timeline import Timeline


def check_open(context: TableContext, timeline: Timeline | None = None) -> None:
    """Raises Unsupported for a table that stays closed, and where files lack a partition column that is a part of another.

    timeline: the one that the caller goes by; loaded where it is asked for and not given.
    """
    config, uri = context.config, context.storage.uri
    _check_whole_columns(config)
    if config.bootstrap_base_path and _has_skeletons(context, timeline):
        raise Unsupported(
            f"the table at {uri} was bootstrapped without its rows, which lie in {config.bootstrap_base_path} (METADATA_ONLY); "
            "such tables are neither read nor written: write it anew with Apache Hudi"
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
    """Raises Unsupported for the commit of a table whose columns go by ids (`table.column_history`), for who goes by names."""
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


def _has_skeletons(context: TableContext, timeline: Timeline | None) -> bool:
    """Whether base files of the table stand for rows elsewhere; a FULL_RECORD bootstrap leaves no index and has another time."""
    if any(True for _ in context.storage.walk(BOOTSTRAP_INDEX_FOLDER)):
        return True
    instants = (timeline or context.timeline.load()).instants
    return any(instant.request_time == METADATA_BOOTSTRAP_INSTANT_TIME for instant in instants)
