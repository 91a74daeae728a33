"""Regular files: opened without waiting, replaced whole, locked while their owner lives."""

import os
import threading
from pathlib import Path

import pytest

from cachekit import files
from cachekit.disk import check_ends
from cachekit.errors import UsageError


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        files.read(tmp_path / "pipe")


def test_what_a_library_would_wait_for_is_refused_by_the_name_of_its_variable(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UsageError, match="is not a regular file") as refused:
            check_ends(path, "AWS_CONFIG_FILE")
        assert "AWS_CONFIG_FILE" in refused.value.hint
    for path in (tmp_path, tmp_path / "nothing", Path(os.devnull), Path("a\0b")):
        check_ends(path, "AWS_CONFIG_FILE")


def test_a_file_that_is_too_large_is_refused(tmp_path):
    (tmp_path / "key").write_bytes(b"12345")
    assert files.read(tmp_path / "key", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        files.read(tmp_path / "key", 4)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "note"
    files.replace(path, b"old")
    create = files.create
    monkeypatch.setattr(files, "create", lambda *new, **mode: create(*new, **mode) or exec("raise OSError(28, 'full')"))
    with pytest.raises(OSError, match="full"):
        files.replace(path, b"new")
    assert files.read(path) == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_replaced_stays_as_readable_as_it_was(tmp_path):
    path = tmp_path / "note"
    files.replace(path, b"old")
    path.chmod(0o600)
    files.replace(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


def test_threads_that_replace_one_file_leave_what_one_of_them_wrote(tmp_path):
    path, said = tmp_path / "note", [bytes([number]) * 50_000 for number in range(8)]
    threads = [threading.Thread(target=files.replace, args=(path, data)) for data in said]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.read(path) in said
    assert list(tmp_path.iterdir()) == [path]


def test_a_note_that_cannot_be_kept_is_no_error(tmp_path):
    assert files.note(tmp_path / "folder" / "note", b"kept")
    assert files.read(tmp_path / "folder" / "note") == b"kept"
    assert not files.note(tmp_path / "folder" / "note" / "below", b"not")


def test_a_lock_is_held_once_and_by_its_name(tmp_path):
    path = tmp_path / "lock"
    first = files.hold(path)
    assert first is not None
    assert files.hold(path) is None
    path.unlink()
    second = files.hold(path)
    assert second is not None, "what is held must be what the name leads to"
    os.close(first)
    os.close(second)
    third = files.hold(path, os.O_RDONLY)
    assert third is not None
    os.close(third)
