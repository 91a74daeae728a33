"""A declared cache, without its compiler: whose files and variables are, what is whole, and runs of a stand-in."""

from __future__ import annotations

import hashlib
import io
import zlib

import pytest

from cachekit.compilers.folders import compiler
from cachekit.compilers.folders.adapter import Declaration, FolderAdapter
from cachekit.compilers.folders.compiler import FolderCompiler
from cachekit.compilers.folders.jax import JAX
from cachekit.compilers.port import Run
from cachekit.errors import CompilerUnavailableError
from cachekit.store import archive
from cachekit.store.record import File
from tests.verbs.run_user import User

FRAMES = Declaration(
    name="frames",
    package="frames",
    install="pip install frames",
    imports=frozenset({"frames"}),
    variable="FRAMES_DIR",
    set={"FRAMES_KEEP": "all"},
    watched=("FRAMES_*",),
    harmless=("FRAMES_LOG",),
    flags={"FRAMES_FLAGS": ("--dump",)},
    entry="-entry",
    beside="-used",
    packed=True,
    seconds=2,
)
# Stands in for a script that uses JAX: an entry is a stream of zlib that begins with its seconds.
COMPILES = """
import os, sys, zlib
from pathlib import Path
if False:
    import jax
root = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
assert os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] == "none"
for name in ("jit_loss-1f-cache", "jit_step-2e-cache"):
    if (root / name).exists():
        zlib.decompress((root / name).read_bytes())
        print(name, "found")
    else:
        (root / name).write_bytes(zlib.compress(bytes([0, 0, 0, 7]) + name.encode() * 999))
        print(name, "compiled")
if "--torn" in sys.argv:
    (root / name).write_bytes(zlib.compress(os.urandom(999))[:500])
"""


@pytest.fixture
def user(tmp_path):
    """In an environment that says it has JAX."""
    (tmp_path / "packages" / "jaxlib-0.10.2.dist-info").mkdir(parents=True)
    (tmp_path / "packages" / "jaxlib-0.10.2.dist-info" / "METADATA").write_text("Name: jaxlib\nVersion: 0.10.2\n")
    found = User(tmp_path / "one")
    (found.work / "train.py").write_text(COMPILES)
    found.environment["PYTHONPATH"] = str(tmp_path / "packages")
    return found


def test_a_command_whose_code_imports_it_finds_what_it_compiled(user):
    first = user.run("python", "train.py")
    assert (first["compiled"], first["kept"], first["compile_seconds"]) == (2, True, 14.0)
    second = user.run("python", "train.py")
    assert [line.split()[1] for line in user.said] == ["found", "found"]
    assert (second["status"], second["compiled"], second["key"]) == ("hit", 0, first["key"])


def test_entries_that_no_later_run_finds_are_told_and_kept_no_more(user):
    """As where a script has its folder's path in JAX's key."""
    script = COMPILES.replace(
        '("jit_loss-1f-cache", "jit_step-2e-cache")', '(f"jit_loss-{abs(hash(str(root))):x}-cache",)'
    )
    (user.work / "train.py").write_text(script)
    runs = [user.run("python", "train.py") for _ in range(5)]
    assert [done["compiled"] for done in runs] == [1] * 5
    assert [len(done["modules"]) for done in runs] == [1, 2, 3, 3, 3]
    told = [any("jax_persistent_cache_enable_xla_caches" in note for note in done["notes"]) for done in runs]
    assert told == [False, True, True, True, True]
    assert "found none of the graphs that were kept" in user("run", "--dry-run", "--", "python", "train.py").stdout
    strict = user("run", "--require-warm", "--", "python", "train.py", code=3)
    assert "its last runs found none of the graphs that were kept" in strict.stderr


def test_a_command_that_finds_its_entries_again_is_not_taken_for_one_that_never_does(user):
    script = COMPILES.replace('("jit_loss-1f-cache", "jit_step-2e-cache")', 'Path("names").read_text().split()')
    (user.work / "train.py").write_text(script)
    runs = []
    for name in "abcdd":  # what it reads changes
        (user.work / "names").write_text(f"jit_{name}-cache\n")
        runs.append(user.run("python", "train.py"))
    assert [(done["compiled"], done["kept"]) for done in runs] == [*[(1, True)] * 3, (1, False), (1, True)]
    assert runs[3]["problem"] == "no run of the command found what those before it kept"
    for name in "ef":
        (user.work / "names").write_text(f"jit_{name}-cache\n")
        user.run("python", "train.py")
    (user.work / "names").write_text("jit_b-cache\n")
    user("run", "--require-warm", "--", "python", "train.py", code=3)  # as if each run would compile
    for options in ((), ("--require-warm",)):
        assert user.run("python", "train.py", options=options)["compiled"] == 0
    (user.work / "names").write_text("jit_d-cache\n")
    for _ in range(2):
        done = user.run("python", "train.py")
    assert done["compiled"] == 0
    assert user.run("python", "train.py", options=("--require-warm",))["compiled"] == 0


def test_an_entry_that_is_not_whole_is_not_kept(user):
    user.run("python", "train.py", "--torn")
    user.run("python", "train.py", "--torn")
    assert [line.split()[1] for line in user.said] == ["found", "compiled"]


def test_a_recipe_is_declined(user):
    assert "hint: cachekit run" in user("plan", "bert", "--tiny", "--compiler", "jax", code=2).stderr


def test_without_its_package_it_says_what_installs_it():
    with pytest.raises(CompilerUnavailableError) as caught:
        FolderCompiler(FRAMES).fingerprint(bare=True)
    assert caught.value.hint == "pip install frames"
    assert not FolderAdapter(FRAMES).attends(lambda: pytest.fail("nobody reads code"))
    assert FolderAdapter(FRAMES).checks() == ()


@pytest.mark.parametrize(
    ("path", "unit"),
    [("a-entry", "a-entry"), ("a-used", "a-entry"), ("a", ""), ("sub/a-entry", ""), (".tmp-entry", "")],
)
def test_files_belong_to_entries(path, unit):
    assert FRAMES.unit(path) == unit


def test_what_stands_beside_no_entry_is_none(tmp_path):
    for name in ("a-entry", "a-used", "b-used"):
        (tmp_path / name).write_bytes(b"")
    assert FolderCompiler(FRAMES).contents(tmp_path) == {"a-entry"}


def test_variables_that_shape_what_is_compiled():
    for name, value, seen in [
        ("FRAMES_DEBUG", "1", {"FRAMES_DEBUG": "1"}),
        ("FRAMES_DIR", "/home/ann/cache", {}),
        ("FRAMES_KEEP", "none", {}),
        ("FRAMES_LOG", "all", {}),
        ("FRAMES_FLAGS", "--dump_to=/home/ann --fast", {"FRAMES_FLAGS": "--fast"}),
        ("FRAMES_FLAGS", "--dump_to=/home/ann", {}),
        ("OTHER", "1", {}),
    ]:
        assert FRAMES.environment({name: value}) == seen


def test_where_a_run_is_told_what_jax_needs_to_find_entries_elsewhere(tmp_path):
    told = FolderCompiler(JAX).watch(Run(None, tmp_path, "command")).environment
    assert told["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path)
    assert told["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] == "none"


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
def test_a_stream_is_whole_where_it_comes_to_its_end(tmp_path, size):
    body = (1234).to_bytes(2, "big") + bytes(size)
    data, path = zlib.compress(body), tmp_path / "a-entry"
    path.write_bytes(data)
    assert b"".join(compiler.unpack(io.BytesIO(data), len(data))) == body
    assert (compiler.whole(path), compiler.seconds(path, 2)) == (True, 1234)
    for broken in (data[:-1], data[: len(data) // 2], b"", b"no stream at all", compiler.ZSTANDARD + b"x"):
        path.write_bytes(broken)
        assert not compiler.whole(path)


def test_paths_in_packed_entries_are_told(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a-entry").write_bytes(zlib.compress(b"\0 /home/ann/src/train.py \0"))
    (tmp_path / "tree" / "b-entry").write_bytes(b"broken")
    with (tmp_path / "packed.tar").open("wb") as target:
        digest, size = archive.pack(tmp_path / "tree", ["a-entry", "b-entry"], target)
    file = File(f"{digest}.tar", size, digest)
    found = FolderAdapter(FRAMES).leaks(file, tmp_path / "packed.tar", archive=True)
    assert [leak.path for leak in found.paths] == ["/home/ann/src/train.py"]
    assert (found.users, found.complete) == (("ann",), False)
    plain = tmp_path / hashlib.sha256(b"").hexdigest()
    plain.write_bytes(b"/home/bob/x.py")
    assert FolderAdapter(FRAMES).leaks(file, plain, archive=False).users == ("bob",)
