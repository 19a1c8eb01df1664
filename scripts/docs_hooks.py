"""What `mkdocs build` adds to the pages: the list of commands on docs/command-line.md, from the code itself, notebooks where a
page names one, and what a search finds first.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from scripts import notebook

PLACE = "<!-- commands -->"


BEHIND = ("decisions/", "formats/", "specification.md", "architecture.md")
"""Pages that a search ranks behind those that say how something is done."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    if page.file.src_uri.startswith(BEHIND):
        page.meta.setdefault("search", {"boost": 0.5})
    folder = Path(page.file.abs_src_path).parent
    markdown = notebook.PLACE.sub(lambda found: notebook.rendered(json.loads((folder / found[1]).read_text())), markdown)
    return markdown.replace(PLACE, render_commands()) if PLACE in markdown else markdown


def render_commands() -> str:
    """Each command of the application with its arguments and options, as Markdown."""
    from pyhudi.cli.app import app

    parts = []
    groups = [(f"{group.name} ", group.typer_instance) for group in app.registered_groups]
    for prefix, holder in (("", app), *groups):
        for command in holder.registered_commands if holder else ():
            assert command.callback is not None
            name = command.name or command.callback.__name__.strip("_").replace("_", "-")
            parts.append(_render(prefix + name, command.callback))
    return "\n\n".join(parts)


def _render(name: str, callback: Callable[..., Any]) -> str:
    hints = get_type_hints(callback, include_extras=True)
    usage, options = ["pyhudi", name], []
    for parameter in inspect.signature(callback).parameters.values():
        kind, info = get_args(hints[parameter.name])[:2]
        if isinstance(info, ArgumentInfo):
            text = (info.metavar or parameter.name.upper()).strip("[]")
            usage.append(text if parameter.default is parameter.empty else f"[{text}]")
        elif isinstance(info, OptionInfo):
            # Typer keeps the first name of an annotated option as its default, until the command runs.
            first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
            declared = (*first, *(info.param_decls or ())) or (f"--{parameter.name.replace('_', '-')}",)
            options.append(
                f"| {', '.join(f'`{text}`' for text in declared)} | {_reported(info.help or '', kind, parameter.default)} |"
            )
    lines = [f"### {name}", "", inspect.getdoc(callback) or "", "", f"```text\n{' '.join(usage)}\n```"]
    if options:
        lines += ["", "| option | |", "| --- | --- |", *options]
    return "\n".join(lines)


def _reported(text: str, kind: Any, default: Any) -> str:
    told = text.replace("|", "\\|")
    if isinstance(kind, type) and issubclass(kind, Enum):
        told += " One of " + ", ".join(f"`{choice.value}`" for choice in kind) + "."
    if not isinstance(default, bool) and default not in (None, ""):
        told += f" Default: `{default.value if isinstance(default, Enum) else default}`."
    return told
