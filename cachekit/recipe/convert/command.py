"""Command lines that start one of Transformers' example scripts: as typed, or as they stand in a text.

Nothing is run, and nothing is filled in. A call that only a shell could complete is found all the same, with what is
in the way of reading it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe.convert import placeholder

PASTE = "paste the command line, with its values: cachekit zoo new -- torchrun ... run_glue.py ..."
LARGEST = 1 << 20  # bytes of a file of arguments
_SCRIPT = re.compile(r"^(run_[a-z0-9_]+?)(_no_trainer|_flax|_tf)?\.py$")
_CALL = re.compile(r"(?:^|[\s/'\"])(run_[a-z0-9_]+?)(?:_no_trainer|_flax|_tf)?\.py\s+(?:--?[a-z]|\S+\.json)")
_OPTION = re.compile(r"--|-[a-z]")
_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>\#.*)|(?P<operator>[;|&<>()]+)|(?P<word>(?:
        [^\s'"`\\;|&<>()] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" | `[^`]*` | (?<=\$)\((?:[^()]|\([^()]*\))*\)
    )+))""",
    re.DOTALL | re.VERBOSE,
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_FENCE = "```"
_EXPORT = frozenset({"export", "declare", "local", "readonly", "typeset"})
_CLOSED_BY = {
    "if": "fi", "for": "done", "while": "done", "until": "done", "select": "done", "case": "esac",
    "function": "}", "{": "}",
}  # fmt: skip
_BETWEEN = frozenset({"then", "do", "else", "elif", "!", "time"})


class Command(Struct, frozen=True):
    """One call of an example script.

    Attributes:
        script: `run_glue`.
        line: Of the text where it begins, from 1; 0 where it was typed.
        launch: The words before the script.
        words: The words after it.
        variables: What is set for it: before its first word, and exported before.
        unsure: Variables that are set where nobody knows whether: in a condition, or onto what was there before.
        trouble: Why it cannot be read as it stands; empty where it can.
    """

    script: str
    line: int = 0
    launch: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    unsure: frozenset[str] = frozenset()
    trouble: str = ""

    @property
    def file(self) -> str:
        """Of JSON, which holds the arguments where it stands in their place; else empty."""
        return self.words[0] if len(self.words) == 1 and self.words[0].endswith(".json") else ""

    @property
    def only_compiles(self) -> bool:
        """Whether `neuron_parallel_compile` stands before it."""
        return any(PurePosixPath(word).name == "neuron_parallel_compile" for word in self.launch)

    def check(self) -> None:
        """Refuse what only a shell, or its user, could complete.

        Raises:
            RecipeError: It cannot be read as it stands, only compiles, or has placeholders.
        """
        where = f"the call of {self.script}.py" + (f" on line {self.line}" if self.line else "")
        trouble = self.trouble
        if self.only_compiles:
            trouble = "neuron_parallel_compile stands before it: it makes a few steps, and no training"
        if trouble:
            raise RecipeError(f"{where} cannot be turned into a recipe", cause=trouble, hint=PASTE)
        named, loose, _ = options_of(self.words)
        launched, before, _ = options_of(self.launch)
        places = [*((f"--{name}", value) for name, value in {**launched, **named}.items())]
        places += [("an argument", word) for word in (*before, *loose)]
        placeholder.refuse(places, where, PASTE)


def typed(words: Sequence[str]) -> Command | None:
    """The call in a command whose words a shell has split; None where it calls no example script."""
    return _call(words, {}, 0)


def find(text: str) -> list[Command]:
    """The calls of example scripts in a text: a shell script, or a README."""
    return list(_Reader(text).calls())


class _Reader:
    """Reads a text line by line, with what is exported and which conditions, loops and functions are open."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = frozenset(re.split(r"[\s;)]+", text))
        self._around: list[str] = []
        self._assigned: dict[str, str] = {}
        self._exported: set[str] = set()
        self._unsure: set[str] = set()

    def calls(self) -> Iterator[Command]:
        for number, line in _lines(self._text):
            try:
                found = list(_commands(line))
            except ValueError:
                if match := _CALL.search(line):
                    yield Command(match[1], number, trouble="its quotes or brackets do not end on its line")
                continue
            for words in found:
                if call := self._read(words, number):
                    yield call

    def _read(self, words: list[str], number: int) -> Command | None:
        while words and words[0] in _BETWEEN:
            words = words[1:]
        if not words:
            return None
        if words[0] in _CLOSED_BY.values() and self._around:
            self._around.pop()
        elif self._opens(words):
            self._around.append("function" if words[0] == "{" else words[0])
        elif words[0] in _EXPORT:
            self._export(words[1:])
        elif all(_ASSIGNED.match(word) for word in words):
            self._export(words, exported=False)
        else:
            exported = {name: self._assigned[name] for name in sorted(self._exported & self._assigned.keys())}
            trouble = f"it stands inside of a {self._around[-1]!r}" if self._around else ""
            return _call(words, exported, number, frozenset(self._unsure & self._exported), trouble)
        return None

    def _opens(self, words: list[str]) -> bool:
        """Whether a condition, a loop or a function begins, and not a sentence with such a word."""
        closed_by = _CLOSED_BY.get(words[0])
        if words[0] == "for" and len(words) > 1 and words[2:3] != ["in"]:
            return False
        return closed_by is not None and closed_by in self._words

    def _export(self, words: Sequence[str], *, exported: bool = True) -> None:
        for word in words:
            match = _ASSIGNED.match(word)
            name = match[1] if match else word
            if match:
                self._assigned[name] = match[3]
                if match[2] or self._around:
                    self._unsure.add(name)
            if exported and not word.startswith("-"):
                self._exported.add(name)


def _call(
    words: Sequence[str],
    variables: dict[str, str],
    line: int,
    unsure: frozenset[str] = frozenset(),
    trouble: str = "",
) -> Command | None:
    for position, word in enumerate(words):
        if match := _SCRIPT.match(PurePosixPath(word).name):
            after = tuple(words[position + 1 :])
            # Prose and links name scripts as well: a call says how.
            if "://" in word or not (options_of(after)[0] or (len(after) == 1 and after[0].endswith(".json"))):
                continue
            own = [found for one in words[:position] if (found := _ASSIGNED.match(one)) and not _OPTION.match(one)]
            launch = tuple(one for one in words[:position] if _OPTION.match(one) or not _ASSIGNED.match(one))
            set_here = {found[1]: found[3] for found in own}
            given = {**variables, **set_here}
            return Command(match[1], line, launch, after, given, unsure - set_here.keys(), trouble)
        if re.search(r"\s", word) and (match := _CALL.search(word)):
            return Command(match[1], line, trouble="it stands inside of quotes: another program reads it")
    return None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines, joined where they go on; of a text with fences, those between them."""
    lines = [line.strip() for line in text.splitlines()]
    inside = not any(line.startswith(_FENCE) for line in lines)
    pending, began = "", 0
    for number, line in enumerate(lines, 1):
        if line.startswith(_FENCE):
            inside = not inside
        elif inside and line.startswith("#"):
            continue  # perhaps between arguments: one that somebody switched off
        command = re.sub(r"^\$\s+", "", line) if inside and not line.startswith(_FENCE) else ""
        began = began if pending else number
        if command.endswith("\\"):
            pending += f"{command[:-1]} "
        else:
            yield began, pending + command
            pending = ""
    yield began, pending


def _commands(line: str) -> Iterator[list[str]]:
    """The words of each command on a line; redirections and comments are left out.

    Raises:
        ValueError: A quote or a bracket does not end.
    """
    words: list[str] = []
    position, redirected = 0, False
    line = line.rstrip()
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None or (match["operator"] and line[match.start("operator") - 1 : match.end()].startswith("$(")):
            raise ValueError(line)
        if match["comment"]:
            break
        if match["word"] and not redirected:
            words.append(" ".join(shlex.split(match["word"])))
        elif match["operator"] and set("<>") & set(match["operator"]):
            if words and words[-1].isdecimal() and position == match.start("operator"):  # 2>&1
                words.pop()
        elif match["operator"]:
            yield words
            words = []
        redirected = bool(match["operator"] and set("<>") & set(match["operator"]))
        position = match.end()
    yield words


def options_of(words: Sequence[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Options and their values (True for one without), words of no option, and names that stand twice."""
    found: dict[str, Any] = {}
    loose: list[str] = []
    doubles: list[str] = []
    name = ""
    for word in words:
        if _OPTION.match(word):
            given, equals, value = word.lstrip("-").partition("=")
            name = given.replace("-", "_")
            if name in found:
                doubles.append(name)
            found[name] = value if equals else True
            name = "" if equals else name
        elif not name:
            loose.append(word)
        elif found[name] is True:
            found[name] = word
        else:  # of a list
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), word]
    return found, loose, doubles


def options_in(file: Path) -> dict[str, Any]:
    """The same from a file of JSON, as `HfArgumentParser.parse_json_file` takes it: names and values.

    Raises:
        RecipeError: It cannot be read, holds something else, or has placeholders.
    """
    try:
        if not os.path.isfile(file) or file.stat().st_size > LARGEST:  # noqa: PTH113 - no error for any name
            raise RecipeError(
                f"the script takes its arguments from {file}",
                cause="there is no such file, or none that small",
                hint="put it there: a name that is no whole path is looked for beside the file that has the call",
            )
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        cause = getattr(error, "strerror", "") or str(error)
        raise RecipeError(f"{file} cannot be read as JSON", cause=cause, hint="mend it") from error
    if not isinstance(document, dict):
        raise RecipeError(f"{file} holds no arguments", cause="expected names and values, {...}", hint="mend it")
    placeholder.refuse(document.items(), str(file), "put the values in their places")
    return {str(name).replace("-", "_"): _word(value) for name, value in document.items() if value is not None}


def _word(value: Any) -> Any:
    """A value as options have it: words, or True."""
    if value is True or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [str(_word(one)) for one in value]
    return json.dumps(value)
