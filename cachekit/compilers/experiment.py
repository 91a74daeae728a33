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
from cachekit.compilers.evidence import Evidence, Step, Subject, UnknownError, Verdict, one_line
from cachekit.process import SUBREAPER, below

COMMAND = (*start.COMMAND, "cachekit")
RECIPE = ("bert", "--tiny")
LIMIT = 900.0  # seconds for one command; a warm compiles some ten small graphs
ATTEMPTS = 3  # to kill a command while it compiles
OLD = 400 * 86400.0  # seconds; what is that old was left by somebody long ago
_POLL = 0.02
# What a process of another worker has, where torchrun or mpirun started it.
ANOTHER_RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
_MINE = ("CACHEKIT_", *ANOTHER_RANK)  # variables that a user's own shell may have begin so


class Site(Struct, frozen=True):
    """Where a command runs: names of folders below the experiment's."""

    home: str = "first"
    cache: str = "first"
    work: str = "first"
    user: str = "first"


FIRST = Site()


class Promise(Struct, frozen=True):
    """A step of the experiment.

    Attributes:
        name: For people and programs.
        text: What must come of it.
        make: Makes it.
        broken: Why the promise is broken; empty where it is kept.
        after: The step without which it says nothing.
    """

    name: str
    text: str
    make: Callable[[Proof], Step]
    broken: Callable[[Step], str]
    after: str = ""


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
                reason = f"it failed: {before.end}" if before else "it was not made"
                seen.lacking[promise.name] = f"nothing to begin with: {promise.after}: {reason}"
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
        return self.cachekit(place, verb, *RECIPE, *options, "--format", "json")

    def strict(self, place: Site) -> Step:
        """A training that must compile nothing."""
        output = self.folder / f"output-{self._number}"
        return self.recipe("train", place, "--require-warm", "--output-dir", str(output))

    def program(self, place: Site, *options: str, **variables: str) -> Step:
        """`cachekit run` of the probe."""
        report = self.folder / f"report-{self._number}.json"
        words = ("run", "--report", str(report), *options, "--", sys.executable, "-c", self.subject.probe)
        step = self.cachekit(place, *words, **variables)
        answer = _json(report.read_text(encoding="utf-8")) if report.is_file() else _error(step.said)
        return structs.replace(step, answer=answer)

    def cachekit(self, place: Site, *words: str, **variables: str) -> Step:
        """One command of cachekit's."""
        given = (*words[:1], "--compiler", self.subject.compiler, *words[1:]) if _compiles(words[0]) else words
        return self._run(place, (*self._command, *given), variables)

    def bare(self, place: Site, **variables: str) -> Step:
        """The probe without cachekit."""
        return self._run(place, (sys.executable, "-c", self.subject.probe), variables)

    def kill(self, place: Site) -> Step | None:
        """`cachekit run` of the probe, killed with all that it started while it compiles; None where it was quicker."""
        words = (*self._command, "run", "--compiler", self.subject.compiler, "--")
        with self._started(place, (*words, sys.executable, "-c", self.subject.probe), {}) as (process, _, _):
            caught = _until(lambda: self.subject.compiling(process.pid), process, self._limit)
        if not caught:
            return None
        return Step(-signal.SIGKILL, "", {}, "", self._path("cache", place.cache), self.copy(place))

    def copy(self, place: Site) -> Path:
        """A copy of a compiler cache dir as it is now."""
        return Path(
            shutil.copytree(self._path("cache", place.cache), self.folder / f"left-{self._number}", symlinks=True)
        )

    def age(self, place: Site) -> None:
        """Make all files of a compiler cache dir old."""
        past = time.time() - OLD
        for folder, _, names in os.walk(self._path("cache", place.cache)):
            for name in names:
                os.utime(Path(folder, name), (past, past), follow_symlinks=False)

    def _run(self, place: Site, words: Sequence[str], variables: Mapping[str, str]) -> Step:
        cache, logs = self._path("cache", place.cache), self._path("home", place.home) / "v1" / "logs"
        before, printed = self.subject.contents(cache), {*logs.glob("*.log")}
        with self._started(place, words, variables) as (process, out, err):
            ended = _until(lambda: process.poll() is not None, process, self._limit)
        printed_now, said = _text(out), _text(err)
        log = "".join(_text(path) for path in sorted({*logs.glob("*.log")} - printed))
        answer = _json(printed_now) or _error(said)
        code = process.returncode if ended else None
        return Step(code, f"{printed_now}\n{said}", answer, log, cache, new=self.subject.contents(cache) - before)

    @contextmanager
    def _started(
        self, place: Site, words: Sequence[str], variables: Mapping[str, str]
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
        """Start a command; it is killed with all that it started when the block is left."""
        self._number += 1
        out, err = self.folder / f"{self._number}.out", self.folder / f"{self._number}.err"
        cache, user = self._path("cache", place.cache), self._path("user", place.user)
        own = {
            "CACHEKIT_HOME": str(self._path("home", place.home)),
            "CACHEKIT_COMPILER_CACHE_DIR": str(cache / "live"),
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
            _kill(process)

    def _path(self, *names: str) -> Path:
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path


# The steps


def _warm(proof: Proof) -> Step:
    step = proof.recipe("warm", FIRST)
    return structs.replace(step, left=proof.copy(FIRST))  # later steps may leave something else there


def _train(proof: Proof) -> Step:
    return proof.strict(FIRST)


def _another_directory(proof: Proof) -> Step:
    return proof.strict(Site(work="second"))


def _another_cache_dir(proof: Proof) -> Step:
    return proof.strict(Site(cache="second"))


def _another_home(proof: Proof) -> Step:
    """As another user: records come in a bundle, and every other folder is new."""
    bundle, place = str(proof.folder / "all.tar"), Site("second", "of-second-home", "first", "second")
    out = proof.cachekit(FIRST, "store", "export", bundle, "--all")
    if out.code:
        raise UnknownError(f"export failed: {out.end}")
    taken = proof.cachekit(place, "store", "import", bundle, "--trust-all")
    if taken.code:
        raise UnknownError(f"import failed: {taken.end}")
    return proof.strict(place)


def _old_files(proof: Proof) -> Step:
    proof.age(FIRST)
    return proof.strict(FIRST)


def _run(proof: Proof) -> Step:
    return proof.program(FIRST)


def _another_rank(proof: Proof) -> Step:
    return proof.program(FIRST, "--require-warm", **ANOTHER_RANK)


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
        found = again if _kept(again) else proof.program(place, "--require-warm")
        return structs.replace(found, left=killed.left)
    raise UnknownError(f"of {ATTEMPTS} commands none could be killed while it compiled")


def _refused(proof: Proof) -> Step:
    changes = [word for change in proof.subject.refused for word in ("--set", change)]
    return proof.recipe("warm", Site(home="refused", cache="refused"), *changes)


def _compiled_nothing(step: Step) -> str:
    if step.code != 0:
        return step.end
    compiled = step.answer.get("compiled", 0)
    return f"{compiled} graphs compiled" if compiled else ""


def _compiled(step: Step) -> str:
    if step.code != 0:
        return step.end
    return "" if step.answer.get("compiled") else "nothing compiled"


def _kept(step: Step) -> str:
    if broken := _compiled(step):
        return broken
    return "" if step.answer.get("kept") else f"nothing was kept: {step.answer.get('problem')}"


def _anew(step: Step) -> str:
    if step.code != 0:
        return step.end
    return "" if step.new else "no new graph: that of the other flags was taken"


def _fails(step: Step) -> str:
    if step.code is None:
        return step.end
    return "" if step.code else "it did not fail"


PROMISES = (
    Promise("warm", "a tiny BERT is warmed: its graphs compile, and are kept", _warm, _compiled),
    Promise("train", "its training under --require-warm compiles nothing", _train, _compiled_nothing, "warm"),
    Promise("working-directory", "nor from another working directory", _another_directory, _compiled_nothing, "train"),
    Promise("cache-dir", "nor with another compiler cache dir", _another_cache_dir, _compiled_nothing, "train"),
    Promise("home", "nor for another user, after export and import", _another_home, _compiled_nothing, "train"),
    Promise("age", "nor where all files of the cache dir are old", _old_files, _compiled_nothing, "train"),
    Promise("run", "a program of a few lines compiles, and its graph is kept", _run, _kept),
    Promise("rank", f"with {', '.join(ANOTHER_RANK)} set its graph is found", _another_rank, _compiled_nothing, "run"),
    Promise("flags", "with other flags its graph is compiled anew", _other_flags, _anew, "run"),
    Promise(
        "killed", "after a kill while it compiles, it compiles again and is found", _killed, _compiled_nothing, "run"
    ),
    Promise("refused", "a warm fails where the compiler must refuse its flags", _refused, _fails, "warm"),
)


def kept(seen: Evidence) -> Iterator[Verdict]:
    """Which promises the experiment shows to be kept, and which it shows to be broken."""
    for promise in PROMISES:
        if (step := seen.steps.get(promise.name)) is None:
            yield Verdict(promise.name, "unknown", promise.text, one_line(seen.lacking.get(promise.name, "not made")))
        elif broken := promise.broken(step):
            yield Verdict(promise.name, "differs", promise.text, one_line(broken))
        else:
            yield Verdict(promise.name, "ok", promise.text, one_line(_words(step)))


def _words(step: Step) -> str:
    counts = [f"{word} {step.answer[word]}" for word in ("compiled", "found") if word in step.answer]
    return ", ".join(counts) or step.end


# Processes


def _compiles(verb: str) -> bool:
    return verb in {"warm", "train", "run"}


def _until(done: Callable[[], bool], process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for something, for a process's end, or for a limit; whether that something is so."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if done():
            return True
        if process.poll() is not None:
            return done()
        time.sleep(_POLL)
    return done()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, at once."""
    for pid in [process.pid, *below(process.pid)]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error(said: str) -> dict[str, Any]:
    """What a command that answers on stderr says of its failure; nothing where it says none."""
    line = next((line for line in reversed(said.splitlines()) if line.startswith("error[")), "")
    return {"error": {"message": line.partition(": ")[2]}} if line else {}
