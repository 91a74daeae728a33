"""Machines that share a cache die, run out of disk, lose their token or their repo: nothing half is ever visible."""

import hashlib
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cachekit.remotes import document
from tests.remotes.sharing_worker import (
    entry,
    note,
    pull_entries,
    push_entries,
    told_by,
    visible,
    whole_or_absent,
)
from tests.remotes.storage_processes import KINDS, ending, serve, started
from tests.support.hubserver.accounts import Account
from tests.support.places import ROOT
from tests.support.processes import ended, until
from tests.support.standins import RECIPE_YAML, RUN_WARM, Watched, garbage_of

# In a process of their own: see test_sharing_campaign.
pytestmark = pytest.mark.campaign
ALL = [kind for kind in KINDS if kind != "seaweedfs"]
SIZE = 300_000
NUMBERS = range(4)


def killed(process, home, seconds):
    """Kill a process so many seconds after it was ready; whether it lived until then."""
    with ending([process]):
        until(Path(f"{home}.ready").exists, "a process that is ready")
        time.sleep(seconds)
        alive = process.is_alive()
        process.kill()
        process.join()
    return alive


def ended_well(process):
    with ending([process]):
        process.join(120)
        assert process.exitcode == 0


def all_whole_on(storage):
    """Each file that lies at a module's place is whole, whether a record names it yet or not."""
    files = {}
    for number in NUMBERS:
        record, _ = entry(number, SIZE)
        files |= {path: file for file, path in document.Shared(record).paths.values()}
    for path, found in storage.stat(sorted(files), "").items():
        data = b"".join(storage.chunks(path, ""))
        assert found.holds(len(data), files[path].sha256) is not False
        assert len(data) == files[path].size
        assert hashlib.sha256(data).hexdigest() == files[path].sha256


def killed_push(make, folder, moment):
    """One repeat: a push that dies, what others see then, and the push after it."""
    home = folder / "ann"
    lived = killed(started(make, push_entries, home, NUMBERS, 2, SIZE), home, moment)
    keys = visible(make)
    there = [number for number in NUMBERS if entry(number)[0].key in keys]
    ended_well(started(make, pull_entries, folder / "bob", there, SIZE))
    assert told_by(folder / "bob") == {"absent": [], "wrong": [], "events": []}
    all_whole_on(make())
    ended_well(started(make, push_entries, home, NUMBERS, 2, SIZE))
    assert told_by(home) == {"errors": []}
    ended_well(started(make, pull_entries, folder / "carl", NUMBERS, SIZE))
    assert told_by(folder / "carl") == {"absent": [], "wrong": [], "events": []}
    assert visible(make) == {entry(number)[0].key for number in NUMBERS}
    return lived


def killed_pull(make, folder, moment):
    """One repeat: a pull that dies, what its store serves then, and the pull after it."""
    home = folder / "bob"
    lived = killed(started(make, pull_entries, home, NUMBERS, SIZE), home, moment)
    whole_or_absent(home, NUMBERS, SIZE)
    ended_well(started(make, pull_entries, home, NUMBERS, SIZE))
    assert told_by(home) == {"absent": [], "wrong": [], "events": []}
    assert whole_or_absent(home, NUMBERS, SIZE) == list(NUMBERS)
    assert not garbage_of(home)
    return lived


ROUNDS = [
    pytest.param("hub", 3, id="hub"),
    *(pytest.param(kind, 50, id=f"{kind}-fifty", marks=pytest.mark.slow) for kind in ALL),
]


@pytest.mark.feature("S2", "S3", "S4", "R3")
@pytest.mark.parametrize(("kind", "rounds"), ROUNDS)
def test_kills_at_random_moments_show_nothing_half(tmp_path, kind, rounds):
    """Two hundred and more in all; most of them must hit a process that still works."""
    rng, lived = random.Random(kind), 0
    for number in range(rounds):
        with serve(kind, tmp_path / f"server{number}") as make:
            lived += killed_push(make, tmp_path / f"a{number}", rng.uniform(0, 1.0))
            lived += killed_pull(make, tmp_path / f"b{number}", rng.uniform(0, 0.6))
        for path in tmp_path.glob(f"*{number}"):
            shutil.rmtree(path, ignore_errors=True)
    assert lived > 20 or rounds < 50


# The disk


def pull_on_a_full_disk(make, home):
    """Pull where no file may grow beyond a part of an artifact, as on a disk that is nearly full."""
    bob = Watched(home, shared=[(make(), "r")])
    record, _ = entry(0, SIZE)
    found = bob.session.remotes.find(record.place)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, SIZE // 2))
    try:
        bob.session.fetch(found)
    except Exception as error:  # noqa: BLE001 - what it is is the question
        note(home, kind=type(error).__name__, message=str(error), code=getattr(error, "exit_code", None))


@pytest.mark.feature("S2")
def test_a_full_disk_in_a_pull(tmp_path):
    with serve("folder", tmp_path / "server") as make:
        ended_well(started(make, push_entries, tmp_path / "ann", NUMBERS, 4, SIZE))
        home = tmp_path / "bob"
        ended_well(started(make, pull_on_a_full_disk, home))
        told = told_by(home)
        assert (told["kind"], told["code"]) == ("StoreError", 1)
        assert str(home) in told["message"]
        assert whole_or_absent(home, [0], SIZE) == []
        ended_well(started(make, pull_entries, home, NUMBERS, SIZE))
        assert told_by(home) == {"absent": [], "wrong": [], "events": []}


# The token and the repo, from the command line

SECRET = "hf_sEcReTsEcReTsEcReTsEcReTsEcReT"


class Machine:
    """The command line with the stand-in compiler, in processes of their own."""

    def __init__(self, folder, hub, repo):
        self.home, self.folder, self.hub, self.cache = folder / "home", folder, hub, f"local:rw,hf://{repo.name}:rw"
        folder.mkdir(parents=True)
        (folder / "toy.yaml").write_text(RECIPE_YAML)
        self.said = ""

    def start(self, *arguments, **variables):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environ |= {
            "HF_ENDPOINT": self.hub.endpoint, "HF_TOKEN": SECRET, "HF_HOME": str(self.folder / "hf"),
            "CACHEKIT_HOME": str(self.home), "CACHEKIT_CACHE": self.cache, "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONPATH": str(ROOT), "STANDIN_LOG": str(self.folder / "log"), **variables,
        }  # fmt: skip
        loud = () if arguments[0] == "config" else ("-vv",)
        return subprocess.Popen(
            [sys.executable, RUN_WARM, "cli", *arguments, *loud],
            cwd=self.folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def end(self, child):
        out, err = child.communicate(timeout=120)
        self.said += out + err
        return child.returncode, out + err

    def __call__(self, *arguments, **variables):
        with ended(self.start(*arguments, **variables)) as child:
            return self.end(child)


@pytest.fixture
def team(tmp_path):
    with serve("hub", tmp_path / "server") as make:
        make.hub.accounts.add(SECRET, Account("ann", "write", ("team",)))
        yield make


def compiling(machine, child):
    """Wait until it compiles."""
    until(lambda: (machine.folder / "log").exists() or child.poll() is not None, "a compile")
    assert child.poll() is None, child.communicate()


@pytest.mark.feature("R4")
@pytest.mark.parametrize(("what", "code"), [("token", 4), ("repo", 7), ("hub", 7)])
def test_what_vanishes_in_the_middle_stops_no_training(tmp_path, team, what, code):
    ann = Machine(tmp_path / "ann", team.hub, team.repo)
    with ended(ann.start("train", "toy.yaml", "--output-dir", "out", STANDIN_DELAY="0.5")) as child:
        compiling(ann, child)
        if what == "token":
            team.hub.accounts.remove(SECRET)
        elif what == "repo":
            team.hub.repos.delete(team.repo)
        else:
            team.hub.fault("503", times=None)
        ended_with, text = ann.end(child)
    assert ended_with == 0, text
    assert (tmp_path / "ann" / "out" / "model.bin").exists()
    assert "not pushed" in text
    # Whoever wants the cache itself is told.
    got, text = ann("push", "--pending")
    assert got == code, text
    bob = Machine(tmp_path / "bob", team.hub, team.repo)
    got, text = bob("pull", "toy.yaml")
    assert got == code, text
    assert text.count("error[") == 1
    assert team.repo.name in text
    # All of it comes back, and what was kept is pushed.
    team.hub.faults.clear()
    team.hub.accounts.add(SECRET, Account("ann", "write", ("team",)))
    team.hub.repo(team.repo.name)
    assert ann("push", "--pending")[0] == 0
    assert bob("pull", "toy.yaml")[0] == 0


# Tokens

SLOW_FAULTS = ["403", "404", "409", "412", "429-window", "500", "drop", "wrong-bytes"]
FAULTS = ["401", "504", "cut", *(pytest.param(fault, marks=pytest.mark.slow) for fault in SLOW_FAULTS)]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_token_is_written_anywhere(tmp_path, team, fault):
    ann, bob = (Machine(tmp_path / name, team.hub, team.repo) for name in ("ann", "bob"))
    team.hub.fault(fault, times=None, chance=0.4, seed=3)
    ann("warm", "toy.yaml", CACHEKIT_PUSH_SECONDS="3", CACHEKIT_LEASE_SECONDS="2")
    bob("pull", "toy.yaml")
    team.hub.faults.clear()
    ann("push")
    bob("pull", "toy.yaml")
    bob("config")
    assert SECRET not in ann.said + bob.said
    looked = 0
    for machine in (ann, bob):
        for path in machine.folder.rglob("*"):
            if path.is_file():
                looked += 1
                assert SECRET.encode() not in path.read_bytes(), path
    for path in team.repo.files():
        with suppress(KeyError, FileNotFoundError):
            assert SECRET.encode() not in team.repo.read(path)
    assert looked > 10
