"""Lock of the Hive metastore, compatible with Hudi's HiveMetastoreBasedLockProvider: an exclusive Hive lock on a table,
over thriftpy2.

1. `lock` requests it. ACQUIRED: it is held. WAITING: the request is in the server's queue; as in Hudi, it is cancelled
   at once and repeated later.
2. `heartbeat` renews it. The server drops a lock without heartbeats for `hive.txn.timeout` (300 s), and reports that on
   the next request.
3. `unlock` releases it.

The table need not exist. The server identifies a lock by a number, so a lost response leaves a lock of unknown number:
it is found by the agent text of our request.

No SASL (Kerberos) and no TLS; hive-site.xml is not read.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.options import lock_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.lease import LeaseLock
from pyhudi.storage.process_identity import user_name
from pyhudi.storage.thrift_client import connect_to_first, load_messages, metastore_address

_ANSWER_TIMEOUT_MS = 20_000
# The server's timeout is far longer; this is how long a recent response is trusted.
_TRUST_MS = 5_000


@dataclass(frozen=True, slots=True)
class HiveLockSettings(OptionSettings):
    """Options of the Hive metastore lock.  heartbeat_ms: milliseconds between two renewals of a lock."""

    uris: Annotated[tuple[str, ...], lock_options.HIVEMETASTORE_URIS] = ()
    database: Annotated[str | None, lock_options.HIVEMETASTORE_DATABASE] = None
    table: Annotated[str | None, lock_options.HIVEMETASTORE_TABLE] = None
    heartbeat_ms: Annotated[int, lock_options.HEARTBEAT_INTERVAL_MS] = 60_000


class HiveLock(LeaseLock):
    """Lock on a Hive table.  Raises InvalidRequest if settings are missing or thriftpy2 is not installed."""

    def __init__(self, env: Environment, settings: HiveLockSettings, *, wait_ms: int = 60_000) -> None:
        for option, value in (
            (lock_options.HIVEMETASTORE_URIS, settings.uris),
            (lock_options.HIVEMETASTORE_DATABASE, settings.database),
            (lock_options.HIVEMETASTORE_TABLE, settings.table),
        ):
            if not value:
                raise InvalidRequest(f"the Hive metastore lock provider requires the option {option}")
        self._servers = tuple(metastore_address(str(lock_options.HIVEMETASTORE_URIS), uri) for uri in settings.uris)
        _messages()
        super().__init__(
            env, validity_ms=2 * settings.heartbeat_ms, renew_ms=settings.heartbeat_ms, wait_ms=wait_ms, trusted_ms=_TRUST_MS
        )
        self._settings = settings
        # Agent text of our requests, of the current acquisition or hold.
        self._agent = ""
        self._in_doubt = False
        self._lock_id: int | None = None
        self._client: Any = None

    @property
    def _where(self) -> str:
        return f"{self._settings.uris[0]}/{self._settings.database}/{self._settings.table}"

    def _begin_to_wait(self) -> None:
        self._agent, self._in_doubt, self._lock_id = f"pyhudi {self._env.uuid4()}", False, None

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        # Locks of an interrupted request are found by their agent text.
        self._in_doubt = self._in_doubt or (outcome_unknown and not acquired and self._agent != "")
        if not acquired and (self._in_doubt or self._lock_id is not None):
            self._release_quietly()

    def _try_acquire(self) -> str | None:
        messages, settings = _messages(), self._settings
        if self._in_doubt or self._lock_id is not None:
            self._release_lease()
        component = messages.LockComponent(
            type=messages.LockType.EXCLUSIVE,
            level=messages.LockLevel.TABLE,
            dbname=settings.database,
            tablename=settings.table,
        )
        request = messages.LockRequest(
            component=[component], user=user_name(), hostname=socket.gethostname(), agentInfo=self._agent
        )
        self._in_doubt = True
        answer = self._request(lambda client: client.lock(request))
        self._lock_id, self._in_doubt = answer.lockid, False
        if answer.state == messages.LockState.ACQUIRED:
            return None
        holder = self._holder()
        self._release_lease()
        return f"{holder} holds it"

    def _extend(self) -> str | None:
        messages = _messages()
        request = messages.HeartbeatRequest(lockid=self._lock_id)
        try:
            self._request(lambda client: client.heartbeat(request))
        except (messages.NoSuchLockException, messages.NoSuchTxnException, messages.TxnAbortedException) as error:
            return f"the metastore does not know the lock: {error.message}"
        return None

    def _release_lease(self) -> str | None:
        messages = _messages()
        numbers = [self._lock_id] if self._lock_id is not None else []
        if self._in_doubt:
            numbers = [lock.lockid for lock in self._locks() if lock.agentInfo == self._agent]
        lost = None
        for number in numbers:
            request = messages.UnlockRequest(lockid=number)
            try:
                self._request(partial(_unlock, request))
            except messages.NoSuchLockException as error:
                lost = f"the metastore does not know the lock: {error.message}"
        self._lock_id, self._in_doubt = None, False
        return lost

    def _clear_lease(self) -> None:
        # In a forked child the connection is the parent's: it is dropped without a request.
        self._lock_id, self._client = None, None

    def _holder(self) -> str:
        """The current holder, as reported by the server."""
        acquired = _messages().LockState.ACQUIRED
        return next(
            (f"{lock.user} on {lock.hostname} ({lock.agentInfo})" for lock in self._locks() if lock.state == acquired),
            "another",
        )

    def _locks(self) -> list[Any]:
        request = _messages().ShowLocksRequest(dbname=self._settings.database, tablename=self._settings.table)
        locks: list[Any] = self._request(lambda client: client.show_locks(request)).locks
        return locks

    def _request(self, request: Callable[[Any], Any]) -> Any:
        """Send one request and return its response. Raises StorageUnavailable, or the server's exceptions about unknown locks."""
        from thriftpy2.thrift import TException

        messages = _messages()
        try:
            if self._client is None:
                self._client = self._connected()
            return request(self._client)
        except (messages.NoSuchLockException, messages.NoSuchTxnException, messages.TxnAbortedException):
            raise
        except (TException, OSError) as error:
            # Further data on this connection may belong to the failed request.
            self._close()
            raise StorageUnavailable(f"{self._where}: the Hive metastore did not execute the request: {error!r}") from error
        except BaseException:
            # The answer of an interrupted request is still to come.
            self._close()
            raise

    def _connected(self) -> Any:
        return connect_to_first(_messages().HiveMetastore, self._servers, self._where, _ANSWER_TIMEOUT_MS)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _unlock(request: Any, client: Any) -> None:
    client.unlock(request)


@cache
def _messages() -> Any:
    """Messages and service of the Thrift definition next to this module."""
    return load_messages(
        Path(__file__).with_name("hive_metastore.thrift"),
        "pyhudi_hive_metastore_thrift",
        "the Hive metastore lock provider",
    )
