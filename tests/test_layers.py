"""Imports point down: the architecture as a test.

Reads every import of the package from its syntax tree, those inside functions and under TYPE_CHECKING too, and reports which of
them points to a higher layer, leaves a layer that is meant to be pure, brings Spark where Spark may not be, or closes a cycle.
Paths of a table are spelled and taken apart in one module.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pyhudi

SOURCES = Path(__file__).resolve().parents[1] / "src"
MOST_LINES_OF_CODE = 500
LONGER_MODULES = {"pyhudi/operations/write/group_commit.py": 600}
"""Modules with a limit of their own, which may only shrink."""

# The longest prefix decides. A module may import only from its own number or a lower one.
LAYERS = {
    "pyhudi.errors": 0,
    "pyhudi.table.cached_property": 0,
    "pyhudi.records.html_repr": 0,
    "pyhudi.options.plugins": 0,
    "pyhudi.options": 1,
    "pyhudi.options.scope": 6,
    "pyhudi.format": 1,
    "pyhudi.records": 1,
    "pyhudi.storage": 2,
    "pyhudi.table": 3,
    "pyhudi.planning": 4,
    "pyhudi.tasks": 5,
    "pyhudi.operations": 6,
    "pyhudi.engines": 7,
    "pyhudi.api": 8,
    "pyhudi.cli": 8,
    "pyhudi.sql_engine": 8,
    # The metadata table: values, reader, plans, tasks, writer.
    "pyhudi.metadata_table": 6,
    "pyhudi.metadata_table.codecs": 1,
    "pyhudi.metadata_table.metadata_keys": 1,
    "pyhudi.metadata_table.reader": 3,
    "pyhudi.metadata_table.metadata_records": 4,
    "pyhudi.metadata_table.file_group_merge": 5,
    "pyhudi.metadata_table.file_tasks": 5,
    "pyhudi.metadata_table.index_tasks": 5,
    # Optional capabilities: a module of a feature is in the layer of what it does.  `features.load` finds them, from any layer.
    "pyhudi.features": 0,
    "pyhudi.features.bootstrap.bootstrap_table": 8,
    "pyhudi.features.catalogs": 8,
    "pyhudi.features.ingestion": 8,
    "pyhudi.features.procedures": 8,
    "pyhudi.features.recovery.restore_table_properties": 8,
    "pyhudi.features.report": 8,
    "pyhudi.features.commit_callbacks": 6,
    "pyhudi.features.metrics": 6,
    "pyhudi.features.validators": 8,
    "pyhudi.features.blob_reader": 3,
    "pyhudi.features.vector_search": 8,
    "pyhudi.features.vector_search.nearest": 1,
    "pyhudi.features.bootstrap.plan_bootstrap": 4,
    "pyhudi.features.bootstrap.bootstrap_tasks": 5,
    "pyhudi.features.bootstrap.bootstrap_operation": 6,
    "pyhudi.features.consistent_hashing.hashing_metadata": 1,
    "pyhudi.features.consistent_hashing.hashing_store": 3,
    "pyhudi.features.consistent_hashing.hashing_routing": 4,
    "pyhudi.features.consistent_hashing.plan_resizes": 4,
    "pyhudi.features.consistent_hashing": 6,
    "pyhudi.features.hbase_index.hbase_client": 5,
    "pyhudi.features.hbase_index.hbase_tasks": 5,
    "pyhudi.features.hbase_index.hbase_commits": 6,
    "pyhudi.features.hbase_index.spark_lookup": 7,
    "pyhudi.features.recovery.infer_properties": 4,
    "pyhudi.features.recovery.infer_timeline": 4,
    "pyhudi.features.recovery.infer_keys": 5,
    "pyhudi.features.recovery.inspect_files": 5,
    "pyhudi.features.recovery.rebuild_timeline": 6,
    "pyhudi.features.recovery.restore_lost_properties": 6,
    "pyspark_pyhudi": 9,
}
# Modules directly below the package (spark.py, testing.py) and the package itself are the public API.
FACE = 8

# The one arrow across such a line: a Parquet block's rows come in the types of its file and are brought to the block's schema.
CROSSING = ("pyhudi.format.log.data_blocks", "pyhudi.records.schema_cast")

# What a layer may not import although the numbers would let it, and why.
SEPARATED = (
    ("pyhudi.format", "pyhudi.records", "bytes know no rows"),
    ("pyhudi.metadata_table.codecs", "pyhudi.records", "bytes know no rows"),
    ("pyhudi.format", "pyhudi.options.supported", "bytes and rows parse no options"),
    ("pyhudi.records", "pyhudi.options.supported", "bytes and rows parse no options"),
    ("pyhudi.table.timeline", "pyhudi.table", "the table is read with the help of its timeline, not the other way round"),
    ("pyhudi.planning", "pyhudi.storage", "a plan is a function of frozen state"),
)

# Modules from outside that only some of ours may import.
PURE = (
    "pyhudi.format",
    "pyhudi.records",
    "pyhudi.planning",
    "pyhudi.metadata_table.codecs",
    "pyhudi.metadata_table.metadata_records",
    "pyhudi.features.bootstrap.plan_bootstrap",
    "pyhudi.features.consistent_hashing.hashing_metadata",
    "pyhudi.features.consistent_hashing.hashing_routing",
    "pyhudi.features.consistent_hashing.plan_resizes",
    "pyhudi.features.recovery.infer_properties",
    "pyhudi.features.recovery.infer_timeline",
)
WORLD = (
    "os",
    "pathlib",
    "tempfile",
    "shutil",
    "glob",
    "socket",
    "subprocess",
    "time",
    "random",
    "uuid",
    "secrets",
    "fsspec",
)
CONFINED = (
    (
        "pyspark",
        ("pyhudi.engines.spark", "pyhudi.features.hbase_index.spark_lookup", "pyspark_pyhudi"),
        "Spark is one engine, and everything else runs without it",
    ),
    ("obstore", ("pyhudi.storage",), "storage is the only door to the outside"),
    ("pyarrow.fs", ("pyhudi.storage",), "storage is the only door to the outside"),
    ("fsspec", ("pyhudi.storage",), "storage is the only door to the outside"),
    ("sqlglot", ("pyhudi.sql_engine",), "one package knows SQL"),
    ("duckdb", ("pyhudi.sql_engine", "pyhudi.api.scan"), "DuckDB is the engine of SQL; a scan names the type of its relations"),
)


@dataclass(frozen=True, slots=True)
class Import:
    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules(root: Path) -> dict[str, Path]:
    """The modules below `root` by dotted name; a package by the name of its folder."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, source: str, known: frozenset[str], is_package: bool) -> Iterator[Import]:
    """Every import statement of a module, also those inside functions.

    `from package import name` counts as the module `package.name` where there is such a module, else as `package`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".")
                package = package[: len(package) - node.level + (1 if is_package else 0)]
                base = ".".join([*package, base] if base else package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(name, inner if inner in known else base, node.lineno)


def below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def layer(module: str) -> int:
    """The layer of one of our modules; a package that the table does not name is a mistake."""
    best = max((prefix for prefix in LAYERS if below(module, prefix)), key=len, default=None)
    if best is not None:
        return LAYERS[best]
    if module == "pyhudi" or module.count(".") == 1:
        return FACE
    raise AssertionError(f"{module} is in no layer: name its package in tests/test_layers.py")


def ours(module: str) -> bool:
    return module.split(".")[0] in {"pyhudi", "pyspark_pyhudi"}


def violation(found: Import) -> str | None:
    """Why this import is not allowed, or None."""
    importer, imported = found.importer, found.imported
    if ours(imported):
        if layer(imported) > layer(importer):
            return f"{found}: layer {layer(importer)} may not import layer {layer(imported)}"
        for here, there, reason in SEPARATED:
            if (
                below(importer, here)
                and below(imported, there)
                and not below(imported, here)
                and (importer, imported) != CROSSING
            ):
                return f"{found}: {reason}"
        return None
    if any(below(importer, pure) for pure in PURE) and imported.split(".")[0] in WORLD:
        return f"{found}: this layer is pure"
    for outside, allowed, reason in CONFINED:
        if below(imported, outside) and not any(below(importer, prefix) for prefix in allowed):
            return f"{found}: {reason}"
    return None


def cycles(edges: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """The strongly connected groups of more than one module, or of one that imports itself (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = []
            while True:
                member = stack.pop()
                group.append(member)
                if member == node:
                    break
            if len(group) > 1 or node in edges.get(node, ()):
                found.append(tuple(sorted(group)))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


@pytest.fixture(scope="module")
def all_imports() -> tuple[Import, ...]:
    found = modules(SOURCES)
    known = frozenset(found)
    assert "pyhudi.errors" in known, "the sources were not found"
    return tuple(
        one
        for name, path in found.items()
        for one in imports_of(name, path.read_text(encoding="utf-8"), known, path.name == "__init__.py")
    )


def test_imports_point_down(all_imports: tuple[Import, ...]) -> None:
    complaints = [text for one in all_imports if (text := violation(one))]
    assert not complaints, "\n".join(complaints)


def test_no_cycles(all_imports: tuple[Import, ...]) -> None:
    edges: dict[str, set[str]] = {}
    for one in all_imports:
        # A package that gathers names of its own modules is no cycle: its modules import one another, not the package.
        if ours(one.imported):
            edges.setdefault(one.importer, set()).add(one.imported)
    groups = cycles(edges)
    assert not groups, "\n".join("import cycle: " + ", ".join(group) for group in groups)


@pytest.mark.parametrize(
    ("importer", "imported", "word"),
    [
        ("pyhudi.format.names", "pyhudi.storage.base", "layer"),
        ("pyhudi.storage.base", "pyhudi.table.timeline", "layer"),
        ("pyhudi.format.avro.schema", "pyhudi.records.keys.key_spec", "rows"),
        ("pyhudi.format.log.cdc_blocks", "pyhudi.records.schema_cast", "rows"),
        ("pyhudi.records.keys.key_spec", "pyhudi.options.supported", "option"),
        ("pyhudi.table.timeline.timeline_store", "pyhudi.table.table_config", "timeline"),
        ("pyhudi.planning.record_placement", "pyhudi.storage.base", "frozen"),
        ("pyhudi.records.keys.key_spec", "time", "pure"),
        ("pyhudi.engines.arrow.engine", "pyspark.sql", "Spark"),
        ("pyhudi.spark", "pyspark.sql", "Spark"),
        ("pyhudi.tasks.tag_location", "pyarrow.fs", "door"),
    ],
)
def test_forbidden_imports_are_seen(importer: str, imported: str, word: str) -> None:
    text = violation(Import(importer, imported, 1))
    assert text is not None and word in text


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("pyhudi.records.type_normalization", "pyhudi.format.avro_to_arrow"),
        CROSSING,
        ("pyhudi.table.snapshot", "pyhudi.table.timeline"),
        ("pyhudi.engines.spark.data_source", "pyspark.sql.datasource"),
        ("pyspark_pyhudi", "pyhudi.engines.spark.data_source"),
        ("pyhudi.spark", "pyhudi.engines.spark"),
        ("pyhudi.api.table", "pyhudi.operations.write.write_rows"),
    ],
)
def test_legal_imports_pass(importer: str, imported: str) -> None:
    assert violation(Import(importer, imported, 1)) is None


def test_imports_inside_functions_and_type_checking_are_found() -> None:
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from pyhudi.api import table as api
def late():
    import pyspark.sql as s
    from . import sibling
    from ..storage.base import Storage
"""
    known = frozenset({"pyhudi", "pyhudi.api.table", "pyhudi.planning", "pyhudi.planning.sibling", "pyhudi.storage.base"})
    found = [one.imported for one in imports_of("pyhudi.planning.record_placement", source, known, is_package=False)]
    assert sorted(found) == ["pyhudi.api.table", "pyhudi.planning.sibling", "pyhudi.storage.base", "pyspark.sql", "typing"]


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [("a", "b", "c")]
    assert cycles({"a": {"b"}, "b": {"c"}}) == []


def test_the_package_has_few_entries_and_none_named_as_a_public_function_or_class() -> None:
    """Importing `pyhudi.sql` would replace the function `pyhudi.sql` in the package."""
    entries = {one.name for one in pkgutil.iter_modules([str(SOURCES / "pyhudi")])}
    assert len(entries) <= 18, sorted(entries)
    assert not entries & set(pyhudi.__all__)


def lines_of_code(text: str) -> int:
    """Lines of a module without blank lines, comments and docstrings."""
    documentation = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and number not in documentation for number, line in lines)


def test_modules_have_at_most_500_lines_of_code() -> None:
    counts = {path.relative_to(SOURCES).as_posix(): lines_of_code(path.read_text("utf-8")) for path in SOURCES.rglob("*.py")}
    assert {path: count for path, count in counts.items() if count > LONGER_MODULES.get(path, MOST_LINES_OF_CODE)} == {}


def test_lines_of_code_are_counted_without_documentation() -> None:
    assert lines_of_code('"""Two lines\nof documentation."""\n\n# A comment.\nvalue = """a\nb"""\n') == 2


def test_a_new_package_must_be_placed() -> None:
    with pytest.raises(AssertionError, match="no layer"):
        layer("pyhudi.somewhere.module")


LAYOUT = "pyhudi/format/paths.py"

# Where a slash separates something else: parts of a URI, keys of a store, ZooKeeper's nodes, a file that the caller names.
OTHER_SLASHES = (
    "pyhudi/storage/uris.py",
    "pyhudi/storage/memory.py",
    "pyhudi/storage/locks/zookeeper.py",
    "pyhudi/features/procedures/repair_procedures.py",
)


def spelled(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that name something in `.hoodie`: no sentences and no docstrings."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in documentation:
            continue
        if re.search(r"(^|/)\.hoodie(/|_|$)", node.value) and not re.search(r"\s", node.value):
            yield node.lineno, node.value


def path_splits(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls that split at a slash."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            splits = node.func.attr in ("split", "rsplit", "partition", "rpartition")
            if splits and isinstance(first, ast.Constant) and first.value == "/":
                yield node.lineno, ast.unparse(node)


def test_table_paths_are_built_and_parsed_in_one_module_only() -> None:
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        name = file.relative_to(SOURCES).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if name != LAYOUT:
            found += [f"{name}:{line} {text}" for line, text in spelled(tree)]
        if name not in (LAYOUT, *OTHER_SLASHES):
            found += [f"{name}:{line} {text}" for line, text in path_splits(tree)]
    assert not found, "use pyhudi.format.paths:\n" + "\n".join(found)


def test_path_check_finds_path_literals() -> None:
    tree = ast.parse(
        '"""In `.hoodie/x`."""\na = f".hoodie/{b}"\nc = "remove .hoodie/metadata by hand"\nd = p.rsplit("/", 1)[-1]\n'
    )
    assert list(spelled(tree)) == [(2, ".hoodie/")]
    assert list(path_splits(tree)) == [(4, "p.rsplit('/', 1)")]


VERSIONS = "pyhudi.format.table_versions"
"""What a table version has is asked there."""

STEPS = "pyhudi.operations.admin.versions"
"""The ways between two versions name the versions that they lead to."""


def compared_versions(tree: ast.AST) -> list[str]:
    """Comparisons of a table version with a number, or with one version by its name."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            numbered = any(isinstance(side, ast.Constant) and side.value in range(6, 100) for side in sides)
            named = any(re.fullmatch(r"TableVersion\.[A-Z]+", ast.unparse(side)) for side in sides)
            if named or (numbered and any("version" in ast.unparse(side) for side in sides)):
                found.append(ast.unparse(node))
    return found


def test_table_versions_are_compared_in_one_module_only() -> None:
    """A later version is a row of one module: no other module compares versions with numbers."""
    for path in sorted(SOURCES.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        if not module.startswith((VERSIONS, STEPS)):
            assert not compared_versions(ast.parse(path.read_text("utf-8"))), module
    assert compared_versions(ast.parse("config.version >= 8 or version is TableVersion.NINE")) == [
        "config.version >= 8",
        "version is TableVersion.NINE",
    ]
