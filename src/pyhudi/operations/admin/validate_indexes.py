"""Do the indexes of the metadata table say what is so?  A part of `validate`: the checks of all kinds, see `kinds.Index.check`.

    files              the lists against the directories
    column_stats       ranges of columns in base files against their footers
    bloom_filters      the filters of base files against those in their footers
    record_index       every key of a row is where it says, and it has no other keys
    partition_stats    a range of every column in every partition, which covers what column_stats says of its files, and the
                       files themselves where such ranges can be believed
    secondary index    every pair of value and record key of the rows is there; none besides
    expression index   ranges and filters of files against the functions computed anew, those of partitions against their files

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.metadata_table.indexes import check_computable, in_build_order, kind_of, open_index
from pyhudi.metadata_table.indexes.files_index import Files
from pyhudi.metadata_table.indexes.index_validation import Check, CheckedTable


def checks_of(table: CheckedTable, pass_over: Callable[[str, str], None]) -> Iterator[tuple[str, Check]]:
    """The checks that the indexes of a table give reason for, by name.

    pass_over: is told of an index that cannot be checked, and why.
    """
    for name in in_build_order(table.metadata.partitions):
        kind = kind_of(name)
        if table.table_schema is None and kind is not Files:
            continue
        if kind is None:
            pass_over(name, "PyHudi does not know this index")
            continue
        try:
            index = open_index(name, table.metadata.definitions if kind.is_defined else {})
            if table.table_schema is not None:
                check_computable((index,), table.table_schema)
        except (Unsupported, CorruptData) as error:
            pass_over(name, str(error))
            continue
        doubt = index.doubt(table) if table.table_schema is not None else None
        if doubt is not None:
            pass_over(name, doubt)
            continue
        yield name, partial(index.check, table)
