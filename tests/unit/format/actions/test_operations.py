"""Properties of each write operation, defined in one table."""

from __future__ import annotations

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.operations.write.write_settings import WriteOperation

ORDINARY = ("changes_rows", "moves_keys", "sets_schema")
TRAITS = {
    Operation.INSERT: ORDINARY,
    Operation.INSERT_PREPPED: ORDINARY,
    Operation.UPSERT: ORDINARY,
    Operation.UPSERT_PREPPED: ORDINARY,
    Operation.BULK_INSERT: ORDINARY,
    Operation.BULK_INSERT_PREPPED: ORDINARY,
    Operation.DELETE: (*ORDINARY, "deletes"),
    Operation.DELETE_PREPPED: (*ORDINARY, "deletes"),
    Operation.BOOTSTRAP: ORDINARY,
    Operation.INSERT_OVERWRITE: (*ORDINARY, "replaces"),
    Operation.INSERT_OVERWRITE_TABLE: (*ORDINARY, "replaces"),
    Operation.DELETE_PARTITION: (*ORDINARY, "replaces"),
    Operation.CLUSTER: ("is_service", "moves_keys", "replaces"),
    Operation.COMPACT: ("is_service",),
    Operation.LOG_COMPACT: ("is_service",),
    Operation.INDEX: (),
    Operation.ALTER_SCHEMA: ("sets_schema",),
    Operation.BUCKET_RESCALE: ("moves_keys", "replaces", "sets_schema"),
    Operation.UNKNOWN: ORDINARY,
}
NAMES = ("is_service", "changes_rows", "moves_keys", "replaces", "deletes", "sets_schema")


@pytest.mark.parametrize("operation", Operation)
def test_operation_has_its_traits(operation: Operation) -> None:
    assert {name for name in NAMES if getattr(operation, name)} == set(TRAITS[operation])


def test_unknown_operation_counts_as_a_write() -> None:
    assert CommitMetadata(operation_type="MADE_UP_LATER").operation is Operation.UNKNOWN
    assert CommitMetadata().operation is Operation.UNKNOWN
    assert CommitMetadata(operation_type="LOG_COMPACT").operation is Operation.LOG_COMPACT


def test_unknown_operation_type_is_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match="MADE_UP"):
        CommitMetadata(operation_type="MADE_UP").encode()


@pytest.mark.parametrize("operation", WriteOperation)
def test_each_write_has_its_word(operation: WriteOperation) -> None:
    assert operation.recorded.name == operation.name
