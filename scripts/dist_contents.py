"""Whether what was built holds the package, all of it, and nothing else: `python scripts/dist_contents.py dist`.

The wheel has each file below src/ and its own metadata; the source distribution has what building that wheel takes.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
BESIDE = {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


def sources() -> set[str]:
    """The package's files, as paths below src/."""
    found = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE).as_posix() for path in found}


def faults_of_wheel(path: Path) -> list[str]:
    """What is wrong with a wheel, a sentence each."""
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        about = {name for name in names if ".dist-info/" in name}
        text = wheel.read(next(name for name in about if name.endswith("/METADATA"))).decode()
    faults = _differences(path.name, names - about, sources())
    if "pyhudi/py.typed" not in names:
        faults.append(f"{path.name} has no py.typed: type checkers would not look into the package")
    metadata = HeaderParser().parsestr(text)
    if not path.name.startswith(f"{metadata['Name']}-{metadata['Version']}-py3-none-any"):
        faults.append(f"{path.name} says of itself {metadata['Name']} {metadata['Version']}")
    return faults


def faults_of_source(path: Path) -> list[str]:
    """What is wrong with a source distribution, a sentence each."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    return _differences(path.name, names, {f"src/{name}" for name in sources()} | BESIDE)


def _differences(archive: str, found: set[str], wanted: set[str]) -> list[str]:
    missing = [f"{archive} lacks {name}" for name in sorted(wanted - found)]
    return missing + [f"{archive} has an unexpected file: {name}" for name in sorted(found - wanted)]


def main(folder: Path) -> int:
    """Print the faults of what a folder holds; how many there are."""
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    faults = [fault for path in wheels for fault in faults_of_wheel(path)]
    faults += [fault for path in archives for fault in faults_of_source(path)]
    if (len(wheels), len(archives)) != (1, 1):
        faults.append(f"{folder} has {len(wheels)} wheels and {len(archives)} source distributions, not one each")
    print(*faults or [f"{folder}: the wheel and the source distribution hold {len(sources())} files of the package"], sep="\n")
    return len(faults)


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]))))
