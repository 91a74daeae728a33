"""The store: what is published is found again, whole or not at all."""

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from crash.server import Crashes, calls
from msgspec import structs
from standins import (
    StandIn,
    Watched,
    blob_bytes,
    expected,
    find,
    leftovers_of,
    make_record,
    memory_folder,
    overwrite,
    publish,
    served,
    side_by_side,
    tree,
)

from cachekit.compilers.inductor.adapter import Inductor
from cachekit.errors import IntegrityError, StoreError
from cachekit.ingredients import Fingerprint
from cachekit.key import canonical_json
from cachekit.record import Module, decode, encode
from cachekit.store.scratch import Scratch
from cachekit.store.verify import Verifier


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def watched(home):
    return Watched(home)


@pytest.fixture
def store(watched):
    return watched.store


def record_path(store, record):
    return store.layout.record(record.directory, record.model_type, record.key)


def copy_path(store, record):
    """The copy of a record among the blobs."""
    return store.layout.blob(hashlib.sha256(encode(record)).hexdigest())


# Publish and find


def test_what_is_published_is_found(store):
    made = make_record()
    publish(store, made)
    assert find(store, made[0]) == made[0]
    assert served(store, made[0]) == expected(made)
    assert list(store.records()) == [made[0]]


def test_a_key_without_a_record_is_a_miss_and_leaves_no_trace(store, home):
    assert find(store, make_record()[0]) is None
    assert list(store.records()) == []
    assert not home.exists()


def test_records_are_listed_in_the_order_of_their_paths(store):
    made = [make_record(number) for number in range(5)]
    for pair in made:
        publish(store, pair)
    listed = [record.key for record in store.records()]
    assert listed == sorted(pair[0].key for pair in made)


def test_a_record_is_replaced(store):
    publish(store, make_record(artifacts=("old",)))
    new = make_record(artifacts=("new",))
    publish(store, new)
    assert find(store, new[0]) == new[0]
    assert list(store.records()) == [new[0]]


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_files_of_any_size(store, size):
    made = make_record(artifacts=("a",), size=size)
    publish(store, made)
    assert served(store, find(store, made[0])) == expected(made)


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
    assert {path.parts[0] for path in added} == {"records", "blobs"}
    (blob,) = [path for path in added if path.parts[0] == "blobs"]
    assert decode((home / "v1" / blob).read_bytes()) == two[0], "the one new blob is the copy of the second record"
    assert served(store, find(store, one[0])) == served(store, find(store, two[0])) == expected(one)


@pytest.mark.feature("S1")
def test_a_deleted_index_is_rebuilt_with_the_same_hits(home):
    made = [make_record(number, ("same", f"own {number}")) for number in range(4)]
    for pair in made:
        publish(Watched(home).store, pair)
    index = {path: path.read_bytes() for path in (home / "v1" / "records").rglob("*.json")}
    shutil.rmtree(home / "v1" / "records")
    watched = Watched(home)
    for pair in made:
        assert find(watched.store, pair[0]) == pair[0]
        assert served(watched.store, pair[0]) == expected(pair)
    assert {path: path.read_bytes() for path in (home / "v1" / "records").rglob("*.json")} == index
    assert [told["records"] for told in watched.told("store.reindexed")] == [4], "told, once"
    assert watched.damage() == []


@pytest.mark.feature("S1")
def test_a_rebuilt_index_holds_the_youngest_record_of_a_key(home):
    new = make_record(1, ("new",), created="2026-03-01T00:00:00+00:00")
    for made in (make_record(1, ("old",), created="2026-02-01T00:00:00+00:00"), new):
        publish(Watched(home).store, made)
    shutil.rmtree(home / "v1" / "records")
    assert find(Watched(home).store, new[0]) == new[0]


def test_blobs_that_only_look_like_records_do_not_disturb_a_rebuild(home):
    made = make_record()
    publish(Watched(home).store, made)
    for raw in (b'{"record":', b'{"record": {}, "sha256": "0"}', encode(make_record(2)[0]).replace(b"toy", b"tow")):
        blob = Watched(home).store.layout.blob(hashlib.sha256(raw).hexdigest())
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(raw)
    shutil.rmtree(home / "v1" / "records")
    assert list(Watched(home).store.records()) == [made[0]]


def test_published_files_are_read_only(store, home):
    publish(store, make_record())
    files = [home / "v1" / name for name in tree(home)]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o444}


def test_a_finished_publish_leaves_nothing_else(store, home):
    publish(store, make_record())
    find(store, make_record()[0])
    assert leftovers_of(home) == set()


def test_blobs_that_are_there_need_not_be_handed_over(store):
    first, second = make_record(1, ("a", "b")), make_record(2, ("a", "b"))
    publish(store, first)
    store.publish(second[0], {})
    assert find(store, second[0]) == second[0]


def test_a_record_that_lies_about_a_size_harms_no_blob(store, watched):
    """A stranger's, say, of a shared cache."""
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


def test_a_record_whose_blob_is_nowhere_is_not_published(watched, home):
    record, contents = make_record(1, ("a", "b"))
    contents.popitem()
    with pytest.raises(IntegrityError):
        publish(watched.store, (record, contents))
    assert find(Watched(home).store, record) is None
    assert list(Watched(home).store.records()) == []


def test_a_file_that_is_not_what_its_record_says_is_not_published(watched, home):
    record, contents = make_record(1, ("a", "b"))
    contents[record.files[1].sha256] = blob_bytes("something else")
    with pytest.raises(IntegrityError, match=r"model-b\.code is not what its record says"):
        publish(watched.store, (record, contents))
    assert find(Watched(home).store, record) is None
    assert not any(
        hashlib.sha256(path.read_bytes()).hexdigest() != path.name for path in (home / "v1/blobs").glob("*/*")
    )


def test_publishing_heals_a_damaged_blob(watched):
    made = make_record()
    publish(watched.store, made)
    overwrite(watched.store.layout.blob(made[0].files[0].sha256), b"damage")
    publish(watched.store, made)
    assert find(watched.store, made[0]) == made[0]
    assert served(watched.store, made[0]) == expected(made)


# Never wrong bytes


@pytest.mark.feature("S4")
@pytest.mark.parametrize("victim", ["model-a.code", "model-b.code", "model-c.code", "the record"])
def test_an_entry_that_lacks_any_of_its_files_is_a_miss_and_the_others_stay(home, victim):
    made, other = make_record(1, ("a", "b", "c")), make_record(2, ("d", "e"))
    for pair in (made, other):
        publish(Watched(home).store, pair)
    store = Watched(home).store
    files = {file.path: store.layout.blob(file.sha256) for file in made[0].files}
    files["the record"] = record_path(store, made[0])
    files[victim].unlink()
    assert find(store, made[0]) is None
    assert find(store, other[0]) == other[0]
    assert served(store, other[0]) == expected(other)
    publish(store, made)
    assert find(store, made[0]) == made[0]


@pytest.mark.feature("S4", "S5")
def test_a_lost_blob_is_told_once(watched):
    made = make_record()
    publish(watched.store, made)
    blob = watched.store.layout.blob(made[0].files[0].sha256)
    blob.unlink()
    assert find(watched.store, made[0]) is None
    assert find(watched.store, made[0]) is None
    assert watched.damage() == [str(blob)]


@pytest.mark.feature("S5")
@pytest.mark.parametrize("moment", ["after it was read", "before it is moved"])
def test_a_blob_that_another_process_has_just_replaced_is_not_set_aside(store, watched, home, monkeypatch, moment):
    made = make_record()
    record = publish(store, made)
    path = store.layout.blob(record.files[0].sha256)
    whole = path.read_bytes()
    overwrite(path, whole[::-1])
    replaced = []

    def replace():
        if not replaced:
            replaced.append(path)
            overwrite(path, whole, anew=True)

    if moment == "after it was read":
        damage = Verifier.damage

        def read(self, file, *, memo):
            reason = damage(self, file, memo=memo)
            if reason:
                replace()
            return reason

        monkeypatch.setattr(Verifier, "damage", read)
    else:
        rename = Path.rename

        def move(self, target):
            if self == path:
                replace()
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", move)
    assert find(store, record) == record
    assert replaced
    assert served(store, record) == expected(made)
    assert watched.damage() == []
    assert not list((home / "v1").glob("quarantine/*"))


def test_a_damaged_blob_goes_to_quarantine_and_is_told_once(watched, home):
    made, other = make_record(1, ("a", "shared")), make_record(2, ("other", "shared"))
    for pair in (made, other):
        publish(watched.store, pair)
    blob = watched.store.layout.blob(made[0].files[0].sha256)
    bad = bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:]
    overwrite(blob, bad)
    for _ in range(3):
        assert find(watched.store, made[0]) is None
        assert find(Watched(home).store, made[0]) is None
    assert watched.damage() == [str(blob)]
    assert watched.told("store.damaged")[0]["reason"] == "its digest does not fit"
    kept = [path.read_bytes() for path in (home / "v1" / "quarantine").iterdir() if path.name.endswith(blob.name)]
    assert kept == [bad], "what was found is kept for people to look at"
    assert find(watched.store, other[0]) == other[0]


@pytest.mark.feature("S5")
@pytest.mark.parametrize("anew", [False, True], ids=["in place", "another file"])
def test_the_memo_of_what_was_verified_does_not_hide_a_change(home, anew):
    made = make_record()
    publish(Watched(home).store, made)
    store = Watched(home).store
    assert find(store, made[0]) == made[0]
    blob = store.layout.blob(made[0].files[0].sha256)
    assert (home / "v1" / "verified" / blob.name).exists(), "there is a memo that could hide it"
    before = blob.stat()
    bad = bytes(byte ^ 0xFF for byte in blob.read_bytes())
    overwrite(blob, bad, anew=anew)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a careless copy or a clock set back may do
    assert find(Watched(home).store, made[0]) is None


def test_the_memo_spares_hashing_what_has_not_changed(home):
    """The test above would prove nothing if every lookup read every blob."""

    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    made = make_record(size=10_000_000)
    publish(Watched(home).store, made)
    store = Watched(home).store
    start = bytes_read()
    assert find(store, made[0]) == made[0]
    assert bytes_read() - start < 1_000_000
    shutil.rmtree(home / "v1" / "verified")
    assert find(store, made[0]) == made[0]
    assert bytes_read() - start >= 20_000_000


@pytest.mark.feature("S5")
@pytest.mark.parametrize("place", [0, 9_000_000, 19_999_999])
def test_a_change_in_any_piece_of_a_large_blob_is_found(watched, place):
    made = make_record(artifacts=("a",), size=20_000_000)
    publish(watched.store, made)
    file = made[0].files[0]
    with watched.store.reading(file) as blob:
        assert blob.path.stat().st_size == 20_000_000
    blob = watched.store.layout.blob(file.sha256)
    raw = bytearray(blob.read_bytes())
    raw[place] ^= 1
    overwrite(blob, bytes(raw))
    with pytest.raises(IntegrityError), watched.store.reading(file):
        pass


@pytest.mark.parametrize("note", ["another's pieces", "torn", "no text", "another's name"])
def test_a_wrong_note_of_what_was_verified_refuses_nothing_and_hides_nothing(watched, home, note):
    ours, other = make_record(artifacts=("a",), size=20_000_000), make_record(2, ("c",), size=20_000_000)
    for made in (ours, other):
        publish(watched.store, made)
    file, notes = ours[0].files[0], home / "v1" / "verified"
    theirs = (notes / other[0].files[0].sha256).read_text()
    mine = (notes / file.sha256).read_text()
    (notes / file.sha256).write_bytes(
        {
            "another's pieces": theirs.replace(other[0].files[0].sha256, file.sha256).encode(),
            "torn": mine[:-70].encode(),
            "no text": b"\xff\xfe",
            "another's name": theirs.encode(),
        }[note]
    )
    with watched.store.reading(file) as blob:
        assert blob.path.stat().st_size == 20_000_000
    assert (notes / file.sha256).read_text() == mine, "the note is mended"
    overwrite(watched.store.layout.blob(file.sha256), watched.store.layout.blob(other[0].files[0].sha256).read_bytes())
    (notes / file.sha256).write_text(theirs)
    with pytest.raises(IntegrityError), watched.store.reading(file):
        pass


@pytest.mark.feature("S5")
@pytest.mark.parametrize("change", ["flip", "truncate", "extend", "delete"])
def test_bytes_are_checked_again_when_they_are_read(watched, change):
    made = make_record()
    publish(watched.store, made)
    assert find(watched.store, made[0]) == made[0]
    blob = watched.store.layout.blob(made[0].files[0].sha256)
    raw = blob.read_bytes()
    changed = {"flip": raw[:-1] + bytes([raw[-1] ^ 1]), "truncate": raw[:-1], "extend": raw + b"\0"}
    if change == "delete":
        blob.unlink()
    else:
        overwrite(blob, changed[change])
    with pytest.raises(IntegrityError) as caught:
        served(watched.store, made[0])
    assert caught.value.hint
    assert watched.damage() == [str(blob)]
    assert find(watched.store, made[0]) is None


def test_an_error_of_the_reader_over_good_bytes_is_its_own(watched):
    made = make_record()
    publish(watched.store, made)
    with pytest.raises(ZeroDivisionError), watched.store.reading(made[0].files[0]):
        raise ZeroDivisionError
    assert find(watched.store, made[0]) == made[0]
    assert watched.damage() == []


@pytest.mark.feature("S5")
def test_a_damaged_record_is_a_miss_and_told_once(watched):
    made, other = make_record(1), make_record(2)
    for pair in (made, other):
        publish(watched.store, pair)
    path = record_path(watched.store, made[0])
    overwrite(path, path.read_bytes().replace(b"12.5", b"12.6"))
    assert find(watched.store, made[0]) is None
    assert find(watched.store, made[0]) is None
    assert list(watched.store.records()) == [other[0]]
    assert watched.damage() == [str(path)]


@pytest.mark.feature("S5")
def test_a_record_of_another_key_is_refused(watched):
    """As a mix-up of two files, or a forger with access to the store, would leave it."""
    made, other = make_record(1), make_record(2)
    for pair in (made, other):
        publish(watched.store, pair)
    path = record_path(watched.store, made[0])
    overwrite(path, encode(other[0]))
    assert find(watched.store, made[0]) is None
    assert find(watched.store, other[0]) == other[0]
    assert watched.damage() == [str(path)]


@pytest.mark.parametrize("place", ["standin-2.0/bert", "standin-1.0/roberta"])
def test_a_record_in_another_place_is_refused(watched, place):
    made = make_record()
    publish(watched.store, made)
    path = watched.store.layout.records / place / f"{made[0].key}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(made[0]))
    assert watched.store.lookup(made[0].key, *place.split("/")) is None
    assert find(watched.store, made[0]) == made[0]
    assert watched.damage() == [str(path)]


def signed(body):
    """A document whose own digest is right."""
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    return json.dumps({"record": body, "sha256": digest}, sort_keys=True).encode()


def test_a_record_whose_ingredients_do_not_give_its_key_is_refused(watched):
    made = make_record()
    publish(watched.store, made)
    body = json.loads(encode(made[0]))["record"]
    body["hard"]["number"] = 7
    path = record_path(watched.store, made[0])
    overwrite(path, signed(body))
    assert find(watched.store, made[0]) is None
    assert watched.damage() == [str(path)]


def test_a_record_of_another_schema_is_a_miss_and_no_damage(watched):
    made, other = make_record(1), make_record(2)
    for pair in (made, other):
        publish(watched.store, pair)
    body = json.loads(encode(made[0]))["record"] | {"schema": 2, "something": "new"}
    path = record_path(watched.store, made[0])
    overwrite(path, signed(body))
    assert find(watched.store, made[0]) is None
    assert list(watched.store.records()) == [other[0]]
    assert watched.damage() == []
    assert path.read_bytes() == signed(body), "it belongs to another cachekit"


def test_a_store_of_another_layout_is_left_alone(watched, home):
    made = make_record()
    publish(watched.store, made)
    (home / "v1").rename(home / "v2")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert find(Watched(home).store, made[0]) is None
    publish(Watched(home).store, make_record(2))
    assert {path: path.read_bytes() for path in (home / "v2").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", ["lost", "flipped"])
def test_a_damaged_copy_of_a_record_is_told_and_mended(watched, damage):
    """The record itself is whole and stays a hit; the copy is what a lost index is rebuilt from."""
    made = make_record()
    publish(watched.store, made)
    copy = copy_path(watched.store, made[0])
    if damage == "lost":
        copy.unlink()
    else:
        overwrite(copy, copy.read_bytes().replace(b"ann", b"bob"))
    assert find(watched.store, made[0]) == made[0]
    assert find(watched.store, made[0]) == made[0]
    assert watched.damage() == [str(copy)]
    assert copy.read_bytes() == encode(made[0])
    shutil.rmtree(watched.store.layout.records)
    assert find(watched.store, made[0]) == made[0]


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

    live = tmp_path / "live"
    live.mkdir()
    for module in record.modules:
        with ExitStack() as stack:
            compiler.restore(module, [stack.enter_context(store.reading(file)) for file in module.files], live)
    restored = [path for path in live.rglob("*") if path.is_file()]
    assert {path.relative_to(live).as_posix(): path.read_bytes() for path in restored} == {
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
        raise FileNotFoundError(errno.ENOENT, "the live root is gone")

    with pytest.raises(FileNotFoundError, match="live root"), watched.store.reading(record.files[0]) as blob:
        blob.through(sink)
    assert not watched.damage()
    assert served(watched.store, record) == expected(make_record())


# Many at once


@pytest.mark.feature("S2")
def test_many_processes_may_publish_one_key_at_once(home):
    """Any number of writers are harmless: 16 write other bytes for one key, each several times."""

    def work(number):
        store = Watched(home).store
        made = [
            make_record(1, (f"a{number}", "shared"), created=f"2026-01-02T03:04:{number:02}+00:00") for _ in range(3)
        ]
        for pair in made:
            publish(store, pair)
            found = find(store, pair[0])
            assert served(store, found)
        return True

    assert side_by_side(16, work) == [True] * 16
    watched = Watched(home)
    (record,) = watched.store.records()
    number = int(record.provenance.created[17:19])
    made = make_record(1, (f"a{number}", "shared"), created=record.provenance.created)
    assert find(watched.store, record) == made[0]
    assert served(watched.store, record) == expected(made)
    assert watched.damage() == []
    assert leftovers_of(home) == set()


def test_nobody_sweeps_a_folder_that_is_in_use(tmp_path):
    """Each entry sweeps, so that locks are found, held and removed in every order; old filelocks hold removed files."""

    def work(number):
        for _ in range(150):
            with Scratch(tmp_path / "base") as folder:
                (folder / "file").write_text(str(number))
                assert (folder / "file").read_text() == str(number)
                assert folder.with_name(f"{folder.name}.lock").exists(), "else nobody would sweep it after a kill"
        return True

    assert side_by_side(8, work) == [True] * 8
    assert list((tmp_path / "base").iterdir()) == []


def test_many_processes_may_publish_different_keys_at_once(home):
    def work(number):
        watched = Watched(home)
        for turn in range(4):
            publish(watched.store, make_record(10 * number + turn, (f"{number} {turn}", "shared")))
        return watched.damage()

    assert side_by_side(8, work) == [[]] * 8
    watched = Watched(home)
    made = [make_record(10 * number + turn, (f"{number} {turn}", "shared")) for number in range(8) for turn in range(4)]
    assert [find(watched.store, pair[0]) for pair in made] == [pair[0] for pair in made]
    assert watched.damage() == []
    assert leftovers_of(home) == set()


def test_readers_beside_a_writer_see_the_old_record_or_the_new(home):
    states = [make_record(1, (f"state {number}",)) for number in range(2)]
    publish(Watched(home).store, states[0])

    def work(number):
        watched = Watched(home)
        if number == 0:
            for turn in range(30):
                publish(watched.store, states[turn % 2])
            return [True, []]
        seen = [find(watched.store, states[0][0]) for _ in range(60)]
        return [all(record in (states[0][0], states[1][0]) for record in seen), watched.damage()]

    assert side_by_side(5, work) == [[True, []]] * 5


def test_a_folder_lives_as_long_as_its_process(tmp_path):
    base = tmp_path / "tmp"
    with Scratch(base) as mine:
        (mine / "file").write_bytes(b"mine")

        def other(number):
            with Scratch(base) as theirs:  # sweeps on entry
                (theirs / "file").write_bytes(b"theirs")
            return (mine / "file").read_bytes().decode()

        assert side_by_side(4, other) == ["mine"] * 4

        def killed(number):
            Scratch(base, "killed").__enter__()
            os._exit(9)

        assert side_by_side(1, killed) == [None]
        assert len([path for path in base.iterdir() if path.name.startswith("killed")]) == 2
        with Scratch(base):
            assert not [path for path in base.iterdir() if path.name.startswith("killed")], "swept"
        assert (mine / "file").read_bytes() == b"mine"
    assert list(base.iterdir()) == []


# A disk that cannot be written


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    server = Crashes(tmp_path_factory.mktemp("crashes"))
    yield server
    server.close()


@pytest.mark.parametrize(
    "code",
    [
        errno.ENOSPC,
        errno.EROFS,
        pytest.param(errno.EDQUOT, marks=pytest.mark.slow),
        pytest.param(errno.EACCES, marks=pytest.mark.slow),
        pytest.param(errno.EIO, marks=pytest.mark.slow),
    ],
    ids=errno.errorcode.get,
)
def test_a_disk_that_fails_at_any_call_of_a_publish_leaves_no_partial_entry(crashes, code):
    """From the n-th call on, every call fails that needs what the disk no longer gives."""
    made, kept = make_record(1, ("a", "b")), make_record(2, ("a", "c"))
    with memory_folder() as folder:
        publish(Watched(folder / "base").store, kept)
        shutil.copytree(folder / "base", folder / "count")
        count = crashes(folder / "count", "publish", trace=folder / "trace")["calls"]
        assert count == calls(folder / "trace")[-1][0]
        errors = []
        for at in range(1, count + 1):
            home = shutil.copytree(folder / "base", folder / f"home-{at}")
            answer = crashes(home, "publish", at=at, errno=code)
            errors.append(answer["error"])
            assert answer["error"] in {"", "StoreError"}, answer["traceback"]
            assert answer["hint"] or not answer["error"]
            watched = Watched(home)
            found = find(watched.store, made[0])
            assert found in (None, made[0])
            assert found or answer["error"], "what was published without an error is there"
            assert served(watched.store, find(watched.store, kept[0])) == expected(kept)
            publish(watched.store, made)  # the disk is well again
            assert served(watched.store, find(watched.store, made[0])) == expected(made)
            assert watched.damage() == []
            assert leftovers_of(home) == set()
        assert errors[0] == "StoreError"


def test_a_home_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"precious")
    for home in (tmp_path / "file", tmp_path / "file" / "home"):
        store = Watched(home).store
        assert find(store, make_record()[0]) is None
        assert list(store.records()) == []
        for write in (store.check_writable, lambda store=store: publish(store, make_record())):
            with pytest.raises(StoreError) as caught:
                write()
            assert "must be a folder" in caught.value.hint
            assert str(home) in caught.value.message
    assert (tmp_path / "file").read_bytes() == b"precious"


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 128 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting needs root: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_real_full_disk(small_disk):
    """With ever more space left, until it is enough."""
    home, filler = small_disk / "home", small_disk / "filler"
    kept, made = make_record(1, ("a",)), make_record(2, ("b", "c", "d"))
    publish(Watched(home).store, kept)
    hints = []
    for pages in range(40):
        status = os.statvfs(small_disk)
        filler.write_bytes(bytes(max(0, status.f_bfree - pages) * status.f_frsize))
        watched = Watched(home)
        try:
            publish(watched.store, made)
        except StoreError as error:
            hints.append(error.hint)
        found = find(watched.store, made[0])
        filler.unlink()
        assert served(watched.store, find(watched.store, kept[0])) == expected(kept)
        assert watched.damage() == []
        assert leftovers_of(home) == set()
        if found:
            break
        assert len(hints) == pages + 1, "what is not there was said not to be"
    assert served(Watched(home).store, found) == expected(made)
    assert "free some space, or set CACHEKIT_HOME to another disk" in hints


def test_a_real_read_only_store_serves_its_hits(small_disk):
    home = small_disk / "home"
    made, damaged = make_record(1, ("a", "b")), make_record(2, ("c",))
    for pair in (made, damaged):
        publish(Watched(home).store, pair)
    overwrite(Watched(home).store.layout.blob(damaged[0].files[0].sha256), b"damage")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    watched = Watched(home)
    assert served(watched.store, find(watched.store, made[0])) == expected(made)
    assert find(watched.store, damaged[0]) is None
    assert watched.told("store.damaged")[0]["kept"] is True, "it could not be set aside, and is a miss all the same"
    for write in (watched.store.check_writable, lambda: publish(watched.store, make_record(3))):
        with pytest.raises(StoreError) as caught:
            write()
        assert "read-only" in caught.value.hint
    assert {record.key for record in watched.store.records()} == {made[0].key, damaged[0].key}
