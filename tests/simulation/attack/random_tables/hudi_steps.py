"""Tables on the local disk that Apache Hudi writes and services too, and what it does to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.format.instants import Action
from tests.interop.oracle import RELEASE, ApacheHudi, HudiFailure
from tests.simulation.attack.random_tables import steps
from tests.simulation.attack.random_tables.run import Deed, Row, Run, Step
from tests.simulation.attack.random_tables.steps import Maker, condition, show
from tests.simulation.attack.random_tables.table_generator import PARTITIONS

OPERATION = "hoodie.datasource.write.operation"


class HudiRun(Run):
    """A table on the local disk, with the clock of the machine.  hudi: Apache Hudi."""

    hudi: ApacheHudi
    folder: Path
    known: dict[str, str]

    def done(self, act: Callable[[], object], change: Callable[[str], None] | None = None, text: str = "") -> Deed:
        """An action of Apache Hudi, whose instant is on the timeline."""

        def acted(table: Table) -> Any:
            act()
            return SimpleNamespace(instant=self._new_write(self.known))

        return Deed(acted, change, text=text)

    def place(self) -> None:
        self.uri = str(self.folder / "t")

    def make(self) -> None:
        self.columns["ts"] = pa.int32()
        if random.Random(self.seed).random() < 0.6:
            Table.create(
                self.uri,
                name=f"judged_{self.folder.name}",
                record_key=list(self.drawn.keyed),
                partition_by="part" if self.drawn.partitioned else None,
                ordering=self.rule.ordering,
                table_type=self.drawn.kind,
                options=self.options,
                schema=pa.schema(list(self.columns.items())),
            )
        else:
            rows = [self.fresh(key, random.Random(self.seed)) for key in ("k1", "k3", "k6")]
            self.write(self.data(rows), "upsert")
            instant = self.table.timeline().completed_writes()[-1].request_time
            for row in rows:
                self.hold(row, instant)
            self.did.append(f"their upsert made the table: {show(rows)} -> {instant}")
            self._note({}, instant)

    @property
    def table(self) -> Table:
        return Table(self.uri, options=self.options)

    def value(self, name: str, rng: random.Random) -> Any:
        while True:
            found = super().value(name, rng)
            # By its own statistics of NaN and -0.0 Apache Hudi prunes files with matching rows.
            if found == found and repr(found) != "-0.0":
                return found

    @property
    def settings(self) -> dict[str, Any]:
        """The options of Apache Hudi's writers."""
        keyed = ",".join(self.drawn.keyed)
        settings_for_procedures = {name: value for name, value in self.options.items() if not name.startswith("pyhudi.")}
        settings_for_procedures |= {
            "hoodie.table.name": f"judged_{self.folder.name}",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self.drawn.is_mor else "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": keyed,
            "hoodie.datasource.write.partitionpath.field": "part" if self.drawn.partitioned else "",
            "hoodie.datasource.write.precombine.field": self.rule.ordering,
            "hoodie.write.auto.upgrade": False,
        }
        if self.hudi.release != RELEASE:
            settings_for_procedures["hoodie.write.table.version"] = self.version
        return settings_for_procedures

    def write(self, data: pa.Table, operation: str, **more: Any) -> None:
        self.hudi.write(data, self.uri, **{**self.settings, OPERATION: operation, **more})

    def named(self) -> str:
        """The table, known to SQL."""
        name = f"judged_{self.folder.name}"
        self.hudi.register(self.uri, name)
        return name

    def settings_for_procedures(self, **more: Any) -> str:
        """Settings as procedures take them."""
        chosen = {name: value for name, value in {**self.settings, **more}.items() if str(value) and "," not in str(value)}
        return ",".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in chosen.items())

    def take(self, step: Step) -> list[tuple[Deed, str]]:
        rows, columns, buried = dict(self.rows), dict(self.columns), dict(self.buried)
        self.known = self._writes()
        try:
            return super().take(step)
        except HudiFailure as error:
            self.rows, self.columns, self.buried = rows, columns, buried
            name, message = error.root
            self.did[-1] += f" FAILED {name}: {message[:150]}"
            self.refusals.append(f"{step.name}: {name}: {message[:160]}")
            return []


# What Apache Hudi does


def hudi_upsert(run: HudiRun, rng: random.Random) -> Deed | None:
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    if run.drawn.soft:
        for number, row in enumerate(rows):
            if rng.random() < 0.25:
                rows[number] = run.rule.deleting({**run.fresh(row["id"], rng, newer=run.drawn.is_mor), "part": row["part"]})
    data = run.data(rows)

    def change(instant: str) -> None:
        for row in rows:
            run.hold(row, instant)

    return run.done(lambda: run.write(data, "upsert"), change, text=show(rows))


def hudi_insert(run: HudiRun, rng: random.Random) -> Deed | None:
    """Keys that never were there: Apache Hudi inserts others into files whose logs have deleted them."""
    keys = [key for key in run.some(rng) if key not in run.rows and key not in run.buried]
    rows = [run.fresh(key, rng) for key in keys]
    if not rows:
        return None
    data, operation = run.data(rows), rng.choice(("insert", "bulk_insert"))

    def change(instant: str) -> None:
        for row in rows:
            run.rows[row["id"]] = Row(row, instant)

    return run.done(lambda: run.write(data, operation), change, text=f"{operation} {show(rows)}")


def hudi_delete(run: HudiRun, rng: random.Random) -> Deed | None:
    keys = [key for key in run.some(rng) if key in run.rows]
    if not keys:
        return None
    rows = [{**run.fresh(key, rng, newer=True), "part": run.rows[key].values["part"]} for key in keys]
    data = run.data(rows)

    def change(instant: str) -> None:
        for key in keys:
            run.bury(key)
        for row in rows:
            run.bury(row["id"], row["ts"])

    return run.done(lambda: run.write(data, "delete"), change, text=show(rows))


def hudi_insert_overwrite(run: HudiRun, rng: random.Random) -> Deed | None:
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    parts = {row["part"] for row in rows}
    if run.drawn.moves or not run.drawn.partitioned:
        return None
    data = run.data(rows)

    def change(instant: str) -> None:
        for key in [key for key, row in run.rows.items() if row.values["part"] in parts]:
            run.bury(key)
        for row in rows:
            run.rows[row["id"]] = Row(row, instant)

    return run.done(lambda: run.write(data, "insert_overwrite"), change, text=f"{sorted(parts)} {show(rows)}")


def hudi_delete_partition(run: HudiRun, rng: random.Random) -> Deed | None:
    if not run.drawn.partitioned:
        return None
    part = rng.choice(PARTITIONS)
    path = f"part={part}" if "hoodie.datasource.write.hive_style_partitioning" in run.options else part
    data = run.data([])

    def change(instant: str) -> None:
        for key in [key for key, row in run.rows.items() if row.values["part"] == part]:
            run.bury(key)

    more = {"hoodie.datasource.write.partitions.to.delete": path}
    return run.done(lambda: run.write(data, "delete_partition", **more), change, text=path)


def hudi_add_column(run: HudiRun, rng: random.Random) -> Deed | None:
    deed = steps.new_column(run, rng)
    if deed is None:
        return None
    kept: list[pa.Table] = []

    class Taken:
        def upsert(self, data: pa.Table) -> None:
            kept.append(data)

    deed.act(Taken())  # type: ignore[arg-type]
    return run.done(lambda: run.write(kept[0], "upsert"), deed.change, text=deed.text)


def hudi_update(run: HudiRun, rng: random.Random) -> Deed | None:
    text, test = condition(run, rng)
    name = rng.choice(["v", "s"])
    if name not in run.columns:
        return None
    value = run.value(name, rng)
    chosen = [row.values for row in run.rows.values() if test(row.values)]
    given = "null" if value is None else "'" + value.replace("'", "\\'") + "'" if isinstance(value, str) else str(value)

    def change(instant: str) -> None:
        for row in chosen:
            run.hold({**row, name: value}, instant)

    def act() -> None:
        run.hudi.sql(f"UPDATE {run.named()} SET {name} = {given} WHERE {text}")

    return run.done(act, change, text=f"{name} = {given} where {text}")


def hudi_delete_where(run: HudiRun, rng: random.Random) -> Deed | None:
    text, test = condition(run, rng)

    def change(instant: str) -> None:
        for key in [key for key, row in run.rows.items() if test(row.values)]:
            run.bury(key)

    return run.done(lambda: run.hudi.sql(f"DELETE FROM {run.named()} WHERE {text}"), change, text=text)


def hudi_compact(run: HudiRun, rng: random.Random) -> Deed | None:
    if not run.drawn.is_mor:
        return None
    op = rng.choice(("schedule", "scheduleAndExecute", "scheduleAndExecute"))

    def act() -> None:
        more = {"hoodie.compact.inline.max.delta.commits": 1, "hoodie.compact.inline": False}
        run.hudi.call("run_compaction", op=op, table=run.named(), options=run.settings_for_procedures(**more))

    return run.done(act, text=op)


def hudi_run_pending(run: HudiRun, rng: random.Random) -> Deed | None:
    """Run a pending plan of either writer."""
    pending = run.table.timeline().pending(Action.COMPACTION, Action.CLUSTERING)
    if not pending:
        return None
    instant = rng.choice(pending)
    stamp = instant.request_time

    def act() -> None:
        if instant.action is Action.CLUSTERING:
            run.hudi.call(
                "run_clustering", table=run.named(), op="execute", instants=stamp, options=run.settings_for_procedures()
            )
        else:
            run.hudi.call(
                "run_compaction", op="run", table=run.named(), timestamp=int(stamp), options=run.settings_for_procedures()
            )

    return run.done(act, text=f"{instant.action.value} {stamp}")


def hudi_cluster(run: HudiRun, rng: random.Random) -> Deed | None:
    if run.drawn.has_buckets:
        return None
    op = rng.choice(("schedule", "scheduleAndExecute", "scheduleAndExecute"))
    by = rng.choice(("v", "s"))
    by = by if by in run.columns else "v"
    return run.done(
        lambda: run.hudi.call("run_clustering", table=run.named(), op=op, order=by, options=run.settings_for_procedures()),
        text=f"{op} by {by}",
    )


def hudi_clean(run: HudiRun, rng: random.Random) -> Deed | None:
    policy = rng.choice(
        ({"clean_policy": "KEEP_LATEST_COMMITS", "retain_commits": 2}, {"clean_policy": "KEEP_LATEST_FILE_VERSIONS",
                                                                      "file_versions_retained": 1})
    )  # fmt: skip
    return run.done(
        lambda: run.hudi.call("run_clean", table=run.named(), options=run.settings_for_procedures(), **policy), text=str(policy)
    )


def hudi_archive(run: HudiRun, rng: random.Random) -> Deed | None:
    return run.done(
        lambda: run.hudi.call(
            "archive_commits",
            table=run.named(),
            min_commits=4,
            max_commits=5,
            retain_commits=2,
            enable_metadata=run.drawn.has_metadata,
        )
    )


def hudi_create_index(run: HudiRun, rng: random.Random) -> Deed | None:
    name = rng.choice(("s", "v"))
    if not run.drawn.has_metadata or name not in run.columns:
        return None
    drop = rng.random() < 0.3

    def act() -> None:
        known = run.named()
        if drop:
            run.hudi.sql(f"DROP INDEX by_{name} ON {known}")
            return
        if "hoodie.metadata.record.index.enable" not in run.options:
            run.options["hoodie.metadata.record.index.enable"] = True
            run.hudi.sql(f"CREATE INDEX record_index ON {known} (id)")
        run.hudi.sql(f"CREATE INDEX by_{name} ON {known} ({name})")

    return run.done(act, text=f"{'drop ' * drop}by_{name}")


HUDI_STEPS: dict[Any, int] = {
    hudi_upsert: 16,
    hudi_insert: 5,
    hudi_delete: 6,
    hudi_insert_overwrite: 2,
    hudi_delete_partition: 2,
    hudi_add_column: 1,
    hudi_update: 4,
    hudi_delete_where: 3,
    hudi_compact: 4,
    hudi_run_pending: 6,
    hudi_cluster: 4,
    hudi_clean: 2,
    hudi_archive: 2,
    hudi_create_index: 2,
}
# Versions change apart; columns by ids, the clock and what grows structs are not of what is compared here.
_WITHOUT = ("alter", "change_version", "days", "expire", "deeper", "evolve", "overtaken", "repair")
_OURS = {maker: weight for maker, weight in steps.WEIGHTS.items() if maker.__name__ not in _WITHOUT}
WEIGHTS: dict[Maker, int] = {**_OURS, **HUDI_STEPS}
steps.STEPS.update({maker.__name__: maker for maker in HUDI_STEPS})
