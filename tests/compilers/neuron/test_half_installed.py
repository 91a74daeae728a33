"""Packages of Neuron of which an interrupted installation left a part."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

from cachekit.compilers import select
from cachekit.compilers.neuron import host, installed
from cachekit.errors import CompilerUnavailableError
from tests.compilers.neuron.unusable_cases import MESSAGE, NATIVE, RECIPE, WHOLE, answer, machine, recipe, whole  # noqa: F401 - fixtures
from tests.support.doctor_cases import the_problem

pytest_plugins = ["tests.support.cli_session"]


LEFT = {"no file": None, "an empty file": b"", "half a file": b"Name: torch-neuronx\nVersion: \xff\xfe"}


@pytest.mark.feature("U3")
@pytest.mark.parametrize("left", LEFT)
def test_a_package_that_an_interrupted_pip_left_by_half_is_explained(machine, tmp_path, monkeypatch, left):
    for name, text in {"neuronx_cc": b"Name: neuronx-cc\nVersion: 2.27.5334.0\n", "torch_neuronx": LEFT[left]}.items():
        folder = tmp_path / "site" / f"{name}-2.dist-info"
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "METADATA").write_bytes(text)
    monkeypatch.syspath_prepend(tmp_path / "site")
    installed.versions.cache_clear()
    installed._told.cache_clear()
    try:
        (machine / "neuron0").touch()
        with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
            select("auto")
        why = "half-installed: the package's metadata has no version"
        assert raised.value.cause.startswith(f"torch-neuronx cannot be used; {why}")
        assert "--force-reinstall" in raised.value.hint
        with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
            host.this_host(installed.NATIVE)
        assert why in raised.value.cause
        assert f"torch-neuronx cannot be used; {why}" in the_problem("neuron-packages")["said"]
    finally:
        installed.versions.cache_clear()
        installed._told.cache_clear()


def test_what_cut_off_upgrades_left_beside_a_whole_package_counts_for_nothing(tmp_path, monkeypatch):
    """pip passes such folders over when it installs the next version; a file system lists them in any order."""
    for number in range(20):
        left = tmp_path / f"neuronx_cc-2.{number}.dist-info"
        left.mkdir()
        (left / "METADATA").write_text("Name: neuronx-cc\nVersion: 2.10\n" if number == 10 else "")
    monkeypatch.syspath_prepend(tmp_path)
    installed.versions.cache_clear()
    installed._told.cache_clear()
    try:
        assert (installed.versions()["neuronx-cc"], "neuronx-cc" in installed.half_installed()) == ("2.10", False)
    finally:
        installed.versions.cache_clear()
        installed._told.cache_clear()


@pytest.mark.feature("U3")
@pytest.mark.parametrize("package, module", [("torch-xla", "torch_xla"), ("torch", "torch")])
def test_what_torch_neuronx_stands_on_is_missed_where_only_its_name_is_left(
    machine, tmp_path, monkeypatch, package, module
):
    """Its metadata is whole; the folder of the package is gone."""
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    monkeypatch.setattr(installed, "versions", lambda: WHOLE)
    monkeypatch.setattr(installed.shutil, "which", lambda name, **_: f"/opt/bin/{name}")
    monkeypatch.setattr(
        installed, "find_spec", lambda name: None if name == module else ModuleSpec(name, None, origin="there")
    )
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    assert f"{package} cannot be used; installed by name only: there is no module {module}" in raised.value.cause
    assert raised.value.hint.startswith(f"pip uninstall -y {package} && pip install --extra-index-url ")
    found = the_problem("neuron-packages")
    assert (found["said"], found["run"]) == (
        f"{raised.value.message}; {raised.value.cause}",
        raised.value.hint.partition("; or ")[0],
    )
