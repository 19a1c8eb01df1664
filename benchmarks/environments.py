"""Virtual environments and jars of the systems, created if absent and kept between runs.

Each peer has an environment `.venv-bench-<name>` with the versions of `requirements/<name>.txt`; a file inside stores the pins
it was made with. PyHudi and the limits run in the interpreter of the benchmark, Apache Hudi in `.venv-hudi` of
`make setup-hudi`. Downloads use the ordinary clients (pip or uv; Maven). `EnvironmentMissing` has the reason of a failure;
the run continues without that system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = Path(__file__).resolve().parent / "requirements"

HUDI_RELEASES = {"hudi": "1.0.2", "hudi-1.1": "1.1.1"}
"""Environment -> release of Apache Hudi, all with one interpreter."""
DELTA_ARTIFACTS = ("io.delta:delta-spark_2.13:4.0.1", "io.delta:delta-storage:4.0.1")
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"

# The oldest Java that both Spark 3.5 with Hudi and Spark 4 run on.
JAVA_VERSION = 17


class EnvironmentMissing(Exception):
    """An interpreter, package, jar or Java of a system is absent and could not be made."""


def prepare_python(name: str) -> Path:
    """The interpreter of `pyhudi`, of one of HUDI_RELEASES, or of a file in `requirements/`. Raises EnvironmentMissing."""
    if name == "pyhudi":
        return Path(sys.executable)
    if name in HUDI_RELEASES:
        return _hudi(HUDI_RELEASES[name])[0]
    return _pinned(name)


def prepare_jars(name: str) -> tuple[Path, ...]:
    """Jars for the class path of the environment; empty without Spark. Raises EnvironmentMissing."""
    if name in HUDI_RELEASES:
        return (_hudi(HUDI_RELEASES[name])[1],)
    if name == "delta-spark":
        return _delta_jars(_pinned(name))
    return ()


def java_home() -> Path:
    """A Java for Spark: JAVA_HOME, the one on PATH, or the newest under /usr/lib/jvm. Raises EnvironmentMissing."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parents[1])
    candidates += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    for home in candidates:
        if _java_version(home) >= JAVA_VERSION:
            return home
    raise EnvironmentMissing(f"no Java >= {JAVA_VERSION} found: install one, or run `make setup`")


def _hudi(release: str) -> tuple[Path, Path]:
    python, jar = ROOT / ".venv-hudi" / "bin" / "python", ROOT / ".hudi-jars" / f"hudi-spark3.5-bundle_2.12-{release}.jar"
    if not (python.exists() and jar.exists()):
        _run([str(ROOT / "scripts" / "setup.sh"), "hudi", release], f"Apache Hudi {release}")
    if not (python.exists() and jar.exists()):
        raise EnvironmentMissing(f"no Apache Hudi {release}: `scripts/setup.sh hudi {release}` could not make it")
    return python, jar


def _pinned(name: str) -> Path:
    requirements = REQUIREMENTS / f"{name}.txt"
    folder = ROOT / f".venv-bench-{name}"
    python = folder / "bin" / "python"
    made_with = folder / "made-with.txt"
    wanted = requirements.read_text()
    if python.exists() and made_with.exists() and made_with.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _make_venv(folder)
    if (folder / "bin" / "pip").exists():
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    else:
        install = [*_uv(), "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)]
    _run(install, f"the packages of {requirements.name}")
    made_with.write_text(wanted)
    return python


def _make_venv(folder: Path) -> None:
    """With the venv module, which Debian's Python lacks, or with uv."""
    try:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], f"the virtual environment {folder.name}")
    except EnvironmentMissing:
        _run(
            [*_uv(), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
            f"the virtual environment {folder.name}",
        )


def _uv() -> list[str]:
    ours = ROOT / ".venv-uv" / "bin" / "uv"
    found = shutil.which("uv") or (str(ours) if ours.exists() else None)
    if found is None:
        raise EnvironmentMissing("neither the venv module of Python nor uv is here")
    return [found]


def _delta_jars(python: Path) -> tuple[Path, ...]:
    folder = python.parents[1] / "jars"
    for artifact in DELTA_ARTIFACTS:
        if not (folder / _jar_name(artifact)).exists():
            _run(["mvn", "-q", "-B", MAVEN_COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], artifact)
    return tuple(folder / _jar_name(artifact) for artifact in DELTA_ARTIFACTS)


def _jar_name(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def _java_version(home: Path) -> int:
    """The major version of the Java in `home`; 0 when there is none. Before Java 9, versions read 1.8."""
    java = home / "bin" / "java"
    if not java.exists():
        return 0
    said = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def _run(command: Sequence[str], what: str, **environment: str) -> None:
    print(f"benchmarks: making {what}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EnvironmentMissing(f"could not make {what}: {error}") from error
    if done.returncode != 0:
        last_words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise EnvironmentMissing(f"could not make {what}: " + " | ".join(last_words))
