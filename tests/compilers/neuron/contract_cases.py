"""The run of `doctor --neuron-contract` on hosts that are stood in for, and with a command line that is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cachekit.compilers.evidence import Evidence, Proof, Site, Step, Subject, Verdict, judged
from cachekit.compilers.neuron import assumptions
from cachekit.compilers.neuron.flags import flags_hash
from cachekit.verbs.prove import PARTS, PROMISES, make
from tests.compilers.neuron.native_machine import NATIVE
from tests.compilers.neuron.neuron_machine import HERE, Machine
from tests.support.neuron_sdk import NATIVE_PACKAGES, SCRIPTS, neuron_host

# A program whose graph the stand-in needs no torch for.
PROGRAM = f"""\
import sys, runpy
sys.argv[1:] = ["77"]
runpy.run_path({str(SCRIPTS / "graphs.py")!r}, run_name="__main__")
"""
REFUSED = {"match": f"*+{flags_hash(['--target=trn1', assumptions.WRONG_FLAG])}", "class": "user-error"}


def machine(folder: Path, **knobs: object) -> Machine:
    """A host with two cores whose trainings need three graphs each, one of them a rank's alone."""
    made = Machine(folder, compile_seconds=0.2, lock_minute=0.2, failures=[REFUSED], **knobs)
    made.graphs(1, 2, **{"1": ["3"]})
    return made


def native_machine(folder: Path) -> Machine:
    """A trn2 with TorchNeuron, and a torch of a few lines."""
    host = neuron_host(folder / "host", cores=4, xla=False, instance_type="trn2.3xlarge", compile_seconds=0.3)
    made = Machine(folder, host=host)
    made.command = [str(HERE / "native_machine.py")]
    made.environment["PYTHONPATH"] = os.pathsep.join([str(NATIVE_PACKAGES), made.environment["PYTHONPATH"]])
    made.environment["NATIVE_WORKER"] = str(made.plan)
    made.environment["NATIVE_KERNELS"] = str(folder / "kernels")
    made.recipe(NATIVE)
    made.graphs("one", "two")
    return made


def altered(made: Machine, texts: Iterable[str]) -> None:
    """Have every Python process of a host begin with some lines, as another SDK would behave."""
    site = made.folder / "site"
    site.mkdir(exist_ok=True)
    # Each has names of its own.
    (site / "sitecustomize.py").write_text("\n".join(f"exec({text!r}, {{}})" for text in texts))
    made.environment["PYTHONPATH"] = f"{site}{os.pathsep}{made.environment['PYTHONPATH']}"


def proof(made: Machine, folder: Path, subject: Subject, limit: float = 60, kind: type[Proof] = Proof) -> Proof:
    """The commands there."""
    command = [sys.executable, *made.command]
    folder.mkdir(parents=True)
    run = kind(subject, folder, command=command, environ=made.environment, limit=limit)
    run.host = made.host
    return run


class KilledInTime(Proof):
    """Whose warm has a compile that is under way when it is killed, however busy the machine is."""

    def warm(self, place: Site, until: Callable[[int], bool] | None = None) -> Step:
        self.host.knobs(sticks=1 if until else None)
        return super().warm(place, until)


def made(run: Proof, only: Sequence[str] = ()) -> Evidence:
    """What a run leaves, or the parts of it that show some promises, and what these need."""
    seen, wanted = Evidence(), {*only}
    for part in reversed(PARTS):  # what a part needs comes before it
        if any(promise.name in wanted for promise in part.promises):
            wanted.add(part.after)
    parts = [part for part in PARTS if not only or any(promise.name in wanted for promise in part.promises)]
    for _ in make(run, seen, parts):
        pass
    return seen


def outcomes(subject: Subject, seen: Evidence) -> dict[str, Verdict]:
    """What came of everything, by name."""
    return {one.name: one for one in judged((*PROMISES, *subject.rows), seen)}


def differing(found: dict[str, Verdict]) -> set[str]:
    return {name for name, one in found.items() if one.state == "differs"}


# Graphs are named by the variables, or what else, that DEPENDS names, or by chance where the seed of hashes is not
# given; a graph is a file.
COMMAND_LINE = """\
import json, os, pathlib, sys
verb, *words = sys.argv[1:]
print(os.environ["SAYS"], file=sys.stderr)
if verb == os.environ["FAILS"]:
    print("error[compile]: it did not compile", file=sys.stderr)
    sys.exit(6)
others = {
    "PYTHONHASHSEED": str(os.getpid()),
    "umask": str(os.umask(0o22)),
    "prefix": os.path.realpath(sys.prefix),
    "script": next(pathlib.Path(sys.prefix, "bin").glob("pytest")).read_text().partition(chr(10))[0],
    "length": str(len(os.environ["CACHE"])),
}
known = [os.environ.get(name, others.get(name, "")) for name in os.environ["DEPENDS"].split()]
key = "-".join([str(verb == "run"), *known])
graph = pathlib.Path(os.environ["GRAPHS"], key.replace("/", "_"))
new = not graph.exists()
if verb not in {"plan", "store"} and "--require-warm" not in words:
    graph.touch()
if verb == "warm":
    pathlib.Path(os.environ["CACHE"], "graph").touch()
    pathlib.Path(os.environ["CACHE"], "notes.json").write_text('{"flags": []}')
answer = json.dumps({"compiled": int(new), "kept": 1})
print(answer)
if verb == "run":
    pathlib.Path(words[words.index("--report") + 1]).write_text(answer)
sys.exit(os.environ.get("REFUSED") == "1")
"""
STUB = Subject(
    "stub",
    "import os, pathlib; pathlib.Path(os.environ['CACHE'], 'graph' + os.environ.get('FLAGS', '')).touch()",
    place=lambda folder: {"CACHE": str(folder)},
    contents=lambda folder: frozenset(path.name for path in folder.glob("graph*")),
    compiling=lambda _: False,
    refused={"REFUSED": "1"},
    another={"FLAGS": "other"},
)


def stub(folder: Path, *, depends: str = "", fails: str = "", says: str = "", total: float = 60) -> Proof:
    """A run of a command line that takes no time."""
    (folder / "graphs").mkdir()
    (folder / "run").mkdir()
    script = folder / "cachekit.py"
    script.write_text(COMMAND_LINE)
    known = {"PATH": os.environ["PATH"], "USER": "ann", "GRAPHS": str(folder / "graphs")}
    environ = {**known, "PYTHONHASHSEED": "0", "DEPENDS": depends, "FAILS": fails, "SAYS": says}
    return Proof(STUB, folder / "run", command=[sys.executable, str(script)], environ=environ, total=total)
