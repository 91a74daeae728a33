"""Journals: one JSON line an event, whatever the disk does."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cachekit.events import Journal, prune, read
from cachekit.inside import Inside
from tests.support.users import ONE, as_user


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal", "warm")
    yield made
    made.close()


def test_each_event_is_a_line(journal):
    journal.emit("warm.start", key="abc", seconds=1.5, tags=["a"], note=None)
    journal.emit("warm.end")
    first, second, third, rest = journal.path.read_text(encoding="utf-8").split("\n")
    assert rest == ""
    start = json.loads(first)
    assert (start["event"], start["verb"], start["run"], start["pid"]) == ("run", "warm", journal.run, os.getpid())
    event = json.loads(second)
    assert event.pop("time") >= start["time"] > 1.7e9
    assert event == {
        "event": "warm.start",
        "run": journal.run,
        "key": "abc",
        "seconds": 1.5,
        "tags": ["a"],
        "note": None,
    }
    assert json.loads(third)["event"] == "warm.end"


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\u2028b", "a\x85b", "a\x0bb", "a\x1eb", '"', "\\", "😀", "\x00"])
def test_any_text_stays_on_its_line(journal, text):
    emitted = [journal.emit("a", text=text), journal.emit("b")]
    assert read(journal.path)[1:] == emitted
    assert journal.path.read_bytes().count(b"\n") == 3


def test_a_killed_run_leaves_its_events(tmp_path):
    script = (
        "import os, sys, pathlib\n"
        "from cachekit.events import Journal\n"
        "journal = Journal(pathlib.Path(sys.argv[1]), 'warm')\n"
        "journal.emit('a')\n"
        "journal.emit('b')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert run.returncode == -9
    (path,) = tmp_path.rglob("*.jsonl")
    assert [event["event"] for event in read(path)] == ["run", "a", "b"]


@pytest.mark.parametrize(
    "tail",
    [b'{"event": "b", "ti', b'{"event": "b"', b"{", b"\xc3", b'"a"', b"5", b"\0\0\0", b"[" * 100_000],
    ids=lambda tail: ascii(tail[:20]),
)
def test_a_torn_last_line_is_left_out(journal, tail):
    emitted = journal.emit("a")
    path = journal.path
    journal.close()
    with path.open("ab") as file:
        file.write(tail)
    assert read(path)[1:-1] == [emitted]


def test_what_comes_after_a_torn_line_is_kept(journal):
    first = journal.emit("a")
    path = journal.path
    journal.close()
    raw = path.read_bytes()
    path.write_bytes(raw + b'{"torn": \n' + raw)
    found = read(path)
    assert [event["event"] for event in found] == ["run", "a", "run.end"] * 2
    assert found[1] == found[4] == first


def test_runs_have_names_of_their_own_that_sort_by_time(tmp_path):
    journals = [Journal(tmp_path, "warm") for _ in range(50)]
    assert len({journal.run for journal in journals}) == 50
    assert len({journal.path for journal in journals}) == 50
    for journal in journals:
        assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", journal.run)
        assert journal.path.is_relative_to(tmp_path)
        assert journal.path.name == f"{journal.run}.jsonl"


def test_a_run_without_events_leaves_no_file(tmp_path):
    journal = Journal(tmp_path / "journal", "plan")
    journal.show("tick")
    journal.close()
    assert list(tmp_path.iterdir()) == []


# Listeners


def test_listeners_hear_each_event_from_then_on(journal):
    heard, later = [], []
    journal.listen(heard.append)
    first = journal.emit("a", n=1)
    journal.listen(later.append)
    second = journal.emit("b")
    assert heard == [first, second]
    assert later == [second]


def test_what_is_only_shown_is_not_written(journal):
    heard = []
    journal.listen(heard.append)
    journal.emit("a")
    journal.show("step", n=1)
    assert [event["event"] for event in heard] == ["a", "step"]
    assert (heard[1]["n"], heard[1]["run"]) == (1, journal.run)
    assert [event["event"] for event in read(journal.path)] == ["run", "a"]


# Disks that cannot


def test_without_a_folder_events_stay_in_memory():
    journal = Journal(None, "plan")
    heard = []
    journal.listen(heard.append)
    assert journal.path is None
    assert journal.emit("a", n=1)["n"] == 1
    assert [event["event"] for event in heard] == ["a"]
    assert journal.failure == ""
    journal.close()


@pytest.mark.parametrize("place", ["file", "file/below", "a" * 300])
def test_a_folder_that_cannot_be_written_does_not_fail_the_run(tmp_path, place):
    (tmp_path / "file").write_bytes(b"")
    journal = Journal(tmp_path / place, "warm")
    heard = []
    journal.listen(heard.append)
    journal.emit("a")
    assert journal.failure
    assert journal.path is None
    journal.emit("b")
    journal.close()
    assert [event["event"] for event in heard] == ["a", "b"]
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.feature("T2")
@pytest.mark.parametrize(("name", "squat"), [("journal/0", "folder"), ("journal/0", "link"), ("journal", "link")])
def test_what_another_user_made_in_its_place_is_told_with_the_way_on(tmp_path, name, squat):
    precious, home = tmp_path / "precious", tmp_path / "store"
    place, taken = home / "journal" / "0", home / name
    precious.mkdir()
    taken.parent.mkdir(parents=True)
    taken.mkdir() if squat == "folder" else taken.symlink_to(precious)
    as_user(ONE, str)  # skips where nobody else can be had
    os.chown(taken, ONE, ONE, follow_symlinks=False)
    journal = Journal(place, "warm", Inside(home))
    journal.emit("a")
    assert journal.failure.endswith(f": mv {taken} {taken}.away, or set CACHEKIT_HOME to a store of your own")
    assert [*precious.iterdir()] == []
    taken.rename(f"{taken}.away")
    journal = Journal(place, "warm", Inside(home))
    journal.emit("a")
    journal.close()
    assert journal.failure == ""
    assert read(journal.path)


def test_a_disk_that_fills_up_does_not_fail_the_run(tmp_path):
    """In a process of its own, with a limit on the size of files in place of the full disk."""
    script = (
        "import pathlib, resource, signal, sys\n"
        "from cachekit.events import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "journal = Journal(pathlib.Path(sys.argv[1]), 'warm')\n"
        "journal.emit('a')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "heard = []\n"
        "journal.listen(heard.append)\n"
        "for n in range(5): journal.emit('b', text='x' * 400)\n"
        "journal.close()\n"
        "print(len(heard), journal.failure != '', journal.path)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split(), run.stderr) == (0, ["5", "True", "None"], "")
    (path,) = tmp_path.rglob("*.jsonl")
    assert [event["event"] for event in read(path)][:2] == ["run", "a"]


@pytest.mark.parametrize(
    "value",
    ["\udcff", Path("\udcff"), float("nan"), float("inf"), object(), b"raw", {1, 2}, {1: 2}, OSError(errno.EIO, "x")],
)
def test_no_value_fails_the_run(journal, value):
    """Paths and messages come from outside: a name that is not UTF-8 must not end a training."""
    heard = []
    journal.listen(heard.append)
    journal.emit("a", value=value)
    journal.emit("b")
    assert [event["event"] for event in heard] == ["a", "b"]
    assert read(journal.path)[-1]["event"] == "b"


def test_what_comes_after_the_close_stays_in_memory(journal):
    heard = []
    journal.listen(heard.append)
    journal.emit("a")
    path, before = journal.path, journal.path.read_bytes()
    journal.close()
    whole = path.read_bytes()
    journal.close()
    journal.emit("b")
    assert [event["event"] for event in heard] == ["a", "b"]
    assert path.read_bytes() == whole
    assert whole.startswith(before), "all that comes is that the run ended"
    assert [event["event"] for event in read(path)] == ["run", "a", "run.end"]


# Old files


def test_old_files_are_removed(tmp_path):
    now = 1_800_000_000
    for name, days in {"new.log": 1, "last.log": 29, "old.log": 31, "older.log": 400, "thesis.tex": 400}.items():
        path = tmp_path / name
        path.write_bytes(b"")
        os.utime(path, (now, now - days * 86_400))
    assert prune(tmp_path, 30, now) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"new.log", "last.log", "thesis.tex"}, "it made no other one"
    assert prune(tmp_path, 30, now) == 0
