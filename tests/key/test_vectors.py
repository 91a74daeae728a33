"""Keys that the code makes of frozen recipes and commands, for each compiler: `tests/vectors/made.json`.

A key that changes costs everybody a compile of everything. Where a word of an ingredient changes on purpose, SCHEMA in
`key/canonical.py` goes up, and `UPDATE_GOLDEN=1 pytest tests/key/test_vectors.py` writes the vectors anew; it refuses
to as long as SCHEMA is what they say.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cachekit import Cache
from cachekit.compilers.folders.compiler import FolderCompiler
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.key.canonical import SCHEMA, key_of
from cachekit.recipe import zoo
from cachekit.recipe.ingredients import Fingerprint

pytestmark = pytest.mark.versions
FILE = Path(__file__).parents[1] / "vectors" / "made.json"
CPU = {"machine": "x86_64", "system": "linux", "isa": ["avx2", "fma"], "libc": "glibc 2.36"}
HOSTS = {  # a machine, as each compiler would find it
    "inductor": Fingerprint(
        compiler="inductor",
        directory="inductor-2.13.0",
        toolchain={"torch": "2.13.0+cpu", "transformers": "5.23.0", "python": "cpython 3.11", "cxx": "(Debian) 12.2.0"},
        target=CPU,
        soft={"accelerate": "1.15.0"},
        bf16=False,
    ),
    "jax": Fingerprint(
        compiler="jax",
        directory="jax-0.10.2",
        toolchain={"jaxlib": "0.10.2", "jax": "0.10.2"},
        target=CPU,
        soft={"numpy": "2.4.6"},
        bf16=False,
    ),
}
ELSEWHERE = {
    "neuron": {"toolchain": "neuron-2.31", "instance": "trn1.32xlarge"},
    "neuron-native": {"toolchain": "neuron-2.33", "instance": "trn2.48xlarge"},
}
OF_EACH_TASK = (
    "bert", "smollm2-sft", "bert-goemotions", "bert-stsb", "camembert-ner", "bert-large-squad", "bert-swag",
    "roberta-mlm", "gpt2-clm", "t5-summarization", "marian-translation", "vit",
)  # fmt: skip
# What stays frozen: the zoo's recipes, scripts and variables as they were when the vectors were made.
CASES: list[dict[str, Any]] = [
    *({"recipe": name, "compiler": "neuron"} for name in ("bert", "tinyllama-lora", "llama3-8b-lora")),
    *({"recipe": name, "compiler": "neuron-native"} for name in ("bert", "smollm2-sft")),
    *({"recipe": name, "compiler": "inductor"} for name in OF_EACH_TASK),
    {"recipe": "bert", "compiler": "inductor", "set": ["training.gradient_accumulation_steps=4", "training.bf16=true"]},
    {"command": ["python", "train.py", "--lr", "0.1"], "compiler": "inductor", "text": "import torch\n"},
    {
        "command": ["python", "train.py", "--lr", "0.1"],
        "compiler": "jax",
        "text": "import jax\n",
        "variables": {"JAX_ENABLE_X64": "1", "XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_dump_to=/tmp/x"},
    },
]


def hard_of(case: dict[str, Any], work: Path) -> dict[str, Any]:
    """The hard ingredients of a case, by the public interface, in a folder where its file lies."""
    compiler = case["compiler"]
    cache = Cache(home=work / "store", compiler=compiler, **ELSEWHERE.get(compiler, {}))
    if "command" in case:
        (work / "train.py").write_text(case["text"])
        planned = cache.plan_run(case["command"], cwd=work)
    else:
        (work / "recipe.yaml").write_text(case["text"])
        planned = cache.plan(work / "recipe.yaml" if "set" not in case else variant(work, case), data=False)
    assert planned.key == key_of(planned.ingredients.hard)
    return json.loads(json.dumps(planned.ingredients.hard))


def variant(work: Path, case: dict[str, Any]) -> Any:
    from cachekit import Variant

    return Variant(work / "recipe.yaml", tuple(case["set"]))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """The same host everywhere, whose environment says nothing that compilers read."""
    for name in [name for name in os.environ if name.startswith(("TORCH", "TRITON", "NEURON", "XLA", "JAX", "OMP"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(Inductor, "fingerprint", lambda *_, **__: HOSTS["inductor"])
    monkeypatch.setattr(FolderCompiler, "fingerprint", lambda *_, **__: HOSTS["jax"])
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def made(machine, work: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for number, case in enumerate(cases):
        (folder := work / str(number)).mkdir()
        with machine.context() as patch:
            for name, value in case.get("variables", {}).items():
                patch.setenv(name, value)
            hard = hard_of(case, folder)
        found.append({**case, "key": key_of(hard), "hard": hard})
    return found


@pytest.mark.feature("K6")
def test_keys_of_frozen_recipes_and_commands_do_not_change(machine, tmp_path):
    known = json.loads(FILE.read_text()) if FILE.exists() else {"schema": None, "vectors": []}
    if os.environ.get("UPDATE_GOLDEN"):
        assert known["schema"] != SCHEMA, "first raise SCHEMA in key/canonical.py: keys change for everybody"
        texts = [
            {**case, "text": case.get("text") or Path(zoo.recipe_path(case["recipe"])).read_text()} for case in CASES
        ]
        FILE.write_text(json.dumps({"schema": SCHEMA, "vectors": made(machine, tmp_path, texts)}, indent=1) + "\n")
        return
    assert known["schema"] == SCHEMA
    frozen = [{name: value for name, value in one.items() if name not in {"key", "hard"}} for one in known["vectors"]]
    assert [{name: value for name, value in one.items() if name != "text"} for one in frozen] == [
        {name: value for name, value in one.items() if name != "text"} for one in CASES
    ]
    for now, vector in zip(made(machine, tmp_path, frozen), known["vectors"], strict=True):
        name = f"{vector.get('recipe') or vector['command']} on {vector['compiler']}"
        assert now["hard"] == vector["hard"], name
        assert now["key"] == vector["key"], name
