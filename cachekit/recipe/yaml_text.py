"""YAML text in, plain values out, with the line of every field; YAML 1.2's core schema, and nothing beyond it.

`5e-5` is a number, `no` and `on` are words, a name that stands twice is an error, and so is a tag that builds objects.
PyYAML parses; what a scalar means is decided here, since its own answer is YAML 1.1's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from cachekit.errors import RecipeError

Path = tuple[str | int, ...]
# libyaml's parser is several times faster; the pure one is always there.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

OPTION = "--set"
DEEPEST = 40  # a recipe has five levels
MOST = 20_000  # values, counting each time that an anchor is used: a page of text can stand for millions
LONGEST_NUMBER = 400  # digits

_TEXT_TAG = "tag:yaml.org,2002:str"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile(
    r"(?P<based>0o[0-7]+|0x[0-9a-fA-F]+)|(?P<integer>[-+]?[0-9]+)"
    r"|(?P<float>[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def parse(text: str, source: str) -> tuple[Any, dict[Path, int]]:
    """Parse one YAML document.

    Returns:
        The plain value, and for the path of each field and item the line (from 1) where it stands.

    Raises:
        RecipeError: The text is not YAML, holds a name twice, has tags, nests names that are no words, is too deep or
            too large to be meant.
    """
    builder = _Builder(source)
    try:
        events = yaml.parse(text, Loader=_LOADER)
        value = builder.document(iter(events))
    except yaml.YAMLError as error:
        raise _explained(error, text, source) from error
    except (UnicodeError, RecursionError) as error:
        raise RecipeError(f"{source}: not valid YAML", cause=str(error)) from error
    return value, builder.lines


def scalar(text: str, source: str = OPTION) -> Any:
    """Read a value on the command line as YAML would: numbers, true/false, lists, else words.

    Raises:
        RecipeError: The text is not a YAML value.
    """
    return parse(text, source)[0]


def _explained(error: yaml.YAMLError, text: str, source: str) -> RecipeError:
    mark = getattr(error, "problem_mark", None)
    where = _at(source, mark)
    problem = getattr(error, "problem", None) or (str(error).splitlines() or ["it ends too early"])[0]
    lines = text.splitlines()
    start = lines[mark.line] if mark and mark.line < len(lines) else ""
    tabbed = "\t" in start[: len(start) - len(start.lstrip())]
    hint = "tabs cannot indent YAML: use spaces" if tabbed else "compare with a recipe of `cachekit zoo`"
    if source.startswith(OPTION):
        hint = f"write a text with such characters in double quotes inside single ones: {source}='\"...\"'"
    return RecipeError(f"{where}: not valid YAML", cause=problem, hint=hint)


def _at(source: str, mark: Any) -> str:
    """Where something stands; what was typed has no lines."""
    return source if mark is None or source.startswith(OPTION) else f"{source}, line {mark.line + 1}"


class _Builder:
    """Makes plain values of a parser's events."""

    def __init__(self, source: str) -> None:
        self.lines: dict[Path, int] = {}
        self._source = source
        self._anchors: dict[str, Any] = {}
        self._count = 0

    def document(self, events: Iterator[Any]) -> Any:
        """The value of the one document of a stream; None for an empty one."""
        value = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event, "not valid YAML", "a second document begins")
            elif isinstance(event, yaml.NodeEvent):
                value = self._value(event, events, ())
        return value

    def _fail(self, event: Any, what: str, cause: str = "", hint: str = "") -> None:
        hint = hint or ("correct the value" if self._source.startswith(OPTION) else "correct that line")
        raise RecipeError(f"{_at(self._source, event.start_mark)}: {what}", cause=cause, hint=hint)

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> Any:
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            name = str(event.anchor)
            if name not in self._anchors:
                self._fail(event, f"no anchor &{name} before this")
            value = self._anchors[name]
            self._weigh(event, _weight(value))
            return value
        self._weigh(event, 1)
        if len(path) > DEEPEST:
            self._fail(event, "nested too deeply to be a recipe")
        if event.tag is not None and event.tag not in {"!", _TEXT_TAG}:
            self._fail(event, f"{event.tag} is not a plain value", hint="write the value without a tag")
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(events, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                value.append(self._value(item, events, (*path, len(value))))
        else:
            value = self._scalar(event, path)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _mapping(self, events: Iterator[Any], path: Path) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            if (
                not isinstance(key, yaml.ScalarEvent)
                or key.tag is not None
                or (key.value == "<<" and key.style is None)
            ):
                self._fail(key, "a field's name must be a plain word")
            name = str(key.value)
            here = (*path, name)
            if name in value:
                self._fail(
                    key, f"{dotted(here)} appears twice", f"first on line {self.lines[here]}", "remove one of them"
                )
            self.lines[here] = key.start_mark.line + 1
            value[name] = self._value(next(events), events, here)
        return value

    def _scalar(self, event: Any, path: Path) -> Any:
        text = str(event.value)
        text.encode("utf-8")
        if event.tag is not None or not event.implicit[0]:
            return text  # quoted, or tagged as text
        if text in _WORDS:
            return _WORDS[text]
        name = dotted(path) or "the value"
        if text in {"<<", "="}:
            self._fail(event, f"{name}: {text!r} must be quoted")
        match = _NUMBER.fullmatch(text)
        if match is None:
            return text
        if match["integer"] or match["based"]:
            if len(text) > LONGEST_NUMBER:
                self._fail(event, f"{name} is a number of {len(text)} digits")
            return int(text, 0) if match["based"] else int(text)
        number = float(text) if match["float"] else math.inf
        if not math.isfinite(number):
            self._fail(event, f"{name} is not a finite number")
        return number

    def _weigh(self, event: Any, weight: int) -> None:
        self._count += weight
        if self._count > MOST:
            self._fail(event, f"a recipe has at most {MOST:,} values")


def _weight(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_weight, inner))


def dotted(path: Path) -> str:
    """A path as people write it: `training.max_steps`."""
    return ".".join(str(part) for part in path)
