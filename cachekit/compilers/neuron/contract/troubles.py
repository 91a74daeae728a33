"""Checks on locks and on failures that are remembered: what cachekit clears, explains, or leaves alone."""

from __future__ import annotations

from cachekit.compilers.neuron import facts, locks
from cachekit.compilers.neuron.contract.check import Seen, UnknownError, check
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.compilers.neuron.failures import USER_ERROR, classify

_KILL = "kills a compile with SIGKILL as soon as its lock is seen"
_WAIT = "runs the script beside the lock of a killed compile"
_FAIL = "the script with a flag that the compiler does not know"


@check(
    "lock-live",
    "while a module compiles, one of {COMPILER_PROCESSES} names it on its command line or has its files open",
    where=("COMPILER_PROCESSES", "locks.judge"),
    how="judges the lock of a running compile",
)
def lock_live(lab: Lab) -> Seen:
    """A lock that is held is told from one that is left."""
    found = lab.killed.finding
    return Seen(found.verdict == "live", f"{found.verdict}: {found.reason}")


@check(
    "lock-left",
    "a compile that is killed leaves one empty lock, {HLO_FILES[0]}{LOCK_SUFFIX}, and nothing finished",
    where=("LOCK_SUFFIX", "HLO_FILES"),
    how=_KILL,
)
def lock_left(lab: Lab) -> Seen:
    """The lock has a name, and neither owner nor contents."""
    left = lab.killed
    named = left.entry.locks == (f"{facts.HLO_FILES[0]}{facts.LOCK_SUFFIX}",)
    words = f"{', '.join(left.entry.names) or 'no file'}; lock of {', '.join(map(str, left.sizes)) or 'no'} bytes"
    return Seen(named and left.sizes == (0,) and left.entry.state == "locked", words)


@check(
    "lock-waited-for",
    "a lock that nobody holds is waited for, with `Another process must be compiling …` once a minute",
    where=("LOG_WORDS",),
    how=_WAIT,
)
def lock_waited_for(lab: Lab) -> Seen:
    """A wait is seen in the log."""
    found = lab.waited
    waits = found.run.log.waits
    if waits:
        words = f"{max(waits.values()):g} min waited, on {found.run.stream('waiting')}"
        return Seen(lab.killed.entry.name in waits, words)
    return Seen(fits=False, words=f"no such line; {found.run.end if found.early else 'it waited without a word'}")


@check(
    "lock-removed",
    "when the lock is removed, who waited for it compiles the module",
    where=("locks.clear",),
    how=f"{_WAIT}, and removes it",
)
def lock_removed(lab: Lab) -> Seen:
    """Clearing a stale lock helps those that wait already."""
    if not lab.waited.run.log.waits:
        raise UnknownError("nobody was seen to wait")
    ended = lab.waited.ended
    if ended is None:
        return Seen(fits=False, words="it went on waiting")
    fits = ended.code == 0 and lab.killed.entry.name in ended.log.compiled
    return Seen(fits, "it compiled the module" if fits else ended.end)


@check(
    "cache-libraries",
    "a process that uses Neuron's cache has one of {CACHE_LIBRARIES} mapped",
    where=("CACHE_LIBRARIES",),
    how=f"{_WAIT}, and looks at /proc/<pid>/maps",
)
def cache_libraries(lab: Lab) -> Seen:
    """Otherwise a lock would be called stale between two compiles of a run that goes on."""
    mapped = lab.waited.mapped
    if mapped is None:
        raise UnknownError("its memory map cannot be seen")
    return Seen(mapped, "mapped" if mapped else "neither is mapped")


@check(
    "failure-log",
    "a compile that fails leaves {FAILURE_LOG}, neither {NEFF} nor {DONE} nor a lock",
    where=("FAILURE_LOG",),
    how=_FAIL,
)
def failure_log(lab: Lab) -> Seen:
    """How Neuron remembers a failure."""
    run, entry = lab.failed
    if entry.state == "success":
        raise UnknownError("the compiler took the flag that it should not know")
    fits = entry.state == "failed" and not entry.locks
    return Seen(fits, f"{', '.join(entry.names)}; {run.end}")


@check(
    "failure-class",
    "the compiler's refusal of a flag is read as: user-error, which will come again",
    where=("FAILURE_WORDS",),
    how=f"{_FAIL}; reads {facts.FAILURE_LOG}",
)
def failure_class(lab: Lab) -> Seen:
    """What is remembered is understood."""
    found = locks.poisoned([lab.failed[1]])
    if not found:
        raise UnknownError("no failure is remembered")
    failure = classify("\n".join(found[0].excerpt))
    return Seen(failure.kind is USER_ERROR, f"{failure.kind.name}: {failure.message or found[0].excerpt[-1]}")


@check(
    "failure-remembered",
    "the next run says `Got a cached failed neff at …`, and does not compile",
    where=("LOG_WORDS", "FAILURE_LOG"),
    how=f"{_FAIL}, once more",
)
def failure_remembered(lab: Lab) -> Seen:
    """A remembered failure is told in the log."""
    run, entry = lab.failed_again, lab.failed[1]
    if entry.state != "failed":
        raise UnknownError("no failure is remembered to begin with")
    skipped = entry.name in run.log.remembered and not run.log.compiled
    return Seen(skipped, f"told on {run.stream('cached-failure')}" if skipped else run.end)


@check(
    "npc-hides-failures",
    "{PARALLEL_COMPILE} ends with 0 and counts no failure, whatever it remembers; `failed are N` has it",
    where=("LOG_WORDS", "log.summary.Log"),
    how="neuron_parallel_compile on a root with a remembered failure",
)
def npc_hides_failures(lab: Lab) -> Seen:
    """Why warm judges by the files."""
    run = lab.parallel_failed
    log = run.log
    own = log.summary.get("failed")
    words = f"exit code {run.code}, {own} failed in its summary, {log.failed_before} remembered"
    return Seen(run.code == 0 and not own and log.failed_before > 0, words)


CHECKS = (
    lock_live, lock_left, lock_waited_for, lock_removed, cache_libraries, failure_log, failure_class,
    failure_remembered, npc_hides_failures,
)  # fmt: skip
