"""`why --run`: which modules compiled although the plan said hit, and which part of their names is not recorded."""

from __future__ import annotations

import hashlib
import json

import pytest
from msgspec import structs

from cachekit.cli.why import of_run
from cachekit.compilers.neuron.explain import module_name
from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store.layout import Layout
from cachekit.store.record import File, Module
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from cachekit.verbs.why_run import why_run
from tests.compilers.neuron.neuron_machine import Machine
from tests.support.standins import PROVENANCE, StandIn, Watched, make_record, publish
from tests.verbs.test_run import TRAIN, User
from tests.verbs.verb_cases import home  # noqa: F401 - a fixture

V26 = "neuronxcc-2.26.0.0+6f180f47"
A = f"{V26}/MODULE_10000000000000000001+aaaaaaaa"
B = f"{V26}/MODULE_10000000000000000002+aaaaaaaa"


@pytest.fixture
def journaled(home):
    """Makes sessions whose journal is written."""
    made = []

    def make(verb, **options):
        made.append(Watched(home, journal=Journal(Layout(home).journal, verb), **options))
        return made[-1]

    yield make
    for watched in made:
        watched.journal.close()


# Names of modules


@pytest.mark.feature("W2")
def test_what_of_a_modules_name_is_new():
    for name, relation, words in [
        (f"{V26}/MODULE_10000000000000000003+aaaaaaaa", "graph", "the flags are the recorded ones"),
        (f"{V26}/MODULE_10000000000000000001+bbbbbbbb", "flags", "aaaaaaaa in the record, bbbbbbbb now"),
        (f"{V26}/MODULE_10000000000000000009+bbbbbbbb", "new", "neither its graph nor its flags"),
        (A, "recorded", "the record has it"),
        ("neuronxcc-2.27.0.0+1/MODULE_10000000000000000001+aaaaaaaa", "compiler", f"recorded for {V26}"),
        (f"{V26}/something", "unknown", "Neuron is not known to give"),
    ]:
        found = module_name(name, [B, A])
        assert found.relation == relation
        assert words in found.words[0]


# Runs


def test_a_hit_that_compiled_nothing_says_so(home, journaled, tmp_path):
    warm(journaled("warm").session, Watched(home).prepare())
    again = journaled("warm")
    warm(again.session, again.prepare())
    found = why_run(again.store)
    assert of_run(found) == [f"warm of toy, {found.run}: compiled nothing; 3 graphs found"]
    watched = journaled("train")
    train(watched.session, watched.prepare(), output_dir=tmp_path / "out")
    found = why_run(watched.store)
    assert (found.verb, found.recipe, found.planned, found.compiled, found.found) == ("train", "toy", "hit", 0, 3)
    assert of_run(found) == [f"train of toy, {found.run}: compiled nothing; 3 graphs found"]


@pytest.mark.feature("W2")
def test_a_hit_that_compiled_says_when(home, journaled, tmp_path):
    warm(journaled("warm").session, Watched(home).prepare())
    watched = journaled("train", compiler=StandIn(extra=1))
    done = train(watched.session, watched.prepare(), output_dir=tmp_path / "out")
    found = why_run(watched.store)
    assert (found.planned, found.compiled, found.found) == ("hit", done.compiled, 3)
    assert found.compiled == 1
    assert "although the plan was a hit" in " ".join(of_run(found))


def test_counters_of_inductor_are_told(home):
    journal = Journal(Layout(home).journal, "train")
    journal.emit("plan", recipe="toy", key="f" * 64, status="hit")
    counters = {"found": 2, "compiled": 3, "fxgraph_cache_miss": 1, "autograd_cache_bypass": 2}
    journal.emit("worker.end", mode="train", counters=counters)
    journal.emit("train.compiled", graphs=3, built=1, when=["evaluation"])
    journal.close()
    found = why_run(Store(home, Journal(None, "")))
    assert (found.compiled, found.found, found.built, found.phases) == (3, 2, 1, ("evaluation",))
    assert [words.partition(":")[0] for words in found.words] == [
        "Inductor looked for 1 and had none",
        "Inductor refused to cache 2",
    ]


def neuron_record(names, flags):
    """A record of Neuron's with these modules, each with its flags' file."""
    record, _ = make_record(1)
    contents = {}
    modules = []
    for name in names:
        files = []
        for path, raw in (("compile_flags.json", json.dumps(flags[name]).encode()), ("model.neff", name.encode())):
            digest = hashlib.sha256(raw).hexdigest()
            contents[digest] = raw
            files.append(File(path, len(raw), digest))
        modules.append(Module(name, tuple(files)))
    return structs.replace(record, compiler="neuron", modules=tuple(modules), provenance=PROVENANCE), contents


@pytest.mark.feature("W2")
def test_the_modules_of_a_run_are_compared_with_those_recorded_before(home):
    respelled = f"{V26}/MODULE_10000000000000000001+bbbbbbbb"
    fresh = f"{V26}/MODULE_10000000000000000003+aaaaaaaa"
    flags = {A: ["--auto-cast=none"], B: ["--auto-cast=none"]}
    flags |= {respelled: ["--auto-cast", "none"], fresh: ["--auto-cast=none"]}
    store = Store(home, Journal(None, ""))
    record = publish(store, neuron_record([A, B, respelled, fresh], flags))
    journal = Journal(Layout(home).journal, "train")
    journal.emit("plan", recipe="toy", key=record.key, status="hit")
    journal.emit("worker.end", mode="train", counters={"found": 2, "compiled": 3})
    journal.emit("cache.bypass", reason="remote-offline", detail="hf://team/cache")
    journal.emit(
        "train.compiled", graphs=3, built=3, when=["evaluation"], key=record.key,
        modules=[respelled, fresh], again=[B], seconds={fresh: 61.5},
    )  # fmt: skip
    journal.close()
    found = why_run(store)
    assert {module.name: module.differs for module in found.modules} == {
        respelled: "flags", fresh: "graph", B: "recorded"
    }  # fmt: skip
    lines = of_run(found)
    assert f"  {fresh}  1 min 2 s" in lines
    text = " ".join(" ".join(lines).split())
    assert "spelling is in the key" in text
    assert "remote-offline: a remote was not asked" in text
    assert found.as_dict()["bypassed"] == {"remote-offline": 1}


def test_the_last_run_is_one_that_could_compile(home):
    first = Journal(Layout(home).journal, "train")
    first.emit("plan", recipe="toy", key="f" * 64, status="hit")
    first.close()
    second = Journal(Layout(home).journal, "push")
    second.run = "9" + second.run[1:]
    second._path = second.path.with_name(f"{second.run}.jsonl")
    second.emit("push.start")
    second.close()
    assert why_run(Store(home, Journal(None, ""))).verb == "train"


def test_a_run_that_failed_says_what_ended_it(home):
    journal = Journal(Layout(home).journal, "warm")
    journal.emit("run.failed", error="StoreError", message="the disk is full")
    journal.close()
    found = why_run(Store(home, Journal(None, "")))
    assert (found.recipe, found.failure) == ("", "the disk is full")
    assert "  it failed: the disk is full" in of_run(found)


@pytest.mark.feature("W2")
def test_a_graph_that_the_trial_run_did_not_reach_is_named_on_neuron(tmp_path):
    """The stand-in SDK's compiler compiles it, and Neuron's own name for it is told."""
    machine = Machine(tmp_path / "user")
    machine.graphs(1, 2)
    machine("warm", "tiny.yaml")
    known = {module["name"] for module in machine("plan", "tiny.yaml")["modules"]}
    machine.graphs(1, 2, 3)
    assert machine("train", "tiny.yaml")["compiled"] == 1
    (new,) = {module["name"] for module in machine("plan", "tiny.yaml")["modules"]} - known
    told = machine("why", "--run", "last")
    assert (told["verb"], told["planned"], told["compiled"], told["found"]) == ("train", "hit", 1, 2)
    assert [(module["name"], module["differs"]) for module in told["modules"]] == [(new, "graph")]


def test_a_users_own_command_that_compiled_all_the_same(tmp_path):
    """What it reads at run time is in no key; Inductor's name for what is new is none, so it is counted."""
    user = User(tmp_path / "one")
    (user.work / "parts.py").write_text("GRAPHS = open('graphs').read().split()\n")
    (user.work / "graphs").write_text("forward")
    user.run(*TRAIN)
    assert json.loads(user("why", "--run", "last", "-f", "json").stdout)["planned"] == "miss"
    (user.work / "graphs").write_text("forward backward")
    assert user.run(*TRAIN)["status"] == "hit"
    found = json.loads(user("why", "--run", "last", "-f", "json").stdout)
    assert (found["verb"], found["recipe"], found["planned"]) == ("run", "train.py", "hit")
    assert (found["compiled"], found["built"], found["modules"]) == (1, 1, [])


def test_a_run_that_has_not_ended_is_not_said_to_have_compiled_nothing(home):
    journal = Journal(Layout(home).journal, "warm")
    journal.emit("plan", recipe="toy", key="f" * 64, status="miss")
    store = Store(home, Journal(None, ""))
    assert not why_run(store).untold, "nothing can have compiled yet"
    journal.emit("worker.start", mode="trial")
    found = why_run(store)
    assert (found.ended, found.untold) == (False, True)
    (line,) = [" ".join(" ".join(of_run(found)).split())]
    assert line.endswith("what it compiled is not known: it was killed, or is still running")
    journal.emit("worker.end", mode="trial", counters={"found": 0, "compiled": 3})
    text = " ".join(of_run(why_run(store)))
    assert "compiled 3 graphs" in text
    assert "it was killed, or is still running" in text
    journal.close()
    assert "killed" not in " ".join(of_run(why_run(store)))
