"""Direct compiles of extracted modules, with the stand-in's tools."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from functools import partial

import pytest

from cachekit.compilers.neuron import compile_entries, fit, place
from cachekit.compilers.neuron.remembered import FailureMemory
from cachekit.errors import CompileError
from cachekit.process import below
from tests.compilers.neuron.neuron_compile_cases import extract, host  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_files import make_neff
from tests.support.neuron_sdk import SCRIPTS
from tests.support.processes import started


def complete(host, entries, *, jobs=2, timeout=60.0, told=None, **others):
    known = FailureMemory(host.folder / "failures")
    return compile_entries.complete(
        entries, known, jobs=jobs, timeout=timeout, tell=(told if told is not None else []).append, **others
    )


# --- direct compiles ------------------------------------------------------------------------------------------------


def test_extracted_modules_are_compiled_as_the_wrapper_does_it(host):
    entries = extract(host, 1, 22, NEURON_CC_FLAGS="--model-type transformer -O1")
    seconds = complete(host, entries)
    assert set(seconds) == {found.module for found in entries}
    event = host.events("compile")[0]
    assert (event["target"], event["flags"]) == ("trn1", ["--model-type", "transformer", "-O1", "--verbose=35"])
    assert {found.files == {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
            for found in host.entries()} == {True}  # fmt: skip
    # The wrapper takes them as its own.
    asked = subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), "1", "22"],
        env={**host.environment, "NEURON_CC_FLAGS": "--model-type transformer -O1"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert asked.stdout.count("Using a cached neff") == 2


def test_several_compile_at_once_and_no_more_than_fit(host):
    host.knobs(compile_seconds=0.5)
    complete(host, extract(host, *range(1, 6)), jobs=2)
    assert most_at_once(host) == 2


def most_at_once(host):
    edges = sorted(
        (event["time"], 1 if event["event"] == "compile" else -1) for event in host.events("compile", "compiled")
    )
    return max(sum(step for _, step in edges[: number + 1]) for number in range(len(edges)))


@pytest.mark.feature("N3")
@pytest.mark.parametrize("kind", ["host-oom", "killed"])
def test_out_of_memory_beside_others_is_tried_again_alone(host, kind):
    host.knobs(failures=[{"class": kind, "times": 2}])
    told: list[dict] = []
    assert len(complete(host, extract(host, 1, 2), told=told)) == 2
    assert [event["graphs"] for event in told if event["event"] == "retry"] == [2]


SILENT = """#!/bin/sh
cat > log-neuron-cc.txt <<'EOF'
2026-07-29T17:19:00Z INFO 7 [root]: /opt/bin/neuronx-cc compile --framework=XLA in.pb --output out.neff
2026-07-29T17:19:09Z ERROR 7 [root]: [NCC_EOOM002] The total memory usage of 27.0GB exceeds the HBM limit of 16.0GB
2026-07-29T17:19:10Z INFO 7 [root]: Subcommand returned with exitcode=70
EOF
exit 70
"""


@pytest.mark.feature("N2")
def test_where_a_compiler_prints_nothing_its_own_log_tells_the_class(host):
    entries = extract(host, 1)
    (host.bin / "neuronx-cc").write_text(SILENT)
    with pytest.raises(CompileError) as raised:
        complete(host, entries)
    assert "device-oom (NCC_EOOM002)" in raised.value.cause
    known = FailureMemory(host.folder / "failures").recall(entries[0].name, compiler=entries[0].compiler)
    assert "27.0GB" in known.log
    assert known.seconds > 0
    assert " after " in raised.value.cause, "a failed compile costs time as another does"
    (host.bin / "neuronx-cc").unlink()
    with pytest.raises(CompileError) as again:
        complete(host, entries)
    assert again.value.cause == raised.value.cause, "it is not tried again, or no compiler would be the cause"


@pytest.mark.feature("F6", "K1")
def test_a_finished_module_for_another_machine_is_compiled_anew(host):
    """Somebody copied a cache: Neuron itself takes such a module for a hit."""
    (one,) = extract(host, 1)
    complete(host, [one])
    make_neff(one.path / "model.neff", version="2.26.6360.0+6f180f47", target="tonga", lnc=1)
    assert complete(host, [one], check=partial(fit.check, target="trn1"))
    assert fit.check(one.path / "model.neff", target="trn1") is None


def test_a_compile_that_takes_too_long_is_ended_with_all_that_it_started(host):
    before = set(below(os.getpid()))
    host.knobs(failures=[{"class": "hang"}])
    with pytest.raises(CompileError) as raised:
        complete(host, extract(host, 1), timeout=1.0)
    assert "timed-out" in raised.value.cause
    assert not list(host.root.rglob("*.lock"))
    assert not started(before)


def remember_failing(entry, text):
    log = entry.path / "model.log"
    log.write_text(text)
    return log


def test_a_remembered_failure_of_unknown_class_is_tried_again_and_its_log_stays_until_it_compiles(host):
    (one,) = extract(host, 1)
    log = remember_failing(one, "odd words")
    told: list[dict] = []
    host.knobs(failures=[{"class": "hang"}])
    with pytest.raises(CompileError):
        complete(host, [one], timeout=1.0, told=told)
    assert told[0] == {"event": "failure-tried-again", "module": one.name, "class": "unknown"}
    assert log.read_text() == "odd words"
    host.knobs(failures=[])
    assert complete(host, [one])
    assert not log.exists()
    assert host.entries()[0].finished


def test_what_is_known_to_fail_again_is_tried_again_where_that_is_asked_for(host):
    (one,) = extract(host, 1)
    remember_failing(one, "[ERROR] [NCC_EOOM002] too big")
    with pytest.raises(CompileError, match="1 of 1"):
        complete(host, [one])
    assert host.compiles == 0
    assert complete(host, [one], again=True)


JUDGE = """
import sys, time
from pathlib import Path
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.locks import examine
print([found.verdict for found in examine(scan(Path(sys.argv[1])).entries, now=time.time() + 300)])
"""


def as_the_neff_is_checked(do):
    """Have something done between the compiler's end and the NEFF's publication: seconds, with one of 2 GB."""

    def checked(path, said):
        if path.parent.name.startswith(".cachekit-"):
            do()
        return fit.check(path, said)

    return checked


@pytest.mark.feature("N3")
def test_its_lock_is_live_to_others_until_the_module_is_finished(host):
    entries = extract(host, 1)
    said = []
    command = [sys.executable, "-c", JUDGE, str(host.root)]
    complete(
        host,
        entries,
        check=as_the_neff_is_checked(lambda: said.append(subprocess.check_output(command, text=True))),
    )
    assert said == ["['live']\n"]
    assert host.entries()[0].finished


def test_a_lock_that_others_took_over_stays(host):
    (one,) = extract(host, 1)
    lock = one.path / "model.hlo_module.pb.lock"

    def take_over():
        (one.path / "new").touch()
        (one.path / "new").replace(lock)

    complete(host, [one], check=as_the_neff_is_checked(take_over))
    assert lock.exists()


@pytest.mark.feature("S2")
def test_a_kill_as_a_neff_is_published_leaves_a_module_that_can_be_restored(host, monkeypatch):
    (one,) = extract(host, 1)
    work = host.folder / "tmp"
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    child = os.fork()
    if child == 0:
        copy = compile_entries.shutil.copyfile
        compile_entries.shutil.copyfile = lambda *paths: (copy(*paths), os.kill(os.getpid(), signal.SIGKILL))
        complete(host, [one])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert list(host.root.rglob(".cachekit-*"))
    assert list(work.glob(".cachekit-*"))
    (one.path / "model.hlo_module.pb.lock").unlink()
    assert place.standing(one.path) == ("replaceable", "empty")
    place.sweep(host.root)
    assert not list(host.root.rglob(".cachekit-*"))
    complete(host, extract(host, 1))
    assert not list(work.glob(".cachekit-*"))


def test_without_a_compiler_the_advice_is_to_install_it(host, monkeypatch):
    entries = extract(host, 1)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(CompileError) as raised:
        complete(host, entries)
    assert "no-compiler" in raised.value.cause
    assert "pip" in raised.value.hint
