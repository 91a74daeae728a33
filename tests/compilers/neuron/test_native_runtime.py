"""TorchNeuron inside a process, stood in for by modules of its names: what it counts, and how a model is compiled."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from cachekit.compilers import tree
from cachekit.compilers.neuron import native_guest
from cachekit.errors import CompilerUnavailableError


@pytest.fixture
def metrics(monkeypatch):
    """Its counters, by name, and whether they are on."""
    made = ModuleType("torch_neuronx.metrics")
    made.values, made.on = {}, False
    made.get_counter_value = lambda name: made.values.get(name) if made.on else None
    made.set_enabled = lambda on: setattr(made, "on", on)
    package = ModuleType("torch_neuronx")
    package.metrics = made
    monkeypatch.setitem(sys.modules, "torch_neuronx", package)
    monkeypatch.setitem(sys.modules, "torch_neuronx.metrics", made)
    return made


@pytest.mark.feature("D1")
def test_counters_are_switched_on_and_read_and_none_until_there_are_any(metrics):
    metrics.values = {"CompilationCache.TotalCompilations": 2}
    assert native_guest.counters() is None
    assert native_guest.join(found=True) == []
    assert native_guest.counters() == {"found": 0, "compiled": 2}
    metrics.values = {"CompilationCache.PersistentHits": 5}
    assert native_guest.counters() == {"found": 5, "compiled": 0}
    metrics.values = {}
    assert native_guest.counters() is None
    metrics.get_counter_value = None  # another release
    assert native_guest.counters() is None


def test_nothing_is_loaded_to_look(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_neuronx", raising=False)
    monkeypatch.delitem(sys.modules, "torch_neuronx.metrics", raising=False)
    assert native_guest.join(found=False) == []
    assert native_guest.counters() is None
    assert "torch_neuronx" not in sys.modules


@pytest.fixture
def runtime():
    pytest.importorskip("transformers")
    from cachekit.compilers.neuron import native_runtime

    return native_runtime.Runtime()


def test_a_model_is_compiled_by_its_backend_with_fixed_shapes_or_run_eagerly(runtime, metrics, monkeypatch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    monkeypatch.setattr(transformers.utils, "is_torch_neuron_available", lambda: True, raising=False)
    seen = []
    monkeypatch.setattr(torch, "compile", lambda function, **said: seen.append(said) or (lambda: "compiled"))
    runtime.prepare({})
    assert metrics.on
    assert runtime.counters() == {"found": 0, "compiled": 0}
    model = SimpleNamespace(forward=lambda: "eager")
    runtime.compile_model(model, {"execution": "eager"})
    assert (model.forward(), seen) == ("eager", [])
    runtime.compile_model(model, {"execution": "compile"})
    assert (model.forward(), seen) == ("compiled", [{"backend": "neuron", "dynamic": False}])


@pytest.mark.feature("K1")
@pytest.mark.parametrize(
    "rank, said, core",
    [("1", "4-7", "5"), ("0", "4-7", "4"), ("1", "9,3", "3"), ("0", "5", "5"), ("4", "4-7", "4-7"), ("", "4-7", "4-7")],
)
@pytest.mark.usefixtures("metrics")
def test_each_worker_sees_one_core_of_the_list(runtime, monkeypatch, rank, said, core):
    """All of them saw the whole list, with which TorchNeuron refuses to join workers."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(transformers.utils, "is_torch_neuron_available", lambda: True, raising=False)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", said)
    monkeypatch.setenv("LOCAL_RANK", rank)
    runtime.prepare({})
    assert os.environ["NEURON_RT_VISIBLE_CORES"] == core
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES")
    runtime.prepare({})
    assert "NEURON_RT_VISIBLE_CORES" not in os.environ, "TorchNeuron gives each its own"


def test_without_torchneuron_or_with_an_old_transformers_it_says_so(runtime, metrics, monkeypatch):
    import transformers

    monkeypatch.delattr(transformers.utils, "is_torch_neuron_available", raising=False)
    with pytest.raises(CompilerUnavailableError, match="does not know TorchNeuron's device"):
        runtime.prepare({})
    monkeypatch.setitem(sys.modules, "torch_neuronx", None)
    with pytest.raises(CompilerUnavailableError, match="TorchNeuron does not import"):
        runtime.prepare({})


def test_which_files_were_read_is_told_where_the_file_system_keeps_it(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    noted = tree.AccessTimes(tmp_path, ["one", "two"])
    (tmp_path / "two").read_bytes()
    if tree.keeps_access_times(tmp_path):
        assert noted.read() == {"two"}
    else:
        assert noted.read() is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"], "nothing of ours is left"
    monkeypatch.setattr(tree, "keeps_access_times", lambda folder: False)
    assert tree.AccessTimes(tmp_path, ["one"]).read() is None
    assert tree.AccessTimes(tmp_path, []).read() == frozenset()
