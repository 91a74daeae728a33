"""A team's cache from the command line, over a test Hub: two members with a home each, in processes of their own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import huggingface_hub
import pytest
from cli_session import DRIVER, RECIPE, Answer, environment, golden, the_error
from hubserver import HubServer
from hubserver.accounts import Account
from standins import until

pytest_plugins = ["cli_session"]


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    with HubServer(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def hub(shared_hub):
    shared_hub.log.clear()
    yield shared_hub
    shared_hub.faults.clear()


class Member:
    """A member of the team: a folder with the project, a home, the environment of the Hub."""

    def __init__(self, folder: Path, hub: HubServer, worker: Path, token: str | None = None) -> None:
        self.work, self.home = folder / "project", folder / "home"
        (self.work / "data").mkdir(parents=True)
        (self.work / "tiny.yaml").write_text(RECIPE)
        (self.work / "data" / "train.csv").write_text("text,label\nthe sea is still,calm\nSTOP NOW,loud\n")
        self.worker = worker
        self.variables: dict[str, str | None] = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": token or hub.token,
            "HF_HUB_OFFLINE": None,
            "HF_HOME": str(folder / "hf"),
            "CACHEKIT_HOME": str(self.home),
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "2",
            "PYTHONPATH": str(Path(__file__).parent.parent),
        }

    def __call__(self, *arguments: str, code: int = 0, largest: int | None = None) -> Answer:
        def limit() -> None:
            if largest is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

        run = subprocess.run(
            [sys.executable, "-c", DRIVER, str(self.worker), *arguments], cwd=self.work, preexec_fn=limit,
            env=environment(**self.variables), capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert run.returncode == code, f"{arguments}: exit {run.returncode}\n{run.stdout}\n{run.stderr}"
        return Answer(run.returncode, run.stdout, run.stderr)


@pytest.fixture
def join(tmp_path, hub, worker):
    def member(name: str, token: str | None = None) -> Member:
        return Member(tmp_path / name, hub, worker, token)

    return member


@pytest.fixture
def repo(hub, request):
    name = f"cache-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]}"
    return hub.repo(f"team/{name}")


def steady(text: str, repo_name: str) -> str:
    text = text.replace(repo_name, "team/cache")
    text = re.sub(r"http://127\.0\.0\.1:\d+", "https://huggingface.co", text)
    text = re.sub(r"[\w./-]*/project/cachekit\.toml", "<project>/cachekit.toml", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "f" * 64, text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "f" * 16, text)
    text = re.sub(r"(inductor-\S+?/)[\w-]+(/)", r"\1TARGET\2", text)
    text = re.sub(r"inductor-[\d.]+", "inductor-VERSION", text)
    text = re.sub(r"\b(training step), \d+\.\d s", r"\1, 0.1 s", text)
    text = re.sub(r"\b(took|in) \d+ s(?= in all|; \d+ B was)", r"\1 0.0 s", text)  # a busy machine's
    return re.sub(r"\b(in|took|compiling;.*took) \d+\.\d s", r"\1 0.0 s", text)


# One warms, the others find


@pytest.mark.feature("R1", "K3")
def test_a_team_compiles_once(join, repo, hub):
    ann, bob = join("ann"), join("bob")
    made = ann("hub", "use", repo.name)
    assert "cachekit.toml" in made.out
    (bob.work / "cachekit.toml").write_text((ann.work / "cachekit.toml").read_text())  # as a repository would bring it
    warmed = ann("warm", "tiny.yaml")
    assert "compiled 3 graphs" in warmed.out
    planned = bob("plan", "tiny.yaml", "--format", "json").json
    assert (planned["status"], planned["tier"]) == ("hit", f"hf://{repo.name}")
    assert planned["fetch_bytes"] == planned["bytes"] > 0
    trained = bob("train", "tiny.yaml", "--require-warm", "--format", "json").json
    assert trained["compiled"] == 0
    # And without the network from now on.
    hub.log.clear()
    assert bob("plan", "tiny.yaml", "--offline", "--format", "json").json["tier"] == "local"
    assert hub.log.entries() == []


def test_a_warm_costs_two_commits(join, repo, hub):
    ann = join("ann")
    ann("hub", "use", repo.name)
    ann("warm", "tiny.yaml")
    assert hub.count("POST */commit/*") == 2
    files = repo.files()
    assert not [path for path in files if path.startswith("cachekit/v1/leases/")]
    assert "README.md" in files
    hub.log.clear()
    ann("warm", "tiny.yaml")
    assert [f"{entry.method} {entry.path}".split("/")[-2] for entry in hub.log.entries()] == ["paths-info"]


def test_the_words_of_a_team(join, repo):
    ann, bob = join("ann"), join("bob")
    words = []
    for member, *arguments in (
        (ann, "hub", "use", repo.name),
        (ann, "warm", "tiny.yaml"),
        (ann, "push", "--dry-run"),
        (bob, "hub", "use", repo.name, "--read-only"),
        (bob, "hub", "ls"),
        (bob, "plan", "tiny.yaml"),
        (bob, "pull", "tiny.yaml", "--dry-run"),
        (bob, "pull", "tiny.yaml"),
        (bob, "pull", "tiny.yaml"),
    ):
        answer = member(*arguments)
        command = " ".join(["cachekit", *arguments])
        words.append(f"$ {command}\n{answer.out}--\n{answer.err}")
    golden("sharing", steady("\n".join(words), repo.name))


def test_every_answer_is_json_too(join, repo):
    ann, bob = join("ann"), join("bob")
    for member in (ann, bob):
        member("hub", "use", repo.name, "--format", "json")
    ann("warm", "tiny.yaml", "--format", "json")
    dry = ann("push", "--dry-run", "--format", "json").json
    assert dry["pushed"][0]["unchanged"] == 1
    (pulled,) = bob("pull", "tiny.yaml", "--format", "json").json["pulled"]
    assert (pulled["state"], pulled["files"]) == ("fetched", 1)
    (listed,) = bob("hub", "ls", "--format", "json").json
    assert [row["records"] for row in listed["records"]] == [1]
    (bob.work / "other.yaml").write_text(RECIPE.replace("length: 8", "length: 4"))
    both = bob("pull", "tiny.yaml", "other.yaml", "--format", "json", code=3).json
    assert both["error"]["code"] == "not-warm"
    assert [one["state"] for one in both["pulled"]] == ["present", "absent"]


# What people get wrong


def test_a_token_that_may_not_see_the_repo(join, repo):
    bob = join("bob", "hf_outsider")
    code, message, _, hint = the_error(bob("hub", "use", repo.name, code=4))
    assert code == "auth"
    assert repo.name in message
    assert "hf auth login" in hint
    bob("pull", "tiny.yaml", "--cache", f"local:rw,hf://{repo.name}:r", code=4)


@pytest.mark.feature("M1")
def test_a_token_that_may_only_read(join, repo, hub):
    ann, bob = join("ann"), join("bob", "hf_reader")
    for member in (ann, bob):
        member("hub", "use", repo.name)
    warmed = bob("warm", "tiny.yaml")  # works, and says that nobody else has it now
    assert "not pushed" in warmed.err
    code, *_ = the_error(bob("push", code=4), before=1)
    assert code == "auth"
    ann("warm", "tiny.yaml")
    assert bob("pull", "tiny.yaml").code == 0


def test_a_public_repo_is_not_filled_by_mistake(join, hub):
    repo = hub.repo("team/open-to-all")
    repo.private = False
    ann = join("ann")
    used = ann("hub", "use", repo.name)
    assert "PUBLIC" in used.out
    warmed = ann("warm", "tiny.yaml")
    assert "anybody can read" in warmed.err
    shown = ann("push", "--dry-run")
    assert "tells: who made them" in shown.out
    dry = ann("push", "--dry-run", "--format", "json").json["pushed"][0]
    refused = ann("push", code=2)
    the_error(refused, before=1)
    assert "would tell: who made them" in refused.out
    assert len(list(repo.history(repo.head))) == 1  # no lease either, which would tell who compiles
    assert [path for path in repo.files() if path.startswith("cachekit/v1/records")] == []
    told = ann("push", "--public").err
    assert told.index("it tells who made them") < told.index("pushed 1 file")
    # The dry run listed what went, and all of it.
    listed = {*dry["records"], *(file["path"] for file in dry["files"]), dry["card"]}
    assert listed == {path for path in repo.files() if path != ".gitattributes"}
    assert [path for path in repo.files() if path.startswith("cachekit/v1/records")]


@pytest.mark.parametrize(
    "chain",
    ["hub:rw", "local:rw,nobody:r", "local:rw,hf://one-word:r", "local:r", "local,local", "local:rw,s3://:r", ""],
)
def test_a_chain_that_cannot_be(join, chain):
    bob = join("bob")
    if chain:
        code, *_ = the_error(bob("plan", "tiny.yaml", "--cache", chain, code=2))
        assert code == "usage"
    else:
        bob.variables["CACHEKIT_CACHE"] = ","
        the_error(bob("plan", "tiny.yaml", code=2))


@pytest.mark.parametrize(
    ("chain", "tables", "told"),
    [
        ("local:rw,hub:x", '[tiers.hub]\nurl = "hf://team/cache"', "'x' allows"),
        ("local:rw,hf://team/cache:ro", "", "'ro' allows"),
        ("local:ro", "", "'ro' allows"),
        ("local:rw,https://huggingface.co/team/cache:r", "", "https:// leads to no cache"),
        (
            "local:rw,hub:r",
            '[tiers.hub]\nurl = "gs://bucket/cache"',
            "[tiers.hub]: gs://bucket/cache leads to no cache",
        ),
        ("local:rw,a:r,b:rw", '[tiers]\na.url = "hf://team/cache"\nb.url = "hf://team/cache"', "cannot be used"),
        ("local:rw,hf://ann:PASSWORD@team/cache:r", "", "no room for a token"),
        ("local:rw,hub:r", '[tiers.hub]\nurl = "hf://ann:PASSWORD@team/cache"', "no room for a token"),
        ("local:rw,hub:r", '[tiers.hub]\nurl = "below"', "project/below"),
    ],
)
def test_what_is_wrong_with_a_chain_is_said(command, monkeypatch, chain, tables, told):
    folder = command.work.parent / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "cachekit.toml").write_text(tables)
    (folder / "sub" / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(folder / "sub")
    answer = command("pull", "tiny.yaml", "--cache", chain, code=7 if "below" in told else 2)
    assert told in answer.err
    assert "PASSWORD" not in answer.err
    monkeypatch.setenv("CACHEKIT_CACHE", chain)
    assert "PASSWORD" not in command("config").out
    assert not [path for path in folder.parent.rglob("*.jsonl") if "PASSWORD" in path.read_text()]


@pytest.mark.parametrize(
    ("chain", "variable"), [("hf://team/cache", "HF_ENDPOINT"), ("s3://bucket/cache", "AWS_ENDPOINT_URL")]
)
def test_an_endpoint_that_is_no_address_is_said(command, monkeypatch, chain, variable):
    if chain.startswith("s3"):
        pytest.importorskip("obstore")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv(variable, "127.0.0.1:8080")
    *_, hint = the_error(command("pull", "tiny.yaml", "--cache", f"local:rw,{chain}:r", code=2))
    assert variable in hint


@pytest.mark.feature("R5")
@pytest.mark.parametrize("verb", ["pull", "push"])
@pytest.mark.parametrize("asked", ["--offline", "HF_HUB_OFFLINE"])
def test_offline_is_said_where_a_shared_cache_is_needed(command, monkeypatch, verb, asked):
    words = [verb, "tiny.yaml", "--cache", "local:rw,hf://team/cache:rw"]
    if asked == "--offline":
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        words.append(asked)
    else:
        monkeypatch.setenv(asked, "1")
    *_, cause, hint = the_error(command(*words, code=2))
    assert "hf://team/cache is beyond the network" in cause
    assert asked in hint


def test_a_hub_that_is_away_costs_a_line_and_a_moment(join, repo, hub):
    ann = join("ann")
    ann("hub", "use", repo.name)
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections and never answers
        ann.variables["HF_ENDPOINT"] = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        warmed = ann("warm", "tiny.yaml")
    assert "compiled 3 graphs" in warmed.out
    assert warmed.err.count("is not used") == 1
    ann.variables["HF_ENDPOINT"] = hub.endpoint
    assert ann("push", "--pending").code == 0
    bob = join("bob")
    bob("hub", "use", repo.name)
    assert bob("plan", "tiny.yaml", "--format", "json").json["status"] == "hit"


@pytest.mark.parametrize(
    ("address", "question"),
    [("team/cache", "/api/models/team/cache/revision/main"), ("buckets/team/cache", "/api/buckets/team/cache")],
)
def test_a_hub_is_asked_for_nothing_else(join, address, question):
    """The client would ask which agents there are, and wait for that answer as long as for the first one."""
    if address.startswith("buckets/") and not hasattr(huggingface_hub.HfApi, "batch_bucket_files"):
        pytest.skip(f"huggingface_hub {huggingface_hub.__version__} has no buckets")
    ann = join("ann")
    ann.variables["HF_HUB_DISABLE_TELEMETRY"] = None
    asked = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                line = server.accept()[0]
                asked.append(line.recv(1000).split(b" ")[1].decode())
                line.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        ann.variables["HF_ENDPOINT"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert "is not used" in ann("plan", "tiny.yaml", "--cache", f"local:rw,hf://{address}:r").err
    assert {path.partition("?")[0] for path in asked} == {question}


@pytest.mark.feature("R5")
def test_offline_opens_no_connection(join, repo, hub):
    ann = join("ann")
    ann("hub", "use", repo.name)
    hub.log.clear()
    for arguments in (["plan", "tiny.yaml", "--offline"], ["warm", "tiny.yaml", "--offline"]):
        ann(*arguments)
    ann.variables["HF_HUB_OFFLINE"] = "1"
    ann("train", "tiny.yaml")
    assert hub.log.entries() == []
    # What was compiled meanwhile is offered when there is a network again.
    ann.variables["HF_HUB_OFFLINE"] = None
    (pushed,) = ann("push", "--pending", "--format", "json").json["pushed"]
    assert len(pushed["records"]) == 1


def test_no_token_is_written_anywhere(join, repo, hub):
    token = "hf_outsider"
    for name, secret in (("ann", hub.token), ("bob", token)):
        member = join(name, secret)
        member.work.joinpath("cachekit.toml").write_text(
            f'cache = "local:rw,hub:rw"\n[tiers.hub]\nurl = "hf://{repo.name}"\n'
        )
        answers = [member("warm", "tiny.yaml", "-vv"), member("config"), member("env")]
        answers.append(member("push", "-vv", code=0 if secret == hub.token else 4))
        said = "".join(answer.out + answer.err for answer in answers)
        files = [path.read_bytes() for path in (member.home).rglob("*") if path.is_file()]
        assert secret not in said
        assert not [raw for raw in files if secret.encode() in raw]


# A disk that is full, a token that is gone, a repo that was deleted


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


def vanish(hub, repo, what):
    """Take something from the Hub; returns what brings it back."""
    if what == "token":
        hub.accounts.remove(hub.token)
        return lambda: hub.accounts.add(hub.token, Account("admin", "write", ("team",)))
    hub.repos.delete(repo)
    return lambda: hub.repos.create("model", repo.name, private=True)


@pytest.mark.feature("R4")
@pytest.mark.parametrize(
    ("what", "command"), [("token", "train"), pytest.param("repo", "warm", marks=pytest.mark.slow)]
)
def test_what_vanishes_while_a_run_works_does_not_fail_it(member, repo, hub, what, command):
    with Paused(member, command, "tiny.yaml") as run:
        back = vanish(hub, repo, what)
        try:
            answer = run.go_on()
        finally:
            back()
    assert answer.code == 0, answer.err
    (told,) = [line for line in answer.err.splitlines() if "not pushed" in line]
    assert "token" in told
    assert told.endswith("later: cachekit push --pending")
    (pushed,) = member("push", "--pending", "--format", "json").json["pushed"]
    assert set(pushed["records"]) < set(hub.repo(repo.name).files())
    (again,) = member("push", "--pending", "--format", "json").json["pushed"]
    assert (again["records"], again["unchanged"]) == ([], 0)


@pytest.mark.slow
def test_a_full_disk_in_a_pull(join, member, repo):
    """A limit on the size of files stands in for it."""
    member.variables["FAKE_SIZE"] = "300000"
    member("warm", "tiny.yaml")
    bob = join("bob")
    bob.variables["CACHEKIT_CACHE"] = member.variables["CACHEKIT_CACHE"]
    code, message, cause, hint = the_error(bob("pull", "tiny.yaml", "-q", code=1, largest=100_000))
    assert (code, cause) == ("store", "File too large")
    assert str(bob.home) in message
    assert "limit" in hint
    assert bob("pull", "tiny.yaml", "--format", "json").json["pulled"][0]["state"] == "fetched"


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
        assert json.loads(repo.read(lease))["seconds"] == 1800
        code, _, cause, _ = the_error(run.end(number))
    assert (code, cause.split()[0]) == ("interrupted", name)
    assert lease not in repo.files()
    # The next lease is as long as what is near enough here took: some 30 s.
    member("warm", "tiny.yaml", "--offline")
    with Paused(member, "warm", "tiny.yaml", "--set", "training.per_device_train_batch_size=4", "-q") as run:
        (lease,) = [path for path in repo.files() if path.startswith("cachekit/v1/leases/")]
        assert 300 < json.loads(repo.read(lease))["seconds"] < 400
