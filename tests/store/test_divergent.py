"""One key, two builds with other bytes: both digests and both builders are told, once, and nothing else changes."""

import hashlib

import pytest
from msgspec import structs

from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store import divergent
from cachekit.store.record import File, Module
from cachekit.verbs.warm import warm
from tests.support.standins import Watched, find, make_record, publish, recipe

NEFF = "neuronxcc-2.21.1+1/MODULE_1+2"


def built(by, code, *, name=NEFF, notes=b"done"):
    """A record of the one key, made by somebody, with the module's code."""
    record, _ = make_record()
    contents = {hashlib.sha256(raw).hexdigest(): raw for raw in (code, notes)}
    files = tuple(
        File(path, len(raw), hashlib.sha256(raw).hexdigest()) for path, raw in (("a.code", code), ("z.done", notes))
    )
    made = structs.replace(record.provenance, user=by, created=f"2026-01-0{len(by)}T00:00:00+00:00")
    return structs.replace(record, modules=(Module(name, files),), provenance=made), contents


def archive(by, raw):
    digest = hashlib.sha256(raw).hexdigest()
    record, _ = built(by, raw)
    module = Module(f"inductor-2.13.0/x86_64-avx2-00000000/{digest}.tar", (File(f"{digest}.tar", len(raw), digest),))
    return structs.replace(record, modules=(module,)), {digest: raw}


@pytest.fixture
def team(tmp_path):
    (tmp_path / "team").mkdir()

    def join(name):
        return Watched(tmp_path / name, shared=[(FolderStorage(tmp_path / "team"), "rw")])

    return join


@pytest.mark.feature("F7")
@pytest.mark.parametrize("build", [built, archive])
def test_a_build_that_takes_the_place_of_another_is_told_with_both_builders(tmp_path, build):
    watched = Watched(tmp_path / "home")
    first, second = build("ann", b"one"), build("carl", b"two")
    publish(watched.store, first)
    assert not watched.told("record.differs")
    publish(watched.store, second)
    (told,) = watched.told("record.differs")
    assert (told["key"], told["where"]) == (first[0].key, "local")
    assert (told["ours"]["by"], told["theirs"]["by"]) == ("carl@host", "ann@host")
    (module,) = told["modules"]
    digests = {record.modules[0].files[0].sha256 for record in (first[0], second[0])}
    if build is archive:
        assert {module["ours"], module["theirs"]} == digests
    assert (module["ours"] != module["theirs"], len(module["files"])) == (True, 1)
    assert find(watched.store, first[0]) == second[0], "it is told, and nothing else"
    publish(watched.store, first)
    publish(watched.store, second)
    assert len(watched.told("record.differs")) == 2, "each pair once"


@pytest.mark.feature("F7")
@pytest.mark.parametrize("build", [built, archive])
def test_a_push_against_another_build_tells_both_builders(team, build):
    ann, carl = team("ann"), team("carl")
    for who, name, code in ((ann, "ann", b"one"), (carl, "carl", b"two")):
        record = publish(who.store, build(name, code))
        (done,) = push(who.store, who.session.remotes, [record])
        assert done.error is None
    assert not ann.told("record.differs")
    (told,) = carl.told("record.differs")
    assert (told["where"], told["ours"]["by"], told["theirs"]["by"]) == (
        carl.session.remotes.writable[0].name,
        "carl@host",
        "ann@host",
    )
    push(carl.store, carl.session.remotes, [record])
    assert len(carl.told("record.differs")) == 1, "once"
    assert [note.where for note in divergent.noted(carl.store.layout, record.key)] == [told["where"]]


@pytest.mark.feature("F7")
def test_a_recache_that_gives_other_bytes_under_the_same_names_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.standin_worker.module_bytes", lambda seed: b"one " + seed.encode())
    before, after = Watched(tmp_path / "home"), Watched(tmp_path / "home")
    warm(before.session, before.prepare(recipe()))
    warm(after.session, after.prepare(recipe()), recache=True)
    assert not after.told("record.differs"), "the same bytes again"
    monkeypatch.setattr("tests.support.standin_worker.module_bytes", lambda seed: b"two " + seed.encode())
    warm(after.session, after.prepare(recipe()), recache=True)
    (told,) = after.told("record.differs")
    assert [module["files"] for module in told["modules"]] == [["model.code"]] * 3


def test_a_damaged_note_is_none(tmp_path):
    watched = Watched(tmp_path / "home")
    record, _ = built("ann", b"one")
    path = watched.store.layout.builds(record.key)
    path.parent.mkdir(parents=True)
    for raw in (b"", b"{", b"{}", b'[1, {"where": 2}]'):
        path.write_bytes(raw)
        other, _ = built("carl", b"two")
        assert divergent.noted(watched.store.layout, record.key) == []
        assert divergent.tell(watched.store.layout, watched.journal, record, other, "team")
        assert [note.where for note in divergent.noted(watched.store.layout, record.key)] == ["team"]
