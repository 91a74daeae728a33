"""Never wrong bytes: what the store does with blobs and records that are damaged."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest
import xxhash
from msgspec import structs

from cachekit.errors import IntegrityError
from cachekit.store.blobs import Blobs
from cachekit.store.record import encode
from cachekit.verbs.verify import verify
from tests.store.store_cases import home, store, watched  # noqa: F401 - fixtures
from tests.store.verify_cases import record_path
from tests.support.standins import Watched, expected, find, make_record, overwrite, publish, served


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
        check = Blobs.check

        def read(self, file, depth, **since):
            reason = check(self, file, depth, **since)
            if reason:
                replace()
            return reason

        monkeypatch.setattr(Blobs, "check", read)
    else:
        rename = os.rename

        def move(name, *target, **folders):
            if name == path.name:
                replace()
            return rename(name, *target, **folders)

        monkeypatch.setattr(os, "rename", move)
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
    assert watched.told("store.damaged")[0]["reason"] == "its digest does not match"
    kept = [path.read_bytes() for path in (home / "v1" / "quarantine").iterdir() if path.name.endswith(blob.name)]
    assert kept == [bad], "what was found is kept for people to look at"
    assert find(watched.store, other[0]) == other[0]


@pytest.mark.feature("S5")
@pytest.mark.parametrize("anew", [False, True], ids=["in place", "another file"])
def test_the_note_of_what_was_found_whole_does_not_hide_a_change(home, anew):
    made = make_record()
    publish(Watched(home).store, made)
    store = Watched(home).store
    assert find(store, made[0]) == made[0]
    blob = store.layout.blob(made[0].files[0].sha256)
    assert store.index.whole(blob.name) is not None, "there is a note that could hide it"
    before = blob.stat()
    bad = bytes(byte ^ 0xFF for byte in blob.read_bytes())
    overwrite(blob, bad, anew=anew)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a careless copy or a clock set back may do
    assert find(Watched(home).store, made[0]) is None


def test_hashing_is_spared_for_what_has_not_changed(home):
    """The test above would prove nothing if every lookup read every blob."""

    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    made = make_record(size=10_000_000)
    publish(Watched(home).store, made)
    store = Watched(home).store
    start = bytes_read()
    assert find(store, made[0]) == made[0]
    assert bytes_read() - start < 1_000_000
    store.layout.index.unlink()
    for file in made[0].files:
        store.layout.blob(file.sha256).touch()
    assert find(store, made[0]) == made[0]
    assert bytes_read() - start >= 20_000_000
    assert find(store, made[0]) == made[0]
    assert bytes_read() - start < 22_000_000, "and that was noted"


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


def test_a_wrong_note_of_what_was_found_whole_refuses_nothing(watched):
    ours, other = make_record(artifacts=("a",), size=20_000_000), make_record(2, ("c",), size=20_000_000)
    for made in (ours, other):
        publish(watched.store, made)
    index, file = watched.store.index, ours[0].files[0]
    theirs, mine = index.whole(other[0].files[0].sha256), index.whole(file.sha256)
    for wrong in (theirs, structs.replace(mine, pieces=mine.pieces[:-1])):
        index.note_whole({file.sha256: wrong})
        with watched.store.reading(file) as blob:
            assert blob.path.stat().st_size == 20_000_000
        assert index.whole(file.sha256) == mine, "the note is correct again"


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
@pytest.mark.parametrize("way", ["changed", "another key's", "another place's"])
def test_a_record_that_is_not_what_its_place_says_is_a_miss_and_told_once(watched, way):
    made, other = make_record(1), make_record(2)
    for pair in (made, other):
        publish(watched.store, pair)
    path = record_path(watched.store, made[0])
    raw = {
        "changed": path.read_bytes().replace(b"12.5", b"12.6"),
        "another key's": encode(other[0]),
        "another place's": encode(structs.replace(made[0], directory="standin-2.0")),
    }[way]
    overwrite(path, raw)
    assert find(watched.store, made[0]) is None
    assert find(watched.store, made[0]) is None
    assert list(watched.store.records()) == [other[0]]
    assert watched.damage() == [str(path)]


def test_a_store_of_another_layout_is_left_alone(watched, home):
    made = make_record()
    publish(watched.store, made)
    (home / "v1").rename(home / "v2")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert find(Watched(home).store, made[0]) is None
    publish(Watched(home).store, make_record(2))
    assert {path: path.read_bytes() for path in (home / "v2").rglob("*") if path.is_file()} == before


@pytest.mark.feature("S4")
def test_what_was_found_wrong_is_vouched_for_by_no_note(home):
    made = make_record()
    publish(Watched(home).store, made)
    store, file = Watched(home).store, made[0].files[0]
    path = store.layout.blob(file.sha256)
    raw = bytearray(path.read_bytes())
    raw[0] ^= 1
    overwrite(path, raw)
    store.index.note_whole({file.sha256: store.blobs.whole_now(file.sha256, (xxhash.xxh3_128(raw).hexdigest(),))})
    assert verify(Watched(home).session).problems
    assert find(Watched(home).store, made[0]) is None


@pytest.mark.feature("S3")
@pytest.mark.parametrize(
    ("at_first", "then", "good"),
    [
        ("whole", ["whole"], True),
        ("whole", ["whole"] * 3, True),
        ("damaged", ["whole"], False),
        ("whole", ["damaged"], False),
        ("whole", ["damaged", "whole", "damaged"], False),
    ],
)
def test_a_blob_that_is_replaced_while_somebody_reads_it(watched, at_first, then, good):
    """Writers of one content replace it by an equal file all the time, which harms no reader of it."""
    store = watched.store
    (file, *_) = publish(store, make_record()).files
    path = store.layout.blob(file.sha256)
    kinds = {"whole": path.read_bytes(), "damaged": path.read_bytes()[::-1]}
    overwrite(path, kinds[at_first])
    with nullcontext() if good else pytest.raises(IntegrityError, match="damaged"), store.reading(file) as blob:
        opened = blob.path.open("rb")
        for kind in then:
            overwrite(path, kinds[kind], anew=True)
        with opened:
            assert opened.read() == kinds[at_first]
    assert path.exists() == (then[-1] == "whole"), "only what is damaged is set aside"
    assert bool(watched.damage()) == (then[-1] != "whole")
