"""What only a shared folder can do wrong: links, mounts that hang, permissions, writers that are killed."""

import hashlib
import os
import random
import signal
import stat
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from cachekit.errors import CachekitError, ConflictError, RemoteError, TooLargeError, UncertainError, UsageError
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.port import ABSENT
from tests.remotes.folder_session import listed, own, read
from tests.remotes.storage_processes import ending, is_sealed, put, rewrite, sealed, started, swap, upload, write

OLD = time.time() - 2 * 3600

pytest_plugins = ["tests.remotes.folder_session"]


class TestForPeople:
    def test_documents_lie_at_their_path(self, storage, shared):
        write(storage, "README.md", b"# card", ABSENT)
        write(storage, "cachekit/v1/records/x/bert/k.json", b"{}", ABSENT)
        assert (shared / "README.md").read_bytes() == b"# card"
        write(storage, "README.md", b"# new card", read(storage, "README.md").token)
        assert (shared / "README.md").read_bytes() == b"# new card"
        write(storage, "README.md", None, read(storage, "README.md").token)
        assert not (shared / "README.md").exists()
        assert listed(storage) == ["cachekit/v1/records/x/bert/k.json"]

    def test_artifacts_lie_at_their_path(self, storage, shared):
        put(storage, {"neuronxcc-2/MODULE_1+2/model.neff": b"neff"})
        assert (shared / "neuronxcc-2/MODULE_1+2/model.neff").read_bytes() == b"neff"
        assert [path.name for path in (shared / "neuronxcc-2/MODULE_1+2").iterdir()] == ["model.neff"]

    def test_a_document_that_somebody_copied_here(self, storage, shared):
        (shared / "README.md").write_bytes(b"from a repo")
        document = read(storage, "README.md")
        assert document.data == b"from a repo"
        with pytest.raises(ConflictError):
            write(storage, "README.md", b"x", ABSENT)
        write(storage, "README.md", b"new", document.token)
        assert (shared / "README.md").read_bytes() == b"new"
        with pytest.raises(ConflictError):
            write(storage, "README.md", b"x", document.token)

    def test_a_huge_one_that_somebody_copied_here_is_replaced_unread(self, storage, shared):
        with (shared / "README.md").open("wb") as file:
            file.truncate(3 << 30)
        with pytest.raises(TooLargeError) as caught:
            read(storage, "README.md")
        os.utime(shared / "README.md", ns=(1, 1))  # somebody wrote to it again
        with pytest.raises(ConflictError):
            write(storage, "README.md", b"new", caught.value.token)
        with pytest.raises(TooLargeError) as caught:
            read(storage, "README.md")
        write(storage, "README.md", b"new", caught.value.token)
        assert read(storage, "README.md").data == b"new"

    def test_a_folder_that_somebody_emptied(self, storage, shared):
        write(storage, "cachekit/v1/records/x/bert/k.json", b"{}", ABSENT)
        stale = read(storage, "cachekit/v1/records/x/bert/k.json").token
        subprocess.run(["rm", "-r", shared / "cachekit"], check=True)
        assert read(storage, "cachekit/v1/records/x/bert/k.json") is None
        with pytest.raises(ConflictError):
            write(storage, "cachekit/v1/records/x/bert/k.json", b"[]", stale)
        write(storage, "cachekit/v1/records/x/bert/k.json", b"[]", ABSENT)
        assert read(storage, "cachekit/v1/records/x/bert/k.json").data == b"[]"

    @pytest.mark.parametrize(("mode", "umask"), [(0o2775, 0o077), (0o700, 0o002), (0o755, 0o022)])
    def test_permissions_are_those_of_the_folder(self, shared, mode, umask):
        shared.chmod(mode)
        before = os.umask(umask)
        try:
            storage = FolderStorage(shared)
            put(storage, {"a/b/file": b"x"})
            write(storage, "c/d.json", b"{}", ABSENT)
        finally:
            os.umask(before)
        for path in shared.rglob("*"):
            found = stat.S_IMODE(path.stat().st_mode)
            if path.is_dir():
                assert found == mode, path
        assert stat.S_IMODE((shared / "a/b/file").stat().st_mode) == mode & 0o444
        assert stat.S_IMODE((shared / "c/d.json").stat().st_mode) == mode & 0o666


class TestLinks:
    @pytest.fixture
    def outside(self, shared, tmp_path):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_bytes(b"secret")
        (shared / "door").symlink_to(outside)
        (shared / "file").symlink_to(outside / "secret")
        (shared / "loop").symlink_to("loop")
        os.mkfifo(shared / "pipe")
        return outside

    @pytest.mark.parametrize("path", ["door/secret", "file", "loop", "pipe"])
    def test_nothing_is_read_through_one(self, storage, outside, path):
        assert storage.stat([path], "") == {}
        assert read(storage, path) is None
        with pytest.raises(FileNotFoundError):
            list(storage.chunks(path, ""))
        assert listed(storage) == []
        assert listed(storage, "door") == []

    def test_a_pipe_in_the_place_of_a_document_is_told_as_that(self, storage, shared):
        write(storage, "a.json", b"mine", ABSENT)
        generation = next(found for found in shared.rglob("*1") if found.is_file())
        generation.unlink()
        os.mkfifo(generation)
        with pytest.raises(RemoteError) as caught:
            read(storage, "a.json")
        assert "not a regular file" in caught.value.cause

    @pytest.mark.parametrize("path", ["door/new", "door/secret", "file", "loop", "door/deep/new"])
    def test_nothing_is_written_through_one(self, storage, shared, outside, path):
        with pytest.raises(CachekitError):
            put(storage, {path: b"secret"})
        with suppress(CachekitError):
            write(storage, path, b"evil", ABSENT)
        assert [path.name for path in outside.iterdir()] == ["secret"]
        assert (outside / "secret").read_bytes() == b"secret"

    def test_a_link_in_the_place_of_our_own_folder(self, storage, shared, outside):
        (shared / ".cachekit-tmp").symlink_to(outside)
        (shared / ".cachekit-doc-x.json").symlink_to(outside)
        for attempt in (lambda: put(storage, {"a": b"a"}), lambda: write(storage, "x.json", b"x", ABSENT)):
            with pytest.raises(RemoteError):
                attempt()
        assert [path.name for path in outside.iterdir()] == ["secret"]

    def test_the_folder_itself_may_be_one(self, shared, tmp_path):
        (tmp_path / "link").symlink_to(shared)
        put(FolderStorage(tmp_path / "link"), {"a": b"a"})
        assert (shared / "a").read_bytes() == b"a"

    @pytest.mark.parametrize("path", [".cachekit-doc-x.json/000000000009", "a/.cachekit-tmp/x", ".cachekit-new-x"])
    def test_our_own_names_are_nobody_elses(self, storage, path):
        with pytest.raises(UsageError):
            put(storage, {path: b"x"})
        with pytest.raises(UsageError):
            read(storage, path)

    def test_names_that_no_record_can_hold(self, storage, shared):
        (shared / "back\\slash").write_bytes(b"x")
        Path(os.fsdecode(os.fsencode(shared) + b"/\xff\xfe")).write_bytes(b"x")
        (shared / "good").write_bytes(b"x")
        assert listed(storage) == ["good"]

    def test_something_else_on_the_way(self, storage):
        put(storage, {"a": b"a", "b/c": b"c"})
        for path in ("a/b", "b"):
            with pytest.raises(ConflictError):
                put(storage, {path: b"x"})
        put(storage, {"fine": b"x"})

    def test_the_rest_of_an_upload_arrives(self, storage):
        put(storage, {"b": b"theirs"})
        with pytest.raises(ConflictError, match="at b"):
            storage.upload([upload(name, b"mine") for name in "abc"], "", lambda _: None)
        assert listed(storage) == ["a", "b", "c"]


class TestWriters:
    def test_old_generations_are_removed(self, storage, shared):
        for number in range(50):
            swap(storage, "x.json", lambda data, number=number: b"%d" % number)
        files = own(shared)
        assert sum(".cachekit-doc-" in str(path) for path in files) == 2
        assert not [path for path in files if "-new-" in path.name]

    def test_what_killed_writers_left_is_removed(self, shared):
        storage = FolderStorage(shared)
        put(storage, {"a": b"a"})
        swap(storage, "x.json", lambda _: b"1")
        for folder in (".cachekit-tmp", ".cachekit-doc-x.json"):
            for name, age in ((".cachekit-new-old", OLD), (".cachekit-new-young", time.time())):
                (shared / folder / name).write_bytes(b"x" * 100)
                os.utime(shared / folder / name, (age, age))
        swap(FolderStorage(shared), "x.json", lambda data: data + b"2")
        left = {str(path.relative_to(shared)) for path in own(shared)}
        assert {path for path in left if "-new-" in path} == {
            ".cachekit-tmp/.cachekit-new-young",
            ".cachekit-doc-x.json/.cachekit-new-young",
        }

    @pytest.mark.parametrize("steps", [1, 3, 60])
    def test_a_writer_that_slept_before_it_decided(self, shared, monkeypatch, steps):
        """Its number has become free again meanwhile, and yet it must not believe that it won."""
        slow, fast = FolderStorage(shared), FolderStorage(shared)
        write(slow, "x.json", b"0", ABSENT)
        token = read(slow, "x.json").token
        real = os.link

        def sleep_first(source, target, **kwargs):
            monkeypatch.setattr(os, "link", real)
            for number in range(steps):
                swap(fast, "x.json", lambda _, number=number: b"fast %d" % number)
            real(source, target, **kwargs)

        monkeypatch.setattr(os, "link", sleep_first)
        with pytest.raises(ConflictError if steps < 30 else UncertainError):
            write(slow, "x.json", b"slow", token)
        assert read(slow, "x.json").data == b"fast %d" % (steps - 1)
        swap(slow, "x.json", lambda data: data + b", slow")
        assert read(fast, "x.json").data == b"fast %d, slow" % (steps - 1)
        assert (shared / "x.json").read_bytes() == b"fast %d, slow" % (steps - 1)

    @pytest.mark.parametrize("steps", [1, 3, 60])
    def test_a_writer_that_slept_after_it_decided(self, shared, monkeypatch, steps):
        slow, fast = FolderStorage(shared), FolderStorage(shared)
        write(slow, "x.json", b"0", ABSENT)
        token = read(slow, "x.json").token
        real = os.link

        def sleep_then(source, target, **kwargs):
            monkeypatch.setattr(os, "link", real)
            real(source, target, **kwargs)
            for number in range(steps):
                swap(fast, "x.json", lambda data, number=number: data + b" %d" % number)

        monkeypatch.setattr(os, "link", sleep_then)
        if steps > 30:
            with pytest.raises(UncertainError):
                write(slow, "x.json", b"slow", token)
        else:
            write(slow, "x.json", b"slow", token)
        assert read(slow, "x.json").data.startswith(b"slow 0")
        assert (shared / "x.json").read_bytes() == read(slow, "x.json").data

    @pytest.mark.parametrize("last", [b"fast", None])
    def test_a_writer_that_slept_before_it_made_the_copy(self, shared, monkeypatch, last):
        slow, fast = FolderStorage(shared), FolderStorage(shared)
        real = os.rename

        def sleep_first(source, target, **kwargs):
            monkeypatch.setattr(os, "rename", real)
            swap(fast, "x.json", lambda _: last)
            real(source, target, **kwargs)

        monkeypatch.setattr(os, "rename", sleep_first)
        write(slow, "x.json", b"slow", ABSENT)
        assert (shared / "x.json").exists() == (last is not None)
        assert last is None or (shared / "x.json").read_bytes() == last

    def test_a_copy_that_a_killed_writer_did_not_make(self, storage, shared):
        write(storage, "r/x.json", b"one", ABSENT)
        write(storage, "r/y.json", b"one", ABSENT)
        (shared / "r/x.json").unlink()
        (shared / "r/y.json").write_bytes(b"half")
        assert storage.stat(["r/x.json"], "")["r/x.json"].size == 3
        assert listed(storage, "r") == ["r/x.json", "r/y.json"]
        assert read(storage, "r/y.json").data == b"one"
        assert (shared / "r/x.json").read_bytes() == (shared / "r/y.json").read_bytes() == b"one"

    @pytest.mark.parametrize("raw", [b"", b"no head", b"{}\nx", b'{"id": 1}\n', b"[" * 5000, b"\xff\n"])
    def test_a_generation_that_is_damaged(self, storage, shared, raw):
        write(storage, "x.json", b"one", ABSENT)
        (shared / ".cachekit-doc-x.json/000000000007").write_bytes(raw)
        document = read(storage, "x.json")
        assert document.data == raw
        write(storage, "x.json", b"two", document.token)
        assert read(storage, "x.json").data == b"two"

    @pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.slow)])
    @pytest.mark.feature("R3")
    def test_writers_killed_at_any_moment(self, shared, rounds):
        make = partial(FolderStorage, shared)
        storage = make()
        chance = random.Random(4)
        write(storage, "x.json", sealed(0, 10), ABSENT)
        for _ in range(rounds):
            with ending([started(make, rewrite, "x.json", 100_000), started(make, put_for_ever)]) as writers:
                before = read(storage, "x.json").data
                while read(storage, "x.json").data == before and writers[0].is_alive():
                    pass
                time.sleep(chance.random() * 0.2)
                for writer in writers:
                    os.kill(writer.pid, signal.SIGKILL)
            assert is_sealed(read(storage, "x.json").data)
            for entry in storage.list("a", ""):
                assert b"".join(storage.chunks(entry.path, "")) == large(int(entry.path.rpartition("/")[2]))
        swap(storage, "x.json", lambda _: sealed(7, 7))
        assert (shared / "x.json").read_bytes() == sealed(7, 7)


def large(number):
    return hashlib.sha256(b"%d" % number).digest() * 50_000


def put_for_ever(make):
    storage = make()
    number = random.SystemRandom().randrange(10**9)
    while True:
        put(storage, {f"a/{number}": large(number)})
        number += 1
