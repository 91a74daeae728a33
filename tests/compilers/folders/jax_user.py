"""A user of `cachekit run` with a script for JAX, which counts by JAX's own events what compiled and what was found."""

from __future__ import annotations

import json
from pathlib import Path

from tests.verbs.run_user import User

TRAIN = """
import collections, json, os, sys
if "--zlib" in sys.argv:
    sys.modules["zstandard"] = None
import jax, jax.numpy as jnp

seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.rpartition("/")[2]]))
if "--limited" in sys.argv:
    jax.config.update("jax_compilation_cache_max_size", 1 << 30)
if "--own" in sys.argv:
    jax.config.update("jax_compilation_cache_dir", os.path.abspath("own"))
size = int(next((word for word in sys.argv[1:] if word.isdecimal()), "8"))

@jax.jit
def loss(weights, rows):
    return jnp.sum(jnp.tanh(rows @ weights) ** 2)

@jax.jit
def step(weights, rows):
    return weights - 0.1 * jax.grad(loss)(weights, rows)

weights, rows = jnp.ones((size, 4)), jnp.ones((16, size))
for _ in range(3):
    weights = step(weights, rows)
loss(weights, rows).block_until_ready()
asked, hits = seen["compile_requests_use_cache"], seen["cache_hits"]
print(json.dumps({"found": hits, "compiled": asked - hits}), flush=True)
if "--tear" in sys.argv:  # as a process leaves it that is killed while it writes
    folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
    (name,) = [name for name in os.listdir(folder) if name.startswith("jit_step") and name.endswith("-cache")]
    with open(os.path.join(folder, name), "r+b") as entry:
        entry.truncate(os.path.getsize(entry.name) // 2)
if "--killed" in sys.argv:
    os.kill(os.getpid(), 9)
"""


class JaxUser(User):
    """Somebody with that script in a checkout, and a store and a home of his own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.work / "train_jax.py").write_text(TRAIN)
        self.environment["HOME"] = str(folder)
        for name in [name for name in self.environment if name.startswith(("JAX_", "XLA_"))]:
            del self.environment[name]

    def train(self, *words: str, options: tuple[str, ...] = (), code: int = 0) -> tuple[dict, dict]:
        """What JAX says of a run, and what cachekit says of it."""
        report = self.run("python", "train_jax.py", *words, options=options, code=code)
        return json.loads(self.said[-1]), report

    def blobs(self) -> list[Path]:
        return sorted(path for path in (self.home / "v1" / "blobs").rglob("*") if path.is_file())
