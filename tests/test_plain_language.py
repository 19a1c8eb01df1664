"""Docs, public docstrings and error messages use the standard words of docs/glossary.md, and pages wrap at 120 columns.

Each word below has a standard replacement. `python -m tests.test_plain_language` prints the findings of all folders.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "pyhudi"
COLUMNS = 120

WORDS = {
    r"sa(?:ys|id)": "report, record, define, state",
    r"t(?:ells?|old|elling)": "report, notify, infer, update",
    r"speaks? of|spoken of": "refer to, name",
    r"ask(?:s|ed|ing)?|wanted": "request, require, look up, call",
    r"questions?": "request, lookup, query",
    r"stands?|stood": "exists, is stored, remains, is in",
    r"lies|lay": "is stored, is located",
    r"gone": "missing, deleted, removed",
    r"anew": "again, re-create, rebuild",
    r"meanwhile": "concurrently, since",
    r"beside": "next to, alongside, concurrently with",
    r"who(?:ever|soever)": "the caller, a process that",
    r"whatever": "regardless of, any",
    r"(?:no|some)body": "no process, another writer, a user",
    r"t(?:ake|akes|aken|ook|aking) (?:it |them )?back": "roll back, undo",
    r"g(?:ive|ives|ave|iven) way": "back off",
    r"g(?:ive|ives|ave|iven) up": "fail, release, time out",
    r"lets? go": "release",
    r"pass(?:es|ed|ing)? over": "skip, prune, ignore",
    r"carr(?:y|ies|ying) out|carried": "execute, run, store",
    r"rings?": "consistent hashing metadata",
    r"mirrors?": "metadata table writer",
    r"doors?": "entry point",
    r"kinds": "types",
    r"moments?": "time, instant",
    r"visits?": "service run",
    r"(?<!\bin )turns?(?! (?:on|off|into|a|an|the)\b)": "exclusive write",
    r"real (?:Hudi|one|ones|1\.\d\S*)": "Hudi",
    r"verbs?": "operation, method, request",
}
ALLOWED = ("lies between", "hash ring", "around the ring", "stands out")
"""Phrases in which such a word has its ordinary meaning."""
ALLOWED_NAMES = {"tell", "visit"}
"""Names of other interfaces: of file objects and of `ast.NodeVisitor`."""
DEFINITION = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)
NAME_WORDS = re.compile(r"\b(?:real ones?|hudis|goes on|go on|of either|judged?|strangers?|newcomers|lays?|deaths?)\b")
"""Further words that only this repository used in names of tests and their helpers."""


PRIVATE = re.compile("|".join(rf"(?P<w{number}>\b(?:{word})\b)" for number, word in enumerate(WORDS)), re.IGNORECASE)


def findings_in(text: str) -> Iterator[str]:
    """The private words of a text, each with its replacement."""
    for phrase in ALLOWED:
        text = text.replace(phrase, " ")
    for match in PRIVATE.finditer(text):
        number = int((match.lastgroup or "w0")[1:])
        yield f"{match[0]!r} (use: {list(WORDS.values())[number]})"


def prose_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Number and text of the lines of a page outside of code blocks, without inline code, link targets and HTML comments."""
    is_code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|^::: .*", " ", line)


def pages() -> list[Path]:
    """Every page that users read."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(found)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_page_uses_standard_words(page: Path) -> None:
    found = [f"{page.name}:{number}: {finding}" for number, line in prose_lines(page) for finding in findings_in(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_page_wraps_outside_tables_and_code(page: Path) -> None:
    numbers = {number for number, line in prose_lines(page) if not line.lstrip().startswith("|")}
    lines = page.read_text("utf-8").splitlines()
    wide = [f"{page.name}:{number}: {len(lines[number - 1])} columns" for number in sorted(numbers) if is_wide(lines[number - 1])]
    assert not wide, "\n".join(wide)


def is_wide(line: str) -> bool:
    """Whether a line could be wrapped: pictures and headings cannot."""
    return len(line) > COLUMNS and not line.startswith(("![", "#"))


def test_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 120
    assert [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS] == []


def texts(module: Path) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of a module and its public definitions, and of the string literals of `shown_values`."""
    tree = ast.parse(module.read_text("utf-8"))
    yield from public_docstrings(tree)
    for value in shown_values(tree):
        for part in ast.walk(value):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, part.value


def shown_values(tree: ast.Module) -> Iterator[ast.expr]:
    """What users see of a module: exceptions that it raises, and the help of commands (calls of typer.Option and Argument)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node.exc
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("Option", "Argument"):
            yield node


def public_docstrings(node: ast.Module | ast.ClassDef) -> Iterator[tuple[int, str]]:
    """Docstrings of a module or class, and of its public classes, functions and methods."""
    text = ast.get_docstring(node)
    if text:
        yield (1 if isinstance(node, ast.Module) else node.lineno), text
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_docstrings(child)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            text = ast.get_docstring(child)
            if text:
                yield child.lineno, text


def folders() -> list[str]:
    """The folders of src/pyhudi, and `.` for the modules directly below it."""
    return [".", *sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())]


def findings_of_folder(folder: str) -> list[str]:
    """The private words of the modules of a folder, with path and line; names of arguments and code are left out."""
    modules = PACKAGE.glob("*.py") if folder == "." else (PACKAGE / folder).rglob("*.py")
    found = []
    for module in sorted(modules):
        for line, text in texts(module):
            plain = re.sub(r"`[^`]*`|^ +\w+: ", " ", text, flags=re.MULTILINE)
            found += [f"{module.relative_to(ROOT)}:{line}: {finding}" for finding in findings_in(plain)]
    return found


@pytest.mark.parametrize("folder", folders())
def test_folder_uses_standard_words(folder: str) -> None:
    found = findings_of_folder(folder)
    assert not found, f"{len(found)} in {folder}\n" + "\n".join(found)


def defined_names(folder: str) -> Iterator[tuple[str, str]]:
    """Place and name of each class and function below a folder, the words of the name separated by blanks."""
    for module in sorted((ROOT / folder).rglob("*.py")):
        for name in dict.fromkeys(DEFINITION.findall(module.read_text("utf-8"))):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")).lower()
            if name not in ALLOWED_NAMES:
                yield f"{module.relative_to(ROOT)}: {name}", words


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "scripts"])
def test_names_use_standard_words(folder: str) -> None:
    found = [place for place, words in defined_names(folder) if NAME_WORDS.search(words) or any(findings_in(words))]
    assert not found, "\n".join(found)


if __name__ == "__main__":
    for name in folders():
        listed = findings_of_folder(name)
        print(f"{name}: {len(listed)}", Counter(re.findall(r"'(.*?)' \(use", "\n".join(listed))).most_common(8))
