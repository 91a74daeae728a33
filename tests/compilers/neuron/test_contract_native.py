"""`cachekit doctor --neuron-contract` on TorchNeuron, stood in for: all is as assumed, and what is not is found.

The stand-in is altered in one thing at a time, and exactly the check that it concerns must differ.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachekit.cli.doctor import contract_human
from cachekit.compilers.neuron import contract, facts
from cachekit.compilers.neuron.contract import native
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.compilers.tree_watch import Used
from cachekit.verbs.neuron_contract import neuron_contract
from tests.compilers.neuron.contract_cases import differing, enter, look
from tests.support.neuron_sdk import NATIVE_PACKAGES, PACKAGES, NeuronHost, neuron_host

BY_NAME = {one.name: one for one in native.CHECKS}


def lab_of(folder: Path, **more: object) -> Lab:
    return Lab(folder / "lab", limit=60, **more)


@pytest.fixture
def host(tmp_path, monkeypatch) -> Iterator[NeuronHost]:
    """A trn2 with TorchNeuron, whose files are its own to be altered."""
    made = neuron_host(tmp_path / "host", cores=4, instance_type="trn2.3xlarge", compile_seconds=0.1)
    shutil.copytree(NATIVE_PACKAGES, tmp_path / "site")
    made.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), made.environment["PYTHONPATH"]])
    enter(made, monkeypatch)
    return made


@pytest.fixture
def alter(tmp_path):
    """Changes the stand-in's text."""

    def _alter(file: str, old: str, new: str) -> None:
        path = tmp_path / "site" / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return _alter


@pytest.mark.feature("U1")
def test_the_stand_in_is_as_cachekit_assumes(host, tmp_path, monkeypatch):
    """With a user's settings, which the experiments must neither use nor touch."""
    own = (facts.NATIVE_ROOT_VARIABLE, facts.NATIVE_LOCAL, *facts.NATIVE_BESIDE)
    theirs = {name: str(tmp_path / "theirs") for name in own}
    others = {facts.NATIVE_DISABLE[0]: "1", facts.CC_FLAGS: "-O3", facts.NATIVE_LEVEL: "-O3"}
    for name, value in {**theirs, **others}.items():
        monkeypatch.setenv(name, value)
    found = neuron_contract(laboratory=lab_of)
    document = found.as_dict()
    assert [one for one in document["checks"] if one["state"] != "ok"] == []
    assert [one["name"] for one in document["checks"]] == list(BY_NAME)
    assert (document["neuron"], document["native"], found.good) == (True, True, True)
    assert not (tmp_path / "theirs").exists()
    assert contract_human(document)[-1].endswith("0 differ, 0 unknown")


CACHE = "torch_neuronx/cache.py"
# What is altered: the file, what stands there, what instead, and the checks that differ.
OTHERS = {
    "another variable": (CACHE, "TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_NEURONX_CACHE", ("native-variables",)),
    "names without shards": (CACHE, 'root() / name[:2] / name[2:4] / f"', 'root() / f"', ("native-names",)),
    "longer names": (CACHE, 'f"{name}.neff"', 'f"graph_{name}.neff"', ("native-names",)),
    "a file beside each": (
        CACHE, "Path(fresh).rename(path)", "Path(fresh).rename(path)\n    path.with_suffix('.json').touch()",
        ("native-files",),
    ),
    "locks elsewhere": (CACHE, '"TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"', '"TORCH_NEURONX_LOCAL"', ("native-variables",)),
    "another header": (CACHE, "return made.read_bytes()", "return b'NEFF' + made.read_bytes()", ("native-digest",)),
    "another chip": (CACHE, 'TARGET = "trn2"', 'TARGET = "trn1"', ("native-contents",)),
    "another LNC": (CACHE, '"--output", str(made)]', '"--output", str(made), "-lnc=1"]', ("native-lnc",)),
    "a name of the path": (CACHE, "text = [graph,", "text = [graph, str(root()),", ("native-elsewhere",)),
    "a name of the version": (
        CACHE, "text = [graph,", "text = [graph, __import__('neuronxcc').__version__,", ("native-version",)
    ),
    "a name of the metadata": (
        CACHE, "text = [graph,",
        "text = [graph, __import__('importlib.metadata').metadata.version('neuronx-cc'),", ("native-version",),
    ),
    "a name of what the compiler says": (
        CACHE, "text = [graph,",
        "text = [graph, subprocess.run(['neuronx-cc', '--version'], capture_output=True).stdout,", ("native-version",),
    ),
    "a name without flags": (CACHE, ', os.environ.get("NEURON_CC_FLAGS", "")]', "]", ("native-flags",)),
    "a name without its level": (
        CACHE, ', os.environ.get("NEURON_COMPILER_OPT_LEVEL", "")', "", ("native-level",)
    ),
    "a longer variable": (
        CACHE, "TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_NEURONX_NEFF_CACHE_DIRECTORY", ("native-variables",)
    ),
    "a graph of another chip": (
        CACHE, "--target={TARGET}", "--target={'trn1' if graph < 'd' else TARGET}", ("native-contents",)
    ),
    "another graph of another chip": (
        CACHE, "--target={TARGET}", "--target={'trn1' if graph > 'd' else TARGET}", ("native-contents",)
    ),
    "a graph of another LNC": (
        CACHE, '"--output", str(made)]', '"--output", str(made), *["-lnc=1"] * (graph < "d")]', ("native-lnc",)
    ),
    "another graph of another LNC": (
        CACHE, '"--output", str(made)]', '"--output", str(made), *["-lnc=1"] * (graph > "d")]', ("native-lnc",)
    ),
    "another device": ("torch/__init__.py", 'device == "neuron"', 'device == "trn"', ("native-device",)),
    "another backend": ("torch/__init__.py", '("neuron", False)', '("trn", False)', ("native-device",)),
    "as many cores as physical ones": ("torch/__init__.py", "return 4", "return 8", ("native-count",)),
    "counters that are no numbers": (
        "torch_neuronx/metrics.py", "return _COUNTED.get(name)", "return {name}", ("native-counters",)
    ),
    "what fails runs some other way": (CACHE, 'sys.exit("[ERROR]', 'os._exit(0), ("[ERROR]', ("native-failure",)),
    "no counters": ("torch_neuronx/metrics.py", "def get_counter_value", "def value_of", ("native-counters",)),
    "other counters": (CACHE, "CompilationCache.PersistentHits", "CompilationCache.Hits", ("native-counters",)),
    "cores that nothing takes away": (
        "torch/__init__.py", '"NEURON_RT_NUM_CORES", "0"', '"NEURON_RT_CORES", "0"', ("native-cores",)
    ),
    "a number before a list": (
        "torch/__init__.py", 'if said := os.environ.get("NEURON_RT_VISIBLE_CORES"):',
        'if (said := os.environ.get("NEURON_RT_VISIBLE_CORES")) and "NEURON_RT_NUM_CORES" not in os.environ:',
        ("native-cores",),
    ),
    "no switch": (CACHE, 'return os.environ.get("TORCH', 'return "" and ("TORCH', ("native-disable",)),
    "half a graph kept": (
        CACHE, "subprocess.run([*command, *flags], check=True)",
        "write(path_of(key(graph)), b'half')\n        subprocess.run([*command, *flags], check=True)",
        ("native-killed",),
    ),
    "a failure that is kept": (
        CACHE, 'sys.exit("[ERROR]', 'write(path_of(key(graph)), b""), sys.exit("[ERROR]', ("native-failure",)
    ),
    "other words": (CACHE, "[NCC_EARG001] Illegal argument(s) found", "no", ("native-failure",)),
    "nothing kept": (CACHE, "        write(path, data)\n", "", ("native-root-variable",)),
    "no import": (
        "torch_neuronx/__init__.py", '"""Stands in', 'raise ImportError("libnrt.so.1")\n"""', ("native-imports",)
    ),
}  # fmt: skip
# These look at every experiment; the others at what they need.
WITH = {
    "native-version": ("native-found", "native-elsewhere"),
    "native-elsewhere": ("native-found", "native-flags"),
    "native-names": ("native-found", "native-files", "native-digest"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_torchneuron_that_behaves_in_another_way_is_found(host, alter, tmp_path, what):
    file, old, new, wanted = OTHERS[what]
    alter(file, old, new)
    checks = [BY_NAME[name] for one in wanted for name in (one, *WITH.get(one, ()))]
    found = look(checks, lab_of(tmp_path))
    assert differing(found) == {*wanted}, {one.name: one.seen for one in found.values()}


def test_a_compiler_without_a_process_is_found(host, alter, tmp_path):
    alter(
        CACHE, "subprocess.run([*command, *flags], check=True)",
        "import neuronxcc.driver\n        sys.argv = [*command, *flags]\n        neuronxcc.driver.main()",
    )  # fmt: skip
    found = look([BY_NAME["native-process"], BY_NAME["native-killed"]], lab_of(tmp_path))
    assert differing(found) == {"native-process"}
    assert found["native-killed"].state == "unknown"


def test_a_second_process_that_compiles_is_found(host, alter, tmp_path):
    alter(CACHE, "text = [graph,", "text = [graph, str(os.getpid()),")
    checks = [BY_NAME[name] for name in ("native-found", "native-reads", "native-counters")]
    assert differing(look(checks, lab_of(tmp_path))) == {"native-found", "native-reads", "native-counters"}


def test_a_hit_that_is_compiled_again_under_its_old_name_is_found(host, alter, tmp_path):
    """It leaves no new graph."""
    alter(CACHE, "if path.exists():", "if not graph:")
    checks = [BY_NAME[name] for name in ("native-found", "native-elsewhere", "native-counters")]
    assert differing(look(checks, lab_of(tmp_path))) == {"native-found", "native-elsewhere", "native-counters"}


def test_a_graph_that_is_bound_to_its_place_is_found(host, alter, tmp_path):
    alter(CACHE, "if path.exists():", "if path.exists() and path.with_suffix('.at').read_text() == str(root()):")
    told = "        write(path, data)\n"
    alter(CACHE, told, f"{told}        path.with_suffix('.at').write_text(str(root()))\n")
    found = look([BY_NAME["native-found"], BY_NAME["native-elsewhere"]], lab_of(tmp_path))
    assert differing(found) == {"native-elsewhere"}
    assert found["native-elsewhere"].seen == "2 graphs written, a compiler was seen"


def test_a_lock_that_a_killed_process_leaves_for_ever_is_found(host, alter, tmp_path):
    """The next process did not end, which was taken for a thing that cannot be known."""
    held = "(local / f'{path.stem}.held')"
    alter(
        CACHE, "fcntl.flock(lock, fcntl.LOCK_EX)",
        f"while {held}.exists(): __import__('time').sleep(0.05)\n        {held}.touch()",
    )  # fmt: skip
    alter(CACHE, "        write(path, data)\n", f"        write(path, data)\n        {held}.unlink()\n")
    found = look([BY_NAME["native-killed"]], Lab(tmp_path / "lab", limit=6))["native-killed"]
    assert (found.state, found.seen) == ("differs", "0 graphs, 0 of them damaged; then the next process did not end")


@pytest.mark.parametrize("what", ["flags", "level"])
def test_where_nothing_is_kept_with_another_flag_its_name_is_not_known(host, alter, tmp_path, what):
    """No name in common is none that differs."""
    variable = {"flags": facts.CC_FLAGS, "level": facts.NATIVE_LEVEL}[what]
    alter(CACHE, "if disabled():", f"if disabled() or os.environ.get({variable!r}):")
    found = look([BY_NAME[f"native-{what}"]], lab_of(tmp_path))[f"native-{what}"]
    assert (found.state, found.seen) == ("unknown", "the script left no graph then")


def test_a_version_that_a_module_of_the_compilers_has_is_another_as_well(host, alter, tmp_path):
    shutil.copytree(PACKAGES / "neuronxcc", tmp_path / "site" / "neuronxcc")
    with (tmp_path / "site" / "neuronxcc" / "__init__.py").open("a") as source:
        source.write("\nfrom neuronxcc import told\n")
    (tmp_path / "site" / "neuronxcc" / "told.py").write_text("__version__ = '1'\n")
    alter(CACHE, "text = [graph,", "text = [graph, __import__('neuronxcc').told.__version__,")
    assert differing(look([BY_NAME["native-version"]], lab_of(tmp_path))) == {"native-version"}


def test_a_failure_on_a_host_without_a_device_says_nothing_of_the_package(host, alter, tmp_path):
    alter("torch/__init__.py", 'device == "neuron"', "not device")
    host.knobs(devices=0)
    found = look([BY_NAME["native-device"], BY_NAME["native-count"]], lab_of(tmp_path))
    assert {one.state for one in found.values()} == {"unknown"}
    assert found["native-device"].seen == "there is no Neuron device"


@pytest.mark.parametrize("root", ["/opt/neff_cache", "/tmp/neff_cache_v2", "/var/tmp/neff_cache"])
def test_a_default_root_that_nothing_names_is_unknown(host, alter, tmp_path, root):
    alter(CACHE, "/tmp/neff_cache", root)
    found = look([BY_NAME["native-default-root"]], lab_of(tmp_path))["native-default-root"]
    assert (found.state, found.seen.partition(",")[0]) == ("unknown", "its files do not name it")


def test_without_access_times_it_is_not_known_what_was_read(host, tmp_path, monkeypatch):
    monkeypatch.setattr(Used, "read", lambda _: None)
    found = look([BY_NAME["native-reads"]], lab_of(tmp_path))["native-reads"]
    assert (found.state, "keeps no access times" in found.seen) == ("unknown", True)


def test_one_core_tells_nothing_of_the_variables(host, alter, tmp_path):
    alter("torch/__init__.py", "return 4", "return 1")
    assert look([BY_NAME["native-cores"]], lab_of(tmp_path))["native-cores"].state == "unknown"


def test_an_older_package_is_taken_for_the_one_on_xla(host, tmp_path):
    info = tmp_path / "site" / "torch_neuronx-2.14.3.0.dist-info" / "METADATA"
    info.write_text(info.read_text().replace("2.14.3.0", "2.9.0"))
    lab = lab_of(tmp_path)
    assert contract.checks_of(lab) == contract.CHECKS
    assert differing(look([BY_NAME["native-packages"]], lab)) == {"native-packages"}


def test_a_tool_that_does_not_answer_is_asked_once(host, tmp_path):
    """Six checks read what it lists; each of them waited for half a minute."""
    calls, tool = tmp_path / "calls", host.bin / "neuron-ls"
    tool.write_text(f"#!/bin/sh\necho >> {calls}\necho no list\n")
    names = ("neuron-ls", "instance", "neuron-monitor", "native-count", "native-contents", "native-lnc")
    found = look([BY_NAME[name] for name in names], lab_of(tmp_path))
    assert differing(found) == {"neuron-ls"}
    assert calls.read_text() == "\n"


def test_quick_compiles_nothing_and_says_so(host, tmp_path):
    found = neuron_contract(quick=True, laboratory=lab_of)
    document = found.as_dict()
    states = {one["name"]: one["state"] for one in document["checks"]}
    assert host.compiles == 0
    assert (document["counts"]["differs"], found.good) == (0, True)
    assert {name for name, state in states.items() if state == "ok"} == {
        "native-packages", "native-imports", "version-source", "compiler-version", "neuron-ls", "instance",
        "neuron-monitor", "native-variables", "native-default-root", "native-cores", "native-count",
    }  # fmt: skip
    assert {one["seen"] for one in document["checks"] if one["state"] == "unknown"} == {
        "it compiles, and --quick was given"
    }
