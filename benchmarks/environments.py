"""Virtual environments and jars of the peers: made when missing, kept between runs.

Each peer has an environment of its own, `.venv-bench-<name>` in the checkout, with the versions that `requirements/<name>.txt`
pins. A file inside holds the pins it was made with, so a changed pin makes it anew. PyHudi and the limits run in the
interpreter that runs the benchmark; the real Apache Hudi in `.venv-hudi`, which `make setup-hudi` makes together with its jar.
Downloads go through the ordinary clients (pip or uv; Maven, or the Ivy inside Spark), so their mirrors and proxies apply. What
cannot be had raises `EnvironmentMissing` with the reason: the run goes on without that peer.
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
"""Environment -> release of Apache Hudi: one interpreter for all."""
DELTA_ARTIFACTS = ("io.delta:delta-spark_2.13:4.0.1", "io.delta:delta-storage:4.0.1")
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"

# The oldest Java that both Spark 3.5 with Hudi and Spark 4 run on.
JAVA_VERSION = 17


class EnvironmentMissing(Exception):
    """An interpreter, package, jar or Java that a peer needs is not here and could not be made; the text says which and why."""


def prepare_python(name: str) -> Path:
    """The interpreter of the environment `name`: `pyhudi`, one of HUDI_RELEASES, or one that `requirements/` has a file for.
    Raises EnvironmentMissing.
    """
    if name == "pyhudi":
        return Path(sys.executable)
    if name in HUDI_RELEASES:
        return _hudi(HUDI_RELEASES[name])[0]
    return _pinned(name)


def prepare_jars(name: str) -> tuple[Path, ...]:
    """The jars for the class path of the environment `name`, fetched when missing; empty for one without Spark. Raises
    EnvironmentMissing.
    """
    if name in HUDI_RELEASES:
        return (_hudi(HUDI_RELEASES[name])[1],)
    if name == "delta-spark":
        return _delta_jars(_pinned(name))
    return ()


def java_home() -> Path:
    """The folder of a Java that Spark can use: JAVA_HOME, the one on PATH, or the newest under /usr/lib/jvm. Raises
    EnvironmentMissing.
    """
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
    """Debian ships Python without the venv module; uv, which `scripts/setup.sh` falls back to as well, needs it not."""
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
    jars = tuple(folder / _jar_name(artifact) for artifact in DELTA_ARTIFACTS)
    if all(jar.exists() for jar in jars):
        return jars
    fetching = folder.with_name("jars-fetching")
    shutil.rmtree(fetching, ignore_errors=True)
    fetching.mkdir(parents=True)
    reasons = []
    for fetch in (_fetch_with_maven, _fetch_with_spark):
        try:
            fetch(DELTA_ARTIFACTS, fetching, python)
        except EnvironmentMissing as error:
            reasons.append(str(error))
            continue
        shutil.rmtree(folder, ignore_errors=True)
        fetching.rename(folder)
        return jars
    raise EnvironmentMissing("; ".join(reasons))


def _fetch_with_maven(artifacts: Sequence[str], folder: Path, _python: Path) -> None:
    for artifact in artifacts:
        _run(["mvn", "-q", "-B", MAVEN_COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], f"{artifact} with Maven")


def _fetch_with_spark(artifacts: Sequence[str], folder: Path, python: Path) -> None:
    """Spark resolves `--packages` before it runs the program, here an empty one; the jars are then in the folder of its Ivy."""
    ivy = folder / "ivy"
    program = folder / "nothing.py"
    program.touch()
    submit = [str(python.parent / "spark-submit"), "--master", "local[1]", "--driver-memory", "512m"]
    submit += ["--packages", ",".join(artifacts), "--conf", f"spark.jars.ivy={ivy}", str(program)]
    _run(submit, f"{' and '.join(artifacts)} with Spark", PYSPARK_PYTHON=str(python), JAVA_HOME=str(java_home()))
    for artifact in artifacts:
        group, _, _ = artifact.split(":")
        fetched = ivy / "jars" / f"{group}_{_jar_name(artifact)}"
        if not fetched.exists():
            raise EnvironmentMissing(f"Spark resolved {artifact} but left no {fetched.name}")
        fetched.rename(folder / _jar_name(artifact))
    shutil.rmtree(ivy)
    program.unlink()


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
