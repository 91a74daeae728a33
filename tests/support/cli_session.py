"""Fixtures and helpers for tests of the command line: used by `pytest_plugins = ["tests.support.cli_session"]`.

PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from cachekit.cli import app, out
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.prepare import prepare
from cachekit.events import Journal
from cachekit.key.canonical import key_of
from cachekit.recipe import load
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store import Store
from cachekit.store.record import File, Module, Provenance, Record
from cachekit.training import ProcessLauncher
from tests.support import forked
from tests.support.processes import run_python

GOLDEN = Path(__file__).parents[1] / "cli" / "golden"
CACHEKIT = ("-m", "cachekit")
DEADLINE = 60.0  # seconds until a process that does not answer counts as hung

RECIPE = """\
name: tiny
model:
  id: bert-base-uncased
  config: {num_hidden_layers: 1}
data:
  path: data
  labels: [calm, loud]
training:
  per_device_train_batch_size: 2
  max_seq_length: 8
"""
DRIVER = """
import sys
import cachekit.training

real, worker, sys.argv = cachekit.training.ProcessLauncher, sys.argv[1], ["cachekit", *sys.argv[2:]]
cachekit.training.ProcessLauncher = lambda: real([sys.executable, worker])
from cachekit.cli import main
main()
"""
FINGERPRINT = Fingerprint(
    compiler="inductor",
    directory="inductor-2.13.0",
    toolchain={"torch": "2.13.0+cpu", "transformers": "5.23.0", "python": "cpython 3.11", "cxx": "(Debian) 12.2.0"},
    target={"machine": "x86_64", "system": "linux", "isa": ["avx2", "fma"], "libc": "glibc 2.36"},
    soft={"accelerate": "1.15.0", "datasets": "5.2.0", "numpy": "2.4.6", "tokenizers": "0.23.3"},
    bf16=False,
)


@dataclass(frozen=True)
class Answer:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Command:
    """Runs command lines in this process, in a working directory of its own."""

    def __init__(self, capsys, work: Path) -> None:
        self._capsys = capsys
        self.work = work

    def __call__(self, *arguments: str, code: int | None = 0) -> Answer:
        """A command line; its exit code is looked at unless `code` is None."""
        self._capsys.readouterr()
        exit_code = app.run(list(arguments))
        answer = Answer(exit_code, *self._capsys.readouterr())
        assert code in {None, exit_code}, f"{arguments}: exit {exit_code}\n{answer.out}\n{answer.err}"
        return answer


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working directory with a recipe and its data."""
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "tiny.yaml").write_text(RECIPE)
    (folder / "data" / "train.csv").write_text("text,label\nthe sea is still,calm\nSTOP NOW,loud\n" * 1)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    return folder


@pytest.fixture
def home(work, monkeypatch):
    """The store's folder."""
    folder = work.parent / "store"
    monkeypatch.setenv("CACHEKIT_HOME", str(folder))
    return folder


@pytest.fixture
def command(capsys, work, home, monkeypatch):
    monkeypatch.setattr(out, "_style", out._Style())
    return Command(capsys, work)


@pytest.fixture
def machine(monkeypatch):
    """The same machine everywhere: versions, instruction set, threads."""
    monkeypatch.setattr(Inductor, "fingerprint", lambda *_, **__: FINGERPRINT)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    return FINGERPRINT


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """The script that stands in for the training worker."""
    path = Path(__file__).with_name("inductor_worker.py")
    monkeypatch.setattr("cachekit.training.ProcessLauncher", lambda: ProcessLauncher([sys.executable, str(path)]))
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids"))
    return path


def golden(name: str, text: str) -> None:
    """Compare with a file of tests/cli/golden."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def normal_help(text: str) -> str:
    """Help without what supported versions of typer write differently: `\\[default: x]`, `{RECIPE}`, `[RECIPE...]`."""
    # The backslash of older ones may push the tag to a line of its own.
    text = re.sub(r"\n +(\\?\[(?:required|default: [^\]]*)\]\n)", r"  \1", text)
    # An argument that may be absent stands in brackets, or does not.
    text = re.sub(r"^(Usage: .*) \[([A-Z|]+\.\.\.)\]$", r"\1 \2", text, flags=re.MULTILINE)
    return re.sub(r"\{([A-Z./|]+)\}", r"\1", text.replace("\\[", "["))


def the_error(answer: Answer, *, before: int = 0) -> tuple[str, str, str, str]:
    """Code, message, cause and hint of an error that was printed as it must be; `before` it, lines of something else.

    A hint is always there: whoever reads an error wants to know what to do. A cause is not, where the message says it.
    """
    assert "Traceback" not in answer.err
    lines = answer.err.splitlines()[before:]
    first = re.fullmatch(r"error\[([a-z-]+)\]: (\S.*)", lines[0]) if lines else None
    assert first, f"no error in the first line: {answer.err!r}"
    rest = lines[1:]
    cause = rest.pop(0).removeprefix("  cause: ") if rest and rest[0].startswith("  cause: ") else ""
    assert rest, f"no hint: {answer.err!r}"
    assert rest[0].startswith("  hint: "), rest
    assert len(rest) == 1, f"more than three lines: {answer.err!r}"
    return first[1], first[2], cause, rest[0].removeprefix("  hint: ")


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment, with changes; None unsets."""
    merged = {**os.environ, **changes}
    # Some shells set it, and then a closed pipe shows early.
    merged.pop("PYTHONUNBUFFERED", None)
    return {name: value for name, value in merged.items() if value is not None}


def process(*arguments: str, code: int = 0, program=CACHEKIT, **changes: str | None) -> Answer:
    """A command line in a process of its own: a new one, if it is another program than cachekit or the driver."""
    begin = forked.run_python if program[:2] in {CACHEKIT, ("-c", DRIVER)} else run_python
    how = {"folder": Path.cwd(), "environment": environment(**changes), "timeout": DEADLINE}
    run = begin(*program, *arguments, code=code, **how)
    return Answer(run.returncode, run.stdout, run.stderr)


def publish(home: Path, *overrides: str, recipe: str = "tiny.yaml", created: str = "2026-03-01T12:34:56+00:00"):
    """Put a record for a recipe into a store, as a warm would have."""
    prepared = prepare(load(Path(recipe), overrides), Inductor())
    record = Record(
        key=prepared.key,
        compiler="inductor",
        directory=prepared.fingerprint.directory,
        model_type=prepared.model_type,
        recipe=prepared.recipe.name,
        hard=dict(prepared.ingredients.hard),
        soft=dict(prepared.ingredients.soft),
        modules=(),
        graphs=3,
        compile_seconds=29.7,
        provenance=provenance(created),
    )
    return publish_record(home, record)


def publish_record(home: Path, record: Record) -> Record:
    store = Store(home, Journal(None, "test"))
    with store.workspace() as folder:
        path = folder / "archive.tar"
        path.write_bytes(record.key.encode() * 73_000)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        name = f"{record.directory}/x86_64-avx2-0a1b2c3d/{sha256}.tar"
        file = File(f"{sha256}.tar", path.stat().st_size, sha256)
        record = msgspec.structs.replace(record, modules=(Module(name, (file,)),))
        store.publish(record, {sha256: path})
    return record


def provenance(created: str = "2026-03-01T12:34:56+00:00") -> Provenance:
    return Provenance(
        created=created,
        cachekit="0.1.0",
        user="ann",
        host="trn-7",
        platform="Linux-6.1-x86_64-with-glibc2.36",
        toolchain={"torch": "2.13.0+cpu", "transformers": "5.23.0"},
        instance="trn1.2xlarge",
    )


def small_record(recipe: str = "small", created: str = "2026-03-01T12:34:56+00:00", **hard) -> Record:
    """A record with few ingredients, for tests of how records are shown."""
    hard = {"training.per_device_train_batch_size": 16, "target.isa": ["avx2", "fma"], "training.zero_1": False, **hard}
    return Record(
        key=key_of(hard),
        compiler="inductor",
        directory="inductor-2.13.0",
        model_type="bert",
        recipe=recipe,
        hard=hard,
        soft={"training.learning_rate": 5e-05, "training.max_steps": None},
        modules=(),
        graphs=3,
        compile_seconds=125.0,
        provenance=provenance(created),
    )
