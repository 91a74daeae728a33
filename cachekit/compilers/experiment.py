"""The commands of a run that tries a compiler's promises, in folders of its own: the user's are not touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
        step = self._recipe(place, "warm", until=until)
        copy = shutil.copytree(step.cache, self.folder / f"left-{len(self.commands)}", symlinks=True)
        return structs.replace(step, left=Path(copy))  # later commands may leave something else there

    def train(self, place: Site) -> Step:
        """`train` of the tiny recipe, which must compile nothing."""
        output = self.folder / f"output-{len(self.commands)}"
        return self._recipe(place, "train", "--require-warm", "--output-dir", str(output))

    def _recipe(self, place: Site, *verb: str, until: Callable[[int], bool] | None = None) -> Step:
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
            **self.subject.place(cache),
        }
        if place.user != FIRST.user:
            found |= {"HOME": str(user), "USER": place.user, "LOGNAME": place.user}
        if place.environment != FIRST.environment:
            python = self._python(place)
            path = os.pathsep.join([str(python.parent), found.get("PATH", os.defpath)])
            found |= {"VIRTUAL_ENV": str(python.parents[1]), "PATH": path}
        return found

    def _python(self, place: Site) -> Path:
        """This Python, or the same one by another path, to which it keeps: another environment of the same packages."""
        if place.environment == FIRST.environment:
            return Path(sys.executable)
        folder = self._path("environment") / place.environment
        if not folder.is_symlink():
            folder.symlink_to(sys.prefix)
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
            raise UnknownError("not tried, as the time is over")
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
            )
        try:
            while (code := process.poll()) is None and time.monotonic() < end and not killed:
                killed = until is not None and until(process.pid)
                time.sleep(_POLL)
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
