"""Compiler flags: what of NEURON_CC_FLAGS is hashed, by which of three formulas, and why two lists differ.

The second half of a module's name is the first digits of an MD5 over the flags, as they are spelled and in the order
they stand (`facts`). Nothing here decides a hit: it explains misses, and it warns of spellings.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cachekit.compilers.neuron import facts

Era = Literal["joined", "json", "json+target", "unknown"]
ERAS: tuple[Era, ...] = ("joined", "json", "json+target")
LARGEST = 1 << 20  # bytes of a flags file


def split(text: str) -> tuple[list[str], str]:
    """The words of NEURON_CC_FLAGS as a shell reads them; and what is wrong, where it cannot be read so."""
    try:
        return shlex.split(text), ""
    except ValueError as error:
        return text.split(), f"{error}; split at blanks instead"


def without_wrapper_options(words: Sequence[str]) -> list[str]:
    """The flags without those that the wrapper takes for itself, in either spelling: `--x=v`, `--x v`."""
    return _sorted(words)[0]


def wrapper_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options that the wrapper takes for itself, as they are spelled, where a run may have them.

    Returns:
        Those that it may have, and why another was left out, a sentence each. Folder and cache are always set anew,
        and without a word.
    """
    passed: list[str] = []
    said: list[str] = []
    for name, value, spelled in _sorted(words)[1]:
        if name == facts.LOG_LEVEL_FLAG and value.upper() not in facts.TELLING_LEVELS:
            said.append(f"{' '.join(spelled)} is left out: what the compiler does is read from lines at INFO")
        elif name not in {facts.CACHE_DIR_FLAG, facts.NO_CACHE_FLAG}:
            passed += spelled
    return passed, said


def _sorted(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """The compiler's words, and the wrapper's options with value and spelling."""
    kept: list[str] = []
    taken: list[tuple[str, str, list[str]]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in facts.WRAPPER_OPTIONS:
            kept.append(word)
        elif facts.WRAPPER_OPTIONS[name] and not equals:
            value = next(rest, "")
            taken.append((name, value, [word, value] if value else [word]))
        else:
            taken.append((name, value, [word]))
    return kept, taken


def flags_hash(words: Sequence[str], era: Era, target: str = "") -> str:
    """The flags' half of a module's name.

    Args:
        words: The flags, without the wrapper's own. A `--target=` in front counts as the target.
        era: The formula; `unknown` gives an empty string.
        target: For `json+target`.
    """
    if era == "unknown":
        return ""
    front = f"{facts.TARGET_OPTION}="
    bare = [word for number, word in enumerate(words) if not (number == 0 and word.startswith(front))]
    if not target and len(bare) < len(words):
        target = words[0].removeprefix(front)
    if era == "joined":
        text = " ".join(bare)
    elif era == "json":
        text = json.dumps(bare)
    else:
        text = json.dumps([front + target, *bare])
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[: facts.FLAGS_HASH_DIGITS]


def explain_hash(words: Sequence[str], wanted: str) -> tuple[Era, str]:
    """Which formula makes `wanted` of these flags, and for which target; `unknown` where none does."""
    for era in ERAS:
        targets = ("", *facts.TARGETS) if era == "json+target" else ("",)
        for target in targets:
            if flags_hash(words, era, target) == wanted:
                own = words[0].partition("=")[2] if words and words[0].startswith(facts.TARGET_OPTION + "=") else ""
                return era, (target or own) if era == "json+target" else ""
    return "unknown", ""


class HasFlags(Protocol):
    """A module on disk, as `entries.Entry` is one."""

    @property
    def name(self) -> str:
        """`MODULE_<graph>+<flags>`."""

    @property
    def path(self) -> Path:
        """Its folder."""


@dataclass(frozen=True, slots=True)
class Detected:
    """Which formula a cache was written with.

    Attributes:
        era: The only one that explains any of its modules; `unknown` where none does, or several do.
        targets: The targets found with it.
        counts: Modules by formula, `unknown` among them.
    """

    era: Era
    targets: tuple[str, ...]
    counts: dict[str, int]


def detect_era(entries: Iterable[HasFlags], *, at_most: int = 200) -> Detected:
    """Find the formula by the modules that are there: hash their flags files, compare with their names.

    The compiler's version does not tell: the formula changed with libneuronxla.

    Args:
        entries: Modules of one cache.
        at_most: How many flags files are read.
    """
    counts: Counter[str] = Counter()
    targets = set()
    for entry in entries:
        match = facts.MODULE_DIRECTORY.fullmatch(entry.name)
        words = read_flags(entry.path / facts.FLAGS_FILE) if match and match["flags"] else None
        if match is None or words is None:
            continue
        era, target = explain_hash(words, match["flags"])
        counts[era] += 1
        targets |= {target} - {""}
        if counts.total() >= at_most:
            break
    known = [era for era in ERAS if counts[era]]
    return Detected(known[0] if len(known) == 1 else "unknown", tuple(sorted(targets)), dict(counts))


def read_flags(path: Path) -> list[str] | None:
    """The list in a `compile_flags.json`; None where it cannot be read or is no list of words."""
    try:
        with path.open("rb") as source:
            value = json.loads(source.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(value, str):  # not seen, but what a wrapper that joins its flags would write
        return split(value)[0]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    return None


def option(words: Sequence[str], name: str) -> str:
    """The value of an option, however it is spelled (`facts.OPTION_SYNONYMS`); the last one counts, empty for none."""
    return next((found.value for found in reversed(_options(words)) if found.name == name), "")


@dataclass(frozen=True, slots=True)
class _Option:
    """One option: its long name, its value, and the words it was written with."""

    name: str
    value: str
    words: str


def _options(words: Sequence[str]) -> list[_Option]:
    found: list[_Option] = []
    number = 0
    while number < len(words):
        word = words[number]
        following = words[number + 1] if number + 1 < len(words) else "-"
        number += 1
        if not word.startswith("-"):
            found.append(_Option("", word, word))
            continue
        name, equals, value = word.partition("=")
        if not equals:
            short = next(
                (key for key in facts.GLUED_OPTIONS if word.startswith(key) and word[len(key) :].isdigit()), ""
            )
            if short:
                name, value = short, word[len(short) :]
            elif not following.startswith("-") or (number < len(words) and facts.OPTIONS_OF_PARTS.fullmatch(name)):
                value, word = following, f"{word} {following}"
                number += 1
        found.append(_Option(facts.OPTION_SYNONYMS.get(name, name), value, word))
    return found


def explain(a: Sequence[str], b: Sequence[str], names: tuple[str, str] = ("the first", "the second")) -> list[str]:
    """Say in words why two lists of flags give different keys.

    Args:
        a: A list of flags.
        b: Another.
        names: What to call them.

    Returns:
        A sentence a difference, the most telling first; nothing where the lists are equal.
    """
    if list(a) == list(b):
        return []
    one, two = names
    left, right = _options(a), _options(b)
    said: list[str] = []
    options = list(dict.fromkeys(option.name for option in (*left, *right)))
    options.sort(key=lambda name: (name != facts.TARGET_OPTION, name in facts.LEAKING_OPTIONS))
    for name in options:
        said += _explain_one(name, [o for o in left if o.name == name], [o for o in right if o.name == name], one, two)
    if [(o.name, o.value) for o in left] != [(o.name, o.value) for o in right] and sorted(
        (o.name, o.value) for o in left
    ) == sorted((o.name, o.value) for o in right):
        here = next(
            n for n, (x, y) in enumerate(zip(left, right, strict=True)) if (x.name, x.value) != (y.name, y.value)
        )
        said.append(
            f"the order differs: number {here + 1} is `{left[here].words}` in {one} and `{right[here].words}` in {two}"
        )
    return said or [f"{one} is {shlex.join(a)!r} and {two} is {shlex.join(b)!r}"]


def _explain_one(name: str, left: list[_Option], right: list[_Option], one: str, two: str) -> list[str]:
    values, others = [o.value for o in left], [o.value for o in right]
    spelled, respelled = [o.words for o in left], [o.words for o in right]
    if spelled == respelled:
        return []
    leak = ""
    if name in facts.LEAKING_OPTIONS:
        leak = "; it changes no code, but it is hashed all the same: leave it out"
    if sorted(values) == sorted(others):
        if sorted(spelled) == sorted(respelled):
            return []  # only the order
        x, y = next((x, y) for x, y in zip(left, right, strict=True) if x.words != y.words)
        same = "" if x.value != y.value else ": the same option, but spelling is in the key"
        return [f"`{x.words}` in {one} is written `{y.words}` in {two}{same}{leak}"]
    shown = ", ".join(f"`{words}`" for words in spelled), ", ".join(f"`{words}`" for words in respelled)
    if not left:
        return [f"only {two} has {shown[1]}{leak}"]
    if not right:
        return [f"only {one} has {shown[0]}{leak}"]
    if set(values) == set(others):
        counts = f"{_times(len(left))} in {one} and {_times(len(right))} in {two}"
        return [f"`{name or values[0]}` stands {counts}: repeats are in the key{leak}"]
    if name == facts.TARGET_OPTION:
        return [f"the target is {', '.join(values)} in {one} and {', '.join(others)} in {two}"]
    return [f"{one} has {shown[0]}, {two} has {shown[1]}{leak}"]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
