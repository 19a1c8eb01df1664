from __future__ import annotations

import uuid

import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.names import MarkerType
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.markers import Markers, marked_instants

T = "20261121044645518"
BASE = "city=Rome/0f3cf4c8-0_0-12-34_20261121044645518.parquet"
LOG = "0/.d873ac38-c17a-46ca-8504-95ddd6e745ce-0_20261121050614768.log.1_0-130-176"


@pytest.fixture
def storage() -> Storage:
    return open_storage(f"memory://{uuid.uuid4().hex}")


def paths(storage: Storage) -> list[str]:
    return sorted(info.path for info in storage.walk(""))


def test_direct_markers_are_empty_files_with_a_type_suffix(storage: Storage) -> None:
    markers = Markers(storage, T)
    markers.create(BASE, MarkerType.MERGE)
    markers.create(LOG, MarkerType.CREATE)
    markers.create("f.parquet", MarkerType.CREATE)
    assert paths(storage) == [
        f".hoodie/.temp/{T}/{LOG}.marker.CREATE",
        f".hoodie/.temp/{T}/{BASE}.marker.MERGE",
        f".hoodie/.temp/{T}/f.parquet.marker.CREATE",
    ]
    assert {storage.read(path) for path in paths(storage)} == {b""}
    assert markers.list() == ((LOG, MarkerType.CREATE), (BASE, MarkerType.MERGE), ("f.parquet", MarkerType.CREATE))


def test_a_marker_may_be_created_again(storage: Storage) -> None:
    for _ in range(2):
        Markers(storage, T).create(BASE, MarkerType.CREATE)
    assert Markers(storage, T).list() == ((BASE, MarkerType.CREATE),)


def test_instants_are_kept_apart(storage: Storage) -> None:
    Markers(storage, T).create(BASE, MarkerType.CREATE)
    other = Markers(storage, "20261121044645519")
    assert other.list() == ()
    other.create(LOG, MarkerType.CREATE)
    assert marked_instants(storage) == (T, "20261121044645519")
    other.delete()
    other.delete()
    assert marked_instants(storage) == (T,)
    assert Markers(storage, T).list() == ((BASE, MarkerType.CREATE),)


def test_lists_hold_one_marker_each(storage: Storage) -> None:
    """Tasks of many processes create them, some of them twice."""
    markers = Markers(storage, T, in_lists=True)
    markers.begin()
    for _ in range(2):
        Markers(storage, T, in_lists=True).create(BASE, MarkerType.MERGE)
    markers.create(LOG, MarkerType.CREATE)
    found = paths(storage)
    assert len(found) == 3 and found[0] == f".hoodie/.temp/{T}/MARKERS.type"
    assert sorted(storage.read(path) or b"" for path in found[1:]) == [
        f"{LOG}.marker.CREATE\n".encode(),
        f"{BASE}.marker.MERGE\n".encode(),
    ]
    assert Markers(storage, T).list() == ((LOG, MarkerType.CREATE), (BASE, MarkerType.MERGE))
    markers.delete()
    assert paths(storage) == []


def test_two_markers_of_one_hash(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.storage.markers.xxhash.xxh64_intdigest", lambda line: 7)
    markers = Markers(storage, T, in_lists=True)
    markers.begin()
    for path in (BASE, LOG, BASE, LOG):
        markers.create(path, MarkerType.CREATE)
    assert markers.list() == ((LOG, MarkerType.CREATE), (BASE, MarkerType.CREATE))
    assert len(paths(storage)) == 3


def test_a_timeline_servers_lists_are_read(storage: Storage) -> None:
    folder = f".hoodie/.temp/{T}"
    storage.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.put(f"{folder}/MARKERS0", f"{LOG}.marker.CREATE\n".encode())
    storage.put(f"{folder}/MARKERS19", f"{BASE}.marker.MERGE\n{LOG}.marker.CREATE\n".encode())
    storage.put(f"{folder}/MARKERS3", b"")
    assert Markers(storage, T).list() == ((LOG, MarkerType.CREATE), (BASE, MarkerType.MERGE))


def test_marker_lists_without_a_type_file_are_read(storage: Storage) -> None:
    storage.put(f".hoodie/.temp/{T}/MARKERS0", f"{LOG}.marker.CREATE\n".encode())
    Markers(storage, T).create(BASE, MarkerType.CREATE)
    assert Markers(storage, T).list() == ((LOG, MarkerType.CREATE), (BASE, MarkerType.CREATE))


@pytest.mark.parametrize(
    ("name", "data"),
    [("MARKERS0", b"0/f.parquet.marker.CRE"), ("MARKERS0", b"nonsense\n"), ("MARKERS0", b"\xff\n"), ("0/stranger", b"")],
)
def test_damaged_marker_list_is_reported_with_its_path(storage: Storage, name: str, data: bytes) -> None:
    storage.put(f".hoodie/.temp/{T}/{name}", data)
    Markers(storage, T).create(BASE, MarkerType.CREATE)
    with pytest.raises(CorruptData, match=f"{T}/{name}"):
        Markers(storage, T).list()


def test_a_list_that_its_server_is_writing_counts_as_far_as_it_goes(storage: Storage) -> None:
    markers = Markers(storage, T)
    storage.put(f".hoodie/.temp/{T}/MARKERS0", f"{BASE}.marker.CREATE\n{LOG}.marker.CRE".encode())
    assert markers.list(in_progress=True) == ((BASE, MarkerType.CREATE),)
    storage.put(f".hoodie/.temp/{T}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    assert markers.list(in_progress=True) == ((BASE, MarkerType.CREATE),)
    with pytest.raises(CorruptData, match="MARKERS0"):
        markers.list()


def test_no_folder_means_no_markers(storage: Storage) -> None:
    assert Markers(storage, T).list() == ()
    assert marked_instants(storage) == ()
