"""Plan, with a stand-in for the compiler: it leaves no trace, and what it says is what happens."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit import api
from cachekit.api import Cache
from cachekit.cli.plan import one
from cachekit.compilers.adapter import Adapter
from cachekit.errors import MissError
from cachekit.recipe import zoo
from cachekit.remotes.folder import FolderStorage
from cachekit.verbs.forecast import forecast
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import planned
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.watched_storages import Broken
from tests.support.standins import StandIn, Watched, overwrite, recipe, runs
from tests.verbs.verb_cases import blob, home, log, output, warmed  # noqa: F401 - fixtures

# Plan


def test_a_plan_leaves_no_trace(home, log):
    watched = Watched(home)
    found = plan(watched.prepare(), watched.store)
    assert (found.hit, found.nearest, found.expected_seconds) == (False, None, None)
    assert not home.exists()
    assert runs(log) == []


@pytest.mark.feature("P1")
def test_a_plan_names_the_modules_that_a_train_finds(home, log, output):
    watched = Watched(home)
    cold = planned(plan(watched.prepare(), watched.store)).as_dict()
    assert (cold["status"], cold["modules"], cold["graphs"]) == ("miss", [], None)
    record = warm(watched.session, watched.prepare()).record
    hot = planned(plan(watched.prepare(), watched.store)).as_dict()
    assert (hot["status"], hot["key"], hot["graphs"]) == ("hit", cold["key"], 3)
    assert [module["name"] for module in hot["modules"]] == [module.name for module in record.modules]
    assert (hot["expected_seconds"], hot["saved_seconds"]) == (0.0, 30.0)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.counters["found"]) == (0, hot["graphs"])


def test_what_could_not_be_asked_is_no_miss(tmp_path, log):
    for name in ("shared", "other"):
        (tmp_path / name).mkdir()
    storage, other = FolderStorage(tmp_path / "shared"), FolderStorage(tmp_path / "other")
    broken = (Broken(storage, "read"), "r")
    bob = Watched(tmp_path / "bob", shared=[broken])
    found = plan(bob.prepare(), bob.store, bob.session.remotes)
    answer = planned(found)
    assert (found.hit, answer.status, answer.unanswered[0].remote) == (False, "unknown", storage.name)
    assert (answer.miss().exit_code, answer.miss().cause) == (7, "it is away: the cable is cut")
    assert "could not be asked: it is away: the cable is cut" in " ".join(" ".join(one(answer)).split())
    every = forecast([("toy", bob.prepare)], bob.store, bob.session.remotes)
    assert (every.totals.unknown, every.totals.miss, every.miss().exit_code) == (1, 0, 7)
    ann = Watched(tmp_path / "ann", shared=[(other, "rw")])
    warm(ann.session, ann.prepare())
    # Another remote that has it is enough.
    carl = Watched(tmp_path / "carl", shared=[broken, (other, "r")])
    assert planned(plan(carl.prepare(), carl.store, carl.session.remotes)).status == "hit"


def test_for_a_hit_on_a_remote_the_own_records_are_not_looked_through(tmp_path):
    (tmp_path / "shared").mkdir()
    remote = (FolderStorage(tmp_path / "shared"), "rw")
    ann, bob = Watched(tmp_path / "ann", shared=[remote]), Watched(tmp_path / "bob")
    warm(ann.session, ann.prepare())
    warm(bob.session, bob.prepare(recipe(16)))
    bob = Watched(tmp_path / "bob", shared=[remote])
    bob.store.layout.index.unlink(missing_ok=True)
    assert plan(bob.prepare(), bob.store, bob.session.remotes).hit
    assert not bob.store.layout.index.exists()


def test_a_record_that_says_what_it_lacks_is_a_miss_for_plan_and_train(home, log, output, monkeypatch):
    watched = Watched(home)
    warm(watched.session, watched.prepare())
    monkeypatch.setattr(Adapter, "lacks", lambda _, modules: f"{len(modules)} modules lack a kernel")
    found = plan(watched.prepare(), watched.store)
    assert (found.hit, found.flaw) == (False, "3 modules lack a kernel")
    with pytest.raises(MissError, match="cannot be used"):
        train(watched.session, watched.prepare(), output_dir=output, require_warm=True)
    assert len(runs(log)) == 1


def test_a_plan_names_the_nearest_record_and_only_the_difference(home):
    watched = Watched(home)
    for batch, length in ((4, 64), (8, 128), (8, 512)):
        warm(watched.session, watched.prepare(recipe(batch, max_seq_length=length)))
    other = Watched(home, compiler=StandIn("2.0"))
    warm(other.session, other.prepare(recipe(16)))
    wanted = watched.prepare(recipe(8, max_seq_length=256))
    found = plan(wanted, watched.store)
    assert not found.hit
    assert [(change.name, change.new) for change in found.changes] == [("training.max_seq_length", 256)]
    assert found.changes[0].old in (128, 512)
    assert found.nearest.known.hard["training.per_device_train_batch_size"] == 8
    assert found.expected_seconds == 30.0, "a record this near tells how long it will take"
    document = planned(found).as_dict()
    assert document["nearest"]["key"] == found.nearest.known.key
    (change,) = document["nearest"]["changes"]
    assert (change["name"], change["old"], change["new"]) == ("training.max_seq_length", found.changes[0].old, 256)
    with pytest.raises(MissError, match="not warm") as caught:
        warm(watched.session, wanted, require_warm=True)
    assert "training.max_seq_length" in caught.value.cause


def test_a_record_of_another_version_tells_the_time_less_surely(home, warmed):
    other = Watched(home, compiler=StandIn("2.0"))
    found = plan(other.prepare(), other.store)
    assert [change.name for change in found.changes] == ["toolchain.standin"]
    assert found.nearest.record == warmed
    assert found.expected_seconds == 30.0
    same = plan(Watched(home).prepare(recipe(9)), other.store).expected
    assert found.expected.low < same.low < 30.0 < same.high < found.expected.high


# What plan says is what happens

ACTIONS = st.sampled_from(
    ["warm", "train", "recache", "train more", "lose a blob", "flip a blob", "lose the record", "lose the index"]
)


@pytest.mark.feature("P1")
@settings(max_examples=8, derandomize=True, database=None)
@given(st.lists(st.tuples(ACTIONS, st.sampled_from([4, 8, 16]), st.integers(0, 99)), min_size=1, max_size=8))
def test_warm_and_train_do_what_plan_says(steps):
    """Whatever happened to the store before: a hit compiles nothing, a miss compiles everything, once."""
    with tempfile.TemporaryDirectory() as folder:
        for action, batch, chosen in steps:
            _step(Path(folder), action, batch, chosen)


def _step(folder, action, batch, chosen):
    home = folder / "home"
    watched = Watched(home, wait=0, compiler=StandIn(extra=1 if action == "train more" else 0))
    prepared = watched.prepare(recipe(batch))
    record = Watched(home).lookup(prepared)
    if action.startswith(("lose", "flip")):
        if record is None:
            return
        file = blob(watched, record, chosen % len(record.files))
        if action == "lose a blob":
            file.unlink()
        elif action == "flip a blob":
            overwrite(file, bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
        elif action == "lose the record":
            watched.store.layout.record(record.place).unlink()
        else:
            watched.store.layout.index.unlink(missing_ok=True)
            assert plan(prepared, Watched(home).store).record == record
            return
        assert not plan(prepared, Watched(home).store).hit
        return
    expected = plan(prepared, Watched(home).store)
    assert expected.hit == (record is not None)
    if action == "warm":
        done = warm(watched.session, prepared)
        assert done.compiled == (0 if expected.hit else 3)
        trials = 0 if expected.hit else 1
    elif action == "recache":
        done = warm(watched.session, prepared, recache=True)
        assert done.compiled == 3
        trials = 1
    else:
        done = train(watched.session, prepared, output_dir=folder / "output")
        assert (done.status == "hit") == expected.hit
        before = len(expected.record.modules) if expected.record else 3
        more = 1 if action == "train more" and before < 4 else 0
        assert done.compiled == more
        trials = 0 if expected.hit else 1
    modes = [told["mode"] for told in watched.told("worker.start")]
    assert modes.count("trial") == trials
    assert modes.count("train") == action.startswith("train")
    assert len(plan(prepared, Watched(home).store).record.modules) >= 3
    assert watched.damage() == []


PUBLISHED = {"toolchain": "neuron-2.31", "instance": "trn1.2xlarge"}


@pytest.mark.feature("P3", "P5")
@pytest.mark.parametrize(
    ("recipe", "method", "least", "most"),
    [
        ("bert", "published", 600, 900),  # as the page says it
        ("bert-imdb", "scaled", 550, 2260),  # of the same model, whatever the larger one's seconds come to
        ("roberta-classification", "scaled", 120, 4500),  # another family: a wide range
        ("deit", "scaled", 46, 1700),  # another kind of job: over all that was published
    ],
)
def test_without_any_record_a_published_time_is_told_with_its_source(home, recipe, method, least, most):
    found = Cache(home=home, **PUBLISHED).plan(recipe)
    assert found.expected.method == method
    assert found.expected.key == ""
    assert "philschmid.de" in found.expected.source
    assert "2023" in found.expected.source
    assert found.expected.low == pytest.approx(least, rel=0.2)
    assert found.expected.high == pytest.approx(most, rel=0.2)
    paid = [seconds / 3600 * 1.34 for seconds in (found.expected.low, found.expected.high)]
    assert found.dollars_range == pytest.approx(paid, rel=1e-4)
    assert Cache(home=home, **PUBLISHED).plan_train(recipe) == found, "its dry run says the same"


@pytest.mark.feature("P3")
@pytest.mark.parametrize(
    ("recipe", "overrides", "host", "differs"),
    [
        ("bert-mnli", (), ("neuron-2.31", "trn1.32xlarge"), "instance trn1.32xlarge instead of trn1.2xlarge"),
        ("bert-mnli", (), ("neuron-2.31", "trn1.2xlarge"), "model.num_labels 3 instead of 6"),
        ("bert", (), ("neuron-2.31", "trn1.32xlarge"), "parallel.data_parallel_size 32 instead of 2"),
        ("bert", ("training.bf16=false",), ("neuron-2.31", "trn1.2xlarge"), "training.precision fp32 instead of bf16"),
        (
            "bert",
            ("training.max_seq_length=64",),
            ("neuron-2.31", "trn1.2xlarge"),
            "training.max_seq_length 64 instead",
        ),
        ("tinyllama-lora", (), ("neuron-2.26.1", "trn1.2xlarge"), "neuronx-cc 2.21.33363.0 instead of 2.26"),
    ],
)
def test_a_figure_of_another_job_is_not_told_as_published(home, recipe, overrides, host, differs):
    found = Cache(home=home, toolchain=host[0], instance=host[1]).plan(api.Variant(recipe, overrides)).expected
    assert found.method == "scaled"
    assert differs in ", ".join(found.differs)
    assert found.high / found.low > 2


@pytest.mark.feature("P3")
def test_torchneuron_has_the_figure_of_the_other_stack_which_is_said(home):
    found = Cache(home=home, toolchain="neuron-2.33", instance="trn2.48xlarge").plan("bert")
    assert found.expected.method == "scaled"
    assert "of PyTorch/XLA, as nobody has published one of neuron-native" in found.expected.source
    assert found.expected.high / found.expected.low > 4
    # AWS quotes no price of a trn2, which is said.
    assert (found.dollars, found.unpriced) == (None, "trn2.48xlarge")


@pytest.mark.feature("P3")
def test_no_recipe_of_the_zoo_compiles_for_an_unknown_time(home):
    """On the instance that each was made for, from a fresh home."""
    rows = [row for row in api.zoo_rows() if row.instances and zoo.instance(row.instances[0]).target]
    assert len(rows) > 30
    cache = Cache(home=home, instance="trn1.32xlarge")
    found = cache.plan_all([api.Variant(row.name) for row in rows])
    assert {row.name for row in found.plans if row.expected_seconds is None} == set()
