"""The experiment of `doctor --neuron-contract` on hosts that are stood in for, and altered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cachekit.compilers.evidence import Evidence, Subject, Verdict
from cachekit.compilers.experiment import Proof, kept
from cachekit.compilers.neuron import assumptions
from cachekit.compilers.neuron.flags import flags_hash
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
    made = Machine(folder, compile_seconds=0.3, lock_minute=0.2, failures=[REFUSED], **knobs)
    made.graphs(1, 2, **{"1": ["3"]})
    return made


def native_machine(folder: Path) -> Machine:
    """A trn2 with TorchNeuron, and a torch of a few lines."""
    host = neuron_host(folder / "host", cores=4, instance_type="trn2.3xlarge", compile_seconds=0.3)
    made = Machine(folder, host=host)
    made.command = [str(HERE / "native_machine.py")]
    made.environment["PYTHONPATH"] = os.pathsep.join([str(NATIVE_PACKAGES), made.environment["PYTHONPATH"]])
    made.environment["NATIVE_WORKER"] = str(made.plan)
    made.recipe(NATIVE)
    made.graphs("one", "two")
    return made


def altered(made: Machine, text: str) -> None:
    """Have every Python process of a host begin with some lines, as another SDK would behave."""
    site = made.folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(text)
    made.environment["PYTHONPATH"] = f"{site}{os.pathsep}{made.environment['PYTHONPATH']}"


def proof(made: Machine, folder: Path, subject: Subject, **more: object) -> Proof:
    """The experiment there."""
    command = [sys.executable, *made.command]
    folder.mkdir(parents=True)
    return Proof(subject, folder, command=command, environ=made.environment, limit=120, **more)


def outcomes(subject: Subject, seen: Evidence) -> dict[str, Verdict]:
    """What came of everything, by name."""
    return {one.name: one for one in (*kept(seen), *subject.check(seen))}


def differing(found: dict[str, Verdict]) -> set[str]:
    return {name for name, one in found.items() if one.state == "differs"}
