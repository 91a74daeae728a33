"""How `plan`, `ls`, `why`, `stats` and `verify --quick` grow with the store: whole processes, against fixed limits."""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from measure import process, seconds

from cachekit import recipe
from cachekit.compilers import select
from cachekit.errors import CachekitError
from cachekit.events import Journal
from cachekit.key.canonical import key_of
from cachekit.recipe import zoo
from cachekit.store import Store, catalogue
from cachekit.store.record import File, Module, Provenance, Record, encode
from cachekit.store.verify import Verifier
from cachekit.verbs.prepare import prepare

SIZES = (100, 1_000, 10_000)
MODULES = 10  # of a record
REPEATS = 9
RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "bert.yaml"
# What is planned: no record has it, so that the nearest of all is looked for.
MISS = (str(RECIPE), "--set", "training.per_device_train_batch_size=5")
# Verb, its arguments, seconds that it may take with 10,000 records, how often.
VERBS: tuple[tuple[str, tuple[str, ...], float, int], ...] = (
    ("plan", MISS, 0.3, REPEATS),
    ("ls", (), 0.5, REPEATS),
    ("why", MISS, 1.0, REPEATS),
    ("stats", (), 1.0, REPEATS),
    ("verify", ("--quick",), 30.0, 1),
)
FLAGS = json.dumps(["--target=trn1", "-O1"]).encode()
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def recipes() -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """What the zoo's recipes mean on this machine: name, model type, hard and soft ingredients."""
    found = []
    for name in zoo.recipes():
        try:
            loaded = recipe.load(zoo.recipe_path(name))
            prepared = prepare(loaded, select("inductor", "inductor"), name)
        except CachekitError:
            continue  # its data or its model's config are not on this machine
        hard, soft = dict(prepared.ingredients.hard), dict(prepared.ingredients.soft)
        found.append((loaded.name, prepared.model_type, hard, soft))
    return found


class Grower:
    """Fills a store with records as a team leaves them in years: the zoo's recipes, edited, for several compilers.

    Files lie as `Store.publish` leaves them, without its waiting for the disk at each, which would take an hour.

    Args:
        home: The store's folder.
    """

    def __init__(self, home: Path) -> None:
        self._layout = Store(home, Journal(None, "bench")).layout
        self._verifier = Verifier(self._layout)
        self._recipes = recipes()
        self._made: set[Path] = set()
        self._count = 0
        self._write(self._layout.records / ".complete", b"")

    def grow(self, count: int) -> None:
        """Until there are `count` records, and the journals of their warms."""
        for number in range(self._count, count):
            self._add(number)
        self._count = count

    def _add(self, number: int) -> None:
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
        record = Record(
            key=key_of(edited),
            compiler="neuron",
            directory=f"neuronxcc-{version}",
            model_type=model_type,
            recipe=name,
            hard=edited,
            soft=soft,
            modules=tuple(self._module(f"neuronxcc-{version}", number * MODULES + each) for each in range(MODULES)),
            graphs=MODULES,
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
        raw = encode(record)
        self._blob(raw)
        self._write(self._layout.record(record.directory, model_type, record.key), raw)
        self._journal(record, created)

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
        digest = hashlib.sha256(raw).hexdigest()
        path = self._layout.blob(digest)
        if raw not in {FLAGS, b""} or not path.exists():
            self._write(path, raw)
            self._verifier.remember(digest, self._verifier.accept(path, File(digest, len(raw), digest)))

    def _journal(self, record: Record, created: datetime) -> None:
        """The run that made a record, as `warm` tells it, and one that found it."""
        for verb, status in (("warm", "miss"), ("train", "hit")):
            run = f"{created:%Y%m%dT%H%M%SZ}-{record.key[:7]}{verb[0]}"
            events: list[dict[str, Any]] = [
                {"event": "run", "verb": verb, "pid": 1},
                {"event": "plan", "recipe": record.recipe, "key": record.key, "status": status},
            ]
            if status == "miss":
                events += [
                    {"event": "compile.start", "key": record.key, "expected_seconds": None},
                    {"event": "worker.end", "mode": "trial", "counters": {"found": 0, "compiled": MODULES}}
                    | {"seconds": {"first_step": record.compile_seconds}, "steps": 3},
                    {"event": "warm.end", "recipe": record.recipe, "key": record.key, "compiled": MODULES}
                    | {"seconds": record.compile_seconds + 9, "waited_seconds": 0.0}
                    | {"compile_seconds": record.compile_seconds, "bytes": record.size},
                ]
            else:
                events.append({"event": "restore", "key": record.key, "bytes": record.size, "seconds": 0.5})
            stamp = {"time": created.timestamp(), "run": run}
            lines = "".join(json.dumps({**event, **stamp}) + "\n" for event in events)
            self._write(self._layout.journal / run[:6] / f"{run}.jsonl", lines.encode())

    def _write(self, path: Path, raw: bytes) -> None:
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        path.write_bytes(raw)


def main() -> int:
    holds = True
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        home, empty = Path(folder) / "home", Path(folder) / "empty"
        grower = Grower(home)

        def took(verb: str, words: tuple[str, ...], where: Path, repeats: int) -> float:
            environment = {**os.environ, "CACHEKIT_HOME": str(where)}
            run = [sys.executable, "-m", "cachekit", verb, *words]
            return statistics.median(seconds(lambda: process(run, environment), repeats))

        for verb, words, _, repeats in VERBS:
            figures[verb] = [took(verb, words, empty, repeats)]
        for size in SIZES:
            grower.grow(size)
            settle()
            first = took("ls", (), home, 1)
            print(f"{size:,} records, {size * MODULES:,} modules: the first look, which reads each, {first:.3g} s")
            for verb, words, _, repeats in VERBS:
                figures[verb].append(took(verb, words, home, repeats))
        for verb, _, most, _ in VERBS:
            verdict = "ok" if figures[verb][-1] <= most else "MISSED"
            holds &= verdict == "ok"
            grown = ", ".join(
                f"{size:,}: {value:.3g} s" for size, value in zip((0, *SIZES), figures[verb], strict=True)
            )
            print(f"cachekit {verb} by records: {grown}, at most {most:g} s: {verdict}")
    return 0 if holds else 1


def settle() -> None:
    """Wait until the records are old enough to be catalogued: a benchmark makes them in one moment."""
    time.sleep(catalogue.SETTLED / 1e9 + 0.1)


if __name__ == "__main__":
    sys.exit(main())
