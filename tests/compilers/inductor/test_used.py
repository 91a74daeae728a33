"""Which of the restored files a worker read: opened, loaded, or looked for under a lock of their name."""

import subprocess
import sys

from cachekit.compilers.inductor.used import read

READER = """
import ctypes, importlib.machinery, importlib.util, pathlib, sys
from cachekit.compilers.inductor.used import Reads
root = pathlib.Path(sys.argv[1])
reads = Reads(str(root))
(root / "fxgraph" / "a" / "key" / "entry").read_bytes()
open(root / "new.py", "w").close()
for load in (lambda p: ctypes.CDLL(str(p)), lambda p: importlib.util.module_from_spec(
    importlib.util.spec_from_loader("m", importlib.machinery.ExtensionFileLoader("m", str(p))))):
    try:
        load(root / "k" / sys.argv[3])
    except (OSError, ImportError):
        pass
open(root / "locks" / "isa.lock", "w").close()
(root / "fxgraph" / "b" / "key" / "entry").exists()
reads.write(pathlib.Path(sys.argv[2]))
"""
FILES = (
    "fxgraph/a/key/entry",
    "fxgraph/b/key/entry",
    "k/kernel.so",
    "k/kernel.cpp",
    "k/other.so",
    "x/isa.so",
    "x/isa.cpp",
)


def reader(root, *arguments):
    for name in (*FILES, "locks/nothing"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    done = subprocess.run([sys.executable, "-c", READER, root, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_read_and_what_goes_with_it(tmp_path):
    reader(tmp_path / "root", tmp_path / "reads", "kernel.so")
    assert read(tmp_path / "reads", FILES) == {
        "fxgraph/a/key/entry",
        "k/kernel.so",
        "k/kernel.cpp",
        "x/isa.so",
        "x/isa.cpp",
    }


def test_a_root_that_is_reached_by_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    reader(tmp_path / "root", tmp_path / "reads", "kernel.so")
    assert "k/kernel.so" in read(tmp_path / "reads", FILES)


def test_a_run_that_left_no_word_is_not_one_that_read_nothing(tmp_path):
    assert read(tmp_path / "reads", FILES) is None
    (tmp_path / "reads").write_bytes(b"")
    assert read(tmp_path / "reads", FILES) == frozenset()
