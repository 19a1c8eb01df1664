"""Slash-separated date partitions: whether a table's paths are its partition values with `/` for each `-`.

Hudi 1.2 stores the option in hoodie.properties if SQL created the table. Its DataFrame writer stores only the name of
the class that reads such paths, which a table whose values contain the slashes themselves may have too. Then a file
decides.

Source: docs/formats/record-keys.md, "Partition paths".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyhudi.errors import TableState, Unsupported
from pyhudi.format.names import is_orc, parse_base_file
from pyhudi.format.orc.orc_reader import OrcFile
from pyhudi.format.parquet.parquet_file import open_parquet
from pyhudi.format.paths import file_name
from pyhudi.options.table_options import SLASH_DATES
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.partition_paths import partition_paths
from pyhudi.storage.base import Storage
from pyhudi.table.listing import table_folders


def find_slash_dates(storage: Storage, keys: KeySpec) -> bool | None:
    """Return whether partition paths are values with `/` for each `-`, by the files of a table that names the class.

    Args:
        storage: Storage of the table.
        keys: Its key configuration with ``slash_dates``.

    Returns:
        False if a file's values have slashes themselves, or paths have dashes and no slashes. None if the paths have
        neither.

    Raises:
        Unsupported: Paths have slashes, and no base file holds the partition column.
    """
    has_slashes = has_dashes = False
    for partition, base in _partitions(storage):
        has_slashes = has_slashes or "/" in partition
        has_dashes = has_dashes or "-" in partition
        value = None if "/" not in partition or base is None else _path_of_first_row(storage, base, keys)
        if value is not None:
            return value != partition
    if has_slashes:
        raise Unsupported(
            f"the table at {storage.uri} names SlashEncodedDayPartitionValueExtractor, and no base file holds the partition "
            f"column: whether its paths are dates with slashes for dashes is unknown. Set {SLASH_DATES} in its properties"
        )
    return False if has_dashes else None


def check_one_spelling(uri: str, partitions: Iterable[str]) -> None:
    """Raise TableState if a table with slash-separated dates also has partitions with dashes: keys may occur twice."""
    dashed = next((partition for partition in partitions if "-" in partition.rpartition("=")[2]), None)
    if dashed is not None:
        raise TableState(
            f"cannot write the table at {uri}: it has slash-separated dates, and a write without {SLASH_DATES} added the "
            f"partition {dashed!r}; records may be stored twice. Delete or move the rows of such partitions first"
        )


def _path_of_first_row(storage: Storage, base: str, keys: KeySpec) -> str | None:
    """Return the partition path of a file's first row by its value as it is; None if that is null or not in the file."""
    field = keys.partition_fields[0].name
    with storage.open_input(base) as source:
        file = OrcFile(source) if is_orc(base) else open_parquet(source)
        head = field.split(".")[0]
        if head not in file.schema_arrow.names or not file.metadata.num_row_groups:
            return None
        batches = file.read_row_group(0, columns=[head]).slice(0, 1).to_batches()
    batch = next(iter(batches), None)
    if batch is None or column_at(batch, field).null_count:
        return None
    return str(partition_paths(replace(keys, slash_dates=False), batch)[0])


def _partitions(storage: Storage) -> Iterator[tuple[str, str | None]]:
    """Yield each folder with files, and a base file in it; None if it has none."""
    for folder, listing in table_folders(storage):
        if folder and listing.files:
            bases = (info.path for info in listing.files if parse_base_file(file_name(info.path)) is not None)
            yield folder, next(bases, None)
