"""A table service is one registered row: a service of this test runs after writes, in passes, in a thread and in
`serve`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pyarrow as pa
import pytest

from pyhudi import ServiceFailed, Table
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.operations.commit.service_result import Executed, NotDue, Outcome
from pyhudi.operations.services import service_registry
from pyhudi.operations.services.service_registry import Mode, Service, ServiceRun, Trigger
from pyhudi.operations.services.service_settings import ServiceSettings


class Census:
    """Counts the commits of a table, every second one."""

    def __init__(self) -> None:
        self.asked: list[Trigger] = []
        self.visits: list[ServiceRun] = []
        self.fails = False

    def part(self, settings: ServiceSettings, asked: Trigger) -> Mode:
        self.asked.append(asked)
        return Mode.RUN

    def due(self, visit: ServiceRun) -> NotDue | None:
        return NotDue("an odd number of commits") if len(visit.timeline.completed_writes()) % 2 else None

    def run(self, visit: ServiceRun) -> Outcome:
        self.visits.append(visit)
        if self.fails:
            raise TableState("nobody counts here")
        return Executed(f"{len(visit.timeline.completed_writes())} commits counted")


@pytest.fixture
def census(monkeypatch: pytest.MonkeyPatch) -> Census:
    census = Census()
    row = Service("census", census.part, census.run, census.due)
    monkeypatch.setattr(service_registry, "SERVICES", (*service_registry.SERVICES, row))
    return census


def new_table(name: str) -> Table:
    return Table.create(f"memory://{name}", record_key="id", options={"hoodie.metadata.enable": False})


def write(table: Table) -> Mapping[str, str]:
    return table.upsert(pa.table({"id": ["a"]})).services


def test_registered_service_runs_after_writes(census: Census) -> None:
    table = new_table("census-inline")
    assert write(table)["census"] == "not due: an odd number of commits"
    assert write(table)["census"] == "run: 2 commits counted"
    assert set(census.asked) == {Trigger.AFTER_WRITE} and len(census.visits) == 1
    off = table.upsert(pa.table({"id": ["b"]}), options={"hoodie.clean.automatic": False}).services
    assert off["clean"] == "off: hoodie.clean.automatic=false" and list(off)[-1] == "census"
    census.fails = True
    with pytest.raises(ServiceFailed, match="the census service that followed it failed: nobody counts here"):
        write(table)
    assert len(table.timeline().completed_writes()) == 4


def test_registered_service_runs_with_run_services(census: Census) -> None:
    table = new_table("census-pass")
    write(table)
    assert table.run_services(["census"]) == {"census": "not due: an odd number of commits"}
    write(table)
    assert table.run_services()["census"] == "run: 2 commits counted"
    census.fails = True
    assert table.run_services(["census"]) == {"census": "failed: TableState: nobody counts here"}
    with pytest.raises(InvalidRequest, match=r"no table service is named .*; use clean, .*, ttl, census"):
        table.run_services(["senses"])


def test_registered_service_runs_in_the_background_thread(census: Census) -> None:
    table = new_table("census-thread")
    with table.background_services(pause_seconds=60) as background:
        assert write(table)["census"].startswith("off")
        assert write(table)["census"].startswith("off")
    assert background.last["census"] == "run: 2 commits counted"
    assert write(table)["census"].startswith("not due")


def test_registered_service_runs_when_the_table_is_served(census: Census) -> None:
    table = new_table("census-served")
    write(table)
    write(table)
    stop, seen = threading.Event(), []

    def record(outcomes: Mapping[str, str]) -> None:
        seen.append(outcomes["census"])
        stop.set()

    table.serve(stop, pause_seconds=600, on_run=record)
    assert seen == ["run: 2 commits counted"]
