"""HTML representation of values in notebooks, with all data escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pyhudi.errors import visible


class HtmlRepr:
    """Mixin for values that a notebook displays as their preformatted string."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(self)}</pre>"


def facts_as_html(facts: Mapping[str, object]) -> str:
    """Format a mapping as an HTML table of two columns."""
    rows = "".join(
        f'<tr><th style="text-align: left">{escaped(name)}</th><td style="text-align: left">{escaped(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def escaped(value: object) -> str:
    """Return a value's string escaped for HTML. Keys, paths and values are untrusted data."""
    return escape(visible(str(value)))
