"""CREATE TABLE ... LIKE: the new table has the definition of its source, whatever defines it."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp

_numbers = itertools.count()
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"comment": "the key"}),
        pa.field("day", pa.string()),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("op", pa.string()),
    ]
)
OWN = ("hoodie.table.name", "hoodie.table.checksum", "hoodie.table.create.schema", "hoodie.table.initial.version")
PAYLOADS = "org.apache.hudi.common.model."


def definition(table: hp.Table) -> dict[str, str]:
    return {key: value for key, value in table.config.properties if key not in OWN and "metadata.partitions" not in key}


def like(source: hp.Table, clauses: str = "") -> hp.Table:
    path = f"memory://like-{next(_numbers)}/copy"
    hp.sql(f"CREATE TABLE `{path}` LIKE `{source.uri}` {clauses}")
    return hp.Table(path)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"record_key": "id", "ordering": "ts"}, {}),
        ({}, {}),
        ({"record_key": ["id", "day"], "partition_by": "day", "table_type": "mor"}, {"hoodie.table.cdc.enabled": "true"}),
        (
            {"record_key": "id", "partition_by": ["day", "op"], "ordering": ["ts", "day"]},
            {
                "hoodie.write.table.version": "9",
                "hoodie.datasource.write.hive_style_partitioning": "true",
                "hoodie.datasource.write.partitionpath.urlencode": "true",
            },
        ),
        (
            {"record_key": "id", "partition_by": "ts", "ordering": "ts"},
            {
                "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
            },
        ),
        (
            {"record_key": "id", "partition_by": "day:SIMPLE,ts:TIMESTAMP", "ordering": "ts"},
            {
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
                "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
            },
        ),
        (
            {"record_key": "id", "ordering": "ts"},
            {"hoodie.datasource.write.payload.class": f"{PAYLOADS}PartialUpdateAvroPayload"},
        ),
        (
            {"record_key": "id", "ordering": "ts"},
            {
                "hoodie.write.table.version": "9",
                "hoodie.datasource.write.payload.class": f"{PAYLOADS}DefaultHoodieRecordPayload",
                "hoodie.payload.delete.field": "op",
                "hoodie.payload.delete.marker": "D",
            },
        ),
        (
            {"record_key": "id", "ordering": "ts"},
            {"hoodie.write.table.version": "9", "hoodie.datasource.write.payload.class": f"{PAYLOADS}PartialUpdateAvroPayload"},
        ),
        (
            {"record_key": "id"},
            {
                "hoodie.write.table.version": "9",
                "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.table.timeline.timezone": "UTC",
            },
        ),
        (
            {"record_key": "id", "partition_by": "day"},
            {
                "hoodie.datasource.write.drop.partition.columns": "true",
                "pyhudi.table.options.hoodie.clean.commits.retained": "3",
                "pyhudi.table.defaults.op": "'I'",
                "pyhudi.table.properties.owner": "me",
            },
        ),
        ({"record_key": "id"}, {"hoodie.populate.meta.fields": "false"}),
        ({"record_key": "id"}, {"hoodie.table.base.file.format": "ORC", "hoodie.database.name": "d"}),
    ],
)
def test_the_definition_is_that_of_the_source(arguments: dict[str, Any], options: dict[str, str]) -> None:
    source = hp.Table.create(f"memory://like-{next(_numbers)}/source", schema=SCHEMA, options=options, **arguments)
    copy = like(source)
    expected = definition(source)
    expected.pop("hoodie.database.name", None)
    assert definition(copy) == expected
    assert copy.schema().equals(source.schema(), check_metadata=True)
    assert copy.name == "copy" and copy.scan().count() == 0


def test_properties_of_the_statement_win() -> None:
    source = hp.Table.create(
        f"memory://like-{next(_numbers)}/source", schema=SCHEMA, record_key="id", partition_by="day", ordering="ts"
    )
    copy = like(source, "TBLPROPERTIES (type = 'mor', primaryKey = 'ID,day', recordMergeMode = 'COMMIT_TIME_ORDERING')")
    assert not copy.config.is_cow and copy.config.keys.record_fields == ("id", "day")
    assert copy.config.keys.generator == "COMPLEX" and str(copy.config.merge.mode) == "COMMIT_TIME_ORDERING"
    with pytest.raises(hp.InvalidRequest, match="did you mean"):
        like(source, "TBLPROPERTIES (hoodie.clean.comits.retained = 3)")


def test_constraints_apply_to_the_copy_and_rows_and_indexes_stay() -> None:
    source = hp.Table.create(f"memory://like-{next(_numbers)}/source", schema=SCHEMA, record_key="id")
    source.alter.add_constraint("positive", "ts > 0")
    source.upsert(pa.table({"id": [1], "day": ["a"], "ts": [1], "op": ["I"]}))
    source.index.create("record_index")
    copy = like(source)
    assert copy.scan().count() == 0 and "record_index" not in copy.config.metadata_partitions
    with pytest.raises(hp.HudiError, match="positive"):
        copy.upsert(pa.table({"id": [1], "day": ["a"], "ts": [-1], "op": ["I"]}))


def test_a_repeated_statement_adds_the_constraints_that_are_missing() -> None:
    source = hp.Table.create(f"memory://like-{next(_numbers)}/source", schema=SCHEMA, record_key="id")
    path = f"memory://like-{next(_numbers)}/copy"
    statement = f"CREATE TABLE copied LIKE `{source.uri}` LOCATION '{path}'"
    hp.sql(statement)
    hp.sql("DROP TABLE copied")
    # As after a crash between the table and its constraints.
    source.alter.add_constraint("positive", "ts > 0")
    hp.sql(statement)
    hp.sql("DROP TABLE copied")
    assert hp.sql(f"SHOW TBLPROPERTIES `{path}`").filter(pa.compute.field("value") == "ts > 0").num_rows == 1
