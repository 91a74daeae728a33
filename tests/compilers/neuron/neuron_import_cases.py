"""A Neuron cache with modules in every state, and a store to import it to."""

import pytest

from cachekit.compilers.neuron import fit
from cachekit.compilers.neuron.entries import STATES
from tests.compilers.neuron.neuron_trees import COMPILER, OTHER, check, make, module_name, neff
from tests.support.standins import Watched


@pytest.fixture(autouse=True)
def judge(monkeypatch):
    """The NEFFs made here have a container and nothing in it, which the real judge refuses; it is handed on."""
    real = fit.check
    monkeypatch.setattr(fit, "check", check)
    return real


@pytest.fixture
def store(tmp_path):
    return Watched(tmp_path / "home").store


@pytest.fixture
def cache(tmp_path):
    """A cache with a module in every state, of two compilers."""
    root = tmp_path / "cache"
    for seed, state in enumerate(STATES):
        make(root, state, seed)
    make(root, seed=10)
    make(root, seed=11, compiler=OTHER)
    (make(root, seed=12) / "model.neff").write_bytes(neff(12)[:-1])
    (make(root, seed=13) / "model.hlo_module.pb.lock").touch()
    (root / "lock").touch()
    (root / "notes.txt").write_text("mine")
    return root


WHOLE = sorted([f"{COMPILER}/{module_name(0)}", f"{COMPILER}/{module_name(10)}", f"{OTHER}/{module_name(11)}"])


def added(imported):
    return sorted(name for group in imported.records for name in group.added)
