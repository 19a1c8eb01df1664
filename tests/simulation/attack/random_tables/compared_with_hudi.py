"""Random tables that PyHudi and Apache Hudi write, service and read in turn.

    python -m tests.simulation.attack.random_tables.compared_with_hudi --seed 1 --seconds 600 --release 1.0.2

Steps are those of `steps.py` and some of Apache Hudi's; after each one both read the table, and must give the same: snapshots
(by listings and through the metadata table), filters, time travel, ranges of commits and change data.  What Apache Hudi refuses
or fails at is counted and printed at the end, and its step counts as not done.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import TableState
from pyhudi.storage.environment import SystemEnvironment
from tests.interop.oracle import RELEASE, ApacheHudi, HudiFailure
from tests.simulation.attack.random_tables.explore import Failure
from tests.simulation.attack.random_tables.hudi_steps import WEIGHTS, HudiRun
from tests.simulation.attack.random_tables.read_checks import NO_FALL_BACK, check_reads, same
from tests.simulation.attack.random_tables.run import Step
from tests.simulation.attack.random_tables.steps import condition
from tests.simulation.attack.random_tables.table_generator import Drawn, draw_table
from tests.support.rows import META_COLUMNS, assert_same_rows

KIND, FORMAT = "hoodie.datasource.query.type", "hoodie.datasource.query.incremental.format"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
# Mergers of Python, what only ours takes, deletes that Apache Hudi cannot read again (an ordering value that is no int), and
# the rule by which a delete of the same time counts in a log and not in a write of base files.
_LEFT_OUT = ("highest", "marker", "postgres", "first")


def compare_with_hudi(run: HudiRun, rng: random.Random) -> None:
    """Compare what Apache Hudi and PyHudi read."""
    if not run.states:
        return
    table, hudi, path = run.table, run.hudi, run.uri
    meta = "hoodie.populate.meta.fields" not in run.options
    shown = "*" if meta else None
    mine = table.scan(shown).to_arrow()
    lists: dict[str, Any] = {"hoodie.metadata.enable": False}
    _alike(mine, hudi.read(path, **lists), "snapshot by listing")
    if run.drawn.has_metadata and rng.random() < 0.4:
        skipping: dict[str, Any] = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}
        _alike(mine, hudi.read(path, **skipping), "snapshot by metadata")
        texts = [condition(run, rng) for _ in range(3)]
        for (text, test), found in zip(texts, hudi.read_each(path, [text for text, _ in texts], **skipping), strict=True):
            wanted = [row.values for row in run.rows.values() if test(row.values)]
            same(found, wanted, run.columns, f"their filter {text}")
    state = rng.choice(run.states)
    if rng.random() < 0.3:
        try:
            then = table.scan(as_of=state.completed).to_arrow()
        except TableState:
            pass
        else:
            found = hudi.read(path, **{"as.of.instant": state.completed, **lists})
            rows, columns = [row.values for row in state.rows.values()], state.columns
            same(then, rows, columns, f"as of {state.completed}")
            same(found, rows, columns, f"their rows as of {state.completed}")
    later = [each for each in run.states if each.completed >= state.completed]
    end = rng.choice(later)
    if meta and rng.random() < 0.3:
        try:
            # Where files were cleaned Apache Hudi leaves logs out of the latest state, so that is not compared.
            ours = table.incremental(state.completed, end.completed, ["*"], options=NO_FALL_BACK).to_arrow()
        except TableState:
            return
        theirs = hudi.read(path, **{KIND: "incremental", BEGIN: state.completed, END: end.completed})
        _alike(ours, theirs, f"range {state.completed} to {end.completed}")
    if run.drawn.has_cdc and rng.random() < 0.5:
        _compare_changes(run, table, state.completed, end.completed)


_COLLECT = """
frame = spark.read.format("hudi").options(**options).load(path)
result = [[row["op"], row["ts_ms"], row["before"], row["after"]] for row in frame.collect()]
"""


def _compare_changes(run: HudiRun, table: Table, begin: str, end: str) -> None:
    try:
        found = table.changes(after=begin, end=end).to_arrow().to_pylist()
    except TableState:
        return
    options = {KIND: "incremental", FORMAT: "cdc", BEGIN: begin, END: end}
    try:
        real = run.hudi.run(_COLLECT, path=run.uri, options=options)
    except HudiFailure as error:
        # It does not look for the changes of archived instants.
        active = {instant.completion_time for instant in table.timeline().completed_writes()}
        if error.mentions("Fail to get the commit metadata for CDC") and begin < min(state.completed for state in run.states
                                                                                    if state.completed in active):  # fmt: skip
            return
        raise
    # Structs are left out, as of base files Apache Hudi prints their bytes in memory, and columns that are not in the files.
    without = {"n", *(("part",) if "hoodie.datasource.write.drop.partition.columns" in run.options else ())}
    ours = [(row["op"], str(row["ts_ms"]), _image(row["before"], without), _image(row["after"], without)) for row in found]
    theirs = [(op, str(ts), _image(before, without), _image(after, without)) for op, ts, before, after in real]
    first, second = Counter(ours), Counter(theirs)
    if first != second:
        raise AssertionError(
            f"changes {begin} to {end}\n  only ours:   {list((first - second).elements())}\n"
            f"  only theirs: {list((second - first).elements())}"
        )


def _image(text: str | None, without: Set[str]) -> str | None:
    """The values of an image that are not null: Apache Hudi leaves nulls out."""
    row = None if text is None else json.loads(text)
    if row is None:
        return None
    held = {name: value for name, value in row.items() if name not in META_COLUMNS and name not in without and value is not None}
    return json.dumps(held, sort_keys=True)


def _alike(ours: pa.Table, theirs: pa.Table, what: str) -> None:
    try:
        assert_same_rows(ours, theirs)
    except AssertionError as error:
        error.add_note(what)
        raise


# Runs


def draw_hudi_table(rng: random.Random, version: int) -> Drawn:
    while True:
        drawn = draw_table(rng)
        if drawn.version != version or drawn.merges in _LEFT_OUT or drawn.index == "INMEMORY":
            continue
        options = dict(drawn.options)
        if "hoodie.populate.meta.fields" in options and (drawn.is_mor or "BLOOM" in drawn.index):
            # Logs make it fail, and so do files without the key filters that its index requires.
            continue
        if options.get("hoodie.logfile.data.block.format") == "hfile":
            continue
        options.pop("hoodie.metadata.index.bloom.filter.enable", None)
        options.pop("hoodie.table.base.file.format", None)
        return replace(drawn, options=options)


def run_alternation(
    hudi: ApacheHudi, folder: Path, seed: int, length: int, version: int
) -> tuple[Failure | None, HudiRun | None]:
    """Run one alternation; return the failure, None if there was none."""
    rng = random.Random(seed)
    drawn = draw_hudi_table(rng, version)
    names = [maker.__name__ for maker in WEIGHTS]
    todo = [Step("upsert", rng.getrandbits(32))]
    todo += [Step(name, rng.getrandbits(32)) for name in rng.choices(names, list(WEIGHTS.values()), k=length)]
    place = folder / f"s{seed}"
    place.mkdir(parents=True)
    run = None
    try:
        kind = type("Here", (HudiRun,), {"hudi": hudi, "folder": place, "environment": SystemEnvironment()})
        run = kind(drawn, seed)
        for step in todo:
            run.take(step)
            check_reads(run, random.Random(step.seed + 1))
            compare_with_hudi(run, random.Random(step.seed + 3))
        check_reads(run, rng, all_of_them=True)
    except (Exception, HudiFailure) as error:
        notes = "; ".join(getattr(error, "__notes__", []))
        text = "".join(traceback.format_exception(error)[-10:]) + notes
        return Failure(f"{type(error).__name__} {notes}", text, (str(drawn), *(run.did if run else ()))), run
    shutil.rmtree(place)
    return None, run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--runs", type=int, default=10**9)
    parser.add_argument("--steps", type=int, default=20, help="of a run")
    parser.add_argument("--release", default=RELEASE)
    parser.add_argument("--version", type=int, help="of the tables; else that of the release")
    given = parser.parse_args(arguments)
    version = given.version or (8 if given.release == RELEASE else 9)
    folder = Path(tempfile.mkdtemp(prefix="with-hudi-"))
    hudi = ApacheHudi(folder / "scratch", folder / "hudi.log", given.release)
    end, seed, failed, refusals = time.monotonic() + given.seconds, given.seed, 0, Counter[str]()
    try:
        while time.monotonic() < end and seed < given.seed + given.runs:
            failure, run = run_alternation(hudi, folder, seed, given.steps, version)
            if run is not None:
                refusals.update(" ".join(w for w in t.split() if not any(c.isdigit() for c in w)) for t in run.refusals)
            if failure is not None:
                failed += 1
                print(f"SEED {seed}: {failure.kind}", *failure.did, failure.text, sep="\n    ", flush=True)
            seed += 1
    finally:
        hudi.close()
    print(f"{seed - given.seed} runs, {failed} failed; in {folder}")
    for kind, count in refusals.most_common(60):
        print(f"{count:5} {kind}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
