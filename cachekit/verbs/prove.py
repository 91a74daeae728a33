"""Whether this host's compiler does what cachekit promises, and is what cachekit takes it for: one run, end to end.

A program of a few lines is run, and run again: unchanged, then as another worker, in another language, with old files.
A tiny BERT is warmed, killed while it compiles, warmed again, and trained under `--require-warm`. It is trained once
more where everything is another: working directory, store (filled by export and import), compiler cache dir, user,
virtual environment. Where something compiles that must not, each difference is tried alone, and so is named. What is
cheap comes first: on a slow host the last parts are those that there is no time for.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

from msgspec import Struct, structs

from cachekit import files, redact
from cachekit.compilers.evidence import (
    Assumption,
    Evidence,
    Observation,
    Site,
    Step,
    Subject,
    UnknownError,
    Verdict,
    count,
    judged,
)
from cachekit.compilers.experiment import FIRST, RANK, WORLD_SIZE, Proof
from cachekit.compilers.machine import Machine
from cachekit.compilers.registry import every
from cachekit.config import defaults
from cachekit.errors import CompilerUnavailableError, StoreError
from cachekit.health import Finding
from cachekit.store.layout import temporary_folder
from cachekit.store.scratch import Scratch
from cachekit.text import cause_of
from cachekit.values import Answer
from cachekit.verbs import doctor

Changes = Mapping[str, Mapping[str, str]]  # what is another, by the promise that nothing depends on it
MINUTES = 15  # for all of it, on the smallest instance
UNFINISHED, INTERRUPTED = "it is not finished", "it was interrupted"
PROGRAM = Site(home="program", cache="program")


class Contract(Answer, frozen=True):
    """What cachekit promises and assumes of a compiler, and what this host's does: the report that can be sent.

    Attributes:
        compiler: Which one it is; empty where there is none.
        problem: Why there is none to try; empty if there is.
        hint: What helps then.
        stopped: Why this is not all of it; empty if it is.
        interrupted: It was ended by Ctrl-C or a signal.
        seconds: Wall time.
        report: The file that has all of this; empty if none was asked for.
        findings: What `doctor` finds of the compiler's packages, tools, devices and cache.
        promises: What the run shows of each promise.
        assumptions: What it shows of each assumption.
        counts: How many promises and assumptions are `ok`, `differs` and `unknown`.
        good: This is all of it, doctor finds nothing wrong, and nothing that was looked at differs.
        machine: This machine as it goes into keys.
        packages: Versions of all packages of this environment.
        tools: What the compiler's own tools say of the machine.
        commands: Every command of the run, with what it printed, and the files that it left.
    """

    compiler: str = ""
    problem: str = ""
    hint: str = ""
    stopped: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    report: str = ""
    findings: tuple[Finding, ...] = ()
    promises: tuple[Verdict, ...] = ()
    assumptions: tuple[Verdict, ...] = ()
    counts: Mapping[str, int] = {}
    good: bool = False
    machine: Machine | None = None
    packages: Mapping[str, str] = {}
    tools: Mapping[str, str] = {}
    commands: tuple[Step, ...] = ()


def neuron_contract(*, tell: Callable[[str], None] = lambda _: None, report: Path | None = None) -> Contract:
    """Make the run, in a temporary folder that is gone afterwards; the user's own cache is never touched.

    Args:
        tell: Told what begins, as it may take minutes.
        report: The file that gets the answer: after each step what is known by then.

    Raises:
        StoreError: No temporary folder can be made, or the report cannot be written.
    """
    began = time.monotonic()
    installed = [check for adapter in every() for check in adapter.checks() if check.installed]
    found = doctor.examine(defaults, installed)
    known = Contract(
        report=str(report.absolute()) if report else "",
        findings=found.findings[1:],  # the first is of settings
        counts=count(()),
        machine=found.machine,
        packages={one.metadata["Name"]: one.version for one in metadata.distributions()},
    )
    try:
        subject = assumed()
    except CompilerUnavailableError as error:
        problem = "; ".join(filter(None, (error.message, error.cause)))
        return structs.replace(known, problem=problem, hint=error.hint, report="")
    known = structs.replace(
        known, compiler=subject.compiler, tools={" ".join(one): _said(one) for one in subject.tools}
    )

    with _folder() as folder:
        proof, seen = Proof(subject, folder, total=MINUTES * 60), Evidence()

        def answer(stopped: str = UNFINISHED) -> Contract:
            promises, assumptions = (tuple(judged(rows, seen, subject.facts)) for rows in (PROMISES, subject.rows))
            counts = count((*promises, *assumptions))
            wrong = any(finding.state == "problem" for finding in known.findings)
            made = structs.replace(
                known,
                stopped=stopped,
                interrupted=stopped == INTERRUPTED,
                seconds=round(time.monotonic() - began, 1),
                promises=promises,
                assumptions=assumptions,
                counts=counts,
                good=not (counts["differs"] or wrong or stopped),
                commands=(*proof.commands,),
            )
            if report:
                _write(report, made)
            return made

        answer()  # a place that cannot be written to is found out now
        tell(f"about ten minutes, {MINUTES} at the most; Ctrl-C ends it and shows what is known by then")
        if report:
            tell(f"the report grows in {known.report}")
        try:
            for _ in make(proof, seen, tell=tell):
                answer()
        except KeyboardInterrupt:
            return answer(INTERRUPTED)
        return answer(f"{MINUTES} minutes are over" if proof.left <= 0 else "")


def assumed() -> Subject:
    """The first compiler of this machine of which anything is assumed.

    Raises:
        CompilerUnavailableError: It is not there, or has no device.
    """
    found = next(filter(None, (adapter.assumed() for adapter in every())), None)
    if found is None:
        raise CompilerUnavailableError("no compiler on this machine has assumptions that could be proved")
    return found


# The steps


def _run(proof: Proof, seen: Evidence) -> None:
    seen.steps["run"] = proof.program(PROGRAM)


def _again(proof: Proof, seen: Evidence) -> None:
    def program(changed: Mapping[str, str]) -> Step:
        return proof.program(PROGRAM, "--require-warm", **changed)

    def worker(rank: str, size: str, language: str, zone: str) -> Changes:
        return {
            "rank": dict.fromkeys(RANK, rank),
            "world-size": dict.fromkeys(WORLD_SIZE, size),
            "locale": {"LANG": language, "LC_ALL": language, "TZ": zone},
        }

    seen.steps["unchanged"] = unchanged = program({})
    if _broken(unchanged):
        raise UnknownError("it compiles anew even where nothing is changed")
    _apart(seen, "again", worker("1", "2", "POSIX", "JST-9"), worker("3", "4", "C", "EST5"), program)
    proof.age(PROGRAM)
    seen.steps["age"] = program({})


def _flags(proof: Proof, seen: Evidence) -> None:
    """In a folder where the program found its graph."""
    place = Site(cache="bare")
    first = proof.bare(place)
    if first.code or not first.new:
        raise UnknownError(f"the program alone left no graph: {first.end}")
    seen.steps["flags"] = proof.bare(place, **proof.subject.another)


def _refused(proof: Proof, seen: Evidence) -> None:
    seen.steps["refused"] = proof.program(Site(home="refused", cache="refused"), **proof.subject.refused)


def _warm(proof: Proof, seen: Evidence) -> None:
    seen.lacking["compiler-process"] = "none was seen while it was warmed"

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
    if _broken(again, _compiled):
        proof.forget(FIRST)  # what follows is of a warm that nobody killed
        again = proof.warm(FIRST)
    seen.steps["warm"] = again


def _train(proof: Proof, seen: Evidence) -> None:
    seen.steps["train"] = proof.train(FIRST)


def _elsewhere(proof: Proof, seen: Evidence) -> None:
    """Another user's processes: records come in a bundle."""
    there, bundle = "second", str(proof.folder / "all.tar")
    changes = {
        "working-directory": {"work": there},
        "home": {"home": there},
        "cache-dir": {"cache": there},
        "user": {"user": there},
        "virtual-environment": {"environment": there},
    }
    try:
        proof.environment(there)
    except UnknownError as error:
        del changes["virtual-environment"]
        seen.lacking["virtual-environment"] = str(error)
    for place, words in ((FIRST, ("export", bundle, "--all")), (Site(home=there), ("import", bundle, "--trust-all"))):
        carried = proof.store(place, *words)
        if carried.code:
            seen.steps["home"] = carried
            del changes["home"]
            break
    alone = {**changes, "cache-dir": {"cache": "third"}}
    _apart(seen, "elsewhere", changes, alone, lambda changed: proof.train(Site(**changed)))


def _apart(seen: Evidence, name: str, changes: Changes, alone: Changes, make: Callable[[dict[str, str]], Step]) -> None:
    """Try all changes at once; if something compiles then, each alone, to other values: what compiled may be there."""
    together = make({word: value for change in changes.values() for word, value in change.items()})
    seen.steps[name] = together
    for one in changes:
        seen.steps[one] = make({**alone[one]}) if _broken(together) else together


# What must come of them: why it did not; empty where it did


def _compiled_nothing(step: Step) -> str:
    compiled = step.answer.get("compiled", 0)
    return f"{compiled} graphs compiled" if compiled else ""


def _compiled(step: Step) -> str:
    return "" if step.answer.get("compiled") else "nothing compiled"


def _kept(step: Step) -> str:
    return _compiled(step) or ("" if step.answer.get("kept") else f"nothing was kept: {step.answer.get('problem')}")


def _anew(step: Step) -> str:
    return "" if step.new else "no new graph: the graph of the other flags was used"


def _failed(step: Step) -> str:
    return "" if step.code else f"{step.end}, though the compiler refuses the flag"


def _broken(step: Step, ask: Callable[[Step], str] = _compiled_nothing) -> str:
    return ask(step) if step.code == 0 or (step.code and ask is _failed) else step.end


def _promise(name: str, text: str, means: str, ask: Callable[[Step], str] = _compiled_nothing) -> Assumption:
    """What the step of that name must show."""

    def look(seen: Evidence) -> Observation:
        step = seen.step(name)
        broken = _broken(step, ask)
        counts = [f"{word} {step.answer[word]}" for word in ("compiled", "found") if word in step.answer]
        shown = ", ".join(counts) or (f"{len(step.new)} new" if step.new else "")
        return Observation(not broken, broken or (not step.code and shown) or f"exit code {step.code}")

    return Assumption(name, text, means, look)


class Part(Struct, frozen=True):
    """A part of the run.

    Attributes:
        text: What it does.
        make: Adds its steps.
        promises: What they show.
        after: The step without which it says nothing.
    """

    text: str
    make: Callable[[Proof, Evidence], None]
    promises: tuple[Assumption, ...]
    after: str = ""


ALL_AGAIN = "all of it compiles again, though the record is there"
PARTS = (
    Part("running a program of a few lines, whose graph is kept", _run, (
        _promise("run", "a program of a few lines compiles, and its graph is kept",
                "`cachekit run` of users' own scripts keeps nothing", _kept),
    )),
    Part("running it again: unchanged, as another worker, in another language, with old files", _again, (
        _promise("unchanged", "where nothing is changed its graph is found",
                "names of graphs depend on chance: every run compiles"),
        _promise("again", "as another worker, in another language, its graph is found",
                "what is found depends on who asks; the next lines say on what"),
        _promise("rank", f"with {', '.join(RANK)} its graph is found",
                "each worker has graphs of its own, and a record of two workers is twice as large and as slow to make"),
        _promise("world-size", f"with {', '.join(WORLD_SIZE)} its graph is found",
                f"on another number of workers {ALL_AGAIN}"),
        _promise("locale", "with another LANG, LC_ALL and TZ its graph is found",
                f"for users of another language, or in another region, {ALL_AGAIN}"),
        _promise("age", "where all files of the cache dir are old its graph is found",
                "after some days everything compiles again"),
    ), "run"),
    Part("running it with other flags, which must compile", _flags, (
        _promise("flags", "with other flags its graph is compiled again",
                "a run may use graphs that were compiled with other flags: wrong results", _anew),
    ), "run"),
    Part("running it with a flag that the compiler must refuse", _refused, (
        _promise("refused", "a run fails where the compiler must refuse its flags",
                "a graph that does not compile goes unnoticed, and the run is slow or wrong", _failed),
    ), "run"),
    Part("warming a tiny BERT, killing that while it compiles, and warming it again", _warm, (
        _promise("killed", "a warm that is killed while it compiles can be made again",
                "after Ctrl-C, or a reclaimed spot instance, the cache must be emptied by hand", _compiled),
        _promise("warm", "a tiny BERT is warmed: its graphs compile, and are kept",
                "nothing can be kept, and every run compiles", _compiled),
    )),
    Part("training it, which must compile nothing", _train, (
        _promise("train", "its training under --require-warm compiles nothing",
                "a run after `warm` compiles all the same: the cache saves nothing"),
    ), "warm"),
    Part("training it elsewhere, as another user, from a bundle", _elsewhere, (
        _promise("elsewhere", "nor where everything is another at once",
                "a record helps only where it was made; the next lines say what it depends on"),
        _promise("working-directory", "nor from another working directory", f"from another folder {ALL_AGAIN}"),
        _promise("home", "nor with another store, filled by export and import", f"on another machine {ALL_AGAIN}"),
        _promise("cache-dir", "nor with another compiler cache dir", f"with another cache dir {ALL_AGAIN}"),
        _promise("user", "nor for another user, with another home and temporary folder",
                f"for each other member of a team {ALL_AGAIN}"),
        _promise("virtual-environment", "nor from another virtual environment with the same packages",
                f"in another virtual environment {ALL_AGAIN}"),
    ), "train"),
)  # fmt: skip
PROMISES = tuple(promise for part in PARTS for promise in part.promises)


def make(
    proof: Proof, seen: Evidence, only: Sequence[str] = (), tell: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Make the parts one after another, or those that show some promises, and what these need; each is a step on."""
    wanted = {*only}
    for part in reversed(PARTS):  # what a part needs comes before it
        if any(promise.name in wanted for promise in part.promises):
            wanted.add(part.after)
    parts = [part for part in PARTS if not only or any(promise.name in wanted for promise in part.promises)]
    for number, part in enumerate(parts, 1):
        lacking = ""
        before = seen.steps.get(part.after)
        if proof.left <= 0:
            lacking = "not tried, as the time is over"
        elif part.after and (before is None or before.code != 0):
            reason = f"failed: {before.end}" if before else "was not made"
            lacking = f"not tried, as the step {part.after} {reason}"
        else:
            tell(f"{number} of {len(parts)}: {part.text}")
            try:
                part.make(proof, seen)
            except UnknownError as error:
                lacking = str(error)
        for promise in part.promises:
            if promise.name not in seen.steps:
                seen.lacking.setdefault(promise.name, lacking)
        yield


# The report


def _said(words: Sequence[str]) -> str:
    """What a command prints, or why it does not."""
    try:
        done = subprocess.run(words, check=False, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def _write(path: Path, answer: Contract) -> None:
    text = json.dumps(redact.document(answer.as_dict()), indent=1, ensure_ascii=False)
    try:
        files.replace(path, f"{text}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written", cause=cause_of(error), hint="--report FILE names another place"
        ) from error


@contextmanager
def _folder() -> Iterator[Path]:
    """One that the next run removes if this one is killed."""
    with ExitStack() as stack:
        try:
            # With no dot in its name: optimum-neuron would cut such a path off.
            folder = stack.enter_context(Scratch(temporary_folder("contract")))
        except OSError as error:
            raise StoreError(
                "no temporary folder can be made",
                cause=cause_of(error),
                hint="make room in it, or set TMPDIR to a folder on a local disk",
            ) from error
        yield folder
