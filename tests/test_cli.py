"""The command line as people and programs meet it: help, answers, JSON, exit codes, errors in three lines.

Golden files lie in tests/golden. `UPDATE_GOLDEN=1 pytest tests/test_cli.py` writes them anew; read the difference.

No test here compiles: where a worker is needed, a script stands in for it (FAKE_WORKER), and the launcher, the store
and the command line around it are the real ones.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.metadata
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_session import (
    DEADLINE,
    DRIVER,
    RECIPE,
    Answer,
    environment,
    golden,
    process,
    publish,
    publish_record,
    small_record,
    the_error,
)

import cachekit
from cachekit import zoo
from cachekit.cli import help_topics
from cachekit.errors import CachekitError, every_error

pytest_plugins = ["cli_session"]
VERBS = (
    "warm",
    "train",
    "run",
    "plan",
    "pull",
    "push",
    "ls",
    "show",
    "neff",
    "import",
    "export",
    "doctor",
    "config",
    "env",
    "help",
    "zoo",
    "hub",
)


def steady(text: str, *folders: Path) -> str:
    """Output without what differs from run to run: keys (by digits of the same number), folders, measured times."""
    for folder in folders:
        text = text.replace(str(folder), f"<{folder.name}>")
    text = re.sub(r"\b[0-9a-f]{64}\b", "f" * 64, text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "f" * 16, text)
    return re.sub(r"\b(took|step,|restored 12 B in) \d+\.\d s", r"\1 0.0 s", text)


def gone(pid: int) -> bool:
    """Whether a process has ended; what nobody waited for yet has ended as well."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE:.0f} s: {what}"
        time.sleep(0.02)


# Help


def normal_help(text: str) -> str:
    """Help without what supported versions of typer write differently: `\\[default: x]`, `{RECIPE}`, `[RECIPE...]`."""
    # An argument that may be absent stands in brackets, or does not.
    text = re.sub(r"^(Usage: .*) \[([A-Z|]+\.\.\.)\]$", r"\1 \2", text, flags=re.MULTILINE)
    return re.sub(r"\{([A-Z.]+)\}", r"\1", text.replace("\\[", "["))


@pytest.mark.feature("U2")
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(command, verb):
    answer = command(*filter(None, [verb]), "--help")
    assert answer.err == ""
    golden(f"help-{verb or 'cachekit'}", normal_help(answer.out))


@pytest.mark.feature("U2")
def test_every_verb_has_a_golden_help(command):
    listed = re.findall(r"^  ([a-z]+)  +\S", command("--help").out.partition("Commands:")[2], re.MULTILINE)
    assert tuple(listed) == VERBS


def test_help_has_a_short_form(command):
    assert command("-h").out == command("--help").out
    assert command("plan", "-h").out == command("plan", "--help").out


def test_help_cuts_no_sentence_short(command):
    """A list of verbs whose explanations end in dots explains nothing."""
    verbs = command("--help").out.partition("Commands:")[2].splitlines()
    assert [line for line in verbs if line.endswith("...")] == []


def test_nothing_said_means_help(command):
    answer = command()
    assert answer.out == command("--help").out


def test_version(command):
    assert command("--version").out == f"{cachekit.__version__}\n"


@pytest.mark.feature("U2")
def test_exit_codes_are_explained(command):
    golden("help-exit-codes", command("help", "exit-codes").out)
    assert command("help").out == command("help", "exit-codes").out


@pytest.mark.feature("U2")
def test_every_error_is_in_the_table_of_exit_codes(command):
    rows, number = {}, ""
    for line in command("help", "exit-codes").out.splitlines()[1:]:
        assert len(line) <= 80
        number = line.split("  ")[0].strip() or number
        rows[number] = rows.get(number, "") + line
    for cls in every_error():
        assert re.search(rf"\b{re.escape(cls.code)}\b", rows[str(cls.exit_code)]), cls
    assert set(rows) == {str(number) for number in help_topics.MEANINGS}


@pytest.mark.parametrize("asked", [["--format", "json"], ["--format=json"], ["-f", "json"]], ids=" ".join)
def test_a_mistyped_option_is_a_document_too(command, asked):
    answer = command("plan", "tiny.yaml", "--bogus", *asked, code=2)
    assert answer.json["error"]["code"] == "usage"
    assert "--bogus" in answer.json["error"]["message"]


def test_the_shell_completes_names(work, home):
    """As bash asks: names of recipes, formats, compilers."""
    for words, expected in (
        ("cachekit plan dem", ["demo"]),
        ("cachekit plan bert --format j", ["json"]),
        ("cachekit plan bert --compiler ind", ["inductor"]),
    ):
        asked = {
            "_CACHEKIT_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            "_TYPER_COMPLETE_TESTING": "1",
        }
        answer = process(**asked, program=("-c", "from cachekit.cli.app import app; app(prog_name='cachekit')"))
        assert answer.out.split() == expected


def test_plan_looks_at_data_that_is_there(command, work):
    assert command("plan", "tiny.yaml", "--set", "data.text_column=words", code=2).err.count("words") >= 1
    (work / "labelled.yaml").write_text(RECIPE.replace("path: data", "path: elsewhere"))
    assert command("plan", "labelled.yaml").out.startswith("tiny: miss"), "the data may be on the instance only"


# Answers for people


def test_plan_of_an_empty_store(command, machine):
    golden("plan-empty-store", steady(command("plan", "tiny.yaml").out))


def test_plan_of_a_miss(command, home, machine):
    publish(home, "training.max_seq_length=16", "training.optim=sgd")
    golden("plan-miss", steady(command("plan", "tiny.yaml").out))


def test_plan_of_a_hit(command, home, machine):
    publish(home)
    golden("plan-hit", steady(command("plan", "tiny.yaml").out))


def test_what_plan_says_to_run_next_is_what_it_planned(command, machine):
    """Whoever copies the line must not compile another key."""
    changed = command("plan", "tiny.yaml", "--set", "training.max_seq_length=16")
    assert "next: cachekit warm tiny.yaml --set training.max_seq_length=16" in changed.out
    missed = command("plan", "tiny.yaml", "--set", "training.max_seq_length=16", "--require-warm", code=3)
    assert the_error(missed)[3] == "cachekit warm tiny.yaml --set training.max_seq_length=16"


def test_what_to_run_next_names_the_store_that_was_given(command, machine, worker, work):
    words = ("tiny.yaml", "--home", str(work.parent / "another store"), "--compiler", "inductor")
    ending = f"tiny.yaml --home '{work.parent / 'another store'}' --compiler inductor"
    assert f"next: cachekit warm {ending}\n" in command("plan", *words).out
    assert the_error(command("train", *words, "--require-warm", code=3))[3] == f"cachekit warm {ending}"
    assert f"next: cachekit train --home '{work.parent / 'another store'}'\n" in command("warm", *words, "-q").out
    assert "next: cachekit train\n" in command("warm", "tiny.yaml", "-q").out


def test_ls_of_an_empty_store(command, work):
    assert steady(command("ls").out, work.parent / "store") == (
        "the store at <store> has no records; next: cachekit warm RECIPE\n"
    )


def test_ls(command, home):
    publish_record(home, small_record())
    publish_record(home, small_record("another-recipe", "2026-03-02T01:02:03+00:00", task="text-classification"))
    golden("ls", command("ls").out)


def test_show(command, home):
    record = publish_record(home, small_record())
    golden("show", command("show", record.key[:8]).out)
    assert command("show", record.key).out == command("show", record.key[:4].upper()).out


def test_show_of_a_damaged_record(command, home):
    record = publish_record(home, small_record())
    blob = home / "v1" / "blobs" / record.files[0].sha256[:2] / record.files[0].sha256
    blob.chmod(0o644)
    blob.write_bytes(b"x" * record.size)
    answer = command("show", record.key)
    assert "DAMAGED" in answer.out
    assert answer.err.startswith(f"warning: {blob} is damaged")


def test_config(command, work, monkeypatch):
    (work / "cachekit.toml").write_text("keep_logs = 7\n")
    monkeypatch.setenv("CACHEKIT_WAIT_SECONDS", "60")
    monkeypatch.setenv("CACHEKIT_LIVE_DIR", "/mnt/nvme/live")
    golden("config", steady(command("config", "--home", "/srv/cachekit").out, work))


@pytest.fixture
def small_zoo(tmp_path, monkeypatch):
    """A zoo of one recipe, one model and two instances, so that a new one changes no golden file."""
    root = tmp_path / "zoo"
    (root / "recipes").mkdir(parents=True)
    (root / "registry" / "models").mkdir(parents=True)
    (root / "recipes" / "tiny.yaml").write_text(RECIPE + "description: Two classes.\n")
    (root / "registry" / "models" / "org--tiny.yaml").write_text(
        "{id: org/tiny, licence: Apache-2.0, parameters: 22713216, tasks: [masked-lm], aliases: [tiny],"
        " source: here, config: {model_type: bert}}"
    )
    (root / "registry" / "instances.yaml").write_text(
        "trn1.32xlarge: {accelerator: trainium1, chips: 16, cores: 32, device_memory_gib: 512, source: here,"
        " price: {per_hour: 21.5, currency: USD, region: us-east-1, terms: on-demand, source: here,"
        " date: '2026-06-25'}}\n"
        "trn2.3xlarge: {accelerator: trainium2, chips: 1, cores: 4, device_memory_gib: 96, source: here}\n"
    )
    (root / "registry" / "toolchains.yaml").write_text(
        "neuron-2.31: {compiler: neuron, released: 2026-07, targets: [trn1, trn2], source: here,"
        " packages: {neuronx-cc: 2.26.6360.0+6f180f47, torch-neuronx: 2.9.0.2.15.32035}}\n"
    )
    monkeypatch.setattr(zoo, "_root", lambda: root)
    return root


def test_no_row_of_the_zoo_is_wider_than_a_terminal(command):
    for topic in ("recipes", "models", "instances", "toolchains"):
        assert max(map(len, command("zoo", topic).out.splitlines())) <= 80, topic


@pytest.mark.parametrize("topic", ["recipes", "models", "instances", "toolchains"])
def test_zoo(command, small_zoo, topic):
    golden(f"zoo-{topic}", command("zoo", topic).out)


def test_zoo_lists_recipes_by_default(command):
    assert command("zoo").out == command("zoo", "ls").out == command("zoo", "recipes").out
    assert command("zoo", "models").out == command("zoo", "ls", "models").out


def test_warm_and_train(command, work, home, machine, worker):
    warmed = command("warm", "tiny.yaml")
    golden("warm-compiles", steady(warmed.out))
    golden("warm-compiles-progress", steady(warmed.err, home))
    golden("warm-hit", steady(command("warm", "tiny.yaml").out))
    trained = command("train")
    golden("train", steady(trained.out, work))
    golden("train-progress", steady(trained.err, work))
    golden("warm-again", steady(command("warm", "tiny.yaml", "--recache").out))


@pytest.mark.parametrize("size", [8704, 9216, 9728])
def test_a_warm_of_any_length_is_found_again(command, machine, worker, monkeypatch, size):
    """Around the length at which an archive's own ending needs one more record."""
    monkeypatch.setenv("FAKE_SIZE", str(size))
    command("warm", "tiny.yaml")
    trained = command("train", "--require-warm", "--format", "json").json
    assert (trained["status"], trained["compiled"], trained["built"]) == ("hit", 0, 0)


def test_a_train_that_compiles_says_so(command, work, machine, worker, monkeypatch):
    command("warm", "tiny.yaml")
    monkeypatch.setenv("FAKE_WORKER", "surprised")
    answer = command("train", "tiny.yaml")
    golden("train-surprised", steady(answer.out, work))
    assert "warning: a graph compiled in: first training step\n" in answer.err
    assert "they are added to the record" in answer.err


def test_a_warm_leaves_nothing_in_the_working_directory(command, work, machine, worker):
    before = sorted(work.rglob("*"))
    command("warm", "tiny.yaml")
    command("plan", "tiny.yaml")
    assert sorted(work.rglob("*")) == before


def test_a_result_that_cannot_be_written_fails_no_training(command, work, machine, worker):
    (work / "out" / "cachekit-result.json").mkdir(parents=True)
    answer = command("train", "tiny.yaml", "-o", "out", "--format", "json", "-q")
    assert answer.json["steps"] > 0
    assert answer.err == f"warning: {work / 'out' / 'cachekit-result.json'} could not be written: Is a directory\n"


def test_a_train_that_does_not_start_leaves_nothing_behind(command, work, machine):
    before = sorted(work.rglob("*"))
    command("train", "tiny.yaml", "--require-warm", code=3)
    assert sorted(work.rglob("*")) == before


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
    ("ls",),
    ("zoo",),
    ("zoo", "models"),
    ("zoo", "instances"),
    ("zoo", "ls", "--task", "token-classification"),
    ("zoo", "show", "bert"),
    ("zoo", "show", "roberta-base"),
    ("zoo", "show", "trn1.2xlarge"),
    ("zoo", "show", "neuron-2.31"),
    ("zoo", "check", "tiny.yaml"),
    ("zoo", "schema"),
    ("config",),
    ("env",),
]


@pytest.mark.feature("U2")
@pytest.mark.parametrize("arguments", DATA_COMMANDS, ids=" ".join)
def test_json_parses_and_nothing_else_is_said(command, filled, arguments):
    answer = command(*arguments, "--format", "json")
    assert answer.json
    assert answer.err == ""


@pytest.mark.feature("U2")
@pytest.mark.parametrize("arguments", DATA_COMMANDS, ids=" ".join)
def test_people_get_no_json_and_stderr_stays_empty(command, filled, arguments):
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
    assert missed["nearest"]["changes"] == [{"name": "training.max_seq_length", "old": 8, "new": 16}]
    assert missed["compile_seconds"] == 29.7
    assert {row["key"] for row in command("ls", "--format", "json").json} == {filled.key, small_record().key}
    shown = command("show", filled.key[:10], "--format", "json").json
    assert shown["key"] == shown["key_of_ingredients"] == filled.key
    assert shown["whole"] is True
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
    assert quiet("show", filled.key[:8]) == f"{filled.key}\n"
    assert sorted(quiet("ls").split()) == sorted([filled.key, small_record().key])
    assert quiet("zoo").split() == list(zoo.recipes())
    assert f"home={work.parent / 'store'}\n" in quiet("config")
    key = quiet("warm", "tiny.yaml", "--set", "training.max_seq_length=16").strip()
    assert quiet("show", key) == f"{key}\n"
    assert quiet("train", "-o", "model") == f"{work / 'model'}\n"


def test_quiet_of_an_empty_store_is_nothing(command):
    assert command("ls", "--format", "quiet").out == ""


def test_q_silences_progress_and_keeps_the_answer(command, machine, worker):
    answer = command("warm", "tiny.yaml", "-q")
    assert answer.err == ""
    assert answer.out.startswith("tiny: warm")


@pytest.mark.feature("U2")
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in {"help", "hub"}])
def test_a_format_that_does_not_exist(command, verb):
    subject = {
        "plan": ["tiny.yaml"],
        "warm": ["tiny.yaml"],
        "train": ["tiny.yaml"],
        "show": ["abcd"],
        "import": ["d"],
        "export": ["d"],
        "neff": ["x"],
    }.get(verb, [])
    answer = command(verb, *subject, "--format", "nonsense", code=2)
    code, message, _, hint = the_error(answer)
    assert (code, answer.out) == ("usage", "")
    assert "nonsense" in message
    assert hint == "one of human, json, quiet"


@pytest.mark.feature("U2")
def test_an_error_in_json(command):
    answer = command("plan", "missing.yaml", "--format", "json", code=2)
    code, message, cause, hint = the_error(answer)
    assert answer.json == {
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
@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: cls.__name__)
def test_each_error_has_its_exit_code(command, machine, monkeypatch, cls):
    def fail(*arguments):
        raise cls("what happened", cause="why", hint="what to do")

    monkeypatch.setattr("cachekit.actions.plan.plan", fail)
    answer = command("plan", "tiny.yaml", code=cls.exit_code)
    assert answer.err == f"error[{cls.code}]: what happened\n  cause: why\n  hint: what to do\n"
    assert answer.out == ""


@pytest.mark.feature("U2")
def test_require_warm_exits_3(command, home, machine, worker):
    for verb in ("plan", "warm", "train"):
        answer = command(verb, "tiny.yaml", "--require-warm", code=3)
        assert the_error(answer)[0] == "not-warm"
    publish(home)
    for verb in ("plan", "warm"):
        command(verb, "tiny.yaml", "--require-warm")


def test_require_warm_says_what_differs(command, home, machine):
    publish(home, "training.max_seq_length=16")
    answer = command("plan", "tiny.yaml", "--require-warm", code=3)
    assert the_error(answer)[2] == "the nearest record differs in training.max_seq_length"


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


@pytest.mark.feature("U2")
@pytest.mark.parametrize("wait", ["0", "0.3"])
def test_waiting_too_long_exits_75(command, home, machine, wait):
    key = command("plan", "tiny.yaml", "--format", "json").json["key"]
    locks = home / "v1" / "locks"
    locks.mkdir(parents=True)
    note = {"pid": 4711, "host": "trn-7", "user": "ann", "since": time.time() - 100, "recipe": "tiny"}
    (locks / f"{key}.json").write_text(json.dumps(note))
    with (locks / f"{key}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = command("warm", "tiny.yaml", "--wait", wait, "-q", code=75)
    code, _, cause, hint = the_error(answer)
    assert code == "waited-too-long"
    assert cause.startswith("process 4711 of ann@trn-7, for 10")
    assert "--wait" in hint


@pytest.mark.parametrize("known", [True, False])
def test_a_wait_is_told_once(command, home, machine, known):
    key = command("plan", "tiny.yaml", "--format", "json").json["key"]
    locks = home / "v1" / "locks"
    locks.mkdir(parents=True)
    if known:
        note = {"pid": 4711, "host": "trn-7", "user": "ann", "since": time.time() - 100, "recipe": "tiny"}
        (locks / f"{key}.json").write_text(json.dumps(note))
    with (locks / f"{key}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = command("warm", "tiny.yaml", "--wait", "0.5", code=75)
    told = answer.err.splitlines()
    who = "process 4711 of ann@trn-7, for 10" if known else "an unknown process"
    assert told[0].startswith(f"waiting: the same key is being compiled by {who}")
    assert told[1].startswith("error[waited-too-long]: "), "not the same thing twice in half a second"


@pytest.mark.feature("U2")
def test_ctrl_c_in_this_process_exits_130(command, machine, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("cachekit.actions.plan.plan", interrupted)
    answer = command("plan", "tiny.yaml", code=130)
    assert answer.err.startswith("error[interrupted]: stopped\n")
    assert len(answer.err.splitlines()) <= 3
    assert "Traceback" not in answer.err


# Bad input: (what the user typed, exit code, error code, in the message, in the cause, in the hint)

NO_LABELS = ("--set", "data.labels=null")
FILE = "data.path=null", "--set", "data.train_file="
BAD_INPUT = {
    "no such recipe file": ("plan missing.yaml", 2, "bad-recipe", "missing.yaml does not exist", "", "zoo"),
    "no such recipe file, train": ("train missing.yaml", 2, "bad-recipe", "missing.yaml does not exist", "", "zoo"),
    "no such recipe": ("plan bret", 2, "unknown-name", "'bret'", "", "did you mean bert?"),
    "no recipe like it": ("warm zzz", 2, "unknown-name", "'zzz'", "bert", "cachekit zoo"),
    "empty name": ("plan ''", 2, "unknown-name", "''", "", "cachekit zoo"),
    "nobody's home": ("plan ~nobody-here/x.yaml", 2, "unknown-name", "~nobody-here", "home", ""),
    "a folder": ("plan data", 2, "bad-recipe", "data is a folder", "", "YAML file"),
    "a folder, with a dot": ("plan ./data", 2, "bad-recipe", "data is a folder", "", "YAML file"),
    "a folder's name like a recipe's": ("plan folder.yaml", 2, "bad-recipe", "folder.yaml is a folder", "", "YAML"),
    "bad YAML": ("plan broken.yaml", 2, "bad-recipe", "broken.yaml, line 3: not valid YAML", "expected", ""),
    "tabs": ("plan tabs.yaml", 2, "bad-recipe", "tabs.yaml, line 2: not valid YAML", "tab", "spaces"),
    "empty recipe": ("plan empty.yaml", 2, "bad-recipe", "empty.yaml", "empty", ""),
    "a recipe that is not UTF-8": ("plan latin.yaml", 2, "bad-recipe", "latin.yaml, line 2: not UTF-8", "", "UTF-8"),
    "unknown field": (
        "plan unknown.yaml", 2, "bad-recipe", "unknown.yaml, line 4: unknown field training.epochz",
        "fields of training are", "did you mean training.num_train_epochs?",
    ),
    "wrong type": ("plan typed.yaml", 2, "bad-recipe", "line 4: training.max_steps is 'many'", "expected `int", ""),
    "unknown section by --set": (
        "plan tiny.yaml --set trainig.max_steps=2", 2, "bad-recipe", "--set trainig", "", "training",
    ),
    "unknown field by --set": (
        "plan tiny.yaml --set training.max_step=2", 2, "bad-recipe", "--set training.max_step",
        "", "training.max_steps",
    ),
    "impossible value by --set": (
        "plan tiny.yaml --set training.optim=adam", 2, "bad-recipe", "--set training.optim", "", "adamw_torch",
    ),
    "--set without a value": ("plan tiny.yaml --set training", 2, "usage", "--set training", "", "--set"),
    "--set of nothing": ("plan tiny.yaml --set ''", 2, "usage", "--set", "", "--set"),
    "--set that is no YAML": (
        "plan tiny.yaml --set training.max_steps=[1", 2, "bad-recipe", "--set training.max_steps",
        "expected", "",
    ),
    "--set into a value": ("plan tiny.yaml --set name.x=1", 2, "usage", "--set name.x=1", "", ""),
    "unknown model": (
        "plan tiny.yaml --set model.id=nobody/no-such-model", 2, "unknown-name", "nobody/no-such-model",
        "offline", "model.id",
    ),
    "misspelt model": (
        "plan tiny.yaml --set model.id=bert-base-uncasd", 2, "unknown-name", "bert-base-uncasd",
        "", "did you mean bert-base-uncased?",
    ),
    "no such model folder": (
        "plan tiny.yaml --set model.path=nowhere", 2, "bad-recipe", "work/nowhere is not a folder", "", "config.json",
    ),
    "a model folder without a model": ("plan tiny.yaml --set model.path=data", 2, "bad-recipe", "config.json", "", ""),
    "no such model package": (
        "plan tiny.yaml --set model.id=null --set model.package=no_such_package/model", 2, "bad-recipe",
        "package no_such_package is not installed", "", "pip install",
    ),
    "no such folder in the package": (
        "plan tiny.yaml --set model.id=null --set model.package=json/model", 2, "bad-recipe", "json", "", "",
    ),
    "no model at all": ("plan tiny.yaml --set model.id=null", 2, "bad-recipe", "model names nothing", "", "model.id"),
    "misspelt config": (
        "plan tiny.yaml --set model.config.num_hiden_layers=1", 2, "bad-recipe", "num_hiden_layers",
        "", "did you mean model.config.num_hidden_layers?",
    ),
    "no such label column": (
        "plan tiny.yaml --set data.labels=null --set data.label_column=lable", 2, "bad-data",
        "train.csv: no column 'lable'", "columns are text, label", "'label' perhaps",
    ),
    "no such text column": (
        "warm tiny.yaml --set data.text_column=txt", 2, "bad-data", "no column 'txt'", "text, label", "'text' perhaps",
    ),
    "no such text column, train": (
        "train tiny.yaml --set data.text_column=txt", 2, "bad-data", "no column 'txt'", "text, label", "'text' perhaps",
    ),
    "a row without a label": (
        "plan tiny.yaml --set data.labels=null --set data.path=null --set data.train_file=unlabelled.csv", 2,
        "bad-data", "unlabelled.csv, row 2 has no label", "", "data.label_column",
    ),
    "no rows": (
        "plan tiny.yaml --set data.labels=null --set data.path=null --set data.train_file=header.csv", 2,
        "bad-data", "header.csv has no rows", "", "data.train_file",
    ),
    "no rows, labels known": (
        "warm tiny.yaml --set data.path=null --set data.train_file=header.csv", 2,
        "bad-data", "header.csv has no rows", "", "data.train_file",
    ),
    "an empty file": (
        "warm tiny.yaml --set data.path=null --set data.train_file=empty.csv", 2,
        "bad-data", "empty.csv is empty", "", "columns",
    ),
    "one class": (
        "plan tiny.yaml --set data.labels=null --set data.path=null --set data.train_file=one.csv", 2,
        "bad-data", "one.csv has one class only: 'calm'", "at least two", "data.label_column",
    ),
    "text that is not UTF-8": (
        "warm tiny.yaml --set data.path=null --set data.train_file=latin.csv", 2,
        "bad-data", "latin.csv, line 2: not utf-8", "0xe9", "data.encoding",
    ),
    "no such data folder": (
        "warm tiny.yaml --set data.path=nowhere", 2, "bad-data", "nowhere is not a folder", "", "data.train_file",
    ),
    "no such data file": (
        "warm tiny.yaml --set data.path=null --set data.train_file=none.csv", 2,
        "bad-data", "none.csv does not exist", "", "data.train_file",
    ),
    "data of no known kind": (
        "warm tiny.yaml --set data.path=null --set data.train_file=tiny.yaml", 2,
        "bad-data", "tiny.yaml", ".csv", "",
    ),
    "no data": ("warm tiny.yaml --set data.path=null", 2, "bad-data", "names no data", "", "data.train_file"),
    "unknown compiler": ("plan tiny.yaml --compiler nvcc", 2, "unknown-name", "'nvcc'", "", "inductor"),
    "neuron": ("plan tiny.yaml --compiler neuron", 1, "compiler-unavailable", "Neuron", "", "--compiler inductor"),
    "neuron by the recipe": (
        "warm tiny.yaml --set compiler.name=neuron", 1, "compiler-unavailable", "Neuron", "", "--compiler inductor",
    ),
    "two nodes": ("plan tiny.yaml --set parallel.nodes=2", 2, "bad-recipe", "parallel.nodes", "", "parallel.nodes=1"),
    "a wait that is no number": ("warm tiny.yaml --wait soon", 2, "usage", "--wait", "", ""),
    "a wait below zero": ("warm tiny.yaml --wait -1", 2, "usage", "--wait", "0 or more", ""),
    "a wait without end": ("train tiny.yaml --wait nan", 2, "usage", "--wait", "0 or more", ""),
    "warm and not warm": (
        "warm tiny.yaml --require-warm --recache", 2, "usage", "--require-warm and --recache", "compile", "leave one",
    ),
    "train warm and not warm": (
        "train tiny.yaml --require-warm --recache", 2, "usage", "--require-warm and --recache", "compile", "leave one",
    ),
    "no variable's name": (
        "plan tiny.yaml --set environment={'A=B':1}", 2, "bad-recipe", "'A=B' is no variable's name", "", "letters",
    ),
    "no variable's value": (
        'plan tiny.yaml --set environment.FOO="a\\u0000b"', 2, "bad-recipe", "environment.FOO is 'a\\x00b'",
        "", "value",
    ),
    "a home that is too long": (
        f"plan tiny.yaml --home {'x' * 5000}", 1, "store", "is no store", "File name too long", "--home",
    ),
    "data from a pipe": (
        "plan tiny.yaml --set data.path=null --set data.train_file=pipe.csv", 2, "bad-data",
        "pipe.csv cannot be read", "no ordinary file", "to a file",
    ),
    "no such key": ("show 0123456789", 2, "unknown-name", "no records begin with '0123456789'", "", "cachekit ls"),
    "a short key": ("show abc", 2, "unknown-name", "'abc' is too short", "", "4 digits"),
    "nothing warmed here": ("train", 2, "usage", "no recipe was named", "", "cachekit warm RECIPE"),
    "output in a file's place": (
        "train tiny.yaml -o tiny.yaml", 2, "usage", "tiny.yaml cannot be written", "", "--output-dir",
    ),
    "output below a file": (
        "train tiny.yaml -o tiny.yaml/model", 2, "usage", "tiny.yaml/model cannot be written", "", "--output-dir",
    ),
    "no such topic": ("zoo ls penguins", 2, "usage", "penguins", "", "recipes, models, instances, toolchains"),
    "nothing of the zoo": ("zoo penguins", 2, "usage", "penguins", "", "cachekit zoo --help"),
    "no entry of that name": ("zoo show brt", 2, "unknown-name", "'brt'", "", "did you mean bert?"),
    "no such task": ("zoo ls --task question", 2, "usage", "'question'", "", "question-answering"),
    "a filter that does not fit": ("zoo ls models --max-price 3", 2, "usage", "--max-price", "", "recipes, instances"),
    "a price that is none": ("zoo ls --price trn1.2xlarge=cheap", 2, "usage", "cheap", "", "trn1.2xlarge=0.40"),
    "a price of nothing": ("zoo ls --price trn9=1", 2, "unknown-name", "'trn9'", "", "instances"),
    "options before a command": ("zoo -f json ls", 2, "usage", "after the command", "", "cachekit zoo ls --format"),
    "no such help topic": ("help penguins", 2, "usage", "penguins", "", "exit-codes"),
    "no such verb": ("trian tiny.yaml", 2, "usage", "trian", "", "cachekit --help"),
    "no such option": ("plan tiny.yaml --bogus", 2, "usage", "--bogus", "", "cachekit plan --help"),
    "too many recipes": ("plan tiny.yaml more.yaml", 2, "usage", "more.yaml", "", "cachekit plan --help"),
    "no recipe": ("plan", 2, "usage", "RECIPE", "", "cachekit plan --help"),
}  # fmt: skip


@pytest.fixture
def bad_files(work):
    (work / "folder.yaml").mkdir()
    os.mkfifo(work / "pipe.csv")
    (work / "broken.yaml").write_text("name: x\nmodel: [a\nb: c\n")
    (work / "tabs.yaml").write_text("name: x\n\tmodel: y\n")
    (work / "empty.yaml").write_text("")
    (work / "latin.yaml").write_bytes("name: x\ndescription: caf\u00e9\n".encode("latin-1"))
    (work / "unknown.yaml").write_text("name: x\nmodel: {id: b}\ntraining:\n  epochz: 3\n")
    (work / "typed.yaml").write_text("name: x\nmodel: {id: b}\ntraining:\n  max_steps: many\n")
    (work / "header.csv").write_text("text,label\n")
    (work / "empty.csv").write_text("")
    (work / "one.csv").write_text("text,label\na,calm\nb,calm\n")
    (work / "unlabelled.csv").write_text("text,label\na,calm\nb,\nc,loud\n")
    (work / "latin.csv").write_bytes("text,label\ncaf\u00e9,calm\nb,loud\n".encode("latin-1"))
    return work


@pytest.mark.feature("U2")
@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_answered_in_three_lines(command, bad_files, machine, worker, case):
    typed, exit_code, code, message, cause, hint = BAD_INPUT[case]
    answer = command(*(word.strip("'") for word in typed.split()), code=exit_code)
    found = the_error(answer)
    assert found[0] == code
    assert message in found[1]
    assert cause in found[2]
    assert hint in found[3]
    assert answer.out == ""


@pytest.mark.feature("U2")
@pytest.mark.parametrize("words", ["plan tiny.yaml", "train tiny.yaml", "config", "ls"])
def test_a_working_directory_that_was_removed(command, work, machine, monkeypatch, words):
    gone = work.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    answer = command(*words.replace("tiny.yaml", str(work / "tiny.yaml")).split(), code=2)
    assert the_error(answer)[:2] == ("usage", "the working directory is not there any more")


def test_a_cause_is_not_cut_in_the_middle_of_a_word(command, machine):
    answer = command("plan", "tiny.yaml", "--set", "model.id=nobody/no-such-model", code=2)
    cause = the_error(answer)[2]
    assert cause.endswith((".", "…", "..."))


def test_a_key_that_two_records_begin_with(command, home):
    seen: dict[str, dict[str, int]] = {}
    for number in range(5000):
        hard = {"n": number}
        first = seen.setdefault(small_record(**hard).key[:4], hard)
        if first is not hard:
            break
    keys = [publish_record(home, small_record(**chosen)).key for chosen in (first, hard)]
    code, message, cause, hint = the_error(command("show", keys[0][:4], code=2))
    assert (code, message) == ("unknown-name", f"2 records begin with {keys[0][:4]!r}")
    assert all(key[:16] in cause for key in keys)
    assert hint == "give more digits"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wait = 1\n", ("unknown setting 'wait'", "wait_seconds", "")),
        ("hom = 'x'\n", ("unknown setting 'hom'", "home", "did you mean 'home'?")),
        ("home = \n", ("not valid TOML", "line 1", "mend")),
        ("wait_seconds = 'soon'\n", ("wait_seconds", "cachekit.toml", "")),
        ("keep_logs = -1\n", ("keep_logs", "cachekit.toml", "")),
    ],
    ids=["unknown", "misspelt", "no TOML", "no number", "negative"],
)
@pytest.mark.parametrize("verb", [("config",), ("plan", "tiny.yaml"), ("ls",)], ids=" ".join)
def test_a_bad_settings_file(command, work, verb, text, expected):
    (work / "cachekit.toml").write_text(text)
    found = the_error(command(*verb, code=2))
    assert found[0] == "usage"
    for part, said in zip(expected, found[1:], strict=True):
        assert part in said


def test_a_bad_variable(command, machine, monkeypatch):
    monkeypatch.setenv("CACHEKIT_WAIT_SECONDS", "abc")
    code, message, cause, hint = the_error(command("plan", "tiny.yaml", code=2))
    assert code == "usage"
    assert "abc" in message
    assert "CACHEKIT_WAIT_SECONDS" in cause
    assert "CACHEKIT_WAIT_SECONDS" in hint


@pytest.mark.parametrize("verb", [("plan", "tiny.yaml"), ("warm", "tiny.yaml"), ("train", "tiny.yaml"), ("ls",)])
def test_a_home_that_is_a_file(command, machine, monkeypatch, verb):
    """It cannot be a store. Nothing of it is damaged, and it is not an empty store either."""
    monkeypatch.setenv("CACHEKIT_HOME", str(command.work / "tiny.yaml"))
    code, message, _, hint = the_error(command(*verb, code=1))
    assert code == "store"
    assert str(command.work / "tiny.yaml") in message
    assert "CACHEKIT_HOME" in hint


def test_a_home_that_cannot_be_made(command, machine, monkeypatch):
    monkeypatch.setenv("CACHEKIT_HOME", "/proc/cachekit")
    code, message, _, hint = the_error(command("warm", "tiny.yaml", code=1))
    assert code == "store"
    assert "/proc/cachekit" in message
    assert "CACHEKIT_HOME" in hint


def obey_permissions() -> None:
    """Let root be stopped by a folder's mode like anybody else: drop CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    pr_capbset_drop = 24  # linux/prctl.h
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(pr_capbset_drop, capability, 0, 0, 0)


def test_a_read_only_store_serves_its_hits_and_refuses_misses(command, home, work, machine, worker):
    command("warm", "tiny.yaml")
    hidden = (home / "v1" / "locks", home / "v1" / "logs")
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    assert all(path.is_dir() for path in hidden)

    def run(*arguments: str) -> Answer:
        driver = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); import cli_session; "
            "from cachekit.compilers.inductor.adapter import Inductor; "
            "Inductor.fingerprint = lambda *_: cli_session.FINGERPRINT; "
        )
        found = subprocess.run(
            [sys.executable, "-c", driver + DRIVER, str(Path(__file__).parent), str(worker), *arguments],
            env=environment(TMPDIR=str(work.parent)),
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=obey_permissions,
            timeout=DEADLINE,
        )
        return Answer(found.returncode, found.stdout, found.stderr)

    for folder in folders:
        folder.chmod(0o555)
    try:
        probe = subprocess.run(["touch", str(home / "probe")], preexec_fn=obey_permissions, check=False)
        if probe.returncode == 0:
            pytest.skip("this user may write to read-only folders")
        planned = run("plan", "tiny.yaml", "--require-warm")
        assert (planned.code, planned.err) == (0, "")
        listed = run("ls", "--format", "quiet")
        assert (listed.code, listed.err, len(listed.out)) == (0, "", 65)
        trained = run("train", "tiny.yaml", "--require-warm", "--format", "json", "-o", "model")
        assert trained.code == 0, trained.err
        assert (trained.json["status"], trained.json["compiled"]) == ("hit", 0)
        refused = run("warm", "tiny.yaml", "--set", "training.max_seq_length=16")
        assert refused.code == 1
        told = refused.err.splitlines()
        assert told[-3] == f"error[store]: the store at {home} cannot be written"
        assert told[-2] == "  cause: Permission denied"
        assert told[-1] == "  hint: set CACHEKIT_HOME to a folder that you may write to"
        assert all(line.startswith("warning: ") for line in told[:-3])
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_no_cxx_compiler(work, home, tmp_path):
    (tmp_path / "bin").mkdir()
    for verb in (["plan", "tiny.yaml"], ["warm", "tiny.yaml"], ["train", "tiny.yaml"]):
        answer = process(*verb, code=1, PATH=str(tmp_path / "bin"), CXX=None)
        code, message, _, hint = the_error(answer)
        assert code == "compiler-unavailable"
        assert "no C++ compiler" in message
        assert "apt-get install g++" in hint
    shown = process("env", "--format", "json", code=1, PATH=str(tmp_path / "bin"), CXX=None)
    assert shown.json["available"] is False
    assert "no C++ compiler" in shown.json["problem"]


def core_only(site: Path) -> None:
    """Link into one folder what `pip install cachekit-neuron` brings without extras: it, and what it requires."""
    site.mkdir()
    (site / "cachekit").symlink_to(Path(cachekit.__file__).parent)
    pending, seen = ["cachekit-neuron"], set()
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other Pythons or systems
        if name in seen:
            continue
        seen.add(name)
        required = [text for text in found.requires or [] if "extra ==" not in text]
        pending += [re.match(r"[A-Za-z0-9._-]+", text)[0] for text in required]
        for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists() and not top.endswith(".pth"):
                (site / top).symlink_to(found.locate_file(top))


@pytest.mark.feature("P2")
def test_without_torch(work, home, tmp_path):
    """A plain install: what needs no compiler works, and the rest says which extra to install."""
    site = tmp_path / "site"
    core_only(site)
    assert not any((site / heavy).exists() for heavy in ("torch", "transformers", "numpy", "datasets"))

    def run(*arguments: str, code: int = 0) -> Answer:
        start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from cachekit.cli import main; main()"
        return process(str(site), *arguments, code=code, program=("-I", "-S", "-c", start))

    for verb in ("plan", "warm", "train"):
        code, message, _, hint = the_error(run(verb, "tiny.yaml", code=1))
        assert (code, message) == ("compiler-unavailable", "torch is not installed")
        assert 'pip install "cachekit-neuron[train]"' in hint
    assert "Commands:" in run("--help").out
    assert "bert" in run("zoo", "--format", "quiet").out.split()
    assert str(home) in run("config").out
    assert "has no records" in run("ls").out
    shown = run("env", code=1)
    assert shown.err == ""
    assert "torch is not installed" in shown.out
    assert 'pip install "cachekit-neuron[train]"' in shown.out


# Tracebacks


def test_a_traceback_only_for_vv(command):
    assert "Traceback" not in command("plan", "missing.yaml", "-v", code=2).err
    answer = command("plan", "missing.yaml", "-vv", code=2)
    assert answer.err.startswith("error[bad-recipe]: missing.yaml does not exist\n")
    assert "Traceback (most recent call last)" in answer.err
    assert "Traceback" not in command("plan", "missing.yaml", code=2).err, "for that one command"


def unforeseen(*arguments):
    raise RuntimeError("the moon is full\nand more")


def test_an_unforeseen_error_is_called_a_bug(command, machine, monkeypatch):
    monkeypatch.setattr("cachekit.actions.plan.plan", unforeseen)
    answer = command("plan", "tiny.yaml", code=1)
    code, message, cause, hint = the_error(answer)
    assert (code, message, cause) == ("error", "unexpected RuntimeError", "the moon is full")
    assert "bug in cachekit" in hint
    assert "-vv" in hint


def test_an_unforeseen_error_in_json(command, machine, monkeypatch):
    monkeypatch.setattr("cachekit.actions.plan.plan", unforeseen)
    answer = command("plan", "tiny.yaml", "--format", "json", code=1)
    assert answer.json["error"]["message"] == "unexpected RuntimeError"


def test_an_unforeseen_error_has_a_traceback_with_vv(work, home):
    start = (
        "import sys, cachekit.actions.prepare as at\n"
        "def fail(*arguments): raise RuntimeError('the moon is full')\n"
        "at.prepare = fail\n"
        "from cachekit.cli import main\n"
        "main()"
    )
    answer = process("plan", "tiny.yaml", "-vv", code=1, program=("-c", start))
    assert "Traceback (most recent call last)" in answer.err
    assert "RuntimeError: the moon is full" in answer.err


# The terminal


class Terminal:
    """A command whose stderr is a terminal; stdout is a pipe."""

    def __init__(self, *arguments: str, **changes: str | None) -> None:
        self._screen, side = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, *arguments], env=environment(**changes), stdout=subprocess.PIPE, stderr=side, text=True
        )
        os.close(side)
        self.text = ""

    def _more(self) -> bool:
        if not select.select([self._screen], [], [], 0.05)[0]:
            return self.process.poll() is None
        try:
            block = os.read(self._screen, 65536)
        except OSError:  # the other side was closed
            return False
        self.text += block.decode(errors="replace")
        return bool(block)

    def until(self, text: str) -> None:
        wait_for(lambda: text in self.text or not self._more(), f"{text!r} on the screen")
        assert text in self.text

    def end(self) -> str:
        """Wait for the end; returns stdout."""
        wait_for(lambda: not self._more(), "the end")
        os.close(self._screen)
        return self.process.communicate(timeout=DEADLINE)[0]


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_an_error_is_red_on_a_terminal(work, home):
    terminal = Terminal("-m", "cachekit", "plan", "nope", NO_COLOR=None, TERM="xterm")
    assert terminal.end() == ""
    assert terminal.text.startswith("\x1b[31merror[unknown-name]:\x1b[0m ")


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1", "TERM": "xterm"}, {"NO_COLOR": None, "TERM": "dumb"}])
def test_no_colour_where_none_is_wanted(work, home, changes):
    terminal = Terminal("-m", "cachekit", "plan", "nope", **changes)
    terminal.end()
    assert terminal.text.startswith("error[unknown-name]: ")
    assert "\x1b" not in terminal.text


def test_no_escape_codes_without_a_terminal(work, home, worker, tmp_path):
    driver = ("-c", DRIVER, str(worker))
    for arguments, code in ((["warm", "tiny.yaml"], 0), (["train"], 0), (["plan", "nope"], 2)):
        answer = process(*arguments, code=code, program=driver, NO_COLOR=None, FORCE_COLOR=None, TERM="xterm")
        assert "\x1b" not in answer.out + answer.err


@pytest.mark.parametrize("no_color", ["1", None], ids=["plain", "colour"])
def test_one_live_line_on_a_terminal(work, home, worker, tmp_path, no_color):
    changes = {"FAKE_WORKER": "waits", "NO_COLOR": no_color, "TERM": "xterm", "COLUMNS": "80"}
    terminal = Terminal("-c", DRIVER, str(worker), "warm", "tiny.yaml", **changes)
    terminal.until("graphs: 3 compiled")
    (tmp_path / "go on").touch()
    answer = terminal.end()
    assert terminal.process.returncode == 0
    assert answer.startswith("tiny: warm")
    assert "\x1b" not in answer
    assert "compiling: a trial run of a few steps\r\n" in terminal.text, "a line that stays"
    assert terminal.text.count("\x1b[?25l") == terminal.text.count("\x1b[?25h") == 1, "the cursor comes back"
    # The live line is rewritten in place, and wiped at the end: the screen keeps no half-finished line.
    assert terminal.text.rindex("\x1b[2K") > terminal.text.rindex("graphs: ")
    assert bool(COLOUR.search(terminal.text)) == (no_color is None)


# Odd places to print to


@pytest.mark.parametrize("arguments", [["ls"], ["zoo", "models"], ["plan", "bert", "--format", "json"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_failure(work, home, arguments):
    """`cachekit ls | head -0`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "cachekit", *arguments],
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
    finally:
        os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8:strict"])
def test_output_in_another_encoding(work, home, encoding):
    """A name in the user's own script, and a name that is no text at all."""
    (work / "caf\u00e9.yaml").write_text(RECIPE)
    process("plan", "caf\u00e9.yaml", PYTHONIOENCODING=encoding)
    process("plan", "caf\u00e9.yaml", "--format", "json", PYTHONIOENCODING=encoding)
    for name in ("na\u00efve \u2192.yaml", os.fsdecode(b"\xff.yaml")):
        the_error(process("plan", name, code=2, PYTHONIOENCODING=encoding))
        answer = process("plan", name, "--format", "json", code=2, PYTHONIOENCODING=encoding)
        assert answer.json["error"]["code"] == "bad-recipe"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_difference_in_another_encoding(work, home, encoding):
    publish(home, "training.max_seq_length=16")
    answer = process("plan", "tiny.yaml", PYTHONIOENCODING=encoding)
    assert re.search(r"training\.max_seq_length: 16 \S+ 8\n", answer.out)


# Interrupted


def start(worker: Path, mode: str, *arguments: str) -> subprocess.Popen:
    """A run whose worker hangs, with a child of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(worker), *arguments],
        env=environment(FAKE_WORKER=mode),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background of a shell has SIGINT ignored, and it is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def started(tmp_path: Path) -> list[int]:
    """The worker and its child, once they run."""
    wait_for((tmp_path / "pids").exists, "the worker's start")
    return [int(word) for word in (tmp_path / "pids").read_text().split()]


@pytest.mark.parametrize("verb", ["warm", "train"])
@pytest.mark.parametrize("whole_group", [False, True], ids=["leader", "group"])
def test_ctrl_c_ends_the_worker_and_what_it_started(home, worker, tmp_path, verb, whole_group):
    run = start(worker, "hangs", verb, "tiny.yaml", "-q")
    pids = started(tmp_path)
    (os.killpg if whole_group else os.kill)(run.pid, signal.SIGINT)
    output, told = run.communicate(timeout=DEADLINE)
    assert (run.returncode, output) == (130, "")
    assert told.startswith("error[interrupted]: stopped\n")
    assert len(told.splitlines()) <= 3
    assert "Traceback" not in told
    for pid in pids:
        wait_for(lambda pid=pid: gone(pid), f"the end of process {pid}")
    left = [path for path in (home / "v1" / "live", home / "v1" / "tmp") if path.exists() and any(path.iterdir())]
    assert left == []
    assert process("plan", "tiny.yaml", "--format", "quiet").out == "miss\n"


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_ctrl_c_while_the_verbs_are_loaded(home, tmp_path, number, cause):
    (tmp_path / "typer.py").write_text("import time; print('loading', flush=True); time.sleep(60)")
    run = subprocess.Popen(
        [sys.executable, "-m", "cachekit", "plan", "bert", "--format", "json"],
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{Path(cachekit.__file__).parent.parent}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    assert run.stdout.readline() == "loading\n"
    run.send_signal(number)
    output, told = run.communicate(timeout=DEADLINE)
    assert run.returncode == 130
    assert json.loads(output)["error"]["code"] == "interrupted"
    assert told == f"error[interrupted]: stopped\n  cause: {cause}\n  hint: run it again\n"


def test_ctrl_c_twice(work, home, worker, tmp_path):
    """The worker does not listen, and its user loses patience."""
    run = start(worker, "stubborn", "warm", "tiny.yaml")
    pids = started(tmp_path)
    try:
        os.kill(run.pid, signal.SIGINT)
        time.sleep(0.5)  # it waits for the worker now
        os.kill(run.pid, signal.SIGINT)
        _, told = run.communicate(timeout=DEADLINE)
        assert run.returncode == 130
        assert "Traceback" not in told
        for pid in pids:
            wait_for(lambda pid=pid: gone(pid), f"the end of process {pid}")
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_killed_run_takes_its_worker_along(work, home, worker, tmp_path):
    run = start(worker, "hangs", "warm", "tiny.yaml")
    pids = started(tmp_path)
    run.kill()
    run.communicate(timeout=DEADLINE)
    try:
        wait_for(lambda: gone(pids[0]), "the worker's end")
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
    assert process("plan", "tiny.yaml", "--format", "quiet").out == "miss\n"


# What is imported

HEAVY = ("torch", "transformers", "numpy", "datasets", "huggingface_hub", "pandas", "sklearn", "pyarrow", "pydantic")
# An older typer imports the empty top of rich; what would cost time is its console.
RICH = "rich.console"


@pytest.mark.feature("P2")
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["plan", "demo"], ["plan", "bert"], ["plan", "tiny.yaml"], ["ls"], ["zoo"], ["config"], ["env"]],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(work, home, arguments):
    """Prediction needs no SDK, no framework, and no time."""
    start = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr))\n"
        "from cachekit.cli import main\n"
        "main()"
    )
    answer = process(*arguments, program=("-c", start))
    loaded = set(answer.err.split())
    assert "cachekit.cli.app" in loaded
    assert loaded.isdisjoint({*HEAVY, RICH})


def test_the_recipe_of_the_demo_is_planned_without_its_package(command):
    """It names its architecture, so that no package and no data are needed."""
    answer = command("plan", "demo", "--format", "json")
    assert answer.json["model_type"] == "bert"
    assert answer.json["labels"] == ["negative", "neutral", "positive"]


# Shell completion


def complete(shell: str, words: str, **changes: str) -> str:
    return process(_CACHEKIT_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_ARGS=words, **changes).out


@pytest.mark.feature("U2")
@pytest.mark.parametrize(
    ("shell", "sign"),
    [("bash", "complete -o default -F"), ("zsh", "#compdef cachekit"), ("fish", "complete --command cachekit")],
)
def test_completion_has_a_script(work, home, shell, sign):
    answer = process(_CACHEKIT_COMPLETE=f"source_{shell}")
    assert sign in answer.out
    assert f"complete_{shell}" in answer.out
    assert answer.err == ""


@pytest.mark.feature("U2")
def test_verbs_and_options_are_completed(work, home):
    assert complete("bash", "", COMP_WORDS="cachekit ", COMP_CWORD="1").split() == list(VERBS)
    assert complete("bash", "", COMP_WORDS="cachekit pl", COMP_CWORD="1").split() == ["plan"]
    assert "--format" in complete("bash", "", COMP_WORDS="cachekit plan --f", COMP_CWORD="2").split()
    assert '"plan"' in complete("zsh", "cachekit pl")
    listed = complete("fish", "cachekit ", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert [line.split("\t")[0] for line in listed.splitlines()] == list(VERBS)


@pytest.mark.feature("U2")
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_bash_completes_with_the_script(work, home, tmp_path):
    """The whole way: the script is sourced, and bash's own variables are what it fills."""
    program = tmp_path / "bin" / "cachekit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cachekit "$@"\n')
    program.chmod(0o755)
    script = process(_CACHEKIT_COMPLETE="source_bash").out
    typed = "\nCOMP_WORDS=(cachekit tr)\nCOMP_CWORD=1\n_cachekit_completion cachekit\necho ${COMPREPLY[@]}\n"
    run = subprocess.run(
        ["bash", "-c", script + typed],
        env=environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert (run.stdout, run.stderr) == ("train\n", "")


def test_the_root_of_all_errors_prints_itself():
    assert CachekitError("m").lines() == ["error[error]: m"]
    assert CachekitError("m", hint="h").lines() == ["error[error]: m", "  hint: h"]
