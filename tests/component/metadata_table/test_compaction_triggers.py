"""What makes a compaction of the metadata table due."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.storage.environment import ReplayEnvironment

TRIGGER = "hoodie.metadata.compact.trigger.strategy"
SECONDS: dict[str, Any] = {"hoodie.metadata.compact.max.delta.seconds": 600, "hoodie.metadata.compact.max.delta.commits": 3}


@pytest.mark.parametrize(
    ("trigger", "runs"),
    [
        # The commits that built it count, too.
        ("NUM_COMMITS", (True, False, False, True)),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", (False, False, True, False)),
        ("TIME_ELAPSED", (False, True, False, True)),
        ("NUM_AND_TIME", (False, False, True, False)),
        ("NUM_OR_TIME", (False, True, False, True)),
    ],
)
def test_a_compaction_of_the_metadata_table_is_due_by_its_trigger(trigger: str, runs: tuple[bool, ...]) -> None:
    """Each write but the first is ten minutes after the one before it, or one second."""
    environment = ReplayEnvironment(5)
    table = hp.Table.create(f"memory://trigger-{trigger}", record_key="id", environment=environment)
    seen = []
    for number, seconds in enumerate((1, 700, 1, 700)):
        environment.step_ms(seconds * 1000)
        result = table.upsert(pa.table({"id": [str(number)]}), options={**SECONDS, TRIGGER: trigger})
        seen.append(str(result.services["metadata"]).startswith("run: compaction"))
    assert tuple(seen) == runs, {name: str(state) for name, state in result.services.items()}
    assert table.validate().ok
    assert table.scan().count() == 4
