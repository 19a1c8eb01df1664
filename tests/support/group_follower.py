"""A writer that has found the table lock taken and staged its batch, stopped there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi import Table, WriteResult
from pyhudi.api.grouped_writes import _digest
from pyhudi.engines.arrow.grouping_engine import GroupingEngine
from pyhudi.operations.write.group_commit import WaitingGroup
from pyhudi.operations.write.group_members import Member
from pyhudi.operations.write.group_tickets import Ticket, stage_batch
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.scope import operation_for
from pyhudi.storage.process_identity import Process


class Follower:
    """One such writer.  It goes on with `poll` and `finish`."""

    def __init__(self, table: Table, rows: pa.Table, operation: str = "upsert", **changes: Any) -> None:
        """changes: fields of its ticket."""
        parsed = table._open.parse(operation_for(WriteOperation(operation)), None)
        settings = replace(WriteSettings.of(parsed, WriteOperation(operation)), group="never")
        context, digest = table.context, _digest(parsed, settings)
        wait_ms = settings.commit.lock_wait_ms
        name = f"{context.env.now_ms():013d}-{context.env.uuid4()}"
        ticket = Ticket(name, digest, context.timeline.load().latest_time(), Process.current().text, wait_ms)
        self.ticket = replace(ticket, **changes)
        stage_batch(context.storage, self.ticket, rows)
        now_ms = context.env.monotonic_ms()
        self.member = Member(rows, now_ms, now_ms + wait_ms, ticket=self.ticket)
        self.group = WaitingGroup(context, GroupingEngine(1), settings, digest, [self.member])

    def poll(self) -> None:
        """Look once."""
        self.group._poll()

    def finish(self) -> WriteResult:
        """Wait to the end."""
        self.group.run()
        if self.member.error is not None:
            raise self.member.error
        assert self.member.result is not None
        return self.member.result
