"""Optional requirements of tests (Java, Apache Hudi), and what a test does without them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.tiers import TIER, Tier

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


KINDS = ("spark", "interop", "servers")
"""What PYHUDI_REQUIRE can name."""


def unavailable(kind: str, reason: str) -> NoReturn:
    """Skip the test, or fail it if PYHUDI_REQUIRE (for example `spark,interop`) names `kind`."""
    if kind in os.environ.get("PYHUDI_REQUIRE", "").split(","):
        pytest.fail(f"{kind}: {reason}")
    pytest.skip(f"{kind}: {reason}")


def is_unavailable(reason: str) -> bool:
    """Whether this is the reason of a test that `unavailable` skipped."""
    return reason.split(": ", 1)[0] in KINDS


# Whether every combination and more seeds are run (`make test-wide`).
WIDE = TIER is Tier.WIDE

# A JVM of the tests runs many small things once: the second compiler and parallel collectors cost more than they bring, and so
# does the proof that the classes of Spark's and Hudi's own jars are well formed.
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


@cache
def java_home(least: int, most: int) -> Path | None:
    """The home of a Java of major version `least` to `most`: that of JAVA_HOME, that on PATH, else the oldest installed."""
    on_path = shutil.which("java")
    named = os.environ.get("JAVA_HOME")
    candidates = [Path(named)] if named else []
    candidates += [Path(on_path).resolve().parents[1]] if on_path else []
    for home in candidates:
        if least <= _major_version(home) <= most:
            return home
    installed = sorted((_major_version(home), home) for home in Path("/usr/lib/jvm").glob("*") if not home.is_symlink())
    return next((home for version, home in installed if least <= version <= most), None)


@cache
def _major_version(home: Path) -> int:
    """The major version of the Java in `home`; 0 where there is none that runs."""
    try:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=600, check=False)
    except OSError:
        return 0
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else 0
