"""`cachekit doctor --neuron-contract`: one experiment on a stand-in for the SDK, which is altered in several ways.

The untouched stand-in keeps every promise and is as assumed. What is altered is found, and nothing else is.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.cli.doctor import contract_human
from cachekit.compilers.evidence import Assumption, Evidence, Observation, Subject, count
from cachekit.compilers.experiment import FIRST, PROMISES, Proof
from cachekit.compilers.neuron import assumptions, facts, native_assumptions
from cachekit.process import below
from cachekit.verbs import prove
from cachekit.verbs.doctor import Finding
from cachekit.verbs.prove import Contract
from tests.compilers.neuron.contract_cases import (
    PROGRAM,
    REFUSED,
    altered,
    differing,
    machine,
    native_machine,
    outcomes,
    proof,
)
from tests.compilers.neuron.neuron_machine import Machine
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.processes import until

pytest_plugins = ["tests.support.cli_session"]

XLA = structs.replace(assumptions.XLA, probe=PROGRAM)
NATIVE = native_assumptions.NATIVE
SUBJECTS = (assumptions.XLA, NATIVE)
MADE = ("train", "run", "flags", "killed", "refused")  # the steps that assumptions are looked up in, and what they need


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Evidence:
    """What an experiment on the untouched stand-in left."""
    folder = tmp_path_factory.mktemp("contract")
    with neuron_alone():
        return proof(machine(folder / "host"), folder / "proof", XLA).make(MADE)


# Nothing is altered


@pytest.mark.feature("U1")
def test_the_stand_in_keeps_every_promise_and_is_as_assumed(whole):
    found = outcomes(XLA, whole)
    left = {promise.name for promise in PROMISES} - whole.steps.keys()
    assert not_ok(found).keys() == left


def not_ok(found: dict) -> dict[str, str]:
    return {name: one.seen for name, one in found.items() if one.state != "ok"}


@pytest.mark.slow
@pytest.mark.feature("U1")
@pytest.mark.parametrize("subject, host", [(XLA, machine), (NATIVE, native_machine)], ids=["xla", "torchneuron"])
def test_a_whole_experiment_shows_every_promise_and_assumption(tmp_path, subject, host):
    with neuron_alone():
        seen = proof(host(tmp_path / "host"), tmp_path / "proof", subject).make()
    assert not_ok(outcomes(subject, seen)) == {}


def test_every_name_is_its_own_and_what_is_to_be_corrected_is_there():
    for subject in SUBJECTS:
        names = [promise.name for promise in PROMISES] + [row.name for row in subject.rows]
        assert len({*names}) == len(names)
        for row in subject.rows:
            for place in row.where:
                module, _, name = f"facts.{place}".rpartition(".")
                inside = importlib.import_module(f"cachekit.compilers.neuron.{module.removeprefix('facts.')}")
                assert hasattr(inside, name), f"{row.name}: {place}"


def test_the_manual_lists_every_promise_and_assumption():
    manual = (Path(__file__).parents[3] / "docs" / "neuron.md").read_text(encoding="utf-8")
    table = manual.partition("## The first ten minutes on a real instance")[2].partition("## What was verified")[0]
    listed = [name for row in table.splitlines() if row.startswith("| ") for name in re.findall(r"`([^`]+)`", row)]
    rows = [row.name for subject in SUBJECTS for row in subject.rows]
    assert sorted(listed) == sorted([*(promise.name for promise in PROMISES), *rows])


@pytest.mark.feature("U1")
@pytest.mark.parametrize("name", [one.name for one in PROMISES])
def test_a_step_of_which_not_came_what_must_come_breaks_its_promise(whole, name):
    """As a record that is not found, a graph that others' flags get, and flags that are not refused."""
    step = whole.steps.get(name, whole.steps["train"])
    compiled = 0 if name in {"warm", "run"} else 1
    other = structs.replace(step, code=0, new=frozenset(), answer={**step.answer, "compiled": compiled})
    assert outcomes(XLA, Evidence({**whole.steps, name: other}))[name].state == "differs"


# An SDK that does not do what the product promises

KEYS = """\
import hashlib, os, pathlib, time
from libneuronxla import neuron_cc_wrapper as wrapper
real = wrapper.neuron_xla_compile
def compiled(graph, name):
    parts = [{parts}]
    return real(graph, str(int(name) + int(hashlib.md5(repr(parts).encode()).hexdigest()[:8], 16)))
wrapper.neuron_xla_compile = compiled
"""
AGE = """
look_up = wrapper.look_up
def young(cache, entry, *, retry):
    done = pathlib.Path(entry, "model.done")
    if done.exists() and time.time() - done.stat().st_mtime > 86400:
        done.unlink()
    return look_up(cache, entry, retry=retry)
wrapper.look_up = young
"""
DEAF = """
wrapper.Options.digest = property(lambda self: "f7f529f3")
"""
EARLY = """\
import pathlib
from libneuronxla import neuron_cc_wrapper as wrapper
real = wrapper.call_neuron_compiler
def early(command):
    folder = pathlib.Path(command[3]).name.removeprefix("model.").removesuffix(".hlo_module.pb")
    for entry in pathlib.Path(wrapper.os.environ["NEURON_COMPILE_CACHE_URL"]).glob("*/" + folder):
        (entry / "model.done").touch()
    return real(command)
wrapper.call_neuron_compiler = early
"""
BROKEN = {
    # Graphs are named after the working directory, the user and the number of workers; old files count for nothing.
    "directory, user, world size, age": (
        KEYS.format(parts="os.getcwd(), os.environ.get('USER'), os.environ.get('WORLD_SIZE')") + AGE,
        ("working-directory", "home", "age", "rank"),
        {"working-directory", "home", "age", "rank"},
    ),
    # The cache's folder and the worker's rank are; the flags are not.
    "cache dir, rank, flags": (
        KEYS.format(parts="os.environ['NEURON_COMPILE_CACHE_URL'], os.environ.get('RANK')") + DEAF,
        ("cache-dir", "rank", "flags"),
        {"cache-dir", "rank", "flags"},
    ),
    # A module counts as done before it is.
    "done too early": (EARLY, ("killed",), {"killed"}),
}


@pytest.mark.feature("U1")
@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_an_sdk_that_breaks_a_promise_is_found(tmp_path, what):
    text, steps, wanted = BROKEN[what]
    made = machine(tmp_path / "host")
    altered(made, text)
    with neuron_alone():
        found = outcomes(XLA, proof(made, tmp_path / "proof", XLA).make(steps))
    assert differing(found) == wanted, {name: one.seen for name, one in found.items() if one.state != "ok"}


def test_where_the_warm_fails_nothing_else_is_judged(tmp_path):
    fails = [
        sys.executable,
        "-c",
        "import sys; print('error[compile]: it did not compile', file=sys.stderr); sys.exit(6)",
    ]
    found = outcomes(XLA, Proof(XLA, tmp_path, command=fails, environ={}).make(["train"]))
    assert differing(found) == {"warm"}
    assert found["warm"].seen == "exit code 6: it did not compile"
    assert found["train"].seen.startswith("not tried, as the step warm failed: exit code 6")


# A fact that is wrong, other words, other contents: one assumption differs, and says where to correct it


@pytest.mark.parametrize(
    "fact, value, name",
    [
        ("FLAGS_HASH_DIGITS", 7, "flags-hash"),
        ("NEFF_TARGETS", {**facts.NEFF_TARGETS, "sunda": "trn9"}, "neff-contents"),
        ("TARGETS", ("trn9",), "target"),
        ("NEFF_MODULE", re.compile(r"(GRAPH_\d+)"), "neff-contents"),
    ],
)
def test_a_wrong_fact_is_found(whole, monkeypatch, fact, value, name):
    monkeypatch.setattr(facts, fact, value)
    found = outcomes(XLA, whole)
    assert differing(found) == {name}
    assert found[name].edit.endswith("in cachekit/compilers/neuron/facts.py") or "facts.py; " in found[name].edit


@pytest.mark.parametrize(
    "step, words, name",
    [
        ("run", "Compilation Successfully Completed", "log-compiled"),
        ("train", "Using a cached neff", "log-hit"),
        ("train", r"\[INFO\]", "log-header"),
        ("warm", "Extracting graphs", "extraction-line"),
    ],
)
def test_another_text_is_found(whole, step, words, name):
    before = whole.steps[step]
    other = structs.replace(
        before, log=re.sub(words, "Something else", before.log), said=re.sub(words, "Something else", before.said)
    )
    found = outcomes(XLA, Evidence({**whole.steps, step: other}))
    assert differing(found) == {name}
    assert "LOG_" in found[name].edit


def one_module(whole: Evidence) -> Path:
    return next(whole.steps["warm"].left.glob("neuronxcc-*/MODULE_1+*"))


def left_lock(whole: Evidence) -> Path:
    return next(whole.steps["killed"].left.rglob("*.lock"))


def failed_module(whole: Evidence) -> Path:
    return min(whole.steps["refused"].cache.glob("neuronxcc-*/MODULE_*/model.log"))


@pytest.mark.parametrize(
    "place, change, name",
    [
        (lambda whole: one_module(whole) / "model.done", lambda old: old + b"1", "module-files"),
        (lambda whole: one_module(whole) / "model.neff", lambda old: old + b"1", "neff-digest"),
        (lambda whole: one_module(whole) / "metadata.json", lambda _: b"{}", "module-files"),
        (left_lock, lambda old: old + b"4711", "lock-left"),
        (failed_module, lambda _: None, "failure-log"),
        (failed_module, lambda _: b"this is not possible", "failure-class"),
    ],
)
def test_other_contents_are_found(
    whole, place: Callable[[Evidence], Path], change: Callable[[bytes], bytes | None], name
):
    path = place(whole)
    before = path.read_bytes() if path.exists() else None
    after = change(before or b"")
    try:
        path.unlink(missing_ok=True)
        if after is not None:
            path.write_bytes(after)
        found = outcomes(XLA, whole)
    finally:
        path.unlink(missing_ok=True)
        if before is not None:
            path.write_bytes(before)
    assert differing(found) == {name}


def test_a_look_that_fails_itself_is_unknown_and_stops_no_other(whole):
    broken = Assumption("broken", "nothing", (), lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    fine = Assumption("fine", "{DONE}", ("DONE",), lambda _: Observation(fits=True, words="yes\x1b[31m"))
    found = outcomes(structs.replace(XLA, rows=(broken, fine)), whole)
    assert found["broken"].seen == "the check itself failed: ZeroDivisionError: division by zero"
    assert (found["fine"].state, found["fine"].assumed, found["fine"].seen) == ("ok", "model.done", "yes\\x1b[31m")


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    pid = tmp_path / "pid"
    hangs = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(300)\n"
    )
    subject = structs.replace(XLA, probe=hangs)
    step = Proof(subject, tmp_path, environ={"PATH": "/usr/bin:/bin"}, limit=1).bare(FIRST)
    assert (step.code, step.end) == (None, "it did not end in time")
    until(lambda: int(pid.read_text()) not in {*below(1)}, "the end of its child")


# The command line


@pytest.mark.feature("U1")
def test_without_neuron_there_is_nothing_to_prove_and_the_exit_code_is_1(command):
    answer = command("doctor", "--neuron-contract", code=1)
    words = " ".join(answer.out.split())
    assert answer.err == ""
    assert "nothing can be proved here: the Neuron compiler is not available: neuronx-cc" in words
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in words
    document = command("doctor", "--neuron-contract", "--format", "json", code=1).json
    assert (document["compiler"], document["counts"]) == ("", {"ok": 0, "differs": 0, "unknown": 0})


def test_without_room_for_the_experiment_there_is_an_error_with_a_hint(command, tmp_path, monkeypatch):
    monkeypatch.setattr(prove, "assumed", lambda: XLA)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert "set TMPDIR to a folder on a local disk" in command("doctor", "--neuron-contract", code=1).err


def test_the_screen_says_what_differs_and_where_to_correct_it(whole, monkeypatch):
    monkeypatch.setattr(facts, "TARGETS", ("trn9",))
    found = outcomes(XLA, whole)
    promised = tuple(found[promise.name] for promise in PROMISES)
    rows = tuple(found[row.name] for row in XLA.rows)
    made = Contract(
        "neuron",
        findings=(Finding("ok", "/bin/neuronx-cc", check="neuron-path"),),
        promises=promised,
        assumptions=rows,
        counts=count((*promised, *rows)),
    )
    assert not made.good
    lines = contract_human(made)
    assert max(map(len, lines)) <= 80
    at = next(number for number, line in enumerate(lines) if line.startswith("differs"))
    assert lines[at].split() == ["differs", "target", "trn1;", "cachekit", "says", "trn1"]
    assert " ".join(" ".join(lines[at + 1 : at + 6]).split()).startswith(
        "wanted: the target is one of ('trn9',), and the one of this instance seen: trn1; cachekit says trn1 edit: "
        "TARGETS, TARGET_FAMILIES in cachekit/compilers/neuron/facts.py; target_of in cachekit/compilers/neuron/host.py"
    )
    assert "1 differ" in lines[-1]
    assert len(contract_human(made, whole=True)) > 3 * len(found)


# Real parts


def cxx_below(pid: int) -> bool:
    """Whether a C++ compiler runs below a process."""
    for child in below(pid):
        with suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() in {"cc1plus", "g++", "c++"}:
                return True
    return False


@pytest.mark.slow
@pytest.mark.feature("U1")
def test_the_promises_hold_with_a_real_compiler(tmp_path):
    """Inductor on this machine: what the experiment does is no stand-in's."""
    program = "import torch\nprint(torch.compile(lambda x: (x * 2 + 1).sum())(torch.ones(3, 3)).item())\n"
    subject = Subject(
        "inductor",
        program,
        place=lambda folder: {"TORCHINDUCTOR_CACHE_DIR": str(folder / "bare")},
        contents=lambda folder: frozenset(path.name for path in (folder / "bare").rglob("*.so")),
        compiling=cxx_below,
        refused=("compiler.options.cachekit_asks=true",),
        another={"TORCHINDUCTOR_CPP_ENABLE_FLOATING_POINT_CONTRACT_FLAG": "fast"},
    )
    (tmp_path / "proof").mkdir()
    assert not_ok(outcomes(subject, Proof(subject, tmp_path / "proof").make())) == {}


@pytest.mark.xla
def test_the_promises_hold_over_real_graphs(tmp_path):
    """The real worker and program, whose graphs XLA really makes; the compiler and the cache are stood in for."""
    made = Machine(tmp_path / "host", real=True, trial_zeros=True, compile_seconds=0.3, failures=[REFUSED])
    with neuron_alone():
        found = outcomes(assumptions.XLA, proof(made, tmp_path / "proof", assumptions.XLA).make())
    assert not_ok(found) == {}
