"""Read what a Neuron run prints, while it prints: hits, compiles with seconds, waits, failures, summaries.

    reader = LogReader()
    for chunk in process_output:
        for event in reader.feed(chunk):
            ...
    rest = reader.close()

The stream comes from several processes at once, cut anywhere, with progress bars and dots, colours, launchers' prefixes
and lines of other programs between and inside the lines that matter. The events do not depend on where it was cut.
Nothing here reads or writes a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cachekit.compilers.neuron import log_events as ev
from cachekit.compilers.neuron.command import parse_command, split_command
from cachekit.compilers.neuron.facts import (
    CRASH_CODE,
    ERROR_CODE,
    LOG_FRACTION_IS_MILLISECONDS,
    LOG_HEADER,
    LOG_PREFIX,
    LOG_WORDS,
    MODULE_PREFIX,
    NPC_REPORT_TOKEN,
    OLD_ERROR_CODE,
    RETRYING,
    SKIPPING,
)
from cachekit.compilers.neuron.log_timing import Timing

LONGEST = 1 << 17  # bytes of one line that are kept: its first and its last half
_HALF = LONGEST // 2
_TEXT = 4000  # characters of a quoted message that an event carries
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass(frozen=True, slots=True)
class _Source:
    """Who wrote a piece of a line, and when."""

    at: datetime | None = None
    pid: int | None = None
    rank: int | None = None
    worker: str = ""

    def fields(self) -> dict[str, Any]:
        """As arguments of an event."""
        return {"at": self.at, "pid": self.pid, "rank": self.rank, "worker": self.worker}

    @property
    def process(self) -> str:
        """A name for the process, as exact as the line allows."""
        return f"pid {self.pid}" if self.pid is not None else f"rank {self.rank}" if self.rank is not None else ""


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
        self._report: dict[str, str] = {}  # an entry of npc's JSON report, as far as it was read
        self._child: int | None = None  # the rank that torchrun's report is about

    def feed(self, chunk: bytes | str) -> list[ev.Event]:
        """Take the next piece of the stream; gives the events of the lines that it completes."""
        data = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else chunk
        events: list[ev.Event] = []
        # A carriage return ends a line as well: a progress bar that is drawn over, with the next line glued to it.
        *ended, rest = re.split(rb"[\r\n]", data)
        for piece in ended:
            self._keep(piece)
            events += self._line()
        self._keep(rest)
        return events

    def close(self) -> list[ev.Event]:
        """The stream has ended: the events of an unfinished line, and what can only be told now."""
        events = self._line()
        return events + self._timing.close()

    def _keep(self, piece: bytes) -> None:
        room = _HALF - len(self._head)
        self._head += piece[:room]
        if len(piece) > room:
            self._tail += piece[room:]
            if len(self._tail) > 2 * _HALF:
                del self._tail[:-_HALF]
                self._cut = True

    def _line(self) -> list[ev.Event]:
        if len(self._tail) > _HALF:
            del self._tail[:-_HALF]
            self._cut = True
        raw = bytes(self._head) + (b"\x00" if self._cut else b"") + bytes(self._tail)
        self._head, self._tail, self._cut = bytearray(), bytearray(), False
        text = _ANSI.sub("", raw.decode("utf-8", "replace"))
        return list(self._events(text)) if text.strip() else []

    def _events(self, line: str) -> Iterator[ev.Event]:
        source, start = _prefix(line)
        headers = list(LOG_HEADER.finditer(line, start)) if "]:" in line or "||:" in line else []
        first = headers[0].start() if headers else len(line)
        yield from self._loose(line[start:first], source)
        for index, header in enumerate(headers):
            end = headers[index + 1].start() if index + 1 < len(headers) else len(line)
            pid = int(header["pid"]) if header["pid"] else source.pid
            said = _Source(_time(header), pid, source.rank, source.worker)
            self._listing, self._failing, self._quoted, self._report = False, "", "", {}
            found = list(self._words(line[header.end() : end], said))
            yield from self._timing.before(said.process, said.at, found)
            yield from found
            self._timing.after(said.process, said.at)

    def _loose(self, text: str, source: _Source) -> Iterator[ev.Event]:
        """A line, or what stands before its first header: it belongs to what came before it."""
        if self._listing and (module := ev.module_in(text)) and len(text.split()) == 1:
            yield ev.Listed(module=module, path=text.strip(), **source.fields())
            return
        self._listing = self._listing and not text.strip(" .\t")
        yield from self._words(text, source)

    def _words(self, text: str, source: _Source) -> Iterator[ev.Event]:
        """The events in a text of one source, in their order."""
        yield from self._report_entries(text, source)
        place = 0
        # The next place of each pattern; only those that an event has run over are sought again.
        ahead = {kind: match for kind, word in LOG_WORDS.items() if (match := word.search(text))}
        while ahead:
            kind = min(ahead, key=lambda name: ahead[name].start())
            match = ahead[kind]
            place = max(match.end(), place + 1)
            if event := self._event(kind, match.groupdict(), source):
                yield event
            for name in [name for name, found in ahead.items() if found.start() < place]:
                if again := LOG_WORDS[name].search(text, place):
                    ahead[name] = again
                else:
                    del ahead[name]
        yield from self._errors(text, source)

    def _event(self, kind: str, said: dict[str, str], source: _Source) -> ev.Event | None:
        path = (said.get("path") or "").lstrip(".")
        where = {"module": ev.module_in(path), "path": path, **source.fields()}
        text = (said.get("rest") or "").strip()[:_TEXT]
        match kind:
            case "hit":
                return ev.Hit(**where)
            case "extracted":
                return ev.Extracted(**where)
            case "graph-list":
                self._listing = True
                return ev.Listed(**where) if path else None
            case "miss":
                return ev.Missed(**where)
            case "cache-path":
                return ev.CachePath(**where)
            case "exported":
                return ev.Exported(**where)
            case "waiting":
                return ev.Waiting(minutes=_number(said["minutes"]) or 0.0, **where)
            case "cached-failure":
                self._failing = self._quoted = where["module"]
                retried = RETRYING.search(text) and not SKIPPING.search(text)
                return ev.Retrying(text=text, **where) if retried else ev.CachedFailure(text=text, **where)
            case "failed" | "gave-up":
                words = said.get("command") or path
                self._failing = module = ev.module_in(words)
                quoted = bool(module) and module == self._quoted
                if not quoted:
                    self._timing.failed(source.process, module)
                named = {**where, "module": module}
                called = split_command(words) if "command" in said else ()
                return ev.Failed(command=called, text=text, quoted=quoted, **named)
            case "command":
                command = parse_command(said["command"])
                named = {**where, "module": ev.module_in(command.output) or ev.module_in(command.input)}
                self._timing.started(source.process, named["module"], source.at)
                return ev.CompileCommand(command=command.arguments, **named)
            case "started":
                self._timing.started(source.process, where["module"], source.at)
                return None
            case "completed":
                return self._timing.completed(source.process, ev.module_in(said["what"]), source.fields())
            case "exiting":
                return self._timing.completed(source.process, "", source.fields())
            case "status":
                passed = said["status"] == "PASS"
                if passed:
                    self._timing.passed(source.rank)
                return ev.CompilerStatus(passed=passed, **source.fields())
            case "worker-started":
                self._timing.worker(source.process)
            case "child-rank":
                self._child = int(said["rank"])
                return None
            case "child-exit":
                child = {**source.fields(), "pid": int(said["pid"]), "rank": self._child}
                return ev.ChildExit(code=int(said["code"]), **child)
            case _:
                pass
        return _plain(kind, said, where, source, text)

    def _report_entries(self, text: str, source: _Source) -> Iterator[ev.Event]:
        """The JSON report of npc, token by token, because lines of other processes may stand between its lines."""
        if not self._report and MODULE_PREFIX not in text:
            return
        for token in NPC_REPORT_TOKEN.finditer(text):
            if token["path"]:
                self._report = {"path": token["path"]}
            elif token["field"] and self._report:
                self._report[token["field"]] = token["value"]
            elif token["end"] and "status" in self._report:
                path = self._report["path"]
                yield ev.Reported(
                    module=ev.module_in(path),
                    path=path,
                    success=self._report["status"] == "true",
                    retries=int(_number(self._report.get("retry", "0")) or 0),
                    seconds=_number(self._report.get("compile_time", "")),
                    **source.fields(),
                )
                self._report = {}

    def _errors(self, text: str, source: _Source) -> Iterator[ev.Event]:
        if "[" not in text:
            return
        for pattern in (ERROR_CODE, CRASH_CODE, OLD_ERROR_CODE):
            for found in pattern.finditer(text):
                if "WARN" in text[max(0, found.start() - 80) : found.start()]:
                    continue
                said = text[found.start() : found.start() + _TEXT].strip()
                yield ev.CompilerError(code=found["code"], text=said, module=self._failing, **source.fields())


def _plain(kind: str, said: dict[str, str], where: dict[str, Any], source: _Source, text: str) -> ev.Event | None:
    """The events that are nothing but their numbers."""
    numbers: dict[str, Any] = {name: int(value) for name, value in said.items() if value and value.isdigit()}
    match kind:
        case "not-found":
            return ev.NotFoundRemote(repository=said["repository"], **where)
        case "trial-run":
            return ev.TrialRun(command=said["command"][:_TEXT], **source.fields())
        case "worker-started":
            return ev.WorkerStarted(number=numbers["worker"], graphs=numbers["graphs"], **source.fields())
        case "worker-done":
            tasks = numbers.get("tasks", numbers.get("old", 0))
            return ev.WorkerDone(number=numbers["worker"], tasks=tasks, **source.fields())
        case "worker-exception":
            return ev.WorkerException(number=numbers["worker"], text=text, **source.fields())
        case "remaining":
            return ev.Remaining(**numbers, **source.fields())
        case "summary" | "summary-short" | "summary-success" | "summary-failed":
            return ev.Summary(**numbers, **source.fields())
        case "export-seconds":
            return ev.ExportSeconds(seconds=_number(said["seconds"]) or 0.0, **source.fields())
        case _:
            return None


def _prefix(line: str) -> tuple[_Source, int]:
    """Who a launcher says has written the line, and where the line proper begins."""
    place, rank, pid, worker = 0, None, None, ""
    while found := LOG_PREFIX.match(line, place):
        number = found["rank"] or found["mpi"] or found["label"]
        rank = int(number) if number else rank
        pid = int(found["pid"]) if found["pid"] else pid
        worker = found["worker"] or worker
        place = found.end()
    return _Source(None, pid, rank, worker), place


def _time(header: re.Match[str]) -> datetime | None:
    if not header["time"]:
        return None
    try:
        at = datetime.fromisoformat(header["time"])
    except ValueError:
        return None
    digits = header["fraction"] or "0"
    if len(digits) == 6 and int(digits) < LOG_FRACTION_IS_MILLISECONDS:  # noqa: PLR2004
        return at + timedelta(milliseconds=int(digits))
    return at + timedelta(microseconds=int(digits.ljust(9, "0")[:6]))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
