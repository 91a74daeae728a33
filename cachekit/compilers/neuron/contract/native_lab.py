"""The experiments on TorchNeuron: a graph or two, compiled and found in folders of their own, with what cachekit sets.

Each is made once, when a check first asks for it. The folder that TorchNeuron uses by default is never touched.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.compilers.neuron import facts, native, processes
from cachekit.compilers.neuron.contract import asked
from cachekit.compilers.neuron.contract.bench import Run
from cachekit.compilers.neuron.contract.check import UnknownError
from cachekit.compilers.neuron.contract.once import once
from cachekit.compilers.tree_watch import Used

if TYPE_CHECKING:
    from cachekit.compilers.neuron.contract.lab import Lab

SCRIPT = """\
import importlib, json, sys
said = json.loads(sys.argv[1])
if said["version"]:
    importlib.import_module(said["compiler"])
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == said["compiler"] and hasattr(module, "__version__"):
            module.__version__ = said["version"]
import torch
importlib.import_module(said["framework"])
rows = torch.ones(3, 3).to(**said["to"])
print(torch.compile(lambda x: (x * 2 + 1).sum(), **said["compile"])(rows).item())
try:
    metrics = importlib.import_module(said["metrics"])
    told = {name: int(metrics.get_counter_value(counter) or 0) for name, counter in said["counters"].items()}
except Exception as error:
    told = {"error": f"{type(error).__name__}: {error}"}
print("\\ncachekit:" + json.dumps(told))
"""
FLAG = LEVEL = "-O3"  # any that every compiler knows, and that is not what it does anyway
WRONG_FLAG = "--cachekit-asks-whether-this-is-refused"
OTHER_VERSION = "0.0.0+cachekit"
ATTEMPTS = 3  # to kill a compile while it runs
LARGEST = 2 << 30  # bytes of one file of the package that are looked through
_PIECE = 1 << 20
_NONE: Mapping[str, str | None] = {}


@dataclass(frozen=True, slots=True)
class Tried:
    """The script, run once.

    Attributes:
        run: How it ended, and what it printed.
        root: TorchNeuron's folder in it.
        local: The folder of its locks.
        told: Its counters; `error` where there are none.
        written: The graphs that it wrote, new ones or such as were there.
        compiler: Whether a process of the compiler's was seen below it.
    """

    run: Run
    root: Path
    local: Path
    told: Mapping[str, Any]
    written: frozenset[str]
    compiler: bool

    @property
    def graphs(self) -> frozenset[str]:
        """What lies finished in the folder."""
        return native.contents(self.root)

    @property
    def others(self) -> list[str]:
        """What else lies there."""
        return sorted(set(files(self.root)) - self.graphs)


@dataclass(frozen=True, slots=True)
class Killed:
    """A compile that was killed: what its folder held then, and how the next run in it ended; None where it did not."""

    graphs: frozenset[str]
    root: Path
    after: Run | None


class EndlessError(UnknownError):
    """The script did not end in time."""


class Trials:
    """See the module.

    Args:
        lab: Where.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.made: dict[str, Any] = {}

    # Without a compile

    def cores(self, **variables: str | None) -> int:
        """How many cores a process has with these variables.

        Raises:
            UnknownError: PyTorch's interface does not tell.
        """
        self.lab.may("how many cores a process has", compiles=False)
        wanted = {facts.NUM_CORES: None, facts.VISIBLE_CORES: None, **variables}
        said = self.lab.ask("torch.accelerator", asked.CORES, facts.FRAMEWORK_MODULE, **wanted)
        if not said.isdecimal():
            raise UnknownError(f"torch.accelerator says {said[:100]!r}")
        return int(said)

    @once
    def all_cores(self) -> int:
        """How many a process has without them."""
        return self.cores()

    @once
    def package(self) -> Path:
        """Where TorchNeuron's own files are."""
        self.lab.packages  # noqa: B018 - without them there is nothing to look at
        return Path(self.lab.ask(facts.FRAMEWORK_MODULE, asked.FOLDER, facts.FRAMEWORK_MODULE))

    def in_package(self, *words: str) -> frozenset[str]:
        """Which of these words its files contain, code of the machine's included; nothing of it is run."""
        left, found = {word: word.encode() for word in words}, set()
        for path in sorted(self.package.rglob("*")):
            if not left:
                break
            if path.is_file() and path.stat().st_size <= LARGEST:
                hit = {word for word in left if _contains(path, left[word])}
                found |= hit
                left = {word: raw for word, raw in left.items() if word not in hit}
        return frozenset(found)

    # Compiles

    def _variables(self, root: Path, local: Path) -> dict[str, str | None]:
        """What the adapter sets for a run (see `native_adapter`); and what is left beside goes away as well."""
        beside = {name: str(self.lab.bench.folder / "tmp" / name) for name in facts.NATIVE_BESIDE}
        return {
            **beside,
            facts.NATIVE_ROOT_VARIABLE: str(root),
            facts.NATIVE_LOCAL: str(local),
            facts.NATIVE_METRICS: "1",
            facts.NUM_CORES: "1",
        }

    def _command(self, version: str = "") -> tuple[str, ...]:
        said = {
            "version": version,
            "compiler": facts.COMPILER_MODULE,
            "framework": facts.FRAMEWORK_MODULE,
            "to": facts.NATIVE_TO,
            "compile": facts.NATIVE_COMPILE,
            "metrics": facts.NATIVE_METRICS_MODULE,
            "counters": facts.NATIVE_COUNTERS,
        }
        return sys.executable, "-c", SCRIPT, json.dumps(said)

    def _places(self, name: str) -> tuple[Path, Path]:
        root, local = self.lab.root(name), self.lab.root(f"{name}-locks")
        for folder in (root, local):
            folder.mkdir(parents=True, exist_ok=True)
        return root, local

    def _run(self, what: str, name: str, variables: Mapping[str, str | None] = _NONE, *, version: str = "") -> Tried:
        """Run the script, however it ends."""
        self.lab.may(what)
        root, local = self._places(name)
        changed = {**self._variables(root, local), **variables}
        before, seen = _stamps(root), False

        def ended() -> bool:
            nonlocal seen
            seen = seen or bool(processes.compiles_below(running.process.pid))
            return running.process.poll() is not None

        with self.lab.bench.start(self._command(version), changed) as running:
            if not running.until(ended, self.lab.limit):
                raise EndlessError(f"{what} did not end within {self.lab.limit:.0f} s")
            run = running.so_far()
        written = frozenset(path for path, stamp in _stamps(root).items() if before.get(path) != stamp)
        said = run.said(asked.FRONT)
        return Tried(run, root, local, json.loads(said) if said else {}, written, seen)

    def _try(self, what: str, name: str, variables: Mapping[str, str | None] = _NONE, *, version: str = "") -> Tried:
        tried = self._run(what, name, variables, version=version)
        if tried.run.code:
            raise UnknownError(f"the script failed: {tried.run.end}")
        return tried

    @once
    def attempt(self) -> Tried:
        """The script with an empty folder, however it ends."""
        return self._run("a compile in an empty folder", "first")

    @property
    def first(self) -> Tried:
        """The same.

        Raises:
            UnknownError: It failed.
        """
        if self.attempt.run.code:
            raise UnknownError(f"the script failed: {self.attempt.run.end}")
        return self.attempt

    @once
    def graphs(self) -> frozenset[str]:
        """What the first run left, by path below its folder.

        Raises:
            UnknownError: Nothing.
        """
        if not (found := self.first.graphs):
            raise UnknownError(f"the script left no *{facts.NATIVE_SUFFIX} in {facts.NATIVE_ROOT_VARIABLE}")
        return found

    @once
    def second(self) -> tuple[Tried, frozenset[str] | None]:
        """The script once more, and which graphs were read; None where the file system does not tell."""
        reads = Used(self.first.root, self.graphs)
        tried = self._try("the same again", "first")
        return tried, reads.read()

    @once
    def moved(self) -> Tried:
        """The script with a copy of the folder in another place."""
        self.graphs  # noqa: B018
        shutil.copytree(self.first.root, self.lab.root("moved"))
        return self._try("the same in another folder", "moved")

    @once
    def flagged(self) -> Tried:
        """The script with a flag of the compiler's, and an empty folder."""
        self.graphs  # noqa: B018
        return self._try("a compile with another flag", "flagged", {facts.CC_FLAGS: FLAG})

    @once
    def leveled(self) -> Tried:
        """The script with another level of optimization, and an empty folder."""
        self.graphs  # noqa: B018
        return self._try("a compile of another level", "leveled", {facts.NATIVE_LEVEL: LEVEL})

    @once
    def renamed(self) -> Tried:
        """The script with a compiler that says another version, and an empty folder."""
        self.graphs  # noqa: B018
        folder = self.lab.bench.folder / "renamed"
        info = folder / "site" / f"{facts.COMPILER_PACKAGE.replace('-', '_')}-{OTHER_VERSION}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {facts.COMPILER_PACKAGE}\nVersion: {OTHER_VERSION}\n"
        )
        tool = folder / "bin" / facts.COMPILER
        tool.parent.mkdir()
        real = shlex.quote(self.lab.bench.which(facts.COMPILER))
        said = f"NeuronX Compiler version {OTHER_VERSION}"
        tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo "{said}"\nexec {real} "$@"\n')
        tool.chmod(0o755)
        environ = self.lab.bench.environ
        changed = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(info.parent), environ.get("PYTHONPATH", "")])),
            "PATH": os.pathsep.join([str(tool.parent), environ["PATH"]]),
        }
        return self._try("a compiler that says another version", "renamed", changed, version=OTHER_VERSION)

    @once
    def disabled(self) -> dict[str, int]:
        """How many files the script leaves with each of the variables that are to switch the cache off."""
        self.graphs  # noqa: B018
        return {
            name: len(list(files(self._try(f"a compile with {name}", f"disabled-{number}", {name: "1"}).root)))
            for number, name in enumerate(facts.NATIVE_DISABLE)
        }

    @once
    def failed(self) -> Tried:
        """The script with a flag that the compiler does not know."""
        self.graphs  # noqa: B018
        return self._run("a compile that must fail", "failed", {facts.CC_FLAGS: WRONG_FLAG})

    @once
    def killed(self) -> Killed:
        """A compile killed with SIGKILL, and another run in its folder."""
        self.graphs  # noqa: B018
        if not self.first.compiler:
            raise UnknownError("no process of the compiler's was seen, so none could be killed")
        for number in range(ATTEMPTS):
            self.lab.may("a compile that is killed")
            root, local = self._places(f"killed-{number}")
            with self.lab.bench.start(self._command(), self._variables(root, local)) as running:
                caught = running.until(
                    lambda: bool(processes.compiles_below(running.process.pid)),
                    self.lab.limit,
                )
                running.kill()
            left = native.contents(root)
            if caught and left != self.graphs:
                try:
                    return Killed(left, root, self._run("a run after it", f"killed-{number}").run)
                except EndlessError:
                    return Killed(left, root, None)
        raise UnknownError(f"of {ATTEMPTS} compiles none could be killed while it ran")


def files(root: Path) -> Iterator[str]:
    """All files of a folder, hidden ones too, by path below it."""
    for folder, _, names in os.walk(root):
        for name in names:
            yield Path(folder, name).relative_to(root).as_posix()


def _stamps(root: Path) -> dict[str, tuple[int, int, int]]:
    """What changes when a graph is written: as a new file, or into one that is there."""
    found = {}
    for name in native.contents(root):
        status = (root / name).stat()
        found[name] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def _contains(path: Path, word: bytes) -> bool:
    """Whether a file has a word that is no part of a longer one."""
    whole = re.compile(rb"(?<![0-9A-Za-z_])" + re.escape(word) + rb"(?![0-9A-Za-z_])")
    piece, start = b"", 0
    try:
        with path.open("rb") as source:
            while block := source.read(_PIECE):
                piece += block
                # One that ends the piece may go on in the next.
                if any(match.end() < len(piece) for match in whole.finditer(piece, max(start, 0))):
                    return True
                piece, start = piece[-len(word) - 1 :], min(len(piece) - len(word), 1)
    except OSError:
        return False
    return whole.search(piece, max(start, 0)) is not None
