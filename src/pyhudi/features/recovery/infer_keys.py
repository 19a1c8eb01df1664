"""Tasks that infer from the rows of a base file how its table names records and partitions, or verify a given specification.

Rows are read a row group at a time; excluded columns are not read again.

Source: docs/formats/record-keys.md; docs/formats/timeline.md, "Inferring properties from files".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.features.recovery.infer_properties import KeyFacts
from pyhudi.format.json_document import parse_json
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.format.orc.orc_reader import ORC_AVRO_SCHEMA_KEY
from pyhudi.format.paths import parent_folder
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.java_strings import has_text, value_text
from pyhudi.records.keys.key_spec import KeyGenerator, KeySpec, partition_columns
from pyhudi.records.keys.partition_paths import DEFAULT_PARTITION, partition_paths
from pyhudi.records.keys.record_keys import record_keys, split_record_keys
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.tasks.base_file_reader import Footer, OpenFile, footer_text, open_base_file
from pyhudi.tasks.base_file_writer import AVRO_SCHEMA_KEY
from pyhudi.tasks.incoming_layout import as_batch


@dataclass(frozen=True, slots=True)
class KeysTask:
    """Inspect one base file.  path: relative to the table; spec: to be verified, None to infer one."""

    storage: StorageSpec
    path: str
    spec: KeySpec | None = None


def run_keys(task: KeysTask) -> KeyFacts:
    """Infer or verify; see `KeyFacts`."""
    try:
        with open_base_file(open_storage(task.storage), task.path) as file:
            return _key_facts(task, file) if task.spec is None else _checked(task, task.spec, file)
    except CorruptData as error:
        return KeyFacts(task.path, damage=str(error))


def _key_facts(task: KeysTask, file: OpenFile) -> KeyFacts:
    names = set(file.schema_arrow.names)
    has_meta = {RECORD_KEY, PARTITION_PATH} <= names
    columns = tuple(name for top in file.schema_arrow if not top.name.startswith("_hoodie_") for name in _leaves(top, top.name))
    same = set(columns) if has_meta else set()
    constant: dict[str, str | None] = dict.fromkeys(columns)
    composite: tuple[str, ...] | None = None if has_meta else ()
    for number in range(file.metadata.num_row_groups):
        rows = _rows(file, number, {*same, *constant, *(columns if composite is None else composite)}, has_meta=has_meta)
        if not rows.num_rows:
            continue
        texts = {name: value_text(column_at(rows, name)) for name in {*same, *constant}}
        if has_meta and rows.column(RECORD_KEY).null_count:
            # The columns exist, but are not populated.
            has_meta, same, composite = False, set(), ()
        if has_meta:
            keys = rows.column(RECORD_KEY).cast(pa.string())
            same = {name for name in same if texts[name].equals(keys)}
            named = _fields_of(keys) if composite is None else composite
            composite = named if named and _spec_gives_keys(_composed(named), rows, keys, columns) else ()
        for name in list(constant):
            distinct = pc.unique(pc.if_else(pc.equal(pc.binary_length(texts[name]), 0), _NOTHING, texts[name]))
            text = DEFAULT_PARTITION if len(distinct) and not distinct[0].is_valid else str(distinct[0])
            if len(distinct) > 1 or constant[name] not in (None, text):
                del constant[name]
            else:
                constant[name] = text
    constant_texts = {name: text for name, text in constant.items() if text is not None}
    count, named_so = file.metadata.num_rows, _schema_name(file.metadata)
    return KeyFacts(task.path, count, columns, has_meta, frozenset(same), composite or (), constant_texts, named_so)


def _schema_name(footer: Footer) -> str:
    """The full name in the Avro schema of a footer, '' without one."""
    text = footer_text(footer, AVRO_SCHEMA_KEY) or footer_text(footer, ORC_AVRO_SCHEMA_KEY)
    schema = parse_json(text.encode(), "the Avro schema in its footer is") if text else {}
    return f"{schema.get('namespace', '')}.{schema.get('name', '')}" if text else ""


def _checked(task: KeysTask, spec: KeySpec, file: OpenFile) -> KeyFacts:
    fields = (*(() if spec.generates_keys else spec.record_fields), *partition_columns(spec))
    if RECORD_KEY not in file.schema_arrow.names or not fields:
        return KeyFacts(task.path, file.metadata.num_rows)
    held = {name for top in file.schema_arrow for name in _leaves(top, top.name)}
    wrong = None
    for number in range(file.metadata.num_row_groups):
        rows = _rows(file, number, set(fields) & held, has_meta=True)
        try:
            if not spec.generates_keys and set(spec.record_fields) <= held:
                wrong = wrong or _first(RECORD_KEY, rows.column(RECORD_KEY).cast(pa.string()), record_keys(spec, rows))
            if spec.partition_fields and set(partition_columns(spec)) <= held:
                folder = pa.array([parent_folder(task.path)] * rows.num_rows, pa.string())
                wrong = wrong or _first("the folder", folder, partition_paths(spec, rows))
        except InvalidRequest as error:
            wrong = wrong or str(error)
    if not spec.generates_keys and not set(spec.record_fields) <= held:
        wrong = f"it has no column {', '.join(sorted(set(spec.record_fields) - held))}"
    return KeyFacts(task.path, file.metadata.num_rows, mismatch=wrong)


def _first(description: str, stored: pa.Array, created: pa.Array) -> str | None:
    """The first row in which what is stored is not what the spec makes; None where there is none."""
    at = pc.index(pc.fill_null(pc.equal(stored, created), False), False).as_py()
    return (
        None
        if at < 0
        else f"{description} of a row is {stored[at].as_py()!r}, and the properties make {created[at].as_py()!r} of it"
    )


def _fields_of(keys: pa.StringArray) -> tuple[str, ...]:
    """The fields that the first key names; () where it names none."""
    if not len(keys):
        return ()
    names = [part["name"] for part in split_record_keys(keys.slice(0, 1))[0].as_py() or ()]
    return tuple(names) if names and all(names) and len(set(names)) == len(names) else ()


def _composed(names: tuple[str, ...]) -> KeySpec:
    return KeySpec(KeyGenerator.COMPLEX, names, prefix_single_key=len(names) == 1)


def _spec_gives_keys(spec: KeySpec, rows: pa.RecordBatch, keys: pa.StringArray, columns: Iterable[str]) -> bool:
    if not set(spec.record_fields) <= set(columns):
        return False
    try:
        return bool(record_keys(spec, rows).equals(keys))
    except InvalidRequest:
        return False


def _rows(file: OpenFile, number: int, column_names: Iterable[str], *, has_meta: bool) -> pa.RecordBatch:
    """A row group: the record key and the requested columns, with their parent columns."""
    heads = [*([RECORD_KEY] if has_meta else []), *sorted({name.split(".")[0] for name in column_names})]
    return as_batch(file.read_row_group(number, columns=heads, use_threads=False))


_NOTHING = pa.scalar(None, pa.string())


def _leaves(column: pa.Field, path: str) -> list[str]:
    """The columns that have a text, also inside of structs, by dotted name."""
    if pa.types.is_struct(column.type):
        return reduce(lambda leaves, child: [*leaves, *_leaves(child, f"{path}.{child.name}")], column.type.fields, [])
    return [path] if has_text(column.type) else []
