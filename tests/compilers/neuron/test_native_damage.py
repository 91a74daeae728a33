"""Archives of TorchNeuron's whose bytes are what their record says, and whose graphs are damaged all the same.

They were packed from damaged files, by another program, or to do harm: no digest of a record tells.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from cachekit.compilers import registry
from cachekit.compilers.adapter import Judged
from cachekit.compilers.imported import record_of
from cachekit.compilers.neuron import native
from cachekit.errors import IntegrityError, UsageError
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store.record import File, Module
from cachekit.verbs.pull_modules import pull_modules
from cachekit.verbs.verify import verify
from tests.compilers.neuron.neuron_files import make_neff, pack_neff, tar_of
from tests.support.standins import Watched

VERSION = "2.28.7631.0"
FOLDER = f"torchneuron-{VERSION}"
GOOD = "ab/cd/abcd0123456789abcdef0123456789ab.neff"
BAD = "ff/00/ff000123456789abcdef0123456789ab.neff"


def neff(**more) -> bytes:
    return make_neff(**{"version": f"{VERSION}+bbbbbbbb", **more})


def flipped(raw: bytes) -> bytes:
    return raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:]


def packed(members: dict[str, bytes] | list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A plain tar, as `archive.pack` makes them."""
    out = io.BytesIO()
    pairs = [(tarfile.TarInfo(name), raw) for name, raw in members.items()] if isinstance(members, dict) else members
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, raw in pairs:
            if member.isreg():
                member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return out.getvalue()


@pytest.fixture
def examined(tmp_path):
    """What is said of an archive of these bytes."""

    def _examined(raw: bytes, folder: str = FOLDER) -> Judged:
        path = tmp_path / "archive.tar"
        path.write_bytes(raw)
        return native.judge(path, folder)

    return _examined


def publish(watched: Watched, raw: bytes, folder: str = FOLDER):
    """A record of this archive."""
    place = watched.store.layout.home / "made.tar"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(raw)
    sha256, size = hashlib.sha256(raw).hexdigest(), len(raw)
    module = Module(f"{folder}/{sha256}.tar", (File(f"{sha256}.tar", size, sha256),))
    record = record_of(registry.adapter("neuron-native"), folder, [module], graphs=2)
    watched.store.publish(record, {sha256: place})
    return record


# What is said of an archive


@pytest.mark.feature("S6")
def test_graphs_that_are_whole_are_fine(examined):
    found = examined(packed({GOOD: neff(seed=1), BAD: neff(seed=2, byte_order="plain")}))
    assert found == Judged(2)


HOSTILE = {
    "a bit": ({BAD: flipped(neff())}, f"{BAD}: the MD5 of its contents is not the one in its header"),
    "cut": ({BAD: neff()[:-100]}, f"{BAD}: cut short: "),
    "longer": ({BAD: neff() + b"\0"}, f"{BAD}: too long: "),
    "empty": ({BAD: b""}, f"{BAD}: it is empty"),
    "another compiler": (
        {BAD: neff(version="2.27.5334.0+aaaaaaaa")},
        f"{BAD}: it was compiled by 2.27.5334.0+aaaaaaaa, not by {VERSION}",
    ),
    "a script": ({"run.sh": b"#!/bin/sh"}, "'run.sh' is not a NEFF"),
    "a hidden name": ({".x/a.neff": neff()}, "'.x/a.neff' is not a NEFF"),
    "outside": ({"../a.neff": neff()}, "'../a.neff' would be written outside the folder"),
    "nothing": ({}, "it holds no .neff file"),
}


@pytest.mark.feature("S6", "S7")
@pytest.mark.parametrize("what", HOSTILE)
def test_what_must_not_be_used_is_named(examined, what):
    members, words = HOSTILE[what]
    found = examined(packed(members if what == "nothing" else {GOOD: neff(seed=1), **members}))
    assert found.harm.startswith(words)
    assert "more of" not in found.harm


@pytest.mark.feature("S7")
def test_links_and_names_that_stand_twice_are_named(examined):
    link = tarfile.TarInfo(BAD)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert "is not a regular file" in examined(packed([(tarfile.TarInfo(GOOD), neff()), (link, b"")])).harm
    twice = [(tarfile.TarInfo(GOOD), neff(seed=1)), (tarfile.TarInfo(f"./{GOOD}"), neff(seed=2))]
    assert "is listed twice" in examined(packed(twice)).harm
    assert examined(b"no tar" * 1000).harm
    whole = packed({GOOD: neff(seed=1), BAD: neff(seed=2)})
    for end in range(2000, len(whole) - tarfile.RECORDSIZE, len(whole) // 9):
        assert examined(whole[:end]).harm, end


@pytest.mark.feature("S6")
def test_what_nobody_here_understands_is_no_damage(examined):
    odd = pack_neff(tar_of({"info.json": b"{}"}), package=3)
    found = examined(packed({GOOD: neff(), BAD: odd, f"{BAD[:-5]}1.neff": odd}))
    assert (found.harm, found.graphs) == ("", 3)
    assert found.oddity.startswith(f"{BAD}: package version 3")
    assert found.oddity.endswith("(and 1 more of 3 graphs)")


@pytest.mark.feature("S7")
def test_memory_does_not_grow_with_an_archive_or_what_it_says(examined, tmp_path):
    bomb = pack_neff(gzip.compress(tar_of({"sg00/weights.bin": bytes(24 << 20)}), 9))
    long_name = tarfile.TarInfo(GOOD)
    long_name.pax_headers = {"comment": "x" * (32 << 20)}
    archives = {
        "large": packed({GOOD: neff(size=24 << 20)}),
        "bombs": packed({f"{number:02x}/00/{number:032x}.neff": bomb for number in range(20)}),
        "header": packed([(long_name, neff())]),
    }
    said = {}
    for name, raw in archives.items():
        path = tmp_path / f"{name}.tar"
        path.write_bytes(raw)
        tracemalloc.start()
        try:
            said[name] = native.judge(path, FOLDER)
            assert tracemalloc.get_traced_memory()[1] < 12 << 20, name
        finally:
            tracemalloc.stop()
    assert said["large"] == Judged()
    assert "unpacks to more than" in said["bombs"].oddity
    assert said["bombs"].oddity.endswith("(and 19 more of 20 graphs)")
    assert "header of" in said["header"].harm


# Real ones


# verify, pull


@pytest.mark.feature("S6")
def test_verify_names_the_graph_in_its_archive(tmp_path):
    watched = Watched(tmp_path / "home", shared=[(FolderStorage(_made(tmp_path / "shared")), "rw")])
    good = publish(watched, packed({GOOD: neff(seed=1)}))
    assert verify(watched.session).problems == ()
    bad = publish(watched, packed({GOOD: neff(seed=1), BAD: flipped(neff(seed=2))}))
    odd = publish(watched, packed({BAD: pack_neff(tar_of({"info.json": b"{}"}), package=3)}))
    push(watched.store, watched.session.remotes, [good, bad, odd])
    found = verify(watched.session)
    (problem,) = found.problems
    assert (problem.kind, problem.keys, problem.file) == ("graph", (bad.key,), bad.modules[0].name)
    assert problem.reason.startswith(f"{BAD}: the MD5 of its contents")
    assert [note.partition(": ")[0] for note in found.notes] == [odd.modules[0].name]
    assert found.error().exit_code == 5
    assert "has the same bytes" in verify(watched.session, repair=True).bad[0].left
    assert verify(watched.session, quick=True).problems == ()


@pytest.mark.feature("S6", "F6")
def test_a_pull_refuses_it_and_keeps_nothing(tmp_path):
    shared = _made(tmp_path / "shared")
    maker = Watched(tmp_path / "maker", shared=[(FolderStorage(shared), "rw")])
    good = publish(maker, packed({GOOD: neff(seed=1)}))
    bad = publish(maker, packed({GOOD: neff(seed=1), BAD: flipped(neff(seed=2))}))
    push(maker.store, maker.session.remotes, [good, bad])
    taker = Watched(tmp_path / "taker", shared=[(FolderStorage(shared), "rw")])
    (remote,) = taker.session.remotes.readable
    for record in (good, bad):
        found = remote.find(record.place)
        if record is good:
            assert taker.pull(found).record == good
            continue
        for _ in range(2):  # what came must not be what the next one goes on with
            with pytest.raises(IntegrityError, match="cannot be used") as caught:
                taker.pull(found)
            assert caught.value.cause.startswith(f"{BAD}: the MD5")
    assert remote.spoiled == {bad.modules[0].name}
    assert [record.key for record in taker.store.records()] == [good.key]
    assert not any(taker.store.layout.partial.glob("?*"))
    assert not taker.store.layout.blob(bad.modules[0].files[0].sha256).exists()


@pytest.mark.feature("S6", "R3")
def test_all_archives_of_a_compiler_come_without_a_record_if_they_are_whole(tmp_path):
    shared = _made(tmp_path / "shared")
    maker = Watched(tmp_path / "maker", shared=[(FolderStorage(shared), "rw")])
    good = publish(maker, packed({GOOD: neff(seed=1), BAD: neff(seed=2)}))
    bad = publish(maker, packed({GOOD: flipped(neff(seed=3))}))
    push(maker.store, maker.session.remotes, [good, bad])
    shutil.rmtree(shared / "cachekit")
    misnamed = f"{FOLDER}/{'0' * 64}.tar"
    (shared / misnamed).write_bytes(packed({GOOD: neff(seed=4)}))
    (shared / FOLDER / "notes.txt").write_bytes(b"mine")
    taker = Watched(tmp_path / "taker", shared=[(FolderStorage(shared), "r")])
    (dry,) = pull_modules(taker.session, (), FOLDER, dry_run=True)
    assert ({*dry.modules}, [*taker.store.records()]) == ({good.modules[0].name, bad.modules[0].name, misnamed}, [])
    (done,) = pull_modules(taker.session, (), FOLDER)
    assert (done.state, done.modules, {one.module for one in done.left}) == (
        "fetched", (good.modules[0].name,), {bad.modules[0].name, misnamed}
    )  # fmt: skip
    (record,) = taker.store.records()
    assert (record.compiler, record.graphs, record.directory, record.modules) == (
        "neuron-native", 2, FOLDER, good.modules
    )  # fmt: skip
    assert verify(taker.session).problems == ()
    assert pull_modules(taker.session, (), FOLDER)[0].state == "present"
    with pytest.raises(IntegrityError, match="cannot be used"):
        pull_modules(taker.session, (bad.modules[0].name,), "")
    for name in ("torchneuron-../x", "torchneuron-2.28/../../x.tar", f"{FOLDER}/x.tar", "torchneuron-"):
        with pytest.raises(UsageError):
            pull_modules(taker.session, (name,), "")
        with pytest.raises(UsageError):
            pull_modules(taker.session, (), name)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
