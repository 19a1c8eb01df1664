"""Commit callbacks: settings, and the steps of a write around its commit.

    before the commit    a notice of the message is stored in the table
    after the commit     the message is delivered, and the notice is deleted

A message whose notice remains, because the receiver did not answer or the process died, is delivered by the next write
with callbacks. The implementation is `features.commit_callbacks`.

Source: docs/decisions/0031-validators-callbacks-metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pyhudi import features
from pyhudi.errors import HudiError
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options import callback_options
from pyhudi.options.callback_options import CALLBACK_ON
from pyhudi.options.declaration import Options, read_settings
from pyhudi.table.table_context import TableContext

_PURPOSE = f"option {CALLBACK_ON}"


@dataclass(frozen=True, slots=True)
class CallbackSettings:
    """Settings of commit callbacks.

    Attributes:
        enabled: True if a write sends messages.
        names: Class names of Hudi's callbacks, and names of registered ones.
        url: URL of the HTTP callback.
        api_key: Its key.
        timeout_s: Seconds for one delivery.
        headers: Text of its further headers.
        retries: Number of retries of a failed delivery.
        servers: Kafka brokers.
        topic: Kafka topic.
        partition: Kafka partition, None for one by key.
        acks: Acknowledgements of Kafka.
        kafka_retries: Retries of the Kafka client.
    """

    enabled: Annotated[bool, CALLBACK_ON]
    names: Annotated[tuple[str, ...], callback_options.CALLBACK_CLASS]
    url: Annotated[str | None, callback_options.CALLBACK_URL] = field(repr=False)
    api_key: Annotated[str, callback_options.CALLBACK_API_KEY] = field(repr=False)
    timeout_s: Annotated[int, callback_options.CALLBACK_TIMEOUT]
    headers: Annotated[str | None, callback_options.CALLBACK_HEADERS] = field(repr=False)
    retries: Annotated[int, callback_options.CALLBACK_RETRIES]
    servers: Annotated[str | None, callback_options.KAFKA_SERVERS]
    topic: Annotated[str | None, callback_options.KAFKA_TOPIC]
    partition: Annotated[int | None, callback_options.KAFKA_PARTITION]
    acks: Annotated[str, callback_options.KAFKA_ACKS]
    kafka_retries: Annotated[int, callback_options.KAFKA_RETRIES]

    @classmethod
    def of(cls, options: Options) -> CallbackSettings | None:
        """Build the settings from checked options; None if callbacks are off.

        Raises:
            InvalidRequest: A callback is unknown, or an option that it requires is missing or malformed.
            Unsupported: A callback requires a package that is not installed, or this installation has no callbacks.
        """
        settings = read_settings(cls, options)
        if not settings.enabled:
            return None
        features.load("commit_callbacks", _PURPOSE).check_settings(settings)
        return settings


@contextmanager
def callback_notice(settings: CallbackSettings | None, transaction: Transaction) -> Iterator[None]:
    """Store the notice of a message around the commit; it is deleted if the commit certainly failed."""
    if settings is None:
        yield
        return
    notices: Any = features.load("commit_callbacks", _PURPOSE)
    notices.store_notice(transaction)
    try:
        yield
    except BaseException as error:
        if transaction.can_roll_back(error):
            notices.delete_notice(transaction.context, transaction.instant_time)
        raise


def with_callbacks(context: TableContext, settings: CallbackSettings | None, result: WriteResult) -> WriteResult:
    """Deliver the messages of a write and those that earlier writes left, and add the outcomes to the result.

    No failure here affects the commit.
    """
    if settings is None or result.instant is None:
        return result
    try:
        outcomes = features.load("commit_callbacks", _PURPOSE).deliver(context, settings, result.instant)
    except HudiError as error:
        outcomes = dict.fromkeys(settings.names, f"failed: {error}")
    return replace(result, callbacks=outcomes)
