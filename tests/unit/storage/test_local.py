from __future__ import annotations

import errno
import fcntl
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyhudi.errors import HudiError, InvalidRequest, StorageFull, StorageUnavailable, TableState, Unsupported, WriteConflict
from pyhudi.storage import Storage, StorageSpec, open_storage
from pyhudi.storage.fault_injection import SimulatedCrash
from pyhudi.storage.local import _staging_folder
from pyhudi.storage.process_identity import Process


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("form", ["{0}", "file:{0}", "file://{0}", "file://localhost{0}", "{0}/"])
def test_all_forms_of_a_local_uri_are_one_place(tmp_path: Path, form: str) -> None:
    storage = open_storage(form.format(tmp_path))
    storage.put("f", b"1")
    assert (tmp_path / "f").read_bytes() == b"1"
    assert storage.uri == f"file:{tmp_path}"
    assert storage.absolute("a b/c%20") == f"file:{tmp_path}/a b/c%20"


def test_percent_signs_in_a_uri_are_not_decoded(tmp_path: Path) -> None:
    open_storage(f"file://{tmp_path}/a%20b").put("f", b"1")
    assert names(tmp_path) == ["a%20b"]


class TestChecksumSidecars:
    @pytest.mark.parametrize("name", ["f", ".hoodie_partition_metadata"])
    def test_every_write_or_delete_removes_a_stale_checksum_file(self, storage: Storage, tmp_path: Path, name: str) -> None:
        sidecar = tmp_path / "d" / f".{name}.crc"
        path = f"d/{name}"
        storage.put(path, b"first")

        sidecar.write_bytes(b"crc")
        storage.put(path, b"second")
        assert not sidecar.exists()

        found = storage.read_versioned(path)
        assert found is not None
        sidecar.write_bytes(b"crc")
        assert storage.put_if_matches(path, b"third", found[1])
        assert not sidecar.exists()

        sidecar.write_bytes(b"crc")
        with storage.open_output(path) as sink:
            sink.write(b"fourth")
        assert not sidecar.exists()

        sidecar.write_bytes(b"crc")
        storage.delete([path])
        assert not sidecar.exists()

        for data in (b"fifth", b""):
            sidecar.write_bytes(b"crc")
            assert storage.put_if_absent(path, data)
            assert not sidecar.exists()
            storage.delete([path])

    def test_failed_write_keeps_the_checksum_file(self, storage: Storage, tmp_path: Path) -> None:
        storage.put("f", b"1")
        (tmp_path / ".f.crc").write_bytes(b"crc")
        assert not storage.put_if_absent("f", b"2")
        assert not storage.put_if_matches("f", b"2", "another tag")
        with pytest.raises(ValueError, match="stop"), storage.open_output("f"):
            raise ValueError("stop")
        assert (tmp_path / ".f.crc").exists()

    def test_listings_hide_checksum_files(self, storage: Storage, tmp_path: Path) -> None:
        storage.put(".x.log.1", b"1")
        (tmp_path / "..x.log.1.crc").write_bytes(b"crc")
        (tmp_path / "data.crc").write_bytes(b"a file that is only named so")
        assert [info.path for info in storage.list("").files] == [".x.log.1", "data.crc"]
        assert sorted(info.path for info in storage.walk("")) == [".x.log.1", "data.crc"]
        assert storage.names("") == (".x.log.1", "data.crc")


def test_a_link_to_a_missing_file_is_not_listed(storage: Storage, tmp_path: Path) -> None:
    storage.put("a", b"1")
    (tmp_path / "b").symlink_to(tmp_path / "missing")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert storage.names("") == ("a", "c") == tuple(info.name for info in storage.list("").files)


class TestLeftoversOfCrashedWriters:
    @pytest.fixture
    def leftover(self, storage: Storage, tmp_path: Path) -> str:
        output = storage.open_output("p/f.parquet")
        output.__enter__().write(b"half a file")
        # The process dies here: the block does not end.
        del output
        (left,) = names(tmp_path / "p")
        return left

    def test_temporary_names_match_no_table_file_pattern(self, leftover: str) -> None:
        assert leftover.startswith(".pyhudi-")
        assert leftover.endswith(".tmp")
        assert "_" not in leftover
        assert ".log" not in leftover

    def test_temporary_files_are_not_listed(self, storage: Storage, leftover: str) -> None:
        assert storage.list("p").files == ()
        assert list(storage.walk("")) == []

    def test_sweeping_removes_old_temporary_files_of_another_host(self, storage: Storage, tmp_path: Path, leftover: str) -> None:
        storage.put("p/g", b"1")
        own = Process.current()
        theirs = leftover.replace(own.text, replace(own, host="elsewhere").text)
        (tmp_path / "p" / leftover).rename(tmp_path / "p" / theirs)
        os.utime(tmp_path / "p" / theirs, ns=(5_000_000_000, 5_000_000_000))
        assert storage.sweep_unfinished("p", 5_000) == 0
        assert storage.sweep_unfinished("p", 5_001) == 1
        assert names(tmp_path / "p") == ["g"]

    def test_sweeping_keeps_temporary_files_of_a_running_process(self, storage: Storage, tmp_path: Path, leftover: str) -> None:
        os.utime(tmp_path / "p" / leftover, ns=(5_000_000_000, 5_000_000_000))
        assert storage.sweep_unfinished("p", 1 << 50) == 0
        assert names(tmp_path / "p") == [leftover]

    @pytest.mark.parametrize("method", ["put", "put_if_absent", "open_output"])
    def test_writer_whose_temporary_file_was_swept_gets_an_error(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        storage.put("old", b"old")

        def swept_before(call: Callable[[str, str], None]) -> Callable[[str, str], None]:
            def late(source: str, target: str) -> None:
                os.unlink(source)
                call(source, target)

            return late

        monkeypatch.setattr(os, "link", swept_before(os.link))
        monkeypatch.setattr(os, "replace", swept_before(os.replace))
        with pytest.raises(WriteConflict, match="its temporary file was deleted"):
            if method == "open_output":
                with storage.open_output("new") as sink:
                    sink.write(b"new")
            else:
                getattr(storage, method)("new", b"new")
        assert storage.read("old") == b"old"
        assert storage.read("new") is None

    def test_empty_documents_leave_nothing_at_all(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Markers are empty files in a folder that Apache Hudi reads strictly, so no temporary name may ever be in it.
        monkeypatch.setattr(os, "link", lambda *_: pytest.fail("an empty document needs no link"))
        assert storage.put_if_absent("m/x.marker.CREATE", b"")
        assert names(tmp_path / "m") == ["x.marker.CREATE"]


@pytest.mark.parametrize("method", ["put", "put_if_absent", "put_if_matches"])
def test_a_crash_before_the_name_appears_changes_nothing(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    storage.put("old", b"old")
    found = storage.read_versioned("old")
    assert found is not None

    def crash(*_: object) -> None:
        raise SimulatedCrash

    monkeypatch.setattr(os, "link", crash)
    monkeypatch.setattr(os, "replace", crash)
    monkeypatch.setattr(os, "unlink", lambda *_: None)
    with pytest.raises(SimulatedCrash):
        if method == "put":
            storage.put("old", b"new")
        elif method == "put_if_absent":
            storage.put_if_absent("new", b"new")
        else:
            storage.put_if_matches("old", b"new", found[1])
    monkeypatch.undo()
    assert [info.path for info in storage.list("").files] == ["old"]
    assert storage.read("old") == b"old"
    assert len(names(tmp_path)) == 2


class TestWithoutLinks:
    @pytest.fixture(autouse=True)
    def no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def link(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)

    def test_put_if_absent_still_has_one_winner(self, storage: Storage, tmp_path: Path) -> None:
        assert storage.put_if_absent("f", b"1")
        assert not storage.put_if_absent("f", b"2")
        assert storage.read("f") == b"1"
        assert names(tmp_path) == ["f"]

    def test_put_if_absent_loses_to_a_concurrently_created_file(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "f").write_bytes(b"theirs")
        monkeypatch.setattr(os.path, "lexists", lambda _: False)
        assert not storage.put_if_absent("f", b"ours")
        assert storage.read("f") == b"theirs"

    def test_partial_file_is_removed_when_the_disk_is_full(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageUnavailable, match="No space left"):
            storage.put_if_absent("f", b"1")
        assert names(tmp_path) == []


def test_link_with_a_lost_response_counts(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    real_link = os.link

    def link(source: str, target: str) -> None:
        real_link(source, target)
        raise OSError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", link)
    assert storage.put_if_absent("f", b"1")


class TestErrors:
    def test_a_part_of_the_path_is_a_file(self, storage: Storage) -> None:
        storage.put("f", b"1")
        for call in (
            lambda: storage.put("f/x", b"1"),
            lambda: storage.put_if_absent("f/x", b"1"),
            lambda: storage.open_output("f/x").__enter__(),
            lambda: storage.make_folder("f"),
        ):
            with pytest.raises(InvalidRequest, match="choose another path"):
                call()

    def test_the_path_is_a_folder(self, storage: Storage) -> None:
        storage.make_folder("d")
        with pytest.raises(InvalidRequest, match="is a folder"):
            storage.put("d", b"1")
        with pytest.raises(InvalidRequest), storage.open_output("d"):
            pass
        assert not storage.put_if_absent("d", b"1")
        with pytest.raises(TableState):
            storage.open_input("d")

    def test_a_name_that_is_too_long(self, storage: Storage) -> None:
        with pytest.raises(InvalidRequest, match="too long"):
            storage.put("x" * 300, b"1")

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.EACCES, InvalidRequest),
            (errno.EROFS, InvalidRequest),
            (errno.EIO, StorageUnavailable),
            (errno.ESTALE, StorageUnavailable),
            (errno.EMFILE, StorageUnavailable),
            (errno.ENOSPC, StorageFull),
            (errno.EDQUOT, StorageFull),
        ],
    )
    def test_operating_system_errors_name_path_and_remedy(
        self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[HudiError]
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "open", fail)
        with pytest.raises(kind, match=f"cannot write {tmp_path}/f: {os.strerror(number)}") as caught:
            storage.put("f", b"1")
        assert isinstance(caught.value.__cause__, OSError)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_an_unwritable_folder(self, storage: Storage, tmp_path: Path) -> None:
        tmp_path.chmod(0o555)
        with pytest.raises(InvalidRequest, match="owner or mode"):
            storage.put("f", b"1")

    def test_full_disk_inside_an_output_is_storage_full(self, storage: Storage, tmp_path: Path) -> None:
        with pytest.raises(StorageUnavailable, match="No space left"), storage.open_output("f"):
            raise OSError(errno.ENOSPC, "No space left on device")
        assert names(tmp_path) == []

    def test_arrow_errors_are_not_translated(self, storage: Storage) -> None:
        with pytest.raises(OSError, match="Corrupt snappy"), storage.open_output("f"):
            raise OSError("Corrupt snappy compressed data.")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
    def test_full_device_is_storage_full(self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyhudi.storage.local._temporary_path", lambda _: str(tmp_path / "full"))
        os.symlink("/dev/full", tmp_path / "full")
        with pytest.raises(StorageUnavailable, match="space"), storage.open_output("f") as sink:
            for _ in range(100):
                sink.write(b"x" * 65536)

    def test_no_flock(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        def flock(*_: object) -> None:
            raise OSError(errno.ENOTSUP, "Operation not supported")

        monkeypatch.setattr("fcntl.flock", flock)
        storage.put("f", b"1")
        with pytest.raises(Unsupported, match="lock provider"):
            storage.put_if_matches("f", b"2", storage_tag(b"1"))

    def test_options(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="region"):
            open_storage(tmp_path, {"region": "x"})
        with pytest.raises(InvalidRequest, match="all, documents, none"):
            open_storage(tmp_path, {"sync": "sometimes"})
        with pytest.raises(InvalidRequest, match="its own options"):
            open_storage(StorageSpec(f"file:{tmp_path}"), {"sync": "all"})
        with pytest.raises(Unsupported, match="wasb"):
            open_storage("wasb://container@host/x")


class TestSync:
    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        paths: list[str] = []
        real_fsync = os.fsync

        def fsync(descriptor: int) -> None:
            paths.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
            real_fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        return paths

    def write_all(self, storage: Storage) -> None:
        storage.put("a", b"1")
        storage.put_if_absent("b", b"1")
        storage.put_if_absent("c", b"")
        with storage.open_output("d") as sink:
            sink.write(b"1")

    @pytest.mark.parametrize(
        ("sync", "expected"),
        [
            ("documents", ["file", "folder", "file", "folder", "folder"]),
            ("all", ["file", "folder", "file", "folder", "folder", "file", "folder"]),
            ("none", []),
        ],
    )
    def test_sync_option_selects_the_synced_files(
        self, tmp_path: Path, synced: list[str], sync: str, expected: list[str]
    ) -> None:
        self.write_all(open_storage(tmp_path, {"sync": sync}))
        assert synced == expected

    def test_leases_and_heartbeats_are_not_synced(self, tmp_path: Path, synced: list[str]) -> None:
        """After a power failure their process is dead, so any older content is equally valid."""
        storage = open_storage(tmp_path)
        for path in (".hoodie/.locks/table_lock.json", ".hoodie/.heartbeat/1"):
            storage.put(path, b"1")
            synced.clear()
            storage.put(path, b"2")
            found = storage.read_versioned(path)
            assert found is not None
            assert storage.put_if_matches(path, b"3", found[1])
            assert storage.put_if_absent(f"{path}2", b"1")
            assert synced == ["folder"]

    @pytest.mark.parametrize(("sync", "expected"), [("documents", []), ("none", []), ("all", ["folder", "folder", "folder"])])
    def test_deletions_of_files_that_reads_may_see_are_synced_with_all(
        self, tmp_path: Path, synced: list[str], sync: str, expected: list[str]
    ) -> None:
        storage = open_storage(tmp_path, {"sync": sync})
        for path in ("p/a", "p/b", "q/a", "r/a", ".hoodie/.temp/1/m", ".hoodie/.heartbeat/1"):
            storage.put(path, b"1")
        synced.clear()
        storage.delete(["p/a", "p/b", "p/missing", "q/a", "missing/a", ".hoodie/.heartbeat/1"])
        storage.delete_folder("r")
        storage.delete_folder(".hoodie/.temp/1")
        assert synced == expected

    def test_merged_files_of_the_history_are_documents(self, tmp_path: Path, synced: list[str]) -> None:
        storage = open_storage(tmp_path / "t", {"sync": "documents"})
        history = (".hoodie/timeline/history/1_2_1.parquet", ".hoodie/metadata/.hoodie/timeline/history/1_2_1.parquet")
        for path in (*history, "p/f.parquet", ".hoodie/metadata/files/f.hfile", ".hoodie/.staged/f"):
            storage.make_folder(path.rpartition("/")[0])
            synced.clear()
            with storage.open_output(path) as sink:
                sink.write(b"1")
            assert synced == (["file", "folder"] if path in history else [])


def _increment(path: str, rounds: int) -> None:
    storage = open_storage(path, {"sync": "none"})
    for _ in range(rounds):
        while True:
            found = storage.read_versioned("n")
            assert found is not None
            if storage.put_if_matches("n", str(int(found[0]) + 1).encode(), found[1]):
                break


@pytest.mark.full
def test_put_if_matches_holds_among_processes(tmp_path: Path) -> None:
    open_storage(tmp_path).put("n", b"0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_increment, args=(str(tmp_path), 50)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert open_storage(tmp_path).read("n") == b"150"


def test_a_process_killed_while_it_replaces_does_not_block_the_next(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pyhudi.storage import open_storage\n"
        "storage = open_storage(sys.argv[1])\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "storage.put_if_matches('f', b'theirs', storage.read_versioned('f')[1])\n"
    )
    storage = open_storage(tmp_path)
    storage.put("f", b"old")
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=600).returncode == -9
    found = storage.read_versioned("f")
    assert found is not None
    assert found[0] == b"old"
    assert storage.put_if_matches("f", b"ours", found[1])


class TestSuspendedReplacement:
    """A call of `put_if_matches` that stops in the middle blocks no other call, and publishes nothing when it goes on."""

    @pytest.fixture
    def tag(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setattr("pyhudi.storage.folder_lock._FLOCK_WAIT_MS", 2)
        storage.put("f", b"old")
        found = storage.read_versioned("f")
        assert found is not None
        return found[1]

    def test_lock_of_the_folder_is_waited_for_within_a_limit(self, storage: Storage, tmp_path: Path, tag: str) -> None:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            assert storage.put_if_matches("f", b"new", tag)
        finally:
            os.close(descriptor)
        assert storage.read("f") == b"new"
        assert names(tmp_path) == ["f"]

    @pytest.mark.parametrize("step", ["flock", "mkdir", "rename", "scandir", "replace", "rmdir"])
    @pytest.mark.parametrize("content", [b"other", b"old"])
    def test_put_if_matches_overtaken_by_another_loses(
        self, storage: Storage, tmp_path: Path, tag: str, step: str, content: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """content: what another call writes in its place; the same content again counts as unchanged."""
        overtaken = self.at(monkeypatch, step, lambda: storage.put_if_matches("f", content, tag))
        landed = storage.put_if_matches("f", b"new", tag)
        assert overtaken == ([None] if step == "rmdir" else [storage_tag(content)])
        assert bool(landed) == (content == b"old" or step == "rmdir")
        assert storage.read("f") == (b"new" if landed else content)
        assert names(tmp_path) == ["f"]

    @pytest.mark.parametrize("step", ["flock", "mkdir", "rename", "scandir", "replace"])
    def test_document_that_is_deleted_and_created_again_stays(
        self, storage: Storage, tmp_path: Path, tag: str, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def create_again() -> bool:
            storage.delete(["f"])
            return storage.put_if_absent("f", b"next")

        created = self.at(monkeypatch, step, create_again)
        assert storage.put_if_matches("f", b"new", tag) is None
        assert created == [True]
        assert storage.read("f") == b"next"
        assert names(tmp_path) == ["f"]

    def test_staged_file_of_a_dead_process_is_removed(self, storage: Storage, tmp_path: Path, tag: str) -> None:
        folder = tmp_path / os.path.basename(_staging_folder("f"))
        folder.mkdir()
        (folder / "left").write_bytes(b"dead")
        assert storage.list("").folders == ()
        assert [info.path for info in storage.walk("")] == ["f"]
        assert storage.put_if_matches("f", b"new", tag)
        assert names(tmp_path) == ["f"]

    @staticmethod
    def at(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> list[object]:
        """Let another call act before a step of the first call; what it returned."""
        module = fcntl if step == "flock" else os
        real = getattr(module, step)
        results: list[object] = []

        def late(*args: object, **named: object) -> object:
            if not results:
                results.append(None)
                results[0] = act()
            return real(*args, **named)

        monkeypatch.setattr(module, step, late)
        return results


def storage_tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", ["flock", "rename", "scandir", "replace"])
def test_a_process_suspended_while_it_replaces_loses_nothing(tmp_path: Path, step: str) -> None:
    script = (
        "import fcntl, os, signal, sys\n"
        "from tests.unit.storage.test_local import _increment\n"
        "from pyhudi.storage import open_storage\n"
        "module = fcntl if sys.argv[2] == 'flock' else os\n"
        "real = getattr(module, sys.argv[2])\n"
        "def late(*arguments):\n"
        "    result = real(*arguments) if sys.argv[2] == 'flock' else None\n"
        "    setattr(module, sys.argv[2], real)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    return result if sys.argv[2] == 'flock' else real(*arguments)\n"
        "setattr(module, sys.argv[2], late)\n"
        "_increment(sys.argv[1], 20)\n"
    )
    open_storage(tmp_path).put("n", b"0")
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), step], cwd=Path(__file__).parents[3])
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        _increment(str(tmp_path), 20)
        process.send_signal(signal.SIGCONT)
        assert process.wait(600) == 0
    finally:
        process.kill()
    assert open_storage(tmp_path).read("n") == b"40"
    assert names(tmp_path) == ["n"]


def test_a_folder_deeper_than_the_stack_is_deleted(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, {"sync": "none"})
    storage.put("a/" * 1500 + "f", b"1")
    storage.delete_folder("a")
    assert names(tmp_path) == []
