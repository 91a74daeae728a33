"""How long a check and a removal take in a large store, and how that grows with it."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import limit, process, ratio, seconds

from cachekit.key.canonical import key_of
from cachekit.store.layout import Layout
from cachekit.store.record import File, Module, Provenance, Record, encode

MODULES = 10  # of a record, of three files each
RECORDS = 10_000
MADE = Provenance("2026-01-02T03:04:05+00:00", "0", "ann", "host", "Linux", {"neuronx-cc": "2.26"}, "trn1.2xlarge")
FLAGS, DONE = b'["--target=trn1"]', b""


def fill(home: Path, records: int) -> None:
    """Write a store of Neuron records, as publishing leaves it, without its waits for the disk."""
    layout = Layout(home)
    for number in range(256):
        (layout.blobs / f"{number:02x}").mkdir(parents=True)
    compiler = "neuronxcc-2.26.6360.0+6f180f47"
    (layout.records / compiler / "bert").mkdir(parents=True)

    def put(raw: bytes) -> str:
        digest = hashlib.sha256(raw).hexdigest()
        path = layout.blob(digest)
        if not path.exists():
            path.write_bytes(raw)
        return digest

    shared = [File(name, len(raw), put(raw)) for name, raw in (("compile_flags.json", FLAGS), ("model.done", DONE))]
    for number in range(records):
        modules = []
        for part in range(MODULES):
            raw = f"graph {number} {part}".encode() * 20
            files = (*shared, File("model.neff", len(raw), put(raw)))
            modules.append(Module(f"{compiler}/MODULE_{number * MODULES + part + 10**18}+f7f529f3", files))
        hard = {"model.type": "bert", "number": number, "compiler.flags": ["--target=trn1"]}
        record = Record(
            key_of(hard), "neuron", compiler, "bert", "bert", hard, {}, tuple(modules), MODULES, 600.0, MADE
        )  # fmt: skip
        raw = encode(record)
        put(raw)
        layout.record(compiler, "bert", record.key).write_bytes(raw)


def main() -> int:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        times: dict[tuple[str, int], list[float]] = {}
        for records in (RECORDS // 10, RECORDS):
            home = Path(folder) / str(records)
            fill(home, records)
            environment = {**os.environ, "CACHEKIT_HOME": str(home)}
            run = [sys.executable, "-m", "cachekit"]
            size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())

            def told(name: str, words: list[str]) -> None:
                times[name, records] = seconds(lambda: process([*run, *words], environment), 1)  # noqa: B023

            told("verify --quick", ["store", "verify", "--quick"])
            told("gc --dry-run", ["store", "gc", "--dry-run", "--max-size", str(size // 2)])
            told("gc, half of it", ["store", "gc", "--max-size", str(size // 2)])
            shutil.rmtree(home)
    few, many = RECORDS // 10, RECORDS
    results = [limit(f"verify --quick, {many * MODULES:,} modules", times["verify --quick", many], 30)]
    results += [
        ratio(f"{name}, ten times the records", times[name, many], times[name, few], at_most=14)
        for name in ("verify --quick", "gc --dry-run", "gc, half of it")
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
