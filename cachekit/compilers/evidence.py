"""What is assumed of a compiler that nobody can read, and what one experiment shows.

`experiment` makes the experiment: a warm, trainings, and commands, each a child process of the command line. An adapter
has a table of assumptions, each with a look at what the experiment left. What could not be looked at is unknown, never
ok.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from cachekit.text import one_line

State = Literal["ok", "differs", "unknown"]
STATES: tuple[State, ...] = ("ok", "differs", "unknown")
_log = logging.getLogger(__name__)


class UnknownError(Exception):
    """Something could not be looked at; the text says why."""


class Step(Struct, frozen=True):
    """A part of the experiment: one or several commands; the last one counts.

    Attributes:
        code: Its exit code, negative for a signal; None where it did not end in time.
        said: What it printed, both streams.
        answer: What it answered as JSON.
        log: What its training worker printed.
        cache: The compiler cache dir.
        left: A copy of that folder as the command, or the one that was killed, left it; None if none was made.
        new: Finished graphs that the command added to the folder.
    """

    code: int | None
    said: str
    answer: Mapping[str, Any]
    log: str
    cache: Path
    left: Path | None = None
    new: frozenset[str] = frozenset()

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
    """What the experiment left, by the names of its steps.

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
            raise UnknownError(self.lacking.get(name, f"the step {name} was not made"))
        return self.steps[name]

    def good(self, name: str) -> Step:
        """A step that ended well.

        Raises:
            UnknownError: The step failed, or was not made.
        """
        found = self.step(name)
        if found.code:
            raise UnknownError(f"the step {name} failed: {found.end}")
        return found


class Observation(Struct, frozen=True):
    """What was seen, and whether it is what was assumed."""

    fits: bool
    words: str


Look = Callable[[Evidence], Observation]


class Assumption(Struct, frozen=True):
    """One thing that is assumed of a compiler.

    Attributes:
        name: For people and programs.
        text: In words; `{NAME}` stands for the value of a fact.
        where: What to correct if the assumption is wrong: names of facts, or `module.name` beside them.
        look: Looks at the evidence; raises `UnknownError` if that shows nothing.
    """

    name: str
    text: str
    where: tuple[str, ...]
    look: Look


class Verdict(Struct, frozen=True):
    """What came of one promise or assumption.

    Attributes:
        state: `ok`, `differs`, or `unknown` if nobody could look.
        assumed: In words.
        seen: What was seen, or why nothing was.
        edit: What to correct if it differs; empty if correcting a fact would not help.
    """

    name: str
    state: State
    assumed: str
    seen: str
    edit: str = ""


class Subject(Struct, frozen=True):
    """A compiler that an experiment can be made with.

    Attributes:
        compiler: Its name.
        probe: A Python program of a few lines that has one graph compiled.
        refused: Changes to a recipe, as `--set` takes them, that the compiler must refuse.
        another: Variables with which the probe's graph must be compiled anew.
        cleared: Variables of the user's own that would change the experiment.
        place: The variables that make the compiler, without cachekit, keep its graphs in a folder.
        contents: The finished graphs in such a folder.
        compiling: Whether something compiles below a process.
        rows: What is assumed of it.
        facts: Facts by name, for the words of the assumptions.
        source: The file that has them.
    """

    compiler: str
    probe: str
    place: Callable[[Path], Mapping[str, str]]
    contents: Callable[[Path], frozenset[str]]
    compiling: Callable[[int], bool]
    refused: tuple[str, ...] = ()
    another: Mapping[str, str] = field(default_factory=dict)
    cleared: frozenset[str] = frozenset()
    rows: tuple[Assumption, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def check(self, seen: Evidence) -> Iterator[Verdict]:
        """Compare each assumption with the evidence, whatever happens in a look."""
        for row in self.rows:
            text, edit = row.text.format_map(self.facts), self._edit(row.where)
            yield judged(row.name, text, row.look, seen, edit)

    def _edit(self, where: tuple[str, ...]) -> str:
        own = [name for name in where if "." not in name]
        folder = self.source.rpartition("/")[0]
        places = [f"{', '.join(own)} in {self.source}"] if own else []
        for name in where:
            module, dot, rest = name.rpartition(".")
            if dot:
                places.append(f"{rest} in {folder}/{module}.py")
        return "; ".join(places)


def judged(name: str, text: str, look: Look, seen: Evidence, edit: str = "") -> Verdict:
    """What a look at the evidence says, whatever happens in it."""
    state: State = "unknown"
    try:
        found = look(seen)
        state, words = "ok" if found.fits else "differs", found.words
    except UnknownError as error:
        words = str(error)
    except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other looks
        _log.exception("the check of %s failed", name)
        words = f"the check itself failed: {type(error).__name__}: {error}"
    return Verdict(name, state, text, one_line(" ".join(words.split())), edit)  # tools of others printed the words


def count(outcomes: tuple[Verdict, ...]) -> dict[str, int]:
    """How many outcomes there are of each state."""
    counts = Counter(outcome.state for outcome in outcomes)
    return {state: counts[state] for state in STATES}
