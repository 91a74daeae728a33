"""Export and import of a bundle, against `tar` and `sha256sum` over the same bytes, which is the same work by hand.

A record as Neuron makes them, of random bytes: 20 modules of 25 MB with their small files, 500 MB together. Both sides
write to the same disk; who imports or unpacks makes that durable, cachekit by fsync of each file, tar by `sync -f`.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import process, ratio, seconds
from msgspec import structs

from cachekit import config
from cachekit.events import Journal
from cachekit.key.canonical import key_of
from cachekit.store import Store
from cachekit.store.record import File, Module, Provenance, Record
from cachekit.verbs.export import export_bundle
from cachekit.verbs.imports import import_bundle
from cachekit.verbs.session import Session

REPEATS = 3
MODULES, EACH = 20, 25_000_000
COMPILER = "neuronxcc-2.26.6360.0+6f180f47"


def session(home: Path) -> Session:
    journal = Journal(None, "bench")
    settings = structs.replace(config.load({"home": home}, environ={}, cwd=home.parent), trust_all=True)
    return Session(settings, journal, Store(home, journal))


def fill(store: Store) -> Record:
    hard = {"bench": 1}
    modules = []
    with store.workspace() as folder:
        finished = {}
        for number in range(MODULES):
            files = []
            for name, size in (("model.neff", EACH), ("model.hlo_module.pb", 200_000), ("compile_flags.json", 300)):
                raw = os.urandom(size)
                digest = hashlib.sha256(raw).hexdigest()
                finished[digest] = folder / digest
                finished[digest].write_bytes(raw)
                files.append(File(name, size, digest))
            modules.append(Module(f"{COMPILER}/MODULE_{number:020d}+f7f529f3", tuple(files)))
        made = Provenance("2026-01-01T00:00:00+00:00", "0", "ann", "host", "Linux")
        record = Record(key_of(hard), "neuron", COMPILER, "bert", "bench", hard, {}, tuple(modules), MODULES, 1.0, made)
        store.publish(record, finished)
    return record


def main() -> int:
    root = Path(tempfile.mkdtemp(prefix="cachekit-bench-", dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        maker = session(root / "maker")
        record = fill(maker.store)
        bundle, tree = root / "bench.tar", root / "tree"
        ours = seconds(lambda: export_bundle(maker, [record], bundle), REPEATS)
        tree.mkdir()
        process(["tar", "xf", str(bundle), "-C", str(tree)])
        by_hand = f"tar cf {root}/by-hand.tar -C {tree} . && sync -f {root} && sha256sum {root}/by-hand.tar"
        theirs = seconds(lambda: process(["sh", "-c", by_hand]), REPEATS)
        holds = ratio("export of 504 MB, tar + sha256sum", ours, theirs, at_most=2)

        raw = bundle.read_bytes()  # in the page cache for both
        boxes = iter(range(100))

        def take() -> None:
            import_bundle(session(root / f"box{next(boxes)}"), io.BytesIO(raw), "bench")

        def unpack() -> None:
            place = root / f"out{next(boxes)}"
            place.mkdir()
            process(["sh", "-c", f"sha256sum {bundle} && tar xf {bundle} -C {place} && sync -f {place}"])

        holds &= ratio("import, sha256sum + tar", seconds(take, REPEATS), seconds(unpack, REPEATS), at_most=2)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
