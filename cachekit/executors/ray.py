"""Ray as an engine: a task of Ray Core for each command, on a cluster that exists.

A detached actor submits a fleet's tasks, so that they outlive whoever submitted the fleet. The commands write their
notes into the fleet's folder, which all nodes share. Ray starts an actor whose node died again, and the actor submits
what has left no note; it ends after the last command. [Ray 2.60: "Actor Lifetimes", "Fault Tolerance", "Resources"]
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from cachekit import files, private, process
from cachekit.config import Config
from cachekit.errors import EngineError, UnknownNameError, UsageError
from cachekit.executors import fleet as fleets
from cachekit.executors import unit
from cachekit.executors.port import Fleet, Places, Seen

PATIENCE = 120  # seconds for an answer of the cluster
POLL = 0.1  # seconds
HERE = "export RAY_ADDRESS=HOST:6379, the address of your own cluster; `ray status` shows it"
OF_THE_NODE = re.compile("RAY_|.*_VISIBLE_")  # variables with which Ray tells a worker of its node and accelerators


def _wanted(queue: str) -> dict[str, float]:
    """The resources of each command: `CPU=8,neuron_cores=2`; one CPU where none is said."""
    with suppress(ValueError):
        parts = (part.partition("=") for part in queue.split(",") if part)
        found = {"CPU": 1.0} | {name.strip(): float(amount or 1) for name, _, amount in parts}
        if all(0 <= amount < float("inf") for amount in found.values()):
            return found
    raise UsageError(f"ray:{queue} does not name resources of Ray", hint="--on ray:CPU=8,neuron_cores=2")


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={amount:g}" for name, amount in resources.items())


@contextmanager
def _cluster(where: str) -> Iterator[Any]:
    """Ray, connected to a cluster. Ray itself would look for one in /tmp, where another user's may be found first."""
    try:
        import ray
    except ImportError as error:
        raise EngineError("Ray is not installed", hint='pip install "cachekit-neuron[ray]"') from error
    if where in {"", "auto", "local"}:
        raise UsageError("no Ray cluster is named", hint=HERE)
    try:
        host, _, port = where.rpartition("/")[2].rpartition(":")
        if port.isdecimal():  # Ray itself tries for a quarter of an hour
            socket.create_connection((host, int(port)), timeout=PATIENCE).close()
        if not ray.is_initialized():
            asked_to_end = signal.getsignal(signal.SIGTERM)
            ray.init(where, namespace="cachekit", log_to_driver=False, logging_level="ERROR")
            with suppress(ValueError):  # Ray's own would end this process without a word; in other threads it sets none
                signal.signal(signal.SIGTERM, asked_to_end)
        yield ray
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:  # ValueError: it is no address
        raise EngineError(f"Ray at {where} failed", cause=_told(error), hint=HERE) from error


def _told(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2].strip()[-500:] or type(error).__name__  # no traceback


class _Ray:
    rents, spot = True, False
    places: Places | None = None

    def check(self, queue: str, config: Config, verb: str) -> Mapping[str, Any]:
        wanted, where = _wanted(queue), os.environ.get("RAY_ADDRESS", "")
        with _cluster(where) as ray:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
            cause = f"the most that one of {len(nodes)} nodes has: {_shown(most)}"
            raise UnknownNameError(f"no node of the Ray cluster has {_shown(wanted)}", cause=cause, hint="`ray status`")
        return {"address": where}

    def together(self, nodes: int, options: Mapping[str, Any]) -> tuple[str, ...]:
        raise UsageError(
            f"Ray runs a command on one node, but this command is for {nodes}", hint="--on slurm or sagemaker"
        )

    def machine(self, queue: str) -> str:
        return ""

    def request(self, fleet: Fleet) -> str:
        first = f"# {_shown(_wanted(fleet.queue))} for each, {fleet.jobs} at once"
        return "\n".join([first, *(shlex.join(one.argv) for one in fleet.units)])

    def submit(self, fleet: Fleet) -> None:
        with _cluster(fleet.options["address"]) as ray:
            kept = {"name": fleet.id, "lifetime": "detached", "max_restarts": -1, "num_cpus": 0, "max_concurrency": 2}
            actor = ray.remote(_Commands).options(**kept).remote(fleet, dict(os.environ))
            try:
                ray.get(actor.__ray_ready__.remote(), timeout=PATIENCE)
            except ray.exceptions.ActorDiedError:
                if _left(fleet):  # else it has ended after the last one
                    raise

    def look(self, fleet: Fleet) -> Mapping[int, Seen]:
        seen = {}
        with _cluster(fleet.options["address"]) as ray, suppress(ValueError):  # no actor: all has ended, or was lost
            ray.get_actor(fleet.id)
            seen = {n: Seen("running" if (fleet.path / f"{n}.begun").exists() else "waiting") for n in _left(fleet)}
        stopped = {number: fleets.stopped(fleet.path, number) for number in range(len(fleet.units))}
        return seen | {number: note for number, path in stopped.items() if (note := files.noted(path, Seen))}

    def fetch(self, fleet: Fleet, number: int) -> None:
        """Nothing: the commands write there."""

    def cancel(self, fleet: Fleet) -> None:
        with _cluster(fleet.options["address"]) as ray, suppress(ValueError, ray.exceptions.ActorDiedError):
            ray.get(ray.get_actor(fleet.id).cancel.remote(), timeout=PATIENCE)


ENGINE = _Ray()


def _left(fleet: Fleet) -> list[int]:
    """The commands that left no note of how they ended."""
    there = {path.name for path in fleet.path.iterdir()}
    return [n for n in range(len(fleet.units)) if not {f"{n}.ended", fleets.stopped(fleet.path, n).name} & there]


def _stop(fleet: Fleet, number: int, why: Seen) -> None:
    if number in _left(fleet):
        files.note(fleets.stopped(fleet.path, number), msgspec.json.encode(why), mode=private.FILE)


class _Commands:
    """The actor."""

    def __init__(self, fleet: Fleet, environment: Mapping[str, str]) -> None:
        import ray

        if not fleet.path.is_dir():
            raise FileNotFoundError(f"{os.uname().nodename} does not see {fleet.folder}: share --home DIR")
        rest = _wanted(fleet.queue)
        own = {"num_cpus": rest.pop("CPU"), "num_gpus": rest.pop("GPU", 0), "resources": rest}
        self._task = ray.remote(_run).options(**own, max_retries=3)  # after a death of its machine
        self._ray, self._fleet, self._environment = ray, fleet, environment
        self._waiting, self._lock, self._running = _left(fleet), threading.Lock(), dict[Any, int]()
        threading.Thread(target=self._go_on, daemon=True).start()

    def cancel(self) -> None:
        """End what runs, and submit nothing more."""
        with self._lock:
            for number in (*self._waiting, *self._running.values()):
                _stop(self._fleet, number, Seen("cancelled"))
            self._waiting.clear()
            for task in self._running:
                self._ray.cancel(task)

    def _go_on(self) -> None:
        while self._waiting or self._running:
            with self._lock:
                while self._waiting and len(self._running) < self._fleet.jobs:
                    number = self._waiting.pop(0)
                    self._running[self._task.remote(self._fleet, number, self._environment)] = number
            for task in self._ray.wait(list(self._running), timeout=POLL)[0]:
                with self._lock:
                    self._end(task, self._running.pop(task))
        self._ray.kill(self._ray.get_actor(self._fleet.id))

    def _end(self, task: Any, number: int) -> None:
        """Note how a command ended, where it has not noted that itself."""
        try:
            why = Seen("failed", reason=f"it ended with {self._ray.get(task)}")
        except self._ray.exceptions.RayError as error:
            own = isinstance(error, self._ray.exceptions.RayTaskError)
            why = Seen("failed" if own else "lost", reason=_told(error))
        _stop(self._fleet, number, why)


def _run(fleet: Fleet, number: int, environment: Mapping[str, str]) -> int:
    """A task: a command, to its end. Where the worker is killed, so are all processes of the command."""
    given = {name: value for name, value in os.environ.items() if OF_THE_NODE.match(name)}
    command = [*process.SUBREAPER, sys.executable, unit.__file__, fleet.folder, str(number)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**environment, **given})
    deadline = time.monotonic() + (float("inf") if fleet.seconds is None else fleet.seconds)
    with suppress(KeyboardInterrupt):  # it is cancelled
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL)
        if child.returncode is None:
            _stop(fleet, number, Seen("timed-out"))
    child.terminate()
    return child.wait()
