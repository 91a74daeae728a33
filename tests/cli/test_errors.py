"""Settings, stores and machines that the command line cannot work with: what is said, and no traceback."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

import cachekit
from tests.support.cli_session import (
    Answer,
    process,
    publish_record,
    small_record,
    the_error,
)

pytest_plugins = ["tests.support.cli_session"]


# What a command finds around it


@pytest.mark.feature("U2")
@pytest.mark.parametrize("words", ["plan tiny.yaml", "train tiny.yaml", "config", "store ls"])
def test_a_working_directory_that_was_removed(command, work, machine, monkeypatch, words):
    gone = work.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    answer = command(*words.replace("tiny.yaml", str(work / "tiny.yaml")).split(), code=2)
    assert the_error(answer)[:2] == ("usage", "the working directory no longer exists")


def test_a_key_that_two_records_begin_with(command, home):
    seen: dict[str, dict[str, int]] = {}
    for number in range(5000):
        hard = {"n": number}
        first = seen.setdefault(small_record(**hard).key[:4], hard)
        if first is not hard:
            break
    keys = [publish_record(home, small_record(**chosen)).key for chosen in (first, hard)]
    code, message, cause, hint = the_error(command("store", "show", keys[0][:4], code=2))
    assert (code, message) == ("unknown-name", f"2 records begin with {keys[0][:4]!r}")
    assert all(key[:16] in cause for key in keys)
    assert hint == "give more digits"


@pytest.mark.parametrize("verb", [("config",), ("plan", "tiny.yaml"), ("store", "ls")], ids=" ".join)
def test_a_bad_settings_file(command, work, verb):
    (work / "cachekit.toml").write_text("hom = 'x'\n")
    code, message, cause, hint = the_error(command(*verb, code=2))
    assert (code, hint) == ("usage", "did you mean 'home'?")
    assert "unknown setting 'hom'" in message
    assert "home" in cause


@pytest.mark.parametrize(
    "verb", [("plan", "tiny.yaml"), ("warm", "tiny.yaml"), ("train", "tiny.yaml"), ("store", "ls")]
)
def test_a_home_that_is_a_file(command, machine, monkeypatch, verb):
    """It cannot be a store. Nothing of it is damaged, and it is not an empty store either."""
    monkeypatch.setenv("CACHEKIT_HOME", str(command.work / "tiny.yaml"))
    code, message, _, hint = the_error(command(*verb, code=1))
    assert code == "store"
    assert str(command.work / "tiny.yaml") in message
    assert "CACHEKIT_HOME" in hint


def test_no_cxx_compiler(work, home, tmp_path):
    (tmp_path / "bin").mkdir()
    for verb in (["plan", "tiny.yaml"], ["warm", "tiny.yaml"], ["train", "tiny.yaml"]):
        answer = process(*verb, code=1, PATH=str(tmp_path / "bin"), CXX=None)
        code, message, _, hint = the_error(answer)
        assert code == "compiler-unavailable"
        assert "no C++ compiler" in message
        assert "apt-get install g++" in hint
    shown = process("doctor", "--format", "json", code=1, PATH=str(tmp_path / "bin"), CXX=None)
    assert "no C++ compiler" in shown.json["machine"]["problem"]


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
    assert "Set up:" in run("--help").out
    assert "bert" in run("zoo", "--format", "quiet").out.split()
    assert str(home) in run("config").out
    assert "has no records" in run("store", "ls").out
    shown = run("doctor", code=1)
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


def unforeseen(*arguments, **options):
    raise RuntimeError("the moon is full\nand more")


def test_an_unforeseen_error_is_called_a_bug(command, machine, monkeypatch):
    monkeypatch.setattr("cachekit.verbs.plan.plan", unforeseen)
    answer = command("plan", "tiny.yaml", "--format", "json", code=1)
    code, message, cause, hint = the_error(answer)
    assert (code, message, cause) == ("error", "unexpected RuntimeError", "the moon is full")
    assert "bug in cachekit" in hint
    assert "-vv" in hint
    assert answer.json["error"]["message"] == message
    told = command("plan", "tiny.yaml", "-vv", code=1).err
    assert "Traceback (most recent call last)" in told
    assert "RuntimeError: the moon is full" in told


def test_a_misspelt_variable_is_told_once(command, monkeypatch):
    monkeypatch.setenv("CACHEKIT_WAIT", "10")
    assert command("config").err.count("CACHEKIT_WAIT_SECONDS") == 1
    assert command("config", "-q").err == ""
