"""Damaged modules on a Neuron host, and those for another one: none is kept or restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekit.compilers.neuron import fit
from cachekit.store.record import File
from tests.compilers.neuron.neuron_cases import _once, another, entry, machine, name, place, warmed  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_files import make_neff


@pytest.mark.feature("F6", "S5")
def test_a_damaged_neff_in_the_root_is_replaced(warmed):
    machine = warmed
    neff = entry(machine, 2).path / "model.neff"
    whole = neff.read_bytes()
    neff.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
    result = machine("train", "tiny.yaml", "--require-warm")
    assert (result["compiled"], neff.read_bytes()) == (0, whole)


@pytest.mark.feature("F6", "S5")
def test_a_damaged_module_in_the_store_is_a_miss(warmed, place):
    machine = warmed
    neff = next(file for file in machine.record().modules[1].files if file.path == "model.neff")
    blob = next((machine.home / "v1" / "blobs").rglob(neff.sha256))
    raw = bytearray(blob.read_bytes())
    raw[1500] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(raw)
    other = another(machine, place / "other")
    assert other("train", "tiny.yaml", "--require-warm", code=3)["error"]["code"] == "not-warm"
    assert not other.host.entries() or all(found.finished for found in other.host.entries())
    result = other("train", "tiny.yaml")
    assert (result["status"], result["compiled"]) == ("warmed", 0)


@pytest.mark.feature("F6", "K1")
def test_a_module_for_another_target_is_never_restored(warmed, place):
    """A record whose digests fit, and whose NEFF is not for this machine. Other kinds: test_fit."""
    machine = warmed
    output = place / "model.neff"
    make_neff(output, version="2.26.6360.0+6f180f47", target="cayman")
    foreign = publishable(output, place)

    def change(module):
        files = tuple(foreign[0] if file.path == "model.neff" else file for file in module.files)
        return [module if name(2) not in module.name else type(module)(module.name, files)]

    machine.rewrite(change, {foreign[0].sha256: foreign[1]})
    other = another(machine, place / "other")
    error = other("train", "tiny.yaml", "--require-warm", code=5)["error"]
    assert "it was compiled for trn2" in error["cause"]
    assert not entry(other, 2).path.exists()
    result = other("train", "tiny.yaml")
    assert (result["compiled"], result["found"]) == (0, 3)
    assert "the record cannot be used, and is made anew" in other.said


@pytest.mark.feature("F6", "K1")
def test_a_foreign_neff_in_the_root_is_not_kept(warmed):
    """Somebody copied a cache of another machine: Neuron itself takes such a module for a hit."""
    machine = warmed
    neff = entry(machine, 2).path / "model.neff"
    make_neff(neff, version="2.26.6360.0+6f180f47", target="tonga", lnc=1)
    assert machine("warm", "tiny.yaml", "--recache")["status"]
    assert fit.check(neff, target="trn1") is None
    recorded_neff = next(file for file in machine.record().modules[1].files if file.path == "model.neff")
    assert fit.check(next((machine.home / "v1" / "blobs").rglob(recorded_neff.sha256)), target="trn1") is None


def publishable(path: Path, folder: Path) -> tuple[File, Path]:
    import hashlib

    raw = path.read_bytes()
    copy = folder / "to-publish"
    copy.write_bytes(raw)
    return File("model.neff", len(raw), hashlib.sha256(raw).hexdigest()), copy
