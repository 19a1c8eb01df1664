"""One table in HDFS, used in turn by Apache Hudi through Hadoop's client and by PyHudi through WebHDFS."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pyhudi import Table
from tests.conformance.cloud_servers import Hdfs, running_hdfs
from tests.conformance.cloud_tables import batch, rows_of
from tests.interop.oracle import ApacheHudi

pytestmark = pytest.mark.wide

LOCK = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
}


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_pyhudi_alternate_on_hdfs(hudi: ApacheHudi, hdfs: Hdfs, kind: str) -> None:
    uri = f"{hdfs.uri}/{uuid.uuid4().hex}/trips"
    options: dict[str, Any] = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        **LOCK,
    }
    short = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}[kind]
    reach = hdfs.options
    Table.create(uri, name="trips", record_key="id", partition_by="city", ordering="ts", table_type=short, storage_options=reach)
    ours = Table(uri, reach, options=LOCK)
    expected: dict[int, int] = {}

    def check() -> None:
        assert rows_of(ours.scan(columns=["id", "ts"]).to_arrow()) == expected
        assert rows_of(hudi.read(uri, columns=["id", "ts"])) == expected

    ours.insert(batch(range(8), 1))
    expected |= dict.fromkeys(range(8), 1)
    check()
    hudi.write(batch(range(4), 2), uri, **options)
    expected |= dict.fromkeys(range(4), 2)
    check()
    ours.upsert(batch(range(2, 10), 3))
    expected |= dict.fromkeys(range(2, 10), 3)
    check()
    if kind == "MERGE_ON_READ":
        ours.compact()
        check()
        hudi.write(batch(range(3), 4), uri, **options)
        expected |= dict.fromkeys(range(3), 4)
        hudi.call("run_compaction", op="scheduleAndExecute", path=uri)
        check()
    ours.clean(dry_run=False)
    check()
    assert ours.validate().ok
