"""The health of a table on one page: `pyhudi report`, and the figures that `Table.plot` draws.

    figures     what is drawn, computed from the Arrow tables of `Table.inspect`; pure
    charts      figures as HTML and SVG that follow the page's colours
    page        the page: one HTML file without outside parts, readable by keyboard, in light and dark

`from pyhudi.features.report.page import render_report`
"""
