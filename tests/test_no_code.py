"""Looking up a hit and restoring it runs nothing that came out of a cache: bytes are compared, parsed and copied."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec import structs

from cachekit.compilers.inductor.compiler import Inductor
from cachekit.recipe.ingredients import Fingerprint
from tests.support.places import ROOT
from tests.support.standins import Watched, make_record

# What turns bytes into code or objects with code of their own; each import of it would show in the load path.
BARRED = ("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "joblib", "torch")

SCRIPT = """
import sys
for name in {barred!r}:
    sys.modules[name] = None  # importing it raises

import builtins, concurrent.futures.thread, marshal, sqlite3, xxhash  # a restore loads some modules late
from pathlib import Path
from cachekit.store import archive
from cachekit.store.layout import Place
from cachekit.events import Journal
from cachekit.store import Store
from cachekit.compilers.inductor.compiler import Inductor

directory, model_type, key, home, cache_dir = sys.argv[1:]
store = Store(Path(home), Journal(None, "test"))
record = store.lookup(Place(directory, model_type, key))

def refuse(*_, **__):
    raise AssertionError("code was made of bytes")

builtins.eval = builtins.exec = builtins.compile = marshal.loads = refuse
for module in record.modules:
    with store.reading(module.files[0]) as blob:
        Inductor().restore(module, [blob], Path(cache_dir))
print(len(record.modules))
"""


@pytest.mark.feature("S8")
def test_a_hit_is_restored_without_any_code(tmp_path):
    home, tree, cache_dir = tmp_path / "home", tmp_path / "tree", tmp_path / "cache_dir"
    (tree / "ab").mkdir(parents=True)
    cache_dir.mkdir()
    # A pickle that would leave a trace, and Python that would, as an Inductor cache holds both.
    (tree / "ab" / "graph").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    (tree / "ab" / "cab.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    watched = Watched(home)
    record = _publish(watched, tree)
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.format(barred=BARRED),
            *record.place,
            home,
            cache_dir,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "1"
    assert {path.relative_to(cache_dir): path.read_bytes() for path in cache_dir.rglob("*") if path.is_file()} == {
        path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()
    }
    assert not (tmp_path / "ran").exists()


@pytest.mark.feature("S8")
def test_a_record_is_data(tmp_path):
    """A plan of a hit imports none of what makes objects out of bytes."""
    script = "import sys\nfrom cachekit.cli import main\ntry:\n    main()\nfinally:\n    print(sorted(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", script, "plan", "bert", "--home", str(tmp_path), "--offline"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    modules = answer.stdout.splitlines()[-1]
    assert "'cachekit.store.store'" in modules, answer.stderr
    assert [name for name in BARRED if f"'{name}'" in modules] == []


def _publish(watched, tree):
    fingerprint = Fingerprint("inductor", "inductor-2.13.0", {"torch": "2.13.0"}, {"machine": "x"}, {}, bf16=False)
    with watched.store.workspace() as workspace:
        harvest = Inductor().harvest(tree, frozenset(), fingerprint, workspace)
        record = structs.replace(make_record()[0], directory="inductor-2.13.0", modules=harvest.modules)
        watched.store.publish(record, harvest.files)
    return record
