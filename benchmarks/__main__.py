"""`python -m benchmarks`: see README.md.

Exit status: 0 when every answer was right, 1 when a system gave a wrong one or PyHudi failed, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import chart, machine, report
from benchmarks.checkpoint import Checkpoint
from benchmarks.curve import measure_curve
from benchmarks.data import load_inputs
from benchmarks.environments import ROOT, EnvironmentMissing
from benchmarks.growth import GrowthSettings, run_growth
from benchmarks.run import Measurement, run_chain
from benchmarks.steps import KINDS, STEPS, is_wanted
from benchmarks.systems import BY_NAME, SYSTEMS, Worker, running

PUBLISHED = ROOT / "benchmarks"
WORK = ROOT / "artifacts" / "bench"
PUBLISHED_SCALE, PUBLISHED_ROUNDS = 0.25, 3
GROWTH_SCALE = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if sum(any(is_wanted(step, [pattern]) for step in STEPS) for pattern in chosen.only) != len(chosen.only):
        parser.error(f"--only takes {', '.join(step.name for step in STEPS if step.reported)}, or the beginning of such a name")
    if chosen.scale is None:
        chosen.scale = GROWTH_SCALE if chosen.growth else PUBLISHED_SCALE
    output: Path = chosen.output or (PUBLISHED if _is_whole(chosen) else WORK)
    output.mkdir(parents=True, exist_ok=True)
    if chosen.report:
        _write(output, json.loads((output / "results.json").read_text()))
        return 0
    # A plain `kill` then also goes through the `finally` clauses below, which end the workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if chosen.metadata_scale:
            return _plan(chosen, output)
        return _grow(chosen, output) if chosen.growth else _measure(chosen, output)
    except (EnvironmentMissing, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _measure(chosen: argparse.Namespace, output: Path) -> int:
    inputs = load_inputs(chosen.scale)
    settings = {
        "scale": chosen.scale,
        "row_count": inputs.row_count,
        "rounds": chosen.rounds,
        "cores": chosen.cores,
        "driver_memory": chosen.driver_memory,
        "only": chosen.only,
        "load_before": machine.load_average(),
        "commit": machine.commit(),
    }
    names = _systems(chosen)
    checkpoint = Checkpoint(WORK / "run.json", {**settings, "load_before": None, "systems": names}, resume=chosen.resume)
    measurements: list[Measurement] = []
    started = time.monotonic()
    longest = 0.0
    with _running(chosen, names, "run") as (workers, missing, folder):
        try:
            for number in range(chosen.rounds):
                begun = time.monotonic()
                known = all(f"{number}-{kind}" in checkpoint for kind in KINDS)
                if chosen.minutes and not known and number and begun - started + longest > 60 * chosen.minutes:
                    print(f"benchmarks: no time for round {number + 1}", file=sys.stderr)
                    break
                for kind in KINDS:
                    part = f"{number}-{kind}"
                    if part not in checkpoint:
                        chain = [asdict(one) for one in run_chain(inputs, workers, folder, number, kind, chosen.only)]
                        checkpoint.add(part, chain)
                    measurements += [Measurement(**one) for one in checkpoint[part]]
                if not known:
                    longest = max(longest, time.monotonic() - begun)
        except BaseException:
            # What was measured in hours is not thrown away, and not published either.
            output = WORK
            raise
        finally:
            settings["rounds"] = len({one.round for one in measurements})
            settings["minutes_taken"] = round((time.monotonic() - started) / 60, 1)
            result: dict[str, Any] = {
                "made": _now(),
                "machine": machine.describe(),
                "settings": settings,
                "versions": {name: worker.versions for name, worker in workers.items()},
                "missing": missing,
                "measurements": [asdict(one) for one in measurements],
            }
            previous = _previous(output)
            _write(output, {**result, **{key: previous[key] for key in ("growth", "planning") if key in previous}})
    checkpoint.forget()
    bad = [one for one in measurements if one.status == "wrong" or (one.status == "failed" and one.system.startswith("pyhudi"))]
    return 1 if bad else 0


def _grow(chosen: argparse.Namespace, output: Path) -> int:
    settings = GrowthSettings(
        scale=chosen.scale,
        factors=chosen.factors,
        commit_scale=chosen.commit_scale,
        commit_counts=chosen.commits,
        kinds=chosen.kinds,
        budget_s=chosen.budget,
        peer_budget_s=chosen.peer_budget,
    )
    asked = chosen.peers is not None
    names = [name for name in _systems(chosen) if not BY_NAME[name].reads_of and (asked or BY_NAME[name].grows)]
    checkpoint = Checkpoint(
        WORK / "growth.json", {**asdict(settings), "systems": names, "commit": machine.commit()}, resume=chosen.resume
    )
    with _running(chosen, names, "growth") as (workers, missing, folder):
        growth = run_growth(settings, workers, folder, checkpoint)
        growth["notes"] += [f"{BY_NAME[name].title} did not run: {reason}" for name, reason in missing.items()]
        growth["versions"] = {name: worker.versions for name, worker in workers.items()}
    growth |= {"made": _now(), "machine": machine.describe(), "commit": machine.commit()}
    growth["settings"] |= {"cores": chosen.cores, "driver_memory": chosen.driver_memory}
    _write(output, {**_previous(output), "growth": growth})
    checkpoint.forget()
    return 1 if growth["wrong"] else 0


def _plan(chosen: argparse.Namespace, output: Path) -> int:
    planning = {
        "made": _now(),
        "machine": machine.describe(),
        "commit": machine.commit(),
        "points": measure_curve(chosen.files, WORK / "planning"),
    }
    _write(output, {**_previous(output), "planning": planning})
    return 0


@contextmanager
def _running(
    chosen: argparse.Namespace, names: Sequence[str], purpose: str
) -> Iterator[tuple[dict[str, Worker], dict[str, str], Path]]:
    """The workers, the reasons for those that are missing, and a folder for tables."""
    folder = WORK / purpose
    shutil.rmtree(folder, ignore_errors=True)
    with running(names, chosen.cores, chosen.driver_memory, folder, chosen.timeout) as (workers, missing):
        yield workers, missing, folder / "tables"


def _previous(output: Path) -> dict[str, Any]:
    """What was measured before and lies in this folder; empty when nothing does."""
    path = output / "results.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _write(output: Path, result: dict[str, Any]) -> None:
    (output / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (output / "RESULTS.md").write_text(report.render(result))
    if result.get("measurements"):
        settings = result["settings"]
        subtitle = f"TPC-H lineitem, {settings['row_count']:,} rows, {settings['cores']} cores; bars are to scale within a step"
        (output / "results.svg").write_text(chart.draw(report.medians(result["measurements"]), subtitle))
    print(f"benchmarks: wrote {output / 'RESULTS.md'} and what belongs to it", file=sys.stderr)


def _is_whole(chosen: argparse.Namespace) -> bool:
    """Only a run of everything, at the published size or above, replaces the published results."""
    if chosen.publish:
        return True
    everything = not chosen.only and chosen.peers is None and chosen.engines is None
    least = GROWTH_SCALE if chosen.growth else PUBLISHED_SCALE
    return chosen.metadata_scale or (everything and chosen.scale >= least and chosen.rounds >= PUBLISHED_ROUNDS)


def _systems(chosen: argparse.Namespace) -> list[str]:
    ours = [system.name for system in SYSTEMS if system.role == "ours"]
    others = [system.name for system in SYSTEMS if system.role != "ours"]
    picked = [*(ours if chosen.engines is None else chosen.engines), *(others if chosen.peers is None else chosen.peers)]
    return [system.name for system in SYSTEMS if system.name in picked]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="PyHudi and its peers, side by side. benchmarks/README.md says more."
    )
    ours = [system.name for system in SYSTEMS if system.role == "ours"]
    others = [system.name for system in SYSTEMS if system.role != "ours"]
    parser.add_argument(
        "--scale", type=float, help=f"of TPC-H; 1 is 6 million rows (default {PUBLISHED_SCALE}, for --growth {GROWTH_SCALE})"
    )
    parser.add_argument("--rounds", type=int, default=PUBLISHED_ROUNDS, help="default %(default)s")
    parser.add_argument("--peers", type=_names(others), help=f"some of {','.join(others)}, or none (default all)")
    parser.add_argument("--engines", type=_names(ours), help=f"some of {','.join(ours)}, or none (default all)")
    parser.add_argument(
        "--only", action="extend", type=_list, default=[], help="steps or the beginnings of their names, such as cow-upsert,mor"
    )
    parser.add_argument("--cores", type=int, default=2, help="for each system (default 2)")
    parser.add_argument("--driver-memory", default="2g", help="of each Spark (default 2g)")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds that one step may take (default 1800)")
    parser.add_argument(
        "--output", type=Path, help="folder of the results (default: benchmarks for a whole run, artifacts/bench for a part)"
    )
    parser.add_argument("--publish", action="store_true", help="write to benchmarks whatever was asked for")
    parser.add_argument("--minutes", type=float, help="start no further round that would not end within so many minutes")
    parser.add_argument("--resume", action="store_true", help="go on with what an interrupted run of the same settings finished")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing, write RESULTS.md and results.svg from results.json anew"
    )
    growth = parser.add_argument_group("growth", "how the cost of an upsert grows with the table and with its history")
    growth.add_argument("--growth", action="store_true", help="run this instead of the steps; its section joins the same results")
    growth.add_argument("--factors", type=_numbers, default=(1, 2, 4), help="tables of these many times --scale (default 1,2,4)")
    growth.add_argument(
        "--commits", type=_numbers, default=(10, 100, 1000), help="measure at these many commits (default 10,100,1000)"
    )
    growth.add_argument("--commit-scale", type=float, default=0.01, help="scale of the table with many commits (default 0.01)")
    growth.add_argument("--kinds", type=_list, default=["cow", "mor"], help="default cow,mor")
    growth.add_argument(
        "--budget", type=float, default=300.0, help="seconds for PyHudi and one kind in the run of commits (default 300)"
    )
    growth.add_argument("--peer-budget", type=float, default=120.0, help="the same for each peer (default 120)")
    planning = parser.add_argument_group("planning", "how the cost of planning a read grows with the number of files")
    planning.add_argument("--metadata-scale", action="store_true", help="run this instead; its section joins the same results")
    planning.add_argument(
        "--files",
        type=_numbers,
        default=(1_000, 10_000, 100_000),
        help="tables of so many files (default 1000,10000,100000)",
    )
    return parser


def _names(known: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        if text == "none":
            return []
        names = _list(text)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there is {', '.join(known)}")
        return names

    return parse


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _list(text))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


if __name__ == "__main__":
    sys.exit(main())
