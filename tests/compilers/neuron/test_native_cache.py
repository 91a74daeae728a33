"""TorchNeuron's cache in and out of the store, and what is said of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from cachekit.compilers.machine import machine
from cachekit.compilers.neuron import caches
from cachekit.config import load
from cachekit.errors import UsageError
from cachekit.verbs.export import export_cache
from cachekit.verbs.imports import import_cache
from cachekit.verbs.push import leaks_of
from cachekit.verbs.records import show
from tests.compilers.neuron.neuron_files import make_neff
from tests.compilers.neuron.neuron_trees import tree
from tests.support.doctor_cases import findings, fine, the_problem
from tests.support.standins import Watched

OLD, NEW = "2.25.3371.0+aaaaaaaa", "2.27.5334.0+bbbbbbbb"


@pytest.fixture
def store(tmp_path):
    return Watched(tmp_path / "home").store


def add(root: Path, graph: str, version: str = NEW, **more) -> str:
    """A graph as TorchNeuron keeps it; returns its path below the root."""
    key = hashlib.md5(graph.encode()).hexdigest()
    path = root / key[:2] / key[2:4] / f"{key}.neff"
    path.parent.mkdir(parents=True, exist_ok=True)
    make_neff(path, version=version, seed=int(key[:6], 16), **more)
    return path.relative_to(root).as_posix()


def added(imported) -> dict[str, int]:
    return {group.compiler: len(group.added) for group in imported.records}


@pytest.mark.feature("K1")
def test_a_folder_of_two_compilers_comes_in_as_two_records_and_goes_out_as_two_folders(store, tmp_path):
    root = tmp_path / "neff_cache"
    new = [add(root, f"new {number}") for number in range(5)]
    old = [add(root, f"old {number}", OLD) for number in range(3)]
    torn = root / add(root, "torn")
    torn.write_bytes(torn.read_bytes()[:-100])
    (torn.parent / ".tmp.a1B2c3").write_bytes(b"half")
    before = tree(root)
    looked = import_cache(store, root, dry_run=True)
    assert (added(looked), store.listed()) == ({"torchneuron-2.25.3371.0": 3, "torchneuron-2.27.5334.0": 5}, [])
    taken = import_cache(store, root)
    assert added(taken) == added(looked)
    assert [(item.state, item.path) for item in taken.left] == [("refused", torn)]
    assert tree(root) == before
    assert {row.compiler: row.modules for row in store.listed()} == {"neuron-native": 1}
    assert sorted(row.graphs for row in store.listed()) == [3, 5]

    again = import_cache(store, root)
    assert [(len(group.added), len(group.known)) for group in again.records] == [(0, 3), (0, 5)]
    later = add(root, "later")
    grown = import_cache(store, root)
    assert [group.added for group in grown.records if group.added] == [(f"torchneuron-2.27.5334.0/{later}",)]

    target = tmp_path / "out"
    assert export_cache(store, target, dry_run=True).as_dict()["restored"] == 3
    assert not target.exists()
    assert export_cache(store, target).as_dict()["restored"] == 3
    found = tree(target)
    wanted = {f"torchneuron-2.27.5334.0/{name}": before[name] for name in new}
    wanted |= {f"torchneuron-2.25.3371.0/{name}": before[name] for name in old}
    wanted[f"torchneuron-2.27.5334.0/{later}"] = (root / later).read_bytes()
    assert found == wanted
    assert export_cache(store, target).as_dict()["present"] == 3
    # What was exported can be imported.
    assert [len(group.known) for group in import_cache(store, target).records] == [3, 6]


@pytest.mark.feature("F6")
def test_what_is_left_is_named(store, tmp_path):
    root = tmp_path / "cache"
    good = add(root, "one")
    link = root / "ab" / "cd" / f"{'ab' * 16}.neff"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(root / good)
    (root / "file.neff").write_bytes((root / good).read_bytes())
    (root / ".tmp.neff").write_bytes(b"half")
    (root / "notes.txt").write_bytes(b"mine")
    taken = import_cache(store, root)
    assert added(taken) == {"torchneuron-2.27.5334.0": 1}
    assert {item.path: item.reason for item in taken.left} == {
        link: "it is a link, and TorchNeuron makes no links",
        root / "file.neff": "TorchNeuron gives no graph such a name",
    }


@pytest.mark.feature("F6")
def test_a_graph_in_another_compilers_folder_is_refused(store, tmp_path):
    name = add(tmp_path / "cache" / "torchneuron-2.25.3371.0", "one", NEW)
    (item,) = import_cache(store, tmp_path / "cache").left
    assert item.module == f"torchneuron-2.25.3371.0/{name}"
    assert item.reason == "2.27.5334.0 compiled it, and it is in torchneuron-2.25.3371.0"
    assert store.listed() == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no compiler's cache"):
        import_cache(store, tmp_path / "empty")


@pytest.mark.feature("K5")
def test_a_record_tells_how_many_graphs_it_has_and_what_they_would_leak(store, tmp_path):
    add(tmp_path / "cache", "one", name="/home/alice/secret/x.neff")
    add(tmp_path / "cache", "two")
    (group,) = import_cache(store, tmp_path / "cache").records
    shown = show(store, group.key)
    assert (shown.whole, [module.graphs for module in shown.modules]) == (True, [2])
    (record,) = store.records()
    assert any("alice" in line for line in leaks_of(store, [record]))


@pytest.mark.feature("U1")
def test_env_says_where_it_is_and_doctor_what_is_wrong_with_it(tmp_path, monkeypatch):
    root = tmp_path / "neff_cache"
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(root))
    assert findings("torchneuron-cache") == [
        {
            "check": "torchneuron-cache",
            "state": "ok",
            "said": "no cache of TorchNeuron's on this host",
            "repair": "",
            "run": "",
        }
    ]
    add(root, "one")
    assert fine("torchneuron-cache")
    said = machine(load({})).places["native_cache"]
    assert (said.path, said.origin, said.caching, said.exists, said.warnings) == (
        root, "TORCH_NEURONX_NEFF_CACHE_DIR", True, True, ()
    )  # fmt: skip
    add(root, "two", OLD)
    assert "compilers 2.25.3371.0+aaaaaaaa, 2.27.5334.0+bbbbbbbb share" in the_problem("torchneuron-cache")["said"]
    (root / add(root, "two")).write_bytes(b"\0" * 4096)
    monkeypatch.setenv("TORCH_NEURONX_NEFF_DISABLE_CACHE", "1")
    assert "nothing is kept" in the_problem("torchneuron-cache")["said"]
    monkeypatch.delenv("TORCH_NEURONX_NEFF_DISABLE_CACHE")
    path = root / add(root, "three")
    path.write_bytes(path.read_bytes()[:-1])
    problem = the_problem("torchneuron-cache")
    assert str(path) in problem["said"]
    os.system(problem["run"])
    assert not path.exists()


@pytest.mark.feature("U1")
def test_doctor_knows_which_entries_of_vllms_own_cache_are_finished(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setenv("NEURON_LIBTORCH_CACHE_ROOT", str(tmp_path / "none"))
    assert findings("vllm-cache")[0]["said"] == "no cache of vLLM-Neuron's on this host"
    folder = tmp_path / "neuron" / "compile_cache"
    (folder / "nki").mkdir(parents=True)  # results of kernels
    for number in range(3):
        entry = folder / f"{number:032x}"
        entry.mkdir()
        (entry / "graph.hlo").write_bytes(b"hlo")
        (entry / "graph_1a.neff").write_bytes(b"neff")
        if number:
            (entry / ".compilation_complete").write_text("completed:1790000000.0\nneff_size:4\n")
    (found,) = findings("vllm-cache")
    assert (found["state"], found["said"]) == (
        "ok", f"{folder}: 2 compiled graphs, and 1 unfinished, which vLLM compiles again"
    )  # fmt: skip
    (entry / "graph_1a.neff").write_bytes(b"nef")
    problem = the_problem("vllm-cache")
    assert "its graph has 3 bytes, and its mark says 4; vLLM takes it for a hit" in problem["said"]
    os.system(problem["run"])
    assert not entry.exists()
    assert [one.marked for one in caches.vllm_entries(folder)] == [False, True]
