"""The result of a catalog sync in AWS Glue, as moto serves it."""

from __future__ import annotations

from typing import Any

import boto3


def glue_options(endpoint: str, database: str) -> dict[str, str]:
    """Options of a write that let its table be registered there."""
    return {
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.mode": "glue",
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.aws.glue.endpoint": endpoint,
        "hoodie.aws.glue.region": "us-east-1",
        "hoodie.aws.access.key": "a",
        "hoodie.aws.secret.key": "b",
    }


def registered(endpoint: str, database: str) -> dict[str, list[str]]:
    """The names of the entries, and the values of the partitions of each."""
    client: Any = boto3.client(
        "glue", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    found = {}
    for table in client.get_tables(DatabaseName=database)["TableList"]:
        partitions = client.get_partitions(DatabaseName=database, TableName=table["Name"])["Partitions"]
        found[table["Name"]] = sorted("/".join(each["Values"]) for each in partitions)
    return found
