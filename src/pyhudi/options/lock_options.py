"""Options of lock providers, and AWS credentials."""

from __future__ import annotations

from pyhudi.options.declaration import Option

ACCESS_KEY = Option("hoodie.aws.access.key", str, None, "access key of AWS; unset: the credentials of the machine")
SECRET_KEY = Option("hoodie.aws.secret.key", str, None, "secret key of AWS")
SESSION_TOKEN = Option("hoodie.aws.session.token", str, None, "session token of AWS")
DYNAMODB_TABLE = Option("hoodie.write.lock.dynamodb.table", str, None, "DynamoDB table that holds the locks")
DYNAMODB_PARTITION_KEY = Option(
    "hoodie.write.lock.dynamodb.partition_key", str, None, "name of the lock; unset: the table's name"
)
DYNAMODB_REGION = Option("hoodie.write.lock.dynamodb.region", str, "us-east-1", "region of DynamoDB")
DYNAMODB_ENDPOINT_URL = Option("hoodie.write.lock.dynamodb.endpoint_url", str, None, "endpoint of DynamoDB; unset: Amazon's")
DYNAMODB_BILLING_MODE = Option(
    "hoodie.write.lock.dynamodb.billing_mode",
    ("PAY_PER_REQUEST", "PROVISIONED"),
    "PAY_PER_REQUEST",
    "billing mode of a DynamoDB table that is created for locks",
)
DYNAMODB_READ_CAPACITY = Option(
    "hoodie.write.lock.dynamodb.read_capacity", int, "20", "read capacity of a table of locks", at_least=1
)
DYNAMODB_WRITE_CAPACITY = Option(
    "hoodie.write.lock.dynamodb.write_capacity", int, "10", "write capacity of a table of locks", at_least=1
)
DYNAMODB_TABLE_CREATION_TIMEOUT = Option(
    "hoodie.write.lock.dynamodb.table_creation_timeout",
    int,
    "120000",
    "milliseconds to wait for the creation of a table of locks",
    at_least=1,
)

FILESYSTEM_EXPIRE = Option(
    "hoodie.write.lock.filesystem.expire",
    int,
    "0",
    "minutes after which a file system lock counts as orphaned; 0: never",
    origin="table",
)
FILESYSTEM_PATH = Option(
    "hoodie.write.lock.filesystem.path", str, None, "folder of the file system lock; unset: the table's .hoodie"
)

HIVEMETASTORE_URIS = Option(
    "hoodie.write.lock.hivemetastore.uris", str, None, "Hive metastores, thrift://host:port, with commas between them"
)
HIVEMETASTORE_DATABASE = Option("hoodie.write.lock.hivemetastore.database", str, None, "database of the table that Hive locks")
HIVEMETASTORE_TABLE = Option("hoodie.write.lock.hivemetastore.table", str, None, "table that Hive locks")
HEARTBEAT_INTERVAL_MS = Option(
    "hoodie.write.lock.heartbeat_interval_ms",
    int,
    "60000",
    "milliseconds between two renewals of a lock of the Hive metastore",
    at_least=1,
    origin="table",
)

LOCK_WAIT = Option("hoodie.write.lock.wait_time_ms", int, "60000", "milliseconds to wait for the lock", origin="table")
PROVIDER = Option(
    "hoodie.write.lock.provider", str, None, "class of the lock that writers share; unset: a lease in the table's storage"
)

STORAGE_VALIDITY_TIMEOUT_SECS = Option(
    "hoodie.write.lock.storage.validity.timeout.secs", int, "30", "validity of a lease, in seconds", at_least=1, origin="table"
)
STORAGE_HEARTBEAT_POLL_SECS = Option(
    "hoodie.write.lock.storage.heartbeat.poll.secs",
    int,
    "5",
    "seconds between two renewals of a lease",
    aliases=("hoodie.write.lock.storage.renew.interval.secs",),
    at_least=1,
    origin="table",
)

ZOOKEEPER_URL = Option("hoodie.write.lock.zookeeper.url", str, None, "servers of ZooKeeper, host:port, with commas between them")
ZOOKEEPER_BASE_PATH = Option(
    "hoodie.write.lock.zookeeper.base_path", str, None, "ZooKeeper node below which lock nodes are created"
)
ZOOKEEPER_LOCK_KEY = Option(
    "hoodie.write.lock.zookeeper.lock_key", str, None, "its node below the base path; unset: the table's name"
)
ZOOKEEPER_SESSION_TIMEOUT_MS = Option(
    "hoodie.write.lock.zookeeper.session_timeout_ms",
    int,
    "60000",
    "milliseconds of silence after which ZooKeeper takes a holder for dead",
    at_least=1000,
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS = Option(
    "hoodie.write.lock.zookeeper.connection_timeout_ms",
    int,
    "15000",
    "milliseconds to wait for an answer of ZooKeeper",
    at_least=1,
)

LOCK_LOCATION = (
    *(PROVIDER, FILESYSTEM_PATH, ZOOKEEPER_URL, ZOOKEEPER_BASE_PATH, ZOOKEEPER_LOCK_KEY, HIVEMETASTORE_URIS),
    *(HIVEMETASTORE_DATABASE, HIVEMETASTORE_TABLE, DYNAMODB_TABLE, DYNAMODB_PARTITION_KEY, DYNAMODB_REGION),
    DYNAMODB_ENDPOINT_URL,
)
"""Options that decide where writers lock: all writers of a table need the same values."""
