"""What cachekit adds to a warm training run: plan, verify, restore, look for news; against `cp -r` of the same bytes.

The record is synthetic: an Inductor-like tree of random bytes, of the demo's size and of 500 MB. The store's and the
compiler cache dir's bytes are in the page cache for both sides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import limit, ratio, seconds

from cachekit import config
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.keep import provenance
from cachekit.compilers.prepare import Prepared, prepare
from cachekit.events import Journal
from cachekit.recipe import load
from cachekit.store import Store
from cachekit.store.record import Record
from cachekit.verbs.plan import plan
from cachekit.verbs.session import Session

REPEATS = 7
RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "bert.yaml"


def make_tree(root: Path, megabytes: int, files: int) -> None:
    each = megabytes * 1_000_000 // files
    for number in range(files):
        path = root / f"{number % 64:02x}" / f"kernel{number}.main.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(each))


def publish(session: Session, prepared: Prepared, tree: Path) -> None:
    with session.store.workspace() as workspace:
        harvest = prepared.compiler.harvest(tree, frozenset(), prepared.fingerprint, workspace)
        assert harvest is not None
        record = Record(
            key=prepared.key,
            compiler="inductor",
            directory=prepared.fingerprint.directory,
            model_type=prepared.model_type,
            recipe="bench",
            hard=dict(prepared.ingredients.hard),
            soft={},
            modules=harvest.modules,
            graphs=3,
            compile_seconds=1.0,
            provenance=provenance(prepared.fingerprint),
        )
        session.store.publish(record, harvest.files)


def run_once(session: Session, recipe: Path) -> None:
    """All that `cachekit train` does around the worker when everything hits."""
    prepared = prepare(load(recipe), Inductor())
    planned = plan(prepared, session.store)
    assert planned.record is not None
    with session.cache_dir(prepared, planned.record) as cache_dir:
        assert not prepared.compiler.contents(cache_dir.tree) - cache_dir.before


def measure(megabytes: int, files: int) -> tuple[list[float], list[float]]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        home, tree = Path(folder, "home"), Path(folder, "tree")
        journal = Journal(None, "bench")
        settings = config.load({"home": home})
        session = Session(settings, journal, Store(home, journal))
        make_tree(tree, megabytes, files)
        publish(session, prepare(load(RECIPE), Inductor()), tree)
        target = Path(folder, "copy")

        def copy() -> None:
            subprocess.run(["cp", "-r", str(tree), str(target)], check=True)
            shutil.rmtree(target)

        ours: list[float] = []
        theirs: list[float] = []
        run_once(session, RECIPE)  # the first look at a blob hashes it twice, and so would a first copy be colder
        copy()
        os.sync()  # what is still to be written of the above would slow down whoever comes first
        for _ in range(REPEATS):  # in turn, so that a machine that slows down slows both
            ours += seconds(lambda: run_once(session, RECIPE), 1)
            theirs += seconds(copy, 1)
    return ours, theirs


def main() -> int:
    small, _ = measure(8, 150)
    large, copies = measure(500, 400)
    results = [
        limit("around a warm run of the demo's size (8 MB)", small, 1.0),
        ratio("around a warm run of 500 MB against cp -r (and rm -r) of it", large, copies, at_most=1.5),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
