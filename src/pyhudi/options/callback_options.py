"""Options of commit callbacks."""

from __future__ import annotations

from pyhudi.options.declaration import Option

HTTP_CALLBACK = "org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback"
KAFKA_CALLBACK = "org.apache.hudi.utilities.callback.kafka.HoodieWriteCommitKafkaCallback"

CALLBACK_ON = Option("hoodie.write.commit.callback.on", bool, "false", "a write sends a message after its commit")
CALLBACK_CLASS = Option(
    "hoodie.write.commit.callback.class",
    str,
    HTTP_CALLBACK,
    "callbacks, separated by commas: Hudi's classes for HTTP and Kafka, and names registered with "
    "`pyhudi.register_commit_callback`",
)
CALLBACK_URL = Option("hoodie.write.commit.callback.http.url", str, None, "URL that HTTP callbacks are posted to")
CALLBACK_API_KEY = Option(
    "hoodie.write.commit.callback.http.api.key",
    str,
    "hudi_write_commit_http_callback",
    "value of the header `HUDI-CALLBACK-KEY`",
)
CALLBACK_TIMEOUT = Option(
    "hoodie.write.commit.callback.http.timeout.seconds", int, "30", "seconds for one HTTP request or Kafka message", at_least=1
)
CALLBACK_HEADERS = Option(
    "hoodie.write.commit.callback.http.custom.headers", str, None, "further headers, as `Name1:value1;Name2:value2`"
)
CALLBACK_RETRIES = Option(
    "pyhudi.write.commit.callback.retries",
    int,
    "3",
    "retries of a failed callback before it is left to the next write",
    at_least=0,
)
KAFKA_SERVERS = Option("hoodie.write.commit.callback.kafka.bootstrap.servers", str, None, "Kafka brokers, as `host:port,...`")
KAFKA_TOPIC = Option("hoodie.write.commit.callback.kafka.topic", str, None, "topic of the messages")
KAFKA_PARTITION = Option(
    "hoodie.write.commit.callback.kafka.partition",
    int,
    None,
    "partition of the messages; unset: by their key, the table name",
    at_least=0,
)
KAFKA_ACKS = Option(
    "hoodie.write.commit.callback.kafka.acks", ("all", "-1", "0", "1"), "all", "acknowledgements that a message waits for"
)
KAFKA_RETRIES = Option(
    "hoodie.write.commit.callback.kafka.retries", int, "3", "retries of the Kafka client within the timeout", at_least=0
)
