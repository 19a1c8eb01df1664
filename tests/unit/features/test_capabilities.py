"""A capability is one folder and one registration line; without both the package works and names what it lacks."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyhudi
from pyhudi import features

PACKAGE = Path(pyhudi.__file__).parent

# Part of the write path of its index: modules that route rows import it, and `load` would hide the types of that path.
WOVEN_IN = "consistent_hashing"

PROGRAM = """
import pyarrow as pa
import pyhudi as hp
from pyhudi import *

assert hp.__file__.startswith({root!r}), hp.__file__
table = hp.Table.create("memory://lacking/trips", record_key="id", ordering="ts")
table.upsert(pa.table({{"id": [1, 2], "ts": [1, 1]}}))
table.upsert(pa.table({{"id": [2, 3], "ts": [2, 2]}}))
assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3]
try:
    {call}
except hp.Unsupported as error:
    print(error)
"""

CALLS = {
    "blob_reader": "table.read_blobs([None])",
    "bootstrap": 'hp.bootstrap("/nowhere", "memory://lacking/made")',
    "catalogs": "hp.Catalog()",
    "commit_callbacks": 'table.upsert(pa.table({"id": [1], "ts": [3]}), options={"hoodie.write.commit.callback.on": True})',
    "hbase_index": 'table.upsert(pa.table({"id": [1], "ts": [3]}), options={"hoodie.index.type": "HBASE", '
    '"hoodie.index.hbase.table": "keys", "pyhudi.index.hbase.thrift.uris": "thrift://127.0.0.1:1"})',
    "ingestion": "hp.Ingest({})",
    "metrics": 'table.upsert(pa.table({"id": [1], "ts": [3]}), options={"hoodie.metrics.on": True})',
    "procedures": "hp.sql(\"CALL show_commits(table => 'memory://lacking/trips')\")",
    "recovery": 'hp.restore_properties("memory://lacking/trips")',
    "report": "table.plot",
    "validators": 'table.upsert(pa.table({"id": [1], "ts": [3]}), options={"hoodie.precommit.validators": "x"})',
    "vector_search": 'table.search("v", [1.0])',
}


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.sample(1)
def test_removing_a_folder_and_its_line_removes_the_capability(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "pyhudi"
    # With the compiled modules, which hold for a copy too: to compile them anew takes seconds.
    shutil.copytree(PACKAGE, copy)
    shutil.rmtree(copy / "features" / name)
    lines = (copy / "features" / "__init__.py").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line != f'    "{name}",\n']
    assert len(kept) == len(lines) - 1
    (copy / "features" / "__init__.py").write_text("".join(kept), "utf-8")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + PROGRAM.format(root=str(tmp_path), call=CALLS[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"needs the capability {name}" in done.stdout


def test_each_folder_has_its_line_and_each_line_its_folder() -> None:
    folders = {path.parent.name for path in (PACKAGE / "features").glob("*/__init__.py")}
    assert folders == set(features.CAPABILITIES)
    assert {*CALLS, WOVEN_IN} == folders


def test_capabilities_are_reached_through_their_registration_points() -> None:
    reached = []
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).parts
        own = inside[1] if inside[0] == "features" and len(inside) > 2 else None
        text = path.read_text("utf-8")
        if set(re.findall(r"from pyhudi\.features\.(\w+)", text)) <= {own, WOVEN_IN}:
            continue
        tree = ast.parse(text)
        typing_only = {
            id(child)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in typing_only:
                found = re.match(r"pyhudi\.features\.(\w+)", node.module or "")
                if found and found[1] not in (own, WOVEN_IN):
                    reached.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.module}")
    assert not reached


def test_exported_names_are_defined_by_their_modules() -> None:
    exporting = []
    for name in features.CAPABILITIES:
        point = features.load(name, "the test")
        exports = getattr(point, "_EXPORTS", None)
        if exports is None:
            continue
        exporting.append(name)
        for exported, module in exports.items():  # read as text: some modules need PySpark
            tree = ast.parse((PACKAGE / "features" / name / f"{module}.py").read_text("utf-8"))
            defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
            defined |= {
                target.id
                for node in tree.body
                for target in (getattr(node, "targets", None) or [getattr(node, "target", None)])
                if isinstance(target, ast.Name)
            }
            assert exported in defined, f"{name}: {module}.py defines no {exported}"
        with pytest.raises(AttributeError, match="no attribute"):
            getattr(point, "other" + "_name")
    assert set(features.CAPABILITIES) - set(exporting) == {"consistent_hashing", "procedures"}


@pytest.mark.full
def test_attributes_taken_of_a_capability_are_exported() -> None:
    """A type checker does not see these attributes: `load` returns a module of any kind."""
    taken = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call)):
                continue
            call = node.value
            if ast.unparse(call.func) in ("features.load", "features.find") and isinstance(call.args[0], ast.Constant):
                name = str(call.args[0].value)
                exports = getattr(features.load(name, "the test"), "_EXPORTS", None)
                assert exports is None or node.attr in exports, f"{path}:{node.lineno}: {name} exports no {node.attr}"
                taken.append(node.attr)
    assert len(taken) > 5
