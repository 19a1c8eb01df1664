"""Tables that stay closed: PyHudi would take their rows for others, so it neither reads nor writes nor services them.

    evolved on read       columns have ids, under which they were renamed, dropped, added again or given other types while files
                          stayed as they were (`hoodie.schema.on.read.enable`); PyHudi reads the columns of files by name
    bootstrapped          METADATA_ONLY: base files hold meta columns alone, and the rows lie in files outside of the table

What can be told without rows (properties, the timeline) stays open.  Source: docs/formats/timeline.md, "Other files
of a table"; docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.actions.commit import LATEST_SCHEMA_KEY, CommitMetadata
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME
from pyhudi.format.paths import BOOTSTRAP_INDEX_FOLDER, SCHEMA_FOLDER
from pyhudi.format.schema_history import decode_schema_history
from pyhudi.table.config import OMIT_COLUMNS, TableConfig
from pyhudi.table.context import TableContext
from pyhudi.timeline.timeline import Timeline

_SCHEMA_COMMIT = ".schemacommit"


def check_open(context: TableContext, timeline: Timeline | None = None) -> None:
    """Raises Unsupported, saying which of the two it is, for a table that stays closed, and for one whose files lack a partition
    column that is a part of another.

    timeline: the one that the caller goes by; loaded where it is asked for and not given.
    """
    config, uri = context.config, context.storage.uri
    _check_whole_columns(config)
    if config.bootstrap_base_path and _has_skeletons(context, timeline):
        raise Unsupported(
            f"the table at {uri} was bootstrapped without its rows, which lie in {config.bootstrap_base_path} (METADATA_ONLY); "
            "such tables are neither read nor written: write it anew with Apache Hudi"
        )
    path = _find_history(context, timeline)
    if path is not None:
        raise _evolved_on_read(f"its schema history is {path}")


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
    """Raises Unsupported for the commit of a table that evolves on read: it carries a schema with ids."""
    if metadata.extra_metadata.get(LATEST_SCHEMA_KEY):
        raise _evolved_on_read(f"a commit carries {LATEST_SCHEMA_KEY}")


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


def _find_history(context: TableContext, timeline: Timeline | None) -> str | None:
    """The file with the ids of the table's columns, None when it has none.

    A change of columns counts when its own commit completed: the history is written first, and stays where that died.
    """
    for info in context.storage.list(SCHEMA_FOLDER).files:
        if not info.name.endswith(_SCHEMA_COMMIT):
            continue
        path = context.storage.absolute(info.path)
        try:
            schemas = decode_schema_history(context.storage.read(info.path) or b"")
        except CorruptData as error:
            raise error.with_path(path) from error
        timeline = timeline or context.timeline.load()
        if any(timeline.is_completed(str(schema.version_id)) for schema in schemas if schema.version_id):
            return path
    return None


def _evolved_on_read(evidence: str) -> Unsupported:
    return Unsupported(
        f"the table evolved on read (hoodie.schema.on.read.enable): {evidence}, and its columns go by ids, not by names; such "
        "tables are neither read nor written: write it anew with Apache Hudi"
    )
