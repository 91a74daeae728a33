"""The rule that `stats` counts by: a hand count of any journal comes to the same."""

import json

import pytest

from cachekit.events import parse
from cachekit.store.counting import count
from cachekit.verbs.stats import Figures, figures

# Quarters of seconds: their sums are the same in whatever order they are made.


def line(name, **fields):
    return json.dumps({"event": name, "key": "k", **fields}).encode() + b"\n"


def counted(*events):
    found = figures(count(parse(b"".join(events))).cells)
    return {name: getattr(found, name) for name in Figures.__struct_fields__ if getattr(found, name)}


def test_a_hit_whose_fetch_failed_is_a_miss():
    assert counted(line("plan", status="hit"), line("compile.start"))["misses"] == 1
    assert "hits" not in counted(line("plan", status="hit"), line("compile.start"))


def test_what_another_process_compiled_meanwhile_is_a_hit_and_the_wait_is_subtracted():
    found = counted(
        line("plan", status="miss"),
        line("lock.wait", holder="x"),
        line("lock.wait", holder="y"),
        line("warm.end", compiled=0, graphs=3, compile_seconds=100, seconds=130, waited_seconds=128),
    )
    assert (found["hits"], found["graphs_found"], found["waits"], found["waited_seconds"]) == (1, 3, 1, 128)
    assert found["saved_seconds"] == -30


def test_a_command_line_that_was_refused_is_no_run():
    refused = line("run.failed", error="UsageError", exit_code=2)
    assert counted(refused) == {}
    assert counted(line("run.failed", error="StoreError", exit_code=1)) == {"runs": 1, "failed": 1}
    assert counted(line("plan", status="miss"), refused)["failed"] == 1, "in the middle of a run it is one that failed"


def test_a_command_that_came_to_no_compiler_is_neither_hit_nor_miss():
    """It failed first, or has nothing to compile. Of what JAX finds nothing is told: what it was given was used."""
    silent = {"compiled": 0, "found": 0, "built": 0}
    for exit_code, status in ((0, "miss"), (1, "miss"), (1, "hit")):
        given = [line("restore", bytes=7)] if status == "hit" else []
        events = [line("plan", status=status), *given, line("command.done", **silent, exit_code=exit_code)]
        assert not {"hits", "misses"} & counted(*events).keys()
    events = [line("plan", status="hit"), line("restore", bytes=7), line("command.done", **silent, exit_code=0)]
    assert counted(*events)["hits"] == 1


def test_a_command_that_was_given_nothing_found_nothing_in_the_cache():
    """One graph twice in a process: the second time Inductor finds what it has just written."""
    done = {"compiled": 2, "found": 2, "compile_seconds": 160}
    cold = counted(line("plan", status="miss"), line("command.done", **done, restored_bytes=0))
    assert (cold["graphs_compiled"], cold.get("graphs_found")) == (2, None)
    given = [line("plan", status="hit"), line("restore", bytes=7)]
    warm = counted(*given, line("command.done", found=4, compiled=0, restored_bytes=7))
    assert (warm["graphs_found"], warm["hits"]) == (4, 1)


@pytest.mark.feature("D3")
def test_getting_the_nearest_record_is_subtracted_and_its_remote_saved_the_rest():
    """One that was fetched for nothing cost time."""
    hub = {"remote": "hf://team/cache", "nearest": "n", "bytes": 9, "seconds": 40}
    begun = [line("plan", status="miss", recipe="toy", remote=""), line("compile.start")]
    restored = line("reuse.restored", recipe="other", **hub)
    reused = line("reuse.end", recipe="other", graphs=2, of=3).replace(b'"key": "k"', b'"key": "n"')
    end = line("warm.end", recipe="toy", graphs=3, compiled=1, compile_seconds=50, cold_seconds=250, seconds=120)
    found = count(parse(b"".join([*begun, restored, reused, end])))
    by_remote = {cell.remote: cell.figures for cell in found.cells}
    assert by_remote["hf://team/cache"] == {"graphs_found": 2, "recorded_seconds": 200, "retrieval_seconds": 40}
    assert figures(found.cells).saved_seconds == 160
    cold = line("warm.end", recipe="toy", graphs=3, compiled=3, compile_seconds=250, seconds=320)
    assert counted(*begun, restored, cold)["saved_seconds"] == -40
