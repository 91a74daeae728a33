"""A run's events as a person follows them: one live line on a terminal, few plain lines otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cachekit.cli import out

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
EVERY = 30.0  # seconds between two plain lines about the same thing


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
        self._graphs = (0, 0)
        self._traced = ""
        self._mode = ""
        self._split = "validation"
        self._left = False

    def event(self, event: dict[str, Any]) -> None:
        """Show an event of the journal, if it is one to show."""
        handler = getattr(self, "_on_" + event["event"].replace(".", "_").replace("-", "_"), None)
        if handler is not None:
            handler(event)

    def close(self) -> None:
        """End the live line."""
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
        """The text, and while something compiles for how long and of how long."""
        if self._compiling_since is None or not self._text:
            return self._text
        expected = f" of about {out.duration(self._expected)}" if self._expected else ""
        return f"{self._text}, {out.duration(time.monotonic() - self._compiling_since)}{expected}"

    # Events, by name

    def _on_store_damaged(self, event: dict[str, Any]) -> None:
        if event["reason"] == "it is missing":
            out.warning(f"{event['path']} is missing")
            return
        place = "" if event.get("kept") or not event.get("quarantine") else "; set aside in quarantine"
        out.warning(f"{event['path']} is damaged ({event['reason']}){place}")

    def _on_store_waiting(self, event: dict[str, Any]) -> None:
        waited = out.duration(event["waited"])
        self._now(f"waiting: {event['holder']} removes from the store, {waited} so far", rarely=True)

    def _on_store_unguarded(self, event: dict[str, Any]) -> None:
        waited = out.duration(event["waited"])
        out.warning(f"{event['holder']} has been removing from the store for {waited}; going on without waiting")

    def _on_lock_wait(self, event: dict[str, Any]) -> None:
        self._told = time.monotonic()
        self._line(f"waiting: the same key is being compiled by {event['holder']}")

    def _on_lock_waiting(self, event: dict[str, Any]) -> None:
        self._now(f"still waiting for {event['holder']}", rarely=True)

    def _on_pull_start(self, event: dict[str, Any]) -> None:
        self._line(f"fetching {out.count(event['files'], 'file')}, {out.size(event['bytes'])}, from {event['remote']}")

    def _on_pull_progress(self, event: dict[str, Any]) -> None:
        self._now(f"fetched {out.size(event['bytes'])} of {out.size(event['total'])}", rarely=True)

    def _on_push_tells(self, event: dict[str, Any]) -> None:
        for leak in event["leaks"]:
            out.warning(f"anybody can read {event['remote']}; it tells {leak}")

    def _on_push_progress(self, event: dict[str, Any]) -> None:
        self._now(f"sent {out.size(event['bytes'])} to {event['remote']}", rarely=True)

    def _on_push_wait(self, event: dict[str, Any]) -> None:
        self._now(f"{event['reason']}; again in {out.duration(event['seconds'])}", rarely=event["seconds"] < 1)

    def _on_push_end(self, event: dict[str, Any]) -> None:
        if event["records"] or event["files"]:
            self._line(f"pushed {out.count(event['files'], 'file')}, {out.size(event['bytes'])}, to {event['remote']}")

    def _on_push_failed(self, event: dict[str, Any]) -> None:
        cause = f" ({event['cause']})" if event["cause"] else ""
        out.warning(f"not pushed: {event['reason']}{cause}; later: cachekit push --pending")

    def _on_remote_failed(self, event: dict[str, Any]) -> None:
        hint = f"; {event['hint']}" if event["hint"] and not event["skipped"] else ""
        out.warning(f"{event['remote']} is not used: {event['reason']}{hint}")

    def _on_trust_all(self, event: dict[str, Any]) -> None:  # noqa: ARG002 - as all of them
        out.warning("--trust-all: what anybody made is used, and a compiler cache is code, which runs on this machine")

    def _on_remote_damaged(self, event: dict[str, Any]) -> None:
        out.warning(f"{event['remote']} has a damaged entry for {event['key'][:16]}: {event['reason']}")

    def _on_compile_start(self, event: dict[str, Any]) -> None:
        self._compiling_since = time.monotonic()
        self._expected = event.get("expected_seconds")
        expected = f"; expected about {out.duration(self._expected)}" if self._expected else ""
        self._line(f"compiling: a trial run of a few steps{expected}")

    def _on_build_start(self, event: dict[str, Any]) -> None:
        self._compiling_since = time.monotonic()
        self._line(f"compiling anew, to compare with what {event['by']} made, {event['created'][:16]}")

    def _on_restore(self, event: dict[str, Any]) -> None:
        self._line(f"restored {out.size(event['bytes'])} in {out.duration(event['seconds'])}")

    def _on_command_start(self, event: dict[str, Any]) -> None:  # noqa: ARG002 - as all of them
        self.close()  # the screen is the command's now

    def _on_worker_start(self, event: dict[str, Any]) -> None:
        self._mode = event["mode"]
        self._graphs, self._traced = (0, 0), ""
        if self._mode == "train":
            self._compiling_since = None

    def _on_worker_at(self, event: dict[str, Any]) -> None:
        # The first graph takes most of a compile, and no counter moves meanwhile.
        if self._compiling_since is not None and event["phase"] and event["phase"] not in PHASES:
            self._text = self._counts(event["phase"])

    def _on_worker_tick(self, event: dict[str, Any]) -> None:  # noqa: ARG002 - as all of them
        if self._compiling_since is not None and self._text:
            self._now(self._text, rarely=True)

    def _on_warm_end(self, event: dict[str, Any]) -> None:  # noqa: ARG002 - as all of them
        self._compiling_since = None

    def _counts(self, phase: str) -> str:
        found, compiled = self._graphs
        return f"graphs: {compiled} compiled, {found} found{self._traced}; {phase}"

    def _on_worker_phase(self, event: dict[str, Any]) -> None:
        self._now(PHASES.get(event["name"], event["name"]))

    def _on_worker_graphs(self, event: dict[str, Any]) -> None:
        found, compiled = event["found"], event["compiled"]
        grown = compiled > self._graphs[1]
        self._graphs = (found, compiled)
        if self._mode == "train" and grown:
            out.warning(f"a graph compiled in: {event['phase']}")
        self._traced = f", {event['extracted']} traced" if event.get("extracted") else ""
        self._now(self._counts(event["phase"] or "running"), timed=True)

    def _on_worker_compiled(self, event: dict[str, Any]) -> None:
        if event["failure"]:
            self._line(f"  {event['module']} failed: {event['failure']}")
        elif event["seconds"] is not None:
            self._now(f"compiled {event['done']} of {event['of']}: {event['module']}, {out.duration(event['seconds'])}")

    def _on_worker_lock(self, event: dict[str, Any]) -> None:
        self._now(
            f"waiting for another process that compiles {event['module']}, {event['minutes']:.0f} min", rarely=True
        )

    def _on_worker_lock_cleared(self, event: dict[str, Any]) -> None:
        self._line(f"cleared the lock of {event['module']}: {event['reason']}")

    def _on_worker_lock_found(self, event: dict[str, Any]) -> None:
        out.warning(f"{event['module']} is locked, and may stay so: {event['reason']}; {event['advice']}")

    def _on_worker_lock_held(self, event: dict[str, Any]) -> None:
        self._line(f"{event['module']} is being compiled by another process: {event['reason']}")

    def _on_record_differs(self, event: dict[str, Any]) -> None:
        first = event["modules"][0]
        more = f" and {len(event['modules']) - 1} more" if len(event["modules"]) > 1 else ""
        made = [
            f"{first[side][:12]} by {event[side]['by']}, {event[side]['created'][:16]}" for side in ("ours", "theirs")
        ]
        place = "in the store" if event["where"] == "local" else f"on {event['where']}"
        out.warning(f"{event['key'][:16]} was built twice, with other bytes: {first['name']}{more}")
        out.warning(f"  here {made[0]}; {place} {made[1]}")

    def _on_reuse_restored(self, event: dict[str, Any]) -> None:
        differs = ", ".join(event["differs"][:3]) + (", ..." if len(event["differs"]) > 3 else "")  # noqa: PLR2004
        what = f"{event['nearest'][:16]} ({event['recipe']}), {out.size(event['bytes'])}"
        self._line(f"beginning with the nearest record, {what}")
        self._line(f"  it differs in {differs}")

    def _on_reuse_end(self, event: dict[str, Any]) -> None:
        kernels = f" and {out.count(event['kernels'], 'kernel')}" if event["kernels"] else ""
        self._line(f"{event['graphs']} of {out.count(event['of'], 'graph')}{kernels} came from the nearest record")

    def _on_reuse_failed(self, event: dict[str, Any]) -> None:
        self._line(f"the nearest record was of no use, and everything compiles: {event['reason']}")

    def _on_restore_left(self, event: dict[str, Any]) -> None:
        self._left = True
        out.warning(f"{event['module']} was left as it is, and not restored: {event['reason']}")

    def _on_restore_refused(self, event: dict[str, Any]) -> None:
        out.warning(f"the record cannot be used, and is made anew: {event['reason']}")

    def _on_worker_failed_before(self, event: dict[str, Any]) -> None:
        out.warning(f"{event['module']} failed to compile in an earlier run, and Neuron skips it")

    def _on_worker_failure_cleared(self, event: dict[str, Any]) -> None:
        self._line(f"{event['module']} failed before ({event['class']}); trying again")

    def _on_worker_failure_tried_again(self, event: dict[str, Any]) -> None:
        self._line(f"{event['module']} failed before, and its log does not tell why; trying again")

    def _on_worker_note(self, event: dict[str, Any]) -> None:
        self._line(event["note"])

    def _on_worker_retry(self, event: dict[str, Any]) -> None:
        self._line(f"{out.count(event['graphs'], 'graph')} again, one at a time: {event['reason']}")

    def _on_worker_step(self, event: dict[str, Any]) -> None:
        if self._mode == "train":
            found, compiled = self._graphs
            counts = f"graphs: {found} found, {compiled} compiled"
            self._now(f"training: step {event['step']} of {event['of']}; {counts}", rarely=True)

    def _on_worker_log(self, event: dict[str, Any]) -> None:
        if self._mode != "train":
            return
        evaluated = {name.removeprefix("eval_"): event[name] for name in event if name.startswith("eval_")}
        shown = evaluated or {name: event[name] for name in ("loss",) if name in event}
        if shown:
            split = f", {self._split}" if evaluated else ""
            told = {name: float(value) for name, value in shown.items() if name not in SPEED}
            self._line(f"  step {event['step']}{split}: {out.figures(told)}")

    def _on_store_reading(self, event: dict[str, Any]) -> None:
        if event["done"] == event["of"]:
            self.close()
        elif event["of"] >= MANY:
            self._now(f"reading records: {event['done']} of {event['of']}", rarely=True)

    def _on_verify_progress(self, event: dict[str, Any]) -> None:
        if event["bytes"] < event["total"]:
            self._now(f"checked {out.size(event['bytes'])} of {out.size(event['total'])}", rarely=True)

    def _on_verify_graphs(self, event: dict[str, Any]) -> None:
        if event["of"] >= MANY:
            self._now(f"looking into compiled graphs: record {event['done'] + 1} of {event['of']}", rarely=True)

    def _on_verify_repairing(self, event: dict[str, Any]) -> None:
        self._now(f"repairing {event['key'][:12]} {event['file']}", rarely=True)

    def _on_gc_removing(self, event: dict[str, Any]) -> None:
        if event["files"] % MANY == 0:
            self._now(f"removed {out.count(event['files'], 'file')}", rarely=True)

    def _on_import_reading(self, event: dict[str, Any]) -> None:
        self._now(f"reading {event['compiler']}: module {event['done'] + 1} of {event['of']}", rarely=True)

    def _on_import_progress(self, event: dict[str, Any]) -> None:
        self._now(f"read {out.size(event['bytes'])} of {out.size(event['total'])}", rarely=True)

    def _on_export_progress(self, event: dict[str, Any]) -> None:
        self._now(f"wrote {out.size(event['bytes'])} of {out.size(event['total'])}", rarely=True)

    def _on_import_storing(self, event: dict[str, Any]) -> None:
        self._now(f"storing {out.count(event['modules'], 'module')}, {out.size(event['bytes'])}", rarely=True)

    def _on_worker_evaluating(self, event: dict[str, Any]) -> None:
        self._split = event["split"]

    def _on_resume_passed(self, event: dict[str, Any]) -> None:
        out.warning(f"{event['checkpoint']} is passed over: {event['reason']}")

    def _on_worker_resume(self, event: dict[str, Any]) -> None:
        self._line(f"resuming from {event['checkpoint']}")

    def _on_journal_lost(self, event: dict[str, Any]) -> None:
        out.warning(f"this run's journal could not be written: {event['reason']}")

    def _on_matrix_entry(self, event: dict[str, Any]) -> None:
        self._line(f"{event['number']} of {event['of']}: {event['name']}")

    def _on_contract_check(self, event: dict[str, Any]) -> None:
        self._line(f"  {event['check']} ...")

    def _on_train_compiled(self, event: dict[str, Any]) -> None:
        when = f" in: {', '.join(event['when'])}" if event["when"] else ""
        what = f"{out.count(event['graphs'], 'graph')} and {out.count(event['built'], 'binary', 'binaries')}"
        kept = "what the record lacks is added to it" if self._left else "they are added to the record"
        out.warning(f"{what} compiled{when}; {kept}")

    def _on_train_not_kept(self, event: dict[str, Any]) -> None:
        out.warning(f"what compiled could not be kept: {event['reason']}")


class _Made:
    """For rich: a text that is made each time it is shown. A plain string would be read as markup."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(out.plain(self._make()))
