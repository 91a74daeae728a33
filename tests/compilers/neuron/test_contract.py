"""`cachekit doctor --neuron-contract` against the stand-in for the SDK: all is as assumed, and what is not is found.

The stand-in is altered in one thing at a time, or a fact is, and exactly the check that it concerns must differ.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
from pathlib import Path

import pytest

from cachekit.cli import app, out
from cachekit.cli.doctor import contract_human
from cachekit.compilers.neuron import contract, facts
from cachekit.compilers.neuron.contract import bench
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.verbs.neuron_contract import Contract, neuron_contract
from tests.compilers.neuron.contract_cases import GRAPHS, MAPPED, differing, enter, look, make_host, script
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.neuron_sdk import NeuronHost


@dataclasses.dataclass
class Whole:
    """One run of every check, and the laboratory that it was made in."""

    host: NeuronHost
    found: Contract
    lab: Lab
    told: list[str]

    @property
    def document(self) -> dict:
        return self.found.as_dict()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Whole:
    folder = tmp_path_factory.mktemp("contract")
    host = make_host(folder)
    labs, told = [], []

    def make(place: Path, **arguments: object) -> Lab:
        # A folder of its own, as that of the action is gone when it returns.
        lab = Lab(folder / "lab", script=script(folder, MAPPED, GRAPHS), limit=60, wait=20, **arguments)
        labs.append(lab)
        return lab

    with pytest.MonkeyPatch.context() as patch, neuron_alone():
        # A user's settings, which the experiments must neither use nor touch.
        enter(host, patch, NEURON_CC_FLAGS="--model-type=cnn-training", NEURON_EXTRACT_GRAPHS_ONLY="1")
        found = neuron_contract(tell=told.append, laboratory=make)
    return Whole(host, found, labs[0], told)


def again(whole: Whole) -> dict[str, contract.Outcome]:
    """Every check anew, on experiments that were made before."""
    with pytest.MonkeyPatch.context() as patch:
        enter(whole.host, patch)
        return look(contract.CHECKS, whole.lab)


# --- everything is as assumed ----------------------------------------------------------------------------------------


@pytest.mark.feature("U1")
def test_the_stand_in_is_as_cachekit_assumes(whole):
    assert [one for one in whole.document["checks"] if one["state"] != "ok"] == []
    assert whole.document["counts"] == {"ok": len(contract.CHECKS), "differs": 0, "unknown": 0}
    assert (whole.document["neuron"], whole.found.good) == (True, True)
    assert len(whole.told) > 10


def test_the_users_root_is_not_touched(whole):
    assert list(whole.host.root.iterdir()) == []
    assert not (whole.host.folder / "default-root").exists()


def test_every_check_has_a_name_of_its_own_and_says_what_to_correct():
    for checks in (contract.CHECKS, contract.NATIVE_CHECKS):
        assert len({one.name for one in checks}) == len(checks)
    for one in (*contract.CHECKS, *contract.NATIVE_CHECKS):
        assert one.assumed
        assert one.how
        assert one.where
        for place in one.where:
            module, _, name = f"facts.{place}".rpartition(".")
            inside = importlib.import_module(f"cachekit.compilers.neuron.{module.removeprefix('facts.')}")
            assert hasattr(inside, name), f"{one.name}: {place}"


def test_the_manual_lists_every_check():
    manual = (Path(__file__).parents[3] / "docs" / "neuron.md").read_text(encoding="utf-8")
    table = manual.partition("## The first ten minutes on a real instance")[2].partition("## What was verified")[0]
    listed = [name for row in table.splitlines() if row.startswith("| ") for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(one.name for one in (*contract.CHECKS, *contract.NATIVE_CHECKS))


# --- a fact that is wrong: one check differs, and names it -----------------------------------------------------------


@pytest.mark.parametrize(
    "fact, value, name",
    [
        ("DEFAULT_ROOT", "/tmp/neuron-compile-cache", "default-root"),
        ("FLAGS_HASH_DIGITS", 7, "flags-hash"),
        ("NEFF_TARGETS", {**facts.NEFF_TARGETS, "sunda": "trn9"}, "neff-contents"),
        ("COMPILER_VERSION", re.compile(r"neuronx-cc (?P<version>\d\S*)"), "compiler-version"),
        ("COMPILER_DIRECTORY_PREFIX", "neuronx-cc-", "compiler-directory"),
        ("TOOLCHAIN_PACKAGES", (*facts.TOOLCHAIN_PACKAGES, "neuronx-cc-stubs"), "packages"),
        ("CACHE_URL", "NEURON_CACHE_URL", "root-variable"),
        ("NEFF_MODULE", re.compile(r"(GRAPH_\d+)"), "neff-name"),
    ],
)
def test_a_wrong_fact_is_found(whole, monkeypatch, fact, value, name):
    monkeypatch.setattr(facts, fact, value)
    found = again(whole)
    assert differing(found) == {name}
    assert fact in found[name].where
    assert found[name].edit.startswith(", ".join(where for where in found[name].where if "." not in where))
    assert "cachekit/compilers/neuron/facts.py" in found[name].edit


# --- another wording -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "experiment, words, name",
    [
        ("first", "Compilation Successfully Completed", "log-compiled"),
        ("second", "Using a cached neff", "log-hit"),
        ("second", r"\[INFO\]", "log-header"),
        ("extracted", "Extracting graphs", "extraction-line"),
        ("parallel", "Compilation summary.*|Total success.*", "npc-lines"),
        ("parallel", "Current remaining items", "npc-lines"),
        ("failed_again", "Got a cached failed neff", "failure-remembered"),
        ("parallel_failed", "failed are 1", "npc-hides-failures"),
    ],
)
def test_another_wording_is_found(whole, monkeypatch, experiment, words, name):
    run = whole.lab.made[experiment]
    altered = bench.Run(run.code, re.sub(words, "Something else", run.out), run.err)
    assert altered.out != run.out
    monkeypatch.setitem(whole.lab.made, experiment, altered)
    found = again(whole)
    assert differing(found) == {name}
    assert found[name].state == "differs"


def test_a_wait_that_is_not_told_is_found(whole, monkeypatch):
    waited = whole.lab.made["waited"]
    silent = dataclasses.replace(waited, run=bench.Run(0, "", ""))
    monkeypatch.setitem(whole.lab.made, "waited", silent)
    found = again(whole)
    assert differing(found) == {"lock-waited-for"}
    assert found["lock-removed"].state == "unknown"


@pytest.mark.parametrize(
    "place, name",
    [("model.done", "done-mark"), ("model.neff", "neff-digest"), ("compile_flags.json", "flags-file")],
)
def test_other_contents_are_found(whole, place, name):
    path = whole.lab.made["compiled"][0].path / place
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"1")
        found = again(whole)
    finally:
        path.write_bytes(before)
    assert differing(found) == {name}
    assert found[name].seen


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs `cachekit`; gives stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(out, "_style", out._Style())

    def _command(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert app.run(arguments) == code
        return capsys.readouterr()

    return _command


@pytest.mark.feature("U1")
def test_without_neuron_all_is_unknown_and_the_exit_code_is_1(command):
    printed, said = command("doctor", "--neuron-contract", code=1)
    assert said == ""
    assert "There is no Neuron here: neuronx-cc, libneuronxla, torch-neuronx not installed" in " ".join(printed.split())
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80
    document = json.loads(command("doctor", "--neuron-contract", "--format", "json", code=1)[0])
    assert document["counts"] == {"ok": 0, "differs": 0, "unknown": len(contract.CHECKS)}


def test_a_placeholder_is_no_neuron(command, tmp_path, monkeypatch):
    for name, version in (("torch_neuronx", "1.0"), ("neuronx_cc", "1.0.post1"), ("libneuronxla", "1.0")):
        info = tmp_path / "site" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    printed = command("doctor", "--neuron-contract", code=1)[0]
    assert "placeholder" in printed
    assert f"0 ok, 0 differ, {len(contract.CHECKS)} unknown" in printed


def test_without_room_for_the_experiments_there_is_an_error_with_a_hint(command, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert "set TMPDIR to a folder on a local disk" in command("doctor", "--neuron-contract", code=1)[1]


def test_quick_alone_is_a_usage_error(command):
    assert "--quick goes with --neuron-contract" in command("doctor", "--quick", code=2)[1]


def test_the_screen_says_what_differs_and_where_to_correct_it(whole, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(facts, "DEFAULT_ROOT", "/tmp/neuron-compile-cache")
    found = again(whole)
    altered = dataclasses.replace(whole.found, outcomes=tuple(found.values()))
    assert not altered.good
    document = altered.as_dict()
    lines = contract_human(document)
    assert max(map(len, lines)) <= 80
    at = next(number for number, line in enumerate(lines) if line.startswith("differs"))
    assert lines[at].split() == ["differs", "default-root", "/var/tmp/neuron-compile-cache"]
    assert [line.strip() for line in lines[at + 1 : at + 5]] == [
        "assumed: with neither flag nor variable the cache is in",
        "/tmp/neuron-compile-cache",
        "seen:    /var/tmp/neuron-compile-cache",
        "how:     asks libneuronxla's CacheUrl",
    ]
    assert lines[at + 5].strip() == "edit:    DEFAULT_ROOT in cachekit/compilers/neuron/facts.py"
    assert lines[-1].endswith(f": {len(found) - 1} ok, 1 differ, 0 unknown")
    assert len(contract_human(document, whole=True)) > 4 * len(found)
