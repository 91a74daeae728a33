"""A run's events as a person follows them: one live line on a terminal, few plain lines otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cachekit.cli import out
from cachekit.errors import UntrustedError
from cachekit.text import first_of, named, one_line

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

PHASES = {
    "import": "loading PyTorch and Transformers",
    "data": "loading data",
    "model": "loading the model",
    "features": "making batches of the data",
    "train": "training",
    "evaluate": "evaluating",
    "save": "saving the model",
}
# What the Trainer adds to an evaluation's figures: how fast it was.
SPEED = {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "jit_compilation_time"}
MANY = 1_000  # records; fewer are read in a moment
LONG_LOG = 1 << 24  # bytes; a shorter log is read in seconds
EVERY = 30.0  # seconds between two plain lines about the same thing
Event = dict[str, Any]

# What is told of an event, by its name; nothing where the text is empty. First what goes on, which the live line shows
# and plain lines repeat only every so often; then lines of their own; then warnings, which quiet does not silence.
GOING_ON: dict[str, Callable[[Event], str]] = {
    "store.waiting": lambda e: (
        f"waiting: {e['holder']} is removing files from the store, {out.duration(e['waited'])} so far"
    ),
    "remote.again": lambda e: f"{e['reason']}; asking again in {out.duration(e['seconds'])}",
    "lock.waiting": lambda e: _waits(e) if "takes_over_seconds" in e else f"still waiting for {e['holder']}",
    "pull.progress": lambda e: f"fetched {out.size(e['bytes'])} of {out.size(e['total'])}",
    "push.progress": lambda e: f"sent {out.size(e['bytes'])} to {e['remote']}",
    "worker.lock": lambda e: f"waiting for another process that is compiling {e['module']}, {e['minutes']:.0f} min",
    "verify.progress": lambda e: (
        f"checked {out.size(e['bytes'])} of {out.size(e['total'])}" if e["bytes"] < e["total"] else ""
    ),
    "verify.graphs": lambda e: (
        f"checking compiled graphs: record {e['done'] + 1} of {e['of']}" if e["of"] >= MANY else ""
    ),
    "verify.repairing": lambda e: f"repairing {e['key'][:12]} {e['file']}",
    "gc.removing": lambda e: "" if e["files"] % MANY else f"removed {out.count(e['files'], 'file')}",
    "log.reading": lambda e: (
        f"reading the log: {out.size(e['done'])} of {out.size(e['of'])}" if e["of"] >= LONG_LOG else ""
    ),
    "fleet.silent": lambda e: f"asking again: {e['reason']}",
    "import.reading": lambda e: f"reading {e['compiler']}: module {e['done'] + 1} of {e['of']}",
    "import.progress": lambda e: f"read {out.size(e['bytes'])} of {out.size(e['total'])}",
    "import.storing": lambda e: f"storing {out.count(e['modules'], 'module')}, {out.size(e['bytes'])}",
    "export.progress": lambda e: f"wrote {out.size(e['bytes'])} of {out.size(e['total'])}",
}
LINES: dict[str, Callable[[Event], str]] = {
    "pull.start": lambda e: f"fetching {out.count(e['files'], 'file')}, {out.size(e['bytes'])}, from {e['remote']}",
    "push.end": lambda e: (
        f"pushed {out.count(e['files'], 'file')}, {out.size(e['bytes'])}, to {e['remote']}"
        if e["files"]
        else f"pushed {out.count(e['records'], 'record')} to {e['remote']}, which has the files already"
        if e["records"]
        else ""
    ),
    "lease.failed": lambda e: f"no lease, so another machine may compile the same key: {e['reason']}",
    "compile.start": lambda e: (
        "a trial run of a few steps with the nearest record, which ends if anything would compile"
        if e.get("strict")
        else "compiling: a trial run of a few steps"
        + (f"; expected about {out.duration(e['expected_seconds'])}" if e.get("expected_seconds") else "")
    ),
    "build.start": lambda e: f"compiling again, to compare with what {e['by']} made on {e['created'][:16]}",
    "restore": lambda e: f"restored {out.size(e['bytes'])} in {out.duration(e['seconds'])}",
    "worker.lock-cleared": lambda e: f"cleared the lock of {e['module']}: {e['reason']}",
    "worker.lock-held": lambda e: f"{e['module']} is being compiled by another process: {e['reason']}",
    "reuse.end": lambda e: (
        f"{e['graphs']} of {out.count(e['of'], 'graph')}"
        + (f" and {out.count(e['kernels'], 'kernel')}" if e["kernels"] else "")
        + " came from the nearest record"
    ),
    "reuse.failed": lambda e: f"nothing of the nearest record could be used, and everything compiles: {e['reason']}",
    "worker.failure-cleared": lambda e: f"{e['module']} failed before ({e['class']}); trying again",
    "worker.failure-tried-again": lambda e: f"{e['module']} failed before, and its log does not say why; trying again",
    "worker.note": lambda e: str(e["note"]),
    "worker.retry": lambda e: f"compiling {out.count(e['graphs'], 'graph')} again, one at a time: {e['reason']}",
    "worker.resume": lambda e: f"resuming from {e['checkpoint']}",
    "matrix.entry": lambda e: f"{e['number']} of {e['of']}: {e['name']}",
    "fleet.submitted": lambda e: f"submitted {e['fleet']}: {out.count(e['commands'], 'command')} on {e['engine']}",
    "fleet.unit": lambda e: (
        ""
        if e["state"] == "waiting"
        else f"command {e['number']}: {e['status'] or e['state']}{e['machine'] and ' on ' + e['machine']} ({e['name']})"
    ),
    "nodes.wait": lambda e: f"waiting for {e['holder']}",
    "contract.check": lambda e: str(e["check"]),
}
WARNINGS: dict[str, Callable[[Event], str]] = {
    "accelerator.idle": lambda e: str(e["reason"]),
    "data.doubt": lambda e: f"the data is odd: {e['doubt']}",
    "nodes.unshared": lambda e: f"no shared cache can be written: each of {e['nodes']} machines compiles for itself",
    "lease.crowded": lambda e: (
        f"so many commits are made on {e['remote']} that signs of life from this machine are rare: others may wait "
        f"{out.duration(e['seconds'])} for it if it dies; leases in a bucket or folder beside the repo need no commits"
    ),
    "spot.notice": lambda e: (
        f"EC2 is taking this Spot instance away ({e['action']}{e['at'] and ' at ' + e['at']}): another "
        "machine may compile now"
    ),
    "push.last": lambda e: (
        f"pushing what is finished, for {e['seconds']:.0f} s at most"
        f"{', then giving the lease back' if e['lease'] else ''}; Ctrl-C stops it"
    ),
    "store.unguarded": lambda e: (
        f"{e['holder']} has been removing files from the store for {out.duration(e['waited'])}; continuing "
        "without waiting"
    ),
    "push.failed": lambda e: (
        f"not pushed, and kept here: {'see above' if e.get('told') else e['reason'] + _in_brackets(e['cause'])};"
        " later: cachekit push --pending"
    ),
    "push.refused": lambda e: f"not pushed: {e['reason']}{_in_brackets(e['cause'])}; {e['hint']}",
    "push.unsigned": lambda e: (
        f"{e['remote']} asks for signatures, and unsigned records are not used"
        f" ({out.count(len(e['keys']), 'record')}): "
        + ("`cachekit trust sign KEY`" if e["signs"] else "`cachekit trust init`")
        + ", then `cachekit push`"
    ),
    "remote.failed": lambda e: f"{e['reason']}; continuing without it" + (f"; {e['hint']}" if _advises(e) else ""),
    "trust.all": lambda _: (
        "--trust-all: records are used no matter who made them, and a compiler cache is code that runs on this machine"
    ),
    "trust.clash": lambda e: f"{e['message']}, and no other command runs here: {e['reason']}; {e['hint']}",
    "remote.untrusted": lambda e: f"{e['message']}: {e['reason']}",  # the hint, of three lines, is for an error
    "store.refused": lambda e: (
        f"the store's record {e['key'][:12]} is not used: it is {e['reason']}"
        + ("; it was moved to quarantine" if e["quarantine"] else "")
    ),
    "remote.damaged": lambda e: f"{e['remote']} has a record of {e['key'][:16]} that cannot be used: {e['reason']}",
    "worker.lock-found": lambda e: f"{e['module']} is locked, and may stay so: {e['reason']}; {e['advice']}",
    "restore.withdrawn": lambda e: f"{e['module']} was taken out of the compiler's own folder: {e['reason']}",
    "restore.left": lambda e: f"{e['module']} was left as it is, and not restored: {e['reason']}",
    "restore.refused": lambda e: f"the record cannot be used, and will be made again: {e['reason']}",
    "worker.failed-before": lambda e: f"{e['module']} failed to compile in an earlier run, and Neuron skips it",
    "resume.none": lambda e: f"{e['folder']} has no checkpoint to resume from: the training starts from the beginning",
    "resume.passed": lambda e: f"{e['checkpoint']} is skipped: {e['reason']}",
    "journal.lost": lambda e: f"this run's journal could not be written: {e['reason']}",
    "train.not-kept": lambda e: f"what was compiled could not be kept: {e['reason']}",
}


def _advises(failed: Event) -> bool:
    """Whether a warning ends with the hint; that of what is untrusted has three lines, and is for an error."""
    return bool(failed["hint"]) and not failed["skipped"] and failed["code"] != UntrustedError.code


def _waits(e: Event) -> str:
    """What is known of another machine that compiles, short enough for one line."""
    holder = f"{e['user']}@{e['host']}" if "host" in e else e["holder"]
    seen, at = e["last_sign_seconds"], e.get("last_sign", "")[11:19]
    sign = f"sign of life {out.duration(seen)} ago" if seen is not None else at and f"sign of life at {at}"
    left = f"takeover in {out.duration(e['takes_over_seconds'])}"
    return f"waiting for {holder}: " + (f"{sign}, {left}" if sign else left)


def _in_brackets(words: str) -> str:
    return f" ({words})" if words else ""


class Progress:
    """Follows one run.

    Args:
        write: Prints a line to stderr.
        live: There is a terminal: show one line that changes.
        quiet: Only warnings.
    """

    def __init__(self, write: Callable[[str], None], *, live: bool, quiet: bool) -> None:
        self._write = write
        self._live = live
        self._quiet = quiet
        self._status: Status | None = None
        self._told = 0.0
        self._text = ""
        self._compiling_since: float | None = None
        self._expected: float | None = None
        self._expected_graphs: int | None = None
        self._graphs = (0, 0)
        self._traced = ""
        self._mode = ""
        self._split = "validation"
        self._left = False
        self._unused: list[Event] = []

    def event(self, event: Event) -> None:
        """Show an event of the journal, if it is one to show."""
        name = event["event"]
        handler = getattr(self, "_on_" + name.replace(".", "_").replace("-", "_"), None)
        if name in {"remote.untrusted", "remote.failed"} or (name == "store.refused" and not event["quarantine"]):
            self._unused.append(event)
            return
        if name in LINES or name in {"command.start", "lock.wait"}:
            self._warn_of_unused()
        if handler is not None:
            handler(event)
        if name in GOING_ON and (now := GOING_ON[name](event)):
            self._now(now, rarely=True)
        if name in LINES and (line := LINES[name](event)):
            self._line(line)
        if name in WARNINGS:
            out.warning(WARNINGS[name](event))

    def answered(self, words: str) -> None:
        """The run ends with these words, on one line or several, which may tell why something is not used."""
        told = " ".join(words.split())
        said = [(event, event["reason"].removeprefix(event.get("remote", "")).lstrip(" :")) for event in self._unused]
        self._unused = [event for event, reason in said if reason not in told]

    def close(self) -> None:
        """Tell what is still to be told, and end the live line."""
        self._warn_of_unused()
        self.end_line()

    def _warn_of_unused(self) -> None:
        """As soon as the run goes on without it: where it does not, the error says so."""
        for event in self._unused:
            out.warning(WARNINGS[event["event"]](event))
        self._unused.clear()

    def end_line(self) -> None:
        """End the live line: something else is printed now."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._write(text)

    def _now(self, text: str, *, rarely: bool = False, timed: bool = False) -> None:
        """What goes on: the live line, or a plain line (rarely: only every so often; timed: with the time so far)."""
        self._text = text
        if self._quiet:
            return
        if self._live:
            if self._status is None:
                from rich.console import Console

                # Made anew at each of its refreshes: the time runs on while nothing else happens.
                self._status = Console(stderr=True, highlight=False).status(_Made(self._with_time), spinner="dots")
                self._status.start()
        elif not rarely or time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            self._write(f"  {self._with_time() if rarely or timed else text}")

    def _with_time(self) -> str:
        """The text; while something compiles, after how long, and of how long: a narrow terminal cuts the end off."""
        if self._compiling_since is None or not self._text:
            return self._text
        took = time.monotonic() - self._compiling_since
        expected = f" of about {out.duration(self._expected)}" if self._expected else ""
        return f"{self._late(took, 'now') or out.duration(took) + expected}; {self._text}"

    def _late(self, took: float, word: str) -> str:
        if not self._expected or took <= self._expected:
            return ""
        return f"longer than expected: usually {out.duration(self._expected)}, {word} {out.duration(took)}"

    # Events that change what is shown of others

    def _on_store_damaged(self, event: Event) -> None:
        if event["reason"] == "it is missing":
            out.warning(f"{event['path']} is missing")
            return
        place = "" if event.get("kept") or not event.get("quarantine") else "; set aside in quarantine"
        out.warning(f"{event['path']} is damaged ({event['reason']}){place}")

    def _on_lock_wait(self, event: Event) -> None:
        self._told = time.monotonic()
        for line in out.labelled("waiting: ", f"the same key is being compiled by {one_line(event['holder'])}"):
            self._line(line)

    def _on_push_tells(self, event: Event) -> None:
        for leak in event["leaks"]:
            out.warning(f"anybody can read {event['remote']}; it reveals {leak}")

    def _on_push_wait(self, event: Event) -> None:
        self._now(f"{event['reason']}; again in {out.duration(event['seconds'])}", rarely=event["seconds"] < 1)

    def _on_compile_start(self, event: Event) -> None:
        self._compiling_since = time.monotonic()
        self._expected = event.get("expected_seconds")
        self._expected_graphs = event.get("expected_graphs")

    def _on_build_start(self, _: Event) -> None:
        self._compiling_since = time.monotonic()

    def _on_command_start(self, _: Event) -> None:
        self.end_line()  # the screen is the command's now

    def _on_worker_start(self, event: Event) -> None:
        self._mode = event["mode"]
        self._graphs, self._traced = (0, 0), ""
        if self._mode == "train":
            self._compiling_since = None

    def _on_worker_at(self, event: Event) -> None:
        # The first graph takes most of a compile, and no counter moves meanwhile.
        if self._compiling_since is not None and event["phase"] and event["phase"] not in PHASES:
            self._text = self._counts(event["phase"])

    def _on_worker_tick(self, _: Event) -> None:
        if self._compiling_since is not None and self._text:
            self._now(self._text, rarely=True)

    def _on_warm_end(self, _: Event) -> None:
        since, self._compiling_since = self._compiling_since, None
        if since is not None and (late := self._late(time.monotonic() - since, "this time")):
            self._line(f"compiling took {late}")

    def _counts(self, phase: str) -> str:
        found, compiled = self._graphs
        of = self._expected_graphs if self._compiling_since is not None else None
        # Where there are more, the total is not this job's.
        total = f", of about {of}" if of and found + compiled <= of else ""
        return f"graphs: {compiled} compiled, {found} found{total}{self._traced}; {phase}"

    def _on_worker_phase(self, event: Event) -> None:
        name = str(event["name"])
        self._now(PHASES.get(name, name))

    def _on_worker_graphs(self, event: Event) -> None:
        found, compiled = event["found"], event["compiled"]
        grown = compiled > self._graphs[1]
        self._graphs = (found, compiled)
        if self._mode == "train" and grown:
            out.warning(f"a graph compiled in: {event['phase']}")
        self._traced = f", {event['extracted']} traced" if event.get("extracted") else ""
        self._now(self._counts(event["phase"] or "running"), timed=True)

    def _on_worker_compiled(self, event: Event) -> None:
        if event["failure"]:
            after = "" if event["seconds"] is None else f" after {out.duration(event['seconds'])}"
            self._line(f"  {event['module']} failed{after}: {event['failure']}")
        elif event["seconds"] is not None:
            self._now(f"compiled {event['done']} of {event['of']}: {event['module']}, {out.duration(event['seconds'])}")

    def _on_record_differs(self, event: Event) -> None:
        first = event["modules"][0]
        made = [
            f"{first[side][:12]} by {event[side]['by']}, {event[side]['created'][:16]}" for side in ("ours", "theirs")
        ]
        names = first_of((one["name"] for one in event["modules"]), 1)
        place = "in the store" if event["where"] == "local" else f"on {event['where']}"
        out.warning(f"{event['key'][:16]} was built twice, with different bytes: {names}")
        out.warning(f"  here {made[0]}; {place} {made[1]}")

    def _on_reuse_restored(self, event: Event) -> None:
        what = f"{event['nearest'][:16]} ({event['recipe']}), {out.size(event['bytes'])}"
        self._line(f"beginning with the nearest record, {what}")
        self._line(f"  it differs in {first_of(map(named, event['differs']))}")

    def _on_restore_left(self, _: Event) -> None:
        self._left = True

    def _on_worker_step(self, event: Event) -> None:
        if self._mode == "train":
            found, compiled = self._graphs
            counts = f"graphs: {compiled} compiled, {found} found"
            self._now(f"training: step {event['step']} of {event['of']}; {counts}", rarely=True)

    def _on_worker_log(self, event: Event) -> None:
        if self._mode != "train":
            return
        evaluated = {name.removeprefix("eval_"): event[name] for name in event if name.startswith("eval_")}
        shown = evaluated or {name: event[name] for name in ("loss",) if name in event}
        if shown:
            split = f", {self._split}" if evaluated else ""
            told = {name: float(value) for name, value in shown.items() if name not in SPEED}
            self._line(f"  step {event['step']}{split}: {out.figures(told)}")

    def _on_store_reading(self, event: Event) -> None:
        if event["done"] == event["of"]:
            self.end_line()
        elif event["of"] >= MANY:
            self._now(f"reading records: {event['done']} of {event['of']}", rarely=True)

    def _on_worker_evaluating(self, event: Event) -> None:
        self._split = event["split"]

    def _on_train_compiled(self, event: Event) -> None:
        when = f" in: {', '.join(event['when'])}" if event["when"] else ""
        what = f"{out.count(event['graphs'], 'graph')} and {out.count(event['built'], 'binary', 'binaries')}"
        kept = "what the record lacks is added to it" if self._left else "they are added to the record"
        out.warning(f"{what} compiled{when}; {kept}")


class _Made:
    """For rich: a text that is made each time it is shown. A plain string would be read as markup."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(out.plain(self._make()), no_wrap=True, overflow="ellipsis")
