"""Completion in bash, zsh and fish: scripts, what they ask, and real shells where they are at hand."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

from cachekit.cli.app import VERBS
from cachekit.recipe import zoo
from tests.support.cli_session import DEADLINE, environment, process, publish_record, small_record

pytest_plugins = ["tests.support.cli_session"]
pytestmark = [pytest.mark.feature("U2"), pytest.mark.versions]

SIGNS = [("bash", "complete -o default -F"), ("zsh", "#compdef cachekit"), ("fish", "complete --command cachekit")]


def ask(*words: str) -> list[str]:
    """What bash is answered when the last word is being typed."""
    line = " ".join(["cachekit", *words])
    answer = process(_CACHEKIT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words)))
    assert answer.err == ""
    return answer.out.split()


@pytest.mark.parametrize(("shell", "sign"), SIGNS)
def test_each_shell_has_a_script(work, home, shell, sign):
    answer = process(_CACHEKIT_COMPLETE=f"source_{shell}")
    assert sign in answer.out
    assert f"complete_{shell}" in answer.out
    assert answer.err == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pl"], ["plan"]),
        (["zoo", "sh"], ["show"]),
        (["plan", "dem"], ["demo"]),
        (["warm", "dem"], ["demo"]),
        (["train", "dem"], ["demo"]),
        (["zoo", "show", "dem"], ["demo"]),
        (["plan", "bert", "--form"], ["--format"]),
        (["plan", "bert", "--format", "j"], ["json"]),
        (["plan", "bert", "--compiler", "ind"], ["inductor"]),
        (["plan", "bert", "--instance", "trn1.2"], ["trn1.2xlarge"]),
        (["plan", "bert", "--toolchain", "neuron-2.31"], ["neuron-2.31"]),
        (["store", "un"], ["unpin"]),
        (["store", "show", "nothing"], []),
    ],
    ids=" ".join,
)
def test_a_word_is_completed(work, home, words, expected):
    assert ask(*words) == expected


def test_all_verbs_are_offered(work, home):
    assert ask("") == list(VERBS)
    fish = process(
        _CACHEKIT_COMPLETE="complete_fish", _TYPER_COMPLETE_ARGS="cachekit ", _TYPER_COMPLETE_FISH_ACTION="get-args"
    )
    assert [line.split("\t")[0] for line in fish.out.splitlines()] == list(VERBS)
    assert '"plan"' in process(_CACHEKIT_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="cachekit pl").out


def test_all_recipes_are_offered(work, home):
    assert ask("warm", "") == list(zoo.recipes())


def test_keys_of_the_store(work, home):
    record = publish_record(home, small_record())
    assert ask("store", "show", record.key[:3]) == [record.key]
    for words in (["push"], ["store", "export", "out.tar"]):
        assert ask(*words, record.key[:3]) == [record.key], words
    assert "bert" in ask("store", "export", "out.tar", "ber")


def test_a_broken_setting_breaks_no_line(work, home):
    (work / "cachekit.toml").write_text("nonsense")
    assert ask("store", "show", "ab") == []


# Real shells


@pytest.fixture
def program(tmp_path):
    """A folder with a `cachekit` in it, as an installation has."""
    path = tmp_path / "bin" / "cachekit"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cachekit "$@"\n')
    path.chmod(0o755)
    return path.parent


def typed(shell: list[str], program, setup: str, keys: str, expected: str) -> str:
    """Type into an interactive shell until the screen shows what is expected."""
    home = program.parent
    changes = {"PATH": f"{program}{os.pathsep}{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb", "PS1": "> "}
    screen, side = pty.openpty()
    run = subprocess.Popen(
        shell, stdin=side, stdout=side, stderr=side, env=environment(**changes), start_new_session=True, cwd=home
    )
    os.close(side)
    text, end = "", time.monotonic() + DEADLINE
    try:
        os.write(screen, f"{setup}\necho re''ady\n".encode())
        sent = False
        while time.monotonic() < end and not (sent and re.search(expected, text)):
            if select.select([screen], [], [], 0.1)[0]:
                text += os.read(screen, 65536).decode(errors="replace")
            if not sent and "ready" in text:
                sent, text = True, ""
                os.write(screen, keys.encode())
    finally:
        run.kill()
        run.wait()
        os.close(screen)
    return text


@pytest.mark.usefixtures("work", "home")
@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("cachekit tra\t", "cachekit train "),
        ("cachekit warm dem\t", "cachekit warm demo "),
        ("cachekit plan bert --requ\t", "--require-warm "),
    ],
)
def test_in_bash(program, tmp_path, keys, expected):
    script = tmp_path / "script"
    script.write_text(process(_CACHEKIT_COMPLETE="source_bash").out)
    shell = ["bash", "--norc", "--noprofile", "-i"]
    assert expected in typed(shell, program, f"source {script}", keys, re.escape(expected))


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_it_installs_itself(work, home, program, tmp_path):
    """`--install-completion` finds the shell that it was called from; `--show-completion` prints the same script."""
    changes = {"PATH": f"{program}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    run = subprocess.run(
        ["bash", "--norc", "-c", "cachekit --install-completion; cachekit --show-completion; true"],
        env=environment(**changes), capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    installed = (tmp_path / ".bash_completions" / "cachekit.sh").read_text()
    assert "complete -o default -F" in installed
    assert "complete -o default -F" in run.stdout
    assert ".bash_completions/cachekit.sh" in (tmp_path / ".bashrc").read_text()
    assert run.stderr == ""
