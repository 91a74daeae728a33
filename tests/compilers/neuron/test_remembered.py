"""What is remembered of failures: by Neuron for ever, by cachekit for a time."""

import os
from datetime import datetime, timedelta, timezone

import pytest

from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.failures import DEVICE_OOM, classify
from cachekit.compilers.neuron.remembered import DAYS, FailureMemory, by_neuron, clear
from tests.compilers.neuron.neuron_trees import entry_of, make

LOCK = "model.hlo_module.pb.lock"

# By Neuron


def test_remembered_failures_are_found_explained_and_forgotten(tmp_path):
    folder = make(tmp_path, "failed", 1)
    make(tmp_path, "success", 2)
    make(tmp_path, "empty", 3)
    (found,) = by_neuron(scan(tmp_path).entries)
    assert (found.log, found.failure.kind) == (folder / "model.log", DEVICE_OOM)
    assert found.failure.message == "2026 [ERROR] [NCC_EOOM002] too big"
    assert found.age < 3600
    assert clear(found) == ""
    assert entry_of(folder).state == "empty"
    assert clear(found) == ""


def test_a_failure_is_not_forgotten_while_somebody_tries_again(tmp_path):
    folder = make(tmp_path, "failed")
    (found,) = by_neuron(scan(tmp_path).entries)
    (folder / LOCK).touch()
    assert "locked" in clear(found)
    assert (folder / "model.log").exists()


def test_a_newer_failure_is_not_forgotten(tmp_path):
    folder = make(tmp_path, "failed")
    (found,) = by_neuron(scan(tmp_path).entries)
    (folder / "model.log").write_text("another failure")
    os.utime(folder / "model.log", (1, 1))
    assert clear(found)
    assert (folder / "model.log").read_text() == "another failure"


# By cachekit

OOM = classify("[ERROR] [NCC_EOOM002] too large")
NAME, NCC = "MODULE_7+f7f529f3", "2.26.6360.0+6f180f47"


class Clock:
    def __init__(self):
        self.now = datetime(2026, 7, 29, tzinfo=timezone.utc)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def memory(tmp_path, clock):
    return FailureMemory(tmp_path / "failures", clock=clock)


@pytest.mark.feature("N2")
def test_a_deterministic_failure_is_remembered_for_a_time(memory, clock):
    memory.remember(NAME, OOM, compiler=NCC, log="the log")
    clock.now += timedelta(days=DAYS, seconds=-1)
    known = memory.recall(NAME, compiler=NCC)
    assert (known.code, known.log, known.failure.kind) == ("NCC_EOOM002", "the log", DEVICE_OOM)
    clock.now += timedelta(seconds=2)
    assert memory.recall(NAME, compiler=NCC) is None


@pytest.mark.feature("N3")
def test_what_may_end_well_next_time_is_not_remembered(memory, tmp_path):
    memory.remember(NAME, classify("[F137] neuronx-cc was forcibly killed"), compiler=NCC)
    memory.remember(NAME, classify("", exit_code=70), compiler=NCC)
    assert memory.recall(NAME, compiler=NCC) is None
    assert not (tmp_path / "failures").exists()


@pytest.mark.feature("N2")
def test_another_compiler_knows_nothing(memory):
    memory.remember(NAME, OOM, compiler=NCC)
    assert memory.recall(NAME, compiler="2.27.5334.0") is None
    assert memory.recall("MODULE_8+f7f529f3", compiler=NCC) is None


def test_the_last_failure_counts_and_its_log_is_cut(memory):
    memory.remember(NAME, OOM, compiler=NCC, log="first")
    memory.remember(NAME, OOM, compiler=NCC, log="x" * 100_000 + "\ud800 the reason")
    known = memory.recall(NAME, compiler=NCC)
    assert known.log.endswith("the reason")
    assert len(known.log) < 20_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: b"[]",
        lambda data: data.replace(b'"schema":1', b'"schema":2'),
        lambda data: data.replace(b"device-oom", b"host-oom"),
        lambda data: data.replace(b"device-oom", b"no-such-class"),
        lambda data: data.replace(b"MODULE_7", b"MODULE_8"),
        lambda data: data.replace(b'"when":"2026', b'"when":"1926'),
        lambda data: data.replace(b'Z"', b'"'),
        lambda data: data.replace(b'"code"', b'"other"'),
        lambda data: b"\xff" + data,
        lambda data: b"[" * 100_000,
    ],
)
def test_damaged_documents_are_none(tmp_path, memory, damage):
    memory.remember(NAME, OOM, compiler=NCC)
    (path,) = (tmp_path / "failures").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert memory.recall(NAME, compiler=NCC) is None
