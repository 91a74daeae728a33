"""Command lines that start one of Transformers' example scripts: as typed, or as they stand in a shell script.

Nothing is run, and nothing is filled in. A call is read where its line says all of it, and where nothing before it
decides whether it runs; any other call is found all the same, with what is in the way of reading it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct, structs

from cachekit.errors import RecipeError
from cachekit.recipe import placeholder
from cachekit.recipe.load import read_text

PASTE = "paste the command line, with its values: cachekit zoo new -- torchrun ... run_glue.py ..."
LARGEST = 1 << 20  # bytes of a file of arguments
_SCRIPT = re.compile(r"^(run_[a-z0-9_]+?)(_no_trainer|_flax|_tf)?\.py$")
_OPTION = re.compile(r"--|-[a-z]")
_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>\#.*)|(?P<operator>[;|&<>()]+)|(?P<word>(?:
        [^\s'"`\\;|&<>()] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" | `[^`]*` | (?<=\$)\((?:[^()]|\([^()]*\))*\)
    )+))""",
    re.DOTALL | re.VERBOSE,
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_EXPORT = frozenset({"export", "declare"})
# Words that begin a command, and decide what of the text behind them runs.
_DECIDES = frozenset({"if", "for", "while", "until", "select", "case", "function", "{", "!"})
_ENDS = frozenset({"exit", "return"})
_PRINTS = frozenset({"echo", "printf"})
# Commands that prepare a run: nobody makes a condition of what stands before `&&` then.
_PREPARES = frozenset({"cd", "pushd", "set", "unset", "source", ".", "mkdir", "rm", "module", "conda", "pip", *_PRINTS})


class Command(Struct, frozen=True):
    """One call of an example script.

    Attributes:
        script: `run_glue`.
        line: Of the text where the call begins, from 1; 0 where it was typed.
        launch: The words before the script.
        words: The words after it.
        variables: What is set for it: before its first word, and exported before.
        trouble: Why it cannot be read as it stands; empty where it can.
    """

    script: str
    line: int = 0
    launch: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    trouble: str = ""

    @property
    def file(self) -> str:
        """The file of JSON that stands in the place of arguments; else empty."""
        return self.words[0] if len(self.words) == 1 and self.words[0].endswith(".json") else ""

    @property
    def only_compiles(self) -> bool:
        """Whether `neuron_parallel_compile` stands before the script."""
        return any(PurePosixPath(word).name == "neuron_parallel_compile" for word in self.launch)

    def check(self) -> None:
        """Refuse what only a shell, or its user, could complete.

        Raises:
            RecipeError: The call cannot be read as it stands, only compiles, or has placeholders.
        """
        where = f"the call of {self.script}.py" + (f" on line {self.line}" if self.line else "")
        trouble = self.trouble
        if self.only_compiles:
            trouble = "neuron_parallel_compile comes before the script: that call trains nothing"
        if trouble:
            raise RecipeError(f"{where} cannot be turned into a recipe", cause=trouble, hint=PASTE)
        named, loose = options_of(self.words)
        launched, before = options_of(self.launch)
        places = [(f"--{name}", value) for name, value in {**launched, **named}.items()]
        places += [("an argument", word) for word in (*before, *loose)]
        placeholder.refuse(places, where, PASTE)


class _Part(Struct, frozen=True):
    """One command of a line.

    Attributes:
        operator: What stands before it, `&&`; empty at the beginning of a line.
        words: Without redirections and comments.
        reads: It reads the lines below it, a here-document.
    """

    operator: str
    words: list[str]
    reads: bool

    @property
    def decides(self) -> str:
        """The word or sign that makes what follows depend on how this command ends; empty where none does."""
        if brackets := set(self.operator) & set("()"):
            return min(brackets)
        if self.reads:
            return "<<"
        first = self.words[0] if self.words else ""
        ends = first in _ENDS and self.operator in {"", ";"}  # behind `||` they end what went wrong
        return first if first in _DECIDES or ends else ""

    @property
    def prepares(self) -> bool:
        """Whether nobody makes a condition of this command."""
        return self.words[0] in _PREPARES | _EXPORT or all(map(_ASSIGNED.match, self.words)) or bool(typed(self.words))


def typed(words: Sequence[str]) -> Command | None:
    """The call in a command whose words a shell has split; None where it calls no example script."""
    for position, word in enumerate(words):
        script = _SCRIPT.match(PurePosixPath(word).name)
        after = tuple(words[position + 1 :])
        # Prose and links name scripts as well: a call says how.
        says_how = options_of(after)[0] or (len(after) == 1 and after[0].endswith(".json"))
        if script and says_how and "://" not in word:
            own = [one for one in words[:position] if _ASSIGNED.match(one) and not _OPTION.match(one)]
            launch = tuple(one for one in words[:position] if one not in own)
            variables = {match[1]: match[3] for match in map(_ASSIGNED.match, own) if match}
            return Command(script[1], launch=launch, words=after, variables=variables)
    return None


def find(text: str) -> list[Command]:
    """The calls of example scripts in a shell script."""
    found: list[Command] = []
    assigned: dict[str, str] = {}
    exported: set[str] = set()
    trouble = ""
    for number, line in _lines(text):
        condition = ""
        try:
            parts = [part for part in _parts(line) if part.words or part.decides]
        except ValueError:
            trouble = trouble or f"the quotes or brackets on line {number} do not end there"
            continue
        for part in parts:
            if part.decides:
                trouble = trouble or f"{part.decides!r} on line {number}: only a shell can tell what runs"
            words = part.words
            if words and (words[0] in _EXPORT or all(map(_ASSIGNED.match, words))):
                for word in words:
                    match = _ASSIGNED.match(word)
                    if match:  # what is added to is known when the text runs: it stays a placeholder
                        assigned[match[1]] = f"${match[1]}" if match[2] else match[3]
                    if words[0] in _EXPORT:
                        exported.add(match[1] if match else word)
            elif call := typed(words):
                prints = f"{words[0]!r} prints the call, and does not run it" if words[0] in _PRINTS else ""
                variables = {name: assigned[name] for name in sorted(exported & assigned.keys())} | call.variables
                why = trouble or condition or prints
                found.append(structs.replace(call, line=number, variables=variables, trouble=why))
            if not words or not part.prepares:
                condition = "what comes before it on its line decides whether it runs"
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where they go on."""
    pending, began = "", 0
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("#"):
            continue  # perhaps between arguments: one that somebody switched off
        began = began if pending else number
        if line.endswith("\\"):
            pending += f"{line[:-1]} "
        elif (pending + line).rstrip().endswith(("&&", "||", "|")):
            pending += f"{line} "
        else:
            yield began, pending + line
            pending = ""
    yield began, pending


def _parts(line: str) -> Iterator[_Part]:
    """The commands of a line.

    Raises:
        ValueError: A quote or a bracket does not end.
    """
    operator, redirected, position, reads = "", "", 0, False
    words: list[str] = []
    line = line.rstrip()
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None or (match["operator"] and line[match.start("operator") - 1 : match.end()].startswith("$(")):
            raise ValueError(line)
        if match["comment"]:
            break
        sign = match["operator"] or ""
        redirects = sign if set("<>") & set(sign) else ""
        if match["word"] and not redirected:
            words.append(" ".join(shlex.split(match["word"])))
        elif redirects and words and words[-1].isdecimal() and position == match.start("operator"):  # 2>&1
            words.pop()
        elif sign and not redirects:
            yield _Part(operator, words, reads)
            operator, words, reads = sign, [], False
        reads |= redirects.startswith("<<")
        redirected = redirects
        position = match.end()
    yield _Part(operator, words, reads)


def options_of(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Options and their values (True for one without), the last one of a name; and words of no option."""
    found: dict[str, Any] = {}
    loose: list[str] = []
    name = ""
    for word in words:
        if _OPTION.match(word):
            given, equals, value = word.lstrip("-").partition("=")
            name = given.replace("-", "_")
            found[name] = value if equals else True
            name = "" if equals else name
        elif not name:
            loose.append(word)
        elif found[name] is True:
            found[name] = word
        else:  # of a list
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), word]
    return found, loose


def repeated(words: Sequence[str]) -> set[str]:
    """The names of options that stand twice."""
    names = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in words if _OPTION.match(word)]
    return {name for name in names if names.count(name) > 1}


def options_in(file: Path) -> dict[str, Any]:
    """The same from a file of JSON, as `HfArgumentParser.parse_json_file` takes it: names and values.

    Raises:
        RecipeError: The file cannot be read, holds something else, or has placeholders.
    """
    try:
        document = msgspec.json.decode(read_text(file, LARGEST, "file of arguments"), type=dict[str, Any])
    except (RecipeError, msgspec.DecodeError, RecursionError) as error:
        raise RecipeError(
            f"the script takes its arguments from {file}, which cannot be read",
            cause=str(error),
            hint="write names and values there, as JSON; a relative path begins at the file that has the call",
        ) from error
    placeholder.refuse(document.items(), str(file), "put values in their places")
    return {str(name).replace("-", "_"): _word(value) for name, value in document.items() if value is not None}


def _word(value: Any) -> Any:
    """A value as options have it: words, or True."""
    if value is True or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [str(_word(one)) for one in value]
    return msgspec.json.encode(value).decode()
