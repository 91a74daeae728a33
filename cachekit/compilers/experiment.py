"""The commands of a run that tries a compiler's promises: where each runs, what it printed, and what it left.

Each command is a child process of the command line, in a temporary folder; nothing of the user's own is read or
written.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from cachekit import start
from cachekit.compilers.evidence import Site, Step, Subject, UnknownError
from cachekit.process import SUBREAPER, below

COMMAND = (*start.COMMAND, "cachekit")
RECIPE = ("bert", "--tiny")
LIMIT = 480.0  # seconds for one command; a warm compiles some ten small graphs
OLD = 400 * 86400.0  # seconds; what is that old was left by somebody long ago
TEXT = 1_000_000  # characters of a log that are kept, its end; bytes of a file whose text is kept
_POLL = 0.02
_NOTES = (".json", ".log", ".txt")  # files of a cache that are texts
# What processes of a worker have, where torchrun or mpirun started them.
RANK = ("RANK", "LOCAL_RANK")
WORLD_SIZE = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
_MINE = ("CACHEKIT_", "PYTHONHASHSEED", *RANK, *WORLD_SIZE)  # how variables begin that the user's own shell may have
FIRST = Site()


class Proof:
    """The commands of one run.

    Args:
        subject: The compiler.
        folder: An empty temporary folder on a local disk.
        command: The command line of cachekit.
        environ: The variables that its processes begin with.
        limit: Seconds for one command.
        total: Seconds for all of them.
    """

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        *,
        command: Sequence[str] = COMMAND,
        environ: Mapping[str, str] | None = None,
        limit: float = LIMIT,
        total: float = 2 * LIMIT,
    ) -> None:
        self.subject, self.folder = subject, folder
        self.commands: list[Step] = []
        self._command, self._limit = command, limit
        self._deadline = time.monotonic() + total
        self._probe = (sys.executable, "-c", subject.probe)
        given = os.environ if environ is None else environ
        self._environ = {
            name: value for name, value in given.items() if name not in subject.cleared and not name.startswith(_MINE)
        }

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.monotonic()

    # Commands

    def warm(self, place: Site, *, until: Callable[[int], bool] = lambda _: False) -> Step:
        """`warm` of the tiny recipe, and a copy of what it left; killed with all that it started if `until` says so."""
        step = self._recipe("warm", place, until=until)
        copy = shutil.copytree(step.cache, self.folder / f"left-{len(self.commands)}", symlinks=True)
        return structs.replace(step, left=Path(copy))  # later commands may leave something else there

    def train(self, place: Site) -> Step:
        """`train` of the tiny recipe, which must compile nothing."""
        output = self.folder / f"output-{len(self.commands)}"
        return self._recipe("train", place, "--require-warm", "--output-dir", str(output))

    def _recipe(self, verb: str, place: Site, *options: str, until: Callable[[int], bool] = lambda _: False) -> Step:
        workers = f"parallel.data_parallel_size={self.subject.workers}"
        words = (verb, "--compiler", self.subject.compiler, *RECIPE, "--set", workers, *options, "--format", "json")
        return self._run(place, (*self._command, *words), {}, until)

    def program(self, place: Site, *options: str, **variables: str) -> Step:
        """`cachekit run` of the probe."""
        report = self.folder / f"report-{len(self.commands)}.json"
        words = ("run", "--compiler", self.subject.compiler, "--report", str(report), *options, "--", *self._probe)
        step = self._run(place, (*self._command, *words), variables)
        return structs.replace(step, answer=_json(report) or step.answer)

    def bare(self, place: Site, **variables: str) -> Step:
        """The probe without cachekit."""
        return self._run(place, self._probe, variables)

    def store(self, place: Site, *words: str) -> Step:
        """A command on a store."""
        return self._run(place, (*self._command, "store", *words), {})

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

    def environment(self, name: str) -> Path:
        """The Python of another virtual environment with the packages of this one, at other paths.

        Raises:
            UnknownError: It cannot be made.
        """
        folder = self.folder / "environment" / name
        python = folder / "bin" / Path(sys.executable).name
        if not python.exists():
            try:
                venv.EnvBuilder(symlinks=True).create(folder)
                _fill(folder, next(folder.glob("lib/python*/site-packages")))
            except (OSError, subprocess.SubprocessError, StopIteration) as error:
                raise UnknownError(f"another virtual environment cannot be made: {error}") from error
        return python

    def _path(self, *names: str) -> Path:
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    # Processes

    def _run(
        self,
        place: Site,
        words: Sequence[str],
        variables: Mapping[str, str],
        until: Callable[[int], bool] = lambda _: False,
    ) -> Step:
        cache, store = self._path("cache", place.cache), self._path("home", place.home) / "v1"
        graphs, had, had_texts = self.subject.contents(cache), _listed(cache), _logs(store)
        began, code, killed = time.monotonic(), None, False
        end = began + min(self._limit, max(self.left, 0))
        with self._started(place, words, variables) as (process, out, err):
            try:
                while (code := process.poll()) is None and time.monotonic() < end and not killed:
                    killed = until(process.pid)
                    time.sleep(_POLL)
            finally:  # the report tells of a command that is interrupted, too
                files = {path: one for path, one in _listed(cache).items() if had.get(path) != one}
                texts = [path for path, one in files.items() if path.endswith(_NOTES) and one[0] < TEXT]
                told = [(path, text) for path, text in sorted(_logs(store).items()) if had_texts.get(path) != text]
                step = Step(
                    words=tuple(words),
                    site=place,
                    variables=dict(variables),
                    code=-signal.SIGKILL if killed else code,
                    seconds=round(time.monotonic() - began, 1),
                    said=f"{_text(out)}\n{_text(err)}",
                    answer=_json(out),
                    log="".join(text for path, text in told if path.suffix == ".log"),
                    journal="".join(text for path, text in told if path.suffix != ".log"),
                    cache=cache,
                    files=files,
                    texts={path: _text(cache / path) for path in texts},
                    new=tuple(sorted(self.subject.contents(cache) - graphs)),
                )
                self.commands.append(step)
        if step.code is None and self.left <= 0:
            raise UnknownError("it did not finish in the time allowed")
        return step

    @contextmanager
    def _started(
        self, place: Site, words: Sequence[str], variables: Mapping[str, str]
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
        """Start a command; it is killed with all that it started when the block is left."""
        number = len(self.commands)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        cache, user = self._path("cache", place.cache), self._path("user", place.user)
        own = {
            "CACHEKIT_HOME": str(self._path("home", place.home)),
            "CACHEKIT_COMPILER_CACHE_DIR": str(cache / "cache_dirs"),
            "XDG_CONFIG_HOME": str(user / "config"),
            "TMPDIR": str(self._path("user", place.user, "tmp")),
            "HF_HUB_OFFLINE": "1",
        }
        if place.user != FIRST.user:
            own |= {"HOME": str(user), "USER": place.user, "LOGNAME": place.user}
        if place.environment != FIRST.environment:
            python = self.environment(place.environment)
            words = [str(python) if word == sys.executable else word for word in words]
            path = os.pathsep.join([str(python.parent), self._environ.get("PATH", os.defpath)])
            own |= {"VIRTUAL_ENV": str(python.parents[1]), "PATH": path}
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


def _fill(folder: Path, packages: Path) -> None:
    """Give a virtual environment the packages and commands of this one: links, and commands that name its Python."""
    places = [Path(place) for place in sys.path if Path(place).name in {"site-packages", "dist-packages"}]
    for one in (one for place in places if place.is_dir() for one in place.iterdir()):
        if not os.path.lexists(packages / one.name):
            (packages / one.name).symlink_to(one)
    old, new = os.fsencode(Path(sys.executable).parent), folder / "bin"
    for one in Path(sys.executable).parent.iterdir():
        if one.is_file() and not (new / one.name).exists():
            with one.open("rb") as stream:
                script = stream.readline(1 << 12).startswith(b"#!" + old)
            if script:
                (new / one.name).write_bytes(one.read_bytes().replace(old, os.fsencode(new), 1))
                (new / one.name).chmod(0o755)


def _listed(folder: Path) -> dict[str, tuple[int, float, str]]:
    """The files of a folder, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # gone meanwhile
            status = path.lstat()
            if not path.is_dir():
                name = str(path.relative_to(folder))
                found[name] = (status.st_size, status.st_mtime, f"{status.st_mode & 0o7777:o}")
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
