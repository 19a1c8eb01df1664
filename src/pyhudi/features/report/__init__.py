"""Health report of a table: `pyhudi report`, and the figures of `Table.plot`.

figures     the data of the charts, computed from the Arrow tables of `Table.inspect`; pure functions
charts      charts as HTML and SVG, with the colours of the page
page        the page: one self-contained HTML file, accessible by keyboard, in light and dark
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "Plots": "plot",
    "render_report": "page",
}
__getattr__ = exports(__name__, _EXPORTS)
