"""The main job on Neuron, over the graphs of real training steps: `make test-xla`.

Two workers of a tiny BERT are warmed once; in that trial run the device returns zeros, as AWS documents it. A training
elsewhere must then compile nothing, by the stand-in compiler's own count. A NEFF that is damaged or of another graph
would stop a worker as it is loaded. What is slow here is shown in seconds with a worker that has no torch
(`test_compiler`, `test_compiler_killed`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_machine import RECIPE, Machine, left_behind
from tests.support.neuron_sdk import neuron_host

pytestmark = pytest.mark.xla

TINY = RECIPE.replace(
    "config: {num_hidden_layers: 1}",
    "from_config: true\n"
    "  config: {num_hidden_layers: 1, hidden_size: 32, num_attention_heads: 2, intermediate_size: 64}",
)
TINY += "  warmup_steps: 2\n"  # the first step's rate is zero then, which XLA writes into a graph of its own


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """A user with a host on which the recipe was warmed: the one cold compile."""
    machine = Machine(tmp_path_factory.mktemp("first"), real=True, trial_zeros=True)
    machine.recipe(TINY)
    planned = machine("plan", "tiny.yaml")
    assert (planned["status"], planned["ingredients"]["hard"]["parallel.data_parallel_size"]) == ("miss", 2)
    done = machine("warm", "tiny.yaml")
    assert done["status"] == "compiled"
    assert machine.host.compiles == done["compiled"] == done["graphs"] == len(done["modules"])
    machine.host.forget()
    return machine


def another(warmed: Machine, folder: Path) -> Machine:
    """Another user on another host with another root, who got a copy of the store."""
    machine = Machine(folder, real=True, host=neuron_host(folder / "another-host", trial_zeros=True))
    machine.recipe(TINY)
    shutil.copytree(warmed.home, machine.home)
    return machine


def assert_compiled_nothing(machine: Machine, result: dict) -> None:
    assert machine.host.compiles == 0
    assert machine.host.events("loaded"), "the stand-in was in use"
    assert (result["compiled"], result["built"], result["surprises"]) == (0, 0, [])
    assert result["found"] > 5
    assert not left_behind(machine.host)


def modules(machine: Machine) -> list[str]:
    """By name, as the host's entries are listed; the record has them in the order in which the run came to them."""
    return sorted(module["name"] for module in machine("plan", "tiny.yaml")["modules"])


@pytest.mark.feature("F1", "F3", "P1")
def test_a_warm_leaves_every_graph_of_every_rank_in_the_record(warmed):
    assert modules(warmed) == [f"{entry.path.parent.name}/{entry.name}" for entry in warmed.host.entries()]
    assert all(entry.finished for entry in warmed.host.entries())
    again = warmed("warm", "tiny.yaml")
    assert (again["status"], again["compiled"], warmed.host.compiles) == ("hit", 0, 0)
    assert sorted(path.name for path in warmed.work.iterdir()) == ["data", "tiny.yaml"], "a warm leaves nothing behind"


@pytest.fixture(scope="module")
def trained(warmed, tmp_path_factory):
    """Another user on another host with another root, who has trained, and what that training told.

    Checkpoints, evaluations and logs come at other steps; rates, seed, locale and home are others.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    other = another(warmed, folder / "user")
    variables = {"HOME": str(folder), "USER": "bob", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    assert other("plan", "tiny.yaml", "--require-warm", **variables)["key"] == warmed("plan", "tiny.yaml")["key"]
    root = other.host.folder / "said-by-a-flag"
    result = other(
        "train", "tiny.yaml", "--require-warm", "--output-dir", "first",
        "--set", "training.learning_rate=3e-4", "--set", "training.seed=7", "--set", "training.logging_steps=2",
        "--set", "training.eval_steps=3", "--set", "training.max_steps=5", "--set", "training.save_steps=2",
        "--set", "training.lr_scheduler_type=constant_with_warmup", NEURON_CC_FLAGS=f"--cache_dir={root}", **variables,
    )  # fmt: skip
    return other, result, root


@pytest.mark.feature("F1", "K3", "M3", "P1")
def test_another_user_on_another_host_trains_with_other_soft_settings_and_compiles_nothing(trained):
    other, result, root = trained
    assert_compiled_nothing(other, result)
    assert not other.host.entries(), "the flag wins over the variable"
    assert len(other.host.entries(root)) == len(modules(other))
    assert result["steps"] == 5
    assert {name: figures["rows"] for name, figures in result["metrics"].items()} == {"validation": 21, "test": 13}


@pytest.mark.feature("F1", "M3")
def test_a_resume_compiles_nothing_in_an_empty_root(trained):
    other, _, _ = trained
    other.host.forget()
    result = other("train", "tiny.yaml", "--require-warm", "--resume", "first/checkpoint-2", "--output-dir", "resumed")
    assert_compiled_nothing(other, result)
    assert result["resumed_from"].endswith("checkpoint-2")
    assert [f"{entry.path.parent.name}/{entry.name}" for entry in other.host.entries()] == modules(other)


@pytest.mark.feature("K1", "K5")
def test_without_a_warm_up_of_the_rate_a_training_has_other_graphs(trained):
    """Those of the warm-up are there for the trainings above."""
    other, _, _ = trained
    planned = other("plan", "tiny.yaml", "--set", "training.warmup_steps=0")
    assert planned["status"] == "miss"
    assert [change["name"] for change in planned["nearest"]["changes"]] == ["compiler.first_rate_zero"]
