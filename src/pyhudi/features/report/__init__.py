"""The health of a table on one page: `pyhudi report`, and the figures that `Table.plot` draws.

figures     what is drawn, computed from the Arrow tables of `Table.inspect`; pure
charts      figures as HTML and SVG that follow the page's colours
page        the page: one HTML file without outside parts, readable by keyboard, in light and dark
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
