"""No secret stands in anything that cachekit writes, pushes or prints, wherever it was planted."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from cachekit.training import ProcessLauncher
from tests.support.cli_session import publish_record, small_record, the_error
from tests.support.planted_secrets import VALUES
from tests.verbs.run_user import User

pytest_plugins = ["tests.support.cli_session"]

LOT = random.Random(15)
TOKEN = "hf_" + "aBcDeFgHiJ" * 3 + "kLmN"
# What the first edition was measured with: of the nine variables eight went into the record, of the fifteen words nine.
NINE = {
    "HF_TOKEN": (TOKEN, TOKEN),
    "HTTPS_PROXY": ("pr0xy-hush", "http://ann:pr0xy-hush@proxy:3128"),
    "DATABASE_URL": ("d4tabase-hush", "postgres://ann:d4tabase-hush@db/runs"),
    "GITHUB_PAT": ("p4t-of-no-known-form", "p4t-of-no-known-form"),
    "SLACK_WEBHOOK": ("T0/B0/h00k", "https://hooks.example.org/T0/B0/h00k"),
    "WANDB_API_KEY": ("0123456789abcdef0123456789abcdef01234567",) * 2,
    "AWS_SECRET_ACCESS_KEY": ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",) * 2,
    "MLFLOW_TRACKING_PASSWORD": ("mlfl0w hush", "mlfl0w hush"),
    "NEURON_FUSE_SOFTMAX": ("s0ftmax-hush", "https://ann:s0ftmax-hush@host/x"),
}
FIFTEEN = [
    (TOKEN, ["--hub_token", TOKEN]),
    ("w4ndb-hush", ["--wandb-api-key", "w4ndb-hush"]),
    ("p4ssword-hush", ["--password=p4ssword-hush"]),
    ("d4sh-in-front", ["--api-key", "-d4sh-in-front"]),
    ("equ4lsAtTheEnd", ["--api-key", "equ4lsAtTheEnd=="]),
    ("st0rage-hush", ["--storage", "mysql://ann:st0rage-hush@db/optuna"]),
    ("p4t-hush", ["--github-pat", "p4t-hush"]),
    ("h00k-hush", ["--slack_webhook", "https://hooks.example.org/h00k-hush"]),
    ("hydra-hush1", ["+logger.api_key=hydra-hush1"]),
    ("json-hush1", ["--config", '{"logger": {"apiKey": "json-hush1"}}']),
    ("he4der-hush", ["--header", "X-Api-Key: he4der-hush"]),
    ("be4rer-hush-and-more", ["--header", "Authorization: Bearer be4rer-hush-and-more"]),
    ("s1gned0123456789", ["--data", "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=s1gned0123456789"]),
    ("us3r-hush", ["--user", "ann:us3r-hush"]),
    ("exp0rted-hush", ["--note", "exp0rted-hush"]),  # a shell put the value of a variable there
]


def planted() -> dict[str, tuple[str, str]]:
    """Two hundred secrets of all kinds, in variables that nobody knows."""
    kinds = sorted(VALUES)
    return {f"PLANTED_{number}": VALUES[kinds[number % len(kinds)]](LOT) for number in range(200)}


def found_in(folder: Path, secrets, *, but: tuple[Path, ...] = ()) -> dict[str, str]:
    """Which of the secrets stand in a file below a folder, or in its name, by their files."""
    found = {}
    for path in folder.rglob("*"):
        raw = path.read_bytes() if path.is_file() and path not in but else b""
        found |= {str(path): secret for secret in secrets if secret.encode() in raw or secret in path.name}
    return found


@pytest.fixture
def talkative(worker, tmp_path, monkeypatch):
    """A worker that prints its variables, tells one, and fails with their values where it is to fail."""
    path = tmp_path / "talkative.py"
    path.write_text(f"""
import json, os, runpy, sys
written = open(sys.argv[1]).read()
job = json.loads(written)
names = [name for name in os.environ if name.startswith("PLANTED_") or name in {sorted(NINE)!r}]
assert not [name for name in names if json.dumps(os.environ[name]) in written], "the job is a file"
for name in names:
    print(f"{{name}}={{os.environ[name]}}", "and again", os.environ[name], flush=True)
folder = os.path.dirname(sys.argv[1])
left = [entry.path for entry in os.scandir(folder) if os.environ[names[0]] in open(entry.path, errors="replace").read()]
assert not left, "what is printed has no file of its own while it is not redacted"
with open(job["events"], "a") as told:
    told.write(json.dumps({{"event": "note", "note": " ".join(os.environ[name] for name in names)}}) + "\\n")
if os.environ.get("FAKE_WORKER") == "fails":
    said = {{"code": "training-failed", "message": "no", "cause": " ".join(os.environ[name] for name in names)}}
    open(job["result"], "w").write(json.dumps({{"failure": said}}))
    sys.exit(1)
runpy.run_path({str(worker)!r}, run_name="__main__")
""")
    monkeypatch.setattr("cachekit.training.ProcessLauncher", lambda: ProcessLauncher([sys.executable, str(path)]))


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    "variables",
    [pytest.param(NINE, id="nine"), pytest.param(planted(), id="two hundred", marks=pytest.mark.campaign)],
)
def test_no_secret_of_a_recipes_environment_is_written_down(command, machine, talkative, monkeypatch, variables):
    secrets = [secret for secret, _ in variables.values()]
    recipe, remote = command.work / "tiny.yaml", command.work.parent / "remote"
    remote.mkdir(mode=0o700)
    # The last one stands in the shell, as it should, and the recipe names it.
    *most, last = variables
    monkeypatch.setenv(last, variables[last][1])
    said = {name: variables[name][1] for name in most} | {last: f"${last}"}
    recipe.write_text(recipe.read_text() + f"environment: {json.dumps(said)}\n")
    (command.work / "cachekit.toml").write_text(f'cache = "local:rw,team:rw"\nremotes.team.url = "{remote}"\n')

    with monkeypatch.context() as failing:
        failing.setenv("FAKE_WORKER", "fails")
        answers = [command("warm", "tiny.yaml", "-vv", code=1)]
    answers += [
        command("warm", "tiny.yaml", "--format", "json"),
        command("train", "--output-dir", "out"),
        command("plan", "tiny.yaml"),
        command("why", "tiny.yaml", "--set", "training.max_seq_length=16"),
        command("push", "--recheck", "-vv"),
        command("store", "lock", "tiny.yaml"),
        command("store", "export", "bundle.tar", "--all"),
        command("stats", "--format", "json"),
        command("store", "show", command("store", "ls", "--format", "quiet").out.split()[0], "--format", "json"),
    ]
    assert [*remote.rglob("*.json")]
    printed = "".join(answer.out + answer.err for answer in answers)
    assert not [secret for secret in secrets if secret in printed]
    assert not found_in(command.work.parent, secrets, but=(recipe,))
    logs = b"".join(path.read_bytes() for path in (command.work.parent / "store" / "v1" / "logs").glob("*.log"))
    assert b"the worker's own words" in logs
    assert b"=***" in logs
    assert command("plan", "tiny.yaml", "--format", "json").json["status"] == "hit", "its key is the same again"


@pytest.mark.feature("T7")
def test_no_secret_of_a_command_line_is_written_down(tmp_path):
    user, remote = User(tmp_path), tmp_path / "remote"
    remote.mkdir(mode=0o700)
    words = [word for _, part in FIFTEEN for word in part]
    team = {"CACHEKIT_CACHE": f"local:rw,{remote}:rw", "EXPORTED_SECRET": "exp0rted-hush"}
    done = [
        user("run", "--report", "report.json", "--", "python", "train.py", *words, "--pad_token", "<pad>", **team),
        user("push", "--recheck", "-vv", **team),
        user("stats", "--format", "json", **team),
        user("store", "show", user("store", "ls", "--format", "quiet").stdout.split()[0], "--format", "json"),
        user("store", "export", "bundle.tar", "--all"),
    ]
    secrets = [secret for secret, _ in FIFTEEN]
    printed = "".join(one.stdout + one.stderr for one in done)
    assert not [secret for secret in secrets if secret in printed]
    assert not found_in(tmp_path, secrets)
    arguments = json.loads(done[3].stdout)["hard"]["command.arguments"]
    assert arguments[-2:] == ["--pad_token", "<pad>"]
    assert sum("<secret>" in word for word in arguments) == len(FIFTEEN)


@pytest.mark.feature("T7")
@pytest.mark.parametrize("verb", ["push", "export"])
def test_a_record_with_a_secret_is_not_shared_and_its_field_is_named(command, verb):
    """An older cachekit made it."""
    old = small_record("old", **{"environment.PROXY": "http://ann:pr0xy-hush@proxy:3128"})
    for record in (small_record("new"), old):
        publish_record(command.work.parent / "store", record)
    remote = command.work.parent / "remote"
    remote.mkdir(mode=0o700)
    words = ["push", "--cache", f"local:rw,{remote}:rw"] if verb == "push" else ["store", "export", "x.tar", "--all"]
    answer = command(*words, code=0 if verb == "push" else 2)
    assert "its record holds a secret in hard.environment.PROXY" in answer.out + answer.err
    assert "pr0xy-hush" not in answer.out + answer.err
    assert not found_in(command.work, ["pr0xy-hush"])
    assert not found_in(remote, ["pr0xy-hush"])
    # A push leaves out one record, and not the others; alone it is an error.
    assert len([*remote.glob("**/records/**/[!.]*.json")]) == (verb == "push")
    assert not (command.work / "x.tar").exists()
    if verb == "push":
        code, _, cause, hint = the_error(command(*words[:1], old.key, *words[1:], code=2), before=1)
        assert (code, "environment.PROXY" in cause, hint.endswith("without PROXY")) == ("secret", True, True)


VALUE = "zqsvcvalue991122"


@pytest.fixture
def service(monkeypatch):
    """A shell that has a secret of no known form."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", VALUE)


@pytest.mark.feature("T7")
def test_the_value_of_a_variable_in_a_recipes_name_is_not_shared(command, machine, worker, service, monkeypatch):
    recipe, remote = command.work / "named.yaml", command.work.parent / "remote"
    recipe.write_text((command.work / "tiny.yaml").read_text().replace("name: tiny", f"name: bert-{VALUE}"))
    assert VALUE in recipe.read_text()
    remote.mkdir(mode=0o700)
    (command.work / "cachekit.toml").write_text(f'cache = "local:rw,team:rw"\nremotes.team.url = "{remote}"\n')
    answers = [
        command("warm", "named.yaml", "--format", "json"),
        command("plan", "named.yaml"),
        command("push", "--recheck", code=2),
        command("store", "export", "bundle.tar", "--all", code=2),
        command("store", "ls"),
        command("stats", "--format", "json"),
    ]
    assert "its record holds a secret in recipe" in answers[2].err
    assert VALUE not in "".join(answer.out + answer.err for answer in answers)
    monkeypatch.delenv("MY_SERVICE_TOKEN")
    refused = command("push", "--recheck", code=2)  # in another shell, which knows no such value
    assert "it holds the value of MY_SERVICE_TOKEN" in refused.err
    assert not found_in(remote, [VALUE])
    assert not found_in(command.work, [VALUE], but=(recipe,))


@pytest.mark.feature("T7")
@pytest.mark.parametrize("shown", ["human", "json", "quiet"])
def test_no_answer_repeats_the_value_of_a_variable(command, machine, service, shown):
    for words, code in {
        ("plan", f"nope-{VALUE}"): 2,
        ("store", "show", VALUE): 2,
        ("store", "import", f"/x/{VALUE}"): 2,
        ("push", VALUE, "--cache", f"local:rw,{command.work / VALUE}:rw"): 2,
        ("trust", "ls", "--cache", f"local:rw,/x/{VALUE}:r"): 0,
    }.items():
        answer = command(*words, "--format", shown, code=code)
        assert VALUE not in answer.out + answer.err, words
        if shown == "json":
            json.loads(answer.out)


TELLTALE = "TORCHX_REGISTRY_PASSWORD"


@pytest.mark.feature("T7")
def test_files_with_a_secret_of_the_shell_are_kept_and_not_shared(command, machine, worker, monkeypatch):
    """A compiler writes what it finds in its environment into what it compiles."""
    path, remote = command.work.parent / "telltale.py", command.work.parent / "remote"
    path.write_text(f"""
import os, pathlib, runpy
try:
    runpy.run_path({str(worker)!r}, run_name="__main__")
finally:
    graph = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "graph.py")
    graph.write_text("before " + os.environ.get({TELLTALE!r}, "nothing") + " after")
""")
    monkeypatch.setattr("cachekit.training.ProcessLauncher", lambda: ProcessLauncher([sys.executable, str(path)]))
    monkeypatch.setenv(TELLTALE, "h7sh-hush")
    remote.mkdir(mode=0o700)
    shared = ("--cache", f"local:rw,{remote}:rw")
    command("warm", "tiny.yaml")
    assert command("plan", "tiny.yaml", "--format", "json").json["status"] == "hit", "it is used here"
    for words in (("push", *shared), ("store", "export", "x.tar", "--all")):
        lines = 1 if words[0] == "push" else 0
        code, _, cause, hint = the_error(command(*words, code=2), before=lines)
        assert (code, cause) == ("secret", f"it holds the value of {TELLTALE} in a compiled file")
        assert hint.startswith(f"unset {TELLTALE} where it is compiled")
    assert not [*remote.rglob("*.tar")]
    monkeypatch.delenv(TELLTALE)
    command("warm", "tiny.yaml", "--recache")
    command("push", *shared)
    assert [*remote.rglob("*.tar")]


@pytest.mark.feature("T7")
def test_what_a_command_compiled_with_a_secret_in_it_is_not_shared(tmp_path):
    user, remote = User(tmp_path), tmp_path / "remote"
    remote.mkdir(mode=0o700)
    script = (user.work / "train.py").read_text()
    (user.work / "train.py").write_text(script + f"(entry / 'told').write_text(os.environ[{TELLTALE!r}])\n")
    secret = {TELLTALE: "h7sh-hush"}
    user("run", "--", "python", "train.py", **secret)
    user.graphs("forward", "backward", "another")  # a similar command's graphs are given to this one, and kept with its
    user("run", "--", "python", "train.py", **secret)
    refused = user("push", "--cache", f"local:rw,{remote}:rw", code=2)
    assert f"it holds the value of {TELLTALE} in a compiled file" in refused.stderr
    assert not [*remote.rglob("*.tar")]


@pytest.mark.feature("T7")
def test_the_signing_key_is_handed_to_no_command(tmp_path):
    user = User(tmp_path)
    key = {"CACHEKIT_TRUST_KEY": str(tmp_path / "no-key-yet")}
    (user.work / "train.py").write_text("import os; print('has', os.environ.get('CACHEKIT_TRUST_KEY'))")
    assert user("run", "--", "python", "train.py", **key).stdout.splitlines()[-1] == "has None"


@pytest.mark.feature("T7")
def test_a_secret_of_an_override_is_neither_noted_nor_locked(command, machine, worker):
    changed = ("--set", "environment.HF_TOKEN=n0t-to-be-noted", "--set", "training.max_seq_length=16")
    printed = [command("warm", "tiny.yaml", *changed), command("train", "--output-dir", "out")]
    assert "max_seq_length=16" in printed[-1].err
    refused = command("store", "lock", "tiny.yaml", *changed, code=2)
    assert "environment.HF_TOKEN" in refused.err
    assert "n0t-to-be-noted" not in "".join(answer.out + answer.err for answer in (*printed, refused))
    assert not found_in(command.work.parent, ["n0t-to-be-noted"])


def test_words_say_that_a_value_is_not_shown(command, machine, worker):
    command("warm", "tiny.yaml", "--set", "environment.MINE=one")
    said = command("why", "tiny.yaml", "--set", "environment.MINE=two").out
    assert "MINE (value not shown) differs" in said
