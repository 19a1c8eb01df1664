"""Lock in ZooKeeper, compatible with Hudi's ZookeeperBasedLockProvider: the lock recipe of Apache Curator, over the
client of kazoo.

    <base path>/<lock key>                                          created if missing, one `create` per component
    <base path>/<lock key>/_c_<uuid>-lock-<10 digits>               one for each process that holds the lock or waits
    for it

1. A process that wants the lock creates an ephemeral sequential node. The server assigns the number; the smallest
   number after the last `lock-` holds the lock, as Curator orders them. (Curator orders the node names of kazoo's own
   recipe differently.)
2. A node exists as long as the session of its creator. So the lock is still ours if our node exists and belongs to the
   current session; the server is queried for it, after a `sync` with its leader.
3. The release deletes the node.

All locks of a process on the same servers share one session. A request without a response may have created a node of
unknown name: it is found by its uuid. If that query fails too, the session is ended, which deletes its nodes.

No TLS, SASL or digest authentication.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.options import lock_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.lease import LeaseLock
from pyhudi.storage.locks.lock_provider import LockWait

_MARK = "lock-"

# Servers retain a silent session for at least two ticks, and two ticks are longer than half a second.
_TRUST_MS = 1_000
_LAST_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class ZookeeperSettings(OptionSettings):
    """Options of the ZooKeeper lock.

    base_path, lock_key: path of the node; the key defaults to the table's name. session_timeout_ms: silence after which
    the server considers a client dead, within its own limits. connection_timeout_ms: for each response.
    """

    url: Annotated[str | None, lock_options.ZOOKEEPER_URL] = None
    base_path: Annotated[str | None, lock_options.ZOOKEEPER_BASE_PATH] = None
    lock_key: Annotated[str | None, lock_options.ZOOKEEPER_LOCK_KEY] = None
    session_timeout_ms: Annotated[int, lock_options.ZOOKEEPER_SESSION_TIMEOUT_MS] = 60_000
    connection_timeout_ms: Annotated[int, lock_options.ZOOKEEPER_CONNECTION_TIMEOUT_MS] = 15_000

    def path(self, table_name: str) -> str:
        """The node of the table's lock.  Raises InvalidRequest if the settings lack the base path."""
        if not self.base_path:
            raise InvalidRequest(f"the ZooKeeper lock provider requires the option {lock_options.ZOOKEEPER_BASE_PATH}")
        return node_path(self.base_path, self.lock_key or table_name)


def node_path(*parts: str) -> str:
    """Join parts of a path; empty components are dropped, as in Curator."""
    return "/" + "/".join(component for part in parts for component in part.split("/") if component)


class ZookeeperLock(LeaseLock):
    """The lock that is the node at `path`. Raises InvalidRequest if the settings lack a server or kazoo is not installed."""

    def __init__(self, env: Environment, settings: ZookeeperSettings, path: str, *, wait_ms: int = 60_000) -> None:
        if not settings.url:
            raise InvalidRequest(
                f"the ZooKeeper lock provider requires the option {lock_options.ZOOKEEPER_URL}, for instance "
                "zookeeper.example:2181"
            )
        _check_url(settings.url)
        super().__init__(env, validity_ms=settings.session_timeout_ms, wait_ms=wait_ms, trusted_ms=_TRUST_MS)
        self._url = settings.url
        self._path = path
        self._timeouts_ms = (settings.session_timeout_ms, settings.connection_timeout_ms)
        # Prefix of the names of our nodes, of the current acquisition or hold.
        self._id = ""
        # Whether a request for a node has no response, so that a node other than `_node` may exist.
        self._in_doubt = False
        self._node: str | None = None
        # The session that our node was verified to belong to.
        self._proven_in: int | None = None

    @property
    def _where(self) -> str:
        return f"zookeeper://{self._url}{self._path}"

    @property
    def _session(self) -> _Session:
        return _session_of(self._url, *self._timeouts_ms)

    def _left_ms(self) -> int:
        # The current connection may belong to another session than the verified one.
        return super()._left_ms() if self._session.id == self._proven_in else 0

    def _begin_to_wait(self) -> None:
        self._id, self._in_doubt, self._node = f"_c_{self._env.uuid4()}", False, None

    def _pause(self, wait: LockWait) -> None:
        wait.pause(longest_ms=_LAST_POLL_MS)

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        # Nodes of an interrupted request are found by their names.
        self._in_doubt = self._in_doubt or (outcome_unknown and not acquired)
        if not acquired and (self._node is not None or self._in_doubt):
            self._release_quietly()

    def _try_acquire(self) -> str | None:
        nodes = self._children(synced=self._in_doubt)
        if self._in_doubt or self._node not in nodes:
            # A missing node was deleted with its session: rejoin at the end of the queue.
            ours = sorted(filter(self._is_own_node, nodes), key=_order)
            self._node = next(iter(ours), None) or self._make_node()
            nodes = self._children(synced=False)
        ahead = sorted((_order(node), node) for node in nodes if _order(node) < _order(self._node or ""))
        if ahead:
            return f"{ahead[0][1]} holds it, and {len(ahead) - 1} others wait for it"
        return self._extend()

    def _extend(self) -> str | None:
        session = self._session
        try:
            session.request("sync", self._path)
            stat = session.request("exists", f"{self._path}/{self._node}")
        except _SessionEnded as error:
            return str(error)
        if stat is None:
            return f"its node {self._node} is missing: the session ended, or another client deleted it"
        if stat.ephemeralOwner != session.id:
            return f"its node {self._node} belongs to a session that ended"
        self._proven_in = session.id
        return None

    def _release_lease(self) -> str | None:
        try:
            nodes = [node for node in self._children(synced=True) if self._is_own_node(node)] if self._in_doubt else [self._node]
            missing = [node for node in nodes if not self._session.request("delete", f"{self._path}/{node}")]
        except StorageUnavailable:
            # Our node would block all others for as long as the session lasts.
            self._session.end()
            raise
        return f"its node {missing[0]} is missing" if missing else None

    def _clear_lease(self) -> None:
        self._node, self._proven_in = None, None

    def _is_own_node(self, node: str) -> bool:
        return self._id != "" and node.startswith(self._id)

    def _children(self, *, synced: bool) -> list[str]:
        session = self._session
        if synced:
            session.request("sync", self._path)
        children: list[str] | None = session.request("get_children", self._path)
        if children is None:
            session.request("ensure_path", self._path)
            children = session.request("get_children", self._path)
        return children or []

    def _make_node(self) -> str:
        doubted, self._in_doubt = self._in_doubt, True
        created: str | None = self._session.request("create", f"{self._path}/{self._id}-{_MARK}", ephemeral=True, sequence=True)
        if created is None:
            raise StorageUnavailable(f"{self._where}: the node of the lock was deleted during its creation")
        self._in_doubt = doubted
        return created.rpartition("/")[2]


def _order(node: str) -> str:
    """Sort key of the children of a lock, as in Curator."""
    return node.rpartition(_MARK)[2]


class _SessionEnded(StorageUnavailable):
    """The servers have ended the session and its nodes; the next request opens a new one."""


_OPEN = "open"


class _Session:
    """One session with the servers, opened by the first request."""

    def __init__(self, url: str, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        self._url = url
        self._session_timeout_s = session_timeout_ms / 1000
        self._answer_timeout_s = connection_timeout_ms / 1000
        # The open client, if there is one.  No mutex protects it, since an interrupted thread could leave that locked.
        self._clients: dict[str, Any] = {}

    @property
    def id(self) -> int | None:
        """The session's id on the servers; None without a connection."""
        client_id = None if self._client is None else self._client.client_id
        return None if client_id is None else client_id[0]

    @property
    def _client(self) -> Any:
        return self._clients.get(_OPEN)

    def request(self, operation: str, path: str, **arguments: object) -> Any:
        """Send one request and return its response; None if there is no node at `path`.  Raises StorageUnavailable."""
        from kazoo.exceptions import KazooException, NoNodeError, SessionExpiredError
        from kazoo.handlers.threading import KazooTimeoutError

        client = self._started()
        try:
            return getattr(client, f"{operation}_async")(path, **arguments).get(timeout=self._answer_timeout_s)
        except NoNodeError:
            return None
        except SessionExpiredError as error:
            raise _SessionEnded(f"zookeeper://{self._url}: the session with the server ended") from error
        except KazooTimeoutError as error:
            raise StorageUnavailable(
                f"zookeeper://{self._url}: no answer to {operation} {path} within {self._answer_timeout_s:g} s"
            ) from error
        except (KazooException, OSError) as error:
            raise StorageUnavailable(f"zookeeper://{self._url}: {operation} {path} failed: {error!r}") from error

    def end(self) -> None:
        """End the session; the next request opens another."""
        client = self._clients.pop(_OPEN, None)
        if client is not None:
            _stop(client, self._answer_timeout_s)

    def _started(self) -> Any:
        if (open_client := self._client) is not None:
            return open_client
        client = _client_class()(hosts=self._url, timeout=self._session_timeout_s)
        client.start_async().wait(self._answer_timeout_s)
        if not client.connected:
            _stop(client, 0)
            raise StorageUnavailable(f"zookeeper://{self._url}: no connection within {self._answer_timeout_s:g} s")
        shared = self._clients.setdefault(_OPEN, client)
        if shared is not client:
            # Another thread connected at the same moment.
            _stop(client, 0)
        return shared


def _stop(client: Any, timeout_s: float) -> None:
    """Stop a client, and its session if the servers respond in time; otherwise the session expires."""
    # kazoo waits here for a pending connection attempt, which takes most of the session's length with a silent server.

    def stop() -> None:
        with suppress(Exception):
            client.stop()
            client.close()

    is_connected = client.connected
    thread = threading.Thread(target=stop, name="pyhudi-zookeeper-end", daemon=True)
    thread.start()
    thread.join(timeout_s if is_connected else 0)


def _check_url(url: str) -> None:
    _client_class()
    from kazoo.hosts import collect_hosts

    try:
        collect_hosts(url)
    except ValueError as error:
        raise InvalidRequest(
            f"{lock_options.ZOOKEEPER_URL}={url}: expected host:port, with commas between several: {error}"
        ) from error


def _client_class() -> Any:
    try:
        from kazoo.client import KazooClient
    except ImportError:
        raise InvalidRequest('the ZooKeeper lock provider needs kazoo: pip install "pyhudi[zookeeper]"') from None
    return KazooClient


_sessions: dict[tuple[str, int, int], _Session] = {}


def _session_of(url: str, session_timeout_ms: int, connection_timeout_ms: int) -> _Session:
    key = (url, session_timeout_ms, connection_timeout_ms)
    return _sessions.setdefault(key, _Session(*key))


def end_sessions() -> None:
    """End the sessions of this process, which loses all locks held through them."""
    for session in list(_sessions.values()):
        session.end()


def _after_fork() -> None:
    # The session is the parent's: its threads do not exist here, and requests on its connection would confuse both
    # processes.
    global _sessions
    _sessions = {}


atexit.register(end_sessions)
os.register_at_fork(after_in_child=_after_fork)
