"""Shared folders that are gone, full, somebody else's, or on a mount that never answers."""

import errno
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from cachekit.errors import AuthError, ConflictError, IntegrityError, RemoteError, UncertainError
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.port import ABSENT, Commit, Limits, Write
from tests.remotes.folder_session import listed, own, read
from tests.remotes.storage_processes import put, title, upload, write
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.places import ROOT

pytest_plugins = ["tests.remotes.folder_session"]


class TestTrouble:
    def test_a_folder_that_is_not_there(self, tmp_path):
        storage = FolderStorage(tmp_path / "mount" / "cache")
        attempts = [
            storage.revision,
            lambda: storage.stat(["a"], ""),
            lambda: read(storage, "a"),
            lambda: listed(storage),
            lambda: list(storage.chunks("a", "")),
            lambda: put(storage, {"a": b"a"}),
            lambda: write(storage, "a", b"a", ABSENT),
        ]
        for attempt in attempts:
            with pytest.raises(RemoteError) as caught:
                attempt()
            assert "mount" in caught.value.hint
        assert list(tmp_path.iterdir()) == []

    def test_one_that_vanishes(self, storage, shared):
        put(storage, {"a": b"x" * 10})
        shared.rename(shared.parent / "gone")
        with pytest.raises(RemoteError):
            put(storage, {"b": b"b"})
        with pytest.raises(RemoteError):
            read(storage, "a")

    def test_one_that_may_not_be_written_to(self, public, tmp_path):
        """In a process without root's rights."""
        shared = public / "shared"
        shared.mkdir()
        storage = FolderStorage(shared)
        put(storage, {"a": b"a"})
        write(storage, "x.json", b"x", ABSENT)
        code = """
import os, sys
from cachekit.remotes.folder import FolderStorage
from tests.remotes.storage_processes import put, write
from cachekit.errors import AuthError
from pathlib import Path
remote = FolderStorage(Path(sys.argv[2]))  # what is imported late is imported now
put(remote, {"a": b"a"})
write(remote, "x.json", b"x", "")
remote = FolderStorage(Path(sys.argv[1]))
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert remote.read("x.json", "", 10).data == b"x"
assert b"".join(remote.chunks("a", "")) == b"a"
token = remote.read("x.json", "", 10).token
for attempt in (lambda: put(remote, {"b": b"b"}), lambda: write(remote, "x.json", b"y", token)):
    try:
        attempt()
    except AuthError as error:
        assert ":r" in error.hint, error.hint
    else:
        sys.exit("was allowed")
"""
        for path in [shared, *shared.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        ended = subprocess.run(
            [sys.executable, "-c", code, shared, tmp_path],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        for path in [shared, *shared.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        assert ended.returncode == 0, ended.stderr
        assert listed(storage) == ["a", "x.json"]

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
    def test_a_disk_that_fails(self, storage, shared, monkeypatch, number):
        write(storage, "x.json", b"x", ABSENT)
        token = read(storage, "x.json").token

        def fail(*args, **kwargs):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr("cachekit.remotes.folder.confined.os.write", fail)
            for attempt in (lambda: put(storage, {"a": b"a"}), lambda: write(storage, "x.json", b"y" * 100, token)):
                with pytest.raises((RemoteError, AuthError)) as caught:
                    attempt()
                assert caught.value.hint
                assert caught.value.cause == os.strerror(number)
        assert listed(storage) == ["x.json"]
        assert read(storage, "x.json").data == b"x"
        assert not [path for path in own(shared) if "-new-" in path.name]

    def test_an_answer_to_the_link_that_is_lost(self, storage, monkeypatch):
        """The link is made, and the file system says EIO."""
        real = os.link

        def lose(source, target, **kwargs):
            real(source, target, **kwargs)
            raise OSError(errno.EIO, "lost")

        monkeypatch.setattr("cachekit.remotes.folder.confined.os.link", lose)
        with pytest.raises(UncertainError):
            write(storage, "x.json", b"x", ABSENT)
        assert read(storage, "x.json").data == b"x"

    def test_a_link_that_nfs_asked_for_twice(self, storage, monkeypatch):
        real = os.link

        def twice(source, target, **kwargs):
            real(source, target, **kwargs)
            real(source, target, **kwargs)

        monkeypatch.setattr("cachekit.remotes.folder.confined.os.link", twice)
        write(storage, "x.json", b"x", ABSENT)
        put(storage, {"a": b"a"})
        assert listed(storage) == ["a", "x.json"]

    def test_wrong_bytes_are_not_published(self, storage, tmp_path):
        (tmp_path / "source").write_bytes(b"other")
        file = upload("a", b"bytes")
        for source in (b"other", b"short", tmp_path / "source"):
            with pytest.raises(IntegrityError):
                storage.upload([type(file)("a", 5, file.sha256, source)], "", lambda _: None)
        assert listed(storage) == []


@contextmanager
def hanging(monkeypatch, name, when=lambda *args: True):
    """A system call that does not return until the block is left."""
    release = threading.Event()
    real = getattr(os, name)

    def hang(*args, **kwargs):
        if threading.current_thread().name == "cachekit-call" and when(*args):
            release.wait()
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, hang)
        try:
            yield
        finally:
            release.set()


def workers():
    return sum(thread.name == "cachekit-call" for thread in threading.enumerate())


class TestDeadMounts:
    @pytest.fixture
    def storage(self, shared):
        put(FolderStorage(shared), {"a": b"a"})
        return FolderStorage(shared, Limits(read=0.2, commit=0.4))

    @pytest.mark.feature("R4")
    def test_every_call_ends(self, storage, monkeypatch):
        before = workers()
        with hanging(monkeypatch, "open"):
            for attempt in (
                storage.revision,
                lambda: storage.stat(["a"], ""),
                lambda: read(storage, "a"),
                lambda: listed(storage),
                lambda: list(storage.chunks("a", "")),
                lambda: storage.upload([upload("b", b"b")], "", lambda _: None),
                lambda: storage.commit(Commit(title(), writes=[Write("x.json", b"x", ABSENT)]), ""),
                *[storage.revision] * 20,  # by then nothing more is tried
            ):
                with pytest.raises(RemoteError, match="no answer") as caught:
                    attempt()
                assert caught.value.hint
            assert workers() - before <= 10
        while True:  # and comes back when the mount does
            with suppress(RemoteError):
                assert read(storage, "a").data == b"a"
                break
            time.sleep(0.02)

    def test_reading_that_hangs_in_the_middle(self, storage, shared, monkeypatch):
        put(FolderStorage(shared), {"large": b"x" * (9 << 20)})
        pieces = storage.chunks("large", "")
        first = next(pieces)
        with hanging(monkeypatch, "pread"), pytest.raises(RemoteError):
            next(pieces)
        assert b"".join(storage.chunks("large", "", len(first))) == b"x" * ((9 << 20) - len(first))

    def test_a_commit_that_hangs_before_it_decides(self, storage, monkeypatch):
        """It may happen later: then as a swap, which fails where somebody else was faster."""
        with hanging(monkeypatch, "fsync"), pytest.raises(UncertainError):
            storage.commit(Commit(title(), writes=[Write("x.json", b"late", ABSENT)]), "")
        with suppress(ConflictError):
            write(storage, "x.json", b"mine", ABSENT)
        there = read(storage, "x.json")
        write(storage, "x.json", there.data + b", mine", there.token)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            assert read(storage, "x.json").data == there.data + b", mine"
            time.sleep(0.05)

    def test_a_commit_that_hangs_while_it_decides(self, storage, monkeypatch):
        with (
            hanging(monkeypatch, "link", lambda source, target: target.isdecimal()),
            pytest.raises(UncertainError),
        ):
            storage.commit(Commit(title(), writes=[Write("x.json", b"x", ABSENT)]), "")
        while read(storage, "x.json") is None:
            time.sleep(0.02)
        assert read(storage, "x.json").data == b"x"

    def test_threads_end_with_the_storage(self, shared):
        before = set(threading.enumerate())
        storages = [FolderStorage(shared) for _ in range(20)]
        for storage in storages:
            storage.revision()
        new = set(threading.enumerate()) - before
        assert len(new) == 20
        del storage, storages
        for thread in new:
            thread.join()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_fork_has_workers_of_its_own(self, storage):
        assert read(storage, "a").data == b"a"
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                os._exit(0 if read(storage, "a").data == b"a" else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
