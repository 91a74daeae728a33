"""`cachekit plan` of several recipes, from the command line: prices, other machines, an upgrade of the toolchain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.compilers.neuron import host
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.prepare import prepare
from cachekit.events import Journal
from cachekit.recipe import load, zoo
from cachekit.store import Store
from tests.support.cli_session import golden, the_error
from tests.support.standins import make_record
from tests.support.standins import publish as publish_made

pytest_plugins = ["tests.support.cli_session"]
OLD, NEW, MACHINE = "neuron-2.26.1", "neuron-2.31", "trn1.2xlarge"
WARM = {"bert": 700.0, "distilbert-ner": 420.0, "vit": 640.0, "gpt2-clm": 900.0}  # seconds that each took


def json_of(command, *words, code=0):
    """What a verb says to programs."""
    return command(*map(str, words), "--format", "json", code=code).json


def warm_under(store, name, toolchain, seconds, machine=MACHINE):
    """Put a record into a store, as a warm on such a machine makes it."""
    prepared = prepare(load(zoo.recipe_path(name)), Neuron(host.named(toolchain, machine)))
    record, contents = make_record(artifacts=(name, toolchain))
    record = structs.replace(
        record,
        key=prepared.key,
        compiler="neuron",
        directory=prepared.fingerprint.directory,
        model_type=prepared.model_type,
        recipe=name,
        hard=dict(prepared.ingredients.hard),
        compile_seconds=seconds,
        provenance=structs.replace(record.provenance, instance=machine),
    )
    return publish_made(store, (record, contents))


@pytest.fixture
def store():
    return Store(Path(os.environ["CACHEKIT_HOME"]), Journal(None, "test"))


@pytest.fixture
def upgraded(monkeypatch):
    """This machine is a trn1.2xlarge, after the upgrade."""
    packages = dict(zoo.toolchain(NEW).packages)
    monkeypatch.setattr(host, "this_host", lambda _: host.NeuronHost(packages, "trn1", 2, 1, MACHINE, here=True))


@pytest.mark.feature("P1")
def test_a_choice_from_the_zoo_of_which_nothing_can_be_planned_is_an_error(command):
    some = json_of(command, "plan", "--all", "--toolchain", NEW, "--instance", MACHINE)
    assert 0 < some["totals"]["failed"] < some["totals"]["recipes"]
    none = json_of(command, "plan", "--all", "--toolchain", "neuron-2.32", "--instance", MACHINE, code=2)
    assert none["totals"]["failed"] == none["totals"]["recipes"]


# An upgrade


@pytest.mark.feature("F8", "P2", "P3", "P4")
def test_an_upgrade_forecast_is_what_misses_after_the_upgrade(command, store, upgraded):
    for name, seconds in WARM.items():
        warm_under(store, name, OLD, seconds)
    warm_under(store, "vit", NEW, 650.0)  # somebody was quicker
    there = json_of(command, "plan", "--all", "--toolchain", NEW, "--instance", MACHINE)
    command("plan", "--all", "--toolchain", NEW, "--instance", MACHINE, "--require-warm", code=2)
    cold = {row["name"] for row in there["plans"] if row["goes_cold"]}

    # What is really missing, once the new packages are installed here:
    here = json_of(command, "plan", *zoo.recipes(), "--compiler", "neuron", code=2)
    missing = {row["name"] for row in here["plans"] if row["status"] == "miss"}
    assert cold == missing & WARM.keys() == {"bert", "distilbert-ner", "gpt2-clm"}
    keys = [{row["name"]: row.get("key") for row in document["plans"]} for document in (there, here)]
    assert keys[0] == keys[1]

    rows = {row["name"]: row for row in there["plans"]}
    for name in cold:
        assert rows[name]["expected_seconds"] == pytest.approx(WARM[name], rel=0.25), "as long as with the old one"
        assert rows[name]["dollars"] == pytest.approx(rows[name]["expected_seconds"] * 1.34 / 3600, abs=1e-5)
        assert rows[name]["before"]["directory"] == "neuronxcc-2.21.33363.0"
    totals = there["totals"]
    assert totals["goes_cold"] == 3
    assert totals["goes_cold_expected_seconds"] == pytest.approx(sum(rows[name]["expected_seconds"] for name in cold))
    assert totals["goes_cold_dollars"] == pytest.approx(sum(rows[name]["dollars"] for name in cold))


@pytest.mark.feature("F8")
def test_an_upgrade_needs_no_instance_for_many_recipes(command, store):
    """Each is planned for a machine that it is known to run on, or for the smallest one."""
    for name in ("bert", "gpt2-clm"):
        expected = load(zoo.recipe_path(name)).expect[0].instance
        warm_under(store, name, OLD, 700.0, machine=expected)
    document = json_of(command, "plan", "--all", "--toolchain", NEW)
    rows = {row["name"]: row for row in document["plans"]}
    assert {name for name, row in rows.items() if row["goes_cold"]} == {"bert", "gpt2-clm"}
    assert (rows["bert"]["elsewhere"], rows["gpt2-clm"]["elsewhere"]) == ("trn1.2xlarge", "trn1.32xlarge")
    assert rows["demo"]["elsewhere"] == "trn1.2xlarge"


# Prices


@pytest.mark.feature("P4")
@pytest.mark.parametrize(
    "said, per_hour, machine",
    [
        (("--instance", MACHINE), 1.34, MACHINE),
        (("--instance", MACHINE, "--price", "0.5"), 0.5, MACHINE),
        (("--instance", MACHINE, "--price", f"{MACHINE}=0.25", "--price", "9"), 0.25, MACHINE),
        (("--instance", MACHINE, "--price", "trn1.32xlarge=7"), 1.34, MACHINE),
        (("--instance", MACHINE, "--price", "trn1.32xlarge"), 21.5, "trn1.32xlarge"),
        (("--target", "trn1"), 1.34, MACHINE),
    ],
)
def test_dollars_are_seconds_times_the_price(command, store, said, per_hour, machine):
    warm_under(store, "bert", NEW, 700.0)
    for names in (["bert"], ["bert", "distilbert-ner"]):
        document = json_of(command, "plan", *names, "--set", "training.max_seq_length=64", *said)
        row = document["plans"][0] if len(names) > 1 else document
        assert (row["price"]["per_hour"], row["price"]["instance"]) == (per_hour, machine)
        assert row["expected_seconds"] > 0
        assert row["dollars"] == pytest.approx(row["expected_seconds"] * per_hour / 3600, abs=1e-5)
    hit = json_of(command, "plan", "bert", *said)
    assert (hit["status"], hit["dollars"]) == ("hit", 0.0)


# The zoo, and what is printed


@pytest.mark.feature("P1")
def test_the_zoo_is_chosen_from_as_zoo_ls_does(command):
    def names(*arguments):
        return {row["name"] for row in json_of(command, "plan", *arguments, "--instance", MACHINE)["plans"]}

    recipes = {name: load(path) for name, path in zoo.recipes().items()}
    assert names("--task", "translation") == {name for name, one in recipes.items() if one.task == "translation"}
    assert names("--model", "vit") == {"vit"}
    assert names("--all", "--task", "token-classification", "--model", "electra") == {"electra-ner"}
    assert "bert-imdb" not in names("--task", "text-classification", "--max-price", "2")


@pytest.fixture
def several(command, machine, tmp_path, monkeypatch, store):
    """Two recipes of the Neuron zoo that were warm, one that never was, and a name of none."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("bert", "distilbert-ner"):
        warm_under(store, name, OLD, WARM[name])
    warm_under(store, "vit", NEW, 640.0)
    return ["bert", "distilbert-ner", "vit", "camembert-classification", "bert", "nobody", "--toolchain", NEW]


@pytest.mark.feature("P1", "P4", "U2")
def test_a_table_for_people(several, command):
    shown = command("plan", *several, code=2)
    assert max(map(len, shown.out.splitlines())) <= 80
    golden("plan-several", shown.out)
    assert the_error(shown)[:2] == ("unknown-name", "1 of 6 could not be planned: nobody")
    fresh = command("plan", "bert", "vit", "--toolchain", NEW, "--instance", "inf2.xlarge", "--home", "fresh").out
    golden("plan-several-fresh", fresh)
    quiet = command("plan", *several, "--format", "quiet", code=2).out.splitlines()
    assert quiet[0] == "miss bert"
    assert quiet[-1] == "failed nobody"


def test_a_recipe_in_small_is_named_as_it_was_typed(command):
    several = ("plan", "bert", "vit", "--tiny", "--toolchain", NEW, "--instance", MACHINE)
    assert [row["name"] for row in json_of(command, *several)["plans"]] == ["bert --tiny", "vit --tiny"]
    assert "bert --tiny  miss" in command(*several).out
