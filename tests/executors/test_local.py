"""Fleets on this machine: real processes, and a stand-in for the compiler."""

import os
import re
import signal
import time

import pytest

from cachekit.errors import StoreError
from cachekit.executors import local
from cachekit.executors.fleet import every, one, printed, retire, states
from cachekit.executors.local import ENGINE
from cachekit.store.layout import Layout
from cachekit.verbs.fleet import state
from tests.executors.fleet_session import until

pytest_plugins = ["tests.executors.fleet_session"]


@pytest.mark.feature("F2")
def test_equal_keys_compile_once_and_begin_last(fleet):
    done = fleet.warm(fleet.matrix([1, 1, 2, 1]), "--on", "local", "--jobs", "2")
    assert fleet.compiles == 2
    assert [unit["status"] for unit in done["units"]] == ["compiled", "compiled", "hit", "hit"]
    assert done["counts"] == {"done": 4}
    assert done["compiled"] == 6
    assert all(unit["code"] == 0 and unit["seconds"] > 0 and len(unit["key"]) == 64 for unit in done["units"])


@pytest.mark.feature("T2")
def test_nothing_is_imported_from_the_working_directory(fleet):
    (fleet.work / "msgspec.py").write_text("raise SystemExit(9)")
    assert fleet.warm(fleet.matrix([1]), "--on", "local")["counts"] == {"done": 1}


def test_a_plan_submits_nothing_and_says_what_would_be(fleet):
    planned = fleet.warm(fleet.matrix([1, 2, 1]), "--on", "local", "--jobs", "4", "--dry-run")
    assert planned["machines"] == 3
    assert planned["forecast"]["totals"]["miss"] == 3
    assert planned["order"][-1].endswith("=1"), "what finds another one's comes last"
    assert {row["name"] for row in planned["forecast"]["plans"]} == set(planned["order"])
    lines = planned["request"].splitlines()
    assert len(lines) == 3
    told, _ = fleet("warm", "toy.yaml", "--on", "local", "--dry-run")
    assert "how long 1 command will compile is not known" in told
    assert all("start.py cachekit warm toy.yaml --set training.per_device_train_batch_size=" in line for line in lines)
    assert fleet("fleet", "ls", "--format", "json")[0] == []
    assert not fleet.log.exists()


def test_one_that_fails_stops_no_other_and_says_why(fleet):
    done = fleet.warm(fleet.matrix([1, 2]), "--on", "local", STANDIN_FAIL="compile", code=1)
    assert done["error"]["code"] == "engine"
    assert "2 of 2 commands did not succeed" in done["error"]["message"]
    first = done["units"][0]
    assert (first["state"], first["code"]) == ("failed", 6)
    assert first["error"] in done["error"]["cause"]
    assert done["error"]["hint"] == f"cachekit fleet logs {done['id']} 0"
    shown, _ = fleet("fleet", "logs", done["id"], "0")
    assert shown.count("error[compile-failed]") == 1
    assert '"error": {' not in shown, "the document is for programs"
    assert "'bar' is not a whole number" in fleet("fleet", "logs", done["id"], "bar", code=2)[1]


def test_whoever_submitted_may_die_and_the_commands_go_on(fleet):
    fleet.environment["STANDIN_DELAY"] = "0.4"
    run = fleet.begin("warm", "--matrix", fleet.matrix([1, 2, 3]), "--on", "local", "--jobs", "2")
    until(lambda: list(Layout(fleet.home).fleets.glob("*/0.begun")))
    run.kill()
    run.communicate()
    done = fleet("fleet", "wait", "--format", "json")[0]
    assert done["counts"] == {"done": 3}
    assert fleet.compiles == 3


def test_ctrl_c_ends_the_wait_and_says_how_to_go_on(fleet):
    fleet.environment["STANDIN_DELAY"] = "0.4"
    run = fleet.begin("warm", "--matrix", fleet.matrix([1, 2]), "--on", "local")
    until(lambda: list(Layout(fleet.home).fleets.glob("*/0.begun")))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "the commands go on" in err
    name = next(every(Layout(fleet.home))).id
    assert f"cachekit fleet wait {name}" in err
    assert "no fleet begins with 'foo'" in fleet("fleet", "show", "foo", code=2)[1]
    assert fleet("fleet", "wait", name[:9], "--format", "json")[0]["counts"] == {"done": 2}
    shown, _ = fleet("fleet", "logs", name)
    assert re.search(
        r"^compiled: key [0-9a-f]{16}, compiled 3 graphs; the whole answer is\s+in\s+/.*0\.out$", shown, re.MULTILINE
    )
    assert '"key"' not in shown, "the document is for programs"
    assert f"nothing is left to cancel: {name} has ended" in fleet("fleet", "cancel", name)[1]


def test_cancel_ends_what_runs_and_begins_nothing_more(fleet):
    fleet.environment["STANDIN_DELAY"] = "60"
    run = fleet.begin("warm", "--matrix", fleet.matrix([1, 2]), "--on", "local", "--format", "json")
    until(lambda: list(Layout(fleet.home).fleets.glob("*/0.begun")))
    fleet("fleet", "cancel")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 1, err
    assert fleet("fleet", "show", "--format", "json")[0]["counts"] == {"cancelled": 2}
    assert not list(Layout(fleet.home).fleets.glob("*/1.begun"))
    assert fleet("store", "ls", "--format", "json")[0] == []


def test_commands_end_with_the_process_that_starts_them_and_are_lost(fleet):
    fleet.environment["STANDIN_DELAY"] = "60"
    run = fleet.begin("warm", "--matrix", fleet.matrix([1, 2]), "--on", "local", "--format", "json")
    layout = Layout(fleet.home)
    until(lambda: list(layout.fleets.glob("*/0.begun")))
    starter = fleet("fleet", "show", "--format", "json")[0]
    assert starter["counts"] == {"running": 1, "waiting": 1}
    note = next(layout.fleets.glob("*/local.json")).read_text()
    os.kill(int(note.partition('"pid":')[2].partition(",")[0]), signal.SIGKILL)
    run.communicate(timeout=60)
    assert run.returncode == 1
    assert fleet("fleet", "show", "--format", "json")[0]["counts"] == {"lost": 2}


def test_a_command_that_uses_up_its_time_is_ended(tmp_path):
    layout = Layout(tmp_path)
    short = _made(layout, [["sleep", "60"]], seconds=0.5)
    long = _made(layout, [["true"], ["false"]], seconds=600)
    for fleet, ends in ((short, ["timed-out"]), (long, ["done", "failed"])):
        ENGINE.submit(fleet)
        until(lambda fleet=fleet, ends=ends: [one.state for one in states(fleet, ENGINE)] == ends)


def test_a_command_that_is_killed_is_told_while_the_others_run(tmp_path):
    fleet = _made(Layout(tmp_path), [["sh", "-c", "kill -9 $PPID"], ["sleep", "60"]], jobs=2)
    ENGINE.submit(fleet)
    until(lambda: [one.state for one in states(fleet, ENGINE)] == ["failed", "running"])
    assert states(fleet, ENGINE)[0].reason == "it was killed by signal 9"
    ENGINE.cancel(fleet)


def test_a_command_that_ends_well_although_it_was_cancelled_is_done(tmp_path):
    fleet = _made(Layout(tmp_path), [["sh", "-c", "trap 'exit 0' TERM; echo ready; sleep 60 & wait"], ["true"]])
    ENGINE.submit(fleet)
    until(lambda: printed(fleet, 0))
    ENGINE.cancel(fleet)
    until(lambda: [one.state for one in states(fleet, ENGINE)] == ["done", "cancelled"])


def test_a_command_begins_only_where_its_memory_fits(tmp_path, monkeypatch):
    """Two would fit by number; what the first may grow to leaves no room for another."""
    layout = Layout(tmp_path)
    fleet = _made(layout, [["sleep", "1"]] * 2, jobs=2)
    monkeypatch.setattr(local, "NEEDS", local._available() * 2 // 3)
    commands = local._Commands(fleet.path, 2)
    began = []
    real = commands._may_begin
    monkeypatch.setattr(commands, "_may_begin", lambda: (began.append(len(commands._running)), real())[1])
    commands.run()
    assert all(one.state == "done" for one in states(fleet, ENGINE))
    assert max(began) == 1
    notes = [(fleet.path / f"{number}.ended").stat().st_mtime_ns for number in range(2)]
    assert (fleet.path / "1.begun").stat().st_mtime_ns >= notes[0]


def test_a_fleet_whose_file_is_damaged_is_named_and_no_older_one_taken_for_it(tmp_path):
    """Its commands may be running, and cost money."""
    layout = Layout(tmp_path)
    old, young = sorted((_made(layout, [["true"]]) for _ in range(2)), key=lambda fleet: fleet.id)
    (young.path / "fleet.json").write_text('{"id": "')
    for name in ("", young.id):
        with pytest.raises(StoreError, match=f"the notes of fleet {young.id} cannot be read") as caught:
            one(layout, name)
        assert f"cachekit-{young.id}" in caught.value.hint
    assert one(layout, old.id) == old


def test_what_fails_without_an_error_of_ours_is_told_in_its_own_last_line(tmp_path):
    fleet = _made(Layout(tmp_path), [["sh", "-c", "echo begun; echo no such module: neuron >&2; exit 3"]])
    ENGINE.submit(fleet)
    until(lambda: state(fleet).ended)
    (unit,) = state(fleet).units
    assert (unit.state, unit.code, unit.error) == ("failed", 3, "no such module: neuron")


def test_fleets_of_which_nothing_was_heard_for_long_go(tmp_path):
    layout = Layout(tmp_path)
    old, young = (_made(layout, [["true"]]) for _ in range(2))
    for path in (old.path / "fleet.json",):
        os.utime(path, (time.time() - 10 * 86_400,) * 2)
    retire(layout, 9)
    assert [one.id for one in every(layout)] == [young.id]


def _made(layout, commands, *, seconds=None, jobs=1):
    from cachekit.executors.fleet import create
    from cachekit.executors.port import FleetUnit

    units = tuple(FleetUnit(" ".join(argv), tuple(argv)) for argv in commands)
    return create(layout, engine="local", cwd="/", jobs=jobs, seconds=seconds, units=units)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--on", "kubernetes"], 2, "there is no engine named 'kubernetes'"),
        (["--on", "local:fast"], 2, "this machine has no queues"),
        (["--on", "local", "--check-build"], 2, "--check-build"),
        (["--on", "local", "--offline"], 2, "need the network"),
        (["--on", "local", "--jobs", "0"], 2, "--jobs"),
        (["--max-dollars", "0"], 2, "error[usage]: --max-dollars is for the machines of an engine"),
        (["--jobs", "2"], 2, "--on ENGINE"),
        (["--on", "local", "--max-dollars", "3"], 2, "local rents no machines"),
        (["--on", ""], 2, "there is no engine named ''"),  # --on "$ENGINE", of a variable that is not set
        (["--on", "local", "--require-warm", "--recache"], 2, "contradict"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_submitted(fleet, options, code, says):
    _, err = fleet("warm", "--matrix", fleet.matrix([1]), *options, code=code)
    assert says in err
    assert fleet("fleet", "ls", "--format", "json")[0] == []


def test_a_secret_is_not_given_to_an_engine(fleet):
    token = "environment.HF_TOKEN=hf_" + "aBcD1234" * 4
    _, err = fleet("warm", "toy.yaml", "--set", token, "--on", "local", code=2)
    assert "error[secret]" in err
    assert "aBcD1234" not in err


def test_a_training_on_several_machines_is_refused(fleet):
    _, err = fleet("train", "toy.yaml", "--on", "local", "--nnodes", "3", code=2)
    assert "this is one machine, but the training is for 3" in err
