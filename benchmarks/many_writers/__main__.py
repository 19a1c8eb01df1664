"""`python -m benchmarks.many_writers`: a line of a table for each number of writers."""

from __future__ import annotations

import argparse

from benchmarks.many_writers.extrapolation import lines_of
from benchmarks.many_writers.run import Outcome, Setting, simulate

HEAD = (
    "| writers | commits/s | a commit's wait: median, longest (s) | gave up | requests per commit | requests/s |",
    "| --- | --- | --- | --- | --- | --- |",
)


def line_of(outcome: Outcome) -> str:
    """An outcome as a row of the table that HEAD begins."""
    waits = outcome.waits_ms or (0.0,)
    median, longest = waits[len(waits) // 2] / 1000, waits[-1] / 1000
    rate = sum(outcome.requests.values()) / outcome.setting.seconds
    return (
        f"| {outcome.setting.writers:,} | {outcome.per_second:.2f} | {median:.1f}, {longest:.1f} | "
        f"{outcome.gave_up} | {outcome.requests_per_commit:,.0f} | {rate:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.many_writers")
    default = Setting(1)
    parser.add_argument("--writers", default="1,4,16,64", help="how many, with commas between several runs")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="of virtual time")
    parser.add_argument("--latency-ms", type=float, default=default.latency_ms)
    parser.add_argument("--requests-per-second", type=float, default=default.requests_per_second)
    parser.add_argument("--object-writes-per-second", type=float, default=default.object_writes_per_second)
    parser.add_argument("--work-ms", type=int, default=default.work_ms, help="what the data files of a commit take")
    parser.add_argument("--held-ms", type=int, default=default.held_ms, help="what else is done under the lock")
    parser.add_argument("--wait-ms", type=int, default=default.wait_ms, help="hoodie.write.lock.wait_time_ms")
    parser.add_argument("--seed", type=int, default=default.seed)
    extrapolates = "extrapolate to numbers of writers whose simulation takes too long; see extrapolation.py"
    parser.add_argument("--extrapolate", action="store_true", help=extrapolates)
    chosen = vars(parser.parse_args())
    counts = [int(count) for count in str(chosen.pop("writers")).split(",")]
    if chosen.pop("extrapolate"):
        print(*lines_of(Setting(writers=0, **chosen), counts), sep="\n")
        return
    print(*HEAD, sep="\n")
    for count in counts:
        print(line_of(simulate(Setting(writers=count, **chosen))), flush=True)


if __name__ == "__main__":
    main()
