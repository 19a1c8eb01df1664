"""Health report of a table: `pyhudi report`, and the figures of `Table.plot`.

figures     the data of the charts, computed from the Arrow tables of `Table.inspect`; pure functions
charts      charts as HTML and SVG, with the colours of the page
page        the page: one self-contained HTML file, accessible by keyboard, in light and dark
"""

from __future__ import annotations

from typing import Any

from pyhudi.features import export

_EXPORTS = {
    "Plots": "plot",
    "render_report": "page",
}


def __getattr__(name: str) -> Any:
    return export(__name__, _EXPORTS, name)
