"""Commit callbacks by HTTP, Kafka and functions, delivered at least once."""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.features.commit_callbacks import receivers
from pyhudi.options.callback_options import KAFKA_CALLBACK
from tests.support.http_receiver import HttpReceiver, http_receiver

ON = {"hoodie.write.commit.callback.on": True, "pyhudi.write.commit.callback.retries": 1}
HTTP = "HoodieWriteCommitHttpCallback"
_numbers = itertools.count()

# What Hudi 1.1.1 posts for an insert into one partition, without values that differ between runs.
HUDI_BODY = (
    '{"commitTime":"20261126060406984","tableName":"t","basePath":"/t","hoodieWriteStat":[{"numInserts":3,"numUpdates":0,'
    '"numDeletes":0,"totalLogReadTimeMs":0,"totalLogRecords":0,"totalLogFilesCompacted":0,"totalLogSizeCompacted":0,'
    '"totalUpdatedRecordsCompacted":0,"totalLogBlocks":0,"totalCorruptLogBlock":0,"totalRollbackBlocks":0,"fileId":"8-0",'
    '"path":"a/8-0_0-32-32_20261126060406984.parquet","cdcStats":null,"prevCommit":"null","numWrites":3,"numUpdateWrites":0,'
    '"totalWriteBytes":435135,"totalWriteErrors":0,"tempPath":null,"partitionPath":"a","fileSizeInBytes":435135,'
    '"minEventTime":null,"maxEventTime":null,"prevBaseFile":null,"runtimeStats":{"totalScanTime":0,"totalUpsertTime":0,'
    '"totalCreateTime":226},"columnStats":{"empty":true,"present":false}}],"commitActionType":{"empty":false,"present":true},'
    '"extraMetadata":{"empty":false,"present":true}}'
)
LOG_FIELDS = ["logVersion", "logOffset", "baseFile", "logFiles"]


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def new_table(uri: str | None = None, **more: Any) -> hp.Table:
    uri = uri or f"memory://callbacks-{next(_numbers)}/t"
    return hp.Table.create(uri, name="t", record_key="id", partition_by="part", ordering="ts", **more)


def rows(*ids: int, part: str = "a", ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "part": [part] * len(ids), "ts": [ts] * len(ids)})


def http(receiver: HttpReceiver, **more: Any) -> dict[str, Any]:
    return {**ON, "hoodie.write.commit.callback.http.url": f"{receiver.url}/hook?token=secret-token", **more}


def function(call: Any) -> dict[str, Any]:
    name = f"callback-{next(_numbers)}"
    hp.register_commit_callback(name, call)
    return {**ON, "hoodie.write.commit.callback.class": name}


def instants(receiver: HttpReceiver) -> list[str]:
    return [json.loads(request.body)["commitTime"] for request in receiver.requests]


def notices(table: hp.Table) -> list[str]:
    return sorted(info.path for info in table.context.storage.list(".hoodie/.callbacks").files)


def shape(value: Any) -> Any:
    """Names in order, and kinds of values; the values of optional ones, which only PyHudi sends, are left out."""
    if isinstance(value, dict):
        return [(name, shape(part)) for name, part in value.items() if name != "value"]
    return [shape(part) for part in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_body_and_the_headers_are_those_of_hudi(receiver: HttpReceiver, kind: str) -> None:
    table = new_table(table_type=kind)
    options = http(receiver, **{"hoodie.write.commit.callback.http.custom.headers": "A:1;B: x y", "commit.team": "x"})
    options["hoodie.datasource.write.commitmeta.key.prefix"] = "commit."
    result = table.upsert(rows(1, 2, 3), options=options)
    assert result.callbacks == {"org.apache.hudi.callback.impl." + HTTP: "delivered"}
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook?token=secret-token")
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["hudi-callback-key"] == "hudi_write_commit_http_callback"
    assert headers["content-type"] == "application/json; charset=UTF-8"
    assert (headers["a"], headers["b"]) == ("1", "x y")
    body = json.loads(request.body)
    assert shape(body) == shape(json.loads(HUDI_BODY))
    assert body["commitTime"] == result.instant and body["tableName"] == "t" and body["basePath"] == table.uri
    assert body["hoodieWriteStat"][0]["numInserts"] == 3
    assert body["commitActionType"]["value"] == ("commit" if kind == "cow" else "deltacommit")
    assert body["extraMetadata"]["value"]["commit.team"] == "x" and "schema" not in body["extraMetadata"]["value"]
    assert not notices(table)


def test_statistics_of_log_files_have_their_fields(receiver: HttpReceiver) -> None:
    table = new_table(table_type="mor", options={"hoodie.compact.inline": False})
    table.upsert(rows(1))
    table.upsert(rows(1, ts=2), options=http(receiver))
    (stat,) = json.loads(receiver.requests[0].body)["hoodieWriteStat"]
    assert [name for name in stat if name in LOG_FIELDS] == LOG_FIELDS and stat["logFiles"]


def test_a_receiver_that_fails_does_not_fail_the_commit_and_gets_the_message_later(receiver: HttpReceiver) -> None:
    table = new_table()
    receiver.statuses[:] = [503, 500]
    first = table.upsert(rows(1), options=http(receiver))
    assert "status 500" in first.callbacks["org.apache.hudi.callback.impl." + HTTP]
    assert table.count() == 1 and len(notices(table)) == 1
    second = table.upsert(rows(2), options=http(receiver))
    # The process of the first write is alive, so its message may still be on its way.
    assert list(second.callbacks.values()) == ["delivered"]
    age(table)
    third = table.upsert(rows(3), options=http(receiver))
    assert third.callbacks[f"of {first.instant}"] == "delivered"
    assert instants(receiver)[2:] == [second.instant, third.instant, first.instant]
    assert not notices(table)


def age(table: hp.Table) -> None:
    """Make the notices as old as if no process had worked on them for hours."""
    for info in table.context.storage.list(".hoodie/.callbacks").files:
        assert table.context.storage.set_modified(info.path, info.modified_ms - 10_000_000)


def test_the_message_of_a_dead_writer_is_delivered(receiver: HttpReceiver, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    program = (
        "import os, pyarrow as pa, pyhudi as hp\n"
        "hp.register_commit_callback('die', lambda message: os._exit(9))\n"
        f"hp.Table({table.uri!r}).upsert(pa.table({{'id': [1], 'part': ['a'], 'ts': [1]}}), options={{"
        "'hoodie.write.commit.callback.on': True, 'hoodie.write.commit.callback.class': 'die'})\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert table.count() == 1 and len(notices(table)) == 1
    dead = table.timeline().instants[-1].request_time
    result = table.upsert(rows(2), options=http(receiver))
    assert instants(receiver) == [result.instant, dead]
    assert not notices(table)


def test_messages_of_archived_commits_are_delivered(receiver: HttpReceiver) -> None:
    table = new_table()
    receiver.statuses[:] = [500, 500]
    first = table.upsert(rows(1), options=http(receiver))
    for number in range(2, 8):
        table.upsert(rows(number))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1})
    assert first.instant not in [i.request_time for i in table.timeline().instants]
    age(table)
    table.upsert(rows(9), options=http(receiver))
    assert instants(receiver)[-1] == first.instant
    assert json.loads(receiver.requests[-1].body)["hoodieWriteStat"][0]["numInserts"] == 1


def test_a_rejected_message_is_reported_once(receiver: HttpReceiver) -> None:
    table = new_table()
    for status in (404, 302):
        receiver.statuses[:] = [status]
        before = len(receiver.requests)
        result = table.upsert(rows(1), options=http(receiver))
        (outcome,) = result.callbacks.values()
        assert "rejected" in outcome and str(status) in outcome and str(status) in str(result)
        assert len(receiver.requests) == before + 1
        assert not notices(table)


def test_functions_get_the_message_and_are_repeated() -> None:
    seen: list[hp.CommitMessage] = []

    def fails_once(message: hp.CommitMessage) -> None:
        seen.append(message)
        if len(seen) == 1:
            raise RuntimeError("not yet")

    table = new_table()
    result = table.upsert(rows(1), options=function(fails_once))
    assert list(result.callbacks.values()) == ["delivered"]
    assert seen[0] == seen[1] and seen[1].instant == result.instant
    assert (seen[1].action, seen[1].operation, seen[1].table, seen[1].uri) == ("commit", "UPSERT", "t", table.uri)
    failed = table.upsert(rows(2), options=function(lambda message: 1 / 0))
    (outcome,) = failed.callbacks.values()
    assert "ZeroDivisionError" in outcome and table.count() == 2


def test_several_callbacks_and_their_own_outcomes(receiver: HttpReceiver) -> None:
    options = http(receiver, **function(lambda message: 1 / 0))
    options["hoodie.write.commit.callback.class"] += f",{HTTP}"
    outcomes = list(new_table().upsert(rows(1), options=options).callbacks.values())
    assert "ZeroDivisionError" in outcomes[0] and outcomes[1] == "delivered"


def test_only_commits_send_messages(receiver: HttpReceiver) -> None:
    seen: list[str] = []
    options = function(lambda message: seen.append(f"{message.operation} {message.action}"))
    table = new_table()
    table.upsert(rows(1, 2), options=options)
    table.upsert(rows(), options=options)
    table.insert(rows(3), once=("app", 1), options=options)
    table.insert(rows(3), once=("app", 1), options=options)
    table.delete([2], options=options)
    table.insert_overwrite(rows(5, part="b"), options=options)
    table.delete_partitions(["b"], options=options)
    table.upsert(rows(8), options={**options, "pyhudi.write.group": "auto"})
    with pytest.raises(hp.InvalidRequest, match="rejects"):
        hp.register_validator(hp.Validator("never", lambda before, after: False))
        table.upsert(rows(9), options={**options, "hoodie.precommit.validators": "never"})
    expected = ["UPSERT commit", "UPSERT commit", "INSERT commit", "DELETE commit", "INSERT_OVERWRITE replacecommit"]
    assert seen == [*expected, "DELETE_PARTITION replacecommit", "UPSERT commit"]
    assert not notices(table)


def test_a_write_that_loses_a_conflict_sends_one_message() -> None:
    seen: list[str] = []
    table = new_table()
    table.upsert(rows(1, 2))
    other, begun = hp.Table(table.uri), list[bool]()

    def interfere(before: Any, after: Any) -> None:
        if not begun:
            begun.append(True)
            other.upsert(rows(2, ts=2))

    hp.register_validator(hp.Validator("interfere", interfere))
    options = function(lambda message: seen.append(message.instant))
    result = table.upsert(rows(1, ts=2), options={**options, "hoodie.precommit.validators": "interfere"})
    assert result.conflict_retries == 1 and seen == [result.instant]
    assert not notices(table)


def test_secrets_are_shown_nowhere(receiver: HttpReceiver, caplog: pytest.LogCaptureFixture) -> None:
    secrets = {"hoodie.write.commit.callback.http.api.key": "key-secret"}
    secrets["hoodie.write.commit.callback.http.custom.headers"] = "Authorization:Bearer header-secret"
    table = new_table()
    receiver.statuses[:] = [500, 500]
    with caplog.at_level(logging.DEBUG):
        result = table.upsert(rows(1), options=http(receiver, **secrets))
    texts = [str(result), repr(result.to_dict()), caplog.text]
    texts += [repr(table.context.timeline.read(instant)) for instant in table.timeline().completed_writes()]
    for name in secrets:
        with pytest.raises(hp.InvalidRequest) as failure:
            table.scan(options={name: secrets[name]})
        texts.append(str(failure.value))
        with pytest.raises(hp.InvalidRequest, match="secret"):
            table.set_properties({f"pyhudi.table.options.{name}": "x"})
    for text in texts:
        assert "-secret" not in text and "secret-token" not in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "requires option hoodie.write.commit.callback.http.url"),
        ({"hoodie.write.commit.callback.http.url": "ftp://x"}, "not an http or https URL"),
        ({"hoodie.write.commit.callback.http.url": "http://[x"}, "not an http or https URL"),
        ({"hoodie.write.commit.callback.class": "HoodieWriteCommitHttpCallbak"}, "did you mean .*HttpCallback"),
        ({"hoodie.write.commit.callback.class": " "}, "names no callback"),
        (
            {"hoodie.write.commit.callback.class": "org.apache.hudi.utilities.callback.pulsar.HoodieWriteCommitPulsarCallback"},
            "not supported",
        ),
        ({"hoodie.write.commit.callback.class": KAFKA_CALLBACK}, "bootstrap.servers"),
        (
            {"hoodie.write.commit.callback.http.url": "http://x", "hoodie.write.commit.callback.http.custom.headers": "a"},
            "not Name:value",
        ),
        ({"hoodie.write.commit.callback.http.timeout.seconds": 0}, "positive"),
        ({"hoodie.write.commit.callback.htp.url": "x"}, "unknown"),
    ],
)
def test_wrong_callback_options_are_rejected_before_the_write(options: dict[str, Any], text: str) -> None:
    table = new_table()
    with pytest.raises(hp.InvalidRequest, match=text):
        table.upsert(rows(1), options={**ON, **options})
    assert not table.timeline().instants


def test_arguments_of_a_registration_are_checked() -> None:
    for name, call in (("", len), ("a,b", len), ("a", 1)):
        with pytest.raises(hp.InvalidRequest):
            hp.register_commit_callback(name, call)  # type: ignore[arg-type]


def test_kafka_gets_the_message_by_table_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    produced: list[dict[str, Any]] = []

    class Recording:
        def __init__(self, settings: dict[str, Any]) -> None:
            self._inner = producer(settings)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def produce(self, topic: str, value: bytes, **more: Any) -> None:
            produced.append({"topic": topic, "value": value, **more})
            self._inner.produce(topic, value, **more)

    producer = kafka.Producer
    monkeypatch.setattr(kafka, "Producer", Recording)
    chosen = receivers.producer_settings

    def with_mock_broker(*arguments: Any) -> dict[str, Any]:
        settings = chosen(*arguments)
        assert (settings["bootstrap.servers"], settings["acks"], settings["retries"]) == ("mock:9092", "1", 3)
        return {**settings, "bootstrap.servers": "", "test.mock.num.brokers": 1}

    monkeypatch.setattr(receivers, "producer_settings", with_mock_broker)
    prefix = "hoodie.write.commit.callback.kafka"
    options = {**ON, "hoodie.write.commit.callback.class": KAFKA_CALLBACK, f"{prefix}.bootstrap.servers": "mock:9092"}
    options |= {f"{prefix}.topic": "commits", f"{prefix}.acks": "1", f"{prefix}.partition": 2}
    result = new_table().upsert(rows(1), options=options)
    assert result.callbacks == {KAFKA_CALLBACK: "delivered"}
    (message,) = produced
    assert (message["topic"], message["key"], message["partition"]) == ("commits", b"t", 2)
    assert json.loads(message["value"])["commitTime"] == result.instant


def test_unreachable_kafka_broker_is_reported() -> None:
    pytest.importorskip("confluent_kafka")
    prefix = "hoodie.write.commit.callback"
    options = {**ON, f"{prefix}.class": KAFKA_CALLBACK, f"{prefix}.kafka.bootstrap.servers": "127.0.0.1:1"}
    options |= {f"{prefix}.kafka.topic": "commits", f"{prefix}.http.timeout.seconds": 1}
    options |= {"pyhudi.write.commit.callback.retries": 0}
    table = new_table()
    (outcome,) = table.upsert(rows(1), options=options).callbacks.values()
    assert "Kafka topic commits" in outcome and table.count() == 1


def test_without_callbacks_nothing_is_stored_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    monkeypatch.setattr("pyhudi.features.load", None)
    result = table.upsert(rows(1))
    assert not result.callbacks and not notices(table)
