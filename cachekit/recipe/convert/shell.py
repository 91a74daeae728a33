"""Commands out of the text of a shell script, a README or a notebook: what their words would be, variables filled in.

Nothing is run. What only a shell could tell (another program's output, an argument of the script) stays as it stands,
with its `$`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_EXPORT = frozenset({"export", "declare", "local", "readonly", "typeset"})
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_BRACES = re.compile(r"\{([A-Za-z_]\w*|[1-9]\d*)(\[[@*]\])?(?:(:?[-=])([^{}]*))?\}")
_SUM = re.compile(r"\(\(\s*(\w+)\s*([+*/-])\s*(\w+)\s*\)\)")
_PROMPT = re.compile(r"^(?:\$|>>>|!|%)\s*(?=\S)")
_BEGINS = re.compile(r"^(?:export\s+)?[A-Za-z_]\w*\+?=")
_CONDITION = re.compile(r"^(if|elif|else|fi)\b")
_LOOP = re.compile(r"^for\s+([A-Za-z_]\w*)\s+in\s+((?:\"?[^\s;$\"`]+\"?\s*)+)")
_ROUND = re.compile(r"[^\s;$\"`]+")
_DONE = re.compile(r"(^|[;\s])done\b")
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)")
_OPERATORS = ";<>|&()"
MOST_LINES = 200  # of one value
LONGEST = 1 << 16  # characters that a variable may come to
COMPILERS = ("NEURON_", "XLA_")  # they read these whatever else does: NEURON_CC_FLAGS="$NEURON_CC_FLAGS --x"

Variables = dict[str, "str | list[str]"]


class OpenError(ValueError):
    """A quote or an array is not closed: the line goes on, or is no shell."""


@dataclass(slots=True)
class ShellCommand:
    """One command of a text.

    Attributes:
        words: Program and arguments; redirections are left out.
        variables: What is set for it: before its first word, and exported before, but for what the text itself uses.
        line: Where it begins, from 1.
        rounds: Of the loops around it that have more than one, the variable and what it is in each.
    """

    words: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    line: int = 0
    rounds: dict[str, tuple[str, ...]] = field(default_factory=dict)


def commands(text: str) -> Iterator[ShellCommand]:
    """Every command of a text, in its order; what is no command (prose, keywords) comes as words all the same."""
    text = _notebook(text)
    variables: Variables = {}
    exported: set[str] = set()
    branches: list[str] = []  # of the conditions around a line
    loops: list[tuple[str, tuple[str, ...]]] = []
    used = set(_USED.findall(text))
    for number, line in _lines(text):
        if keyword := _CONDITION.match(line):
            _branch(branches, keyword[1], whole=line.endswith("fi") and keyword[1] == "if")
        if loop := _LOOP.match(line):
            each = tuple(_ROUND.findall(loop[2]))
            variables.setdefault(loop[1], each[0])  # its first round
            loops.append((loop[1], each))
        # Nobody knows which branch is taken: the first is read, and what was set before stays.
        scratch = dict(variables)
        try:
            found = list(_Line(line, scratch).commands())
        except OpenError:
            continue
        if "other" in branches:
            continue
        variables = {**scratch, **variables} if branches else scratch
        for words, own in found:
            if words and words[0] in _EXPORT:
                exported.update(word.partition("=")[0] for word in words[1:] if not word.startswith("-"))
            elif words:
                kept = {name for name in exported if name not in used or name.startswith(COMPILERS)}
                known = {name: _text(variables[name]) for name in sorted(kept) if name in variables}
                rounds = {name: every for name, every in loops if len(every) > 1}
                yield ShellCommand(words, {**known, **own}, number, rounds)
        if _DONE.search(line) and loops:
            loops.pop()


def _branch(branches: list[str], keyword: str, *, whole: bool) -> None:
    if keyword == "if" and not whole:
        branches.append("first")
    elif keyword in {"elif", "else"} and branches:
        branches[-1] = "other"
    elif keyword == "fi" and branches:
        branches.pop()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines: continuations joined, quotes and arrays of variables closed, comments and prompts left out."""
    pending, began = "", 0
    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip()
        if not pending:
            began = number
            line = line.strip()
            if line.startswith(("#", "```")):
                continue
            line = _PROMPT.sub("", line)
        elif line.lstrip().startswith("#") and pending.endswith("\\"):
            continue  # between arguments, one that somebody switched off
        if pending.endswith("\\"):
            pending = f"{pending[:-1].rstrip()} {line.strip()}"
        else:
            pending = f"{pending}\n{line}" if pending else line
        if pending.endswith("\\") and number < len(lines):
            continue
        # Prose has lone apostrophes: only what sets a variable goes on over lines.
        if _BEGINS.match(pending) and pending.count("\n") < MOST_LINES and _is_open(pending):
            continue
        if pending.strip():
            yield began, pending.rstrip("\\").strip()
        pending = ""
    if pending.strip():
        yield began, pending.rstrip("\\").strip()


def _is_open(line: str) -> bool:
    try:
        list(_Line(line, {}).commands())
    except OpenError:
        return True
    return False


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


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)


class _Line:
    """One logical line, read from left to right as a shell does.

    Args:
        line: The line.
        variables: What is set so far; what the line sets is added.
    """

    def __init__(self, line: str, variables: Variables) -> None:
        self._line, self._variables, self._at = line, variables, 0

    def commands(self) -> Iterator[tuple[list[str], dict[str, str]]]:
        """The line's commands: words, and what is set for each alone."""
        words: list[str] = []
        own: dict[str, str] = {}
        skip = False
        while (piece := self._token()) is not None:
            if isinstance(piece, str):  # an operator
                if piece in {"<", ">"}:
                    skip = True
                    if words and words[-1] in {"1", "2"}:
                        words.pop()
                elif not skip or piece != "&":  # `2>&1`
                    yield from self._done(words, own)
                    words, own, skip = [], {}, False
                continue
            if skip:
                skip = False
                continue
            found, bare = piece
            assigned = _ASSIGN.match(found[0]) if bare and found else None
            if assigned and (not words or words[0] in _EXPORT):
                value = self._assign(assigned, found[0][assigned.end() :])
                if words:
                    words.append(assigned[1])
                else:
                    own[assigned[1]] = value
            else:
                words += found
        yield from self._done(words, own)

    def _done(self, words: list[str], own: dict[str, str]) -> Iterator[tuple[list[str], dict[str, str]]]:
        if words:
            yield words, own

    def _assign(self, match: re.Match[str], value: str) -> str:
        name, more = match[1], bool(match[2])
        old = self._variables.get(name, "")
        if self._line[self._at : self._at + 1] == "(" and not value:
            items = self._array()
            self._variables[name] = (
                [*(old if isinstance(old, list) else [old] if old else []), *items] if more else items
            )
        else:
            self._variables[name] = (_text(old) + value if more else value)[:LONGEST]
        return _text(self._variables[name])

    def _array(self) -> list[str]:
        self._at += 1
        items: list[str] = []
        while True:
            piece = self._token()
            if piece is None:
                raise OpenError
            if piece == ")":
                return items
            if not isinstance(piece, str):
                items += piece[0]

    def _token(self) -> str | tuple[list[str], bool] | None:
        """An operator; or words, several where a variable stood for them, and whether they begin as an assignment."""
        line = self._line
        while self._at < len(line) and line[self._at].isspace():
            self._at += 1
        if self._at >= len(line) or line[self._at] == "#":
            end = line.find("\n", self._at)
            if self._at >= len(line) or end < 0:
                return None
            self._at = end
            return self._token()
        if line[self._at] in _OPERATORS:
            self._at += 1
            return line[self._at - 1]
        bare = bool(_ASSIGN.match(line, self._at))
        words: list[str] = []
        word: str | None = None
        while self._at < len(line) and not line[self._at].isspace() and line[self._at] not in _OPERATORS:
            char = line[self._at]
            if bare and word is None and (match := _ASSIGN.match(line, self._at)):
                word = match[0]
                self._at = match.end()
            elif char == "'":
                end = line.find("'", self._at + 1)
                if end < 0:
                    raise OpenError
                word = (word or "") + line[self._at + 1 : end]
                self._at = end + 1
            elif char == '"':
                parts = self._quoted()
                word = (word or "") + parts[0] if parts else word
                for part in parts[1:]:
                    words.append(word or "")
                    word = part
            elif char == "\\":
                word = (word or "") + line[self._at + 1 : self._at + 2]
                self._at += 2
            elif char in "$`":
                parts = self._split(self._value(), whole=bare)
                if parts:
                    word = (word or "") + parts[0]
                    for part in parts[1:]:
                        words.append(word)
                        word = part
            else:
                word = (word or "") + char
                self._at += 1
        return [*words, *([word] if word is not None else [])], bare

    def _split(self, value: str | list[str], *, whole: bool) -> list[str]:
        """A variable outside of quotes is several words; not where another is set."""
        return [_text(value)] if whole else _text(value).split() if isinstance(value, str) else value

    def _quoted(self) -> list[str]:
        """What stands in double quotes: one word, or as many as `"${ARRAY[@]}"` has."""
        line, words = self._line, [""]
        self._at += 1
        while self._at < len(line):
            char = line[self._at]
            if char == '"':
                self._at += 1
                return words
            if char == "\\" and line[self._at + 1 : self._at + 2] in {"$", "`", '"', "\\", "\n"}:
                words[-1] += line[self._at + 1]
                self._at += 2
            elif char in "$`":
                value = self._value()
                if isinstance(value, list) and not value and words == [""] and line[self._at : self._at + 1] == '"':
                    self._at += 1
                    return []
                parts = value if isinstance(value, list) else [value]
                words[-1] += parts[0] if parts else ""
                words += parts[1:]
            else:
                words[-1] += char
                self._at += 1
        raise OpenError

    def _value(self) -> str | list[str]:
        """What `$…` stands for; as it is written where that is not known."""
        line, start = self._line, self._at
        if line[start] == "`" or line.startswith("$(", start):
            return self._output()
        if match := _BRACES.match(line, start + 1):
            self._at = match.end()
            name, every, how, default = match.groups()
            found = self._variables.get(name)
            if found is None and how:
                found = default.strip("\"'")
                if how.endswith("="):
                    self._variables[name] = found
            if found is None:
                return match.string[start : match.end()]
            return found if every or isinstance(found, str) else (found[0] if found else "")
        if match := _NAME.match(line, start + 1):
            self._at = match.end()
            found = self._variables.get(match[0], f"${match[0]}")
            return found if isinstance(found, str) else (found[0] if found else "")
        self._at += 1
        return "$"

    def _output(self) -> str:
        """Another program's output, which nobody knows; a sum of plain numbers is known."""
        line, start = self._line, self._at
        if match := _SUM.match(line, start + 1):
            self._at = match.end()
            left, right = (self._number(match[side]) for side in (1, 3))
            if left is not None and right is not None and not (match[2] == "/" and right == 0):
                results = {"+": left + right, "-": left - right, "*": left * right, "/": left // (right or 1)}
                return str(results[match[2]])
            return f"${match[0]}"
        if line[start] == "`":
            end = line.find("`", start + 1)
            if end < 0:
                raise OpenError
            self._at = end + 1
            return "$" + line[start : self._at]
        depth = 0
        for position in range(start + 1, len(line)):
            depth += {"(": 1, ")": -1}.get(line[position], 0)
            if depth == 0:
                self._at = position + 1
                return line[start : self._at].replace(" ", "_")
        raise OpenError

    def _number(self, word: str) -> int | None:
        text = _text(self._variables.get(word, word))
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
