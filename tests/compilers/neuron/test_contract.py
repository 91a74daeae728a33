"""`cachekit doctor --neuron-contract`: one run from end to end on a stand-in for the SDK, altered in many ways.

The untouched stand-in keeps every promise and is as assumed. What is altered is found and named, and nothing else is.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.cli.doctor import contract_human
from cachekit.compilers.evidence import FIRST, Assumption, Evidence, Proof, Subject, UnknownError, judged
from cachekit.compilers.neuron import assumptions, facts, host, installed
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.process import below
from cachekit.store.layout import temporary_folder
from cachekit.verbs import prove
from cachekit.verbs.doctor import Finding
from cachekit.verbs.prove import PROMISES, Contract
from tests.compilers.neuron.altered_sdk import ALTERATIONS
from tests.compilers.neuron.contract_cases import (
    PROGRAM,
    STUB,
    KilledInTime,
    altered,
    differing,
    machine,
    made,
    native_machine,
    outcomes,
    proof,
    stub,
)
from tests.compilers.neuron.neuron_machine import Machine
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.processes import until

pytest_plugins = ["tests.support.cli_session"]

XLA = structs.replace(assumptions.XLA, probe=PROGRAM, workers=2)
NATIVE = structs.replace(assumptions.NATIVE, workers=2)
NAMES = {promise.name for promise in PROMISES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Evidence:
    """What a warm and a training on the untouched stand-in left."""
    folder = tmp_path_factory.mktemp("contract")
    with neuron_alone():
        run = proof(machine(folder / "host"), folder / "proof", XLA, kind=KilledInTime)
        seen = made(run, ["warm"])
        seen.steps["train"] = run.train(FIRST)
        return seen


def not_ok(found: dict) -> dict[str, str]:
    return {name: one.seen for name, one in found.items() if one.state != "ok"}


# Nothing is altered


@pytest.mark.feature("U1", "U4")
def test_the_stand_in_keeps_every_promise_and_is_as_assumed(whole):
    lacking = {"log-compiled", "failure"} | (NAMES - whole.steps.keys())
    assert not_ok(outcomes(XLA, whole)).keys() == lacking


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    "subject, of",
    [
        pytest.param(XLA, machine, marks=pytest.mark.xla, id="xla"),
        # Where there is no torch-xla, beside which TorchNeuron is refused.
        pytest.param(NATIVE, native_machine, marks=pytest.mark.slow, id="torchneuron"),
    ],
)
def test_a_whole_run_shows_every_promise_and_assumption(tmp_path, subject, of):
    with neuron_alone():
        seen = made(proof(of(tmp_path / "host"), tmp_path / "proof", subject))
    assert not_ok(outcomes(subject, seen)) == {}


@pytest.mark.xla
@pytest.mark.feature("U1")
def test_the_program_has_a_real_graph_that_is_found_again(tmp_path):
    """XLA really makes it; the compiler and the cache are stood in for. The recipe's graphs are test_main_job's."""
    there = Machine(tmp_path / "host", real=True, trial_zeros=True)
    run = proof(there, tmp_path / "proof", assumptions.XLA, limit=900)
    with neuron_alone():
        first = run.program(prove.PROGRAM).answer
        other = {"RANK": "1", "WORLD_SIZE": "2", "LANG": "POSIX", "TZ": "JST-9"}
        again = run.program(prove.PROGRAM, "--require-warm", **other).answer
    assert (first["compiled"], first["kept"], again["compiled"], again["found"]) == (1, True, 0, 1)


def test_the_manual_lists_every_promise_and_assumption():
    manual = (Path(__file__).parents[3] / "docs" / "neuron.md").read_text(encoding="utf-8")
    table = manual.partition("## The first ten minutes on a real instance")[2].partition("## What was verified")[0]
    listed = [name for row in table.splitlines() if row.startswith("| ") for name in re.findall(r"`([^`]+)`", row)]
    assert sorted({*listed}) == sorted({row.name for row in (*PROMISES, *XLA.rows, *NATIVE.rows)})


# The SDK is altered


@pytest.mark.xla
@pytest.mark.feature("U1", "U4")
@pytest.mark.parametrize("what", ALTERATIONS)
def test_an_altered_sdk_is_found_and_named(tmp_path, what):
    there, each = machine(tmp_path / "host"), ALTERATIONS[what]
    altered(there, [one.text for one in each])
    limit = max(one.limit for one in each)
    tried = [name for one in each for name in one.only or one.wanted & NAMES]
    with neuron_alone():
        seen = made(proof(there, tmp_path / "proof", XLA, limit=limit), tried)
    found = outcomes(XLA, seen)
    assert differing(found) == {name for one in each for name in one.wanted}, not_ok(found)


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    "step, old, new, name",
    [
        ("train", "Using a cached neff", "Ready:", "log-hit"),
        ("warm", "Extracting graphs", "Tracing graphs", "extraction-line"),
    ],
)
def test_a_line_that_is_not_told_is_found(whole, step, old, new, name):
    there = whole.steps[step]
    assert old in there.log
    silent = structs.replace(there, log=there.log.replace(old, new), said=there.said.replace(old, new))
    seen = structs.replace(whole, steps=whole.steps | {step: silent})
    assert differing(outcomes(XLA, seen)) == {name}


@pytest.mark.campaign
@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    "depends, tried, wanted",
    [
        ("LANG RANK", "again", {"again", "locale", "rank"}),
        ("TZ GROUP_RANK WORLD_SIZE", "again", {"again", "locale", "rank", "world-size"}),
        ("USER CACHEKIT_HOME script", "elsewhere", {"elsewhere", "user", "home", "virtual-environment"}),
        ("PWD umask length", "elsewhere", {"elsewhere", "working-directory", "user", "cache-dir"}),
        ("prefix HOME", "elsewhere", {"elsewhere", "virtual-environment", "user"}),
    ],
)
def test_each_thing_that_a_key_depends_on_is_named(tmp_path, depends, tried, wanted):
    """A command line of a few lines, whose graphs are named by some variables or the like."""
    found = {one.name: one for one in judged(PROMISES, made(stub(tmp_path, depends=depends), [tried]))}
    assert differing(found) == wanted
    assert {found[name].seen for name in wanted} == {"1 graphs compiled"}
    assert found["user"].means.startswith("for each other member of a team")


@pytest.mark.feature("U1")
def test_a_key_of_chance_is_blamed_on_nothing_else(tmp_path):
    run = stub(tmp_path, depends="PYTHONHASHSEED")  # which the user's shell may have
    found = {one.name: one for one in judged(PROMISES, made(run, ["again"]))}
    assert differing(found) == {"unchanged"}
    others = {found[name].seen for name in ("again", "rank", "world-size", "locale", "age")}
    assert others == {"it compiles again even where nothing has changed"}


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
    """Also where the warm died, as it does where its graphs are not for what cachekit takes the machine for."""
    monkeypatch.setattr(facts, fact, value)
    assert differing(outcomes(XLA, whole)) == {name}
    dead = structs.replace(whole.steps["warm"], code=6, answer={})
    died = structs.replace(whole, steps=whole.steps | {"warm": dead})
    assert differing(outcomes(XLA, died)) == {name, "warm"}


@pytest.mark.feature("U1")
def test_what_a_step_did_not_leave_at_all_differs(whole, tmp_path):
    """A refusal after which nothing is remembered; a compiler that nobody sees; no graph, and no counter."""
    refused = structs.replace(whole.steps["warm"], code=70, cache=tmp_path)
    unseen = structs.replace(whole.steps["warm"], code=6, answer={})
    alone = structs.replace(whole.steps["warm"], cache=tmp_path, files={"kernels/1": (1, 0.0, "644")})
    flags = structs.replace(alone, said="27.0\ncounted: ModuleNotFoundError()\n")
    seen = Evidence(
        whole.steps | {"refused": refused, "warm": unseen, "alone": alone, "flags": flags},
        {"compiler-process": "none was seen"},
    )
    found = outcomes(structs.replace(XLA, rows=(*XLA.rows, *NATIVE.rows)), seen)
    said = {name: (found[name].state, found[name].seen) for name in ("failure", "compiler-process", "native-files")}
    assert said == {
        "failure": ("differs", "no module"),
        "compiler-process": ("differs", "none was seen"),
        "native-files": ("differs", "no graph, but kernels/1"),
    }
    assert (found["native-counters"].state, found["native-contents"].state) == ("differs", "unknown")
    nothing = seen.steps | {"warm": structs.replace(unseen, new=())}
    assert outcomes(XLA, structs.replace(seen, steps=nothing))["compiler-process"].state == "unknown"


# What goes wrong in the run itself


def test_where_the_warm_fails_nothing_else_is_judged(tmp_path):
    run = stub(tmp_path, fails="warm")
    found = {one.name: one for one in judged(PROMISES, made(run, ["train"]))}
    assert differing(found) == {"warm"}
    assert found["warm"].seen == "exit code 6: it did not compile"
    assert found["train"].seen == "the step warm failed: exit code 6: it did not compile"


def test_what_there_is_no_time_for_is_unknown(tmp_path):
    found = [*judged(PROMISES, made(stub(tmp_path, total=0)))]
    assert {(one.state, one.seen) for one in found} == {("unknown", "not tried: the time is up")}


def test_a_look_that_fails_itself_is_unknown_and_stops_no_other(whole):
    broken = Assumption("broken", "nothing", "", lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    fine = Assumption("fine", "something", "", lambda _: (True, "yes\x1b[31m"))
    found = outcomes(structs.replace(XLA, rows=(broken, fine)), whole)
    assert found["broken"].seen == "the check itself failed: ZeroDivisionError: division by zero"
    assert (found["fine"].state, found["fine"].assumed, found["fine"].seen) == ("ok", "something", "yes\\x1b[31m")


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    pid = tmp_path / "pid"
    hangs = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(300)\n"
    )
    subject = structs.replace(XLA, probe=hangs)
    run = Proof(subject, tmp_path, environ={"PATH": "/usr/bin:/bin"}, limit=1)
    step = run.run(FIRST, run.probe)
    assert (step.code, step.end) == (None, "it did not end in time")
    until(lambda: int(pid.read_text()) not in {*below(1)}, "the end of its child")
    with pytest.raises(UnknownError, match="in the time allowed"):  # its own fault it was not
        Proof(subject, tmp_path, environ={"PATH": "/usr/bin:/bin"}, total=0.1).run(FIRST, run.probe)


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


def test_torchneuron_is_tried_where_it_is_installed_and_on_two_workers_at_the_most(monkeypatch):
    there = NeuronHost({}, "trn2", 4, 2, "trn2.3xlarge", here=True)
    monkeypatch.setattr(installed, "native_available", lambda: True)
    monkeypatch.setattr(host, "this_host", lambda _: there)
    assert (prove.assumed().compiler, prove.assumed().workers) == ("neuron-native", 2)
    monkeypatch.setattr(host, "this_host", lambda _: structs.replace(there, cores=1))
    assert prove.assumed().workers == 1


def test_what_cannot_be_written_is_an_error_before_anything_is_run(command, tmp_path, monkeypatch):
    monkeypatch.setattr(prove, "assumed", lambda: STUB)
    there = str(tmp_path / "missing" / "report.json")
    assert "cannot be written" in command("doctor", "--neuron-contract", "--report", there, code=2).err
    assert "--neuron-contract" in command("doctor", "--report", "report.json", code=2).err
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert "set TMPDIR to a folder on a local disk" in command("doctor", "--neuron-contract", code=1).err


def test_a_report_takes_nobodys_place_and_what_a_killed_run_left_is_removed(command, tmp_path, monkeypatch):
    monkeypatch.setattr(prove, "assumed", lambda: STUB)
    monkeypatch.setattr(prove, "make", lambda *_, **__: iter(()))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    left = temporary_folder("contract") / f"run-1-{0:012x}"
    left.mkdir()
    left.with_name(f"{left.name}.lock").touch()
    Path("neuron-contract.json").write_text("mine")
    for name in ("neuron-contract-2.json", "neuron-contract-3.json"):
        answer = command("doctor", "--neuron-contract")
        assert f"the report grows in {Path(name).absolute()}" in " ".join(answer.err.split())
        assert json.loads(Path(name).read_text())["compiler"] == "stub"
    assert Path("neuron-contract.json").read_text() == "mine"
    assert not [*left.parent.iterdir()]


@pytest.mark.feature("U1")
def test_an_interrupted_run_says_what_it_has_and_its_report_has_no_secret(command, tmp_path, monkeypatch):
    token = "hf_" + "a1B2c3D4e5F6" * 3
    run = stub(tmp_path, says=token)
    monkeypatch.setattr(prove, "assumed", lambda: run.subject)
    monkeypatch.setattr(prove, "Proof", lambda *_, **__: run)
    report, midway = tmp_path / "report.json", []

    def stopped(_) -> None:
        midway.append(json.loads(report.read_text()))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "train", stopped)
    answer = command("doctor", "--neuron-contract", "--report", str(report), code=130)
    assert "ok       warm" in answer.out
    assert "incomplete: it was interrupted" in answer.out
    text = report.read_text()
    document = json.loads(text)
    assert (document["compiler"], document["stopped"], document["good"]) == ("stub", "it was interrupted", False)
    assert document["interrupted"]
    warm = document["commands"][-1]
    assert (warm["words"][2], warm["code"], [*warm["files"]]) == ("warm", 0, ["graph", "notes.json"])
    assert warm["texts"]["notes.json"] == '{"flags": []}'
    assert document["packages"]["msgspec"]
    assert "***" in warm["said"]
    assert token not in text
    # What a run that is killed leaves does not pass for a whole one; what is cheap was tried by then.
    assert (midway[0]["stopped"], midway[0]["interrupted"], midway[0]["good"]) == ("it is not finished", False, False)
    assert {one["name"]: one["state"] for one in midway[0]["promises"]}["refused"] == "ok"
    monkeypatch.setattr(prove, "make", lambda *_, **__: iter(()))
    assert prove.neuron_contract(report=report).stopped == ""
    assert json.loads(report.read_text())["stopped"] == ""


def test_the_screen_says_what_differs_and_what_that_means(whole, monkeypatch):
    wanted = facts.TARGETS
    monkeypatch.setattr(facts, "TARGETS", ("trn9",))
    found = outcomes(XLA, whole)
    promised = tuple(found[promise.name] for promise in PROMISES)
    rows = tuple(found[row.name] for row in XLA.rows)
    answer = Contract(
        "neuron",
        findings=(Finding("ok", "/bin/neuronx-cc", check="neuron-path"),),
        promises=promised,
        assumptions=rows,
        counts={"ok": 40, "differs": 1, "unknown": 2},
    )
    lines = contract_human(answer)
    assert max(map(len, lines)) <= 80
    at = next(number for number, line in enumerate(lines) if line.startswith("differs"))
    assert lines[at].split() == ["differs", "target", "trn1;", "cachekit", "says", "trn1"]
    words = " ".join(" ".join(lines[at + 1 : at + 9]).split())
    assert words.startswith(f"wanted: the target is one of {wanted}, and the one of this instance")
    assert "seen: trn1; cachekit says trn1 means: records are kept for the wrong chip: nothing is found" in words
    assert "1 differ" in lines[-1]
    assert len(contract_human(answer, whole=True)) > 3 * len(found)


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
    """Inductor on this machine: what the run does is no stand-in's."""
    program = "import torch\nprint(torch.compile(lambda x: (x * 2 + 1).sum())(torch.ones(3, 3)).item())\n"
    subject = Subject(
        "inductor",
        program,
        place=lambda folder: {"TORCHINDUCTOR_CACHE_DIR": str(folder / "bare")},
        contents=lambda folder: frozenset(path.name for path in folder.rglob("*.so")),
        compiling=cxx_below,
        refused={"CXX": "/bin/false"},
        another={"TORCHINDUCTOR_CPP_ENABLE_FLOATING_POINT_CONTRACT_FLAG": "fast"},
    )
    (tmp_path / "proof").mkdir()
    assert not_ok(outcomes(subject, made(Proof(subject, tmp_path / "proof")))) == {}
