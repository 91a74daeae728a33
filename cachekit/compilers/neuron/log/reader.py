"""Read what a Neuron run prints, while it prints: hits, compiles with seconds, waits, failures, summaries.

The stream comes from several processes at once, cut anywhere, with progress bars and dots, colours, launchers' prefixes
and lines of other programs between and inside the lines that matter. The events do not depend on where it was cut. The
words of the lines stand in `facts.LOG_WORDS`: what a pattern calls `path` and `text` are the event's, and everything
else that it names is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.log.errors import Errors
from cachekit.compilers.neuron.log.event import Event, Timing, codes_in, has_failure_words, module_in, same_process

LONGEST = 1 << 17  # bytes of one line that are kept: its first and its last half
_HALF = LONGEST // 2
_SHORT = 1000  # characters of a text that is kept with what it says, so that the next one like it is not read again
_TEXT = 4000  # characters of a quoted message that an event carries
_MOST = 1e12  # of any figure: a line that says more is torn, or lies
Said = Mapping[str, "str | None"]  # what a pattern has found, by the names of its groups
_WORDS = frozenset({"path", "text", "command"})  # what a pattern names that is no number
_LEVEL_END = re.compile(rb"[A-Z]\]:")
# What lines have that are read at all; the last begins a colour, which may stand inside of a word.
_MARKS = (*(mark.encode() for mark in facts.LOG_MARKS + facts.FAILURE_MARKS), b"||:", b"\x1b")


class LogReader:
    """A parser that is fed with pieces of the stream and gives events.

    Lines longer than `LONGEST` bytes lose their middle; memory is bounded whatever is fed.
    """

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = False
        self._timing = Timing()
        self._listing = False  # inside the list of graphs that npc prints over several lines
        self._failing = ""  # the module whose failure the lines without header are about
        self._quoted = ""  # the same, where the failure is an old one
        self._teller = Event(kind="")  # whose line had the last header
        self._errors = Errors()  # of failures whose lines are yet to come
        self._exporting = ""  # the part of a model that optimum-neuron compiles
        self._report: dict[str, str] = {}  # an entry of npc's JSON report, as far as it was read
        self._child: int | None = None  # the rank that torchrun's report is about

    def feed(self, chunk: bytes | str) -> list[Event]:
        """Take the next piece of the stream; gives the events of the lines that it completes."""
        data = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else chunk
        events: list[Event] = []
        # A carriage return ends a line as well: a progress bar that is drawn over, with the next line glued to it.
        *ended, rest = data.replace(b"\r", b"\n").split(b"\n")
        marks = [mark for mark in _MARKS if mark in data]
        for piece in ended:
            if self._head or self._listing or self._report or _may_tell(piece, marks):
                self._keep(piece)
                events += self._line()
        self._keep(rest)
        return events

    def close(self) -> list[Event]:
        """The stream has ended: the events of an unfinished line, and what can only be told now."""
        events = self._line() + self._seen(self._timing.close())
        # Mostly the framework tells the failure, with the module's name; else nobody does.
        left = list(self._errors.left(self._timing.busy()))
        return events + [self._timing.failed(event) if event.kind == "failed" else event for event in left]

    def groups(self) -> int:
        """How many groups of processes have written, each after all of those before it had ended."""
        return self._timing.groups()

    def _keep(self, piece: bytes) -> None:
        room = _HALF - len(self._head)
        self._head += piece[:room]
        if len(piece) > room:
            self._tail += piece[room:]
            if len(self._tail) > 2 * _HALF:
                del self._tail[:-_HALF]
                self._cut = True

    def _line(self) -> list[Event]:
        if len(self._tail) > _HALF:
            del self._tail[:-_HALF]
            self._cut = True
        raw = self._head + (b"\x00" if self._cut else b"") + self._tail if self._tail else self._head
        self._head, self._tail, self._cut = bytearray(), bytearray(), False
        text = raw.decode("utf-8", "replace")
        text = facts.TERMINAL_CODE.sub("", text) if "\x1b" in text else text
        return [] if not text or text.isspace() else self._seen(self._events(text))

    def _seen(self, events: Iterable[Event]) -> list[Event]:
        """Events as they are, after what they say of earlier errors."""
        told = []
        for event in events:
            if event.kind == "compiled":
                self._errors.ended_well(event)
            told.append(event)
        return told

    def _events(self, line: str) -> Iterator[Event]:
        source, start = _prefix(line)
        headers = list(_headers(line, start))
        first = headers[0].start() if headers else len(line)
        if start < first:
            yield from self._loose(line[start:first], source)
        for index, header in enumerate(headers):
            end = headers[index + 1].start() if index + 1 < len(headers) else len(line)
            said = replace(source, at=_time(header), pid=int(header["pid"]) if header["pid"] else source.pid)
            self._listing, self._failing, self._quoted, self._report, self._teller = False, "", "", {}, said
            found = list(self._words(line[header.end() : end], said))
            yield from self._timing.before(said, found)
            yield from found
            self._timing.after(said)

    def _loose(self, text: str, source: Event) -> Iterator[Event]:
        """A line, or what stands before its first header: it belongs to what came before it."""
        if self._listing and (module := module_in(text)) and len(text.split()) == 1:
            yield replace(source, kind="listed", module=module, path=text.strip())
            return
        self._listing = self._listing and not text.strip(" .\t")
        yield from self._words(text, source)

    def _words(self, text: str, source: Event) -> Iterator[Event]:
        """The events in a text of one source, in their order."""
        for entry in self._report_entries(text, source):
            if not entry.numbers["success"]:
                self._errors.failed(entry.module)
            yield entry
        # The same few graphs are found again and again, in logs of any length.
        found = _found(text) if len(text) > _SHORT else _found_before(text)
        for name, said, event in found:
            if told := self._event(name, said, event, source):
                yield told
        for error in _errors(text, alone=not found):
            module = "" if same_process(source, self._teller) is False else self._failing
            event = replace(source, kind="error", module=module, text=error)
            if self._errors.add(event, self._timing.busy()):
                yield event

    def _event(self, name: str, said: Said, event: Event, source: Event) -> Event | None:
        event = replace(event, at=source.at, pid=source.pid, rank=source.rank, worker=source.worker)
        path = event.path
        # What follows from it for the lines after it, or from earlier lines for the event.
        match name:
            case "graph-list":
                self._listing = True
                return event if event.path else None
            case "cached-failure":
                self._failing = self._quoted = event.module
                return replace(event, kind="retrying") if facts.RETRYING.match(event.text) else event
            case "failed" | "gave-up":
                self._failing = module_in(said.get("command") or path)
                event = replace(event, module=self._failing)
                if event.module and event.module == self._quoted:
                    return replace(event, kind="quoted")
                again = self._errors.failed(event.module) and name == "gave-up"
                if before := self._errors.of(event, repeated=again):
                    event = replace(event, text=f"{before}\n{event.text}".strip()[:_TEXT])
                return self._timing.failed(event, again=again)
            case "command":
                event = replace(event, module=module_in(said["text"] or ""))
                self._timing.started(event)
            case "completed":
                return self._timing.completed(event)
            case "status" if event.text == "PASS":
                self._timing.passed(event)
            case "exporting":
                self._exporting = event.text
                return None
            case "exported":
                return replace(event, text=self._exporting)
            case "worker-started":
                self._timing.worker(event)
            case "child-rank":
                self._child = int(said["rank"] or 0)
                return None
            case "child-exit":
                return replace(event, pid=int(said["pid"] or 0), rank=self._child)
            case _:
                pass
        return event

    def _report_entries(self, text: str, source: Event) -> Iterator[Event]:
        """The JSON report of npc, token by token, because lines of other processes may stand between its lines."""
        if not self._report and ('"' not in text or facts.MODULE_PREFIX not in text):
            return
        for token in facts.NPC_REPORT_TOKEN.finditer(text):
            if token["path"]:
                self._report = {"path": token["path"]}
            elif token["field"] and self._report:
                self._report[token["field"]] = token["value"]
            elif token["end"] and "status" in self._report:
                path, numbers = self._report["path"], {"success": int(self._report["status"] == "true")}
                figures = {"retries": self._report.get("retry"), "seconds": self._report.get("compile_time")}
                yield replace(
                    source, kind="report", module=module_in(path), path=path, numbers={**numbers, **_numbers(figures)}
                )
                self._report = {}


def _errors(text: str, *, alone: bool) -> Iterator[str]:
    """What a compiler says of its failure: from each error code on; else the whole text, if it says nothing else."""
    codes = [found.start() for found in codes_in(text)]
    for place in codes:
        if "WARN" not in text[max(0, place - 80) : place]:
            yield text[place : place + _TEXT].strip()
    if alone and not codes and (has_failure_words(text) or facts.KILLED.match(text)):
        yield text.strip()[:_TEXT]


def _found(text: str) -> tuple[tuple[str, Said, Event], ...]:
    """What a text says, in its order: the pattern's name, what it has found, and the event, of nobody yet."""
    if not any(mark in text for mark in facts.LOG_MARKS):
        return ()
    found, place = [], 0
    # The next place of each pattern; only those that an event has run over are sought again.
    ahead = {name: match for name, word in facts.LOG_WORDS.items() if (match := word.search(text))}
    while ahead:
        name = min(ahead, key=lambda name: ahead[name].start())
        match = ahead[name]
        place = max(match.end(), place + 1)
        said = match.groupdict()
        path = (said.get("path") or "").lstrip(".")
        event = Event(
            kind=_KINDS.get(name, name),
            module=module_in(path),
            path=path,
            text=(said.get("text") or "").strip()[:_TEXT],
            numbers=_numbers(said),
        )
        found.append((name, said, event))
        for passed in [name for name, other in ahead.items() if other.start() < place]:
            if again := facts.LOG_WORDS[passed].search(text, place):
                ahead[passed] = again
            else:
                del ahead[passed]
    return tuple(found)


_found_before = lru_cache(4096)(_found)

# The kind of an event where it is not the name of its pattern.
_KINDS = {
    "graph-list": "listed",
    "gave-up": "failed",
    "completed": "compiled",
    "summary-success": "summary",
    "summary-failed": "summary",
    "summary-short": "summary",
}


def _may_tell(line: bytes, marks: Sequence[bytes]) -> bool:
    """Whether a line has a mark or the end of a header: most lines of a long log have neither."""
    for mark in marks:
        if mark in line:
            return True
    return b"]:" in line and _LEVEL_END.search(line) is not None


def _headers(line: str, start: int) -> Iterator[re.Match[str]]:
    """The headers in a line: several where lines of several processes were glued together."""
    while line.find("]:", start) >= 0 or line.find("||:", start) >= 0:
        end = facts.LOG_HEADER_END.search(line, start)
        if end is None:
            return
        header = facts.LOG_HEADER.search(line, max(start, end.start() - facts.LOG_HEADER_LONGEST))
        if header is None:
            return
        yield header
        start = header.end()


def _prefix(line: str) -> tuple[Event, int]:
    """Who a launcher says has written the line, and where the line proper begins."""
    place, rank, pid, worker = 0, None, None, ""
    while found := facts.LOG_PREFIX.match(line, place):
        number = found["rank"] or found["mpi"] or found["label"]
        rank = int(number) if number else rank
        if found["pid"]:
            pid, worker = int(found["pid"]), f"{found['worker']} pid={found['pid']}".strip()
        place = found.end()
    return Event(kind="", pid=pid, rank=rank, worker=worker), place


def _time(header: re.Match[str]) -> datetime | None:
    if not header["time"]:
        return None
    try:
        at = datetime.fromisoformat(header["time"])
    except ValueError:
        return None
    digits = header["fraction"] or "0"
    if len(digits) == 6 and int(digits) < facts.LOG_FRACTION_IS_MILLISECONDS:  # noqa: PLR2004
        return at + timedelta(milliseconds=int(digits))
    return at + timedelta(microseconds=int(digits.ljust(9, "0")[:6]))


def _numbers(said: Said) -> dict[str, float]:
    """The figures that a pattern has found; what is no number, or beyond belief, is left out."""
    found: dict[str, float] = {}
    for name, text in said.items():
        if text is None or name in _WORDS:
            continue
        try:
            number = float(text)
        except ValueError:
            continue
        if abs(number) <= _MOST:
            found[name] = int(number) if number.is_integer() else number
    return found
