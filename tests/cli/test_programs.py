"""The command line for programs: JSON, the one value, and exit codes."""

from __future__ import annotations

import fcntl
import json
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import jsonschema
import pytest

from cachekit.errors import every_error
from cachekit.recipe import zoo
from tests.support.cli_session import publish, publish_record, small_record, the_error

pytest_plugins = ["tests.support.cli_session"]


# Answers for programs


@pytest.fixture
def filled(home, machine):
    """A store with the recipe's record and another one."""
    publish_record(home, small_record())
    return publish(home)


DATA_COMMANDS = [
    ("plan", "tiny.yaml"),
    ("plan", "tiny.yaml", "--set", "training.max_seq_length=16"),
    ("warm", "tiny.yaml"),
    ("warm", "tiny.yaml", "--dry-run"),
    ("train", "tiny.yaml", "--dry-run"),
    ("store", "ls"),
    ("zoo",),
    ("zoo", "ls", "models"),
    ("zoo", "ls", "instances"),
    ("zoo", "ls", "--task", "token-classification"),
    ("zoo", "show", "bert"),
    ("zoo", "show", "roberta-base"),
    ("zoo", "show", "trn1.2xlarge"),
    ("zoo", "show", "neuron-2.31"),
    ("zoo", "ls", "toolchains"),
    ("zoo", "show", "trn1.2xlarge", "--price", "trn1.2xlarge=0.40"),
    ("zoo", "check", "tiny.yaml"),
    ("zoo", "schema"),
    ("config",),
]


@pytest.mark.feature("U2")
def test_programs_get_json_people_get_none_and_nothing_else_is_said(command, filled):
    for arguments in DATA_COMMANDS:
        answer = command(*arguments, "--format", "json")
        assert answer.json
        assert answer.err == ""
        answer = command(*arguments)
        assert answer.out.strip()
        assert answer.err == ""
        if arguments != ("zoo", "schema"):
            assert not answer.out.startswith(("{", "["))


@pytest.mark.feature("U2")
def test_json_says_what_people_are_told(command, filled):
    planned = command("plan", "tiny.yaml", "-f", "json").json
    assert (planned["status"], planned["key"], planned["graphs"]) == ("hit", filled.key, 3)
    assert planned["bytes"] == filled.size
    assert planned["saved_seconds"] == 29.7
    missed = command("plan", "tiny.yaml", "--set", "training.max_seq_length=16", "--format=json").json
    assert (missed["status"], missed["nearest"]["key"]) == ("miss", filled.key)
    (change,) = missed["nearest"]["changes"]
    assert (change["name"], change["old"], change["new"], change["follows"]) == ("training.max_seq_length", 8, 16, [])
    assert missed["expected_seconds"] == pytest.approx(29.7, rel=0.05)
    assert {row["key"] for row in command("store", "ls", "--format", "json").json} == {filled.key, small_record().key}
    shown = command("store", "show", filled.key[:10], "--format", "json").json
    assert shown["key"] == shown["key_of_ingredients"] == filled.key
    assert shown["whole"] is True
    jsonschema.validate(shown, command("store", "show", "--schema").json)
    assert shown["hard"] == planned["ingredients"]["hard"]
    settings = {row["name"]: row for row in command("config", "--format", "json", "--home", "/srv/x").json}
    assert (settings["home"]["value"], settings["home"]["origin"]) == ("/srv/x", "flag")


@pytest.mark.feature("U2")
def test_stdout_of_warm_and_train_is_one_document(command, work, machine, worker):
    warmed = command("warm", "tiny.yaml", "--format", "json")
    assert (warmed.json["status"], warmed.json["compiled"]) == ("compiled", 3)
    assert "compiling: a trial run" in warmed.err
    trained = command("train", "--format", "json", "--output-dir", "model")
    assert (trained.json["status"], trained.json["compiled"], trained.json["found"]) == ("hit", 0, 3)
    assert trained.json["key"] == warmed.json["key"]
    assert json.loads((work / "model" / "cachekit-result.json").read_text()) == trained.json
    assert f"training {work / 'tiny.yaml'}\n" in trained.err


@pytest.mark.feature("U2")
def test_quiet_gives_the_one_value(command, filled, work, worker):
    def quiet(*arguments):
        answer = command(*arguments, "--format", "quiet")
        assert answer.err == ""
        return answer.out

    assert quiet("plan", "tiny.yaml") == "hit\n"
    assert quiet("plan", "tiny.yaml", "--set", "training.max_seq_length=16") == "miss\n"
    assert quiet("warm", "tiny.yaml", "--dry-run") == "hit\n", "as plan"
    assert quiet("train", "tiny.yaml", "--dry-run") == "hit\n", "as plan"
    assert quiet("store", "show", filled.key[:8]) == f"{filled.key}\n"
    assert sorted(quiet("store", "ls").split()) == sorted([filled.key, small_record().key])
    assert quiet("zoo").split() == list(zoo.recipes())
    assert f"home={work.parent / 'store'}\n" in quiet("config")
    key = quiet("warm", "tiny.yaml", "--set", "training.max_seq_length=16").strip()
    assert quiet("store", "show", key) == f"{key}\n"
    assert quiet("train", "-o", "model") == f"{work / 'model'}\n"


@pytest.mark.feature("U2")
def test_an_error_in_json(command):
    answer = command("plan", "missing.yaml", "--format", "json", code=2)
    code, message, cause, hint = the_error(answer)
    assert answer.json == {
        "schema": "cachekit/error/1",
        "error": {"code": code, "exit_code": 2, "message": message, "cause": cause, "hint": hint},
    }


@pytest.mark.feature("U2")
@pytest.mark.parametrize("verb", ["plan", "warm", "train"])
def test_a_miss_in_json_is_one_document(command, machine, verb):
    """A program reads stdout whole: two documents in a row are none."""
    answer = command(verb, "tiny.yaml", "--require-warm", "--format", "json", code=3)
    assert answer.json["error"]["code"] == "not-warm"
    assert answer.json["error"]["exit_code"] == 3
    the_error(answer)


# Exit codes


@pytest.mark.feature("U2")
def test_each_error_has_its_exit_code(command, machine, monkeypatch):
    for cls in every_error():
        failure = cls("what happened", cause="why", hint="what to do")
        monkeypatch.setattr("cachekit.verbs.plan.plan", Mock(side_effect=failure))
        answer = command("plan", "tiny.yaml", code=cls.exit_code)
        assert answer.err == f"error[{cls.code}]: what happened\n  cause: why\n  hint: what to do\n"
        assert answer.out == ""


@pytest.mark.feature("U2", "M3")
def test_require_warm_exits_3(command, home, machine, worker):
    for verb in ("plan", "warm", "train"):
        answer = command(verb, "tiny.yaml", "--require-warm", code=3)
        assert the_error(answer)[0] == "not-warm"
    publish(home)
    for verb in ("plan", "warm"):
        command(verb, "tiny.yaml", "--require-warm")


def test_a_dry_run_exits_as_the_run_would(command, machine):
    for verb in ("warm", "train"):
        assert the_error(command(verb, "tiny.yaml", "--dry-run", "--require-warm", code=3))[0] == "not-warm"


@pytest.mark.feature("U2")
def test_a_failed_compile_exits_6(command, machine, worker, monkeypatch):
    monkeypatch.setenv("FAKE_WORKER", "fails")
    answer = command("warm", "tiny.yaml", "-q", code=6)
    code, message, cause, hint = the_error(answer)
    assert (code, message, cause) == ("compile-failed", "the compiler failed in: first training step", "no")
    log = Path(hint.removeprefix("see "))
    assert log.read_text() == "the worker's own words\n"
    assert command("plan", "tiny.yaml", "--format", "quiet").out == "miss\n"


def test_a_worker_that_dies_shows_its_last_words(command, machine, worker, monkeypatch):
    monkeypatch.setenv("FAKE_WORKER", "dies")
    answer = command("warm", "tiny.yaml", "-q", code=1)
    assert "Traceback" not in answer.err
    assert answer.err.startswith("error[training-failed]: the training worker died (exit code 3)\n  cause: ")
    assert "the last words" in answer.err
    assert answer.err.splitlines()[-1].startswith("  hint: see ")


@contextmanager
def held(command, home, *, known=True):
    """Somebody else compiles what the recipe needs, and is known or not."""
    key = command("plan", "tiny.yaml", "--format", "json").json["key"]
    locks = home / "v1" / "locks"
    locks.mkdir(parents=True)
    if known:
        note = {"pid": 4711, "host": "trn-7", "user": "ann", "since": time.time() - 100, "recipe": "tiny"}
        (locks / f"{key}.json").write_text(json.dumps(note))
    with (locks / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.feature("U2")
@pytest.mark.parametrize("wait", ["0", "0.3"])
def test_waiting_too_long_exits_75(command, home, machine, wait):
    with held(command, home):
        answer = command("warm", "tiny.yaml", "--wait", wait, "-q", code=75)
    code, _, cause, hint = the_error(answer)
    assert code == "waited-too-long"
    assert cause.startswith("process 4711 of ann@trn-7, for 10")
    assert "--wait" in hint


@pytest.mark.parametrize("known", [True, False])
def test_a_wait_is_told_once(command, home, machine, known):
    with held(command, home, known=known):
        told = command("warm", "tiny.yaml", "--wait", "0.5", code=75).err.splitlines()
    who = "process 4711 of ann@trn-7, for 10" if known else "an unknown process"
    assert told[0].startswith(f"waiting: the same key is being compiled by {who}")
    assert told[1].startswith("error[waited-too-long]: "), "not the same thing twice in half a second"


@pytest.mark.feature("U2")
def test_ctrl_c_in_this_process_exits_130(command, machine, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("cachekit.verbs.plan.plan", interrupted)
    answer = command("plan", "tiny.yaml", code=130)
    assert answer.err.startswith("error[interrupted]: stopped\n")
    assert len(answer.err.splitlines()) <= 3
    assert "Traceback" not in answer.err
