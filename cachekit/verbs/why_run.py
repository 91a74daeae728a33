"""Why a run compiled: by its journal, or by a log that whoever started it kept."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, structs

from cachekit import files
from cachekit.compilers import registry
from cachekit.compilers.graphs import Logged
from cachekit.errors import UnknownNameError, UsageError
from cachekit.events import BYPASS, Event, Journal, read
from cachekit.store import Store
from cachekit.store.record import DamagedRecordError, Record, decode
from cachekit.text import cause_of
from cachekit.values import Answer
from cachekit.verbs.stats import LAST, one_run

VERBS = frozenset({"warm", "train", "run"})
# Told by `train` and by `run` where something compiled although a record was restored.
COMPILED = frozenset({"train.compiled", "command.compiled"})
BEGINS = frozenset({"worker.start", "command.start"})  # from here on something may compile
ENDS = frozenset({"run.end", "run.failed", "train.end", "command.done"})  # a `warm` within a `train` is no end


class UnforeseenModule(Struct, frozen=True):
    """A module that compiled although the plan said hit.

    Attributes:
        name: The compiler's own.
        differs: What of its name is new: `graph`, `flags`, `new`, `compiler`; `recorded` where nothing is.
        words: Sentences.
        seconds: What its compile took, where that is known.
    """

    name: str
    differs: str
    words: tuple[str, ...]
    seconds: float | None = None


class RunWhy(Answer, frozen=True, tag="cachekit/why-run/1"):
    """What a run compiled, and why.

    Attributes:
        run: Its identity.
        verb: `warm`, `train` or `run`.
        recipe: What it ran; empty where it never came to that.
        key: Of the recipe.
        planned: What the plan said: `hit`, `miss`; empty where it never came to that.
        compiled: Graphs that compiled.
        found: Graphs that were found.
        built: Files of machine code that were built.
        phases: When it compiled.
        modules: What compiled although the plan said hit.
        words: What the compiler's own counters tell.
        bypassed: Why the run bypassed the cache, or a part of it, and how often.
        failure: What ended it, where it failed.
        ended: It came to its end; one that was killed, or is still running, did not.
        untold: It began to compile, and ended, or was read, before it told what it had compiled.
    """

    run: str
    verb: str
    recipe: str
    key: str
    planned: str
    compiled: int
    found: int
    built: int
    phases: tuple[str, ...]
    modules: tuple[UnforeseenModule, ...] = ()
    words: tuple[str, ...] = ()
    bypassed: Mapping[str, int] = {}
    failure: str = ""
    ended: bool = True
    untold: bool = False


def why_run(store: Store, name: str = LAST) -> RunWhy:
    """Read a run's journal; see `Cache.why_run`."""
    events = _events(store, name)
    run = str(events[0].get("run", ""))
    verb = str(next((event.get("verb", "") for event in events if event.get("event") == "run"), ""))
    plans = [event for event in events if event.get("event") == "plan"]
    told = [event for event in events if event.get("event") in COMPILED]
    ends = [event for event in events if event.get("event") in {"worker.end", "command.done"}]
    failed = next((event for event in events if event.get("event") == "run.failed"), {})
    names = {str(event.get("event")) for event in events}
    plan = plans[-1] if plans else {}
    key = str(plan.get("key", ""))
    numbers = _numbers(ends[-1] if ends else {})
    warmed = [event for event in events if event.get("event") == "warm.end"]
    compiled = sum(_int(event.get("graphs")) for event in told) + sum(_int(event.get("compiled")) for event in warmed)
    found = numbers.get("found", 0)
    if warmed and not ends:  # no worker ran: all graphs were stored already
        found = sum(_int(event.get("graphs")) - _int(event.get("compiled")) for event in warmed)
    if ends and not told and not warmed:
        compiled = numbers.get("compiled", 0)
    record = _record(store, key) if told else None
    return RunWhy(
        run=run,
        verb=verb,
        recipe=str(plan.get("recipe", "")),
        key=key,
        planned=str(plan.get("status", "")),
        compiled=compiled,
        found=found,
        built=sum(_int(event.get("built")) for event in told),
        phases=tuple(dict.fromkeys(str(phase) for event in told for phase in _list(event.get("when")))),
        modules=tuple(module for event in told for module in _modules(store, record, event)),
        words=_counted(numbers) if told else (),
        bypassed=dict(Counter(str(event.get("reason")) for event in events if event.get("event") == BYPASS)),
        failure=str(failed.get("message", "")),
        ended=bool(names & ENDS) or (verb == "warm" and bool(warmed)),
        untold=bool(names & BEGINS) and not (ends or told or warmed),
    )


def _events(store: Store, name: str) -> list[Event]:
    paths = {path.stem: path for path in sorted(store.layout.journal.glob("*/*.jsonl"), key=lambda path: path.stem)}
    if name == LAST:
        for path in reversed(paths.values()):
            if events := _read(path):
                return events
        raise UnknownNameError(
            "no run of warm, train or run is recorded here", hint="cachekit warm RECIPE; or check --home"
        )
    chosen = one_run([*paths], name)
    if events := _read(paths[chosen], verbs=None):
        return events
    raise UnknownNameError(f"the journal of run {chosen} cannot be read", hint=f"look at {paths[chosen]}")


def _read(path: Path, verbs: frozenset[str] | None = VERBS) -> list[Event]:
    """A journal's events; none where it cannot be read, or is of another verb."""
    try:
        events = read(path)
    except OSError:
        return []
    verb = next((event.get("verb") for event in events if event.get("event") == "run"), None)
    return events if verbs is None or verb in verbs else []


def _record(store: Store, key: str) -> Record | None:
    """A key's record as it is now, wherever it lies; its files are not checked."""
    for path in store.layout.records.glob(f"*/*/{key}.json") if files.is_digest(key) else ():
        with suppress(OSError, DamagedRecordError):
            return decode(files.read(path))
    return None


def _modules(store: Store, record: Record | None, event: Event) -> list[UnforeseenModule]:
    """What compiled, against what was recorded before it."""
    new, again = ([str(name) for name in _list(event.get(which))] for which in ("modules", "again"))
    seconds = event.get("seconds")
    times = seconds if isinstance(seconds, dict) else {}
    if record is None or not (new or again):
        return []
    adapter = registry.adapter(record.compiler)
    told = adapter.explain_modules([*new, *again], new, record, lambda file: store.layout.blob(file.sha256))
    took = {name: seconds for name, seconds in times.items() if isinstance(seconds, int | float)}
    return [UnforeseenModule(name, one.relation, one.words, took.get(name)) for name, one in told.items()]


def _counted(numbers: Mapping[str, int]) -> tuple[str, ...]:
    """What compilers say of their counters: each knows its own."""
    return tuple(words for adapter in registry.every() for words in adapter.explain_counters(numbers))


def _numbers(event: Event) -> dict[str, int]:
    counters = event.get("counters", event)
    known = counters.items() if isinstance(counters, dict) else ()
    return {str(name): value for name, value in known if isinstance(value, int) and not isinstance(value, bool)}


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


SAVE = "save all that a run prints: COMMAND 2>&1 | tee run.log"
# How files begin in which a log stands, but not as lines of text: of gzip, bzip2, xz, zstd and zip.
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class LogWhy(Logged, Answer, frozen=True, kw_only=True, tag="cachekit/why-log/1"):
    """What a log tells; see `Logged`.

    Attributes:
        file: The log.
        compiler: Whose words it has.
    """

    file: str
    compiler: str


def why_log(path: Path, journal: Journal) -> LogWhy:
    """Read a log, by whichever compiler's words are in it; `-` is stdin, to its end.

    Raises:
        UsageError: It cannot be read, is not a regular file or not one of text, or no compiler knows its words.
    """
    if str(path) != "-":
        return _read_log(path, path, journal)
    with tempfile.NamedTemporaryFile(prefix="cachekit-log-") as kept:  # each compiler's reader begins anew
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        return _read_log(Path(kept.name), Path("stdin"), journal)


def _read_log(file: Path, path: Path, journal: Journal) -> LogWhy:
    """Read a log in a file, which is called otherwise."""
    try:
        with files.opened(file, buffering=0) as source:
            _check_text(path, source.read(max(map(len, PACKED))))
        for adapter in registry.every():
            with files.opened(file, buffering=0) as source:
                size = os.fstat(source.fileno()).st_size
                log = io.BufferedReader(_Watched(source, partial(journal.show, "log.reading", of=size)), files.PIECE)
                if (told := adapter.read_log(log)) is not None:
                    return LogWhy(**structs.asdict(told), file=str(path), compiler=adapter.name)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=cause_of(error),
            hint=f"{SAVE}; for a pipe: ... | cachekit why --log -",
        ) from error
    raise UsageError(
        f"{path} says nothing about a compile",
        cause="no line comes from a compiler, or from its cache, that cachekit knows",
        hint=f"{SAVE}; or give the compiler's own log",
    )


def _check_text(path: Path, begin: bytes) -> None:
    if begin.startswith(PACKED):
        cause, hint = "it is compressed", "unpack it first"
    elif begin.startswith(UTF_16) or 0 in begin:
        cause = "it is text in UTF-16, as PowerShell writes it"
        hint = f"make UTF-8 of it first: iconv -f UTF-16 -t UTF-8 {shlex.quote(str(path))} > run.log"
    else:
        return
    raise UsageError(f"{path} cannot be read as a log", cause=cause, hint=hint)


class _Watched(io.RawIOBase):
    """A file that tells how far it has been read."""

    def __init__(self, source: BinaryIO, tell: Callable[..., None]) -> None:
        self._source, self._tell = source, tell

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        return self._source.seek(place, whence)

    def readinto(self, space: Any) -> int:
        piece = self._source.read(len(space))
        space[: len(piece)] = piece
        self._tell(done=self._source.tell())
        return len(piece)
