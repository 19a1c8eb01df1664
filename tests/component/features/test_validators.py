"""Pre-commit validators of the embedded engine, and beside other writers and services."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.format.instants import Action
from tests.conformance.validator_suite import (
    VALIDATORS,
    ValidatorSuite,
    Write,
    equality,
    new_table,
    registered,
    rows,
    single_value,
)

_numbers = itertools.count()


def embedded(table: hp.Table, data: pa.Table, /, **options: Any) -> object:
    return table.upsert(data, options=options)


class TestEmbedded(ValidatorSuite):
    @pytest.fixture
    def write(self) -> Write:
        return embedded


ROWS = rows((4, "b", 9.0), (8, "b", 9.0), ts=2)
LIMIT = single_value("select count(*) from <TABLE_NAME> where value > 5#0")
WRITES: dict[str, Any] = {
    "upsert": lambda t: t.upsert(ROWS, options=LIMIT),
    "insert": lambda t: t.insert(ROWS, options=LIMIT),
    "bulk_insert": lambda t: t.bulk_insert(ROWS, options=LIMIT),
    "insert_overwrite": lambda t: t.insert_overwrite(ROWS, options=LIMIT),
    "insert_overwrite_table": lambda t: t.insert_overwrite_table(ROWS, options=LIMIT),
    "update": lambda t: t.update({"value": 9.0, "ts": 3}, where="id = 1", options=LIMIT),
    "merge": lambda t: t.merge(ROWS, on="id", options=LIMIT).when_not_matched_insert_all().execute(),
    "partial": lambda t: t.upsert(ROWS.select(["id", "part", "ts", "value"]), partial=True, options=LIMIT),
    "write": lambda t: hp.write(t.uri, ROWS, options=LIMIT),
    "overwrite": lambda t: hp.write(t.uri, ROWS, mode="overwrite", options=LIMIT),
    "sql": lambda t: hp.sql(f"UPDATE hudi.`{t.uri}` SET value = 9 WHERE id = 1", options=LIMIT),
    "group": lambda t: t.upsert(ROWS, options={**LIMIT, "pyhudi.write.group": "auto"}),
    "delete": lambda t: t.delete([1], options=single_value("select count(*) from <TABLE_NAME>#3")),
    "delete where": lambda t: t.delete(where="id = 1", options=single_value("select count(*) from <TABLE_NAME>#3")),
    "delete_partitions": lambda t: t.delete_partitions(["a"], options=single_value("select count(*) from <TABLE_NAME>#3")),
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.sample(8)
def test_every_write_is_validated(name: str, kind: str) -> None:
    table = new_table(f"memory://validated-{name}-{kind}/t".replace(" ", "-"), kind)
    before = table.scan().to_arrow().sort_by("id")
    with pytest.raises(hp.ValidationFailed):
        WRITES[name](table)
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert not table.timeline().pending()


def test_the_first_write_is_validated_against_no_rows() -> None:
    table = hp.Table.create("memory://validated-first/t", record_key="id", ordering="ts", partition_by="part")
    with pytest.raises(hp.ValidationFailed) as failure:
        table.upsert(ROWS, options=equality("select count(*) n from <TABLE_NAME>"))
    assert (failure.value.before, failure.value.after) == (({"n": 0},), ({"n": 2},))
    table.upsert(ROWS, options=single_value("select count(*) from <TABLE_NAME>#2"))


def test_an_overwrite_with_other_columns_is_validated() -> None:
    table = new_table("memory://validated-columns/t")
    texts = pa.table({"id": [1], "part": ["a"], "ts": [5], "note": ["text"]})
    hp.write(table.uri, texts, mode="overwrite", options=single_value("select max(note) from <TABLE_NAME>#text"))
    assert hp.Table(table.uri).scan().to_arrow().to_pylist() == texts.to_pylist()


def test_columns_with_ids_are_validated() -> None:
    table = new_table("memory://validated-ids/t")
    table.alter.rename("value", "amount")
    data = rows((1, "a", 4.0), ts=2).rename_columns(["id", "part", "ts", "amount"])
    table.upsert(data, options=single_value("select sum(amount) from <TABLE_NAME>#6.0"))


def test_commits_during_a_validation_are_validated() -> None:
    """The last validation sees every commit before its own: it runs under the lock if others keep committing."""
    table = new_table("memory://validated-beside/t")
    other, counts = hp.Table(table.uri), list[int]()

    def validate(before: Any, after: Any) -> None:
        counts.append(before.count())
        if len(counts) < 4:
            other.upsert(rows((100 + len(counts), "c", 1.0)))

    whole = {"pyhudi.precommit.validators.rows": "table"}
    table.upsert(rows((1, "a", 2.0), ts=2), options={**registered(validate), **whole})
    assert counts == [5, 6, 7, 8]
    assert table.count() == 8


def test_a_write_that_retries_after_a_conflict_is_validated_again() -> None:
    table = new_table("memory://validated-retry/t")
    other, seen = hp.Table(table.uri), list[float]()

    def validate(before: Any, after: Any) -> None:
        if not seen:
            other.upsert(rows((2, "a", 7.0), ts=2))
        seen.append(max(after.to_arrow().column("value").to_pylist()))

    result = table.upsert(rows((1, "a", 2.0), ts=2), options=registered(validate))
    assert result.conflict_retries == 1
    assert seen[-1] == 7.0


def test_clusterings_are_validated_and_compactions_are_not(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    table.bulk_insert(rows((6, "a", 1.0)))
    with pytest.raises(hp.ValidationFailed, match="clustering"):
        table.cluster(options=single_value("select count(*) from <TABLE_NAME>#-1"))
    assert table.count() == 6
    assert table.cluster(
        options=equality("select count(*) from <TABLE_NAME>", "select sum(id) from <TABLE_NAME>")
    ).completion_time
    merged = new_table(str(tmp_path / "m"), "mor")
    merged.upsert(rows((1, "a", 2.0), ts=2))
    with pytest.raises(hp.InvalidRequest, match="no effect on compact"):
        merged.compact(options=single_value("select count(*) from <TABLE_NAME>#-1"))


def test_an_inline_clustering_that_is_rejected_leaves_the_write() -> None:
    table = new_table("memory://validated-inline/t")
    inline = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
    names = single_value("select count(distinct _hoodie_file_name) from <TABLE_NAME> where part = 'a'#2")
    with pytest.raises(hp.ServiceFailed, match="count"):
        table.bulk_insert(rows((6, "a", 1.0)), options={**inline, **names})
    assert table.count() == 6
    assert not [i for i in table.timeline().pending() if i.action is not Action.CLUSTERING]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({VALIDATORS: "SqlQueryEqualtyPreCommitValidator"}, "did you mean org.apache.hudi.*SqlQueryEqualityPreCommitValidator"),
        ({VALIDATORS: "x.Y"}, "no validator is named x.Y"),
        (equality(" ; "), "has no query"),
        (equality("select 1"), "does not read <TABLE_NAME>"),
        (single_value("select count(*) from <TABLE_NAME>"), "does not end with #"),
        (single_value("select count(*) from <TABLE_NAME>#1#2"), "does not end with #"),
        ({f"{VALIDATORS}.equality.sql.queries": "select 1 from <TABLE_NAME>"}, f"without {VALIDATORS}"),
        ({**equality("select 1 from <TABLE_NAME>"), f"{VALIDATORS}.single.value.sql.queries": "x"}, "has no effect"),
        ({f"{VALIDATORS}.equality.sql.querys": "x"}, "unknown"),
    ],
)
def test_wrong_validator_options_are_rejected_before_the_write(options: dict[str, str], text: str) -> None:
    table = new_table(f"memory://validated-wrong-{next(_numbers)}/t")
    before = table.timeline().instants
    with pytest.raises(hp.InvalidRequest, match=text):
        table.upsert(ROWS, options=options)
    assert table.timeline().instants == before


def test_a_policy_of_hudi_1_2_publishes_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    table = new_table("memory://validated-policy/t")
    table.upsert(ROWS, options={**LIMIT, f"{VALIDATORS}.failure.policy": "warn_log"})
    assert table.count() == 6 and "rejects commit" in caplog.text and "published" in caplog.text


def test_arguments_of_a_validator_are_checked() -> None:
    for arguments in (("", len), ("a,b", len), (" a", len), (1, len), ("a", 1)):
        with pytest.raises(hp.InvalidRequest):
            hp.Validator(*arguments)
    with pytest.raises(hp.InvalidRequest, match="Validator"):
        hp.register_validator("a")  # type: ignore[arg-type]


def test_the_error_survives_pickling() -> None:
    error = hp.ValidationFailed("no", query="q", before=({"n": 1},)).of_commit("v", "commit 1")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.before == ({"n": 1},) and copy.validator == "v"


def test_a_table_can_store_its_validators() -> None:
    table = new_table("memory://validated-stored/t")
    table.set_properties({f"pyhudi.table.options.{key}": value for key, value in LIMIT.items()})
    with pytest.raises(hp.ValidationFailed):
        hp.Table(table.uri, trusted=True).upsert(ROWS)
    with pytest.warns(UserWarning, match=r"not used: hoodie\.precommit\.validators"):
        hp.Table(table.uri).upsert(ROWS)
