"""`cachekit doctor --neuron-contract` against the stand-in for the SDK: all is as assumed, and what is not is found.

The stand-in is altered in one thing at a time, or a fact is, and exactly the check that it concerns must differ.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from neuron_sdk import SCRIPTS, NeuronHost, neuron_host
from one_neuron import neuron_alone

from cachekit.actions.neuron_contract import exit_code, neuron_contract
from cachekit.cli import app, out
from cachekit.cli.doctor import contract_human
from cachekit.compilers.neuron import contract, facts
from cachekit.compilers.neuron.contract import bench, cached, installed, troubles
from cachekit.compilers.neuron.contract import lab as laboratory
from cachekit.compilers.neuron.contract.lab import FLAGS, WRONG_FLAG, Lab
from cachekit.compilers.neuron.flags import flags_hash

# What any process that uses the real cache has mapped; the stand-in is all Python.
MAPPED = """\
import mmap, pathlib, tempfile
library = pathlib.Path(tempfile.gettempdir(), "libneuronpjrt.so")
library.write_bytes(bytes(4096))
kept = library.open("rb")
mapped = mmap.mmap(kept.fileno(), 0, access=mmap.ACCESS_READ)
"""
GRAPHS = f"import runpy\nrunpy.run_path({str(SCRIPTS / 'graphs.py')!r}, run_name='__main__')\n"
ALTER = """\
from libneuronxla import neuron_cc_cache as cache, neuron_cc_wrapper as wrapper, logger
from pathlib import Path
"""


def script(folder: Path, *parts: str) -> tuple[str, str]:
    """A script of these parts."""
    path = folder / "script.py"
    path.write_text("".join(parts))
    return sys.executable, str(path)


def make_host(folder: Path, **knobs: object) -> NeuronHost:
    """The stand-in, with torch-xla "installed", and a compiler that refuses the flag that it must not know."""
    refused = flags_hash([*FLAGS, WRONG_FLAG], "json+target", "trn1")
    host = neuron_host(
        folder / "host", compile_seconds=0.3, lock_minute=0.2,
        failures=[{"match": f"*+{refused}", "class": "user-error"}], **knobs,
    )  # fmt: skip
    if importlib.util.find_spec("torch_xla") is None:
        info = folder / "more" / "torch_xla-2.9.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-xla\nVersion: 2.9.0\n")
        host.environment["PYTHONPATH"] += f"{os.pathsep}{info.parent}"
    # Asked for only; nothing of a laboratory is ever written there.
    del host.environment["NEURON_SDK_DEFAULT_ROOT"]
    return host


def enter(host: NeuronHost, patch: pytest.MonkeyPatch, **variables: str) -> None:
    """Be a process of that host."""
    for name in list(os.environ):
        if name not in host.environment:
            patch.delenv(name)
    for name, value in {**host.environment, **variables}.items():
        patch.setenv(name, value)


def look(checks, lab: Lab) -> dict[str, contract.Outcome]:
    return {outcome.name: outcome for outcome in contract.examine(checks, lab)}


def differing(outcomes: dict[str, contract.Outcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.state == "differs"}


@pytest.fixture
def host(tmp_path, monkeypatch) -> Iterator[NeuronHost]:
    host = make_host(tmp_path)
    enter(host, monkeypatch)
    with neuron_alone():
        yield host


@dataclasses.dataclass
class Whole:
    """One run of every check, and the laboratory that it was made in."""

    host: NeuronHost
    document: dict
    lab: Lab
    told: list[str]


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
        document = neuron_contract(tell=told.append, laboratory=make)
    return Whole(host, document, labs[0], told)


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
    assert (whole.document["neuron"], exit_code(whole.document)) == (True, 0)
    assert len(whole.told) > 10


def test_the_users_root_is_not_touched(whole):
    assert list(whole.host.root.iterdir()) == []
    assert not (whole.host.folder / "default-root").exists()


def test_every_check_has_a_name_of_its_own_and_says_what_to_correct():
    names = [one.name for one in contract.CHECKS]
    assert len(set(names)) == len(names)
    for one in contract.CHECKS:
        assert one.assumed
        assert one.how
        assert one.where
        for place in one.where:
            module, _, name = f"facts.{place}".rpartition(".")
            inside = importlib.import_module(f"cachekit.compilers.neuron.{module.removeprefix('facts.')}")
            assert hasattr(inside, name), f"{one.name}: {place}"


def test_the_manual_lists_every_check():
    manual = (Path(__file__).parent.parent / "docs" / "neuron.md").read_text(encoding="utf-8")
    table = manual.partition("## The first ten minutes on a real instance")[2].partition("## What was verified")[0]
    listed = [name for row in table.splitlines() if row.startswith("| ") for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(one.name for one in contract.CHECKS)


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
    document = neuron_contract(quick=True, laboratory=make)
    states = {one["name"]: one["state"] for one in document["checks"]}
    assert host.compiles == 0
    assert (document["counts"]["differs"], exit_code(document)) == (0, 0)
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
    counts = {state: sum(one.state == state for one in found.values()) for state in contract.STATES}
    document = {**whole.document, "checks": [one.as_dict() for one in found.values()], "counts": counts}
    assert exit_code(document) == 1
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


# --- real graphs -----------------------------------------------------------------------------------------------------


@pytest.mark.xla
def test_the_three_lines_make_a_real_graph_that_is_as_assumed(host, tmp_path):
    lab = Lab(tmp_path / "lab", script=script(tmp_path, MAPPED, laboratory.SCRIPT))
    found = look(contract.CHECKS, lab)
    assert {name: one.seen for name, one in found.items() if one.state != "ok"} == {}
    assert len(lab.made["compiled"]) == 1
