"""What is promised and assumed of a compiler that nobody can read, and what a run from end to end shows.

`verbs.prove` makes the run. An adapter has a table of assumptions, each with a look at what the run left. What could
not be looked at is unknown, never ok.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from cachekit.text import one_line

State = Literal["ok", "differs", "unknown"]
STATES: tuple[State, ...] = ("ok", "differs", "unknown")
_log = logging.getLogger(__name__)


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
    """A command of the run.

    Attributes:
        words: The command line.
        site: Which folders, user and virtual environment it had.
        variables: What it had in its environment beside those of its site.
        code: Its exit code, negative for a signal; None where it did not end in time.
        seconds: Wall time.
        said: What it printed, both streams.
        answer: What it answered as JSON.
        log: What its training worker printed.
        journal: What cachekit wrote down of it.
        cache: The compiler cache dir.
        files: What is new or changed there, by path: size in bytes, when it was written, who may do what with it.
        texts: What is in those of them that are small texts.
        left: A copy of that folder as the command left it; None if none was made.
        new: Finished graphs that the command added to the folder.
    """

    words: tuple[str, ...]
    site: Site
    variables: Mapping[str, str]
    code: int | None
    seconds: float
    said: str
    answer: Mapping[str, Any]
    log: str
    journal: str
    cache: Path
    files: Mapping[str, tuple[int, float, str]]
    texts: Mapping[str, str]
    left: Path | None = None
    new: tuple[str, ...] = ()

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.code is None:
            return "it did not end in time"
        error = self.answer.get("error")
        if isinstance(error, Mapping):
            words = "; ".join(str(error[part]) for part in ("message", "cause") if error.get(part))
            return f"exit code {self.code}: {words}"
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        errors = [line.partition(": ")[2] for line in lines if line.startswith("error[")]
        words = (errors or lines or [""])[-1]
        return f"exit code {self.code}{f': {words[:200]}' if words and self.code else ''}"


class Evidence(Struct, frozen=True):
    """What the run left, by the names of its steps.

    Attributes:
        steps: The steps that were made.
        lacking: Why the others were not made.
    """

    steps: dict[str, Step] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)

    def step(self, name: str) -> Step:
        """A step that was made.

        Raises:
            UnknownError: The step was not made.
        """
        if name not in self.steps:
            raise UnknownError(self.lacking.get(name, "not tried"))
        return self.steps[name]

    def good(self, name: str) -> Step:
        """A step that ended well.

        Raises:
            UnknownError: The step failed, or was not made.
        """
        found = self.step(name)
        if found.code != 0:
            raise UnknownError(f"the step {name} failed: {found.end}")
        return found


class Observation(Struct, frozen=True):
    """What was seen, and whether it is what was assumed."""

    fits: bool
    words: str


Look = Callable[[Evidence], Observation]


class Assumption(Struct, frozen=True):
    """One thing that is promised, or assumed of a compiler.

    Attributes:
        name: For people and programs.
        text: In words; `{NAME}` stands for the value of a fact.
        means: What it means for a user if it is wrong.
        look: Looks at the evidence; raises `UnknownError` if that shows nothing.
    """

    name: str
    text: str
    means: str
    look: Look


class Verdict(Struct, frozen=True):
    """What came of one promise or assumption.

    Attributes:
        state: `ok`, `differs`, or `unknown` if nobody could look.
        assumed: In words.
        seen: What was seen, or why nothing was.
        means: What it means for a user if it differs.
    """

    name: str
    state: State
    assumed: str
    seen: str
    means: str


class Subject(Struct, frozen=True):
    """A compiler whose promises can be tried.

    Attributes:
        compiler: Its name.
        probe: A Python program of a few lines that has one graph compiled.
        place: The variables that make the compiler, without cachekit, keep its graphs in a folder.
        contents: The finished graphs in such a folder.
        compiling: Whether something compiles below a process.
        refused: Variables with which the probe must fail.
        another: Variables with which the probe's graph must be compiled anew.
        cleared: Variables of the user's own that would change what is tried.
        workers: How many workers the recipe is trained on.
        tools: Commands that describe the machine, for the report.
        rows: What is assumed of it.
        facts: Facts by name, for the words of the assumptions.
    """

    compiler: str
    probe: str
    place: Callable[[Path], Mapping[str, str]]
    contents: Callable[[Path], frozenset[str]]
    compiling: Callable[[int], bool]
    refused: Mapping[str, str] = field(default_factory=dict)
    another: Mapping[str, str] = field(default_factory=dict)
    cleared: frozenset[str] = frozenset()
    workers: int = 1
    tools: tuple[tuple[str, ...], ...] = ()
    rows: tuple[Assumption, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def judged(rows: Iterable[Assumption], seen: Evidence, facts: Mapping[str, Any]) -> Iterator[Verdict]:
    """Compare each row with the evidence, whatever happens in a look."""
    for row in rows:
        state: State = "unknown"
        try:
            found = row.look(seen)
            state, words = "ok" if found.fits else "differs", found.words
        except UnknownError as error:
            words = str(error)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other looks
            _log.exception("the check of %s failed", row.name)
            words = f"the check itself failed: {type(error).__name__}: {error}"
        words = one_line(" ".join(words.split()))  # tools of others printed them
        yield Verdict(row.name, state, row.text.format_map(facts), words, row.means)


def count(outcomes: tuple[Verdict, ...]) -> dict[str, int]:
    """How many outcomes there are of each state."""
    counts = Counter(outcome.state for outcome in outcomes)
    return {state: counts[state] for state in STATES}
