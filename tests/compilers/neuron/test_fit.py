"""Which NEFFs are used where: damaged, foreign, unknown and contradictory ones never, for a reason in words."""

import json
from types import SimpleNamespace

import pytest

from cachekit.compilers.neuron import facts, fit
from cachekit.compilers.neuron.chip import of as target_of
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.fit import Claimed
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.modules import collect
from cachekit.compilers.neuron.neff import read
from cachekit.compilers.port import Observed
from cachekit.errors import CompileError, IntegrityError, UsageError
from cachekit.recipe import zoo
from cachekit.verbs.export import export_cache
from cachekit.verbs.imports import import_cache
from tests.compilers.neuron.neuron_files import make_neff
from tests.compilers.neuron.neuron_trees import COMPILER, make, make_real, module_name
from tests.support.places import real_dir
from tests.support.standins import Watched

OURS = "2.26.6360.0+6f180f47"


def kelf(target=None, **others) -> bytes:
    document = {"graphs": [{"name": "sg00"}], "version": "0.5", **others}
    return json.dumps(document if target is None else {**document, "target": target}).encode()


def host(target="trn1", lnc=1) -> NeuronHost:
    return NeuronHost({"neuronx-cc": OURS}, target, 2, lnc, "", here=True)


FOREIGN = {
    "of Trainium 2": ({"target": "cayman", "lnc": 1}, "it was compiled for trn2, and this machine has trn1"),
    "of Inferentia 1": ({"target": "tonga", "lnc": 1}, "it was compiled for inf1"),
    "of a chip that nobody knows": ({"target": "v5", "lnc": 1}, "'v5', which is not a known chip"),
    "in capitals": ({"target": "Sunda", "lnc": 1}, "'Sunda', which is not a known chip"),
    "of two chips": ({"extra": {"kelf-b.json": kelf("cayman")}}, "two targets: sunda and cayman"),
    "of a second chip at the end of a large kelf": (
        {"extra": {"kelf-b.json": kelf("cayman", pad="x" * (9 << 20))}},
        "two targets: sunda and cayman",
    ),
    "without kelf": ({"without": ["kelf-0.json"]}, "nothing in it says which chip"),
    "without target": ({"extra": {"kelf-0.json": kelf()}}, "nothing in it says which chip"),
    "with a target that is no text": ({"extra": {"kelf-0.json": kelf(3)}}, "nothing in it says which chip"),
    "with a target in a kelf that is no JSON": (
        {"extra": {"kelf-0.json": b'{"target": "sunda", nothing}'}},
        "nothing in it says which chip",
    ),
    "with one kelf that does not say": ({"extra": {"kelf-b.json": kelf()}}, "nothing in it says which chip"),
    "of a large kelf": ({"extra": {"kelf-0.json": kelf("cayman", pad=["{" * (9 << 20)])}}, "it was compiled for trn2"),
    "of another compiler": ({"version": "2.21.33363.0+82129205"}, "by 2.21.33363.0+82129205, not by 2.26.6360.0"),
    "of another module": ({"name": "/tmp/x/model.MODULE_77+f7f529f3.neff"}, "it was compiled as MODULE_77+f7f529f3"),
    "of other flags": ({"name": "MODULE_1000000000000000001+e30acd3a/model.neff"}, "it was compiled as MODULE_1000000"),
    "of another LNC": ({"lnc": 2}, "it joins 2 physical cores into one, and this machine joins 1"),
}
SOUND = {
    "as it should be": {},
    "for any chip": {"target": "*", "lnc": 1},
    "for an empty target": {"extra": {"kelf-0.json": kelf("")}},
    "with a large kelf": {"extra": {"kelf-0.json": kelf("sunda", pad=['\\"}{' * (3 << 20)])}},
    "of another commit": {"version": "2.26.6360.0+00000000"},
    "with its name": {"name": f"/home/ann/cache/{COMPILER}/{module_name(1)}/model.neff"},
    "with its graph's name": {"name": f"/home/ann/MODULE_5/{module_name(1).partition('+')[0]}.neff"},
    "without its compiler": {"without": ["info.json"]},
}


def cache_with(root, **neff):
    folder = make(root, seed=1)
    make_neff(folder / "model.neff", **{"version": OURS, "target": "sunda", **neff})
    return folder


def restored(root, neuron, judge):
    """Take a cache's only module by one judge, and restore it by the machine's."""
    workspace = root.parent / "workspace"
    workspace.mkdir()
    harvest = collect(scan(root).entries, workspace, judge).harvest
    (module,) = harvest.modules
    blobs = [SimpleNamespace(path=harvest.files[file.sha256]) for file in module.files]
    return neuron.restore(module, blobs, root.parent / "cache_dir")


@pytest.mark.feature("F6", "K1")
@pytest.mark.parametrize("what", FOREIGN)
def test_a_neff_that_is_not_this_machines_is_neither_restored_nor_harvested(tmp_path, what):
    options, words = FOREIGN[what]
    cache_with(tmp_path / "root", **options)
    neuron = Neuron(host())
    with pytest.raises(IntegrityError) as refused:
        restored(tmp_path / "root", neuron, lambda *_: None)
    assert words in refused.value.cause
    assert not list((tmp_path / "cache_dir").rglob("model.neff"))
    skipped = collect(scan(tmp_path / "root").entries, tmp_path / "workspace", neuron._check).left
    assert words in skipped[0].reason


@pytest.mark.feature("F6")
@pytest.mark.parametrize("what", SOUND)
def test_a_neff_that_fits_is_restored(tmp_path, what):
    cache_with(tmp_path / "root", **SOUND[what])
    neuron = Neuron(host())
    assert restored(tmp_path / "root", neuron, neuron._check).size > 0


@pytest.mark.feature("F6", "K1")
@pytest.mark.parametrize(
    ("options", "machine", "fits"),
    [
        ({"target": "cayman"}, ("trn2", 2), True),
        ({"target": "cayman"}, ("trn2", 1), False),
        ({"target": "cayman", "lnc": 1}, ("trn2", 1), True),
        ({"target": "v3"}, ("trn2u", 2), True),
        ({"target": "sunda"}, ("inf2", 1), True),
        ({"target": "sunda"}, ("trn2", 1), False),
        ({"target": "mariana"}, ("trn3", 2), True),
        ({"target": "core_v4"}, ("trn3u", 2), True),
        ({"target": "mariana"}, ("trn2", 2), False),
        ({"target": "mariana"}, ("trn9", 2), False),
        ({"target": "v5"}, ("v5", 2), True),
    ],
)
def test_chips_and_lnc_of_machines(tmp_path, options, machine, fits):
    path = tmp_path / "model.neff"
    make_neff(path, **options)
    target, lnc = machine
    assert (fit.check(path, target=target, lnc=lnc) is None) is fits


def test_flags_that_ask_for_another_lnc_outrank_the_host(tmp_path):
    path = tmp_path / "model.neff"
    make_neff(path, lnc=1)
    for words in (["-lnc=1"], ["--lnc", "1"], ["--logical-nc-config=1"]):
        assert fit.check(path, fit.claim("neuronxcc-2.23.6484.0", "", words), target="trn2", lnc=2) is None
    assert "its flags ask for 2" in fit.check(
        path, fit.claim("neuronxcc-2.23.6484.0", "", ["-lnc=2"]), target="trn2", lnc=1
    )


@pytest.mark.feature("K5", "F6")
def test_import_and_export_compare_what_the_folder_says(tmp_path, monkeypatch):
    """No machine is known there: the compiler, the flags' target and the module's name are."""
    store = Watched(tmp_path / "home").store
    cases = {
        1: {},
        2: {"version": "2.21.33363.0+82129205"},
        3: {"target": "cayman", "lnc": 1},
        4: {"name": "model.MODULE_9+00000000.neff"},
        5: {"without": ["kelf-0.json"]},
    }
    for seed, options in cases.items():
        folder = make(tmp_path / "cache", seed=seed)
        make_neff(folder / "model.neff", **{"version": OURS, "target": "sunda", **options})
    unsaid = make(tmp_path / "cache", seed=6)
    (unsaid / "compile_flags.json").unlink()
    make_neff(unsaid / "model.neff", version=OURS, target="v5")
    imported = import_cache(store, tmp_path / "cache")
    assert [name.rpartition("/")[2] for group in imported.records for name in group.added] == [
        module_name(1),
        module_name(6),
    ]
    assert [item.reason.partition(": ")[2].partition(",")[0] for item in imported.left] == [
        "it was compiled by 2.21.33363.0+82129205",
        "it was compiled for trn2",
        "it was compiled as MODULE_9+00000000",
        "nothing in it says which chip it is for",
    ]
    # A record that somebody made otherwise is not exported either.
    other = Watched(tmp_path / "other").store
    with monkeypatch.context() as patched:
        patched.setattr(fit, "check", lambda *_: None)
        import_cache(other, tmp_path / "cache")
    exported = export_cache(other, tmp_path / "out")
    assert (len(exported.modules), len(exported.damaged)) == (2, 4)


def test_real_neffs_are_for_their_own_chips_alone(tmp_path):
    for seed, path in enumerate(sorted(real_dir("neff").glob("*.neff"))):
        found = read(path)
        folder = make_real(tmp_path, path, seed)
        said = fit.claim(folder.parent.name, folder.name, [f"--target={found.chip}"])
        assert fit.check(path, said) is None, path
        for target, chip in facts.TARGET_CHIPS.items():
            reason = fit.check(path, Claimed(), target=target, lnc=found.lnc)
            assert (reason is None) is (chip == found.chip), (path, target)


@pytest.mark.feature("R5")
def test_modules_are_kept_in_the_order_in_which_the_run_came_to_them(tmp_path):
    names = []
    for seed in (3, 1, 2):
        folder = make(tmp_path / "root", seed=seed)
        make_neff(folder / "model.neff", version=OURS, target="sunda", seed=seed)
        names.append(f"{COMPILER}/{folder.name}")
    (workspace := tmp_path / "workspace").mkdir()
    neuron = Neuron(host())
    seen = Observed(compiled=3, modules=frozenset(names), order=tuple(names))
    found = neuron.harvest(tmp_path / "root", frozenset(), neuron.fingerprint(), workspace, seen)
    assert [module.name for module in found.modules] == names


def test_a_module_that_vanishes_before_it_is_kept_is_named(tmp_path):
    """A cleaner of the host removed it; the store has nothing to do with it."""
    seen = Observed(1, 0, 0.0, (), (), frozenset({f"{COMPILER}/{module_name(1)}"}), {})
    neuron = Neuron(host())
    with pytest.raises(CompileError) as refused:
        neuron.harvest(tmp_path, frozenset(), neuron.fingerprint(), tmp_path, seen)
    assert f"{COMPILER}/{module_name(1)}" in refused.value.message
    assert "removes modules" in refused.value.cause


# Targets


def test_every_target_of_the_registry_has_a_chip():
    targets = {machine.target for machine in zoo.instances().values()} - {""}
    targets |= {target for release in zoo.toolchains().values() for target in release.targets}
    assert targets <= facts.TARGET_CHIPS.keys()
    assert set(facts.TARGET_FAMILIES.values()) <= facts.TARGET_CHIPS.keys()
    assert set(facts.TARGET_CHIPS.values()) <= set(facts.NEFF_TARGETS.values())


@pytest.mark.parametrize("said", ["trn9", "TRN1", "trn1 ", "inf1", "*"])
def test_a_target_that_is_none_is_refused(said):
    """It switched the comparison off."""
    with pytest.raises(UsageError) as refused:
        target_of(said, "trn1.2xlarge", None)
    assert "trn1, trn1n, inf2, trn2" in refused.value.hint
    assert target_of("trn2", "trn1.2xlarge", None) == "trn2"
