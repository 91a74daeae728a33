"""The cache of a run in the very process that compiles: for people who own their training loop.

What `verbs.run` does around a command is done here around a part of a process: a restored compiler cache dir before
it, and what compiled kept after it. The compiler must not have compiled yet when it begins.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Literal

from msgspec import structs

from cachekit.compilers import Guest, Observed, Run, Watch
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.keep import REPORTED, Keeping, command_marks, spared
from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, MissError, UsageError
from cachekit.recipe import command as command_line
from cachekit.recipe.command import CommandLine
from cachekit.store.record import Record
from cachekit.verbs.plan import Plan, plan
from cachekit.verbs.run import ATTENDED, Ran, entered, not_warm, ready, since, told
from cachekit.verbs.session import Session, environment

_LOG = logging.getLogger("cachekit")


class Attached(Ran, frozen=True, kw_only=True, tag="cachekit/attach/1"):
    """What became of the cache in a process, so far; the exit code is 0 once the work has come to its end, else 1.

    Attributes:
        state: `attached`; `late` where something had compiled before; `attended` under `cachekit run`, which has the
            cache in hand; `failed` where no compiler cache dir could be made.
    """

    state: Literal["attached", "late", "attended", "failed"]

    @property
    def sentence(self) -> str:
        """For a log: what compiled, what was found, and whether it was kept."""
        kept = f"not kept: {self.problem}" if self.problem else "kept" if self.kept else "nothing to keep"
        took = f" in {self.compile_seconds:.1f} s" if self.compiled else ""
        return f"{self.state}: compiled {self.compiled} graphs{took}, found {self.found}; {kept}"


class Attachment:
    """The cache of this process; made by `cachekit.attach`.

    Args:
        session: Collaborators.
        prepared: The key.
        command: What it was made from.
        stack: Closed at the end: what the session holds.
        require_warm: Fail instead of compiling; a compile is seen once it has happened, in `check`.
        recache: Restore nothing, and keep what compiles in place of what there was.
    """

    def __init__(
        self,
        session: Session,
        prepared: Prepared,
        command: CommandLine,
        stack: ExitStack,
        *,
        require_warm: bool = False,
        recache: bool = False,
    ) -> None:
        self._session, self._prepared, self._command = session, prepared, command
        self._strict, self._replaces = require_warm, recache
        if not prepared.compiler.guest:
            raise UsageError(
                f"{prepared.compiler.name} cannot attach to a process that is already running",
                cause="it reads where its cache is before the process can set it",
                hint="cachekit run -- python train.py gives the cache to a command from outside",
            )
        self._guest: Guest = import_module(prepared.compiler.guest)
        self._stack, self._pid, self._start = stack, os.getpid(), time.monotonic()
        self._state: Literal["attached", "late", "attended", "failed"] = "attached"
        self._problem = ""
        self._notes: list[str] = []
        self._cache_dir: CacheDir | None = None
        self._watch: Watch | None = None
        self._record: Record | None = None
        self._given: Record | None = None  # what the process found when it began
        self._nearest: Record | None = None
        self._fetched = self._finished = self._kept = self._closed = False
        self._built, self._overhead, self._seconds_kept = 0, 0.0, 0.0
        self._base, self._seconds = self._guest.counters(), self._guest.compile_seconds()
        self._plan = Plan(prepared, None)

    def own(self, stack: ExitStack) -> None:
        """Close this at the end, in place of the stack that it was entered on."""
        self._stack = stack

    # Before

    def begin(self) -> None:
        """Restore what there is; called once.

        Raises:
            MissError: Something would compile, under `require_warm`.
            UsageError: It is too late, under `require_warm`.
        """
        if os.environ.get(ATTENDED):
            self._state = "attended"
            self._notes.append("the cache is already in use: by `cachekit run`, or attached earlier in this process")
            return
        self._plan = planned = plan(self._prepared, self._session.store, self._session.remotes, anew=True)
        if self._strict and not ready(planned):
            raise not_warm(planned)
        for why in planned.untrusted:  # a process prints nothing of its own
            _LOG.warning("%s", why)
            self._notes.append(why)
        before = (self._base or {}).get("found", 0) + (self._base or {}).get("compiled", 0)
        if before:
            self._state = "late"
            self._notes.append(
                f"{before} graphs had been compiled or found in this process before: nothing was restored, "
                "and nothing is kept; attach earlier"
            )
            if self._strict:
                raise UsageError(
                    "the cache was attached too late", cause=self._notes[-1], hint="attach before the first compile"
                )
            return
        self._session.journal.emit("plan", recipe=self._command.name, key=self._prepared.key, status=planned.status)
        try:
            self._restore(planned)
        except CachekitError as error:
            if self._strict:
                raise
            self._fail(error)
        self._overhead += time.monotonic() - self._start

    def _restore(self, planned: Plan) -> None:
        self._fetched = planned.found is not None
        compiler, recipe = self._prepared.compiler, self._prepared.recipe
        cache_dir, record, nearest = self._stack.enter_context(
            entered(self._session, planned, require_warm=self._strict, recache=self._replaces)
        )
        found = record is not None and bool(record.soft.get(REPORTED))
        # Strictness is ours: a watch looks at another process.
        watch = compiler.watch(Run(recipe, cache_dir.tree, "command", found, strict=False, restored=cache_dir.restored))
        self._cache_dir, self._record, self._nearest, self._watch = cache_dir, record, nearest, watch
        self._given = record or nearest
        if record or nearest:
            self._session.journal.emit(
                "restore", key=self._prepared.key, bytes=cache_dir.restored_bytes, seconds=since(self._start)
            )
        watch.begin(self._tell)
        self._stack.enter_context(environment({**watch.environment, ATTENDED: self._session.journal.run}))
        self._notes += self._guest.join(found=found)

    def _tell(self, event: dict[str, Any]) -> None:
        event = dict(event)
        self._session.journal.emit(f"worker.{event.pop('event', 'unknown')}", **event)

    def _fail(self, error: CachekitError) -> None:
        """The work goes on without us."""
        self._state, self._problem = "failed", ": ".join(filter(None, [error.message, error.cause]))
        self._session.journal.emit("worker.note", note=self._problem)
        self._cache_dir = None

    # Meanwhile

    @property
    def report(self) -> Attached:
        """What became of it so far."""
        seen = self._seen()
        ran = told(
            self._command,
            self._plan,
            seen,
            code=0 if self._finished else 1,
            record=self._record,
            nearest=self._nearest,
            built=self._built,
            problem=self._problem,
            restored_bytes=self._cache_dir.restored_bytes if self._cache_dir else 0,
            saved_seconds=spared(seen, self._given, self._cache_dir) if self._cache_dir else 0.0,
            overhead_seconds=self._overhead,
            seconds=time.monotonic() - self._start,
        )
        return Attached(state=self._state, **structs.asdict(ran))

    def _seen(self) -> Observed:
        notes = tuple(self._notes)
        now = self._guest.counters()
        if now is not None:
            base = self._base or {}
            found, compiled = (now[name] - base.get(name, 0) for name in ("found", "compiled"))
            seconds = round(self._guest.compile_seconds() - self._seconds, 3) if compiled else 0.0
            carried = (now["found_ms"] - base.get("found_ms", 0)) / 1000 if "found_ms" in now else None
            return Observed(found, compiled, seconds, notes=notes, found_seconds=carried)
        seen = self._watch.observed() if self._watch else Observed()
        # The log that tells more is another's: what is new in the root was compiled.
        return structs.replace(seen, compiled=max(seen.compiled, len(self._new())), notes=notes, exact=False)

    def _new(self) -> frozenset[str]:
        if self._cache_dir is None:
            return frozenset()
        return self._prepared.compiler.contents(self._cache_dir.tree) - self._cache_dir.before

    def check(self) -> None:
        """Stop where something compiled that should not.

        Raises:
            MissError: Under `require_warm`, something has compiled.
        """
        if self._strict and self._state != "attended" and (seen := self._seen()).compiled:
            raise MissError(
                "a graph was not warm, although its record was found",
                cause=f"{seen.compiled} graphs compiled",
                hint="run once without require_warm, which adds it to the record",
            )

    # Afterwards

    def keep(self, *, finished: bool) -> Attached:
        """Keep what compiled so far; never raises: what could not be kept stands in the report.

        With `recache`, a record is replaced only once the work has come to its end.

        Args:
            finished: The work has come to its end, so that the record is a whole one.
        """
        if self._replaces and not (finished or self._kept):
            return self.report
        return self._keep(finished=finished, ended=finished)

    def _keep(self, *, finished: bool, ended: bool) -> Attached:
        finishes = finished and not self._finished
        self._finished = self._finished or finished
        cache_dir = self._cache_dir
        if cache_dir is None or os.getpid() != self._pid or self._closed:
            return self.report
        new = self._new()
        if not new and self._kept and not finishes:
            return self.report
        mark = time.monotonic()
        self._built += self._prepared.compiler.binaries(new)
        seen = self._seen()
        fresh = structs.replace(seen, compile_seconds=round(seen.compile_seconds - self._seconds_kept, 3))
        session, replaces = self._session, self._replaces and not self._kept
        keeping = Keeping(
            session.store, self._prepared, self._record, cache_dir, self._nearest, replaces=replaces, ended=ended,
            marks=command_marks(seen, finished=self._finished),
        )  # fmt: skip
        record, self._problem = session.keep(keeping, fresh, fetched=self._fetched)
        if not self._problem:
            self._record = record
            self._seconds_kept = seen.compile_seconds
            self._cache_dir = structs.replace(cache_dir, before=cache_dir.before | new)
            self._kept = self._kept or record is not None
        self._overhead += time.monotonic() - mark
        return self.report

    def close(self) -> Attached:
        """Keep what is new, and give the environment back. Graphs that compile later are not kept; harmless twice."""
        return self._close(ended=True)

    def leave(self) -> None:
        """Close because the process exits, which does not tell whether its work has come to its end."""
        self._close(ended=self._finished)

    def _close(self, *, ended: bool) -> Attached:
        if self._closed or os.getpid() != self._pid:
            return self.report
        done = self._keep(finished=self._finished, ended=ended)
        self._closed = True
        if self._state != "attended":
            self._session.journal.emit("command.done", **done.as_dict())
        self._stack.close()
        return done

    def __enter__(self) -> Attachment:  # noqa: PYI034 - 3.10 has no Self
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.keep(finished=kind is None)
        self._close(ended=kind is None)


def this_command(name: str = "") -> CommandLine:
    """The command that this process is, or what `name` stands for.

    Raises:
        UsageError: It is neither a script, a module nor code; or the name is none.
    """
    if name:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UsageError(f"{name!r} cannot be a name", hint="a name consists of letters, digits, dots and dashes")
        return CommandLine((name,), ())
    found = command_line.read(sys.orig_argv)
    if not (found.script or found.module or found.code) or "ipykernel" in sys.modules:
        raise UsageError(
            "this process runs no script, so attach() needs a name",
            cause="it is a notebook or a prompt",
            hint='attach("my-model", ingredients={"batch": "8"})',
        )
    return found


def world() -> dict[str, str]:
    """Which of several processes this is, as torchrun says it: each compiles for its own device."""
    size = os.environ.get("WORLD_SIZE", "1")
    return {"rank": f"{os.environ.get('RANK', '0')} of {size}"} if size not in {"", "1"} else {}
