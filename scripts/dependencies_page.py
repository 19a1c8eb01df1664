"""Write docs/reference/dependencies.md: the dependencies of PyHudi and of each extra, with their licences.

`python -m scripts.dependencies_page` writes the page; tests/test_docs.py fails when it is out of date.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "dependencies.md"

_HEAD = """# Dependencies and licences

PyHudi is under the Apache License 2.0. It depends on the packages below; an extra (`pip install "pyhudi[sql]"`) adds
its own. Names and bounds come from `pyproject.toml`, licences from the metadata of the packages. This page lists direct
dependencies; `pip-licenses` lists those of an environment.

| extra | package | licence |
| --- | --- | --- |
"""

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?:\[[^\]]*\])?(?P<bounds>[^;]*)")
# A licence in the metadata's classifiers, by its last part, to its SPDX name.
_CLASSIFIERS = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def licence(package: str) -> str:
    """The licence that an installed package declares, as an SPDX expression where it has one.

    Raises:
        LookupError: The package declares no licence that this script knows.
    """
    metadata = importlib.metadata.metadata(package).json
    if expression := metadata.get("license_expression"):
        return str(expression)
    for classifier in metadata.get("classifier", []):
        if classifier.startswith("License ::") and classifier.split(" :: ")[-1] in _CLASSIFIERS:
            return _CLASSIFIERS[classifier.split(" :: ")[-1]]
    text = str(metadata.get("license", "")).strip()
    if not text or "\n" in text:
        raise LookupError(f"the metadata of {package} names no licence; add its classifier to {Path(__file__).name}")
    return text.replace("Apache 2.0", "Apache-2.0")


def render() -> str:
    """The page's text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = {"": project["dependencies"], **project["optional-dependencies"]}
    rows = []
    for extra, requirements in extras.items():
        for requirement in requirements:
            match = _REQUIREMENT.match(requirement)
            assert match is not None, requirement
            name = match["name"]
            only = " (Windows)" if "win32" in requirement else ""
            rows.append(f"| {f'`{extra}`' if extra else 'always'} | `{name}{match['bounds'].strip()}`{only} | {licence(name)} |")
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
