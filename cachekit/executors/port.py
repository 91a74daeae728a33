"""What cachekit asks of an engine that runs commands on machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

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
        queue: Of the engine: Slurm's partition; empty for its default.
        created: ISO 8601, in UTC.
        folder: Where its notes and the output of its commands are. The machines must see it at the same path.
        cwd: The working directory of the commands.
        jobs: How many run at once, at most.
        seconds: After which a command is ended; None for never.
        setup: Lines of a shell that run before each command, on its machine.
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
    setup: str = ""
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


class Engine(Protocol):
    """An engine.

    Attributes:
        rents: Its machines are others' than this one, and their time may cost money.
    """

    rents: bool

    def check(self, queue: str) -> None:
        """See that something could be submitted.

        Raises:
            EngineError: The engine is not here, does not answer, or has no such queue.
        """

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

    def cancel(self, fleet: Fleet) -> None:
        """End what runs, and what would have run; a command that ended already is no error.

        Raises:
            EngineError: The engine does not answer, or refuses.
        """
