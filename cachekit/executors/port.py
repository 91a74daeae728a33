"""What cachekit asks of an engine that runs commands on machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from cachekit.config import Config

# `lost`: its machine died, or the engine does not know it any more. `unknown`: the engine does not answer.
State = Literal["waiting", "running", "done", "failed", "lost", "cancelled", "timed-out", "unknown"]
ENDED: frozenset[State] = frozenset({"done", "failed", "lost", "cancelled", "timed-out"})


class FleetUnit(Struct, frozen=True):
    """A command, for one machine.

    Attributes:
        name: For people.
        argv: Program and arguments.
    """

    name: str
    argv: tuple[str, ...]


class Fleet(Struct, frozen=True, kw_only=True):
    """Commands that were submitted together; as it lies in the store it outlives whoever submitted it.

    Attributes:
        id: Its name, for people and for the engine.
        engine: The engine's name.
        queue: Of the engine: Slurm's partition, SageMaker's type of machine; empty for its default.
        created: ISO 8601, in UTC.
        folder: Where its notes and the output of its commands are. Machines that share files with this one must see it
            at the same path.
        cwd: The working directory of the commands.
        jobs: How many run at once, at most.
        seconds: After which a command is ended; None for never.
        options: What else the engine is told: what its `check` returned.
        files: What the commands read in their working directory, by name: texts, where an engine has `Places`.
        units: The commands, in the order in which they should begin.
    """

    id: str
    engine: str
    queue: str = ""
    created: str
    folder: str
    cwd: str
    jobs: int
    seconds: float | None = None
    options: Mapping[str, Any] = {}
    files: Mapping[str, str] = {}
    units: tuple[FleetUnit, ...]

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)


class Seen(Struct, frozen=True):
    """What an engine says of a command.

    Attributes:
        state: See `State`.
        machine: Where it runs, or ran.
        reason: In the engine's own words, where it has some.
    """

    state: State
    machine: str = ""
    reason: str = ""


class Places(Struct, frozen=True):
    """Where a command finds and leaves files, on a machine that sees none of this one's.

    Attributes:
        model: The folder whose contents are kept as the model.
        checkpoints: The folder that is kept while the command runs, and is there again when it is started again.
        inputs: The folder of what the engine gives the command.
    """

    model: str
    checkpoints: str
    inputs: str


class Engine(Protocol):
    """An engine.

    Attributes:
        rents: Its machines are others' than this one, and their time may cost money.
        spot: It can rent machines that may be taken away, and begins the command again then.
        places: Where files lie on its machines; None where these see this one's files, at the same paths.
    """

    rents: bool
    spot: bool
    places: Places | None

    def check(self, queue: str, config: Config, verb: str) -> Mapping[str, Any]:
        """See that something could be submitted.

        Args:
            queue: See `Fleet`.
            config: The settings.
            verb: What would run: `warm` or `train`.

        Returns:
            What the engine has to be told beside the commands, of the settings and of this machine.

        Raises:
            EngineError: The engine is not here, does not answer, or has no such queue.
            UsageError: A setting that it needs is missing.
        """

    def together(self, nodes: int, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What stands before a command that is to run on so many machines at once; `options` are what `check` returned.

        Raises:
            UsageError: A command runs on one machine only.
        """

    def machine(self, queue: str) -> str:
        """The type of a queue's machines, as the registry calls it; empty where the queue does not say."""

    def request(self, fleet: Fleet) -> str:
        """What would be submitted, to the letter."""

    def submit(self, fleet: Fleet) -> None:
        """Submit all commands of a fleet; it is in the store already.

        Raises:
            EngineError: The engine refuses.
        """

    def look(self, fleet: Fleet) -> Mapping[int, Seen]:
        """What the engine knows of a fleet's commands, by their number; it may have forgotten those that ended.

        Raises:
            EngineError: The engine does not answer.
        """

    def fetch(self, fleet: Fleet, number: int) -> None:
        """Bring what a command told so far into the fleet's folder, where that is not written there anyway.

        Raises:
            EngineError: The engine does not answer.
        """

    def cancel(self, fleet: Fleet) -> None:
        """End what runs, and what would have run; a command that ended already is no error.

        Raises:
            EngineError: The engine does not answer, or refuses.
        """
