"""`cachekit doctor --neuron-contract` where the SDK or the host differs: what is found, and what cannot be checked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cachekit.compilers.neuron import contract, facts
from cachekit.compilers.neuron.contract import cached, installed, troubles
from cachekit.compilers.neuron.contract import lab as laboratory
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.verbs.neuron_contract import neuron_contract
from tests.compilers.neuron.contract_cases import GRAPHS, MAPPED, differing, enter, look, make_host, script
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.neuron_sdk import NeuronHost

ALTER = """\
from libneuronxla import neuron_cc_cache as cache, neuron_cc_wrapper as wrapper, logger
from pathlib import Path
"""


@pytest.fixture
def host(tmp_path, monkeypatch) -> Iterator[NeuronHost]:
    host = make_host(tmp_path)
    enter(host, monkeypatch)
    with neuron_alone():
        yield host


# --- an SDK that behaves in another way ------------------------------------------------------------------------------

VARIABLE_WINS = """
def get_cache_url(cache_dir=None):
    import os
    return cache.CacheUrl(os.environ["NEURON_COMPILE_CACHE_URL"])
cache.CacheUrl.get_cache_url = staticmethod(get_cache_url)
"""
NEFF_IS_ENOUGH = """
real = wrapper.look_up
def look_up(cache, entry, *, retry):
    if not cache.exists(entry + "/model.neff"):
        return real(cache, entry, retry=retry)
    logger.info(f"Using a cached neff at {entry}/model.neff")
    return True
wrapper.look_up = look_up
"""
GRAPH_IS_NEEDED = """
real = wrapper.look_up
def look_up(cache, entry, *, retry):
    return cache.exists(entry + "/model.hlo_module.pb") and real(cache, entry, retry=retry)
wrapper.look_up = look_up
"""
COMPILES_WITHOUT_GRAPH = """
real_lock = wrapper.wait_for_lock
def forget(cache, hlo):
    real_lock(cache, hlo)
    (Path(hlo).parent / "model.done").unlink(missing_ok=True)
wrapper.wait_for_lock = forget
"""
JOINED_HASH = """
import hashlib
wrapper.Options.digest = property(lambda self: hashlib.md5(" ".join(self.flags[1:]).encode()).hexdigest()[:8])
"""
ANOTHER_FILE = """
real = wrapper.write_inputs
def more(entry, graph, wanted):
    real(entry, graph, wanted)
    Path(entry, "metadata.json").write_text("{}")
wrapper.write_inputs = more
"""
HEX_NAMES = """
real = wrapper.neuron_xla_compile
wrapper.neuron_xla_compile = lambda graph, name: real(graph, "00112233445566778a0b" + name)
"""
LOCK_WITH_OWNER = """
real = cache.CompileCacheFs.hlo_acquire_lock
def acquire(self, h):
    import os
    taken = real(self, h)
    if taken:
        Path(h + ".lock").write_text(str(os.getpid()))
    return taken
cache.CompileCacheFs.hlo_acquire_lock = acquire
"""
NOBODY_WAITS = """
def acquire(self, h):
    Path(h).parent.mkdir(parents=True, exist_ok=True)
    Path(h + ".lock").touch()
    return True
cache.CompileCacheFs.hlo_acquire_lock = acquire
"""
NO_MEMORY_OF_FAILURES = """
real = wrapper.compile_cache_entry
def compile_cache_entry(entry):
    try:
        return real(entry)
    finally:
        Path(entry, "model.log").unlink(missing_ok=True)
wrapper.compile_cache_entry = compile_cache_entry
"""
OTHER_WORDS = """
real = wrapper.call_neuron_compiler
def call(command):
    text, failed = real(command)
    return (text and "this is not possible", failed)
wrapper.call_neuron_compiler = call
"""
# What is altered -> the checks that are made, which of them differs, where it says that the correction goes.
OTHER_SDKS = {
    "cache-dir-flag": (VARIABLE_WINS, cached.CHECKS, "CACHE_DIR_FLAG"),
    "no-done-no-hit": (NEFF_IS_ENOUGH, cached.CHECKS[-2:], "entries.classify"),
    "no-graph-still-hit": (GRAPH_IS_NEEDED + COMPILES_WITHOUT_GRAPH, cached.CHECKS[-1:], "entries.classify"),
    "flags-hash": (JOINED_HASH, cached.CHECKS, "flags.flags_hash"),
    "entry-files": (ANOTHER_FILE, cached.CHECKS, "FLAGS_FILE"),
    "module-name": (HEX_NAMES, cached.CHECKS, "MODULE_DIRECTORY"),
    "lock-left": (LOCK_WITH_OWNER, troubles.CHECKS[:5], "LOCK_SUFFIX"),
    "lock-waited-for": (NOBODY_WAITS, troubles.CHECKS[:4], "LOG_WORDS"),
    "failure-log": (NO_MEMORY_OF_FAILURES, troubles.CHECKS[5:], "FAILURE_LOG"),
    "failure-class": (OTHER_WORDS, troubles.CHECKS[5:8], "FAILURE_WORDS"),
}


@pytest.mark.parametrize("name", OTHER_SDKS)
def test_an_sdk_that_behaves_in_another_way_is_found(host, tmp_path, name):
    altered, checks, place = OTHER_SDKS[name]
    lab = Lab(tmp_path / "lab", script=script(tmp_path, MAPPED, ALTER, altered, GRAPHS), limit=60, wait=20)
    found = look(checks, lab)
    assert differing(found) == {name}, {outcome.name: outcome.seen for outcome in found.values()}
    assert place in found[name].where


def test_a_process_that_does_not_map_the_library_is_found(host, tmp_path):
    lab = Lab(tmp_path / "lab", script=script(tmp_path, GRAPHS), limit=60, wait=20)
    assert differing(look(troubles.CHECKS[:5], lab)) == {"cache-libraries"}


def test_a_compile_whose_process_cannot_be_told_is_found(host, tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "COMPILER_PROCESSES", ("neuron-compile",))
    monkeypatch.setattr(laboratory, "TELLING", 0.0)  # not to be waited for: it never comes
    lab = Lab(tmp_path / "lab", script=script(tmp_path, MAPPED, GRAPHS), limit=60, wait=20)
    found = look(troubles.CHECKS[:2], lab)
    assert differing(found) == {"lock-live"}
    assert found["lock-live"].seen.startswith("maybe: ")


# --- the tools -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "knobs, names",
    [
        ({"neuron_ls": "segmentation fault"}, {"neuron-ls"}),
        ({"neuron_ls": [{"neuron_device": 0}]}, {"neuron-ls"}),
        ({"cores": 4}, {"instance"}),
        ({"instance_type": "trn9.2xlarge"}, {"instance"}),
        ({"devices": 0}, set()),
    ],
)
def test_devices_that_are_told_in_another_way_are_found(host, tmp_path, knobs, names):
    host.knobs(**knobs)
    lab = Lab(tmp_path / "lab", quick=True)
    assert differing(look(installed.CHECKS, lab)) == names


def test_another_default_root_is_found(host, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_SDK_DEFAULT_ROOT", "/opt/cache")
    lab = Lab(tmp_path / "lab", quick=True)
    found = look(installed.CHECKS, lab)
    assert differing(found) == {"default-root"}
    assert found["default-root"].seen == "/opt/cache"


def test_a_tool_that_is_not_there_is_found(host, tmp_path):
    (host.bin / "neuronx-cc").unlink()
    found = look(installed.CHECKS, Lab(tmp_path / "lab", quick=True))
    assert differing(found) == {"tools"}
    assert found["tools"].seen == "not found: neuronx-cc"
    assert (found["compiler-version"].state, found["compiler-version"].seen) == ("unknown", "neuronx-cc is not on PATH")


def test_a_package_that_does_not_import_is_found(host, tmp_path, monkeypatch):
    broken = tmp_path / "broken" / "torch_neuronx"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libnrt.so.1: cannot open\\x1b[31m shared object file')")
    monkeypatch.setenv("PYTHONPATH", f"{broken.parent}{os.pathsep}{os.environ['PYTHONPATH']}")
    found = look(installed.CHECKS, Lab(tmp_path / "lab", quick=True))
    assert differing(found) == {"imports"}
    assert "libnrt.so.1" in found["imports"].seen
    assert found["imports"].seen.isprintable()


def test_a_version_without_commit_is_found(host, tmp_path, monkeypatch):
    other = tmp_path / "other" / "neuronxcc"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = '2.26.6360.0'")
    monkeypatch.setenv("PYTHONPATH", f"{other.parent}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert "version-source" in differing(look(installed.CHECKS[:3], Lab(tmp_path / "lab", quick=True)))


# --- what cannot be checked ------------------------------------------------------------------------------------------


def test_quick_compiles_nothing_and_says_so(host, tmp_path):
    make = partial(Lab, script=script(tmp_path, MAPPED, GRAPHS))
    found = neuron_contract(quick=True, laboratory=make)
    document = found.as_dict()
    states = {one["name"]: one["state"] for one in document["checks"]}
    assert host.compiles == 0
    assert (document["counts"]["differs"], found.good) == (0, True)
    for name in ("packages", "neuron-ls", "default-root", "module-name", "flags-hash", "extraction-line"):
        assert states[name] == "ok", name
    for name in ("entry-files", "log-hit", "direct-compile", "npc-files", "lock-live", "failure-log"):
        assert states[name] == "unknown", name
    assert {one["seen"] for one in document["checks"] if one["state"] == "unknown"} == {
        "it compiles, and --quick was given"
    }


def test_a_script_that_fails_makes_nothing_differ(host, tmp_path):
    lab = Lab(
        tmp_path / "lab", script=script(tmp_path, "import sys\nsys.exit('NRT: no free core')\n"), limit=60, wait=5
    )
    found = look([*cached.CHECKS, *contract.compiling.CHECKS, *troubles.CHECKS], lab)
    assert {name for name, one in found.items() if one.state != "unknown"} <= {"npc-files"}
    assert "NRT: no free core" in found["entry-files"].seen


def test_a_run_that_hangs_is_ended_with_all_that_it_started(host, tmp_path):
    pids = tmp_path / "pids"
    hangs = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(300)\n"
    )
    lab = Lab(tmp_path / "lab", script=script(tmp_path, hangs), limit=5)
    assert look(cached.CHECKS[:1], lab)["cache-dir-flag"].seen == "a compile in an empty root did not end within 5 s"
    end = time.monotonic() + 20
    while any(_alive(int(pid)) for pid in pids.read_text().split()):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_check_that_fails_itself_is_unknown_and_stops_no_other(tmp_path):
    broken = contract.Check("broken", "nothing", ("DONE",), "", lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    fine = contract.Check("fine", "{DONE}", ("DONE",), "", lambda _: contract.Seen(fits=True, words="yes"))
    found = look([broken, fine], Lab(tmp_path / "lab"))
    assert (found["broken"].state, found["broken"].seen) == (
        "unknown",
        "this check failed itself: ZeroDivisionError: division by zero",
    )
    assert (found["fine"].state, found["fine"].assumed) == ("ok", "model.done")


# --- real graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.xla
def test_the_three_lines_make_a_real_graph_that_is_as_assumed(host, tmp_path):
    lab = Lab(tmp_path / "lab", script=script(tmp_path, MAPPED, laboratory.SCRIPT))
    found = look(contract.CHECKS, lab)
    assert {name: one.seen for name, one in found.items() if one.state != "ok"} == {}
    assert len(lab.made["compiled"]) == 1
