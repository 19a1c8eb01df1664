"""`Table`: the entry point to a Hudi table at a URI. Options are parsed here; operations live in `operations`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pyhudi import features
from pyhudi.api.alter import Alter
from pyhudi.api.argument_types import checked_class
from pyhudi.api.attribute_hints import ForeignNames
from pyhudi.api.indexes import Indexes
from pyhudi.api.inspect import Inspection
from pyhudi.api.merge import Merge
from pyhudi.api.scan import Scan
from pyhudi.errors import TableExists, TableNotFound
from pyhudi.format.meta_columns import COMMIT_TIME, META_COLUMNS, PARTITION_PATH
from pyhudi.operations.admin.create_table import new_table_properties, stored_columns
from pyhudi.operations.admin.open_table import make_table, resolve_location, settings_with_name
from pyhudi.operations.admin.option_consistency import check_same_columns, check_same_table
from pyhudi.operations.admin.stored_settings import split_new_options
from pyhudi.operations.admin.table_settings import with_table_arguments
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.key_form_check import partitions_of_other_form
from pyhudi.options.supported import parse_options, warn_caller
from pyhudi.options.write_options import COMBINE_BEFORE_INSERT
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.html_repr import facts_as_html
from pyhudi.storage import open_storage
from pyhudi.storage.environment import Environment, SystemEnvironment
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_config import load_table_config, new_table_config

if TYPE_CHECKING:
    from pyhudi.features.report.plot import Plots

from pyhudi.api.table_admin import TableAdmin
from pyhudi.api.table_reads import TableReads
from pyhudi.api.table_writes import TableWrites

__all__ = ["Filter", "Indexes", "Merge", "Scan", "Table"]


_REWRITE_SECONDS = 600
"""Expected duration of the rewrite of a partition, for other writers."""


@checked_class
class Table(TableWrites, TableReads, TableAdmin, ForeignNames):
    """A Hudi table at a URI: a local path, `s3://`, `gs://`, `az://` or `memory://`.

    Opening reads `hoodie.properties` only. Every method works on the latest state of the table, so one object can be
    reused for any length of time and from several threads. Reads cache the loaded snapshot (up to some tens of MiB) and
    reuse it until the table changes.

    Example:
        >>> import pyhudi as hp
        >>> t = hp.Table.create("memory://trips", record_key="id", ordering="ts")
        >>> result = t.upsert({"id": [1, 2], "ts": [10, 10], "fare": [7.5, 12.0]})
        >>> t.scan(filter="fare > 10").to_arrow().num_rows
        1
    """

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        *,
        name: str | None = None,
        record_key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        ordering: str | Sequence[str] | None = None,
        table_type: str | None = None,
        schema: pa.Schema | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        environment: Environment | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table and open it.

        Args:
            uri: Location of the table.
            name: Table name (`hoodie.table.name`); defaults to the name of the folder.
            record_key: Record key fields; None generates record keys.
            partition_by: Partition fields; a key type may follow (`day:TIMESTAMP`).
            ordering: Ordering (precombine) fields; of two records with one key, the larger value wins.
            table_type: `cow` (copy-on-write, default) or `mor` (merge-on-read).
            schema: Columns; defaults to those of the first write.
            storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
            options: Further `hoodie.*` options. The table stores those that define it, and options of reads, writes and
                services as defaults of all who open it. Options that name code, hosts, paths, locks, memory or what one
                call does apply to the returned object only, and a warning names them.
            environment: Clock, id generator and sleep function; the system's by default.
            exist_ok: Open an existing table if its record key, partitioning, columns (`schema`) and every setting
                passed here match. Settings that are not passed may differ, such as table type or version.

        Returns:
            The open table.

        Raises:
            TableExists: A table exists at the URI; with `exist_ok`, one whose settings differ as the message names.
            InvalidRequest: An option is invalid or contradicts another, or a field is not a column of the schema.
        """
        stored, left = split_new_options(parse_options(options))
        if left:
            warn_caller(
                f"options {', '.join(left)} of Table.create apply to the returned table object only, because a table does not "
                "store them: pass them to Table(...) too"
            )
        return cls._create(
            uri,
            name=name,
            record_key=record_key,
            partition_by=partition_by,
            ordering=ordering,
            table_type=table_type,
            schema=schema,
            storage_options=storage_options,
            options=options,
            stored_defaults=stored,
            environment=environment,
            exist_ok=exist_ok,
        )

    @classmethod
    def _create(
        cls,
        uri: str | os.PathLike[str],
        *,
        name: str | None = None,
        record_key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        ordering: str | Sequence[str] | None = None,
        table_type: str | None = None,
        schema: pa.Schema | None = None,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        stored_defaults: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table as `create`. Of the options that do not define the table, it stores ``stored_defaults`` only.

        An existing table keeps its defaults.
        """
        uri, storage_options = resolve_location(uri, storage_options)
        storage = open_storage(uri, storage_options)
        with_arguments = partial(
            with_table_arguments,
            name=name,
            record_key=record_key,
            partition_by=partition_by,
            ordering=ordering,
            table_type=table_type,
        )
        new_options = parse_options({**(stored_defaults or {}), **(options or {})})
        try:
            new_settings = settings_with_name(storage, with_arguments(new_options))
            make_table(storage, environment or SystemEnvironment(), new_options, new_settings, schema)
        except TableExists:
            if not exist_ok:
                raise
            requested = with_arguments(parse_options(options))
            settings = settings_with_name(storage, requested)
            existing_config = load_table_config(storage)
            check_same_table(requested, new_table_config(new_table_properties(settings, schema)), existing_config, storage.uri)
            existing = cls(uri, storage_options, options, environment=environment)
            if schema is not None:
                check_same_columns(stored_columns(settings, schema, existing_config.version), existing.schema(), existing.uri)
            return existing
        return cls(uri, storage_options, options, environment=environment)

    @classmethod
    def exists(cls, uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """Return True if a table exists at the URI.

        Args:
            uri: Location of the table.
            storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
        """
        try:
            load_table_config(open_storage(*resolve_location(uri, storage_options)))
        except TableNotFound:
            return False
        return True

    def rewrite_record_keys(self) -> tuple[WriteResult, ...]:
        """Give all stored record keys one form, in a table with the key generator COMPLEX and one key field.

        Releases of Hudi store such keys as `value` or as `field:value`. In a table of both, a record may exist twice, and
        writes are refused. This call rewrites each partition that holds keys of another form than the table's, in a commit
        of its own under the table lock. Of records with one key the row that the table's merge mode prefers remains. The
        rows of one partition have to fit in memory.

        Returns:
            The result of each partition; empty if all keys have one form.

        Raises:
            StorageUnavailable: The lock was not acquired in time.

        Example:
            >>> results = table.rewrite_record_keys()
        """
        results = []
        for partition in partitions_of_other_form(load_snapshot(self._open.writable(self._open.options))):
            with self.exclusive(seconds=_REWRITE_SECONDS) as table:
                rows = table.scan(["*"], filter=[(PARTITION_PATH, "=", partition)]).to_arrow().sort_by(COMMIT_TIME)
                rows = rows.drop_columns([name for name in META_COLUMNS if name in rows.column_names])
                results.append(table.insert_overwrite(rows, options={COMBINE_BEFORE_INSERT.key: True}))
        return tuple(results)

    def __repr__(self) -> str:
        config = self._open.context.config
        type_name = "cow" if config.is_cow else "mor"
        return f"Table({self._open.uri!r}, name={config.name!r}, type={type_name!r}, version={int(config.version)})"

    def _repr_html_(self) -> str:
        config = self._open.context.config
        facts = {
            "name": config.name,
            "uri": self._open.uri,
            "type": config.table_type,
            "version": int(config.version),
            "record key": ", ".join(config.keys.record_fields) or "(generated)",
            "partitioned by": ", ".join(field.name for field in config.keys.partition_fields) or "(not partitioned)",
            "ordering field": ", ".join(config.ordering_fields) or "(none)",
            "indexes": ", ".join(config.metadata_partitions) or "(no metadata table)",
        }
        return facts_as_html(facts)

    @property
    def alter(self) -> Alter:
        """Schema evolution: add, drop, rename, retype, reorder and comment columns (schema on read)."""
        return Alter(self._open)

    @property
    def index(self) -> Indexes:
        """Indexes in the metadata table: create, drop, rebuild and list them."""
        return Indexes(self._open)

    @property
    def inspect(self) -> Inspection:
        """Contents of the table as Arrow tables: timeline, files, file slices, column statistics, log blocks and more."""
        return Inspection(self._open.context.reloaded())

    @property
    def plot(self) -> Plots:
        """Charts of table health, drawn with matplotlib (`pip install "pyhudi[plot]"`)."""
        plots: Plots = features.load("report", "Table.plot").Plots(self.inspect, self.name)
        return plots
