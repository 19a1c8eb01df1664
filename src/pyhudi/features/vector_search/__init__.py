"""Exact search for the nearest vectors of a table: `Table.search`, and `hudi_vector_search` in SQL.

nearest        distances of blocks of vectors to queries, and the best rows so far; pure functions
search_table   the search of a table: stream the vector column, then read the other columns of the rows found
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "search": "search_table",
    "search_function": "search_table",
}
__getattr__ = exports(__name__, _EXPORTS)
