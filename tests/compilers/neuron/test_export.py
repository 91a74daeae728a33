"""Export: a Neuron cache out of a store, without what is unfinished, damaged or another compiler's."""

import pytest

from cachekit.errors import UnknownNameError, UsageError
from cachekit.store import staying
from cachekit.store.origin import Beside, Origin
from cachekit.verbs.export import export_cache
from cachekit.verbs.imports import import_cache
from tests.compilers.neuron.neuron_import_cases import WHOLE, added, cache, judge, store  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_trees import OTHER, make, module_name, tree
from tests.support.standins import Watched, make_record, overwrite, publish


@pytest.fixture
def filled(store, cache):
    import_cache(store, cache)
    return store


def test_an_export_is_the_cache_without_what_is_unfinished(filled, cache, tmp_path):
    exported = export_cache(filled, tmp_path / "out")
    assert sorted((one.module, one.outcome) for one in exported.modules) == [(n, "restored") for n in WHOLE]
    assert tree(tmp_path / "out") == {
        name: raw for name, raw in tree(cache).items() if name.rpartition("/")[0] in WHOLE
    }


def test_a_second_export_writes_nothing(filled, tmp_path):
    export_cache(filled, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = export_cache(filled, tmp_path / "out")
    assert {one.outcome for one in again.modules} == {"present"}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_export_and_import_are_each_others_reverse(filled, tmp_path):
    export_cache(filled, tmp_path / "out")
    other = Watched(tmp_path / "other-home").store
    assert added(import_cache(other, tmp_path / "out")) == WHOLE
    assert {row.key for row in other.listed()} == {row.key for row in filled.listed()}


@pytest.mark.parametrize("said", [OTHER, "2.21.33363.0+82129205", "2.21.33363.0"])
def test_one_compilers_modules_can_be_exported(filled, tmp_path, said):
    exported = export_cache(filled, tmp_path / "out", compiler=said)
    assert [one.module for one in exported.modules] == [f"{OTHER}/{module_name(11)}"]


def test_what_cannot_be_exported_is_said(filled, store, tmp_path):
    with pytest.raises(UnknownNameError):
        export_cache(filled, tmp_path / "out", compiler="neuronxcc-9")
    with pytest.raises(UnknownNameError):
        export_cache(filled, tmp_path / "out", keys=["ffffffff"])
    with pytest.raises(UnknownNameError):
        export_cache(Watched(tmp_path / "empty").store, tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        export_cache(filled, tmp_path / "file")
    assert not (tmp_path / "out").exists()


def test_a_record_of_another_compiler_is_not_exported(filled, tmp_path):
    record = publish(filled, make_record())
    with pytest.raises(UsageError):
        export_cache(filled, tmp_path / "out", keys=[record.key])
    assert len(export_cache(filled, tmp_path / "out").modules) == len(WHOLE)


@pytest.mark.feature("T5")
def test_modules_from_elsewhere_are_noted_of_the_folder_that_they_go_to(filled, tmp_path):
    for record in [*filled.records()]:
        filled.publish(record, {}, beside=Beside(Origin("/place", "all")))
    export_cache(filled, tmp_path / "out", dry_run=True)
    assert not list(staying.noted(filled.layout))
    keys = export_cache(filled, tmp_path / "out").records
    noted = [one for _, one in staying.noted(filled.layout)]
    assert {one.record.key for one in noted} == set(keys)
    assert {one.tree for one in noted} == {str(tmp_path / "out")}
    another = Watched(tmp_path / "another-home").store
    assert {record.key for record, _ in staying.records(another.layout, tmp_path / "out").values()} == set(keys)
    import_cache(another, tmp_path / "out" / WHOLE[0].partition("/")[0])  # one compiler's folder of it
    (record,) = another.records()
    assert [one.remote for one in another.origins.of(record).origin.reused] == ["/place"]
    assert not import_cache(filled, tmp_path / "out").unknown


@pytest.mark.feature("S5", "F6")
def test_a_damaged_blob_is_never_exported(filled, tmp_path):
    (module,) = (
        module
        for record in filled.records()
        for module in record.modules
        if module.name == f"{OTHER}/{module_name(11)}"
    )
    (sha256,) = (file.sha256 for file in module.files if file.path == "model.neff")
    blob = filled.layout.blob(sha256)
    overwrite(blob, bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:])
    exported = export_cache(filled, tmp_path / "out")
    assert [one.module for one in exported.damaged] == [module.name]
    assert sorted(one.module for one in exported.modules) == [name for name in WHOLE if name != module.name]
    assert not (tmp_path / "out" / module.name).exists()


def test_a_dry_export_says_the_same_and_writes_nothing(filled, tmp_path):
    make(tmp_path / "out", "failed", 10)
    before = tree(tmp_path / "out")
    planned = export_cache(filled, tmp_path / "out", dry_run=True)
    assert tree(tmp_path / "out") == before
    assert planned.as_dict() | {"dry_run": False} == export_cache(filled, tmp_path / "out").as_dict()
    assert {one.outcome for one in planned.modules} == {"restored", "replaced"}
