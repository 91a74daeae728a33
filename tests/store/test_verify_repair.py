"""`verify --repair`: records and files come back from where there is a good copy, or are said to be gone."""

import hashlib
import json

import pytest

from cachekit.cli.upkeep import verified
from cachekit.remotes.folder import FolderStorage
from cachekit.store.record import decode, encode
from cachekit.verbs.verify import verify
from tests.remotes.watched_storages import Broken
from tests.store.store_cases import home  # noqa: F401 - a fixture
from tests.store.verify_cases import filled, record_path, shared, with_cache  # noqa: F401 - fixtures
from tests.support.standins import Watched, expected, find, make_record, overwrite, publish, served

# Records


@pytest.mark.feature("S6")
@pytest.mark.parametrize("way", ["flip", "cut", "other", "text"])
def test_a_damaged_record_comes_back_from_a_shared_cache(home, shared, way):
    made, other = make_record(1), make_record(2, ("b", "c"))
    watched = with_cache(home, shared)
    filled(watched, made, other)
    path = record_path(watched.store, made[0])
    raw = path.read_bytes()
    bad = {
        "flip": raw.replace(b'"toy"', b'"top"'),
        "cut": raw[:-30],
        "other": record_path(watched.store, other[0]).read_bytes(),
        "text": b"no record",
    }[way]
    overwrite(path, bad)
    found = verify(watched.session, quick=True)
    assert [(problem.kind, problem.keys, problem.path) for problem in found.problems] == [
        ("record", (made[0].key,), str(path))
    ]
    done = verify(watched.session, repair=True)
    assert [problem.repaired for problem in done.problems] == [watched.session.remotes.readable[0].name]
    assert verified(done)[0].endswith(": 1 bad, now repaired")
    assert decode(path.read_bytes()) == made[0]
    assert [aside.read_bytes() for aside in watched.store.layout.quarantine.iterdir()] == [bad]
    assert verify(watched.session).problems == ()
    assert find(Watched(home).store, other[0]) == other[0]


def test_records_of_a_later_version_are_counted_and_no_damage(home):
    watched = Watched(home)
    publish(watched.store, make_record(1))
    body = json.loads(encode(make_record(2, ("z",))[0]))["record"] | {"schema": 2, "more": "unknown"}
    raw = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    document = {"record": body, "sha256": hashlib.sha256(raw).hexdigest()}
    path = record_path(watched.store, make_record(2)[0])
    path.write_bytes(json.dumps(document).encode())
    found = verify(watched.session)
    assert found.problems == ()
    assert (found.records, found.of_later_versions) == (2, 1)


# What cannot be repaired


@pytest.mark.feature("S6")
def test_what_no_cache_has_is_said_and_stays_as_it_is(home, shared):
    one, two = make_record(1, ("a", "b")), make_record(2, ("c", "d"))
    watched = with_cache(home, shared)
    filled(watched, one)
    publish(watched.store, two)  # nobody else has it
    for record, _ in (one, two):
        overwrite(watched.store.layout.blob(record.files[0].sha256), b"bad")
    done = verify(watched.session, repair=True)
    assert [problem.keys for problem in done.problems if problem.repaired] == [(one[0].key,)]
    (problem,) = done.bad
    assert (problem.keys, problem.left) == ((two[0].key,), "no remote has it")
    error = done.error()
    assert error.exit_code == 5
    assert two[0].key[:12] in error.message
    assert one[0].key[:12] not in error.message
    assert "rm" in error.hint
    assert [problem.keys for problem in verify(watched.session).problems] == [(two[0].key,)], "named again"


@pytest.mark.feature("S6")
def test_a_cache_that_has_other_bytes_for_the_file_does_not_repair_it(home, shared):
    made = make_record(1, size=9000)  # larger than what travels inside of the record
    watched = with_cache(home, shared)
    filled(watched, made)
    theirs = [path for path in shared.rglob("*") if path.is_file() and path.read_bytes() in made[1].values()]
    assert theirs
    for path in theirs:
        overwrite(path, bytes(9000))
    bad = watched.store.layout.blob(made[0].files[0].sha256)
    overwrite(bad, b"bad")
    fresh = with_cache(home, shared)
    done = verify(fresh.session, repair=True)
    assert len(done.bad) == 1
    assert done.error().exit_code == 5
    assert find(fresh.store, made[0]) is None


@pytest.mark.feature("S6")
def test_bad_bytes_stay_until_their_replacement_has_come(home, shared):
    made = make_record(1, size=9000)
    filled(with_cache(home, shared), made)
    storage = Broken(FolderStorage(shared), "chunks")
    watched = Watched(home, shared=[(storage, "r")])
    bad, aside = watched.store.layout.blob(made[0].files[0].sha256), watched.store.layout.quarantine
    overwrite(bad, b"bad")
    (problem,) = verify(watched.session, repair=True).bad
    assert "it is away" in problem.left
    assert bad.read_bytes() == b"bad"
    assert not aside.exists()
    storage.failing.clear()
    assert verify(watched.session, repair=True).good
    assert [path.read_bytes() for path in aside.iterdir()] == [b"bad"]
    assert find(watched.store, made[0]) == made[0]


@pytest.mark.feature("S6")
def test_another_compile_of_the_key_takes_the_place_of_one_that_nobody_has(home, shared, tmp_path):
    theirs = make_record(1, ("their a", "their b"))
    other = with_cache(tmp_path / "other", shared)
    filled(other, theirs)
    ours = make_record(1, ("our a", "our b"))
    watched = with_cache(home, shared)
    publish(watched.store, ours)
    overwrite(watched.store.layout.blob(ours[0].files[1].sha256), b"bad")
    assert verify(watched.session, repair=True).good
    assert find(watched.store, ours[0]) == theirs[0]
    assert served(watched.store, theirs[0]) == expected(theirs)
    assert verify(watched.session).problems == ()


def test_a_check_changes_nothing(home):
    watched = Watched(home)
    filled(watched, make_record(1), make_record(2, ("c",)))
    overwrite(watched.store.layout.blob(make_record(1)[0].files[0].sha256), b"bad")
    state = {path: path.stat().st_ctime_ns for path in (home / "v1").rglob("*") if "index" not in path.name}
    assert verify(watched.session).problems
    assert {path: path.stat().st_ctime_ns for path in (home / "v1").rglob("*") if "index" not in path.name} == state
    assert watched.damage() == []
