"""What the library calls frozen is a value: equal ones are equal wherever they come from, and can be kept in sets."""

from __future__ import annotations

import copy
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cachekit

pytest_plugins = ["tests.support.cli_session"]

LONGER = {"training.max_seq_length": 16}
CACHE_DIR = {"Session", "Store", "Attachment", "Attached", "Cache", "CacheCallback"}  # they hold what goes on

FOUND = "2026-07-29 17:25:29.000943:  1  [INFO]: Using a cached neff at /c/neuronxcc-2.26/MODULE_1+f7f529f3/model.neff"


def results(tmp_path):
    """One of each kind that the library answers with, and what they hold."""
    (tmp_path / "shared").mkdir()
    team = cachekit.Cache(cache=f"local:rw,file://{tmp_path / 'shared'}:rw")
    warmed = cachekit.warm("tiny.yaml")
    yield warmed
    yield cachekit.records()[0]
    yield cachekit.load_recipe(cachekit.Variant("tiny.yaml", {"environment.XLA_X": 1}))
    yield cachekit.plan("tiny.yaml")
    yield cachekit.plan(cachekit.Variant("tiny.yaml", LONGER))
    yield cachekit.why(cachekit.Variant("tiny.yaml", LONGER))
    yield cachekit.compare("tiny.yaml", warmed.key)
    yield cachekit.coverage("tiny.yaml")
    yield cachekit.train("tiny.yaml", output_dir="model")
    yield cachekit.check_build("tiny.yaml")
    yield cachekit.run([sys.executable, "-c", ""])
    yield cachekit.Cache(instance="trn1.2xlarge").stats()
    yield cachekit.why_run()
    (tmp_path / "run.log").write_text(FOUND)
    yield cachekit.why_log(tmp_path / "run.log")
    yield team.push()
    yield team.push().pushed[0]
    yield cachekit.plan_all(["tiny.yaml", "bert"])
    yield cachekit.plan_instances("bert")
    yield cachekit.coverage_all(["tiny.yaml"])
    yield cachekit.ls()[0]
    yield cachekit.settings()[0]
    yield cachekit.Variant("tiny.yaml", LONGER)
    yield team.pull("tiny.yaml")
    yield cachekit.export_bundle("tiny.tar")
    yield cachekit.Cache(trust_all=True).import_bundle("tiny.tar")
    yield cachekit.lock("tiny.yaml")
    yield cachekit.check_lock()
    yield cachekit.doctor()
    yield cachekit.neuron_contract()
    yield cachekit.verify()
    yield cachekit.pin("tiny.yaml")[0]
    yield cachekit.unpin("tiny.yaml")[0]
    yield cachekit.gc(max_size=0, dry_run=True)
    yield cachekit.rm("tiny.yaml")[0]


@pytest.mark.usefixtures("home", "machine", "worker", "work")
def test_results_can_be_kept_in_sets(tmp_path):
    seen = set()
    for one in results(tmp_path):
        name = type(one).__name__
        again = copy.deepcopy(one)
        assert again == one, name
        assert hash(again) == hash(one), name
        assert len({one, again}) == 1
        seen.add(name)
        with pytest.raises(AttributeError):
            setattr(one, getattr(one, "__match_args__", ("key",))[0], None)
    kinds = {name for name in cachekit.__all__ if name[0].isupper() and not name.endswith("Error")}
    # Those need a Neuron cache, a repo, an engine or a list of recipes, and are made of names, sizes and tuples.
    others = {"Checked", "Exported", "Imported", "Pulls", "RemoteContents", "Used", "WarmedAll"}
    others |= {"CheckedStats", "FleetLog", "FleetPlan", "FleetRow", "FleetState"}
    assert kinds - seen - CACHE_DIR == others


def test_of_two_recipes_one_is_changed():
    one, same = cachekit.load_recipe("bert"), cachekit.load_recipe("bert")
    other = cachekit.load_recipe(cachekit.Variant("bert", LONGER))
    assert len({one, same, other}) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=25)
@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_a_mapping_does_not_matter(options):
    one = cachekit.Outcome("x", "absent", "k", left=options)
    other = cachekit.Outcome("x", "absent", "k", left=dict(reversed(options.items())))
    assert one == other
    assert hash(one) == hash(other)
