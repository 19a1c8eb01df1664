"""Resolves `Source:` lines of docstrings to a page of the repository or a public specification."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Specifications that everybody can read, and another docstring of the same module.
ELSEWHERE = re.compile(r"(Avro specification|WebHDFS REST API|ORC specification|parquet-format|Thrift|RoaringFormatSpec|as `)")


def sources() -> Iterator[tuple[str, str]]:
    """(where, one source): the text between `Source:` and the end of its sentence, split at semicolons."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in re.finditer(r"\bSource: (.+?)(?:\.(?=\s|$)|\n\n|$)", node.value, re.DOTALL):
                    for one in found[1].split(";"):
                        yield f"{file.relative_to(ROOT)}:{node.lineno}", " ".join(one.split())


def fault_of(source: str) -> str | None:
    """Why a source that names a page of ours does not lead there; None when it does."""
    page = re.match(r"docs/[\w./-]+\.md", source)
    if page is None or not (ROOT / page[0]).is_file():
        return f"there is no page {page[0] if page else source}"
    headings = re.findall(r"^#+ (.+)$", (ROOT / page[0]).read_text(encoding="utf-8"), re.MULTILINE)
    absent = [name for name in re.findall(r'"([^"]+)"', source) if name not in headings]
    return f"{page[0]} has no section {absent[0]!r}" if absent else None


def missing() -> list[str]:
    """The sources that name neither a page of ours nor a public specification."""
    return [f"{where}: {one}" for where, one in sources() if not one.startswith("docs/") and not ELSEWHERE.match(one)]
