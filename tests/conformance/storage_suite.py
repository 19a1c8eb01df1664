"""Requirements of every storage. A test class inherits `StorageSuite` and supplies a new, empty `storage`."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.storage import open_storage
from pyhudi.storage.base import Listing, Storage

# Names that have broken a program: escaped partition values, spaces, other scripts, and the syntax of URIs.
AWKWARD_PATHS = (
    "day=2026%2F11%2F21/a b.parquet",
    "stadt=Zürich/日本/x.parquet",
    ".hoodie/timeline/20261121044645518_20261121044646000.commit",
    ".hoodie/.temp/20261121044645518/p/f-0_0-1-2_3.parquet.marker.CREATE",
    "p/.f-0_20261121050614768.log.1_0-130-176",
    "q?x=1#frag&y+z/a;b,c=d'e(f)!~@$.parquet",
)


def paths_below(storage: Storage, folder: str) -> list[str]:
    return sorted(info.path for info in storage.walk(folder))


class StorageSuite:
    def test_put_file_is_read_and_has_status(self, storage: Storage) -> None:
        storage.put("a/b/c", b"hello")
        assert storage.read("a/b/c") == b"hello"
        info = storage.stat("a/b/c")
        assert info is not None
        assert (info.path, info.size_bytes, info.name) == ("a/b/c", 5, "c")
        assert info.modified_ms > 1_600_000_000_000

    def test_put_replaces(self, storage: Storage) -> None:
        storage.put("f", b"a longer first content")
        storage.put("f", b"short")
        assert storage.read("f") == b"short"
        storage.put("f", b"")
        assert storage.read("f") == b""

    def test_absence_is_a_value(self, storage: Storage) -> None:
        storage.put("a/b", b"x")
        for path in ("z", "z/y/x", "a", "a/c", "a/b/c"):
            assert storage.read(path) is None
            assert storage.stat(path) is None
            assert storage.read_versioned(path) is None
        for folder in ("z", "z/y", "a/b"):
            assert storage.list(folder) == Listing()
            assert storage.names(folder) == ()
            assert list(storage.walk(folder)) == []
        storage.delete(["z", "a/c"])
        storage.delete_folder("z/y")
        assert storage.read("a/b") == b"x"

    def test_the_file_that_must_exist_and_does_not(self, storage: Storage) -> None:
        with pytest.raises(TableState, match="missing"):
            storage.read_range("d/missing", 0, 1)
        with pytest.raises(TableState, match="missing"):
            storage.read_range("d/missing", 0, 0)
        with pytest.raises(TableState, match="missing"):
            storage.open_input("d/missing")

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\x00b"])
    def test_paths_that_are_none(self, storage: Storage, path: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: storage.read(path),
            lambda: storage.stat(path),
            lambda: storage.put(path, b""),
            lambda: storage.put_if_absent(path, b""),
            lambda: storage.delete([path]),
            lambda: storage.open_input(path),
            lambda: storage.open_output(path),
        ]
        for call in calls:
            with pytest.raises(InvalidRequest):
                call()

    @pytest.mark.parametrize("path", AWKWARD_PATHS)
    def test_special_characters_in_names_are_kept(self, storage: Storage, path: str) -> None:
        storage.put(path, b"x")
        with storage.open_output(path + "2") as sink:
            sink.write(b"y")
        assert paths_below(storage, "") == [path, path + "2"]
        folder = path.rpartition("/")[0]
        assert [info.path for info in storage.list(folder).files] == [path, path + "2"]
        assert storage.absolute(path) == f"{storage.uri}/{path}"
        assert open_storage(storage.child(folder).spec()).read(path.rpartition("/")[2]) == b"x"
        storage.delete([path])
        assert paths_below(storage, "") == [path + "2"]

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [(0, 10, b"0123456789"), (3, 4, b"3456"), (7, 100, b"789"), (9, 1, b"9"), (10, 5, b""), (99, 1, b""), (4, 0, b"")],
    )
    def test_ranges(self, storage: Storage, offset: int, length: int, expected: bytes) -> None:
        storage.put("f", b"0123456789")
        assert storage.read_range("f", offset, length) == expected

    def test_a_huge_range_costs_what_the_file_holds(self, storage: Storage) -> None:
        storage.put("f", b"0123456789")
        assert storage.read_range("f", 2, 1 << 60) == b"23456789"
        assert storage.read_range("f", 1 << 60, 1) == b""

    def test_a_range_of_an_empty_file(self, storage: Storage) -> None:
        storage.put("f", b"")
        assert storage.read_range("f", 0, 1) == b""

    @pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1)])
    def test_a_negative_range_is_refused(self, storage: Storage, offset: int, length: int) -> None:
        with pytest.raises(InvalidRequest):
            storage.read_range("f", offset, length)

    def test_listing_gives_direct_children_in_order(self, storage: Storage) -> None:
        for path in ("t/b", "t/a", "t/sub/deep/x", "t/sub/y", "t2/z", "t-1"):
            storage.put(path, b"1")
        listing = storage.list("t")
        assert [info.path for info in listing.files] == ["t/a", "t/b"]
        assert listing.folders == ("t/sub",)
        assert storage.names("t") == ("a", "b")
        assert [info.path for info in storage.list("").files] == ["t-1"]
        assert storage.list("").folders == ("t", "t2")
        assert paths_below(storage, "t") == ["t/a", "t/b", "t/sub/deep/x", "t/sub/y"]
        assert paths_below(storage, "") == ["t-1", "t/a", "t/b", "t/sub/deep/x", "t/sub/y", "t2/z"]

    def test_paths_stay_relative_to_the_root_of_a_child(self, storage: Storage) -> None:
        storage.put("t/s/a", b"1")
        child = storage.child("t")
        assert child.uri == f"{storage.uri}/t"
        assert child.absolute("s/a") == storage.absolute("t/s/a")
        assert child.absolute("") == child.uri
        assert child.list("").folders == ("s",)
        assert [info.path for info in child.list("s").files] == ["s/a"]
        assert paths_below(child, "") == ["s/a"]
        child.put("n", b"2")
        assert storage.read("t/n") == b"2"
        assert storage.child("").uri == storage.uri

    def test_put_if_absent_never_replaces(self, storage: Storage) -> None:
        assert storage.put_if_absent("a/f", b"first") is True
        assert storage.put_if_absent("a/f", b"second") is False
        assert storage.put_if_absent("a/f", b"") is False
        assert storage.read("a/f") == b"first"
        assert storage.put_if_absent("a/empty", b"") is True
        assert storage.put_if_absent("a/empty", b"") is False
        assert storage.put_if_absent("a/empty", b"x") is False
        assert storage.read("a/empty") == b""

    @pytest.mark.parametrize("size_bytes", [0, 1, 100_000])
    def test_of_many_writers_of_one_name_one_wins(self, storage: Storage, size_bytes: int) -> None:
        start = threading.Barrier(8)

        def write(writer: int) -> bool:
            start.wait()
            return storage.put_if_absent("d/f", bytes([writer]) * size_bytes)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(write, range(8)))
        assert won.count(True) == 1
        assert storage.read("d/f") == bytes([won.index(True)]) * size_bytes
        assert paths_below(storage, "") == ["d/f"]

    def test_put_if_matches_compares_before_it_replaces(self, storage: Storage) -> None:
        storage.put("f", b"one")
        found = storage.read_versioned("f")
        assert found is not None
        data, tag = found
        assert data == b"one"
        written = storage.put_if_matches("f", b"two", tag)
        assert written
        assert storage.put_if_matches("f", b"three", tag) is None
        found = storage.read_versioned("f")
        assert found == (b"two", written)
        # What it wrote it may replace without reading it.
        assert storage.put_if_matches("f", b"two", written)
        assert storage.read("f") == b"two"
        storage.delete(["f"])
        assert storage.put_if_matches("f", b"four", tag) is None
        assert storage.put_if_matches("no/such/f", b"five", tag) is None
        assert storage.read("f") is None

    def test_counting_with_put_if_matches_loses_nothing(self, storage: Storage) -> None:
        storage.put("n", b"0")

        def increment(_: int) -> None:
            for _attempt in range(10_000):
                found = storage.read_versioned("n")
                assert found is not None
                if storage.put_if_matches("n", str(int(found[0]) + 1).encode(), found[1]):
                    return
            raise AssertionError("never won")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(increment, range(40)))
        assert storage.read("n") == b"40"

    def test_a_reader_never_sees_a_part(self, storage: Storage) -> None:
        size_bytes = 300_000
        storage.put("f", b"\0" * size_bytes)
        stop = threading.Event()
        seen: list[bytes] = []

        def watch() -> None:
            while not stop.is_set():
                data = storage.read("f")
                if data is None or len(data) != size_bytes or len(set(data)) != 1:
                    seen.append(b"" if data is None else data[:10])

        watcher = threading.Thread(target=watch)
        watcher.start()
        for round_number in range(20):
            if round_number % 2:
                storage.put("f", bytes([round_number]) * size_bytes)
            else:
                with storage.open_output("f") as sink:
                    for _ in range(3):
                        sink.write(bytes([round_number]) * (size_bytes // 3))
        stop.set()
        watcher.join()
        assert seen == []

    def test_delete_takes_some_and_leaves_the_others(self, storage: Storage) -> None:
        for path in ("a/1", "a/2", "b"):
            storage.put(path, b"x")
        storage.delete(iter(["a/1", "b", "absent"]))
        assert paths_below(storage, "") == ["a/2"]
        storage.delete([])

    def test_delete_folder_takes_everything_below(self, storage: Storage) -> None:
        for path in ("a/1", "a/b/c/2", "ab", "z"):
            storage.put(path, b"x")
        storage.delete_folder("a")
        assert paths_below(storage, "") == ["ab", "z"]
        assert storage.list("").folders == ()
        storage.delete_folder("")
        assert paths_below(storage, "") == []
        storage.put("again", b"1")

    def test_make_folder(self, storage: Storage) -> None:
        storage.make_folder("a/b")
        storage.make_folder("a/b")
        assert storage.list("a") == Listing((), ("a/b",) if storage.has_folders else ())
        assert list(storage.walk("")) == []
        storage.put("a/b/f", b"1")
        assert storage.list("a").folders == ("a/b",)

    def test_an_output_appears_at_its_clean_end(self, storage: Storage) -> None:
        with storage.open_output("d/f") as sink:
            sink.write(b"abc")
            sink.write(pa.py_buffer(b"def"))
            assert sink.tell() == 6
            assert storage.read("d/f") is None
            assert storage.list("d").files == ()
        assert storage.read("d/f") == b"abcdef"

    def test_an_output_that_its_writer_closes(self, storage: Storage) -> None:
        with storage.open_output("f") as sink:
            sink.write(b"abc")
            sink.close()
        assert storage.read("f") == b"abc"

    def test_an_empty_output_is_a_file(self, storage: Storage) -> None:
        with storage.open_output("f"):
            pass
        assert storage.read("f") == b""

    @pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
    def test_an_output_that_fails_leaves_nothing(self, storage: Storage, failure: type[BaseException]) -> None:
        storage.put("d/old", b"old")
        for path in ("d/new", "d/old"):
            with pytest.raises(failure), storage.open_output(path) as sink:
                sink.write(b"x" * 100_000)
                raise failure
        assert paths_below(storage, "") == ["d/old"]
        assert storage.read("d/old") == b"old"

    def test_a_large_output(self, storage: Storage) -> None:
        block = bytes(range(256)) * 4096
        with storage.open_output("big") as sink:
            for _ in range(20):
                sink.write(block)
        info = storage.stat("big")
        assert info is not None
        assert info.size_bytes == 20 * len(block)
        assert storage.read_range("big", 10 * len(block) - 3, 6) == b"\xfd\xfe\xff\x00\x01\x02"
        with storage.open_input("big") as file:
            assert file.read() == block * 20

    def test_an_input_seeks_and_reads(self, storage: Storage) -> None:
        content = b"".join(number.to_bytes(4, "big") for number in range(100_000))
        storage.put("f", content)
        with storage.open_input("f") as file:
            assert file.size() == len(content)
            for position, length in ((0, 8), (4, 4), (399_990, 100), (200_000, 8), (200_004, 150_000), (10, 0)):
                file.seek(position)
                assert file.read(length) == content[position : position + length]
                assert file.tell() == min(position + length, len(content))
            assert file.read_at(12, 40) == content[40:52]
            file.seek(0)
            assert file.read() == content

    def test_an_input_of_an_empty_file(self, storage: Storage) -> None:
        storage.put("f", b"")
        with storage.open_input("f") as file:
            assert file.size() == 0
            assert file.read() == b""

    def test_parquet_through_both(self, storage: Storage) -> None:
        table = pa.table({"a": list(range(50_000)), "b": [f"value {i}" for i in range(50_000)]})
        with storage.open_output("p/f.parquet") as sink:
            pq.write_table(table, sink, row_group_size=7_000)
        with storage.open_input("p/f.parquet") as file:
            assert pq.read_table(file, columns=["b"]).equals(table.select(["b"]))

    def test_a_spec_opens_the_same_place(self, storage: Storage) -> None:
        storage.put("t/a", b"1")
        spec = pickle.loads(pickle.dumps(storage.child("t").spec()))
        again = open_storage(spec)
        assert again.uri == f"{storage.uri}/t"
        assert again.has_folders == storage.has_folders
        assert again.read("a") == b"1"
        assert again.spec() == spec

    def test_sweeping_a_folder_without_temporary_files_changes_nothing(self, storage: Storage) -> None:
        storage.put("d/.a", b"1")
        storage.put("d/b.tmp", b"1")
        assert storage.sweep_unfinished("d", 1 << 50) == 0
        assert storage.sweep_unfinished("absent", 1 << 50) == 0
        assert paths_below(storage, "") == ["d/.a", "d/b.tmp"]
