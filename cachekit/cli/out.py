"""The only module that prints. stdout carries data; progress, notes and errors go to stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import UNSET, Struct, field, structs

from cachekit import files, redact
from cachekit.errors import CachekitError, UsageError
from cachekit.text import (
    CONTROL,
    about,
    cause_of,
    count,
    cut_inside,
    duration,
    each_one_line,
    moment,
    one_line,
    plain,
    rate,
    size,
)
from cachekit.values import Answer, Failed, builtins

if TYPE_CHECKING:
    from pathlib import Path

    from cachekit.cli.progress import Progress
    from cachekit.cli.verb import Shown

__all__ = ["about", "count", "duration", "moment", "plain", "rate", "size"]  # beside what is made here

FORMATS = ("human", "json", "quiet")
SHORTEST = 10  # characters that a column keeps on a narrow terminal
NARROWEST = 60  # columns; what is folded is no narrower
# Terminals that cannot change a line; the second is what ipykernel sets for `!cachekit warm` in a notebook
# (ipykernel/zmqshell.py), which gives the command a terminal and keeps each state of a line in the notebook's file.
_KEEPS_LINES = frozenset({"dumb", "xterm-color"})
_INDENT = "  "  # of JSON
_PART = 100  # things of a list that are made JSON at once


class _Style(Struct):
    format: str = "human"
    quiet: bool = False
    verbose: int = 0
    answer: dict[str, Any] | None = field(default_factory=dict)  # printed with the error that follows; None: it was
    aside: bool = False
    told: str = ""  # the answer, as people have read it
    progress: Progress | None = None  # of the run that goes on


_style = _Style()


def setup(
    format: str = "human",  # noqa: A002 - the option's name
    *,
    quiet: bool = False,
    verbose: int = 0,
    aside: bool = False,
) -> None:
    """Choose what is printed; called first by every verb.

    Args:
        format: Of the answer.
        quiet: No progress, no notes.
        verbose: How often `-v` was given.
        aside: The answer goes to stderr: stdout is another program's.

    Raises:
        UsageError: There is no such format.
    """
    if format not in FORMATS:
        raise UsageError(f"--format {format}: no such format", hint=f"one of {', '.join(FORMATS)}")
    _style.format, _style.quiet, _style.verbose = format, quiet or format == "quiet", verbose
    _style.answer, _style.aside, _style.told, _style.progress = {}, aside, "", None


def setup_early(arguments: Sequence[str]) -> None:
    """Answer as a command line asks for, although its verb never came to read it."""
    words = " ".join(arguments)
    if any(f"{option}{joint}json" in words for option in ("--format", "-f") for joint in ("=", " ")):
        setup("json")


def wants_more() -> bool:
    """Whether `-v` was given."""
    return _style.verbose > 0


def wants_little() -> bool:
    """Whether people want no more than what they asked for."""
    return _style.format == "human" and _style.quiet


def text(line: str) -> None:
    """Print text, of one line or several."""
    _print(plain(line))


def _print(words: str) -> None:
    _write([redact.printed(words)])


def _write(pieces: Iterable[str]) -> None:
    """Print what has been redacted: a text, in pieces."""
    if _style.aside:
        _write_aside("".join(pieces))
        return
    try:
        for piece in pieces:
            print(piece, end="", file=sys.stdout)
        print(file=sys.stdout, flush=True)
    except BrokenPipeError:
        # `cachekit store ls | head`: nobody reads on. Python would complain once more while it exits.
        _to_nowhere(sys.stdout)
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> UsageError:
    """What is told of a stdout that takes nothing more; from now on it leads nowhere."""
    _to_nowhere(sys.stdout)
    return UsageError("cannot write to standard output", cause=cause_of(error), hint="check where standard output goes")


def _tell(line: str) -> None:
    """Print to stderr, without secrets."""
    _write_aside(redact.printed(line))


def _write_aside(words: str) -> None:
    """Print to stderr what has been redacted. Where that is full, or nobody reads it, no run is the worse for it."""
    try:
        print(words, file=sys.stderr, flush=True)
    except OSError:
        _to_nowhere(sys.stderr)


def _to_nowhere(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _json(answer: Any) -> Iterator[str]:
    """An answer's JSON, in pieces: of a list of 100,000 records a hundred at a time are held as text."""
    if _style.aside:  # beside what others say, a line can be told apart: the last one
        yield _encoded(answer)
    elif isinstance(answer, list):
        yield from _items(answer, "")
    elif isinstance(answer, Answer):
        yield from _members(answer)
    else:
        yield _encoded(answer, "")


def _members(answer: Answer) -> Iterator[str]:
    """An answer whose lists may be long."""
    before, own = "{", answer.__struct_config__
    fields: dict[str, Any] = {str(own.tag_field): own.tag, **structs.asdict(answer)}
    for name, value in fields.items():
        if value is UNSET:
            continue
        yield f"{before}\n{_INDENT}{_encoded(name)}: "
        if isinstance(value, list | tuple):
            yield from _items(value, _INDENT)
        else:
            yield _encoded(value, _INDENT)
        before = ","
    yield "\n}" if before == "," else "{}"


def _items(values: Sequence[Any], indent: str) -> Iterator[str]:
    before, inner = "[", indent + _INDENT
    for start in range(0, len(values), _PART):
        shown = redact.document(builtins(values[start : start + _PART]))
        yield f"{before}\n{inner}{_rows(shown, inner) if all(map(_is_flat, shown)) else _listed(shown, inner)}"
        before = ","
    yield f"\n{indent}]" if before == "," else "[]"


def _listed(shown: list[Any], indent: str) -> str:
    return f",\n{indent}".join(_dumped(one, indent) for one in shown)


def _rows(shown: list[dict[str, Any]], indent: str) -> str:
    """Mappings of texts and numbers, as `_listed` has them. `json` is three times as fast where it does not indent."""
    inner = indent + _INDENT
    members = _safe(json.dumps(shown, ensure_ascii=_ascii_only(), separators=(f",\n{inner}", ": ")))
    rows = members[2:-2].replace(f"}},\n{inner}{{", f"\n{indent}}},\n{indent}{{\n{inner}")  # no text has a line end
    return f"{{\n{inner}{rows}\n{indent}}}"


def _is_flat(shown: Any) -> bool:
    return isinstance(shown, dict) and bool(shown) and {dict, list}.isdisjoint(map(type, shown.values()))


def _encoded(value: Any, indent: str | None = None) -> str:
    """A value's JSON, redacted value by value: JSON stays JSON.

    Args:
        value: What is told.
        indent: What its lines but the first begin with; without, it is one line.
    """
    return _dumped(redact.document(builtins(value)), indent)


def _dumped(shown: Any, indent: str | None) -> str:
    encoded = _safe(json.dumps(shown, indent=None if indent is None else _INDENT, ensure_ascii=_ascii_only()))
    return encoded.replace("\n", f"\n{indent}") if indent else encoded


def _safe(encoded: str) -> str:
    """JSON without what controls a terminal, or GitHub's runner: only strings can hold it.

    Of ASCII, `json` leaves no more than DEL.
    """
    encoded = encoded.replace("##[", r"#\u0023[")
    if encoded.isascii() and "\x7f" not in encoded:
        return encoded
    return re.sub(CONTROL, lambda found: f"\\u{ord(found[0]):04x}", encoded)


def _ascii_only() -> bool:
    return not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def answer(shown: Shown) -> int:
    """Print a verb's answer in the format that was asked for; returns the exit code.

    Raises:
        CachekitError: The answer's own, after it was printed: for programs both are one document.
    """
    if _style.progress:
        _style.progress.end_line()
    for line in shown.warnings:
        warning(line)
    for line in shown.notes:
        note(line)
    own = getattr(shown.answer, "error", None)
    problem = shown.error or (own() if callable(own) else None)
    found = shown.answer
    if _style.format == "json":
        if problem is not None and not isinstance(found, list):
            _style.answer = builtins(found)
        else:  # a list stays one, as its schema says: its error is on stderr alone
            _write(_json(found))
            _style.answer = None
    elif _style.format == "quiet":
        if shown.quiet is not None and (line := shown.quiet(found)):
            _print(plain(line))
    elif lines := shown.human(found):
        _style.told = each_one_line(lines)
        _print(_style.told)
    if problem is not None:
        raise problem
    return shown.code


def write_result(path: Path, found: Answer) -> tuple[str, ...]:
    """Write an answer to a file as well, as JSON.

    Returns:
        Why it could not be written: a warning, since what the answer tells of has been done.
    """
    try:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(redact.document(found.as_dict()), indent=2) + "\n")
    except UsageError as error:
        return (f"{path} could not be written: {error.cause}",)
    return ()


def write_file(path: Path, text: str, beginning: str = "") -> None:
    """Write a file that somebody named; see `files.write`.

    Raises:
        UsageError: It cannot be written.
    """
    with _named(path):
        files.write(path, text.encode("utf-8"), beginning.encode("utf-8"))


def writable(path: Path) -> Path:
    """The path of a file that is to be written.

    Raises:
        UsageError: It cannot; see `files.check_writable`.
    """
    with _named(path):
        files.check_writable(path)
    return path


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Make a UsageError of what the system says of a file that somebody named."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=cause_of(error), hint="name another file") from error


def note(line: str) -> None:
    """Tell something on stderr, unless quiet."""
    if not _style.quiet:
        _tell("\n".join(each for part in plain(line).split("\n") for each in _folded(part)))


def warning(line: str, *, minor: bool = False) -> None:
    """Tell something on stderr that must not be missed; quiet does not silence it, unless it is minor."""
    if minor and _style.quiet:
        return
    told = "\n".join(_folded(f"warning: {one_line(line)}"))
    _tell(told.replace("warning:", _colour("warning:", 33), 1))


def error(problem: CachekitError) -> int:
    """Print an error; returns the exit code."""
    if _style.format == "json" and _style.answer is not None:
        _write(_json({**(_style.answer or builtins(Failed(problem))), "error": builtins(problem)}))
    told = "\n".join(each for line in problem.lines() for each in _folded(line))
    label = f"error[{problem.code}]:"
    _tell(told.replace(label, _colour(label, 31), 1))
    if _style.verbose > 1:
        _tell("".join(traceback.format_exception(problem)).rstrip("\n"))
    return problem.exit_code


def _folded(line: str) -> list[str]:
    """A line of an error as a terminal shows it; a log keeps three lines."""
    if not sys.stderr.isatty():
        return [line]
    from cachekit.cli.folding import folded

    return folded(line)


def unexpected(problem: Exception) -> int:
    """Print an error that nobody foresaw."""
    told = CachekitError(
        f"unexpected {type(problem).__name__}",
        cause=(str(problem).splitlines() or [""])[0],
        hint="this is a bug in cachekit; run again with -vv and report the traceback",
    )
    told.__cause__ = problem
    return error(told)


def _colour(words: str, code: int) -> str:
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return words
    return f"\x1b[{code}m{words}\x1b[0m"


@contextmanager
def following(answered: Collection[str] = ()) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show a run's events while it goes on: one live line on a terminal, plain lines otherwise.

    Args:
        answered: Events that the answer tells of, unless it is asked for in one word.

    Yields:
        What is called with each event.
    """
    live = sys.stderr.isatty() and os.environ.get("TERM") not in _KEEPS_LINES and not _style.quiet

    def show(event: dict[str, Any]) -> None:
        if event["event"] in answered and _style.format != "quiet":
            return
        if _style.progress is None:  # many a verb tells nothing
            from cachekit.cli.progress import Progress

            _style.progress = Progress(write=lambda line: _tell(one_line(line)), live=live, quiet=_style.quiet)
        _style.progress.event(event)

    try:
        yield show
    except CachekitError as error:
        if _style.progress:
            _style.progress.answered(error.said)
        raise
    finally:
        if _style.progress:
            _style.progress.answered(_style.told)
            _style.progress.close()


FIGURES = {"f1": "F1", "exact_match": "exact match", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
FIGURES |= {"bleu": "BLEU", "f1_micro": "micro F1", "f1_macro": "macro F1", "mse": "MSE"}
COUNTS = frozenset({"rows", "features", "tokens", "words", "words_cut"})  # numbers of things, no figures


def figures(found: Mapping[str, Any]) -> str:
    """What an evaluation measured, the loss last: `accuracy 0.9250, F1 0.9140, loss 0.1761`."""
    shown = {name: value for name, value in found.items() if isinstance(value, float) and name not in COUNTS}
    if "loss" in shown:
        shown["loss"] = shown.pop("loss")
    return ", ".join(f"{FIGURES.get(name, name.replace('_', ' '))} {value:.4f}" for name, value in shown.items())


def columns() -> int | None:
    """The width of the terminal that stdout is; None where stdout is a file, whose lines stay as long as they are."""
    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None


def width() -> int:
    """The columns that folded lines take."""
    return max(shutil.get_terminal_size().columns, NARROWEST)


def value(found: Any) -> str:
    """An ingredient's value, as a recipe would say it."""
    if found is UNSET:
        return "(absent)"
    if isinstance(found, list | tuple):
        return " ".join(map(str, found)) or "(none)"
    if isinstance(found, str):
        return found or '""'
    return json.dumps(builtins(found), ensure_ascii=False)


def labelled(label: str, words: str, indent: int = 0) -> list[str]:
    """A label and its words, folded to the terminal's width; what goes on is indented, under the words.

    Args:
        label: Padded by the caller.
        words: Separated by spaces; one that is longer than a line is kept whole.
        indent: Spaces before the label.
    """
    start = " " * indent + label
    folded = textwrap.wrap(
        words, max(width() - len(start), 20), break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    first, *rest = folded or [""]
    return [(start + first).rstrip(), *(" " * len(start) + line for line in rest)]


def some(lines: Sequence[str], most: int, indent: int = 2) -> list[str]:
    """The first lines of a list, and how many more there are."""
    return [*lines[:most], *more(len(lines) - most, indent)]


def more(left: int, indent: int = 2) -> list[str]:
    """The line below the first of a list, which says how many more there are; none where there are none."""
    return [f"{' ' * indent}... and {left:,} more (--format json)"] if left > 0 else []


def table(
    rows: Iterable[Sequence[str]], header: Sequence[str], right: Collection[int] = (), shrink: Collection[int] = ()
) -> list[str]:
    """Columns as wide as their contents; the last one is not padded.

    Args:
        rows: Cells.
        header: Above them.
        right: Columns of numbers, which end at one edge.
        shrink: Columns whose cells may lose their middle where a terminal is narrower than the table; the widest first.
    """
    return table_of([*zip(*rows, strict=True)] or [()] * len(header), header, right, shrink)


def table_of(
    contents: Sequence[Sequence[str]],
    header: Sequence[str],
    right: Collection[int] = (),
    shrink: Collection[int] = (),
) -> list[str]:
    """As `table`, of columns: of 100,000 rows these are made in less time."""
    # They are as wide as they are shown: a stranger's name may hold what is shown escaped. A loop over the cells of
    # 100,000 records takes longer than all else, so each different one is looked at once, and only where that must be.
    whole = [[name, *column] for name, column in zip(header, contents, strict=True)]
    whole = [column if "".join(column).isprintable() else _escaped(column) for column in whole]
    widths = [max(map(len, column)) for column in whole]
    room = (columns() or sys.maxsize) - 2 * (len(widths) - 1)
    while shrink and sum(widths) > room and widths[widest := max(shrink, key=widths.__getitem__)] > SHORTEST:
        widths[widest] -= 1
    padded = [
        _padded(column, width, str.rjust if place in right else str.ljust)
        for place, (column, width) in enumerate(zip(whole, widths, strict=True))
    ]
    return [*map(str.rstrip, map("  ".join, zip(*padded, strict=True)))]


def _escaped(column: Iterable[str]) -> list[str]:
    cells = {cell: one_line(cell) for cell in set(column)}
    return [cells[cell] for cell in column]


def _padded(column: list[str], width: int, pad: Callable[[str, int], str]) -> Iterable[str]:
    if {*map(len, column[1:])} == {width}:
        return [pad(cut_inside(column[0], width), width), *column[1:]]
    cells = {cell: pad(cut_inside(cell, width), width) for cell in set(column)}
    return map(cells.__getitem__, column)
