"""Which cores a run may have, and rates that are part of a graph."""

from __future__ import annotations

import os
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.neuron.cores import allowed
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.native_compiler import NeuronNative
from cachekit.compilers.neuron.run_command import RunCommand
from cachekit.compilers.port import Node, Run
from cachekit.compilers.prepare import prepare
from cachekit.errors import RecipeError, UsageError
from cachekit.recipe import load_text
from tests.compilers.neuron.neuron_machine import Machine as NeuronMachine

TEXT = """
name: toy
model: {id: sentence-transformers/all-MiniLM-L6-v2}
data: {id: nobody/nothing, labels: ["no", "yes"]}
compiler: {name: neuron}
"""
VISIBLE, NUMBER = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"


def machine(*, here: bool = True) -> NeuronHost:
    packages = {"neuronx-cc": "2.26.6360.0", "torch-neuronx": "2.9.0.2.15.32035", "libneuronxla": "2.2.17544.0"}
    return NeuronHost(packages, "trn1", 32, 1, "trn1.32xlarge", here=here)


def test_variables_of_the_runtime_leave_some_cores():
    for variables, count in [
        ({}, 32),
        ({NUMBER: "8"}, 8),
        ({NUMBER: "0"}, 32),
        ({NUMBER: "32"}, 32),
        ({VISIBLE: "3"}, 1),
        ({VISIBLE: "4-7"}, 4),
        ({VISIBLE: "0-3, 3, 8-9"}, 6),
        ({VISIBLE: "0-1", NUMBER: "8"}, 2),
        ({VISIBLE: " "}, 32),
    ]:
        assert allowed(32, variables) == count


@pytest.mark.parametrize("variables", [{NUMBER: "all"}, {VISIBLE: "a"}, {VISIBLE: "3-1"}, {VISIBLE: "0,,1"}])
def test_variables_that_cannot_be_read_are_told(variables):
    with pytest.raises(UsageError, match="cannot be read"):
        allowed(32, variables)


@pytest.mark.parametrize(
    "variables, message",
    [
        ({VISIBLE: "0-63"}, f"{VISIBLE}=0-63: there is no core 32"),
        ({VISIBLE: "40"}, f"{VISIBLE}=40: there is no core 40"),
        ({VISIBLE: "0,32", NUMBER: "2"}, f"{VISIBLE}=0,32: there is no core 32"),
        ({NUMBER: "33"}, f"{NUMBER}=33: that many cores do not exist"),
    ],
)
def test_cores_that_are_not_there_are_told(variables, message):
    """The runtime refuses them, in each worker and after minutes; some of them were started all the same."""
    with pytest.raises(UsageError) as caught:
        allowed(32, variables)
    assert caught.value.message == message
    assert caught.value.cause.startswith("the machine has 32")
    assert f"set {VISIBLE if VISIBLE in variables else NUMBER} to " in caught.value.hint
    assert allowed(0, variables) == 0, "of a machine without a device it is not known what it lacks"


def test_verbs_refuse_cores_that_are_not_there(tmp_path):
    """As neuron-ls lists two."""
    user = NeuronMachine(tmp_path)
    for verb in ("plan", "train"):
        error = user(verb, "tiny.yaml", code=2, **{VISIBLE: "0-63"})["error"]
        assert error["message"] == f"{VISIBLE}=0-63: there is no core 2"
        assert error["cause"] == "trn1.2xlarge has 2, numbered from 0"
        assert error["hint"].startswith(f"set {VISIBLE} to 0-1 or less, or unset it")
    found = user("doctor", code=1, **{VISIBLE: "0-63"})["findings"]
    (said,) = [one for one in found if one["check"] == "neuron-flags"]
    assert (said["state"], said["said"].partition(";")[0]) == ("problem", f"{VISIBLE}=0-63: there is no core 2")
    error = user("plan", "tiny.yaml", "--set", "parallel.data_parallel_size=2", code=2, **{VISIBLE: "1"})["error"]
    assert error["message"] == "parallel.data_parallel_size is 2, but there is 1 core"
    assert error["cause"] == f"{VISIBLE}=1 leaves only these"
    assert user.host.compiles == 0


@pytest.mark.feature("K1")
def test_key_and_launcher_have_as_many_workers_as_cores_are_left(tmp_path, monkeypatch):
    def seen(text: str = TEXT, *, here: bool = True) -> tuple[int, int]:
        recipe, host = load_text(text), machine(here=here)
        command = RunCommand(Run(recipe, tmp_path, "trial"), host, Node())
        hard = prepare(recipe, Neuron(host)).ingredients.hard
        return hard["parallel.data_parallel_size"], command.workers

    assert seen() == (32, 32)
    assert seen(TEXT + f"environment: {{{VISIBLE}: 0-15}}\n") == (16, 16)
    monkeypatch.setenv(NUMBER, "2")
    assert seen() == (2, 2)
    assert seen(TEXT + f"environment: {{{NUMBER}: 4}}\n") == (4, 4)
    assert seen(here=False) == (32, 32), "this shell's variables say nothing of another machine"
    with pytest.raises(RecipeError, match="is 4, but there are 2 cores"):
        seen(TEXT + "parallel: {data_parallel_size: 4}\n")


def theirs(said: str, workers: int) -> list[str]:
    """What each worker's core is by torch-xla's own code, of which nothing else is loaded."""
    root = find_spec("torch_xla")
    if root is None:
        pytest.skip("no torch-xla here (make test-xla)")
    path = Path(root.submodule_search_locations[0], "_internal", "neuron_utils.py")
    found = []
    for rank in range(workers):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VISIBLE, said)
            runpy.run_path(str(path))["remap_visible_cores"](rank, workers)
            found.append(os.environ[VISIBLE])
    return found


LISTS = [
    ("4-7", "auto", "4,5,6,7"),
    ("4-7", 2, "4,5"),
    ("0-3, 3, 8-9", "auto", "0,1,2,3,8,9"),
    ("9,3", "auto", "9,3"),
    ("0-31", "auto", ",".join(map(str, range(32)))),
    ("5", "auto", "5"),
]


def environment(said: str, copies: object, folder: Path) -> tuple[dict[str, str | None], int]:
    text = f"{TEXT}parallel: {{data_parallel_size: {copies}}}\nenvironment: {{{VISIBLE}: '{said}'}}\n"
    command = RunCommand(Run(load_text(text), folder, "trial"), machine(), Node())
    return command.environment(()), command.workers


@pytest.mark.parametrize("said, copies, wanted", LISTS)
def test_workers_are_told_as_many_cores_as_they_are(tmp_path, monkeypatch, said, copies, wanted):
    """torch-xla refuses a list of another length, and one that has a core twice."""
    found, workers = environment(said, copies, tmp_path)
    assert (found[VISIBLE], workers) == (wanted, wanted.count(",") + 1)
    monkeypatch.setenv(VISIBLE, said)
    assert environment("1", "auto", tmp_path)[0][VISIBLE] == "1", "the recipe's goes before the shell's"
    monkeypatch.delenv(VISIBLE)
    bare = RunCommand(Run(load_text(TEXT), tmp_path, "trial"), machine(), Node())
    assert VISIBLE not in bare.environment(())
    recipe = load_text(f"{TEXT}environment: {{{VISIBLE}: '{said}'}}\n")
    own = Neuron(machine()).watch(Run(recipe, tmp_path, "command"))
    assert VISIBLE not in own.environment, "whoever starts workers himself says on which cores they run"


@pytest.mark.xla
@pytest.mark.parametrize("said, copies, wanted", LISTS)
def test_torch_xla_takes_the_list(tmp_path, said, copies, wanted):
    found, workers = environment(said, copies, tmp_path)
    assert theirs(str(found[VISIBLE]), workers) == wanted.split(",")


@pytest.mark.parametrize(
    "name, chip, lnc, first", [("neuron", "trn1", 1, "trn2"), ("neuron-native", "trn2", 2, "trn3")]
)
def test_a_recipe_that_names_another_machine_is_refused_before_anything_compiles(name, chip, lnc, first):
    """Its graphs would be compiled for that one, and none of them kept: they are judged by the machine's own."""
    packages = {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0" if name != "neuron" else "2.9.0.2.15.32035"}
    made = Neuron if name == "neuron" else NeuronNative

    def planned(variable: str, value: object, *, here: bool = True, flags: str = "[]"):
        host = NeuronHost({**packages, "libneuronxla": "2.2"}, chip, 4, lnc, f"{chip}.48xlarge", here=here)
        text = TEXT.replace("name: neuron", f"name: {name}, flags: {flags}")
        return prepare(load_text(f"{text}environment: {{{variable}: {value}}}\n"), made(host))

    target, cores, other = "NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_LOGICAL_NC_CONFIG", 3 - lnc
    for variable, wrong, right in ((target, first, chip), (cores, other, lnc)):
        with pytest.raises(RecipeError, match=rf"environment\.{variable} is {wrong}, but graphs") as caught:
            planned(variable, wrong)
        assert caught.value.hint == f"remove it from the recipe, and export {variable}={wrong} in the shell"
        with pytest.raises(RecipeError) as caught:
            planned(variable, wrong, here=False)
        assert "--instance" in caught.value.hint
        planned(variable, right)
    planned(target, f"{chip}n")  # the same chip by another name
    if name == "neuron":  # a module keeps its flags beside it, and is judged by them
        planned(cores, other, flags=f"['-lnc={other}']")
    with pytest.raises(RecipeError, match=cores):
        planned(cores, other, flags=f"['-lnc={lnc}']")


@pytest.mark.feature("K1", "K2")
def test_a_rate_of_zero_or_one_is_in_the_key_and_no_other(monkeypatch):
    def hard(rate: str) -> dict:
        found = prepare(load_text(f"{TEXT}training: {{learning_rate: {rate}}}\n"), Neuron(machine())).ingredients
        return {**found.hard, "key": found.key}

    plain = hard("5e-5")
    assert hard("3e-4") == plain
    assert "compiler.constant_rate" not in plain
    one, zero = hard("1"), hard("0")
    assert (one["compiler.constant_rate"], zero["compiler.constant_rate"]) == (1.0, 0.0)
    assert len({plain["key"], one["key"], zero["key"]}) == 3
