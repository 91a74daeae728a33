"""`verify`: what is bad in a store is named, whatever it is, and nothing else."""

import hashlib
import os

import pytest
from msgspec import structs

from cachekit.key.canonical import key_of
from cachekit.remotes.push import push
from cachekit.store import Store
from cachekit.store.layout import Layout
from cachekit.store.record import File, Module
from cachekit.store.refusal import Refused
from cachekit.store.verify import Count
from cachekit.verbs.verify import verify
from tests.compilers.neuron.neuron_files import make_neff
from tests.store.store_cases import home  # noqa: F401 - a fixture
from tests.store.verify_cases import filled, record_path, shared, with_cache  # noqa: F401 - fixtures
from tests.support.standins import Watched, expected, find, make_record, overwrite, publish, served

COMPILER = "neuronxcc-2.16.372.0+4a9b2326"


WAYS = {
    "flip": lambda raw: raw[:7] + bytes([raw[7] ^ 4]) + raw[8:],
    "cut": lambda raw: raw[:100],
    "longer": lambda raw: raw + b"\0",
    "empty": lambda raw: b"",
    "gone": None,
}


def test_nothing_is_bad_in_no_store_and_in_a_good_one(home):
    watched = Watched(home)
    assert verify(watched.session).problems == ()
    assert not home.exists()
    publish(watched.store, make_record(1, ("a", "same")))
    publish(watched.store, make_record(2, ("b", "same")))
    found = verify(watched.session)
    assert found.error() is None
    assert (found.records, found.blobs, found.orphans, found.notes) == (2, 3, Count(), ())
    assert found.bytes == 3 * 3000
    assert verify(watched.session, quick=True).problems == ()


@pytest.mark.feature("S6")
@pytest.mark.parametrize("quick", [False, True], ids=["whole", "quick"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_bad_is_named_and_nothing_else(home, shared, way, quick):
    """--quick tells of everything but what only a digest can tell."""
    watched = with_cache(home, shared)
    made = [make_record(number, (f"own {number}", f"also {number}", "same"), size=300) for number in range(4)]
    filled(watched, *made)
    record, _ = made[2]
    file = record.files[1]
    path = watched.store.layout.blob(file.sha256)
    overwrite(path, WAYS[way](path.read_bytes())) if WAYS[way] else path.unlink()
    found = verify(watched.session, quick=quick)
    if quick and way == "flip":
        assert found.problems == ()
        return
    (problem,) = found.problems
    assert (problem.kind, problem.keys, problem.path) == ("blob", (record.key,), str(path))
    assert problem.file == f"standin-1.0/MODULE_1/{file.path}"
    error = found.error()
    assert error.exit_code == 5
    assert record.key[:12] in error.message
    assert file.path in error.cause
    done = verify(watched.session, quick=quick, repair=True)
    assert [(one.path, one.repaired) for one in done.problems] == [
        (str(path), watched.session.remotes.readable[0].name)
    ]
    assert done.good
    assert verify(watched.session).problems == ()
    for pair in made:
        assert served(watched.store, find(watched.store, pair[0])) == expected(pair)


@pytest.mark.campaign
@pytest.mark.feature("S6")
def test_one_corrupt_file_of_a_thousand(home, shared):
    made = [make_record(number, tuple(f"{number} {part}" for part in range(100)), size=64) for number in range(10)]
    watched = with_cache(home, shared)
    for pair in made:
        publish(watched.store, pair)
    record, contents = made[7]
    push(watched.store, watched.session.remotes, [record])
    bad = watched.store.layout.blob(record.files[3].sha256)
    overwrite(bad, bytes(64))
    found = verify(watched.session)
    assert [problem.path for problem in found.problems] == [str(bad)]
    assert found.error().exit_code == 5
    assert verify(watched.session, repair=True).error() is None
    assert bad.read_bytes() == contents[record.files[3].sha256]
    assert verify(watched.session).problems == ()
    assert find(watched.store, record) == record


@pytest.mark.feature("S6")
def test_decay_of_the_disk_that_moves_no_time_is_found_and_repaired(home, shared):
    """A note says that this state of the file was hashed; only hashing it again tells."""
    made = make_record(1)
    watched = with_cache(home, shared)
    filled(watched, made)
    digest = made[0].files[0].sha256
    path = watched.store.layout.blob(digest)
    pieces = watched.store.index.whole(digest).pieces
    overwrite(path, bytes(3000))
    watched.store.index.note_whole({digest: watched.store.blobs.whole_now(digest, pieces)})
    assert find(Watched(home).store, made[0]) is not None, "the note is believed"
    found = verify(watched.session)
    assert [problem.sha256 for problem in found.problems] == [digest]
    assert verify(watched.session, repair=True).good
    assert served(watched.store, made[0]) == expected(made)


@pytest.mark.feature("S6")
def test_a_file_of_several_records_is_one_problem(home):
    watched = Watched(home)
    made = [make_record(number, ("same", f"own {number}")) for number in range(3)]
    filled(watched, *made)
    path = watched.store.layout.blob(made[0][0].files[0].sha256)
    overwrite(path, b"bad")
    (problem,) = verify(watched.session).problems
    assert set(problem.keys) == {record.key for record, _ in made}


# Compiled graphs


def neuron_record(contents, *, name="MODULE_14529842170341812+f7f529f3"):
    files = [("model.neff", contents), ("model.done", b""), ("compile_flags.json", b'["--target=trn1"]')]
    hard = {"neuron.module": name, "number": len(contents)}
    record, _ = make_record(1)
    made = tuple(File(path, len(raw), hashlib.sha256(raw).hexdigest()) for path, raw in files)
    module = Module(f"{COMPILER}/{name}", made)
    record = structs.replace(
        record, key=key_of(hard), hard=hard, compiler="neuron", directory=COMPILER, modules=(module,)
    )
    return record, {hashlib.sha256(raw).hexdigest(): raw for _, raw in files}


@pytest.mark.feature("S6")
@pytest.mark.parametrize("way", ["good", "flip", "cut", "no neff"])
def test_a_graph_that_is_what_its_record_says_and_damaged_all_the_same(home, way):
    """Poisoned before it was hashed: no digest tells, its own does."""
    raw = make_neff(version="2.16.372.0+4a9b2326", target="sunda")
    middle = len(raw) - 40
    contents = {
        "good": raw,
        "flip": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :],
        "cut": raw[:-100],
        "no neff": b"an odd thing" * 200,
    }[way]
    made = neuron_record(contents)
    watched = Watched(home)
    publish(watched.store, made)
    found = verify(watched.session)
    if way in {"flip", "cut"}:
        assert [(problem.kind, problem.file) for problem in found.problems] == [
            ("graph", f"{COMPILER}/MODULE_14529842170341812+f7f529f3/model.neff")
        ]
        assert found.error().exit_code == 5
        done = verify(watched.session, repair=True)
        assert [problem.left for problem in done.bad] == ["no remote that can be read is configured"]
    else:
        assert found.problems == ()
        assert len(found.notes) == (way == "no neff")
    assert verify(watched.session, quick=True).problems == ()


# What nobody needs


def test_what_is_left_over_is_counted_and_no_damage(home):
    watched = Watched(home)
    filled(watched, make_record(1, ("old",)))
    publish(watched.store, make_record(1, ("new",)))
    layout = Layout(home)
    (layout.tmp / "publish-1-0123456789ab").mkdir(parents=True)
    (layout.tmp / "publish-1-0123456789ab" / "part").write_bytes(bytes(100))
    (layout.tmp / "publish-1-0123456789ab.lock").touch()
    layout.quarantine.mkdir()
    (layout.quarantine / "20260101T000000-1-abc").write_bytes(bytes(7))
    (layout.blobs / "ab").mkdir(exist_ok=True)
    (layout.blobs / "ab" / "stranger").write_bytes(b"?")
    found = verify(watched.session)
    assert found.error() is None
    assert found.orphans == Count(1, 3000)
    assert found.garbage == Count(2, 107)
    assert found.quarantined == Count(1, 7)
    assert any("stranger" in note for note in found.notes)


@pytest.mark.feature("S6")
@pytest.mark.parametrize("quick", [False, True])
def test_what_is_no_file_is_named_and_nobody_waits_for_it(home, shared, quick):
    """A pipe in a file's place has no end; a folder there must not keep the rest from being looked at."""
    watched = with_cache(home, shared)
    made = [make_record(number, (f"own {number}",)) for number in range(5)]
    filled(watched, *made)
    first, second, third, fourth, _ = (record for record, _ in made)
    for path in (record_path(watched.store, first), record_path(watched.store, second)):
        path.unlink()
    record_path(watched.store, first).mkdir()
    os.mkfifo(record_path(watched.store, second))
    for record in (third, fourth):
        path = watched.store.layout.blob(record.files[0].sha256)
        path.unlink()
        os.mkfifo(path)
    found = verify(watched.session, quick=quick)
    bad = {problem.keys[0]: problem.kind for problem in found.problems}
    assert bad == {first.key: "record", second.key: "record", third.key: "blob", fourth.key: "blob"}
    assert found.orphans == Count(), "nobody knows what the unreadable ones name"
    repaired = verify(watched.session, quick=quick, repair=True)
    assert [(problem.keys, problem.left) for problem in repaired.bad] == [
        ((first.key,), "a folder is in its place: remove the folder")
    ]
    assert [problem.keys[0] for problem in verify(watched.session).problems] == [first.key]
    for pair in made[1:]:
        assert served(watched.store, pair[0]) == expected(pair)


def test_a_record_that_is_removed_before_it_is_judged_is_no_trouble(home):
    """As beside `gc`, or `rm`."""
    watched = Watched(home)
    record = publish(watched.store, make_record())
    wary = Store(home, watched.store.journal, asked=lambda *_: Refused("revoked"))
    assert wary.refusal.judged(record) == Refused("revoked")
    record_path(watched.store, record).unlink()
    assert wary.refusal.judged(record) is None
