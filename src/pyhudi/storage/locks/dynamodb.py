"""Lock in Amazon DynamoDB, compatible with Hudi's DynamoDBBasedLockProvider: the protocol of Amazon's lock client, over boto3.

The lock is the item of a table whose hash key is `key`; all attributes are strings:

    key                     name of the lock
    ownerName               host and a uuid
    leaseDuration           milliseconds that the owner's lease lasts
    recordVersionNumber     a uuid, replaced with each renewal
    isReleased              "1" if its owner released the lock and left the item (some clients do)

1. No item: put one, on the condition that there is none. If the item is released, or its version has not changed for as
   long as its lease lasts, as observed by this process: put a new one, on the condition that it is unchanged. The
   server lets one writer win.
2. A renewal writes another version, and the release deletes the item, on the condition that owner and version are ours.

No clocks of different machines are compared.  The table is created if it does not exist.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Annotated, Any

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.options import lock_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.options.lock_options import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN
from pyhudi.storage.environment import Environment
from pyhudi.storage.locks.lease import LeaseLock

# A dead writer does not make others time out if its lease is shorter than their wait.
_SHORTEST_LEASE_MS = 10_000
_WRITE_ATTEMPTS = 3
_CREATION_POLL_MS = 1_000

_ANSWER_TIMEOUT_S = 2


@dataclass(frozen=True, slots=True)
class DynamoDbSettings(OptionSettings):
    """Options of the DynamoDB lock.

    partition_key: name of the lock; default: the table's name. The capacities apply to a table that is created with
    billing_mode PROVISIONED. access_key, secret_key, session_token: credentials; default: those of the machine.
    """

    table: Annotated[str | None, lock_options.DYNAMODB_TABLE] = None
    partition_key: Annotated[str | None, lock_options.DYNAMODB_PARTITION_KEY] = None
    region: Annotated[str, lock_options.DYNAMODB_REGION] = "us-east-1"
    endpoint_url: Annotated[str | None, lock_options.DYNAMODB_ENDPOINT_URL] = None
    billing_mode: Annotated[str, lock_options.DYNAMODB_BILLING_MODE] = "PAY_PER_REQUEST"
    read_capacity: Annotated[int, lock_options.DYNAMODB_READ_CAPACITY] = 20
    write_capacity: Annotated[int, lock_options.DYNAMODB_WRITE_CAPACITY] = 10
    creation_timeout_ms: Annotated[int, lock_options.DYNAMODB_TABLE_CREATION_TIMEOUT] = 120_000
    access_key: Annotated[str | None, ACCESS_KEY] = field(default=None, repr=False)
    secret_key: Annotated[str | None, SECRET_KEY] = field(default=None, repr=False)
    session_token: Annotated[str | None, SESSION_TOKEN] = field(default=None, repr=False)


class DynamoDbLock(LeaseLock):
    """The lock `key`.  Raises InvalidRequest if the settings lack the table or boto3 is not installed."""

    def __init__(self, env: Environment, settings: DynamoDbSettings, key: str, *, wait_ms: int = 60_000) -> None:
        if not settings.table:
            raise InvalidRequest(f"the DynamoDB lock provider requires the option {lock_options.DYNAMODB_TABLE}")
        if (settings.access_key is None) != (settings.secret_key is None):
            raise InvalidRequest(f"{lock_options.ACCESS_KEY} and {lock_options.SECRET_KEY} go together: set both or none")
        _boto3()
        validity_ms = max(_SHORTEST_LEASE_MS, wait_ms // 2)
        super().__init__(env, validity_ms=validity_ms, renew_ms=validity_ms // 3, wait_ms=wait_ms)
        self._settings = settings
        self._key = key
        self._owner = ""
        # The version that was written last; None if a response is missing.
        self._version: str | None = None
        # The version in another owner's item while waiting, and when it was first observed.
        self._watched: tuple[str | None, int] = (None, 0)

    @property
    def _where(self) -> str:
        return f"dynamodb:{self._settings.region}/{self._settings.table}/{self._key}"

    def _begin_to_wait(self) -> None:
        self._owner, self._watched = f"{socket.gethostname()}{self._env.uuid4()}", (None, 0)

    def _end_wait(self, *, acquired: bool, outcome_unknown: bool) -> None:
        if outcome_unknown and not acquired:
            self._version = None
            self._release_quietly()

    def _try_acquire(self) -> str | None:
        requested_ms = self._env.monotonic_ms()
        item = self._item()
        if item is None:
            return self._put("attribute_not_exists(#key)", {})
        if item.get("ownerName") == self._owner:
            # A response was lost, and the item is ours.
            return self._extend()
        if item.get("isReleased") == "1":
            return self._put("attribute_exists(#key) AND isReleased = :released", {":released": "1"})
        version, lease_ms = item.get("recordVersionNumber", ""), item.get("leaseDuration", "")
        if not lease_ms.isdecimal():
            return f"its item has leaseDuration {lease_ms!r}, which is not a number; delete it when no writer is running"
        if version != self._watched[0]:
            self._watched = (version, requested_ms)
        if requested_ms - self._watched[1] <= int(lease_ms):
            return f"{item.get('ownerName')} holds it"
        return self._put("attribute_exists(#key) AND recordVersionNumber = :seen", {":seen": version})

    def _extend(self) -> str | None:
        for _ in range(_WRITE_ATTEMPTS):
            lost = self._find_version()
            if lost is not None:
                return lost
            version = self._env.uuid4()
            changes = {":lease": str(self._validity_ms), ":new": version}
            if self._change_own("update_item", changes, "SET leaseDuration = :lease, recordVersionNumber = :new"):
                self._version = version
                return None
        raise StorageUnavailable(f"{self._where}: the item of the lock changes faster than it can be replaced")

    def _release_lease(self) -> str | None:
        for _ in range(_WRITE_ATTEMPTS):
            lost = self._find_version()
            if lost is not None or self._change_own("delete_item", {}):
                return lost
        raise StorageUnavailable(f"{self._where}: the item of the lock changes faster than it can be deleted")

    def _clear_lease(self) -> None:
        self._version = None

    def _find_version(self) -> str | None:
        """Read the version of our item unless it is known.  Returns None, or why the lock is lost."""
        if self._version is not None:
            return None
        item = self._item()
        if item is None:
            return "its item was deleted"
        if item.get("ownerName") != self._owner:
            return f"{item.get('ownerName')} took it over after the lease of {self._owner} had expired"
        self._version = item.get("recordVersionNumber", "")
        return None

    def _item(self) -> dict[str, str] | None:
        """The current item of the lock; creates the table if it does not exist."""
        answer = self._request("get_item", Key=self._name, ConsistentRead=True)
        if answer is None:
            self._create_table()
            answer = self._request("get_item", Key=self._name, ConsistentRead=True) or {}
        stored = answer.get("Item")
        return None if stored is None else {name: value.get("S", "") for name, value in stored.items()}

    def _put(self, condition: str, values: dict[str, str]) -> str | None:
        """Write our item on a condition.  Returns None, or why it was not written."""
        version = self._env.uuid4()
        item = {
            "key": self._key,
            "ownerName": self._owner,
            "leaseDuration": str(self._validity_ms),
            "recordVersionNumber": version,
        }
        arguments: dict[str, Any] = {"Item": _texts(item), "ConditionExpression": condition}
        if "#key" in condition:
            arguments["ExpressionAttributeNames"] = _KEY_NAME
        if values:
            arguments["ExpressionAttributeValues"] = _texts(values)
        if self._request("put_item", **arguments) is None:
            return "another writer was faster"
        self._version = version
        return None

    def _change_own(self, operation: str, values: dict[str, str], update: str | None = None) -> bool:
        """Change our item on the condition that it is unchanged; False if it is not."""
        # Until the response arrives, the current version is unknown.
        version, self._version = self._version or "", None
        arguments: dict[str, Any] = {} if update is None else {"UpdateExpression": update}
        answer = self._request(
            operation,
            Key=self._name,
            ConditionExpression="attribute_exists(#key) AND recordVersionNumber = :old AND ownerName = :me",
            ExpressionAttributeNames=_KEY_NAME,
            ExpressionAttributeValues=_texts({":old": version, ":me": self._owner, **values}),
            **arguments,
        )
        return answer is not None

    @property
    def _name(self) -> dict[str, dict[str, str]]:
        return _texts({"key": self._key})

    def _request(self, operation: str, **arguments: object) -> Any:
        """Send one request and return its response; None if a condition fails or the table does not exist."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(_client(self._settings), operation)(TableName=self._settings.table, **arguments)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _NO:
                return None
            raise StorageUnavailable(f"{self._where}: DynamoDB refused {operation}: {error}") from error
        except BotoCoreError as error:
            raise StorageUnavailable(f"{self._where}: DynamoDB did not answer {operation}: {error}") from error

    def _create_table(self) -> None:
        settings = self._settings
        arguments: dict[str, Any] = {"BillingMode": settings.billing_mode}
        if settings.billing_mode == "PROVISIONED":
            arguments["ProvisionedThroughput"] = {
                "ReadCapacityUnits": settings.read_capacity,
                "WriteCapacityUnits": settings.write_capacity,
            }
        # Another writer may be creating it concurrently: then it exists, and is not yet active.
        self._request(
            "create_table",
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
            **arguments,
        )
        deadline_ms = self._env.monotonic_ms() + settings.creation_timeout_ms
        while ((self._request("describe_table") or {}).get("Table") or {}).get("TableStatus") != "ACTIVE":
            if self._env.monotonic_ms() >= deadline_ms:
                raise StorageUnavailable(f"{self._where}: the lock table was not active within {settings.creation_timeout_ms} ms")
            self._env.sleep_ms(_CREATION_POLL_MS)


_KEY_NAME = {"#key": "key"}
_NO = frozenset({"ConditionalCheckFailedException", "ResourceNotFoundException", "ResourceInUseException"})


def _texts(values: dict[str, str]) -> dict[str, dict[str, str]]:
    """Values in DynamoDB's representation of strings."""
    return {name: {"S": value} for name, value in values.items()}


def _boto3() -> Any:
    try:
        import boto3
    except ImportError:
        raise InvalidRequest('the DynamoDB lock provider needs boto3: pip install "pyhudi[aws]"') from None
    return boto3


_clients: dict[DynamoDbSettings, Any] = {}


def _client(settings: DynamoDbSettings) -> Any:
    """The client for these settings, shared by all threads of the process.  Its timeouts are far shorter than a lease."""
    client = _clients.get(settings)
    # Without a mutex, which an interruption at its end would leave locked. Of two clients created at once, one remains.
    return _clients.setdefault(settings, _new_client(settings)) if client is None else client


def _new_client(settings: DynamoDbSettings) -> Any:
    from botocore.config import Config

    return (
        _boto3()
        .Session()
        .client(
            "dynamodb",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            aws_session_token=settings.session_token,
            config=Config(
                connect_timeout=_ANSWER_TIMEOUT_S,
                read_timeout=_ANSWER_TIMEOUT_S,
                retries={"total_max_attempts": 2, "mode": "standard"},
            ),
        )
    )


def _after_fork() -> None:
    # The parent's connections must not be used by the child.
    global _clients
    _clients = {}


os.register_at_fork(after_in_child=_after_fork)
