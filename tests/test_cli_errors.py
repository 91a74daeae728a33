"""Bad input on the command line: three lines, a hint, the right exit code, no traceback."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_session import (
    DEADLINE,
    DRIVER,
    Answer,
    environment,
    process,
    publish_record,
    small_record,
    the_error,
)

import cachekit

# Bad input: (what the user typed, exit code, error code, in the message, in the cause, in the hint)

pytest_plugins = ["cli_session"]


NO_LABELS = ("--set", "data.labels=null")
FILE = "data.path=null", "--set", "data.train_file="
BAD_INPUT = {
    "no such recipe file": ("plan missing.yaml", 2, "bad-recipe", "missing.yaml does not exist", "", "zoo"),
    "no such recipe file, train": ("train missing.yaml", 2, "bad-recipe", "missing.yaml does not exist", "", "zoo"),
    "no such recipe": ("plan bret", 2, "unknown-name", "'bret'", "", "did you mean bert?"),
    "no recipe like it": ("warm zzz", 2, "unknown-name", "'zzz'", "cachekit zoo", "cachekit zoo"),
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
    "a short key, where recipes have names": ("rm abc", 2, "unknown-name", "no recipe is called 'abc'", "", "4 digits"),
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
    "too many recipes": ("warm tiny.yaml more.yaml", 2, "usage", "more.yaml", "", "cachekit warm --help"),
    "no recipe": ("plan", 2, "usage", "no recipe was named", "", "--all"),
    "named and chosen": ("plan tiny.yaml --task translation", 2, "usage", "chosen from the zoo", "", "plan --all"),
    "no task to plan for": ("plan --task nothing", 2, "usage", "no task 'nothing'", "", "one of"),
    "a price of no number": ("plan tiny.yaml --price trn1.2xlarge=much", 2, "usage", "no price", "", "--price 0.40"),
    "a price below nothing": ("plan tiny.yaml --price=-1", 2, "usage", "no price", "", "--price 0.40"),
    "a price of nobody": ("plan tiny.yaml --price trn1.2xlrage", 2, "unknown-name", "trn1.2xlrage", "", "trn1.2xlarge"),
    "a price nobody knows": ("plan tiny.yaml --price inf2.xlarge", 2, "usage", "no price of inf2", "", "=DOLLARS"),
    "no such target": ("plan tiny.yaml --target trn9", 2, "usage", "'trn9'", "", "trn1"),
    "target and instance": ("plan tiny.yaml --target inf2 --instance trn1.2xlarge", 2, "usage", "trn1", "", "out"),
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
