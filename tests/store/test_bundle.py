"""Bundles as files: what a tar is, equal bytes for equal contents, and nothing but a whole one is taken."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import subprocess
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import IntegrityError, UsageError
from cachekit.remotes import bundle_out
from cachekit.remotes.folder import FolderStorage
from cachekit.store.bundle import INDEX, Member, Reader, Writer, index
from cachekit.store.record import File, Module
from cachekit.verbs.export import export_bundle
from cachekit.verbs.imports import import_bundle
from cachekit.verbs.plan import plan
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.store.bundle_files import crafted, sealed, taken
from tests.support.processes import side_by_side
from tests.support.standins import (
    Watched,
    compiles,
    expected,
    find,
    garbage_of,
    make_record,
    publish,
    runs,
    served,
    tree,
)

pytest_plugins = ["tests.store.bundle_files"]

STEP = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="/\\\0"), min_size=1, max_size=120)
PATHS = st.lists(STEP.filter(lambda step: step not in {".", ".."}), min_size=1, max_size=8).map("/".join)


# The format


@given(st.dictionaries(PATHS, st.binary(max_size=1500), max_size=6))
@settings(max_examples=50)
def test_what_is_written_is_read(contents):
    members = [Member(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in contents.items()]
    out = io.BytesIO()
    writer = Writer(out, members)
    for member in members:
        writer.add(member, iter([contents[member.path][:7], contents[member.path][7:]]))
    totals = writer.finish()
    assert (totals.size, totals.sha256) == (len(out.getvalue()), hashlib.sha256(out.getvalue()).hexdigest())
    assert totals.size % 10240 == 0
    reader = Reader(io.BytesIO(out.getvalue()), "x")
    assert {member.path: b"".join(chunks) for member, chunks in reader.each()} == contents
    assert reader.totals == totals
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert {one.name for one in tar} == {INDEX, *contents}


def test_equal_contents_give_equal_bytes(tmp_path):
    made = [make_record(number, (f"a{number}", "same")) for number in (1, 2, 3)]
    digests = set()
    for turn, order in enumerate([[0, 1, 2], [2, 0, 1]]):
        watched = Watched(tmp_path / str(turn), trust_all=True)
        records = [publish(watched.store, made[number]) for number in order]
        digests.add(export_bundle(watched.session, records, tmp_path / f"{turn}.tar").sha256)
    assert len(digests) == 1
    assert (tmp_path / "0.tar").read_bytes() == (tmp_path / "1.tar").read_bytes()


@pytest.mark.parametrize("change", [b"", b"longer than it is"])
def test_a_file_that_changes_its_size_spoils_no_bundle(change):
    member = Member("a", 5, hashlib.sha256(b"hello").hexdigest())
    writer = Writer(io.BytesIO(), [member])
    with pytest.raises(IntegrityError, match="changed while it was read"):
        writer.add(member, iter([change]))


def test_a_later_format_is_told_apart_from_damage(tmp_path):
    with pytest.raises(UsageError, match="newer cachekit"):
        taken(tmp_path / "home", crafted([], raw_index=sealed({"schema": 2, "what": "else"})))


# Damage


@pytest.mark.feature("F4")
def test_no_flipped_or_lost_byte_is_taken(tmp_path, whole):
    """Any byte: of headers, of padding, of the end as well."""
    path, _ = whole
    raw = path.read_bytes()
    dice = random.Random(7)
    home = tmp_path / "home"
    watched = Watched(home, trust_all=True)
    spots = {0, len(raw) - 1, *dice.sample(range(len(raw)), 150)}
    broken = [raw[:spot] + bytes([raw[spot] ^ 1 << dice.randrange(8)]) + raw[spot + 1 :] for spot in sorted(spots)]
    broken += [raw[:spot] for spot in sorted(spots)]
    broken += [raw + b"\0", raw + raw, b"", b"\0" * 10240, gzip.compress(raw)]
    for one in broken:
        with pytest.raises(IntegrityError, match="not a complete bundle"):
            import_bundle(watched.session, io.BytesIO(one), "x.tar")
    assert tree(home) == set()
    assert garbage_of(home) == set()
    assert taken(home, raw).records[0].state == "added"


@pytest.mark.feature("F4")
def test_a_killed_import_leaves_nothing(tmp_path, whole):
    path, _ = whole
    home = tmp_path / "home"

    class Deadly(io.BytesIO):
        """Kills its reader at one of its reads."""

        left = 0

        def read(self, size=-1):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), 9)
            return super().read(size)

    def killed(number):
        source = Deadly(path.read_bytes())
        source.left = number + 1
        import_bundle(Watched(home, trust_all=True).session, source, "x.tar")
        return True

    dead = 0
    while dead < 30 and not side_by_side(1, lambda _, number=dead: killed(number))[0]:
        assert tree(home) == set()
        dead += 1
    assert 8 < dead < 30  # each part of it was a moment to die in
    record = taken(home, path.read_bytes()).records[0]
    assert [one.key for one in Watched(home).store.records()] == [record.key]
    assert garbage_of(home) == set()


def test_what_cannot_be_a_bundle_for_its_size_is_refused(monkeypatch):
    monkeypatch.setattr("cachekit.store.bundle.LARGEST", 5_000)
    with pytest.raises(UsageError, match="too many"):
        index([Member(f"{'x' * 900}/{number}", 0, "0" * 64) for number in range(6)])
    monkeypatch.undo()
    monkeypatch.setattr("cachekit.store.bundle.MOST_VALUES", 20)
    with pytest.raises(UsageError, match="too many"):
        index([Member(f"{number}", 0, "0" * 64) for number in range(6)])


@pytest.mark.feature("F4")
def test_a_bundle_comes_through_a_pipe(tmp_path, whole):
    path, _ = whole
    home = tmp_path / "home"
    with subprocess.Popen(["sh", "-c", f"dd if={path} bs=777 2>/dev/null"], stdout=subprocess.PIPE, bufsize=0) as feed:
        done = import_bundle(Watched(home, trust_all=True).session, feed.stdout, "standard input")
    assert [one.state for one in done.records] == ["added"]


# What the store has


def exported(tmp_path, made) -> bytes:
    watched = Watched(tmp_path / "other", trust_all=True)
    path = tmp_path / "other.tar"
    export_bundle(watched.session, [publish(watched.store, made)], path)
    return path.read_bytes()


def test_another_build_of_a_module_leaves_that_of_the_store(tmp_path):
    raw = exported(tmp_path, make_record(1, ("a", "c")))
    watched = Watched(tmp_path / "home", trust_all=True)
    mine = make_record(1, ("a", "b"))
    record = publish(watched.store, mine)
    done = import_bundle(watched.session, io.BytesIO(raw), "x.tar")
    assert [one.state for one in done.records] == ["kept"]
    assert find(watched.store, record) == record
    assert served(watched.store, record) == expected(mine)
    assert done.bytes == 0


def test_modules_that_the_store_lacks_are_added_to_its_record(tmp_path):
    record, contents = make_record(1, ("b", "c"))
    module = structs.replace(record.modules[0], name="standin-1.0/MODULE_2")
    raw = exported(tmp_path, (structs.replace(record, modules=(module,)), contents))
    watched = Watched(tmp_path / "home", trust_all=True)
    mine = publish(watched.store, make_record(1, ("a", "b")))
    for dry_run in (True, False):
        done = import_bundle(watched.session, io.BytesIO(raw), "x.tar", dry_run=dry_run)
        assert ([one.state for one in done.records], done.bytes) == (["merged"], 3000)
        assert (find(watched.store, mine) == mine) is dry_run
    found = find(watched.store, mine)
    assert [one.name for one in found.modules] == ["standin-1.0/MODULE_1", "standin-1.0/MODULE_2"]
    assert [one.state for one in import_bundle(watched.session, io.BytesIO(raw), "x.tar").records] == ["present"]


@pytest.mark.feature("F4")
def test_two_builds_of_a_module_travel_in_one_bundle(tmp_path):
    """The later one's files lie under their digests, as on a remote."""
    watched = Watched(tmp_path / "maker", trust_all=True)
    made = [make_record(number, artifacts) for number, artifacts in ((1, ("a", "b")), (2, ("a", "c")))]
    other = structs.replace(made[1][0].modules[0].files[1], path="model-b.code")
    modules = (structs.replace(made[1][0].modules[0], files=(made[1][0].modules[0].files[0], other)),)
    made[1] = structs.replace(made[1][0], modules=modules), made[1][1]
    records = [publish(watched.store, one) for one in made]
    bundled = export_bundle(watched.session, records, tmp_path / "x.tar")
    assert [one.path for one in bundled.files if "/blobs/" in one.path]
    done = taken(tmp_path / "home", (tmp_path / "x.tar").read_bytes())
    assert [one.state for one in done.records] == ["added", "added"]
    store = Watched(tmp_path / "home").store
    assert [served(store, record) for record in records] == [expected(one) for one in made]


@pytest.mark.feature("F4")
def test_files_that_many_modules_share_come_to_each(tmp_path):
    """As Neuron's flags and empty marks do."""
    record, contents = make_record(artifacts=("a",))
    contents[hashlib.sha256(b"").hexdigest()] = b""
    mark = File("model.done", 0, hashlib.sha256(b"").hexdigest())
    files = (*record.modules[0].files, mark)
    modules = tuple(Module(f"standin-1.0/MODULE_{number}", files) for number in range(5))
    record = structs.replace(record, modules=modules)
    watched = Watched(tmp_path / "maker", trust_all=True)
    publish(watched.store, (record, contents))
    bundled = export_bundle(watched.session, [record], tmp_path / "x.tar")
    assert len(bundled.files) == 1 + 2 * 5
    done = taken(tmp_path / "home", (tmp_path / "x.tar").read_bytes())
    assert (done.records[0].state, done.bytes) == ("added", 3000)
    store = Watched(tmp_path / "home").store
    assert find(store, record) == record
    assert served(store, record) == served(watched.store, record)


@pytest.mark.feature("F4")
def test_unpacked_by_tar_it_is_a_shared_cache(tmp_path, whole):
    path, _ = whole
    (tmp_path / "remote").mkdir()
    subprocess.run(["tar", "xf", path, "-C", tmp_path / "remote"], check=True)
    remote = [(FolderStorage(tmp_path / "remote"), "rw")]
    record, _ = made = make_record(size=200)
    assert Watched(tmp_path / "home", shared=remote).session.remotes.find(record.place) is None, "it is not signed"
    watched = Watched(tmp_path / "home", shared=remote, trust_all=True)
    found = watched.session.remotes.find(record.place)
    assert watched.pull(found).record == record
    assert served(watched.store, record) == expected(made)


@pytest.mark.feature("F4")
def test_after_an_import_nothing_compiles(tmp_path, monkeypatch):
    """Export, import on an empty box: all of it hits."""
    maker, box = Watched(tmp_path / "maker"), Watched(tmp_path / "box", trust_all=True)
    record = warm(maker.session, maker.prepare()).record
    export_bundle(maker.session, [record], tmp_path / "x.tar")
    assert not plan(box.prepare(), box.store).hit
    with (tmp_path / "x.tar").open("rb") as source:
        import_bundle(box.session, source, "x.tar")
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    assert plan(box.prepare(), box.store).hit
    assert warm(box.session, box.prepare()).compiled == 0
    train(box.session, box.prepare(), output_dir=tmp_path / "output")
    assert [run["mode"] for run in runs(tmp_path / "log")] == ["train"]
    assert compiles(tmp_path / "log") == []


@pytest.mark.parametrize("written", [b"half", b""], ids=["half", "empty"])
@pytest.mark.parametrize("alive", [False, True], ids=["killed", "alive"])
def test_what_a_killed_export_left_goes_with_the_next_one(tmp_path, alive, written):
    import fcntl

    maker = Watched(tmp_path / "maker")
    record = warm(maker.session, maker.prepare()).record
    left = tmp_path / f".cachekit-export-{'0123abcd' * 4}.part"
    left.write_bytes(written)
    with left.open("rb") as owner:
        if alive:
            fcntl.flock(owner, fcntl.LOCK_EX)
        export_bundle(maker.session, [record], tmp_path / "x[1].tar")
    assert left.exists() == alive
    assert (tmp_path / "x[1].tar").exists()


def test_an_export_removes_no_file_that_is_not_an_exports(tmp_path, monkeypatch):
    maker = Watched(tmp_path / "maker")
    record = warm(maker.session, maker.prepare()).record
    names = (".x.tar.0123abcd.part", ".cachekit-export-mine.part", f".cachekit-export-{'g' * 32}.part")
    others = [tmp_path / name for name in names]
    for path in others:
        path.write_bytes(b"somebody's")
    folder = tmp_path / f".cachekit-export-{'0' * 32}.part"
    folder.mkdir()
    link = tmp_path / f".cachekit-export-{'1' * 32}.part"
    link.symlink_to(others[0])
    export_bundle(maker.session, [record], tmp_path / "x.tar")
    assert all(path.exists() for path in (*others, folder, link))
    strangers = tmp_path / f".cachekit-export-{'2' * 32}.part"
    strangers.write_bytes(b"half")
    monkeypatch.setattr(bundle_out.os, "geteuid", lambda: strangers.stat().st_uid + 1)
    bundle_out._sweep(tmp_path)
    assert strangers.exists()
