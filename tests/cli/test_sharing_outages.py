"""A team's cache from the command line when a disk is full, a token is gone, or the repo was deleted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.team_session import Member, hub, join, repo, shared_hub  # noqa: F401 - fixtures
from tests.support.cli_session import DRIVER, Answer, environment, the_error
from tests.support.hubserver.accounts import Account
from tests.support.processes import until

pytest_plugins = ["tests.support.cli_session"]


@pytest.fixture
def member(join, repo):
    one = join("ann")
    one.variables["CACHEKIT_CACHE"] = f"local:rw,hf://{repo.name}:rw"
    return one


class Paused:
    """A run that stands still in the middle of its work, until told to go on."""

    def __init__(self, member: Member, *arguments: str) -> None:
        self._signal = member.work / "pids"
        self._signal.unlink(missing_ok=True)
        self._run = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(member.worker), *arguments], cwd=member.work,
            env=environment(**member.variables, FAKE_WORKER="waits", FAKE_PIDS=str(self._signal)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self):
        until(lambda: self._signal.exists() or self._run.poll() is not None, "the worker")
        return self

    def __exit__(self, *_: object) -> None:
        if self._run.poll() is None:
            self._run.kill()
        self._run.communicate()

    def go_on(self) -> Answer:
        self._signal.with_name("go on").touch()
        return self._ended()

    def end(self, number: int) -> Answer:
        self._run.send_signal(number)
        return self._ended()

    def _ended(self) -> Answer:
        said, told = self._run.communicate(timeout=120)
        return Answer(self._run.returncode, said, told)


@pytest.mark.feature("R4")
def test_a_token_that_vanishes_while_a_run_works_does_not_fail_it(member, repo, hub):
    with Paused(member, "train", "tiny.yaml") as run:
        hub.accounts.remove(hub.token)
        try:
            answer = run.go_on()
        finally:
            hub.accounts.add(hub.token, Account("admin", "write", ("team",)))
    assert answer.code == 0, answer.err
    (told,) = [line for line in answer.err.splitlines() if "not pushed" in line]
    assert "token" in told
    assert told.endswith("later: cachekit push --pending")
    (pushed,) = member("push", "--pending", "--format", "json").json["pushed"]
    assert set(pushed["records"]) < set(hub.repo(repo.name).files())
    (again,) = member("push", "--pending", "--format", "json").json["pushed"]
    assert (again["records"], again["unchanged"]) == ([], 0)


def test_a_lease_that_is_refused_is_no_remote_that_is_not_used(member, hub):
    hub.fault("403", "POST */commit/*", times=None)
    told = member("warm", "tiny.yaml").err.splitlines()
    assert not [line for line in told if "continuing without it" in line]
    assert [line.partition(":")[0] for line in told if "rejected this token" in line] == [
        "no lease, so another machine may compile the same key"
    ]
    # An hour later, that it is not pushed, without the same reason again.
    assert told[-1] == "warning: not pushed, and kept here: see above; later: cachekit push --pending"


def test_a_failure_is_told_once(member, hub):
    hub.fault("503", "*", times=None, headers={"Retry-After": "1000000"})
    for arguments, code in ((["warm", "tiny.yaml", "--require-warm"], 7), (["pull", "tiny.yaml"], 7), (["push"], 7)):
        answer = member(*arguments, code=code)
        assert (answer.out + answer.err).count("503 Service unavailable") == 1, answer
        assert answer.err.count("it asks to wait an hour or more") == 1


def test_the_failure_of_a_run_is_told_once_though_its_push_skips_the_remote(member, hub):
    member.variables |= {"CACHEKIT_PATIENCE_SECONDS": "0"}
    hub.fault("502", "*", times=None)
    told = member("warm", "tiny.yaml").err
    assert told.count("502") == 1, told
    assert told.splitlines()[-1] == "warning: not pushed, and kept here: see above; later: cachekit push --pending"


def test_a_repo_that_is_not_there_is_told_once(member):
    told = member("warm", "tiny.yaml", "--cache", "local:rw,hf://team/nowhere:rw").err
    assert told.count("404 Repository not found") == 1
    assert told.splitlines()[-1] == "warning: not pushed, and kept here: see above; later: cachekit push --pending"


@pytest.mark.feature("R4")
@pytest.mark.parametrize(
    ("fault", "line"),
    [("409", "push"), ("409", "hub ls"), ("429-window", "pull tiny.yaml"), ("500", "push"), ("500", "hub use {repo}")],
)
def test_an_error_says_what_helps(member, hub, repo, fault, line):
    """The fault is the cause, and the command has the hint."""
    member.variables |= {"CACHEKIT_PATIENCE_SECONDS": "0", "CACHEKIT_PUSH_SECONDS": "1"}
    if line == "push":
        member("warm", "tiny.yaml", "--offline")
    hub.fault(fault, "*", times=None, seconds=1)
    failed = member(*line.format(repo=repo.name).split(), code=7)
    _, _, cause, hint = the_error(Answer(7, "", failed.err[failed.err.index("error[") :]))
    assert fault[:3] in cause
    assert ("cachekit push --pending" if line == "push" else "try again later") in hint


def test_a_full_disk_in_a_push(member, repo):
    """The client keeps what it sends in HF_HOME; of what could not be sent at least the name is noted."""
    member("warm", "tiny.yaml", "--offline")
    failed = member("push", "-q", code=1, largest=0)
    code, _, cause, hint = the_error(Answer(1, "", failed.err[failed.err.index("error[") :]))
    assert code == "store"
    assert "File too large" in cause
    assert "HF_HOME" in hint
    assert "1 record and 1 file sent" in member("push", "--pending").out


@pytest.mark.feature("C3")
@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_a_run_that_is_ended_gives_its_lease_back(member, repo, number, name):
    """By a scheduler, say: on a Hub repo the others would wait for as long as the compile may take."""
    with Paused(member, "warm", "tiny.yaml", "-q") as run:
        (lease,) = [path for path in repo.files() if path.startswith("cachekit/v1/leases/")]
        assert json.loads(repo.read(lease))["seconds"] == 348
        code, _, cause, _ = the_error(run.end(number), before=1)
    assert (code, cause.split()[0]) == ("interrupted", name)
    assert lease not in repo.files()
    (had,) = member("hub", "ls", "--recipe", "tiny", "--format", "json").json[0]["records"]
    assert had["recipe"] == "tiny, interrupted"


@pytest.mark.feature("C3")
def test_a_lease_is_as_long_as_what_is_near_enough_took(member, repo):
    """Some 30 s here."""
    member("warm", "tiny.yaml", "--offline")
    with Paused(member, "warm", "tiny.yaml", "--set", "training.per_device_train_batch_size=4", "-q"):
        (lease,) = [path for path in repo.files() if path.startswith("cachekit/v1/leases/")]
        assert 300 < json.loads(repo.read(lease))["seconds"] < 400
