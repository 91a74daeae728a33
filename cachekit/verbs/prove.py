"""Whether this host's compiler does what cachekit promises, and is what cachekit takes it for: one run, end to end.

Where something compiles that must not, each difference is tried alone, and so is named. What is cheap comes first: on a
slow host the last parts are those that there is no time for.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct, structs

from cachekit import files, redact
from cachekit.compilers.evidence import (
    FIRST,
    RANK,
    WORLD_SIZE,
    Assumption,
    Evidence,
    Proof,
    Site,
    State,
    Step,
    Subject,
    UnknownError,
    Verdict,
    judged,
)
from cachekit.compilers.machine import Machine
from cachekit.compilers.registry import every
from cachekit.config import defaults
from cachekit.errors import CompilerUnavailableError, StoreError
from cachekit.health import Finding
from cachekit.store.durable import Scratch
from cachekit.store.layout import temporary_folder
from cachekit.text import cause_of
from cachekit.values import Answer
from cachekit.verbs import doctor

Changes = Mapping[str, Mapping[str, str]]  # what is another, by the promise that nothing depends on it
Want = Literal["nothing", "compiled", "failure"]  # what must come of a step: what compiles, or that it fails
MINUTES = 15  # for all of it, on the smallest instance
UNFINISHED, INTERRUPTED = "it is not finished", "it was interrupted"
PROGRAM = Site(home="program", cache="program")


class Contract(Answer, frozen=True, tag="cachekit/contract/1"):
    """What cachekit promises and assumes of a compiler, and what this host's does: the report that can be sent.

    Where there is no compiler to try, `problem` says why, and `hint` what helps. `good` means that this is all of it,
    doctor finds nothing wrong, and nothing that was looked at differs.
    """

    compiler: str = ""
    problem: str = ""
    hint: str = ""
    stopped: str = ""  # why this is not all of it; empty if it is
    interrupted: bool = False  # by Ctrl-C or a signal
    seconds: float = 0.0
    report: str = ""  # the file that has all of this; empty if none was asked for
    findings: tuple[Finding, ...] = ()  # what `doctor` finds of the compiler
    promises: tuple[Verdict, ...] = ()
    assumptions: tuple[Verdict, ...] = ()
    counts: Mapping[str, int] = {}  # of both, by state
    good: bool = False
    machine: Machine | None = None  # as it goes into keys
    packages: Mapping[str, str] = {}  # versions of all of this environment's
    tools: Mapping[str, str] = {}  # what the compiler's own tools say of the machine
    commands: tuple[Step, ...] = ()


def neuron_contract(*, tell: Callable[[str], None] = lambda _: None, report: Path | None = None) -> Contract:
    """Make the run, in a temporary folder that is gone afterwards; the user's own cache is never touched.

    `tell` is told what begins; see `Cache.neuron_contract`.
    """
    began = time.monotonic()
    installed = [check for adapter in every() for check in adapter.checks() if check.installed]
    found = doctor.examine(defaults, installed)
    known = Contract(
        report=str(report.absolute()) if report else "",
        findings=found.findings[1:],  # the first is of settings
        counts=dict.fromkeys(get_args(State), 0),
        machine=found.machine,
        packages={one.metadata["Name"]: one.version for one in metadata.distributions()},
    )
    try:
        subject = assumed()
    except CompilerUnavailableError as error:
        problem = "; ".join(filter(None, (error.message, error.cause)))
        return structs.replace(known, problem=problem, hint=error.hint, report="")

    def answer(proof: Proof, seen: Evidence, stopped: str = UNFINISHED) -> Contract:
        promises, assumptions = (tuple(judged(rows, seen)) for rows in (PROMISES, subject.rows))
        counts = {state: sum(one.state == state for one in (*promises, *assumptions)) for state in known.counts}
        made = structs.replace(
            known,
            compiler=subject.compiler,
            tools=tools,
            stopped=stopped,
            interrupted=stopped == INTERRUPTED,
            seconds=round(time.monotonic() - began, 1),
            promises=promises,
            assumptions=assumptions,
            counts=counts,
            good=not (counts["differs"] or stopped or any(one.state == "problem" for one in known.findings)),
            commands=(*proof.commands,),
        )
        if report:
            files.replace(report, f"{json.dumps(redact.document(made.as_dict()), indent=1)}\n".encode())
        return made

    try:
        # With no dot in its name: optimum-neuron would cut such a path off.
        with Scratch(temporary_folder("contract")) as folder:
            proof, seen = Proof(subject, folder, total=MINUTES * 60), Evidence()
            tools = {" ".join(words): proof.run(FIRST, words).said for words in subject.tools}
            answer(proof, seen)  # a place that cannot be written to is found out now
            tell(f"about ten minutes, {MINUTES} at the most; Ctrl-C ends it and shows what is known so far")
            if report:
                tell(f"the report grows in {known.report}")
            try:
                for _ in make(proof, seen, tell=tell):
                    answer(proof, seen)
            except KeyboardInterrupt:
                return answer(proof, seen, INTERRUPTED)
            return answer(proof, seen, f"{MINUTES} minutes have passed" if proof.left <= 0 else "")
    except OSError as error:
        raise StoreError(
            f"{error.filename or 'a file of the run'} cannot be written",
            cause=cause_of(error),
            hint="set TMPDIR to a folder on a local disk; --report FILE names another place for the report",
        ) from error


def assumed() -> Subject:
    """The compiler of this machine that is tried; raises `CompilerUnavailableError` where it is not there."""
    return next(filter(None, (adapter.assumed() for adapter in every())))


# The steps


def _run(proof: Proof, seen: Evidence) -> None:
    def program(changed: Mapping[str, str]) -> Step:
        return proof.program(PROGRAM, "--require-warm", **changed)

    def worker(rank: str, size: str, language: str, zone: str) -> Changes:
        return {
            "rank": dict.fromkeys(RANK, rank),
            "world-size": dict.fromkeys(WORLD_SIZE, size),
            "locale": {"LANG": language, "LC_ALL": language, "TZ": zone},
        }

    seen.steps["run"] = proof.program(PROGRAM)
    seen.good("run")
    seen.steps["unchanged"] = unchanged = program({})
    if _broken(unchanged):
        raise UnknownError("it compiles again even where nothing has changed")
    _apart(seen, "again", worker("1", "2", "POSIX", "JST-9"), worker("3", "4", "C", "EST5"), program)
    proof.age(PROGRAM)
    seen.steps["age"] = program({})


def _refused(proof: Proof, seen: Evidence) -> None:
    seen.steps["refused"] = proof.program(Site(home="refused", cache="refused"), **proof.subject.refused)


def _flags(proof: Proof, seen: Evidence) -> None:
    """Without cachekit, in a folder where the program found its graph."""
    place = Site(cache="bare")
    seen.steps["alone"] = first = proof.run(place, proof.probe)
    if first.code or not first.new:
        raise UnknownError(f"the program alone left no graph: {first.end}")
    seen.steps["flags"] = proof.run(place, proof.probe, proof.subject.another)


def _warm(proof: Proof, seen: Evidence) -> None:
    seen.lacking["compiler-process"] = "none was seen while it was warmed"
    seen.steps["plan"] = proof.recipe(FIRST, "plan")  # what cachekit takes the machine for, also where a warm dies

    def halfway(pid: int) -> bool:
        if not proof.subject.compiling(pid):
            return False
        seen.lacking.pop("compiler-process", None)
        return bool(proof.subject.contents(proof.folder / "cache" / FIRST.cache))

    first = proof.warm(FIRST, until=halfway)
    if first.code != -signal.SIGKILL:
        seen.lacking["killed"] = f"the warm ended before it could be killed: {first.end}"
        seen.steps["warm"] = first
        return
    proof.age(FIRST)  # what a killed process left counts as left only after a while
    again = proof.warm(FIRST)
    seen.steps["killed"] = structs.replace(again, left=first.left)
    if _broken(again, "compiled"):
        proof.forget(FIRST)  # what follows is of a warm that nobody killed
        again = proof.warm(FIRST)
    seen.steps["warm"] = again


def _train(proof: Proof, seen: Evidence) -> None:
    """The last time as another user, whose records come in a bundle."""
    seen.steps["train"] = proof.train(FIRST)
    seen.good("train")
    there, bundle = "second", str(proof.folder / "all.tar")
    changes = {
        "working-directory": {"work": f"{there}/deeper"},
        "home": {"home": there},
        "cache-dir": {"cache": there},
        "user": {"user": there},
        "virtual-environment": {"environment": there},
    }
    proof.run(FIRST, (*proof.cachekit, "store", "export", bundle, "--all"))
    proof.run(Site(home=there), (*proof.cachekit, "store", "import", bundle, "--trust-all"))
    alone = {**changes, "cache-dir": {"cache": "the-third"}}
    _apart(seen, "elsewhere", changes, alone, lambda changed: proof.train(Site(**changed)))


def _apart(seen: Evidence, name: str, changes: Changes, alone: Changes, make: Callable[[dict[str, str]], Step]) -> None:
    """Try all changes at once; if something compiles then, each alone, to other values: what compiled may be there."""
    together = make({word: value for change in changes.values() for word, value in change.items()})
    seen.steps[name] = together
    for one in changes:
        seen.steps[one] = make({**alone[one]}) if _broken(together) else together


# What must come of them


def _broken(step: Step, want: Want = "nothing") -> str:
    """Why a step did not come out as it must; empty where it did."""
    compiled = step.answer.get("compiled", len(step.new))
    if want == "failure":
        return "" if step.code else f"{step.end}, though the compiler refuses the flag"
    if step.code != 0:
        return step.end
    if want == "nothing":
        return f"{compiled} graphs compiled" if compiled else ""
    if not compiled:
        return "nothing compiled"
    return "" if step.answer.get("kept", True) else f"nothing was kept: {step.answer.get('problem')}"


def _promise(name: str, text: str, means: str, want: Want = "nothing") -> Assumption:
    """What the step of that name must show."""

    def look(seen: Evidence) -> tuple[bool, str]:
        step = seen.step(name)
        counts = [f"{word} {step.answer[word]}" for word in ("compiled", "found") if word in step.answer]
        broken = _broken(step, want)
        return not broken, broken or ", ".join(counts) or f"exit code {step.code}"

    return Assumption(name, text, means, look)


class Part(Struct, frozen=True):
    """A part of the run."""

    text: str  # what it does
    make: Callable[[Proof, Evidence], None]  # adds its steps
    promises: tuple[Assumption, ...]  # what they show
    after: str = ""  # the step without which it says nothing


ALL_AGAIN = "all of it compiles again, though the record is there"
PARTS = (
    Part("running a program of a few lines, and again: as another worker, in another language, with old files", _run, (
        _promise("run", "a program of a few lines compiles, and its graph is kept",
                "`cachekit run` of users' own scripts keeps nothing", "compiled"),
        _promise("unchanged", "where nothing has changed, its graph is found",
                "names of graphs depend on chance: every run compiles"),
        _promise("again", "as another worker, in another language, its graph is found",
                "what is found depends on who asks; the next lines say on what"),
        _promise("rank", f"with {', '.join(RANK)}, its graph is found",
                "each worker has graphs of its own, and a record of two workers is twice as large and as slow to make"),
        _promise("world-size", f"with {', '.join(WORLD_SIZE)}, its graph is found",
                f"on another number of workers {ALL_AGAIN}"),
        _promise("locale", "with another LANG, LC_ALL and TZ, its graph is found",
                f"for users of another language, or in another region, {ALL_AGAIN}"),
        _promise("age", "where all files of the cache dir are old, its graph is found",
                "after some days everything compiles again"),
    )),
    Part("running it with other flags, which must compile", _flags, (
        _promise("flags", "with other flags, its graph is compiled again",
                "a run may use graphs that were compiled with other flags: wrong results", "compiled"),
    ), "run"),
    Part("running it with a flag that the compiler must refuse", _refused, (
        _promise("refused", "a run fails where the compiler must refuse its flags",
                "a graph that does not compile goes unnoticed, and the run is slow or wrong", "failure"),
    ), "run"),
    Part("warming a tiny BERT, killing the warm while it compiles, and warming again", _warm, (
        _promise("killed", "a warm that is killed while it compiles can be made again",
                "after Ctrl-C, or a reclaimed spot instance, the cache must be emptied by hand", "compiled"),
        _promise("warm", "a tiny BERT is warmed: its graphs compile, and are kept",
                "nothing can be kept, and every run compiles", "compiled"),
    )),
    Part("training it, and once more elsewhere, as another user, from a bundle", _train, (
        _promise("train", "its training under --require-warm compiles nothing",
                "a run after `warm` compiles all the same: the cache saves nothing"),
        _promise("elsewhere", "nor where everything differs at once",
                "a record helps only where it was made; the next lines say what it depends on"),
        _promise("working-directory", "nor from another working directory", f"from another folder {ALL_AGAIN}"),
        _promise("home", "nor with another store, filled by export and import", f"on another machine {ALL_AGAIN}"),
        _promise("cache-dir", "nor with another compiler cache dir", f"with another cache dir {ALL_AGAIN}"),
        _promise("user", "nor for another user, with another home, temporary folder and umask",
                f"for each other member of a team {ALL_AGAIN}"),
        _promise("virtual-environment", "nor from another virtual environment with the same packages",
                f"in another virtual environment {ALL_AGAIN}"),
    ), "warm"),
)  # fmt: skip
PROMISES = tuple(promise for part in PARTS for promise in part.promises)


def make(
    proof: Proof, seen: Evidence, parts: Sequence[Part] = PARTS, tell: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Make the parts one after another; each is a step on."""
    for number, part in enumerate(parts, 1):
        try:
            if part.after:
                seen.good(part.after)
            tell(f"{number} of {len(parts)}: {part.text}")
            part.make(proof, seen)
        except UnknownError as error:
            for promise in part.promises:
                seen.lacking.setdefault(promise.name, str(error))
        yield
