"""What is promised and assumed of a compiler that nobody can read, and the run from end to end that shows it.

An adapter has a table of assumptions, each with a look at what the run left. What could not be looked at is unknown,
never ok. `verbs.prove` says which commands a `Proof` runs: each in a folder, home and environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from cachekit import start
from cachekit.process import SUBREAPER, below
from cachekit.text import DAY, cut, one_line

State = Literal["ok", "differs", "unknown"]


class UnknownError(Exception):
    """Something could not be looked at; the text says why."""


class Site(Struct, frozen=True):
    """Where a command runs: names of folders below the run's, and of a virtual environment."""

    home: str = "first"
    cache: str = "first"
    work: str = "first"
    user: str = "first"
    environment: str = "first"


class Step(Struct, frozen=True):
    """A command of the run, and what came of it."""

    words: tuple[str, ...]
    site: Site
    variables: Mapping[str, str]  # beside those of its site
    code: int | None  # negative for a signal; None where it did not end in time
    seconds: float
    said: str  # both streams
    answer: Mapping[str, Any]  # what it answered as JSON
    log: str  # what its training worker printed
    journal: str  # what cachekit wrote down of it
    cache: Path  # the compiler cache dir
    files: Mapping[str, tuple[int, float, str]]  # what is new or changed there: size, when it was written, mode
    texts: Mapping[str, str]  # what is in those of them that are small texts
    left: Path | None = None  # a copy of that folder as the command left it; None if none was made
    new: tuple[str, ...] = ()  # finished graphs that it added to the folder

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.code is None:
            return "it did not end in time"
        _, found, error = self.said.rpartition("error[")
        words = error.partition("]: ")[2] if found else self.said.strip().rpartition("\n")[2]
        return f"exit code {self.code}: {cut(' '.join(words.split()), 300)}" if self.code else "exit code 0"


class Evidence(Struct, frozen=True):
    """What the run left, by the names of its steps."""

    steps: dict[str, Step] = {}
    lacking: dict[str, str] = {}  # why the others were not made

    def step(self, name: str) -> Step:
        """A step that was made; raises `UnknownError` if it was not."""
        if name not in self.steps:
            raise UnknownError(self.lacking.get(name, "not tried"))
        return self.steps[name]

    def good(self, name: str) -> Step:
        """A step that ended well; raises `UnknownError` if it failed, or was not made."""
        found = self.step(name)
        if found.code != 0:
            raise UnknownError(f"the step {name} failed: {found.end}")
        return found


# Raises `UnknownError` if the evidence shows nothing; else whether that is as assumed, and what was seen, in words.
Look = Callable[[Evidence], tuple[bool, str]]


class Assumption(Struct, frozen=True):
    """One thing that is promised, or assumed of a compiler."""

    name: str
    text: str
    means: str  # what it means for a user if it is wrong
    look: Look


class Verdict(Struct, frozen=True):
    """What came of one promise or assumption."""

    name: str
    state: State  # `unknown` if nobody could look
    assumed: str
    seen: str  # or why nothing was
    means: str  # what it means for a user if it differs


class Subject(Struct, frozen=True):
    """A compiler whose promises can be tried."""

    compiler: str
    probe: str  # a Python program of a few lines that has one graph compiled
    place: Callable[[Path], Mapping[str, str]]  # what has the compiler, without cachekit, keep its graphs in a folder
    contents: Callable[[Path], frozenset[str]]  # the finished graphs in such a folder
    compiling: Callable[[int], bool]  # whether something compiles below a process
    refused: Mapping[str, str] = {}  # variables with which the probe must fail
    another: Mapping[str, str] = {}  # variables with which the probe's graph must be compiled anew
    cleared: frozenset[str] = frozenset()  # variables of the user's own that would change what is tried
    workers: int = 1  # that the recipe is trained on
    tools: tuple[tuple[str, ...], ...] = ()  # commands that describe the machine, for the report
    rows: tuple[Assumption, ...] = ()


def judged(rows: Iterable[Assumption], seen: Evidence) -> Iterator[Verdict]:
    """Compare each row with the evidence, whatever happens in a look."""
    for row in rows:
        state: State = "unknown"
        try:
            fits, words = row.look(seen)
            state = "ok" if fits else "differs"
        except UnknownError as error:
            words = str(error)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other looks
            words = f"the check itself failed: {type(error).__name__}: {error}"
        words = one_line(" ".join(words.split()))  # tools of others printed them
        yield Verdict(row.name, state, row.text, words, row.means)


COMMAND = (*start.COMMAND, "cachekit")
RECIPE = ("bert", "--tiny")
LIMIT = 480.0  # seconds for one command; a warm compiles some ten small graphs
OLD = 400 * DAY  # seconds; what is that old was left by somebody long ago
TEXT = 1_000_000  # characters of a log that are kept, its end; bytes of a file whose text is kept
_NOTES = (".json", ".log", ".txt")  # files of a cache that are texts
# What processes of a worker have, where torchrun or mpirun started them.
RANK = ("RANK", "LOCAL_RANK", "GROUP_RANK")
WORLD_SIZE = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
_MINE = ("CACHEKIT_", "PYTHONHASHSEED", *RANK, *WORLD_SIZE)  # how variables begin that the user's own shell may have
FIRST = Site()


class Proof:
    """The commands of one run, in an empty temporary folder on a local disk.

    One command may take `limit` seconds, and all of them `total`. All begin with the variables of `environ`.
    """

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        *,
        command: Sequence[str] = COMMAND,
        environ: Mapping[str, str] = os.environ,
        limit: float = LIMIT,
        total: float = 2 * LIMIT,
    ) -> None:
        self.subject, self.folder = subject, folder
        self.commands: list[Step] = []
        self.cachekit, self._limit = command, limit
        self._deadline = time.monotonic() + total
        self.probe = (sys.executable, "-c", subject.probe)
        self._environ = {
            name: value for name, value in environ.items() if name not in subject.cleared and not name.startswith(_MINE)
        }

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.monotonic()

    # Commands

    def warm(self, place: Site, until: Callable[[int], bool] | None = None) -> Step:
        """`warm` of the tiny recipe, and a copy of what it left; killed with all that it started if `until` says so."""
        step = self.recipe(place, "warm", until=until)
        copy = shutil.copytree(step.cache, self.folder / f"left-{len(self.commands)}", symlinks=True)
        return structs.replace(step, left=Path(copy))  # later commands may leave something else there

    def train(self, place: Site) -> Step:
        """`train` of the tiny recipe, which must compile nothing."""
        output = self.folder / f"output-{len(self.commands)}"
        return self.recipe(place, "train", "--require-warm", "--output-dir", str(output))

    def recipe(self, place: Site, *verb: str, until: Callable[[int], bool] | None = None) -> Step:
        """A verb, with options, of the tiny recipe."""
        workers = f"parallel.data_parallel_size={self.subject.workers}"
        words = (*verb, "--compiler", self.subject.compiler, *RECIPE, "--set", workers, "--format", "json")
        return self.run(place, (*self.cachekit, *words), until=until)

    def program(self, place: Site, *options: str, **variables: str) -> Step:
        """`cachekit run` of the probe."""
        report = self.folder / f"report-{len(self.commands)}.json"
        words = ("run", "--compiler", self.subject.compiler, "--report", str(report), *options, "--", *self.probe)
        step = self.run(place, (*self.cachekit, *words), variables)
        return structs.replace(step, answer=_json(report) or step.answer)

    # Places

    def age(self, place: Site) -> None:
        """Make all files of a compiler cache dir old."""
        past = time.time() - OLD
        for path in self._path("cache", place.cache).rglob("*"):
            os.utime(path, (past, past), follow_symlinks=False)

    def forget(self, place: Site) -> None:
        """Begin with an empty store and an empty compiler cache dir."""
        shutil.rmtree(self._path("cache", place.cache))
        shutil.rmtree(self._path("home", place.home))

    def _path(self, *names: str) -> Path:
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _variables(self, place: Site) -> dict[str, str]:
        """What the commands of a place have in their environment."""
        cache, user = self._path("cache", place.cache), self._path("user", place.user)
        found = {
            **self._environ,
            "CACHEKIT_HOME": str(self._path("home", place.home)),
            "CACHEKIT_COMPILER_CACHE_DIR": str(cache / "cache_dirs"),
            "XDG_CONFIG_HOME": str(user / "config"),
            "TMPDIR": str(self._path("user", place.user, "tmp")),
            "HF_HUB_OFFLINE": "1",
            "PWD": str(self._path("work", place.work)),
            **self.subject.place(cache),
        }
        if place.user != FIRST.user:
            found |= {"HOME": str(user), "USER": place.user, "LOGNAME": place.user}
        if place.environment != FIRST.environment:
            python = self._python(place)
            found |= {"VIRTUAL_ENV": str(python.parents[1]), "PATH": f"{python.parent}:{found.get('PATH', os.defpath)}"}
        return found

    def _python(self, place: Site) -> Path:
        """The Python of a place's environment."""
        if place.environment == FIRST.environment:
            return Path(sys.executable)
        if not (folder := self._path("environment") / place.environment).exists():
            _make_environment(folder)
        return folder / "bin" / Path(sys.executable).name

    # Processes

    def run(
        self,
        place: Site,
        words: Sequence[str],
        variables: Mapping[str, str] = {},
        until: Callable[[int], bool] | None = None,
    ) -> Step:
        """Run any command; whatever it started has ended then."""
        if self.left <= 0:
            raise UnknownError("not tried: the time is up")
        number, python = len(self.commands), str(self._python(place))
        cache, store = self._path("cache", place.cache), self._path("home", place.home) / "v1"
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        graphs, had, had_logs = self.subject.contents(cache), _listed(cache), _logs(store)
        began, code, killed = time.monotonic(), None, False
        end = began + min(self._limit, self.left)
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*SUBREAPER, *(python if word == sys.executable else word for word in words)],
                env={**self._variables(place), **variables},
                cwd=self._path("work", place.work),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                umask=-1 if place.user == FIRST.user else 0o037,
            )
        try:
            while (code := process.poll()) is None and time.monotonic() < end and not killed:
                killed = until is not None and until(process.pid)
                time.sleep(0 if killed else 0.02)
        finally:  # the report tells of a command that is interrupted, too
            for pid in [process.pid, *below(process.pid)]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            files = {path: one for path, one in _listed(cache).items() if had.get(path) != one}
            texts = [path for path, one in files.items() if path.endswith(_NOTES) and one[0] < TEXT]
            logs = [(path, text) for path, text in sorted(_logs(store).items()) if had_logs.get(path) != text]
            step = Step(
                words=tuple(words),
                site=place,
                variables=dict(variables),
                code=-signal.SIGKILL if killed else code,
                seconds=round(time.monotonic() - began, 1),
                said=f"{_text(out)}\n{_text(err)}",
                answer=_json(out),
                log="".join(text for path, text in logs if path.suffix == ".log"),
                journal="".join(text for path, text in logs if path.suffix != ".log"),
                cache=cache,
                files=files,
                texts={path: _text(cache / path) for path in texts},
                new=tuple(sorted(self.subject.contents(cache) - graphs)),
            )
            self.commands.append(step)
        if step.code is None and self.left <= 0:
            raise UnknownError("it did not finish in the time allowed")
        return step


def _make_environment(folder: Path) -> None:
    """A virtual environment with links to this one's packages, and with its scripts, which start the new Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    known = [(path, folder / "bin" / path.name) for path in Path(sys.prefix, "bin").iterdir()]
    known += [(path, packages / path.name) for place in site.getsitepackages() for path in Path(place).glob("*")]
    mine, its = (str(one / "bin" / "python") for one in (Path(sys.prefix), folder))
    for path, new in known:
        if not new.exists() and path.lstat().st_size < TEXT and (text := _text(path)).startswith("#!"):
            new.write_text(text.replace(mine, its), encoding="utf-8")
            new.chmod(0o755)
        elif not new.exists():  # as its Python does
            new.symlink_to(path)


def _listed(folder: Path) -> dict[str, tuple[int, float, str]]:
    """The files of a folder, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # gone meanwhile
            one = path.lstat()
            if not path.is_dir():
                found[str(path.relative_to(folder))] = one.st_size, one.st_mtime, f"{one.st_mode & 0o7777:o}"
    return found


def _logs(store: Path) -> dict[Path, str]:
    """Logs and journals of a store."""
    return {path: _text(path) for path in [*(store / "logs").glob("*.log"), *(store / "journal").rglob("*.jsonl")]}


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes().decode("utf-8", "replace")[-TEXT:]
    return ""


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}
