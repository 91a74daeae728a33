"""The contracts on imports leave nothing out: a new module is in one list or in the other, or this fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cachekit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(cachekit.__file__).parent
PROJECT = tomllib.loads((ROOT.parent / "pyproject.toml").read_text("utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
# What each may import, beside its own folder; the rooms below aside.
PORTS = {
    "a remote's adapter": ("remotes", {"port", "layout", "budget"}),
    "a compiler's adapter": (
        "compilers",
        {"port", "adapter", "evidence", "foreign", "graphs", "machine", "tree"},
    ),
}
SHOWN = {"api", "errors", "events", "files", "redact", "text", "trainer_callback", "values"}


def listed(name, field):
    """The modules in a list of the contract whose name begins so."""
    (contract,) = (one for one in CONTRACTS if one["name"].startswith(name))
    return {one.removeprefix("cachekit.") for line in contract[field] for one in line.split(" | ")}


def modules(folder):
    """The modules and the rooms in a folder of the package."""
    paths = (path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return {path.stem for path in paths} - {"__init__", "__main__"}


def test_each_module_is_in_a_layer():
    layers = listed("rooms import what is below them", "layers")
    assert modules(ROOT) == layers


def test_the_command_line_is_told_of_each_room_whether_it_may_import_it():
    forbidden = listed("the command line calls the API", "forbidden_modules")
    assert not forbidden & SHOWN
    assert modules(ROOT) == forbidden | SHOWN | {"cli"}


@pytest.mark.parametrize("whose", PORTS)
def test_an_adapter_is_told_of_each_module_beside_it_whether_it_may_import_it(whose):
    room, shared = PORTS[whose]
    adapters = listed(whose, "source_modules")
    forbidden = listed(whose, "forbidden_modules")
    assert {f"{room}.{name}" for name in modules(ROOT / room) - shared} == adapters | forbidden
    assert {one for one in listed("only an adapter's own folder", "protected_modules") if room in one} == adapters
    assert shared <= modules(ROOT / room)


def test_an_engine_is_looked_up_by_name_only():
    protected = {one for one in listed("only an adapter's own folder", "protected_modules") if "executors" in one}
    shared = {"fleet", "port", "registry", "unit"}
    assert protected == {f"executors.{name}" for name in modules(ROOT / "executors") - shared}
