"""Trees to pack, archives of one's own making, and a yard to unpack them in."""

import hashlib
import io
import tarfile

import pytest

from cachekit.store.archive import pack

TREE = {
    "a.txt": b"hello",
    "b/c.bin": bytes(range(256)) * 8,
    "b/d/empty": b"",
    "b/é 😀.txt": b"name",
    "x/" + "long" * 40 + "/f": b"a path that needs a longer header",
    "z": b"z" * 512,
}


def grow(root, tree=TREE, order=None):
    for name in order or tree:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tree[name])
    return root


def packed(root, names=TREE):
    out = io.BytesIO()
    sha256, size = pack(root, names, out)
    assert hashlib.sha256(out.getvalue()).hexdigest() == sha256
    assert len(out.getvalue()) == size
    return out.getvalue()


def tree_of(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if not path.is_dir()}


@pytest.fixture
def yard(tmp_path):
    """A folder to unpack into, with a neighbour that must not be touched."""
    (tmp_path / "in").mkdir()
    (tmp_path / "victim").write_bytes(b"untouched")
    return tmp_path


def put(yard, raw):
    path = yard / "a.tar"
    path.write_bytes(raw)
    return path


def member(name, data=b"x", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, io.BytesIO(data)


def tar(*members, layout=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=layout) as archive:
        for info, data in members:
            archive.addfile(info, data)
    return out.getvalue()
