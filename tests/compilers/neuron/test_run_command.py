"""How a Neuron run is started: its root, the wrapper's options, its nodes."""

from __future__ import annotations

import math
import shutil
import sys

import pytest
from msgspec import structs

from cachekit.compilers.neuron import options
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.port import Node, Run
from cachekit.errors import RecipeError, UsageError
from cachekit.process import SUBREAPER
from tests.compilers.neuron.neuron_compile_cases import ALONE, host, recipe, watch  # noqa: F401 - fixtures


def test_flag_and_variable_name_the_same_root(host, tmp_path):
    seen = watch(tmp_path, "compiler: {flags: [--model-type, transformer]}")
    root = tmp_path / "root"
    assert seen.environment["NEURON_CC_FLAGS"] == f"--model-type transformer --cache_dir={root}"
    assert seen.environment["NEURON_COMPILE_CACHE_URL"] == str(root)


@pytest.mark.parametrize("program", ["neuronx-cc", "pip"])
def test_this_environments_compiler_goes_before_that_of_another_sdk(host, tmp_path, monkeypatch, program):
    """Its version is in the key; what it does not have is taken from where the shell finds it."""
    tools = tmp_path / "environment" / "bin"
    tools.mkdir(parents=True)
    (tools / program).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tools / "python"))
    monkeypatch.setenv("PATH", f"{host.bin}:{tools}")
    path = watch(tmp_path).environment["PATH"]
    found = tools if program == "neuronx-cc" else host.bin
    assert shutil.which("neuronx-cc", path=path) == str(found / "neuronx-cc")
    assert str(tools) in path.split(":")


@pytest.mark.parametrize("where", ["in the shell", "in the recipe"])
def test_the_wrappers_options_reach_it_and_no_key(host, tmp_path, monkeypatch, where):
    said = "--retry_failed_compilation --dump /d --cache_dir=/elsewhere"
    flags = "-O1"
    if where == "in the shell":
        monkeypatch.setenv("NEURON_CC_FLAGS", f"{flags} {said}")
        text = ""
    else:
        text = f"compiler: {{flags: [{', '.join(f'{flags} {said}'.split())}]}}"
    words = watch(tmp_path, text).environment["NEURON_CC_FLAGS"]
    assert words == f"-O1 --retry_failed_compilation --dump /d --cache_dir={tmp_path / 'root'}"
    assert Neuron(ALONE).ingredients(recipe(tmp_path, text))["flags"] == ["-O1"]


def test_a_log_level_that_hides_what_is_read_is_left_out_and_told(host, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--log_level ERROR")
    seen = watch(tmp_path)
    told: list[dict] = []
    seen.begin(told.append)
    assert "--log_level" not in seen.environment["NEURON_CC_FLAGS"]
    assert ["ERROR" in event["note"] for event in told] == [True]


def test_one_node_has_a_rendezvous_of_its_own(host, tmp_path):
    prefix = list(watch(tmp_path).prefix)
    assert prefix[:3] == list(SUBREAPER)
    assert "--nproc_per_node=2" in prefix
    assert "--nnodes=1" in prefix
    trial = list(watch(tmp_path, "compiler: {options: {num_parallel: 3}}", trial=True).prefix)
    assert trial[3:6] == [str(host.bin / "neuron_parallel_compile"), "--num_parallel", "3"]


def test_several_nodes_meet_at_the_first(host, tmp_path):
    text = "parallel: {nodes: 2}"
    with pytest.raises(UsageError, match="has not been told which of them it is") as raised:
        watch(tmp_path, text)
    assert "--master-addr" in raised.value.hint
    with pytest.raises(UsageError):
        watch(tmp_path, text, node=Node(2, "10.0.0.1"))
    seen = watch(tmp_path, text, node=Node(1, "10.0.0.1", 41000))
    assert {"--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=41000"} <= set(seen.prefix)
    assert seen.environment["FI_PROVIDER"] == "efa"


@pytest.mark.parametrize("kind", ["trial", "train", "command"])
def test_kernels_of_an_earlier_session_are_not_replayed_whatever_the_shell_says(host, tmp_path, monkeypatch, kind):
    """From 0.6 on NKI keeps what it traced; the variables that say so are in no key, so the cache must be off."""
    monkeypatch.setenv("NKI_ENABLE_TRACE_CACHE", "1")
    seen = Neuron(ALONE).watch(Run(recipe(tmp_path), tmp_path / "root", kind)).environment
    assert (seen["NKI_ENABLE_TRACE_CACHE"], seen["NKI_DISABLE_TRACE_CACHE"]) == ("0", "1")


@pytest.mark.parametrize("name", ["NEURON_CC_FLAGS", "NEURON_EXTRACT_GRAPHS_ONLY", "NKI_ENABLE_TRACE_CACHE"])
def test_variables_that_are_cachekits_are_refused_in_a_recipe(tmp_path, name):
    made = recipe(tmp_path, f"environment: {{{name}: x}}")
    with pytest.raises(RecipeError, match=name):
        Neuron(ALONE).ingredients(made)


def test_unknown_options_are_refused(tmp_path):
    made = recipe(tmp_path, "compiler: {options: {num_paralel: 3}}")
    with pytest.raises(RecipeError, match="num_paralel") as raised:
        Neuron(ALONE).ingredients(made)
    assert raised.value.hint == "did you mean compiler.options.num_parallel?"
    made = recipe(tmp_path, "compiler: {options: {auto_cast: none}}")
    with pytest.raises(RecipeError, match=r"compiler.options.auto_cast is not an option") as raised:
        Neuron(ALONE).ingredients(made)
    assert "compiler.flags" in raised.value.hint


@pytest.mark.parametrize(
    "name, value",
    [
        *(("num_parallel", value) for value in ("many", "2", 2.7, True, 0, -1, None)),
        *(("exit_timeout", value) for value in ("soon", math.inf, 0, "")),
        *(("compile_timeout", value) for value in (math.nan, -5, False, None)),
    ],
)
def test_an_option_with_a_value_that_it_cannot_have_is_refused_by_its_name(tmp_path, name, value):
    made = recipe(tmp_path)
    made = structs.replace(made, compiler=structs.replace(made.compiler, options={name: value}))
    with pytest.raises(RecipeError, match=rf"compiler\.options\.{name} cannot be {value!r}"):
        Neuron(ALONE).ingredients(made)


def test_options_are_heard(host, tmp_path):
    made = recipe(tmp_path, "compiler: {options: {num_parallel: 3, exit_timeout: 2.5, compile_timeout: 60}}")
    Neuron(ALONE).ingredients(made)
    assert [options.jobs_for_memory(gib << 30) for gib in (1, 32, 64, 65, 512)] == [1, 1, 1, 2, 8]
    said = options.read(made, options.XlaOptions)
    assert (said.jobs, said.exit_timeout, said.compile_timeout) == (3, 2.5, 60.0)
