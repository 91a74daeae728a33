"""Command lines that start one of Transformers' example scripts: as typed, or as they stand in a text.

Nothing is run, and nothing is filled in. A call that only a shell could complete is found all the same, with what is
in the way of reading it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe import placeholder
from cachekit.recipe.load import read_text

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
# Commands that prepare a run: what stands behind `cd x &&` runs. After any other the call depends on how that one ends.
_PREPARES = frozenset(
    {
        "cd",
        "pushd",
        "set",
        "unset",
        "source",
        ".",
        "mkdir",
        "rm",
        "cp",
        "echo",
        "printf",
        "true",
        ":",
        "sleep",
        "ulimit",
    }
    | {"module", "conda", "pip", "pip3", "apt-get", "git", "wget", "curl"}
)
_ENDS = frozenset({"exit", "return"})


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
            trouble = "neuron_parallel_compile stands before the script: that call trains nothing"
        if trouble:
            raise RecipeError(f"{where} cannot be turned into a recipe", cause=trouble, hint=PASTE)
        named, loose = options_of(self.words)
        launched, before = options_of(self.launch)
        places = [(f"--{name}", value) for name, value in {**launched, **named}.items()]
        places += [("an argument", word) for word in (*before, *loose)]
        placeholder.refuse(places, where, PASTE)


class _Part(Struct):
    """One command of a line.

    Attributes:
        operator: What stands before it, `&&`; empty at the beginning of a line.
        words: Without redirections and comments.
        documents: The words that end the here-documents it reads.
    """

    operator: str
    words: list[str] = []
    documents: list[str] = []


class _Flow:
    """What decides whether a command of a script runs: blocks, `&&`, `||`, `exit`, here-documents."""

    def __init__(self, text: str) -> None:
        self.blocks: list[str] = []  # conditions, loops and functions that are open
        self._words = frozenset(re.split(r"[\s;)]+", text))
        self._lines = frozenset(line.strip() for line in text.splitlines())
        self._documents: list[str] = []
        self._between = ""  # the operators since the last command
        self._last: list[str] = []
        self._guard = ""
        self._depth = 0  # brackets that are open since the guard
        self._ended = ""

    def in_document(self, line: str) -> bool:
        """Whether a line is text of a here-document, or ends one."""
        if not self._documents:
            return False
        if line.strip() == self._documents[0]:
            self._documents.pop(0)
        return True

    def follow(self, part: _Part) -> None:
        """Take note of the next command, and of the blocks that it opens or closes."""
        self._documents += [end for end in part.documents if end in self._lines]
        self._between += part.operator or "\n"
        words = part.words
        if not words:
            return
        brackets = self._between.count("(") - self._between.count(")")
        if "||" in self._between or ("&&" in self._between and not _prepares(self._last)):
            self._guard = "||" if "||" in self._between else "&&"
            self._depth = brackets
        elif self._guard:
            self._depth += brackets
            if self._depth <= 0 and re.search(r"[\n;]|(?<!&)&(?!&)", self._between.replace("|&", "|")):
                self._guard = ""
        self._between, self._last = "", list(words)
        if words[0] in _ENDS and len(words) <= 2 and not (self._guard or self.blocks):  # noqa: PLR2004 - and a status
            self._ended = words[0]

    def trouble(self, words: list[str]) -> str:
        """Why a call in this command may not run; empty where it does."""
        if self._documents:
            return "the call stands in a here-document: it is text"
        if self.blocks:
            return f"the call stands inside of {self.blocks[-1]!r}"
        if self._ended:
            return f"the call stands after {self._ended!r}: it never runs"
        if self._guard:
            how = "succeeds" if self._guard == "&&" else "fails"
            return f"the call runs only if the command before {self._guard!r} {how}"
        return f"{words[0]!r} prints the call, and does not run it" if words[:1] in (["echo"], ["printf"]) else ""

    def is_block(self, words: list[str]) -> bool:
        """Whether a block opens or closes here; it is noted."""
        if words[0] in _CLOSED_BY.values() and self.blocks:
            self.blocks.pop()
        elif _opens(words, self._words):
            self.blocks.append("function" if words[0] == "{" else words[0])
        else:
            return False
        return True


def _prepares(words: list[str]) -> bool:
    """Whether a command is one that nobody makes a condition of."""
    if all(map(_ASSIGNED.match, words)) or words[0] in _EXPORT:
        return not any("$(" in word or "`" in word for word in words)
    return words[0] in _PREPARES or _call(words, {}, 0) is not None


def typed(words: Sequence[str]) -> Command | None:
    """The call in a command whose words a shell has split; None where it calls no example script."""
    return _call(words, {}, 0)


def find(text: str) -> list[Command]:
    """The calls of example scripts in a text: a shell script, or a README."""
    found: list[Command] = []
    flow = _Flow(text)
    assigned: dict[str, str] = {}
    exported: set[str] = set()
    for number, line in _lines(text):
        try:
            parts = list(_parts_of(line))
        except ValueError:
            if not flow.in_document(line) and (match := _CALL.search(line)):
                found.append(Command(match[1], number, trouble="quotes or brackets do not end on the line of the call"))
            continue
        if flow.in_document(line):
            found += [call for part in parts if (call := _call(part.words, {}, number, flow.trouble(part.words)))]
            continue
        for part in parts:
            flow.follow(part)
            words = part.words
            while words and words[0] in _BETWEEN:
                words.pop(0)
            if not words or flow.is_block(words):
                continue
            if words[0] in _EXPORT or all(map(_ASSIGNED.match, words)):
                for word in words:
                    name, added, value = _parts(word)
                    if name != word:  # what only running the text would tell stays a placeholder
                        assigned[name] = f"${name}" if added or flow.blocks else value
                    if words[0] in _EXPORT:
                        exported.add(name)
            else:
                variables = {name: assigned[name] for name in sorted(exported & assigned.keys())}
                if call := _call(words, variables, number, flow.trouble(words)):
                    found.append(call)
    return found


def _opens(words: list[str], text_words: frozenset[str]) -> bool:
    """Whether a condition, a loop or a function begins, and not a sentence with such a word."""
    if words[0] == "for" and len(words) > 1 and words[2:3] != ["in"]:
        return False
    return _CLOSED_BY.get(words[0]) in text_words


def _parts(word: str) -> tuple[str, str, str]:
    match = _ASSIGNED.match(word)
    return (match[1], match[2], match[3]) if match else (word, "", "")


def _call(words: Sequence[str], variables: dict[str, str], line: int, trouble: str = "") -> Command | None:
    for position, word in enumerate(words):
        if match := _SCRIPT.match(PurePosixPath(word).name):
            after = tuple(words[position + 1 :])
            # Prose and links name scripts as well: a call says how.
            if "://" in word or not (options_of(after)[0] or (len(after) == 1 and after[0].endswith(".json"))):
                continue
            own = [one for one in words[:position] if _ASSIGNED.match(one) and not _OPTION.match(one)]
            launch = tuple(one for one in words[:position] if one not in own)
            set_here = {name: value for name, _, value in map(_parts, own)}
            return Command(match[1], line, launch, after, {**variables, **set_here}, trouble)
        if re.search(r"\s", word) and (match := _CALL.search(word)):
            return Command(match[1], line, trouble="the call stands inside of quotes: another program reads it")
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


def _parts_of(line: str) -> Iterator[_Part]:
    """The commands of a line.

    Raises:
        ValueError: A quote or a bracket does not end.
    """
    part = _Part("")
    position, redirected = 0, ""
    line = line.rstrip()
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None or (match["operator"] and line[match.start("operator") - 1 : match.end()].startswith("$(")):
            raise ValueError(line)
        if match["comment"]:
            break
        operator = match["operator"] or ""
        redirects = operator if set("<>") & set(operator) else ""
        if match["word"]:
            word = " ".join(shlex.split(match["word"]))
            if not redirected:
                part.words.append(word)
            elif redirected == "<<":
                part.documents.append(word.removeprefix("-"))
        elif redirects and part.words and part.words[-1].isdecimal() and position == match.start("operator"):  # 2>&1
            part.words.pop()
        elif operator and not redirects:
            yield part
            part = _Part(operator)
        redirected = redirects
        position = match.end()
    yield part


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
