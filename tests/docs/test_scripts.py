"""The scripts of `make demo` and `make team`, in processes of their own, with a stand-in for the training worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.test_docs import ROOT
from tests.support.cli_session import DRIVER, environment

pytest_plugins = ["tests.support.cli_session"]


@pytest.fixture
def script(work, worker):
    """Runs one of them; `cachekit` is a program that begins with the stand-in for the worker."""
    program = work.parent / "bin" / "cachekit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{DRIVER}' {worker} \"$@\"\n")
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.path.dirname(sys.executable), os.environ["PATH"]])

    def run(name: str, *arguments: str) -> str:
        words = ["sh", str(ROOT / "recipes" / name), str(work / "tiny.yaml"), *arguments]
        changes = {"PATH": path, "CACHEKIT_HOME": str(work / "home" / "store"), "HF_HUB_OFFLINE": None}
        how = {"env": environment(**changes), "capture_output": True, "text": True, "timeout": 300}
        done = subprocess.run(words, check=False, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.feature("F1")
def test_the_demo_shows_a_miss_a_compile_a_hit_and_two_trainings_that_compile_nothing(script):
    said = script("demo.sh")
    first, hit = said.index("tiny: miss"), said.index("tiny: hit")
    assert first < said.index("compiled 3 graphs") < hit
    assert said.count("compiled 0 graphs, built 0 binaries") == 2


@pytest.mark.feature("R1")
def test_in_the_team_one_compiles_and_the_other_fetches(script, work):
    said = script("team.sh", str(work / "team"))
    ann, bob = said.index("ann $ cachekit warm"), said.index("bob $ cachekit pull")
    assert "compiled 3 graphs" in said[ann:bob]
    assert "compiled 3 graphs" not in said[bob:]
    assert "tiny: miss" in said[:ann]
    assert "1 file, 10.2 kB from hf://team/cache" in said[bob:]
