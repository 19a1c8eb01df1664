"""`python -m benchmarks`: see README.md.

Exit status: 0 if every result was right, 1 if a system returned a wrong one or PyHudi failed, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.environments import ROOT, EnvironmentMissing
from benchmarks.runner import Chain, Results
from benchmarks.scenarios import BY_NAME, CHECK, PROFILES, SCENARIOS, Scenario
from benchmarks.systems import BY_NAME as SYSTEMS
from benchmarks.systems import System, running

PUBLISHED = ROOT / "benchmarks"
WORK = ROOT / "artifacts" / "bench"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.scenarios == ["curves"]:
        chosen.scenarios = [scenario.name for scenario in SCENARIOS if scenario.is_curve]
    unknown = [name for name in (*chosen.systems, *chosen.scenarios) if name not in SYSTEMS and name not in BY_NAME]
    if unknown:
        parser.error(f"no {', '.join(unknown)}; scenarios: {', '.join(BY_NAME)}; systems: {', '.join(SYSTEMS)}")
    # `kill` then also executes the `finally` clauses, which end the workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return COMMANDS[chosen.command](chosen)
    except (EnvironmentMissing, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def run(chosen: argparse.Namespace) -> int:
    """Measure the scenarios of a profile, or continue an earlier run of the same commit."""
    names = chosen.scenarios or [scenario.name for scenario in SCENARIOS if scenario.rounds[PROFILES.index(chosen.profile)]]
    deadline = time.monotonic() + 60 * chosen.minutes
    files = {curve: _results(chosen, curve) for curve in sorted({BY_NAME[name].is_curve for name in names})}
    for scenario in (BY_NAME[name] for name in names):
        systems = [SYSTEMS[name] for name in scenario.systems if not chosen.systems or name in chosen.systems]
        _measure(chosen, files[scenario.is_curve], scenario, systems, deadline)
    _write(chosen.output)
    measured = [one for results in files.values() for one in results.measurements.values()]
    return (
        1 if any(one.status == "wrong" or (one.status == "failed" and one.system.startswith("pyhudi")) for one in measured) else 0
    )


def check(chosen: argparse.Namespace) -> int:
    """Compare steps of the embedded engine with those of an earlier commit; fail if one became slower by a quarter."""
    base = chosen.base or Results(PUBLISHED / "results.jsonl").headers[0]["commit"].removesuffix("+")
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        archive = subprocess.run(["git", "archive", base, "src"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        before = replace(SYSTEMS["pyhudi"], name="before", title=f"PyHudi at {base}", source=f"{folder}/src")
        results = Results(Path(folder) / "check.jsonl")
        _measure(chosen, results, CHECK, [before, SYSTEMS["pyhudi"]], math.inf)
        verdicts = report.verdicts(list(results.measurements.values()))
    print(f"CPU seconds, medians of pairs; before: {base}", *verdicts, sep="\n")
    failed = [one for one in results.measurements.values() if one.status != "ok"]
    return 1 if failed or any(line.endswith("slower") for line in verdicts) else 0


def publish(chosen: argparse.Namespace) -> int:
    """Copy results into the repository, and write RESULTS.md, CURVES.md, the chart and the figures in the documentation."""
    for name in ("results.jsonl", "curves.jsonl"):
        if (chosen.output / name).exists():
            shutil.copy(chosen.output / name, PUBLISHED / name)
    _write(PUBLISHED)
    report.update_documents(Results(PUBLISHED / "results.jsonl"), ROOT)
    return 0


COMMANDS = {"run": run, "check": check, "publish": publish}


def _results(chosen: argparse.Namespace, is_curve: bool) -> Results:
    """The file of this run. Raises ValueError if it has results of another commit, unless they are to be replaced."""
    path = chosen.output / ("curves.jsonl" if is_curve else "results.jsonl")
    if chosen.again:
        path.unlink(missing_ok=True)
    results = Results(path)
    commit = machine.commit()
    other = {header["commit"] for header in results.headers} - {commit}
    if other and not chosen.mix:
        raise ValueError(f"{path} has results of commit {', '.join(sorted(other))}; --again replaces, --mix continues them")
    return results


def _measure(
    chosen: argparse.Namespace, results: Results, scenario: Scenario, systems: Sequence[System], deadline: float
) -> None:
    folder = WORK / "run"
    shutil.rmtree(folder, ignore_errors=True)
    rounds = chosen.rounds or scenario.rounds[PROFILES.index(chosen.profile)] or scenario.rounds[1]
    sizes = [size for size in scenario.sizes if size <= chosen.most]
    if chosen.scale and not scenario.axis:
        sizes = [chosen.scale]
    header: dict[str, Any] = {
        "scenario": scenario.name,
        "profile": chosen.profile,
        "made": machine.now(),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "cores": chosen.cores,
        "driver_memory": chosen.driver_memory,
        "load_before": machine.load_average(),
        "load_after": None,
        "minutes": 0.0,
    }
    started = time.monotonic()
    with running(systems, chosen.cores, chosen.driver_memory, folder, chosen.timeout) as (workers, missing):
        header |= {"versions": {name: worker.versions for name, worker in workers.items()}, "missing": missing}
        results.append({"header": header})
        for size in sizes:
            for kind in scenario.steps:
                chain = Chain(scenario, size, kind, chosen.profile, workers, results, folder / "tables", rounds)
                chain.only, chain.deadline = tuple(chosen.steps), deadline
                if not chain.run():
                    print(f"benchmarks: no time left in {scenario.name}; the same command continues", file=sys.stderr)
    results.append({"end": {"load_after": machine.load_average(), "minutes": round((time.monotonic() - started) / 60, 1)}})


def _write(output: Path) -> None:
    for name, text in report.documents(Results(output / "results.jsonl"), Results(output / "curves.jsonl")).items():
        (output / name).write_text(text)
        print(f"benchmarks: wrote {output / name}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="PyHudi and other systems; see benchmarks/README.md."
    )
    parser.add_argument("command", nargs="?", default="run", choices=tuple(COMMANDS))
    parser.add_argument("--profile", default="quick", choices=PROFILES)
    parser.add_argument(
        "--scenarios", type=_list, default=[], help=f"of {', '.join(BY_NAME)}, or curves (default: those of the profile)"
    )
    parser.add_argument("--systems", type=_list, default=[], help=f"of {', '.join(SYSTEMS)} (default: all of the scenario)")
    parser.add_argument("--steps", type=_list, default=[], help="report these only")
    parser.add_argument("--scale", type=float, help="of TPC-H lineitem; 1 is 6 million rows")
    parser.add_argument("--most", type=float, default=math.inf, help="the largest size")
    parser.add_argument("--rounds", type=int, help="of each scenario (default: those of the profile)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no step after so many minutes")
    parser.add_argument("--cores", type=int, default=2, help="of each system (default 2)")
    parser.add_argument("--driver-memory", default="2g", help="of each Spark (default 2g)")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds of one step (default 1800)")
    parser.add_argument("--again", action="store_true", help="measure everything again instead of continuing")
    parser.add_argument("--mix", action="store_true", help="continue results of another commit")
    parser.add_argument("--base", help="commit that `check` compares with (default: that of the published results)")
    parser.add_argument("--output", type=Path, default=WORK, help="folder of the results (default artifacts/bench)")
    return parser


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
