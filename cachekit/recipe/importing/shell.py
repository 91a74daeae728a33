"""Commands out of the text of a shell script, a README or a notebook: what their words would be, variables filled in.

Nothing is run. What only a shell could tell (another program's output, an argument of the script) stays as it stands,
with its `$`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_ASSIGN = re.compile(
    r"^(?:export\s+|declare\s+(?:-\w+\s+)*|local\s+|readonly\s+)?([A-Za-z_]\w*)(\+?)=(?!=)(.*)$", re.DOTALL
)
_VARIABLE = re.compile(
    r"\$(?:\{(?P<name>[A-Za-z_]\w*)(?:\[[@*]\])?(?::?(?P<how>[-=])(?P<default>[^{}]*))?\}|(?P<bare>[A-Za-z_]\w*))"
)
_ALL = re.compile(r"\"(\$\{[A-Za-z_]\w*\[[@*]\]\})\"")
_DEFAULT = re.compile(r"^:\s+\"?(\$\{[A-Za-z_]\w*:?=[^}]*\})\"?$")
_SUM = re.compile(r"\$\(\(([\d\s+*/()-]+)\)\)")
_OUTPUT = re.compile(r"\$\([^()]*\)|`[^`]*`")  # another program's
_OPERATORS = frozenset("();<>|&")
_PROMPT = re.compile(r"^(?:\$|>>>|!|%)\s*(?=\S)")
_ENVIRONMENT = re.compile(r"^[A-Za-z_]\w*=")
_BEGINS = re.compile(r"^(?:export\s+)?[A-Za-z_]\w*\+?=")
MOST_LINES = 200  # of one value
DEEPEST = 20  # variables that stand in variables
LONGEST = 1 << 20  # characters that a variable may come to


@dataclass(slots=True)
class ShellCommand:
    """One command of a text.

    Attributes:
        words: Program and arguments; redirections are left out.
        variables: What is set for it: before its first word, and exported before.
        line: Where it begins, from 1.
    """

    words: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    line: int = 0


def commands(text: str) -> Iterator[ShellCommand]:
    """Every command of a text, in its order; what is no command (prose, keywords) comes as words all the same."""
    variables: dict[str, str] = {}
    exported: dict[str, str] = {}
    for number, line in _lines(text):
        expanded = _expand(line, variables)
        default = _DEFAULT.match(line)
        if default:
            continue  # `: ${NAME:=value}` sets it as it is expanded
        assigned = _ASSIGN.match(expanded)
        if assigned and (value := _value(assigned[3])) is not None:
            name = assigned[1]
            old = (
                f"{variables.get(name, '')} "
                if assigned[2] and assigned[3].startswith("(")
                else variables.get(name, "")
            )
            variables[name] = (old + value if assigned[2] else value)[:LONGEST]
            if line.startswith("export") or name in exported:
                exported[name] = variables[name]
            continue
        for words in _split(expanded):
            if words[:1] == ["export"]:
                for word in words[1:]:
                    name, equals, value = word.partition("=")
                    if equals:
                        variables[name] = value
                    exported[name] = variables.get(name, "")
                continue
            own = dict(exported)
            while words and _ENVIRONMENT.match(words[0]):
                name, _, value = words.pop(0).partition("=")
                own[name] = value
            if words:
                yield ShellCommand(words, own, number)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines: continuations joined, quotes and arrays closed, comments and prompts left out."""
    text = _notebook(text)
    pending, began = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.rstrip()
        if not pending:
            began = number
            line = line.strip()
            if line.startswith(("#", "```")):
                continue
            line = _PROMPT.sub("", line)
        elif re.match(r"^\s*#", line):  # between arguments that somebody switched off
            if not pending.endswith("\\"):
                continue
            line = "\\"
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip() + " " + line.strip()
        else:
            pending = f"{pending}\n{line}" if pending else line
        if pending.endswith("\\") and number < text.count("\n") + 1:
            continue
        # Prose has lone apostrophes: only what sets a variable goes on over lines.
        if _BEGINS.match(pending) and pending.count("\n") < MOST_LINES and _open(pending):
            continue
        if pending.strip():
            yield began, pending.rstrip("\\").strip()
        pending = ""
    if pending.strip():
        yield began, pending.rstrip("\\").strip()


def _open(line: str) -> bool:
    """A quote or an array is still open."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return True
    return bool(re.match(r"^(?:export\s+)?[A-Za-z_]\w*\+?=\(", line)) and not line.rstrip().endswith(")")


def _notebook(text: str) -> str:
    """The code of a Jupyter notebook; any other text as it is."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        cells = json.loads(text)["cells"]
        sources = [cell["source"] for cell in cells if cell.get("cell_type") == "code"]
        return "\n".join(one if isinstance(one, str) else "".join(one) for one in sources)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text


def _value(words: str) -> str | None:
    """What an assignment sets: an array as its words, each quoted; None where a command follows (`A=1 python …`)."""
    if words.startswith("(") and words.rstrip().endswith(")"):
        try:
            return shlex.join(shlex.split(words.strip()[1:-1], comments=True))
        except ValueError:
            return None
    try:
        parts = shlex.split(words, comments=True)
    except ValueError:
        return None
    if words.startswith("`") or words.startswith("$("):
        return words
    return None if len(parts) > 1 else "".join(parts)


def _expand(line: str, variables: dict[str, str]) -> str:
    """Fill in what is known; outside of single quotes."""
    for _ in range(DEEPEST):
        before = line
        line = _ALL.sub(r"\1", line)
        parts = re.split(r"('[^']*')", line)
        line = "".join(part if part.startswith("'") and len(part) > 1 else _fill(part, variables) for part in parts)
        line = _SUM.sub(_sum, line)
        if line == before or len(line) > LONGEST:
            break
    return line[:LONGEST]


def _fill(part: str, variables: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match["name"] or match["bare"]
        if name in variables:
            return variables[name]
        if match["how"]:
            default = match["default"].strip("\"'")
            if match["how"] == "=":
                variables[name] = default
            return default
        return match[0]

    return _VARIABLE.sub(value, part)


def _sum(match: re.Match[str]) -> str:
    """Sums and products of plain numbers: `$((32 * 4))`."""
    terms = re.fullmatch(r"\s*(\d{1,9})\s*([+*/-])\s*(\d{1,9})\s*", match[1])
    if terms is None:
        return match[0]
    left, right = int(terms[1]), int(terms[3])
    if terms[2] == "/" and right == 0:
        return match[0]
    results = {"+": left + right, "-": left - right, "*": left * right, "/": left // max(right, 1)}
    return str(results[terms[2]])


def _split(line: str) -> Iterator[list[str]]:
    """The commands of a line, as words; none where it is no shell."""
    reader = shlex.shlex(_OUTPUT.sub("$COMMAND", line), posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    reader.commenters = "#"
    try:
        tokens = list(reader)
    except ValueError:
        return
    words: list[str] = []
    skip = False
    for token in tokens:
        if token and _OPERATORS.issuperset(token):
            if set(token) & {"<", ">"}:
                skip = True
                if words and words[-1] in {"1", "2"}:
                    words.pop()
                continue
            if words:
                yield words
            words, skip = [], False
        elif skip:
            skip = False
        else:
            words.append(token)
    if words:
        yield words
