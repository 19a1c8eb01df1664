"""Timeline documents: schemas, bytes, schema resolution and damage, for each kind."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from typing import Any

import fastavro
import pytest

from pyhudi.errors import CorruptData, HudiError, InvalidRequest, Unsupported
from pyhudi.format.actions.archived_instants import (
    ArchivedEntry,
    CompactionMetadata,
    CompactionWriteStat,
    decode_completed,
    decode_plan,
)
from pyhudi.format.actions.avro_document import Document
from pyhudi.format.actions.clean_metadata import ActionInstant, CleanerPlan, CleanFileInfo, CleanMetadata, CleanPartitionMetadata
from pyhudi.format.actions.clustering_plan import ClusteringGroup, ClusteringPlan, ClusteringStrategy, SliceInfo
from pyhudi.format.actions.commit_metadata import CommitMetadata, RuntimeStats, WriteStat
from pyhudi.format.actions.compaction_plan import CompactionOperation, CompactionPlan, CompactionStrategy
from pyhudi.format.actions.index_plan import IndexCommitMetadata, IndexPartitionInfo, IndexPlan
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.actions.restore_metadata import RestoreMetadata, RestorePlan
from pyhudi.format.actions.rollback_metadata import (
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from pyhudi.format.actions.savepoint_metadata import SavepointMetadata, SavepointPartitionMetadata
from pyhudi.format.instants import Action

SYNC = bytes.fromhex("6259393fdc3ce7028e4800eec3af391f")
T = "20261121050551499"

LOG = ".d873ac38-0000-4000-8000-000000000000-0_20261121050551499.log.1_0-68-81"
STAT = WriteStat(
    file_id="d873ac38-0000-4000-8000-000000000000-0",
    path=f"0/{LOG}",
    prev_commit=T,
    num_writes=3,
    num_update_writes=3,
    total_write_bytes=1111,
    partition_path="0",
    file_size_in_bytes=1111,
    log_version=1,
    log_offset=0,
    base_file="",
    log_files=(LOG,),
    cdc_stats={f"0/{LOG}.cdc": 300},
    runtime_stats=RuntimeStats(total_upsert_time=424),
)
COMMIT = CommitMetadata({"0": (STAT, WriteStat()), "1": ()}, False, {"schema": "{}", "_x": "é"}, "UPSERT")
REPLACE = dataclasses.replace(COMMIT, operation_type="CLUSTER", partition_to_replace_file_ids={"0": ("a-0", "b-0"), "1": ()})
SLICE = SliceInfo("file:/t/0/a-0_1-0-1_1.parquet", ("file:/t/0/.a-0_2.log.1_0-1-2",), "a-0", "0")
CLUSTERING = RequestedReplaceMetadata.of_clustering(
    ClusteringPlan(
        (ClusteringGroup((SLICE,), {"TOTAL_IO_MB": 1.5}, 2, {}),),
        ClusteringStrategy(strategy_params={"hoodie.clustering.plan.strategy.sort.columns": "v"}),
    )
)
COMPACTION = CompactionPlan((CompactionOperation("1", (LOG,), "a-0_1-0-1_1.parquet", "a-0", "0", {"TOTAL_LOG_FILES": 1.0}),), {})
LOG_COMPACTION = dataclasses.replace(COMPACTION, strategy=CompactionStrategy(strategy_params={}), preserve_hoodie_metadata=True)
CLEANER_PLAN = CleanerPlan(
    ActionInstant(T, "commit", "COMPLETED"),
    T,
    "KEEP_LATEST_COMMITS",
    file_paths_to_be_deleted_per_partition={"0": (CleanFileInfo("file:/t/0/a"),)},
    extra_metadata={"savepointed_timestamps": T},
)
CLEAN = CleanMetadata(
    T, 257, 9, "", T, {"0": CleanPartitionMetadata("0", "KEEP_LATEST_COMMITS", ("a",), ("a",), ())}, extra_metadata=None
)
ROLLBACK_PLAN = RollbackPlan(InstantInfo(T, "deltacommit"), (RollbackRequest("0", "a-0", T, ("file:/t/0/a",)),))
ROLLBACK = RollbackMetadata(
    T, 5, 1, (T,), {"0": RollbackPartitionMetadata("0", ("file:/t/0/a",))}, instants_rollback=(InstantInfo(T, "deltacommit"),)
)
RESTORE_PLAN = RestorePlan((InstantInfo(T, "commit"),), savepoint_to_restore_timestamp=T)
RESTORE = RestoreMetadata(T, 5, (T,), {T: (ROLLBACK, None)}, restore_instant_info=(InstantInfo(T, "commit"),))
SAVEPOINT = SavepointMetadata("bob", 1795237158628, "hello", {"0": SavepointPartitionMetadata("0", ("x" * 72,))})
INDEX_PLAN = IndexPlan(index_partition_infos=(IndexPartitionInfo(1, "record_index", T, None),))
INDEX = IndexCommitMetadata(index_partition_infos=(IndexPartitionInfo(1, "record_index", T, {}),))
ARCHIVED = ArchivedEntry(
    COMMIT,
    CLEAN,
    CompactionMetadata({"0": (CompactionWriteStat("0", 1, 2, 3, STAT),)}),
    ROLLBACK,
    SAVEPOINT,
    T,
    "commit",
    hoodie_compaction_plan=COMPACTION,
    hoodie_cleaner_plan=CLEANER_PLAN,
    action_state="COMPLETED",
    hoodie_replace_commit_metadata=REPLACE,
    hoodie_requested_replace_metadata=CLUSTERING,
    hoodie_inflight_replace_metadata=COMMIT,
    hoodie_index_commit_metadata=INDEX,
)
DOCUMENTS: dict[str, Any] = {
    "commit": COMMIT,
    "replacecommit": REPLACE,
    "clustering": CLUSTERING,
    "requested replacecommit": RequestedReplaceMetadata(),
    "compaction": COMPACTION,
    "log compaction": LOG_COMPACTION,
    "clean plan": CLEANER_PLAN,
    "clean": CLEAN,
    "rollback plan": ROLLBACK_PLAN,
    "rollback": ROLLBACK,
    "restore plan": RESTORE_PLAN,
    "restore": RESTORE,
    "savepoint": SAVEPOINT,
    "index plan": INDEX_PLAN,
    "index": INDEX,
    "archived": ARCHIVED,
}
each = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _as_dict(value: Any) -> Any:
    """What an Avro reader that knows nothing of us should find: field names in camel case, lists for tuples."""
    if dataclasses.is_dataclass(value):
        return {_camel(item.name): _as_dict(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_as_dict(one) for one in value]
    return {key: _as_dict(one) for key, one in value.items()} if isinstance(value, dict) else value


@each
def test_round_trip(document: Any) -> None:
    data = document.encode(SYNC)
    assert data.endswith(SYNC)
    assert type(document).decode(data) == document
    assert type(document).decode(memoryview(data)).encode(SYNC) == data


@each
def test_another_avro_reader_finds_the_same(document: Any) -> None:
    reader = fastavro.reader(io.BytesIO(document.encode(SYNC)))
    assert list(reader.metadata) == ["avro.schema"]
    [record] = list(reader)
    assert isinstance(record, dict)
    expected = {key.lower(): one for key, one in _as_dict(document).items()}
    if isinstance(document, CommitMetadata) and document.partition_to_replace_file_ids is None:
        del expected["partitiontoreplacefileids"]
    found = {key.lower(): one for key, one in record.items()}
    if isinstance(document, ArchivedEntry):
        for key in ("hoodiecommitmetadata", "hoodieinflightreplacemetadata"):
            del expected[key]["partitionToReplaceFileIds"]
    assert found == expected


@each
def test_damage_is_a_value_or_one_of_two_errors(document: Any) -> None:
    data = document.encode(SYNC)
    chance = random.Random(11)
    # Most of a document is its schema, which one hit in three bytes covers well enough.
    for at in range(0, len(data), 3 if len(data) < 5000 else 31):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        try:
            assert isinstance(type(document).decode(bytes(flipped)), type(document))
        except (CorruptData, Unsupported):
            continue


@each
def test_truncated_document_is_corrupt(document: Any) -> None:
    data = document.encode(SYNC)
    empty_is_legal = isinstance(document, CommitMetadata)
    header_end = data.index(SYNC) + len(SYNC)
    for end in range(1 if empty_is_legal else 0, len(data)):
        if end == header_end and isinstance(document, RequestedReplaceMetadata):
            assert RequestedReplaceMetadata.decode(data[:end]) == RequestedReplaceMetadata()
            continue
        with pytest.raises(CorruptData):
            type(document).decode(data[:end])


@each
def test_every_field_has_its_attribute_and_every_attribute_its_field(document: Any) -> None:
    if isinstance(document, Document):
        known: Any = type(document)
        names = [item["name"].lower() for item in json.loads(document.SCHEMA.text)["fields"]]
        assert names == [item.name.replace("_", "") for item in dataclasses.fields(known)]


@pytest.mark.parametrize("document", [COMMIT, REPLACE], ids=["commit", "replacecommit"])
def test_commit_metadata_type_follows_from_replaced_file_groups(document: CommitMetadata) -> None:
    name = "HoodieReplaceCommitMetadata" if document is REPLACE else "HoodieCommitMetadata"
    assert f'{{"type":"record","name":"{name}","namespace":"org.apache.hudi.avro.model","fields":['.encode() in document.encode()
    # `version` is the second branch of its union, then the operation follows.
    tail = b"\x02\x02" + bytes([2 * len(document.operation_type or "")])
    assert tail + (document.operation_type or "").encode() in document.encode()


def test_a_real_savepoint_file_from_its_schema_on() -> None:
    """The bytes that the description of the format shows: two partitions with one file name of 72 bytes each."""
    partitions = {key: SavepointPartitionMetadata(key, ("x" * 72,)) for key in ("0", "1")}
    data = SavepointMetadata("bob", 1795237158628, "hello", partitions).encode(SYNC)
    first, second = (b"\x02" + key + b"\x02" + key + bytes.fromhex("02 90 01") + b"x" * 72 + b"\x00" for key in (b"0", b"1"))
    value = bytes.fromhex("06 62 6f 62 c8 fb c8 c7 bf 68 0a 68 65 6c 6c 6f 04") + first + second + bytes.fromhex("00 00 02")
    assert data.partition(b"]}\x00" + SYNC)[2] == bytes.fromhex("02 e8 02") + value + SYNC


# Commit metadata.


def test_a_file_of_no_bytes_is_empty_metadata_and_nothing_else_is() -> None:
    assert CommitMetadata.decode(b"") == CommitMetadata(operation_type="UNKNOWN")
    for document in DOCUMENTS.values():
        if isinstance(document, Document):
            with pytest.raises(CorruptData):
                type(document).decode(b"")


def test_null_maps_and_counters_are_empty_and_zero() -> None:
    schema = json.loads(json.dumps(fastavro.reader(io.BytesIO(COMMIT.encode())).writer_schema))
    stat = {"fileId": "a-0"}
    out = io.BytesIO()
    value = {"partitionToWriteStats": {"": [stat]}, "compacted": None, "extraMetadata": None, "version": 1}
    fastavro.writer(out, schema, [value])
    metadata = CommitMetadata.decode(out.getvalue())
    assert metadata == CommitMetadata({"": (WriteStat("a-0", prev_commit=None),)}, version=1)
    assert metadata.write_stats[0].num_writes == 0


def test_metadata_of_layout_1() -> None:
    text = """{
      "partitionToWriteStats" : { "" : [ {
        "fileId" : "d2-0", "path" : ".d2-0_1.log.1_0-33-43", "cdcStats" : null, "prevCommit" : "1", "numWrites" : 1,
        "minEventTime" : null, "logVersion" : 1, "logOffset" : 0, "baseFile" : "d2.parquet", "logFiles" : [ "x" ],
        "runtimeStats" : { "totalScanTime" : 0, "totalUpsertTime" : 320, "totalCreateTime" : 0 },
        "recordsStats" : { "val" : null }
      } ] },
      "compacted" : true, "extraMetadata" : { "schema" : "{}" }, "operationType" : "UPSERT", "fileIdAndRelativePaths" : { } }"""
    metadata = CommitMetadata.decode(text.encode())
    [stat] = metadata.write_stats
    assert stat == WriteStat(
        "d2-0",
        ".d2-0_1.log.1_0-33-43",
        "1",
        1,
        runtime_stats=RuntimeStats(0, 0, 320),
        log_version=1,
        log_offset=0,
        base_file="d2.parquet",
        log_files=("x",),
    )
    assert (metadata.compacted, metadata.operation_type, metadata.partition_to_replace_file_ids) == (True, "UPSERT", None)
    replaced = CommitMetadata.decode(b'{"partitionToReplaceFileIds":{"0":["a-0"]}}')
    assert replaced.partition_to_replace_file_ids == {"0": ("a-0",)}


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"compacted":1}', b'{"partitionToWriteStats":[]}', b'{"extraMetadata":{"a":1}}', b"\xff", b"[]", b'{"a":"\xff"}'],
)
def test_invalid_commit_metadata_is_rejected(data: bytes) -> None:
    with pytest.raises(CorruptData):
        CommitMetadata.decode(data)


def test_an_operation_that_readers_refuse_is_not_written() -> None:
    for word in ("upsert", "MERGE", ""):
        with pytest.raises(InvalidRequest):
            CommitMetadata(operation_type=word).encode()
    CommitMetadata(operation_type=None).encode()


def test_other_documents_are_not_taken_for_one_another() -> None:
    with pytest.raises(CorruptData):
        CleanMetadata.decode(SAVEPOINT.encode())
    with pytest.raises(CorruptData):
        SavepointMetadata.decode(COMMIT.encode())


def test_defaults_are_those_that_hudi_readers_require() -> None:
    """Null in one of these makes Apache Hudi fail."""
    assert (CLEANER_PLAN.version, CLEAN.version, COMPACTION.version) == (2, 2, 2)
    assert CleanPartitionMetadata("0", "p").is_partition_deleted is False
    metadata = CommitMetadata()
    assert (metadata.partition_to_write_stats, metadata.extra_metadata, metadata.version) == ({}, {}, None)
    assert WriteStat().prev_commit == "null"


# Archived instants.

BY_ACTION = [
    (Action.COMMIT, COMMIT),
    (Action.DELTACOMMIT, COMMIT),
    (Action.COMPACTION, COMMIT),
    (Action.REPLACECOMMIT, REPLACE),
    (Action.CLUSTERING, REPLACE),
    (Action.CLEAN, CLEAN),
    (Action.ROLLBACK, ROLLBACK),
    (Action.RESTORE, RESTORE),
    (Action.SAVEPOINT, SAVEPOINT),
    (Action.INDEXING, INDEX),
]
PLANS = [
    (Action.COMMIT, COMPACTION),
    (Action.DELTACOMMIT, LOG_COMPACTION),
    (Action.CLEAN, CLEANER_PLAN),
    (Action.REPLACECOMMIT, CLUSTERING),
    (Action.REPLACECOMMIT, COMMIT),
]


def _bare(document: Any) -> bytes:
    """The value of a container without the container, as an upgrade leaves it in the history."""
    data: bytes = document.encode(SYNC)
    block = data[data.index(b"\x00" + SYNC) + 18 : -16]
    end_of_size = next(at for at, byte in enumerate(block) if byte < 0x80) + 1
    return block[end_of_size:]


@pytest.mark.parametrize(("action", "document"), BY_ACTION)
def test_completed_documents_of_the_history(action: Action, document: Any) -> None:
    assert decode_completed(action, document.encode()) == document
    assert decode_completed(action, _bare(document)) == document


@pytest.mark.parametrize(("action", "plan"), PLANS)
def test_plans_of_the_history(action: Action, plan: Any) -> None:
    assert decode_plan(action, plan.encode()) == plan
    if not isinstance(plan, CommitMetadata):
        assert decode_plan(action, _bare(plan)) == plan


def test_json_and_nothing_in_the_history() -> None:
    assert decode_completed(Action.COMMIT, b'{"operationType":"DELETE"}') == CommitMetadata(operation_type="DELETE", version=1)
    assert decode_completed(Action.COMMIT, b"") == CommitMetadata(operation_type="UNKNOWN")


@pytest.mark.parametrize("action", [Action.SCHEMACOMMIT])
def test_actions_without_documents(action: Action) -> None:
    with pytest.raises(CorruptData):
        decode_completed(action, COMMIT.encode())
    for other in (Action.ROLLBACK, Action.SAVEPOINT, Action.RESTORE):
        with pytest.raises(CorruptData):
            decode_plan(other, COMPACTION.encode())


@pytest.mark.parametrize("data", [b"\x00", b"\xff" * 40, b"not avro", b"Obj\x01"])
@pytest.mark.parametrize("action", [Action.COMMIT, Action.CLEAN, Action.REPLACECOMMIT])
def test_garbage_in_the_history(action: Action, data: bytes) -> None:
    for decode in (decode_completed, decode_plan):
        with pytest.raises(HudiError) as caught:
            decode(action, data)
        assert isinstance(caught.value, CorruptData)


def test_plans_with_a_repeated_file_group_are_refused() -> None:
    plan = CompactionPlan((CompactionOperation(T, (LOG,), None, "f-0", "0"), CompactionOperation(T, (LOG,), None, "f-1", "0")))
    with pytest.raises(CorruptData, match="compaction plan has a file group twice"):
        CompactionPlan.decode(plan.encode().replace(b"f-1", b"f-0"))
    slices = (SliceInfo(file_id="f-0", partition_path="0"), SliceInfo(file_id="f-0", partition_path="0"))
    with pytest.raises(CorruptData, match="clustering plan has a file group twice"):
        ClusteringPlan((ClusteringGroup(slices),))
    assert (
        len(ClusteringPlan((ClusteringGroup((slices[0], SliceInfo(file_id="f-0", partition_path="1"))),)).input_groups or ()) == 1
    )
