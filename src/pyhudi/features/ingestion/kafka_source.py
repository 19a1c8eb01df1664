"""A Kafka topic, read with the client of Confluent (librdkafka).

The checkpoint has the next offset of each partition, as that of Hudi's KafkaSource: `topic,0:123,1:456`. Offsets are not
committed to Kafka: the checkpoint in the table is decisive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, StorageUnavailable, TableState
from pyhudi.features.ingestion.json_lines import json_rows, reporter
from pyhudi.features.ingestion.row_checks import cast_to_schema, unified
from pyhudi.features.ingestion.schema_registry import SchemaRegistry
from pyhudi.features.ingestion.source_protocol import Batch, Limit, ReadContext
from pyhudi.format.avro_columns import avro_records
from pyhudi.storage.uris import without_secrets

FORMATS = ("json", "avro", "text")
_STARTS = ("earliest", "latest")
_ON_LOSS = ("stop", "continue")
_CHECKPOINT = re.compile(r"([^,]+)((?:,[0-9]{1,10}:[0-9]{1,18})+)")
_DEFAULT_BYTES = 256 << 20
_POLL_S = 30.0
_POLLS = 60
_MESSAGES = 10_000
_BLOCK = 16_384
_HEADER = 5  # of a value with a schema id: a zero byte and four bytes
TEXT_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
    ]
)

Offsets = Mapping[int, int]


def parse_offsets(checkpoint: str, topic: str) -> Offsets:
    """Return the next offset of each partition. Raises InvalidRequest for a checkpoint of another topic or source."""
    match = _CHECKPOINT.fullmatch(checkpoint)
    if match is None or match[1] != topic:
        raise InvalidRequest(
            f"checkpoint {checkpoint[:200]!r} has no offsets of topic {topic}: another source wrote it; set checkpoint in the "
            f"job to begin elsewhere, such as {topic},0:0"
        )
    pairs = (pair.partition(":") for pair in match[2][1:].split(","))
    return {int(partition): int(offset) for partition, _, offset in pairs}


def format_offsets(topic: str, offsets: Offsets) -> str:
    """Return the checkpoint of offsets."""
    return ",".join([topic, *(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))])


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Messages of a topic.

    Attributes:
        topic: The topic.
        servers: `bootstrap.servers`.
        format: json (an object in each value), avro (Confluent's wire format) or text (key, value, topic, partition, offset
            and time of each message).
        start: Where a job without a checkpoint begins: earliest or latest.
        on_data_loss: stop if messages after the checkpoint were deleted from the topic, or continue with the earliest.
        skip_tombstones: Ignore messages without a value; otherwise they are bad rows.
        registry: Schema registry, for avro.
        options: Further options of the client, such as `security.protocol` and `sasl.password`.
    """

    topic: str
    servers: str
    format: str = "json"
    start: str = "earliest"
    on_data_loss: str = "stop"
    skip_tombstones: bool = False
    registry: SchemaRegistry | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("format", self.format, FORMATS),
            ("start", self.start, _STARTS),
            ("on_data_loss", self.on_data_loss, _ON_LOSS),
        ):
            if value not in allowed:
                raise InvalidRequest(f"source kafka has {name}={value!r}: choose from {', '.join(allowed)}")
        if self.format == "avro" and self.registry is None:
            raise InvalidRequest("source kafka with format=avro needs registry, the address of a schema registry")

    def read(self, checkpoint: str | None, limit: Limit) -> Batch | None:
        """Return the messages after a checkpoint; None if there are none. The messages are held in memory, at most
        `limit`, by default 256 MiB.
        """
        with self._consumer() as consumer:
            ranges = self._ranges(consumer, checkpoint)
            starts = {partition: begin for partition, (begin, _) in ranges.items()}
            if checkpoint is None and self.start == "latest":
                return Batch(_Messages(self, {}), format_offsets(self.topic, {p: end for p, (_, end) in ranges.items()}))
            messages, ends, size = self._consume(consumer, starts, ranges, limit)
            remaining = sum(max(end - ends[partition], 0) for partition, (_, end) in ranges.items())
        if ends == starts and checkpoint is not None and set(starts) == set(parse_offsets(checkpoint, self.topic)):
            return None
        return Batch(_Messages(self, messages), format_offsets(self.topic, ends), {"rows": remaining}, size)

    def ranges(self, checkpoint: str | None) -> Mapping[int, tuple[int, int]]:
        """Return the first new offset of each partition and the offset after the last message."""
        with self._consumer() as consumer:
            return self._ranges(consumer, checkpoint)

    def _ranges(self, consumer: Any, checkpoint: str | None) -> Mapping[int, tuple[int, int]]:
        import confluent_kafka as kafka

        known = {} if checkpoint is None else parse_offsets(checkpoint, self.topic)
        topic = consumer.list_topics(self.topic, timeout=_POLL_S).topics.get(self.topic)
        if topic is None or topic.error is not None or not topic.partitions:
            raise TableState(f"topic {self.topic} does not exist at {self.servers}")
        missing = sorted(set(known) - set(topic.partitions))
        if missing:
            raise TableState(
                f"the checkpoint has partition {missing[0]} of topic {self.topic}, which the topic lacks: was it recreated?"
            )
        ranges = {}
        for partition in topic.partitions:
            low, high = consumer.get_watermark_offsets(kafka.TopicPartition(self.topic, partition), timeout=_POLL_S)
            begin = known.get(partition, low)
            if not low <= begin <= high:
                if self.on_data_loss == "stop":
                    raise TableState(
                        f"messages of topic {self.topic} are lost: the checkpoint continues at offset {begin} of partition "
                        f"{partition}, which has offsets {low} to {high}. Set on_data_loss to continue, to read from offset {low}"
                    )
                begin = low
            ranges[partition] = (begin, high)
        return ranges

    def _consume(
        self, consumer: Any, starts: Offsets, ranges: Mapping[int, tuple[int, int]], limit: Limit
    ) -> tuple[dict[int, list[Any]], dict[int, int], dict[str, int]]:
        """Messages by partition up to the limit, the next offsets, and the number of messages and of their bytes."""
        import confluent_kafka as kafka

        most_bytes = _DEFAULT_BYTES if limit.size_bytes is None else limit.size_bytes
        messages: dict[int, list[Any]] = {partition: [] for partition in starts}
        ends, rows, size_bytes, idle = dict(starts), 0, 0, 0
        reading = {partition for partition, (begin, end) in ranges.items() if begin < end}
        consumer.assign([kafka.TopicPartition(self.topic, partition, starts[partition]) for partition in sorted(reading)])
        while reading and size_bytes < most_bytes and (limit.rows is None or rows < limit.rows):
            left = sum(ranges[partition][1] - ends[partition] for partition in reading)
            wanted = min(_MESSAGES, left if limit.rows is None else min(left, limit.rows - rows))
            # The client waits until it has as many, or for the timeout.
            received = consumer.consume(wanted, timeout=_POLL_S / _POLLS)
            idle = 0 if received else idle + 1
            if idle == _POLLS:
                raise StorageUnavailable(
                    f"Kafka at {self.servers} sent no message of topic {self.topic} within {_POLL_S:g} seconds"
                )
            for message in received:
                partition, error = message.partition(), message.error()
                if size_bytes >= most_bytes:
                    break
                if error is not None:
                    if error.code() != kafka.KafkaError._PARTITION_EOF:
                        raise kafka.KafkaException(error)
                    # Behind the last message there may be markers of transactions.
                    ends[partition] = max(ends[partition], message.offset())
                    reading.discard(partition)
                    continue
                if message.offset() >= ranges[partition][1]:
                    reading.discard(partition)
                    continue
                messages[partition].append(message)
                ends[partition] = message.offset() + 1
                rows, size_bytes = rows + 1, size_bytes + len(message.value() or b"")
                if ends[partition] >= ranges[partition][1]:
                    reading.discard(partition)
        return messages, ends, {"rows": rows, "bytes": size_bytes}

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """A consumer. Its errors are translated, without the values of options."""
        try:
            import confluent_kafka as kafka
        except ImportError:
            raise InvalidRequest('source kafka needs confluent-kafka: pip install "pyhudi[kafka]"') from None
        settings = {
            "group.id": "pyhudi-ingestion",
            **{key: str(value) for key, value in self.options.items()},
            "bootstrap.servers": self.servers,
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
        try:
            consumer = kafka.Consumer(settings, logger=_Silent())
            try:
                yield consumer
            finally:
                consumer.close()
        except kafka.KafkaException as error:
            cause = error.args[0] if error.args else None
            text = without_secrets(cause.str() if isinstance(cause, kafka.KafkaError) else str(error))
            for value in map(str, self.options.values()):
                text = text.replace(value, "***") if len(value) > 3 else text
            is_setting = isinstance(cause, kafka.KafkaError) and cause.code() == kafka.KafkaError._INVALID_ARG
            error_class = InvalidRequest if is_setting else StorageUnavailable
            raise error_class(f"source kafka cannot read topic {self.topic} at {self.servers}: {text}") from None


class _Silent:
    """The client logs connection attempts, which the error that follows reports."""

    def log(self, *_: object, **__: object) -> None:
        """Take the place of a logger."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """Opens messages as a stream."""

    source: KafkaSource
    messages: Mapping[int, Sequence[Any]]

    def __call__(self, context: ReadContext) -> pa.RecordBatchReader:
        if self.source.format == "text":
            return pa.RecordBatchReader.from_batches(TEXT_SCHEMA, self._texts())
        values = {partition: self._values(partition, context) for partition in sorted(self.messages)}
        if self.source.format == "avro":
            return self._avro(values, context)
        if not any(values.values()) and context.schema is None:
            return pa.RecordBatchReader.from_batches(pa.schema([]), iter(()))

        def blocks() -> Iterator[tuple[str, list[bytes]]]:
            for partition, contents in values.items():
                for start in range(0, len(contents), _BLOCK):
                    yield self._origin(partition), contents[start : start + _BLOCK]

        return json_rows(blocks, context)

    def _origin(self, partition: int) -> str:
        return f"{self.source.topic}-{partition}"

    def _values(self, partition: int, context: ReadContext) -> list[bytes]:
        values = [message.value() for message in self.messages[partition]]
        tombstones = values.count(None)
        if tombstones and not self.source.skip_tombstones:
            offsets = [f"offset {message.offset()}" for message in self.messages[partition] if message.value() is None]
            context.reject(offsets, ["the message has no value (tombstone)"] * tombstones, self._origin(partition))
        return [value for value in values if value is not None]

    def _texts(self) -> Iterator[pa.RecordBatch]:
        for partition, messages in sorted(self.messages.items()):
            for start in range(0, len(messages), _BLOCK):
                part = messages[start : start + _BLOCK]
                columns = [
                    _text_column([message.key() for message in part]),
                    _text_column([message.value() for message in part]),
                    pa.array([self.source.topic] * len(part), pa.string()),
                    pa.array([partition] * len(part), pa.int32()),
                    pa.array([message.offset() for message in part], pa.int64()),
                    pa.array([message.timestamp()[1] for message in part], pa.int64()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=TEXT_SCHEMA)

    def _avro(self, values: Mapping[int, list[bytes]], context: ReadContext) -> pa.RecordBatchReader:
        registry = self.source.registry
        assert registry is not None, "the constructor has checked it"
        parts = [
            (partition, number, part)
            for partition, contents in values.items()
            for number, part in self._by_schema(partition, contents, context)
        ]
        schemas = {number: avro_records(registry.by_id(number)) for number in sorted({number for _, number, _ in parts})}
        schema = context.schema if context.is_complete else unified([records.schema for records in schemas.values()])
        assert schema is not None, "a complete schema is one"
        nullable = pa.schema([field.with_nullable(True) for field in schema])

        def rows() -> Iterator[pa.RecordBatch]:
            for partition, number, bodies in parts:
                for start in range(0, len(bodies), _BLOCK):
                    report = reporter(context, self._origin(partition))
                    for batch in _decoded(bodies.slice(start, _BLOCK), schemas[number], report):
                        yield cast_to_schema(batch, nullable, context, self._origin(partition))

        return pa.RecordBatchReader.from_batches(nullable, rows())

    def _by_schema(self, partition: int, values: list[bytes], context: ReadContext) -> Iterator[tuple[int, pa.Array]]:
        """Bodies of the messages with one schema, in order within it."""
        if not values:
            return
        numbers = np.array(
            [int.from_bytes(value[1:_HEADER], "big") if len(value) >= _HEADER and value[0] == 0 else -1 for value in values]
        )
        bad = [values[row] for row in np.flatnonzero(numbers < 0)]
        if bad:
            reporter(context, self._origin(partition))(bad, ["the value has no schema id of a registry"] * len(bad))
        for number in sorted(set(numbers.tolist()) - {-1}):
            yield number, pa.array([values[row][_HEADER:] for row in np.flatnonzero(numbers == number)], pa.binary())


def _decoded(bodies: pa.Array, records: Any, report: Any) -> Iterator[pa.RecordBatch]:
    if not len(bodies):
        return
    try:
        yield records.decode_values(bodies)
    except (CorruptData, pa.ArrowException) as error:
        if len(bodies) == 1:
            report([bodies[0].as_py()], [f"the value breaks its Avro schema: {error}"])
            return
        half = len(bodies) // 2
        yield from _decoded(bodies.slice(0, half), records, report)
        yield from _decoded(bodies.slice(half), records, report)


def _text_column(values: list[bytes | None]) -> pa.Array:
    return pa.array([None if value is None else value.decode("utf-8", "backslashreplace") for value in values], pa.string())
