"""How values are shown in notebooks: as HTML in which nothing of the data is markup."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pyhudi.errors import visible


class HtmlRepr:
    """A value that a notebook shows as the text it prints, with its lines and columns kept."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(self)}</pre>"


def facts_as_html(facts: Mapping[str, object]) -> str:
    """A table of two columns."""
    rows = "".join(
        f'<tr><th style="text-align: left">{escaped(name)}</th><td style="text-align: left">{escaped(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def escaped(value: object) -> str:
    """A value's text for HTML.  Keys, paths and values come from whoever wrote the data."""
    return escape(visible(str(value)))
