"""TorchNeuron's flat cache: one archive out, and back."""

import hashlib

import pytest

from cachekit.compilers.neuron import native
from cachekit.compilers.tree import pack
from cachekit.errors import IntegrityError
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import File, Module
from tests.compilers.neuron.neuron_trees import check, clean, neff, root, tree, workspace  # noqa: F401 - fixtures


def grow(root, count=5, seed=0):
    for number in range(count):
        name = hashlib.md5(f"{seed} {number}".encode()).hexdigest()
        path = root / name[:2] / name[2:4] / f"{name}.neff"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(neff(seed * 100 + number, 50))
    return native.contents(root)


def packed(source, workspace, version="2.27"):
    return pack(source, native.contents(source), native.directory(version), workspace)


def test_native_keeps_what_is_there(tmp_path, workspace):
    source, target = tmp_path / "source", tmp_path / "target"
    name = min(grow(source))
    harvest = packed(source, workspace)
    (target / name).parent.mkdir(parents=True)
    (target / name).write_bytes(b"another process made it")
    native.restore(harvest.modules[0], *harvest.files.values(), target, "2.27")
    assert (target / name).read_bytes() == b"another process made it"
    assert native.contents(target) == native.contents(source)
    assert clean(target)


@pytest.mark.feature("S7")
def test_native_archives_with_something_else_are_refused(tmp_path, workspace):
    from cachekit.store import archive

    source = tmp_path / "source"
    grow(source)
    (source / "run.sh").write_text("evil")
    made = workspace / "a.tar"
    with made.open("wb") as target:
        sha256, size = archive.pack(source, [*native.contents(source), "run.sh"], target)
    module = Module(f"torchneuron-2.27/{sha256}.tar", (File(f"{sha256}.tar", size, sha256),))
    with pytest.raises(UnsafeArchiveError):
        native.restore(module, made, tmp_path / "t", "2.27")
    assert tree(tmp_path / "t") == {}
    other = Module(module.name, (File(f"{sha256}.tar", size, "0" * 64),))
    with pytest.raises(IntegrityError):
        native.restore(other, made, tmp_path / "t", "2.27")


def test_native_never_writes_through_a_link(tmp_path, workspace):
    source, target, elsewhere = tmp_path / "source", tmp_path / "target", tmp_path / "elsewhere"
    name = min(grow(source, 1))
    harvest = packed(source, workspace)
    target.mkdir()
    elsewhere.mkdir()
    (target / name.split("/")[0]).symlink_to(elsewhere)
    with pytest.raises(UnsafeArchiveError):
        native.restore(harvest.modules[0], *harvest.files.values(), target, "2.27")
    assert list(elsewhere.iterdir()) == []
