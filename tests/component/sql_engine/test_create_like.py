"""CREATE TABLE ... LIKE, and SHOW CREATE TABLE: the new table has the definition of its source, whatever defines it."""

from __future__ import annotations

import itertools
import random
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
VERSION = "hoodie.write.table.version"
OWN = ("hoodie.table.name", "hoodie.table.checksum", "hoodie.table.create.schema", "hoodie.table.initial.version")
PAYLOADS = "org.apache.hudi.common.model."


def definition(table: hp.Table) -> dict[str, str]:
    return {key: value for key, value in table.config.properties if key not in OWN and "metadata.partitions" not in key}


def recreated(source: hp.Table) -> hp.Table:
    """A table that the statement of SHOW CREATE TABLE creates."""
    shown = hp.sql(f"SHOW CREATE TABLE `{source.uri}`").column(0)[0].as_py()
    path = f"memory://like-{next(_numbers)}/copy"
    hp.sql(shown.replace(f"`{source.uri}`", f"`{path}`"))
    return hp.Table(path)


def check_recreated(source: hp.Table) -> None:
    """The columns and the definition are equal; partition columns come last."""
    copy, expected = recreated(source), definition(source)
    expected.pop("hoodie.database.name", None)
    assert definition(copy) == expected
    columns = {field.name: field for field in source.schema()}
    assert len(columns) == len(copy.schema())
    assert all(field.equals(columns[field.name], check_metadata=True) for field in copy.schema())


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
    check_recreated(source)


TYPES = (
    pa.bool_(),
    pa.int32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(12, 3),
    pa.list_(pa.field("element", pa.string())),
    pa.struct([pa.field("cityName", pa.int64(), False), pa.field("odd name", pa.string(), metadata={"comment": "it's"})]),
    pa.map_(pa.string(), pa.list_(pa.field("element", pa.struct([pa.field("B", pa.int32())])))),
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "hoodie.write.table.version": ("8", "9"),
    "hoodie.datasource.write.hive_style_partitioning": ("true", "false"),
    "hoodie.datasource.write.partitionpath.urlencode": ("true",),
    "hoodie.datasource.write.drop.partition.columns": ("true",),
    "hoodie.write.record.merge.mode": ("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
    "hoodie.table.timeline.timezone": ("UTC",),
    "hoodie.table.base.file.format": ("ORC",),
    "pyhudi.table.options.hoodie.clean.commits.retained": ("3",),
    "pyhudi.table.options.hoodie.parquet.compression.codec": ("zstd", "gzip"),
    "pyhudi.table.defaults.op": ("'I'", "'it''s'"),
    "pyhudi.table.properties.owner": ("me", "it's \\ me"),
    "pyhudi.table.properties.type": ("of mine",),
    "pyhudi.table.properties.path": ("/elsewhere",),
    "pyhudi.table.properties.comment": ("all 'rides'",),
}


def random_table(rng: random.Random) -> hp.Table:
    fields = [
        pa.field(f"c {n}" if n else "c0", rng.choice(TYPES), metadata={"comment": "it's"} if rng.random() < 0.3 else None)
        for n in range(rng.randrange(4))
    ]
    columns = [*SCHEMA, *fields]
    rng.shuffle(columns)
    options = {key: rng.choice(values) for key, values in OPTIONS.items() if rng.random() < 0.4}
    keys = rng.choice((None, "id", ["id", "op"]))
    return hp.Table.create(
        f"memory://like-{next(_numbers)}/source",
        schema=pa.schema(columns),
        record_key=keys,
        partition_by=rng.choice((None, "day", ["day", "op"])),
        ordering=None if keys is None else rng.choice(("ts", ["ts", "day"] if options.get(VERSION) == "9" else "ts")),
        table_type=rng.choice(("cow", "mor")),
        options=options,
    )


@pytest.mark.parametrize("seed", range(12))
def test_shown_statements_of_random_tables_recreate_them(seed: int) -> None:
    rng = random.Random(seed)
    tables: list[hp.Table] = []
    while len(tables) < 3:
        try:
            tables.append(random_table(rng))
        except (hp.InvalidRequest, hp.Unsupported):
            # Options that contradict each other.
            continue
    for table in tables:
        check_recreated(table)


@pytest.mark.parametrize("fields", [("place.city",), ("region", "place.city")])
def test_shown_statement_of_a_table_partitioned_by_a_field_of_a_struct(fields: tuple[str, ...]) -> None:
    place = pa.struct([pa.field("city", pa.string())])
    schema = pa.schema([*SCHEMA, pa.field("region", pa.string()), pa.field("place", place)])
    source = hp.Table.create(f"memory://like-{next(_numbers)}/source", schema=schema, record_key="id", partition_by=fields)
    check_recreated(source)


def test_shown_statements_redact_secrets() -> None:
    options = {"pyhudi.table.properties.api.password": "hidden"}
    source = hp.Table.create(f"memory://like-{next(_numbers)}/source", schema=SCHEMA, record_key="id", options=options)
    shown = hp.sql(f"SHOW CREATE TABLE `{source.uri}`").column(0)[0].as_py()
    assert "api.password" in shown and "hidden" not in shown


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


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("primaryKeys", "primaryKey"),
        ("primary_key", "primaryKey"),
        ("primarKey", "primaryKey"),
        ("recordKey", "primaryKey"),
        ("record_keys", "primaryKey"),
        ("recordkey.fields", "primaryKey"),
        ("precombineFields", "preCombineField"),
        ("orderingField", "orderingFields"),
        ("table_type", "type"),
        ("types", "type"),
        ("payload_class", "payloadClass"),
        ("recordMergeModes", "recordMergeMode"),
    ],
)
def test_misspelled_property_is_refused(key: str, meant: str) -> None:
    path = f"memory://misspelled-{next(_numbers)}/t"
    with pytest.raises(hp.InvalidRequest, match=f"unknown property '{key}': did you mean {meant}\\?$"):
        hp.sql(f"CREATE TABLE `{path}` (id INT) USING hudi TBLPROPERTIES ('{key}' = 'id')")
    hp.sql(f"CREATE TABLE `{path}` (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    with pytest.raises(hp.InvalidRequest, match=f"did you mean {meant}"):
        hp.sql(f"CREATE TABLE `{path}-like` LIKE `{path}` TBLPROPERTIES ('{key}' = 'id')")


def test_other_properties_are_stored() -> None:
    names = ("owner", "key", "typed", "primary", "records", "ordering", "team.name")
    path = f"memory://misspelled-{next(_numbers)}/t"
    listed = ", ".join(f"'{name}' = 'x'" for name in names)
    hp.sql(f"CREATE TABLE `{path}` (id INT) USING hudi TBLPROPERTIES (PRIMARYKEY = 'id', {listed})")
    table = hp.Table(path)
    assert table.config.keys.record_fields == ("id",)
    assert all(table.config.property(name) == "x" for name in names)
    table.set_properties({"primaryKeys": "x"})
    check_recreated(table)
