"""The store: what is published is found again, and restored."""

import errno
import hashlib
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.compilers.inductor.compiler import Inductor
from cachekit.errors import IntegrityError
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.index_file import IndexFile
from cachekit.store.record import Module
from tests.store.store_cases import home, store, watched  # noqa: F401 - fixtures
from tests.support.standins import (
    StandIn,
    Watched,
    blob_bytes,
    expected,
    find,
    garbage_of,
    make_record,
    overwrite,
    publish,
    served,
    tree,
)

pytestmark = pytest.mark.versions

# Publish and find


def test_a_key_without_a_record_is_a_miss_and_leaves_no_trace(store, home):
    assert find(store, make_record()[0]) is None
    assert list(store.records()) == []
    assert not home.exists()


def test_a_module_of_several_files_with_folders(store):
    record, contents = make_record(artifacts=("a", "b"))
    first, second = record.files
    files = (structs.replace(first, path="sub/model.neff"), structs.replace(second, path="sub/deeper/log.txt"))
    record = structs.replace(record, modules=(Module("standin-1.0/MODULE_1", files),))
    publish(store, (record, contents))
    assert find(store, record) == record
    assert served(store, record) == {"sub/model.neff": blob_bytes("a"), "sub/deeper/log.txt": blob_bytes("b")}


@pytest.mark.feature("S1")
def test_the_same_artifact_of_two_keys_is_one_blob(store, home):
    one, two = make_record(1, ("same",)), make_record(2, ("same",))
    publish(store, one)
    before = tree(home)
    publish(store, two)
    added = {Path(name) for name in tree(home) - before}
    assert [path.parts[0] for path in added] == ["records"]
    assert served(store, find(store, one[0])) == served(store, find(store, two[0])) == expected(one)


@pytest.mark.feature("S1")
def test_without_the_index_there_are_the_same_hits(home):
    made = [make_record(number, ("same", f"own {number}")) for number in range(4)]
    for pair in made:
        publish(Watched(home).store, pair)
    listed = list(Watched(home).store.records())
    Watched(home).store.layout.index.unlink()
    watched = Watched(home)
    assert [find(watched.store, record) for record, _ in made] == [record for record, _ in made]
    assert list(watched.store.records()) == listed
    for pair in made:
        assert served(watched.store, pair[0]) == expected(pair)
    assert watched.damage() == []


def test_a_hit_opens_no_index(home, monkeypatch):
    made = make_record()
    publish(Watched(home).store, made)
    path = Watched(home).store.layout.record(made[0].place)
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))  # the tick of the clock may be a coarse one
    monkeypatch.setattr(IndexFile, "_run", None)
    assert find(Watched(home).store, made[0]) == made[0]


def test_a_finished_publish_leaves_read_only_files_and_nothing_else(store, home):
    publish(store, make_record())
    find(store, make_record()[0])
    assert garbage_of(home) == set()
    files = [home / "v1" / name for name in tree(home)]
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o444}


def test_a_record_that_lies_about_a_size_harms_no_blob(store, watched):
    """A stranger's, say, of a remote."""
    record, contents = make_record()
    publish(store, (record, contents))
    file = record.files[0]
    for size in (0, 1, file.size + 1):
        lie = structs.replace(file, size=size)
        assert store.lacking([file]) == []
        assert store.lacking([lie]) == [lie]
        with pytest.raises(IntegrityError), store.reading(lie):
            pass
    assert served(store, find(store, record)) == expected((record, contents))
    assert not watched.damage()


@pytest.mark.parametrize("way", ["nowhere", "other bytes"])
def test_a_record_whose_blob_is_not_what_it_says_is_not_published(watched, home, way):
    record, contents = make_record(1, ("a", "b"))
    if way == "nowhere":
        contents.popitem()
    else:
        contents[record.files[1].sha256] = blob_bytes("something else")
    with pytest.raises(IntegrityError):
        publish(watched.store, (record, contents))
    assert find(Watched(home).store, record) is None
    assert list(Watched(home).store.records()) == []
    for path in (home / "v1/blobs").glob("*/*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_publishing_heals_a_damaged_blob(watched):
    made = make_record()
    publish(watched.store, made)
    overwrite(watched.store.layout.blob(made[0].files[0].sha256), b"damage")
    publish(watched.store, made)
    assert find(watched.store, made[0]) == made[0]
    assert served(watched.store, made[0]) == expected(made)


# Restored files belong to whom they are restored for

FINGERPRINT = Fingerprint("inductor", "inductor-2.13.0", {"torch": "2.13.0"}, {"machine": "x86_64"}, {}, bf16=False)


@pytest.mark.parametrize("compiler", [StandIn(), Inductor()], ids=["standin", "inductor"])
def test_restored_files_share_no_inode_with_a_blob(tmp_path, home, compiler):
    tree_of = tmp_path / "tree"
    for name in ("MODULE_1/model.code", "MODULE_1/kernel.so", "MODULE_1/model.done"):
        (tree_of / name).parent.mkdir(parents=True, exist_ok=True)
        (tree_of / name).write_bytes(blob_bytes(name))
    store = Watched(home).store
    with store.workspace() as workspace:
        harvest = compiler.harvest(tree_of, frozenset(), FINGERPRINT, workspace)
        record = structs.replace(make_record()[0], directory="inductor-2.13.0", modules=harvest.modules)
        store.publish(record, harvest.files)
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in (home / "v1/blobs").glob("*/*")}

    cache_dir = tmp_path / "cache_dir"
    cache_dir.mkdir()
    for module in record.modules:
        with ExitStack() as stack:
            compiler.restore(module, [stack.enter_context(store.reading(file)) for file in module.files], cache_dir)
    restored = [path for path in cache_dir.rglob("*") if path.is_file()]
    assert {path.relative_to(cache_dir).as_posix(): path.read_bytes() for path in restored} == {
        path.relative_to(tree_of).as_posix(): path.read_bytes() for path in tree_of.rglob("*") if path.is_file()
    }
    assert not {path.stat().st_ino for path in restored} & {inode for inode, _ in before.values()}
    for path in restored:
        assert path.stat().st_nlink == 1
        path.write_bytes(b"the compiler writes here")  # and may: the mode allows it
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in before} == before


def test_a_place_that_vanishes_while_it_is_filled_is_no_damage_of_the_store(home):
    """Somebody emptied the folder of temporary files."""
    watched = Watched(home)
    record = publish(watched.store, make_record())

    def sink(*_):
        raise FileNotFoundError(errno.ENOENT, "the compiler cache dir is gone")

    with pytest.raises(FileNotFoundError, match="compiler cache dir"), watched.store.reading(record.files[0]) as blob:
        blob.through(sink)
    assert not watched.damage()
    assert served(watched.store, record) == expected(make_record())
