"""Records as Neuron's are, without a compile: modules of a NEFF, a graph, flags and an empty marker; random bytes."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

from team_hub import PROVENANCE

from cachekit.key.canonical import key_of
from cachekit.store import Store
from cachekit.store.record import File, Module, Record

DIRECTORY = "neuronxcc-2.26.6360.0+6f180f47"
FLAGS = json.dumps(["--target=trn1", "--model-type=transformer", "--auto-cast=none", "-O1"]).encode()


def make(store: Store, number: int, neffs: Sequence[int], *, first: int = 0) -> Record:
    """Put a record into a store: modules `first`, `first + 1`, …, whose NEFFs have these many bytes."""
    modules, finished = [], {}
    with store.workspace() as folder:
        for position, size in enumerate(neffs, first):
            dice = random.Random(position)
            contents = {
                "model.neff": dice.randbytes(size),
                "model.hlo_module.pb": dice.randbytes(size // 8 + 5000),
                "compile_flags.json": FLAGS,
                "model.done": b"",
            }
            files = []
            for name, raw in contents.items():
                file = File(name, len(raw), hashlib.sha256(raw).hexdigest())
                files.append(file)
                finished[file.sha256] = folder / file.sha256
                finished[file.sha256].write_bytes(raw)
            modules.append(Module(f"{DIRECTORY}/MODULE_{10**18 + position}+f7f529f3", tuple(files)))
        record = _record(number, modules)
        store.publish(record, finished)
    return record


def make_large(store: Store, number: int, size: int) -> Record:
    """Put a record of one large file into a store; its bytes are random."""
    with store.workspace() as folder:
        path, digest = folder / "large", hashlib.sha256()
        with path.open("wb") as target:
            for at in range(0, size, 1 << 22):
                data = os.urandom(min(1 << 22, size - at))
                digest.update(data)
                target.write(data)
        file = File("model.neff", size, digest.hexdigest())
        record = _record(number, [Module(f"{DIRECTORY}/MODULE_{number}+f7f529f3", (file,))])
        store.publish(record, {file.sha256: Path(path)})
    return record


def _record(number: int, modules: Sequence[Module]) -> Record:
    hard = {"model.type": "bert", "number": number}
    return Record(
        key=key_of(hard),
        compiler="neuron",
        directory=DIRECTORY,
        model_type="bert",
        recipe=f"bench-{number}",
        hard=hard,
        soft={},
        modules=tuple(modules),
        graphs=len(modules),
        compile_seconds=60.0 * len(modules),
        provenance=PROVENANCE,
    )
