"""Every command of every page runs, page by page, in the order in which a reader types them.

The worker, launchers of processes and the machine are stand-ins, and what a team shares is a folder of this machine:
what pages say of Hubs, buckets, engines and Neuron is tested where those are. A page begins with a store that has some
records, and with the files that it takes for granted.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_files import make_neff
from tests.docs.test_docs import COMMANDS, ROOT
from tests.recipe.test_import import NXDT

pytest_plugins = ["tests.support.cli_session"]
pytestmark = pytest.mark.usefixtures("machine", "worker")
PAGES: dict[str, list[str]] = {}
for _page, _command in COMMANDS:
    cut_short = "…" in _command.replace("RECIPE…", "").replace("FILE…", "")
    if not cut_short and _command not in PAGES.setdefault(_page, []):
        PAGES[_page].append(_command)

SHARED = re.compile(r"(?:hf|s3)://[\w/-]+|file:///mnt/[\w/-]+")
NEURON = re.compile(r"/var/tmp/neuron-compile-cache|/tmp/neff_cache|/mnt/shared/neuron-cache")
MODULE = "neuronxcc-2.26.6360.0+6f180f47/MODULE_14529842170341812+f7f529f3"
LOG = (
    "2024-01-11 05:53:02.000203:  12  INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: neuronx-cc compile "
    "--framework=XLA /tmp/a/model.hlo_module.pb --output /tmp/a/model.neff --target=trn1\n.\nCompiler status PASS\n"
)
SIGNER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4\n"
WORDS = {
    "RECIPE": "bert", "RECIPE...": "bert", "RECIPE…": "bert", "NAME.tar": "name.tar", "FILE…": "model.neff",
    "DIR": "/tmp/neff_cache", "ENGINE": "slurm", "COMMAND": "true", "MY-RECIPE": "bert",
}  # fmt: skip
# Commands that do not end with 0 here: what they say, and of which commands that is no wonder.
ENDS = [
    (r"cachekit( \w+)? \w+( --| --require-warm)?$", "was named|nothing to|no command was|Missing arg"),  # a verb's name
    ("hub (create|ls|use)", "HF_HUB_OFFLINE is set|names no Hub repo|no cache names"),
    (" --on ", "sinfo|Slurm|no AWS region|Ray is not installed|boto3"),
    ("fleet", "no fleet"),
    ("--require-warm", "error.not-warm"),
    ("doctor", "^$"),  # what it finds is this machine's
    ("neuron-native|--for", "the Neuron compiler is not available"),
    ("llama3", "Inductor trains with one worker"),
    (r"import \w+\.tar$", "is not signed"),
    ("pull --(module|all-of)|pull 694644a2", "no remote|names no remote"),
    (r"export \S+neuron\S* 3f2a91c0|store export DIR", "belongs to no cache|nothing to export"),
    ("rm 3f2a91c0", "is pinned"),
    ("trust sign", "no key signs what"),
    ("--cost", "the hourly price of this machine is unknown"),
    ("plan recipe.yaml", "HF_HUB_OFFLINE"),
]
# What else is warm where a page begins.
WARM = {
    "docs/bundles.md": [("vit",)],
    "docs/why.md": [("vit",)],
    "docs/howto/ci.md": [("bert", "--tiny")],
    "docs/howto/github-actions.md": [("bert", "--tiny")],
}


@pytest.fixture
def places(tmp_path):
    """What a team shares, a Neuron cache, and programs."""
    found = {name: tmp_path / name for name in ("team", "neuron", "bin")}
    module = found["neuron"] / MODULE
    for folder in (found["team"], found["bin"], module):
        folder.mkdir(parents=True)
    make_neff(module / "model.neff", version="2.26.6360.0+6f180f47", target="sunda")
    for name, text in {
        "model.done": "",
        "compile_flags.json": '["--target=trn1"]',
        "model.hlo_module.pb": "hlo",
    }.items():
        (module / name).write_text(text)
    programs = dict.fromkeys(("torchrun", "neuron_parallel_compile"), "")
    for name, does in {**programs, **dict.fromkeys(("sinfo", "sbatch", "squeue", "scancel"), "exit 1")}.items():
        (found["bin"] / name).write_text(f"#!/bin/sh\n{does}\n")
        (found["bin"] / name).chmod(0o755)
    return found


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """Where the store and the team's folder after a warm are kept for the next page, and the keys of the last ones."""
    return tmp_path_factory.mktemp("warmed"), {}


def warm(command, wanted, places, warmed):
    """The key of the last of these recipes, all of which are warm."""
    folder, keys = warmed
    own = {"store": Path(os.environ["CACHEKIT_HOME"]), "team": places["team"]}
    kept = folder / "-".join(word for names in wanted for word in names)
    if wanted in keys:
        for name, place in own.items():
            shutil.copytree(kept / name, place, dirs_exist_ok=True)
    else:
        for names in wanted:
            keys[wanted] = command("warm", *names, "--format", "json").json["key"]
        for name, place in own.items():
            shutil.copytree(place, kept / name)
    return keys[wanted]


@pytest.fixture
def key(page, command, places, warmed, monkeypatch):
    """The key of `bert`, of which the store has a record, in a working directory with what pages name."""
    work = command.work
    shutil.copytree(ROOT / "recipes", work / "recipes")
    recipe = (ROOT / "recipes" / "bert.yaml").read_text()
    matrix = "- {recipe: bert, set: {training.max_seq_length: 64}}\n"
    rows = "text,label\n" + "".join(f"text {number},{number % 6}\n" for number in range(12))
    script = "print('trained')\n"
    texts = {
        **dict.fromkeys(("my.yaml", "mine.yaml", "recipe.yaml"), recipe),
        **dict.fromkeys(("list.yaml", "shapes.yaml"), matrix),
        **dict.fromkeys(("train.py", "run_glue.py", "run_qa.py", "train_hf.py", "train_trainium.py"), script),
        **dict.fromkeys(("alice.pub", "ci.pub"), SIGNER),
        "scripts/train.py": script, "emotion/train.csv": rows, "nxdt.yaml": NXDT,
        "train.log": LOG,
    }  # fmt: skip
    for name, text in texts.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    make_neff(work / "model.neff")
    own = Path(os.environ["XDG_CONFIG_HOME"], "cachekit", "config.toml")
    own.parent.mkdir(parents=True)
    own.write_text(f'cache = ["local:rw", "team:rw"]\nremotes.team.url = "file://{places["team"]}"\n')
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(places["bin"]), str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    monkeypatch.setenv("HOME", str(work.parent))  # of the shell that completes
    monkeypatch.setattr("shellingham.detect_shell", lambda *_, **__: ("bash", "/bin/bash"))  # whoever started pytest
    for name in filter(re.compile("AWS_|SLURM_|SBATCH_").match, list(os.environ)):
        monkeypatch.delenv(name)
    found = warm(command, (*WARM.get(page, ()), ("bert",)), places, warmed)
    if "why" in page:
        (work / "laptop.json").write_text(command("plan", "bert", "--format", "json").out)
    return found


def words_of(line, key, places):
    """A command line of a page, with what its names stand for here."""
    line = SHARED.sub(f"file://{places['team']}", line)
    line = re.sub(r"\b(3f2a91c0|85e07652|3f1c0a|KEY)\b", key[:12], line)
    line = re.sub(r"\[(--\w[^\]]*|RECIPE)\]", r"\1", line)  # what may be left out
    words = [WORDS.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    words = [NEURON.sub(str(places["neuron"]), word) for word in words]
    words = [str(next(places["neuron"].rglob("*.neff"))) if "*/" in word else word for word in words]
    own = words.index("--") if "--" in words else len(words)
    more = []
    if words[:2] == ["zoo", "new"]:  # a page shows several ways to make one file
        more = ["--force"] if "--output" in words[:own] else []
    elif "--nnodes" in words[:own] and "--dry-run" not in words:  # others would be waited for
        more = ["--dry-run"]
    return [*words[:own], *more, *words[own:]]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_runs(command, key, places, page):
    wrong, warm = [], {("bert",), *WARM.get(page, ())}
    for line in PAGES[page]:
        words = words_of(line, key, places)
        try:
            answer = command(*words, code=None)
        except SystemExit as end:  # typer's own, which installs completion
            assert not end.code, line  # noqa: PT017
            continue
        expected = any(re.search(which, line) and re.search(says, answer.err) for which, says in ENDS)
        about = tuple(word for word in words[1:] if word != "--require-warm")
        if words[0] in {"warm", "pull", "train"} and not answer.code:
            warm.add(about)
        expected = expected and ("--require-warm" not in words or about not in warm)
        if answer.code and not expected:
            wrong.append(f"{line}: exit {answer.code}\n{answer.err[-600:]}")
    assert wrong == []
