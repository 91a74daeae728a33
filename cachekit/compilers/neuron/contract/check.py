"""What a check of an assumption is, and what comes of it.

An assumption is compared with what this host's Neuron really does. What could not be looked at is unknown, never ok.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cachekit.compilers.neuron import facts

if TYPE_CHECKING:
    from cachekit.compilers.neuron.contract.lab import Lab

State = Literal["ok", "differs", "unknown"]
STATES: tuple[State, ...] = ("ok", "differs", "unknown")
FACTS = "cachekit/compilers/neuron/facts.py"
_log = logging.getLogger(__name__)


class UnknownError(Exception):
    """Something could not be looked at; the text says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen, and whether it is what was assumed."""

    fits: bool
    words: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one check.

    Attributes:
        name: The check's.
        state: `ok`, `differs`, or `unknown` where it could not be checked.
        assumed: The assumption, in words.
        where: What to correct where it is wrong: names in `facts.py`, or `module.name` beside it.
        how: How it was checked.
        seen: What was seen, or why nothing was.
    """

    name: str
    state: State
    assumed: str
    where: tuple[str, ...]
    how: str
    seen: str

    @property
    def edit(self) -> str:
        """The same place for people: which names, in which file."""
        own = [name for name in self.where if "." not in name]
        places = [f"{', '.join(own)} in {FACTS}"] if own else []
        for name in self.where:
            module, dot, rest = name.rpartition(".")
            if dot:
                places.append(f"{rest} in cachekit/compilers/neuron/{module}.py")
        return "; ".join(places)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "state": self.state,
            "assumed": self.assumed,
            "seen": self.seen,
            "how": self.how,
            "where": list(self.where),
            "edit": self.edit,
        }


@dataclass(frozen=True, slots=True)
class Check:
    """One assumption and how it is looked at.

    Attributes:
        name: For people and programs.
        text: The assumption; `{NAME}` stands for the value of a fact.
        where: See `Outcome`.
        how: How it is checked.
        look: Looks; raises `UnknownError` where it cannot.
    """

    name: str
    text: str
    where: tuple[str, ...]
    how: str
    look: Callable[[Lab], Seen]

    @property
    def assumed(self) -> str:
        """The assumption with the facts as they are now."""
        return self.text.format_map(vars(facts))

    def outcome(self, lab: Lab) -> Outcome:
        """Look, whatever happens."""
        state: State = "unknown"
        try:
            seen = self.look(lab)
            state, words = "ok" if seen.fits else "differs", seen.words
        except UnknownError as error:
            words = str(error)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other checks
            _log.exception("the check %s failed", self.name)
            words = f"this check failed itself: {type(error).__name__}: {error}"
        return Outcome(self.name, state, self.assumed, self.where, self.how, _plain(words))


def check(name: str, assumed: str, *, where: tuple[str, ...], how: str) -> Callable[[Callable[[Lab], Seen]], Check]:
    """Make a check of the function below."""
    return lambda look: Check(name, assumed, where, how, look)


def examine(checks: Iterable[Check], lab: Lab) -> Iterator[Outcome]:
    """The outcome of each check, as it comes."""
    for one in checks:
        yield one.outcome(lab)


def _plain(words: str) -> str:
    """On one line, and without what a terminal would take for a command: tools of others printed it."""
    return " ".join("".join(char if char.isprintable() else " " for char in words).split())
