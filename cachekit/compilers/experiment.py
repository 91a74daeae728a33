"""One experiment from end to end: does a compiler keep what cachekit promises?

A tiny BERT is warmed and trained under `--require-warm`; again from another working directory, with another compiler
cache dir, as another user with another home, with files that are old. A program of a few lines is run with another
rank, with other flags, after a kill while it compiled. Each is a child process of the command line, in a temporary
folder; nothing of the user's own is read or written.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from cachekit import start
from cachekit.compilers.evidence import Evidence, Observation, Step, Subject, UnknownError, Verdict, judged
from cachekit.process import SUBREAPER, below

COMMAND = (*start.COMMAND, "cachekit")
RECIPE = ("bert", "--tiny")
LIMIT = 900.0  # seconds for one command; a warm compiles some ten small graphs
ATTEMPTS = 3  # to kill a command while it compiles
OLD = 400 * 86400.0  # seconds; what is that old was left by somebody long ago
_POLL = 0.02
# What a process of another worker has, where torchrun or mpirun started it.
ANOTHER_RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
_MINE = ("CACHEKIT_", *ANOTHER_RANK)  # how variables begin that the user's own shell may have


class Site(Struct, frozen=True):
    """Where a command runs: names of folders below the experiment's."""

    home: str = "first"
    cache: str = "first"
    work: str = "first"
    user: str = "first"


FIRST = Site()


class Proof:
    """The experiment.

    Args:
        subject: The compiler.
        folder: An empty temporary folder on a local disk.
        command: The command line of cachekit.
        tell: Told what begins.
        limit: Seconds for one command.
        environ: The variables that its processes begin with.
    """

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        *,
        command: Sequence[str] = COMMAND,
        tell: Callable[[str], None] = lambda _: None,
        limit: float = LIMIT,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.subject, self.folder = subject, folder
        self._command, self._tell, self._limit = command, tell, limit
        self._probe = (sys.executable, "-c", subject.probe)
        given = os.environ if environ is None else environ
        self._environ = {
            name: value for name, value in given.items() if name not in subject.cleared and not name.startswith(_MINE)
        }
        self._number = 0

    def make(self, only: Sequence[str] = ()) -> Evidence:
        """Make every step, or these and what they need."""
        seen, wanted = Evidence(), {*only}
        for promise in reversed(PROMISES):  # what a step needs comes before it
            wanted |= {promise.after} if promise.name in wanted else set()
        for promise in PROMISES:
            if only and promise.name not in wanted:
                continue
            before = seen.steps.get(promise.after)
            if promise.after and (before is None or before.code):
                reason = f"failed: {before.end}" if before else "was not made"
                seen.lacking[promise.name] = f"not tried, as the step {promise.after} {reason}"
                continue
            self._tell(promise.text)
            try:
                seen.steps[promise.name] = promise.make(self)
            except UnknownError as error:
                seen.lacking[promise.name] = str(error)
        return seen

    # Commands

    def recipe(self, verb: str, place: Site, *options: str) -> Step:
        """`warm` or `train` of the tiny recipe."""
        return self.cachekit(place, verb, "--compiler", self.subject.compiler, *RECIPE, *options, "--format", "json")

    def strict(self, place: Site) -> Step:
        """A training that must compile nothing."""
        output = self.folder / f"output-{self._number}"
        return self.recipe("train", place, "--require-warm", "--output-dir", str(output))

    def program(self, place: Site, *options: str, **variables: str) -> Step:
        """`cachekit run` of the probe."""
        report = self.folder / f"report-{self._number}.json"
        words = ("run", "--compiler", self.subject.compiler, "--report", str(report), *options, "--", *self._probe)
        step = self.cachekit(place, *words, **variables)
        return structs.replace(step, answer=_json(report) or step.answer)

    def cachekit(self, place: Site, *words: str, **variables: str) -> Step:
        """One command of cachekit's."""
        return self._run(place, (*self._command, *words), variables)

    def bare(self, place: Site, **variables: str) -> Step:
        """The probe without cachekit."""
        return self._run(place, self._probe, variables)

    def kill(self, place: Site) -> Step | None:
        """`cachekit run` of the probe, killed with all that it started while it compiles; None where it was quicker."""
        words = (*self._command, "run", "--compiler", self.subject.compiler, "--", *self._probe)
        deadline = time.monotonic() + self._limit
        with self._started(place, words, {}) as (process, _, _):
            while not (compiling := self.subject.compiling(process.pid)):
                if process.poll() is not None or time.monotonic() > deadline:
                    break
                time.sleep(_POLL)
        return Step(-signal.SIGKILL, "", {}, "", self._cache(place), self.copy(place)) if compiling else None

    def copy(self, place: Site) -> Path:
        """A copy of a compiler cache dir as it is now."""
        return Path(shutil.copytree(self._cache(place), self.folder / f"left-{self._number}", symlinks=True))

    def age(self, place: Site) -> None:
        """Make all files of a compiler cache dir old."""
        past = time.time() - OLD
        for folder, _, names in os.walk(self._cache(place)):
            for name in names:
                os.utime(Path(folder, name), (past, past), follow_symlinks=False)

    def _run(self, place: Site, words: Sequence[str], variables: Mapping[str, str]) -> Step:
        cache, logs = self._cache(place), self._path("home", place.home) / "v1" / "logs"
        before, printed = self.subject.contents(cache), {*logs.glob("*.log")}
        with self._started(place, words, variables) as (process, out, err):
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._limit)
            code = process.poll()
        log = "".join(_text(path) for path in sorted({*logs.glob("*.log")} - printed))
        new = self.subject.contents(cache) - before
        return Step(code, f"{_text(out)}\n{_text(err)}", _json(out), log, cache, new=new)

    @contextmanager
    def _started(
        self, place: Site, words: Sequence[str], variables: Mapping[str, str]
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
        """Start a command; it is killed with all that it started when the block is left."""
        self._number += 1
        out, err = self.folder / f"{self._number}.out", self.folder / f"{self._number}.err"
        cache, user = self._cache(place), self._path("user", place.user)
        own = {
            "CACHEKIT_HOME": str(self._path("home", place.home)),
            "CACHEKIT_COMPILER_CACHE_DIR": str(cache / "cache_dirs"),
            "XDG_CONFIG_HOME": str(user / "config"),
            "TMPDIR": str(self._path("user", place.user, "tmp")),
            "HF_HUB_OFFLINE": "1",
        }
        if place.user != FIRST.user:
            own |= {"HOME": str(user), "USER": place.user, "LOGNAME": place.user}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*SUBREAPER, *words],
                env={**self._environ, **own, **self.subject.place(cache), **variables},
                cwd=self._path("work", place.work),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            yield process, out, err
        finally:
            for pid in [process.pid, *below(process.pid)]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def _cache(self, place: Site) -> Path:
        return self._path("cache", place.cache)

    def _path(self, *names: str) -> Path:
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


# The steps


def _warm(proof: Proof) -> Step:
    step = proof.recipe("warm", FIRST)
    return structs.replace(step, left=proof.copy(FIRST))  # later steps may leave something else there


def _another_home(proof: Proof) -> Step:
    """As another user: records come in a bundle, and every other folder is new."""
    bundle, place = str(proof.folder / "all.tar"), Site("second", "of-second-home", "first", "second")
    for at, words in ((FIRST, ("export", bundle, "--all")), (place, ("import", bundle, "--trust-all"))):
        carried = proof.cachekit(at, "store", *words)
        if carried.code:
            raise UnknownError(f"{words[0]} failed: {carried.end}")
    return proof.strict(place)


def _old_files(proof: Proof) -> Step:
    proof.age(FIRST)
    return proof.strict(FIRST)


def _other_flags(proof: Proof) -> Step:
    """In a folder where the program found its graph."""
    place = Site(cache="bare")
    first = proof.bare(place)
    if first.code or not first.new:
        raise UnknownError(f"the program alone left no graph: {first.end}")
    return proof.bare(place, **proof.subject.another)


def _killed(proof: Proof) -> Step:
    for number in range(ATTEMPTS):
        place = Site(home=f"killed-{number}", cache=f"killed-{number}")
        if (killed := proof.kill(place)) is None:
            continue
        proof.age(place)  # what a killed process left counts as left only after a while
        again = proof.program(place)
        found = again if again.code != 0 or _kept(again) else proof.program(place, "--require-warm")
        return structs.replace(found, left=killed.left)
    raise UnknownError(f"none of {ATTEMPTS} commands could be killed while it compiled")


def _refused(proof: Proof) -> Step:
    changes = [word for change in proof.subject.refused for word in ("--set", change)]
    return proof.recipe("warm", Site(home="refused", cache="refused"), *changes)


# What must come of them: each says why it did not; empty where it did


def _compiled_nothing(step: Step) -> str:
    compiled = step.answer.get("compiled", 0)
    return f"{compiled} graphs compiled" if compiled else ""


def _compiled(step: Step) -> str:
    return "" if step.answer.get("compiled") else "nothing compiled"


def _kept(step: Step) -> str:
    return _compiled(step) or ("" if step.answer.get("kept") else f"nothing was kept: {step.answer.get('problem')}")


def _anew(step: Step) -> str:
    return "" if step.new else "no new graph: the graph of the other flags was used"


class Promise(Struct, frozen=True):
    """A step of the experiment.

    Attributes:
        name: For people and programs.
        text: What must come of it.
        make: Makes it.
        broken: Of a step that ended well, why the promise is broken; empty where it is kept.
        after: The step without which it says nothing.
        fails: It must end in failure.
    """

    name: str
    text: str
    make: Callable[[Proof], Step]
    broken: Callable[[Step], str] = lambda _: ""
    after: str = ""
    fails: bool = False

    def look(self, seen: Evidence) -> Observation:
        """Whether the step shows the promise to be kept."""
        step = seen.step(self.name)
        ended = step.code is not None and bool(step.code) == self.fails
        broken = self.broken(step) if ended else step.end
        counts = [f"{word} {step.answer[word]}" for word in ("compiled", "found") if word in step.answer]
        return Observation(not broken, broken or ", ".join(counts) or step.end)


PROMISES = (
    Promise("warm", "a tiny BERT is warmed: its graphs compile, and are kept", _warm, _compiled),
    Promise("train", "its training under --require-warm compiles nothing",
            lambda proof: proof.strict(FIRST), _compiled_nothing, "warm"),
    Promise("working-directory", "nor from another working directory",
            lambda proof: proof.strict(Site(work="second")), _compiled_nothing, "train"),
    Promise("cache-dir", "nor with another compiler cache dir",
            lambda proof: proof.strict(Site(cache="second")), _compiled_nothing, "train"),
    Promise("home", "nor for another user, after export and import", _another_home, _compiled_nothing, "train"),
    Promise("age", "nor where all files of the cache dir are old", _old_files, _compiled_nothing, "train"),
    Promise("run", "a program of a few lines compiles, and its graph is kept",
            lambda proof: proof.program(FIRST), _kept),
    Promise("rank", f"with {', '.join(ANOTHER_RANK)} set its graph is found",
            lambda proof: proof.program(FIRST, "--require-warm", **ANOTHER_RANK), _compiled_nothing, "run"),
    Promise("flags", "with other flags its graph is compiled again", _other_flags, _anew, "run"),
    Promise("killed", "after a kill while it compiles, it compiles again and is found",
            _killed, _compiled_nothing, "run"),
    Promise("refused", "a warm fails where the compiler must refuse its flags", _refused, after="warm", fails=True),
)  # fmt: skip


def kept(seen: Evidence) -> Iterator[Verdict]:
    """Which promises the experiment shows to be kept, and which it shows to be broken."""
    return (judged(promise.name, promise.text, promise.look, seen) for promise in PROMISES)
