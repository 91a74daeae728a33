"""Records that no recipe made: beside the others in every list, and never what a plan compares with."""

import pytest

from cachekit.compilers.neuron import describe as neffs
from cachekit.errors import SecretError
from cachekit.store.record import IMPORTED, check_shareable
from cachekit.verbs.imports import import_cache
from cachekit.verbs.records import show
from tests.compilers.neuron.neuron_import_cases import judge  # noqa: F401 - a fixture
from tests.compilers.neuron.neuron_machine import Machine
from tests.compilers.neuron.neuron_trees import COMPILER, OTHER, make, make_real
from tests.support.places import real_dir
from tests.support.standins import Watched, make_record, publish


@pytest.fixture
def store(tmp_path):
    found = Watched(tmp_path / "home").store
    make(tmp_path / "cache")
    import_cache(found, tmp_path / "cache")
    publish(found, make_record())
    return found


def test_a_store_can_be_read_without_imported_records(store, monkeypatch):
    assert len(store.listed()) == len(list(store.records())) == 2
    read = []
    load = store.read
    monkeypatch.setattr(store, "read", lambda *place: read.append(place) or load(*place))
    assert [record.recipe for record in store.records(lambda row: row.model_type != IMPORTED)] != ["import"]
    assert len(read) == 1, "an imported record may be large, and is not even read"


@pytest.mark.feature("P1")
def test_no_plan_compares_with_what_was_imported(tmp_path):
    machine = Machine(tmp_path / "user")
    make(tmp_path / "cache")
    import_cache(Watched(machine.home).store, tmp_path / "cache")
    assert machine("plan", "tiny.yaml")["nearest"] is None
    machine.graphs(1)
    machine("warm", "tiny.yaml")
    other = machine("plan", "tiny.yaml", "--set", "training.seed=7", "--set", "training.per_device_train_batch_size=8")
    assert (other["status"], other["nearest"]["recipe"]) == ("miss", "tiny")


def test_a_secret_in_what_is_imported_stays_here(tmp_path, monkeypatch):
    """Neuron's compiler writes its environment into what it makes; a push comes later, from another shell."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", "tok-9f8e7d6c5b4a39281706")
    (make(tmp_path / "cache") / "model.hlo_module.pb").write_bytes(b"xx tok-9f8e7d6c5b4a39281706")
    make(tmp_path / "cache", seed=1, compiler=OTHER)
    found = Watched(tmp_path / "home").store
    import_cache(found, tmp_path / "cache")
    monkeypatch.delenv("MY_SERVICE_TOKEN")
    told, other = sorted(found.records(), key=lambda record: record.directory != COMPILER)
    with pytest.raises(SecretError) as caught:
        check_shareable(told)
    assert caught.value.cause == "it holds the value of MY_SERVICE_TOKEN in a compiled file"
    check_shareable(other)


def test_show_looks_into_a_bounded_number_of_neffs(tmp_path, monkeypatch, judge):
    monkeypatch.setattr("cachekit.compilers.neuron.fit.check", judge)
    store = Watched(tmp_path / "home").store
    paths = sorted(real_dir("neff").glob("*trn1*.neff"))
    for seed, path in enumerate(paths[-1:] * 3):
        folder = make_real(tmp_path / "cache", path, seed)
        assert folder.is_dir()
    (group,) = import_cache(store, tmp_path / "cache").records
    monkeypatch.setattr(neffs, "LOOKED_INTO", 2)
    shown = show(store, group.key)
    assert [module.graph.chip if module.graph else "" for module in shown.modules] == ["trn1", "trn1", ""]
