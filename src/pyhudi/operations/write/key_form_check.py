"""Find the base files whose record keys do not have the table's form (see `table.key_form`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyhudi.errors import TableState
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.storage.base import Storage
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.key_form import has_two_forms, key_forms
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_config import TableConfig
from pyhudi.tasks.base_file_reader import MAX_KEY, MIN_KEY, footer_text, open_base_file

_checked: dict[str, set[str]] = {}
"""Base files with keys of the table's form alone, by table and form; a file never changes."""

_MOST_TABLES = 64
_FIRST_CHECK = 200
"""Number of files that the first write of a process checks beyond those of its partitions, evenly spread."""


def check_one_key_form(snapshot: Snapshot, slices: Iterable[FileSlice] | None) -> None:
    """Raise TableState if base files hold keys of another form than the one that writes of the table use.

    Args:
        snapshot: The table.
        slices: File slices of the partitions of the write; None for those of all partitions.
    """
    config, storage = snapshot.config, snapshot.context.storage
    if not _needs_check(config):
        return
    known = _known_files(storage, config)
    bases = [] if slices is None else _base_paths(slices)
    if slices is None or not known:
        others = _base_paths(s for found in snapshot.slices(None).values() for s in found)
        bases += others[:: max(1, len(others) // _FIRST_CHECK)]
    wrong = _files_of_other_form(storage, config.keys, [path for path in dict.fromkeys(bases) if path not in known])
    if wrong:
        name = config.keys.record_fields[0]
        forms = f"`{name}:value`", "the bare value"
        form, other = forms if config.keys.prefix_single_key else forms[::-1]
        raise TableState(
            f"cannot write the table at {storage.uri}: its record keys have the form {form}, but {wrong[0]} holds keys in the "
            f"form {other} of another release of Hudi, so that records may be stored twice. Table.rewrite_record_keys() gives "
            "all keys one form"
        )
    known.update(bases)


def partitions_of_other_form(snapshot: Snapshot) -> list[str]:
    """Return the partitions with keys of another form than the table's. Reads the footer or the keys of every base file."""
    if not _needs_check(snapshot.config):
        return []
    by_path = {s.base.path: s.partition for found in snapshot.slices(None).values() for s in found if s.base is not None}
    wrong = _files_of_other_form(snapshot.context.storage, snapshot.config.keys, list(by_path))
    return sorted({by_path[path] for path in wrong})


def _needs_check(config: TableConfig) -> bool:
    return has_two_forms(config.keys) and config.populate_meta_fields


def _known_files(storage: Storage, config: TableConfig) -> set[str]:
    if len(_checked) >= _MOST_TABLES:
        _checked.clear()
    return _checked.setdefault(f"{storage.uri} {config.keys.prefix_single_key}", set())


def _base_paths(slices: Iterable[FileSlice]) -> list[str]:
    return [slice_.base.path for slice_ in slices if slice_.base is not None]


def _files_of_other_form(storage: Storage, keys: KeySpec, paths: Sequence[str]) -> list[str]:
    flags = in_threads(lambda path: _has_other_form(storage, keys, path), paths)
    return [path for path, flag in zip(paths, flags, strict=True) if flag]


def _has_other_form(storage: Storage, keys: KeySpec, path: str) -> bool:
    name = f"{keys.record_fields[0]}:"
    with open_base_file(storage, path) as file:
        least, greatest = footer_text(file.metadata, MIN_KEY), footer_text(file.metadata, MAX_KEY)
        if least is not None and greatest is not None:
            # All texts between two that begin with the name do so too; and none does if both are on one side of it.
            if keys.prefix_single_key and least.startswith(name) and greatest.startswith(name):
                return False
            if not keys.prefix_single_key and not _spans(least, greatest, name):
                return False
        head = keys.record_fields[0].split(".")[0]
        columns = [column for column in file.schema_arrow.names if column in (RECORD_KEY, head)]
        for number in range(file.metadata.num_row_groups):
            for batch in file.read_row_group(number, columns=columns).to_batches():
                prefixed, bare = key_forms(batch, keys)
                if bare if keys.prefix_single_key else prefixed:
                    return True
    return False


def _spans(least: str, greatest: str, prefix: str) -> bool:
    """Whether texts with a prefix may be between two texts, in the order of UTF-8 or of Java."""
    low, high = least[: len(prefix)], greatest[: len(prefix)]
    return not (high < prefix or low > prefix) or not (least + greatest).isascii()
