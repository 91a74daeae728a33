"""`cachekit warm --for TYPE`: a machine without a device compiles for an instance type that has one.

The SDK is a stand-in, whose tracing needs no device; nobody has shown that the real one's does not.
"""

from __future__ import annotations

import json
import shutil

import pytest

from cachekit.compilers.neuron import facts
from tests.compilers.neuron.native_machine import NativeMachine
from tests.compilers.neuron.neuron_machine import Machine
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.cli_session import the_error

pytest_plugins = ["tests.support.cli_session"]
TYPE = "trn1.2xlarge"


@pytest.fixture(autouse=True)
def _alone():
    with neuron_alone():
        yield


@pytest.mark.feature("W4")
def test_what_a_machine_without_a_device_compiles_is_a_hit_on_one_that_has_it(tmp_path):
    dear, cheap = Machine(tmp_path / "dear"), Machine(tmp_path / "cheap")
    for one in (dear, cheap):
        one.graphs(1, 2)
    cheap.host.knobs(devices=0)
    there = dear("plan", "tiny.yaml")
    here = cheap("warm", "tiny.yaml", "--for", TYPE, "--dry-run")
    assert here["key"] == there["key"]
    assert here["lacks"]["device"] == facts.XLA_WITHOUT_DEVICE
    warmed = cheap("warm", "tiny.yaml", "--for", TYPE)
    assert (warmed["compiled"], warmed["next"]) == (2, "cachekit push")

    shutil.copytree(cheap.home, dear.home, dirs_exist_ok=True)
    trained = dear("train", "tiny.yaml", "--require-warm")
    assert (trained["compiled"], trained["found"]) == (0, 2)


def test_a_list_is_compiled_for_it_too_and_without_it_there_is_nothing_to_compile_for(tmp_path):
    cheap = Machine(tmp_path / "cheap")
    cheap.graphs(1)
    cheap.host.knobs(devices=0)
    refused = cheap("warm", "tiny.yaml", code=1)["error"]
    assert "there is no Neuron device here to compile for" in refused["message"]
    (cheap.work / "list.yaml").write_text(json.dumps([{"recipe": "tiny.yaml"}]))
    assert cheap("warm", "--matrix", "list.yaml", "--for", TYPE, "--dry-run")["miss"] == 1
    assert cheap("warm", "--matrix", "list.yaml", "--for", TYPE)["compiled"] == 1


@pytest.mark.feature("W4")
def test_torchneuron_promises_no_hit_and_says_so(tmp_path):
    laptop = NativeMachine(tmp_path / "laptop")
    laptop.host.knobs(devices=0)
    laptop.graphs("forward", "backward")
    planned = laptop("warm", "tiny.yaml", "--for", "trn2.3xlarge", "--dry-run")
    assert "A host with devices has another key" in planned["lacks"]["device"]
    assert planned["ingredients"]["hard"]["parallel.data_parallel_size"] == 4
    assert "does not compile for trn1.2xlarge" in laptop("warm", "tiny.yaml", "--for", TYPE, code=2)["error"]["message"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--for", "g5.xlarge"), "nothing compiles for g5.xlarge on another machine"),
        (("--for", TYPE, "--compiler", "inductor"), "inductor compiles for the machine that it runs on"),
        (("--for", TYPE, "--instance", TYPE), "--instance is for the machines of an engine"),
        (("--for", "trn9.big"), "there is no instance named 'trn9.big'"),
        (("--for", TYPE, "--check-build"), "--check-build compiles for this machine"),
        (("--for", "g5.xlarge", "--on", "local", "--dry-run"), "nothing compiles for g5.xlarge on another machine"),
        (("--for", TYPE, "--instance", TYPE, "--on", "local"), "--for names the machine that the code is compiled for"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(command, words, says):
    assert says in the_error(command("warm", "bert", *words, code=2))[1]


@pytest.mark.feature("P4")
def test_a_dry_run_compares_the_prices_and_names_the_doubt(command):
    words = ("warm", "bert", "--on", "local", "--for", "trn1.32xlarge", "--price", "0.34", "--dry-run")
    planned = command(*words, "--format", "json").json
    assert planned["compile_for"] == "trn1.32xlarge"
    assert (planned["price"]["per_hour"], planned["price_there"]["per_hour"]) == (0.34, 21.5)
    assert planned["doubt"] == facts.XLA_WITHOUT_DEVICE
    assert "--for trn1.32xlarge" in planned["request"]
    screen = " ".join(command(*words).out.split())
    assert "at $21.50 an hour" in screen
    assert "cheaper on these machines if it takes less than 63.2 times as long" in screen
    unknown = command("warm", "bert", "--on", "local", "--for", "trn2.48xlarge", "--dry-run").out
    assert "the registry has no price for it" in " ".join(unknown.split())
