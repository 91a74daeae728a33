"""What is promised and assumed of a compiler that nobody can read, and what a run from end to end shows.

`verbs.prove` makes the run. An adapter has a table of assumptions, each with a look at what the run left. What could
not be looked at is unknown, never ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from cachekit.text import one_line

State = Literal["ok", "differs", "unknown"]


class UnknownError(Exception):
    """Something could not be looked at; the text says why."""


class Site(Struct, frozen=True):
    """Where a command runs: names of folders below the run's, and of a virtual environment."""

    home: str = "first"
    cache: str = "first"
    work: str = "first"
    user: str = "first"
    environment: str = "first"


class Step(Struct, frozen=True):
    """A command of the run, and what came of it."""

    words: tuple[str, ...]
    site: Site
    variables: Mapping[str, str]  # beside those of its site
    code: int | None  # negative for a signal; None where it did not end in time
    seconds: float
    said: str  # both streams
    answer: Mapping[str, Any]  # what it answered as JSON
    log: str  # what its training worker printed
    journal: str  # what cachekit wrote down of it
    cache: Path  # the compiler cache dir
    files: Mapping[str, tuple[int, float, str]]  # what is new or changed there: size, when it was written, mode
    texts: Mapping[str, str]  # what is in those of them that are small texts
    left: Path | None = None  # a copy of that folder as the command left it; None if none was made
    new: tuple[str, ...] = ()  # finished graphs that it added to the folder

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.code is None:
            return "it did not end in time"
        _, found, error = self.said.rpartition("error[")
        words = error.partition("]: ")[2] if found else self.said.strip().rpartition("\n")[2]
        return f"exit code {self.code}: {' '.join(words.split())[:300]}" if self.code else "exit code 0"


class Evidence(Struct, frozen=True):
    """What the run left, by the names of its steps."""

    steps: dict[str, Step] = {}
    lacking: dict[str, str] = {}  # why the others were not made

    def step(self, name: str) -> Step:
        """A step that was made; raises `UnknownError` if it was not."""
        if name not in self.steps:
            raise UnknownError(self.lacking.get(name, "not tried"))
        return self.steps[name]

    def good(self, name: str) -> Step:
        """A step that ended well; raises `UnknownError` if it failed, or was not made."""
        found = self.step(name)
        if found.code != 0:
            raise UnknownError(f"the step {name} failed: {found.end}")
        return found


# Raises `UnknownError` if the evidence shows nothing; else whether that is as assumed, and what was seen, in words.
Look = Callable[[Evidence], tuple[bool, str]]


class Assumption(Struct, frozen=True):
    """One thing that is promised, or assumed of a compiler."""

    name: str
    text: str
    means: str  # what it means for a user if it is wrong
    look: Look


class Verdict(Struct, frozen=True):
    """What came of one promise or assumption."""

    name: str
    state: State  # `unknown` if nobody could look
    assumed: str
    seen: str  # or why nothing was
    means: str  # what it means for a user if it differs


class Subject(Struct, frozen=True):
    """A compiler whose promises can be tried."""

    compiler: str
    probe: str  # a Python program of a few lines that has one graph compiled
    place: Callable[[Path], Mapping[str, str]]  # what has the compiler, without cachekit, keep its graphs in a folder
    contents: Callable[[Path], frozenset[str]]  # the finished graphs in such a folder
    compiling: Callable[[int], bool]  # whether something compiles below a process
    refused: Mapping[str, str] = {}  # variables with which the probe must fail
    another: Mapping[str, str] = {}  # variables with which the probe's graph must be compiled anew
    cleared: frozenset[str] = frozenset()  # variables of the user's own that would change what is tried
    workers: int = 1  # that the recipe is trained on
    tools: tuple[tuple[str, ...], ...] = ()  # commands that describe the machine, for the report
    rows: tuple[Assumption, ...] = ()


def judged(rows: Iterable[Assumption], seen: Evidence) -> Iterator[Verdict]:
    """Compare each row with the evidence, whatever happens in a look."""
    for row in rows:
        state: State = "unknown"
        try:
            fits, words = row.look(seen)
            state = "ok" if fits else "differs"
        except UnknownError as error:
            words = str(error)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other looks
            words = f"the check itself failed: {type(error).__name__}: {error}"
        words = one_line(" ".join(words.split()))  # tools of others printed them
        yield Verdict(row.name, state, row.text, words, row.means)
