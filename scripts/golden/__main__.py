"""Recreate the golden tables: `python -m scripts.golden [case ...]`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.golden.maker import Case, Maker, store
from scripts.golden.version_9 import CASES
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.golden_tables import ROOT, case_folder, golden_cases, load_case


def main(arguments: Sequence[str]) -> int:
    chosen = [case for case in CASES if not arguments or case.name in arguments]
    unknown = set(arguments) - {case.name for case in CASES}
    if unknown:
        print(f"no such case: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    failed = 0
    for release in sorted({case.release for case in chosen}):
        with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
            hudi = ApacheHudi(Path(scratch) / "hudi", Path(scratch) / "hudi.log", release)
            try:
                for case in (case for case in chosen if case.release == release):
                    try:
                        _make(case, hudi, Path(scratch))
                    except HudiFailure as failure:
                        failed += 1
                        print(f"{case.name}: {failure}", file=sys.stderr, flush=True)
            finally:
                hudi.close()
    (ROOT / "README.md").write_text(_readme(), encoding="utf-8")
    return 1 if failed else 0


def _make(case: Case, hudi: ApacheHudi, scratch: Path) -> None:
    started = time.monotonic()
    maker = Maker(hudi, scratch / case.name)
    try:
        case.make(maker)
    finally:
        maker.forget_configuration()
    folder = ROOT / f"hudi-{case.release}" / case.name
    if folder.exists():
        shutil.rmtree(folder)
    size_bytes = store(case, maker, folder)
    print(f"{case.name:32} {len(maker.queries):2} queries {size_bytes:8} bytes {time.monotonic() - started:5.1f} s", flush=True)


def _readme() -> str:
    lines = [
        "# Tables that Apache Hudi wrote",
        "",
        "Written by `make golden` (steps: scripts/golden/cases.py) with Apache Hudi, the release that the",
        "folder names, on Spark 3.5, and read by it: `expected.zip` holds the rows of each query in `case.json`. Tests open them",
        "through `tests/support/golden_tables.py`. Paths inside plans and metadata are those of the machine that wrote them.",
        "Do not edit; recreate it with `make golden`.",
        "",
        "| case | release | shows | traits | queries |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in golden_cases():
        case = load_case(name)
        queries = ", ".join(query.name for query in case.queries)
        release = case_folder(name).parent.name.removeprefix("hudi-")
        lines.append(f"| {name} | {release} | {case.shows} | {', '.join(case.traits)} | {queries} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
