"""Notebooks of the documents: their code runs, what it shows is kept in them, and pages show both.

    python -m scripts.notebook        runs each notebook below docs anew and stores what its cells show

A page shows a notebook where it says `<!-- notebook: NAME.ipynb -->`; the file lies beside it.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PLACE = re.compile(r"<!-- notebook: (\S+) -->")


def notebooks() -> list[Path]:
    """All of them."""
    return sorted((ROOT / "docs").rglob("*.ipynb"))


def shown_by(notebook: dict[str, Any], folder: Path) -> list[dict[str, str] | None]:
    """What each cell of code shows, by media type, run in order in one namespace and a folder; None where that is nothing."""
    names: dict[str, Any] = {}
    found: list[dict[str, str] | None] = []
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                found.append(_shown(_run("".join(cell["source"]), names), folder))
    return found


def rendered(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its text, its code, and what the cells show."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = {kind: "".join(text) for kind, text in output["data"].items()}
            parts.append(data["text/html"] if "text/html" in data else f"```text\n{data['text/plain']}\n```")
    return "\n\n".join(parts)


def with_outputs(notebook: dict[str, Any], shown: list[dict[str, str] | None]) -> dict[str, Any]:
    """The notebook with what its cells of code show."""
    cells, outputs = [], iter(shown)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            data = next(outputs)
            output = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
            cell = {**cell, "outputs": [] if data is None else [output]}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any]) -> object:
    """The value of the last expression of a cell, None where it ends otherwise."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<cell>", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def _shown(value: object, folder: Path) -> dict[str, str] | None:
    if value is None:
        return None
    shown = {"text/plain": repr(value)}
    html = getattr(value, "_repr_html_", None)
    if html is not None:
        shown["text/html"] = html()
    # Where it ran is nobody's concern.
    return {kind: text.replace(os.path.realpath(folder), "/data").replace(str(folder), "/data") for kind, text in shown.items()}


def main() -> None:
    """Run all notebooks anew."""
    for path in notebooks():
        notebook = json.loads(path.read_text())
        with tempfile.TemporaryDirectory() as folder:
            ran = with_outputs(notebook, shown_by(notebook, Path(folder)))
        path.write_text(json.dumps(ran, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
