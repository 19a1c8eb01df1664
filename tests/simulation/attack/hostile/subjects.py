"""Tables that the generator of hostile tables changes: two tables, each in several states.

A table is stored at `<folder>/<state>/table`. `<folder>/<state>/outside` is another table with the same partitions and file
names, which the hostile names and links of the first one lead to: whoever follows one finds valid files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi import Table, bootstrap
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment

NOW_MS = 1_767_225_600_000
OPTIONS: dict[str, object] = {
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
    "hoodie.metadata.index.bloom.filter.file.group.count": 1,
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "pyhudi.threads": 1,
}
SECRET = "secret of another table"


def rows(numbers: range, value: int, note: str) -> pa.Table:
    """Rows of the tables. note: in every row."""
    return pa.table(
        {
            "id": [f"k{number:03}" for number in numbers],
            "ts": [value] * len(numbers),
            "v": [value + number for number in numbers],
            "note": [note] * len(numbers),
            "city": [("rome", "oslo")[number % 2] for number in numbers],
        }
    )


class _Builder:
    """One table under construction, and copies of its states."""

    def __init__(self, place: Path, kind: str, note: str, states: dict[str, Path]) -> None:
        self.place, self.note, self.states = place, note, states
        self.environment = ReplayEnvironment(5, NOW_MS - 10**9)
        self.uri = str(place / kind)
        self.table = Table.create(
            self.uri,
            record_key="id",
            ordering="ts",
            partition_by="city",
            table_type=kind,
            options=OPTIONS,
            environment=self.environment,
        )

    def upsert(self, numbers: range, value: int) -> None:
        self.environment.advance_ms(60_000)
        self.table.upsert(rows(numbers, value, self.note))

    def keep(self, state: str) -> Path:
        """Copy the table as this state."""
        shutil.copytree(self.uri, self.states[state])
        return self.states[state]

    def keep_pending(self, state: str, run: Callable[[], object]) -> None:
        """Copy the table as it is if this service dies after it has stored its plan."""
        copy = self.keep(state)
        run()
        timeline = Path(self.uri, ".hoodie", "timeline")
        for plan in timeline.glob("*.requested"):
            target = copy / ".hoodie" / "timeline" / plan.name
            if not target.exists():
                shutil.copyfile(plan, target)


def _dead_write(path: Path) -> None:
    """A write that died: inflight, markers (as files and in a list) and a heartbeat."""
    instant = "20251231120000000"
    timeline = path / ".hoodie" / "timeline"
    action = "deltacommit" if any(timeline.glob("*.deltacommit")) else "commit"
    for suffix in (f"{action}.requested", f"{action}.inflight"):
        (timeline / f"{instant}.{suffix}").write_bytes(b"")
    orphan = f"rome/11111111-1111-4111-8111-111111111111-0_0-0-0_{instant}.parquet"
    (path / orphan).write_bytes(b"")
    marker = path / ".hoodie" / ".temp" / instant / f"{orphan}.marker.CREATE"
    marker.parent.mkdir(parents=True)
    marker.write_bytes(b"")
    (path / ".hoodie" / ".heartbeat").mkdir(exist_ok=True)
    (path / ".hoodie" / ".heartbeat" / instant).write_bytes(b"")


def _marker_list(path: Path) -> None:
    """The same write, with its markers in a list of a timeline server."""
    folder = path / ".hoodie" / ".temp" / "20251231120000000"
    names = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*.marker.*"))]
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "MARKERS0").write_text("".join(f"{name}\n" for name in names))
    (folder / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")


BOOTSTRAPPED = "bootstrapped"
"""A table whose rows are stored in Parquet files next to it, in the folder `source`."""
STATES = (
    "cow",
    "cow dead write",
    "cow clustering",
    "cow rollback",
    "mor",
    "mor marker list",
    "mor compaction",
    "mor clean",
    "mor restore",
    "mor index build",
    BOOTSTRAPPED,
)


def build(folder: Path) -> None:
    """Store each state and the table outside of it."""
    for note, name in (("inside", "table"), (SECRET, "outside")):
        places = {state: folder / state.replace(" ", "-") / name for state in STATES}
        for kind in ("cow", "mor"):
            builder = _Builder(folder / "tables" / name, kind, note, places)
            (_build_cow if kind == "cow" else _build_mor)(builder)
        _bootstrap(places[BOOTSTRAPPED], source_folder(folder), note)
    shutil.rmtree(folder / "tables")


def _begin(builder: _Builder) -> None:
    """Archived instants, a savepoint, indexes, and a schema history."""
    table = builder.table
    for number in range(5):
        builder.upsert(range(20), 10 * number)
    table.clean(options={"hoodie.clean.commits.retained": 1})
    archival = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    table.archive(options=archival)
    table.index.create("secondary_index", "note", name="by_note")
    table.index.create("column_stats", "note", name="by_note_upper", function="upper")
    table.set_properties({"hoodie.schema.on.read.enable": "true"})
    builder.upsert(range(4), 100)
    table.savepoint(comments="kept", tag="kept")
    builder.upsert(range(2, 8), 200)


def _build_cow(builder: _Builder) -> None:
    _begin(builder)
    table = builder.table
    builder.keep("cow")
    _dead_write(builder.keep("cow dead write"))
    builder.upsert(range(6, 9), 250)
    last = table.timeline().completed_writes()[-1].request_time
    builder.keep_pending("cow rollback", lambda: table.rollback(last))
    table.schedule_clustering()
    builder.keep("cow clustering")


def _build_mor(builder: _Builder) -> None:
    _begin(builder)
    table = builder.table
    table.delete(pa.table({"id": ["k005"]}))
    builder.keep("mor")
    dead = builder.keep("mor marker list")
    _dead_write(dead)
    _marker_list(dead)
    table.schedule_compaction(options={"hoodie.compact.inline.max.delta.commits": 1})
    builder.keep("mor compaction")
    table.compact()
    builder.keep_pending("mor clean", lambda: table.clean(options={"hoodie.clean.commits.retained": 1}))
    table.index.drop("bloom_filters")
    table.index.schedule("bloom_filters")
    builder.keep("mor index build")
    table.index.abort(table.timeline().instants[-1].request_time)
    builder.upsert(range(6, 9), 250)
    kept = next(iter(table.tags().values()))
    builder.keep_pending("mor restore", lambda: table.restore(kept))


def source_folder(folder: Path) -> Path:
    """The files over which a table is bootstrapped."""
    return folder / "source"


def _bootstrap(place: Path, source: Path, note: str) -> None:
    for city in ("rome", "oslo"):
        (source / f"city={city}").mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(range(10), 1, "inside").drop_columns(["city"]), source / f"city={city}" / "a.parquet")
    environment = ReplayEnvironment(6, NOW_MS - 10**8)
    bootstrap(source, place, record_key="id", partition_by="city", ordering="ts", environment=environment)
    environment.advance_ms(60_000)
    Table(place, environment=environment).upsert(rows(range(2), 900, note))


def content(folder: Path) -> dict[str, bytes]:
    """The files of a table by path. Sorted."""
    storage = open_storage(str(folder))
    return {info.path: storage.read(info.path) or b"" for info in sorted(storage.walk(""), key=lambda info: info.path)}
