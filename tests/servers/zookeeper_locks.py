"""ZooKeeper locks with a long session timeout."""

from __future__ import annotations

from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.zookeeper import ZookeeperLock, ZookeeperSettings

# Limits that no machine reaches, however long the processor is withheld from the server or from us.
_PATIENT_MS = 1_200_000
_PATIENT_S = _PATIENT_MS // 1_000


def lock_at(
    address: str, path: str, env: Environment, *, session_timeout_ms: int = _PATIENT_MS, wait_ms: int = _PATIENT_MS
) -> ZookeeperLock:
    settings = ZookeeperSettings(address, session_timeout_ms=session_timeout_ms, connection_timeout_ms=_PATIENT_MS)
    return ZookeeperLock(env, settings, path, wait_ms=wait_ms)
