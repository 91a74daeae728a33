"""How `plan`, `ls`, `why`, `gc` and `verify --quick` grow with the store: whole processes, against fixed limits."""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from cachekit import recipe
from cachekit.compilers import select
from cachekit.compilers.prepare import prepare
from cachekit.errors import CachekitError
from cachekit.events import Journal
from cachekit.key.canonical import key_of
from cachekit.recipe import zoo
from cachekit.store import Store, index_rows
from cachekit.store.record import File, Module, Provenance, Record, encode

SIZES = (1_000, 10_000, 100_000)
MEMORY = 150e6  # bytes that a command may take with the most records
RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "bert.yaml"
# What is planned: no record has it, so that the nearest of all is looked for.
MACHINE = ("--toolchain", "neuron-2.31", "--instance", "trn1.32xlarge")  # whose compiler made the records
MISS = (str(RECIPE), "--set", "training.per_device_train_batch_size=5", *MACHINE)
PUBLISHED = "plan after a publish"
# What is run, its arguments, seconds of CPU that it may take with the most records, how often.
VERBS: tuple[tuple[str, tuple[str, ...], float, int], ...] = (
    ("plan", ("plan", *MISS), 0.5, 5),
    (PUBLISHED, ("plan", *MISS), 0.5, 5),
    ("ls", ("store", "ls"), 1.5, 3),
    ("why", ("why", *MISS), 1.5, 3),
    ("gc --dry-run", ("store", "gc", "--dry-run"), 10.0, 1),
    ("verify --quick", ("store", "verify", "--quick"), 30.0, 1),
)
FLAGS = json.dumps(["--target=trn1", "-O1"]).encode()
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Cost(NamedTuple):
    """Of a process: seconds of CPU, and the most memory, in bytes."""

    cpu: float
    memory: float


def cost(words: tuple[str, ...], home: Path) -> Cost:
    """Run a command to its end."""
    environment = {**os.environ, "CACHEKIT_HOME": str(home)}
    run = subprocess.Popen([sys.executable, "-m", "cachekit", *words], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(run.pid, 0)
    if run.returncode is None:
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        sys.exit(f"{' '.join(words)}: exit {run.returncode}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def recipes() -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """What the zoo's recipes mean on the machine that is planned for: name, model type, hard and soft ingredients."""
    found = []
    for name in zoo.recipes():
        try:
            loaded = recipe.load(zoo.recipe_path(name))
            prepared = prepare(loaded, select("neuron", toolchain=MACHINE[1], instance=MACHINE[3]), name)
        except CachekitError:
            continue  # its data or its model's config are not on this machine
        hard, soft = dict(prepared.ingredients.hard), dict(prepared.ingredients.soft)
        found.append((loaded.name, prepared.model_type, hard, soft))
    return found


class Grower:
    """Fills a store with records as a team leaves them in years: the zoo's recipes, edited, for several compilers.

    Files lie as `Store.publish` leaves them, without its waiting for the disk at each, which would take an hour. Each
    record names one module of four files, two of which all records share.

    Args:
        home: The store's folder.
    """

    def __init__(self, home: Path) -> None:
        self._store = Store(home, Journal(None, "bench"))
        self._layout = self._store.layout
        self._recipes = recipes()
        self._made: set[Path] = set()
        self._count = 0

    def grow(self, count: int) -> None:
        """Until there are `count` records."""
        for number in range(self._count, count):
            record = self._record(number)
            self._write(self._layout.record(record.place), encode(record))
        self._count = count

    def publish(self) -> None:
        """One more record, as a warm does it."""
        self._store.publish(self._record(self._count), {})
        self._count += 1

    def _record(self, number: int) -> Record:
        dice = random.Random(number)
        name, model_type, hard, soft = self._recipes[number % len(self._recipes)]
        release = 20 + dice.randrange(7)
        version = f"2.{release}.{1000 + release}.0+{release:08x}"
        edited = {
            **hard,
            "training.per_device_train_batch_size": dice.choice((1, 2, 4, 8, 16, 32, 64)),
            "training.max_seq_length": 32 * dice.randrange(1, 64),
            "training.gradient_accumulation_steps": dice.choice((1, 2, 4, 8)),
            "toolchain.neuronx-cc": version,
            "environment.EDIT": str(number),  # so that no two are the same
        }
        created = START + timedelta(minutes=number)
        return Record(
            key=key_of(edited),
            compiler="neuron",
            directory=f"neuronxcc-{version}",
            model_type=model_type,
            recipe=name,
            hard=edited,
            soft=soft,
            modules=(self._module(f"neuronxcc-{version}", number),),
            graphs=1,
            compile_seconds=round(dice.uniform(60, 4000), 3),
            provenance=Provenance(
                created=created.isoformat(timespec="milliseconds"),
                cachekit="0",
                user=dice.choice(("ann", "ben", "cem", "dora")),
                host=f"trn-{dice.randrange(40)}",
                platform="Linux",
                toolchain={"neuronx-cc": version, "torch": "2.9.0"},
                instance="trn1.32xlarge",
            ),
        )

    def _module(self, directory: str, number: int) -> Module:
        dice = random.Random(number)
        contents = {
            "model.neff": dice.randbytes(600),
            "model.hlo_module.pb": dice.randbytes(200),
            "compile_flags.json": FLAGS,
            "model.done": b"",
        }
        files = [File(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in contents.items()]
        for raw in contents.values():
            self._blob(raw)
        return Module(f"{directory}/MODULE_{10**18 + number}+f7f529f3", tuple(files))

    def _blob(self, raw: bytes) -> None:
        path = self._layout.blob(hashlib.sha256(raw).hexdigest())
        if raw not in {FLAGS, b""} or not path.exists():
            self._write(path, raw)

    def _write(self, path: Path, raw: bytes) -> None:
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        path.write_bytes(raw)


def main() -> int:
    figures: dict[str, list[Cost]] = {name: [] for name, *_ in VERBS}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        grower = Grower(home)
        for size in SIZES:
            grower.grow(size)
            time.sleep(index_rows.SETTLED / 1e9 + 0.1)
            first = cost(("store", "ls"), home)
            print(f"{size:,} records: the first look, which reads those that are new, {first.cpu:.3g} s of CPU")
            for name, words, _, repeats in VERBS:
                costs = []
                for _ in range(repeats):
                    if name == PUBLISHED:
                        grower.publish()
                    costs.append(cost(words, home))
                figures[name].append(Cost(*(statistics.median(one) for one in zip(*costs, strict=True))))
    holds = True
    for name, _, most, _ in VERBS:
        cpu, memory = figures[name][-1]
        verdict = "ok" if cpu <= most and memory <= MEMORY else "MISSED"
        holds &= verdict == "ok"
        grown = ", ".join(
            f"{size:,}: {one.cpu:.3g} s, {one.memory / 1e6:.0f} MB"
            for size, one in zip(SIZES, figures[name], strict=True)
        )
        print(f"cachekit {name} by records: {grown}; at most {most:g} s of CPU, {MEMORY / 1e6:g} MB: {verdict}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
