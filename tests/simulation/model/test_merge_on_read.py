"""A merge-on-read table against a dictionary: writes, deletes, compactions and log compactions in any order.

The model maps a key to (ordering value, value). A delete in a log has an ordering value, and a record with a smaller
one does not restore the key before compaction; such records are not written here.
"""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from pyhudi import Table
from pyhudi.format.instants import Action
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.needs import WIDE
from tests.support.shares import EACH_SHARE, Share, of_share

KEYS = st.sampled_from([f"k{number}" for number in range(8)])
ORDERS = st.integers(0, 9)
_names = itertools.count()


class MergeOnRead(RuleBasedStateMachine):
    @initialize(
        by_event_time=st.booleans(),
        log_format=st.sampled_from(["avro", "parquet", "hfile"]),
        small_files=st.booleans(),
        index=st.sampled_from(["SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "INMEMORY"]),
        growth=st.sampled_from([0.0, 0.5]),
        seed=st.integers(0, 99),
    )
    def create(self, by_event_time: bool, log_format: str, small_files: bool, index: str, growth: float, seed: int) -> None:
        self.by_event_time = by_event_time
        self.environment = ReplayEnvironment(seed)
        self.options = {
            "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING" if by_event_time else "COMMIT_TIME_ORDERING",
            "hoodie.logfile.data.block.format": log_format,
            "hoodie.parquet.small.file.limit": 100_000_000 if small_files else 0,
            "pyhudi.small.file.growth": growth,
            "pyhudi.small.file.always.rewritten": 0,
            "hoodie.log.compaction.blocks.threshold": 2,
            "hoodie.compact.inline": False,
            "hoodie.clean.commits.retained": 3,
            "hoodie.keep.min.commits": 5,
            "hoodie.keep.max.commits": 7,
            "hoodie.index.type": index,
            "hoodie.index.bloom.num_entries": 10,
            "hoodie.bloom.index.filter.type": "SIMPLE",
        }
        self.uri = f"memory://model-mor-{next(_names)}"
        Table.create(
            self.uri,
            record_key="id",
            partition_by="part",
            ordering="ts",
            table_type="mor",
            options=self.options,
            environment=self.environment,
        )
        self.rows: dict[str, tuple[int, int]] = {}
        self.buried: dict[str, int] = {}
        self.values = itertools.count()
        self._upsert({"k0": 5, "k1": 5, "k2": 5})

    @property
    def table(self) -> Table:
        self.environment.advance_ms(10)
        return Table(self.uri, options=self.options, environment=self.environment)

    @rule(records=st.dictionaries(KEYS, ORDERS, min_size=1, max_size=5))
    def upsert(self, records: dict[str, int]) -> None:
        self._upsert(records)

    def _upsert(self, records: dict[str, int]) -> None:
        fresh = {key: (max(order, self.buried.get(key, 0)), next(self.values)) for key, order in records.items()}
        self.table.upsert(self._data(fresh, {}))
        for key, (order, value) in fresh.items():
            stored = self.rows.get(key)
            if not self.by_event_time or stored is None or order >= stored[0]:
                self.rows[key] = (order, value)

    @rule(records=st.dictionaries(KEYS, ORDERS, min_size=1, max_size=3))
    def soft_delete(self, records: dict[str, int]) -> None:
        """Deletes with an ordering value win over records that are not newer."""
        known = {key: order for key, order in records.items() if key in self.rows}
        if not known:
            return
        self.table.upsert(self._data({key: (order, -1) for key, order in known.items()}, known))
        for key, order in known.items():
            if not self.by_event_time or order >= self.rows[key][0]:
                self.buried[key] = order
                del self.rows[key]

    @rule(keys=st.sets(KEYS, min_size=1, max_size=4))
    def delete(self, keys: set[str]) -> None:
        names = sorted(keys)
        self.table.delete(pa.table({"id": names, "part": [_partition(key) for key in names]}))
        for key in names:
            if key in self.rows:
                self.buried[key] = self.rows.pop(key)[0]

    @rule()
    def compact(self) -> None:
        self.table.compact()

    @rule()
    def log_compact(self) -> None:
        self.table.log_compact()

    @rule()
    def plan_compaction(self) -> None:
        self.table.schedule_compaction()

    @rule()
    def plan_log_compaction(self) -> None:
        self.table.schedule_log_compaction()

    @precondition(lambda self: self.rows and not self.table.timeline().pending(Action.COMPACTION))
    @rule(data=st.data())
    def come_back_beside_a_compaction(self, data: st.DataObject) -> None:
        """The record is in a log alone afterwards."""
        key = data.draw(st.sampled_from(sorted(self.rows)))
        self.delete({key})
        self.table.schedule_compaction()
        self._upsert({key: 9})
        for instant in self.table.timeline().pending(Action.COMPACTION):
            self.table.compact(instant.request_time)
        self._upsert({key: 9})

    @precondition(lambda self: self.table.timeline().pending(Action.COMPACTION))
    @rule(run=st.booleans())
    def settle_a_plan(self, run: bool) -> None:
        table = self.table
        planned = table.timeline().pending(Action.COMPACTION)[0].request_time
        if run:
            table.compact(planned)
        else:
            table.unschedule_compaction(planned)

    @rule()
    def clean(self) -> None:
        self.table.clean(dry_run=False)

    @invariant()
    def reads_as_the_model(self) -> None:
        if hasattr(self, "rows"):
            found = self.table.scan(["id", "ts", "value"]).to_arrow().to_pylist()
            assert sorted((row["id"], row["ts"], row["value"]) for row in found) == sorted(
                (key, order, value) for key, (order, value) in self.rows.items()
            )

    def _data(self, records: dict[str, tuple[int, int]], deleted: dict[str, int]) -> pa.Table:
        names = sorted(records)
        return pa.table(
            {
                "id": names,
                "part": [_partition(key) for key in names],
                "ts": pa.array([records[key][0] for key in names], pa.int64()),
                "value": pa.array([records[key][1] for key in names], pa.int64()),
                "_hoodie_is_deleted": pa.array([key in deleted for key in names]),
            }
        )


def _partition(key: str) -> str:
    return "ab"[int(key[1:]) % 2]


@EACH_SHARE
def test_a_merge_on_read_table_holds_the_rows_of_the_model(share: Share) -> None:
    count = 3 if share is Share.SMOKE else 17 if WIDE else 5
    run_state_machine_as_test(of_share(MergeOnRead, share), settings=settings(max_examples=count, stateful_step_count=20))
