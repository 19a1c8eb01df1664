"""The checks of wheel and source distribution detect missing and extra files."""

from __future__ import annotations

import importlib.metadata
import io
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pyhudi as hp
from scripts import dist_trial
from scripts.dist_contents import BESIDE, SOURCE, faults_of_source, faults_of_wheel, main, sources

NAME = f"pyhudi-{hp.__version__}"


def make_wheel(folder: Path, names: set[str]) -> Path:
    path = folder / f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name in names:
            wheel.writestr(name, "")
        wheel.writestr(f"{NAME}.dist-info/METADATA", f"Metadata-Version: 2.4\nName: pyhudi\nVersion: {hp.__version__}\n")
    return path


def make_source(folder: Path, names: set[str]) -> Path:
    path = folder / f"{NAME}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"{NAME}/{name}"), io.BytesIO())
    return path


def test_built_package_has_no_faults(tmp_path: Path) -> None:
    make_wheel(tmp_path, sources())
    make_source(tmp_path, {f"src/{name}" for name in sources()} | BESIDE)
    assert main(tmp_path) == 0
    assert (SOURCE / "pyhudi" / "py.typed").exists()


def test_missing_and_unexpected_files_are_named(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, (sources() - {"pyhudi/api/table.py", "pyhudi/py.typed"}) | {"tests/support/rows.py"})
    assert [fault.split(":")[0] for fault in faults_of_wheel(wheel)] == [
        f"{wheel.name} lacks pyhudi/api/table.py",
        f"{wheel.name} lacks pyhudi/py.typed",
        f"{wheel.name} has an unexpected file",
        f"{wheel.name} has no py.typed",
    ]
    source = make_source(tmp_path, {f"src/{name}" for name in sources()} | BESIDE | {"tests/golden/README.md"})
    assert faults_of_source(source) == [f"{source.name} has an unexpected file: tests/golden/README.md"]
    assert main(tmp_path) == 5


def test_each_extra_has_an_installation_test() -> None:
    extras = importlib.metadata.metadata("pyhudi").get_all("Provides-Extra") or []
    assert set(dist_trial.TRIALS) == {"none", *extras}


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    assert project["version"] == hp.__version__
