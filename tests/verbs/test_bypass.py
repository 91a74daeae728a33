"""Reasons of bypasses: each is injected once, and counted once, under its own name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from cachekit import config_trust
from cachekit.compilers import Restored
from cachekit.errors import AuthError, CachekitError, CompileError, RemoteError, UntrustedError, UsageError
from cachekit.events import BYPASS, REASONS, bypassed, read
from cachekit.remotes import layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.judging import Trust
from cachekit.remotes.port import Commit, Write
from cachekit.remotes.remotes import Remotes
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import decode, serialise
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.watched_storages import Broken
from tests.support.standins import StandIn, Watched, overwrite

pytest_plugins = ["tests.support.cli_session"]
INJECT = {}


def injects(reason):
    """Registers how a reason comes about; the function gets a `Scene`, and returns its counts."""

    def register(function):
        INJECT[reason] = function
        return function

    return register


class Scene:
    """A home, a remote, and runs whose journal counts."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "shared").mkdir()

    def storage(self):
        return FolderStorage(self.folder / "shared")

    def member(self, name="me", **options):
        return Watched(self.folder / name, **options)

    def warm(self, watched, **options):
        """A warm's counts, as its answer and its journal have them; those of the journal where it failed."""
        prepared = watched.prepare()
        try:
            done = warm(watched.session, prepared, **options)
        except CachekitError:
            return bypassed(watched.journal)
        assert done.bypassed == bypassed(watched.journal)
        return bypassed(watched.journal)

    def train(self, watched, **options):
        done = train(watched.session, watched.prepare(), output_dir=self.folder / "out", **options)
        assert done.bypassed == bypassed(watched.journal)
        return bypassed(watched.journal)


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


@injects("recache")
def recache(scene):
    scene.warm(scene.member())
    return scene.warm(scene.member(), recache=True)


@injects("caching-off")
def caching_off(scene):
    class Off(StandIn):
        def harvest(self, *_, **__):
            return None

    return scene.warm(scene.member(compiler=Off()))


@injects("compiler-bypass")
def compiler_bypass(scene):
    watched = scene.member()
    launcher = watched.session.launcher()

    class Refuses:
        def run(self, *arguments, **options):
            result = launcher.run(*arguments, **options)
            return structs.replace(result, counters={**result.counters, "fxgraph_cache_bypass": 2})

    watched.session = structs.replace(watched.session, launcher=Refuses)
    return scene.warm(watched)


@injects("store-unreadable")
def store_unreadable(scene):
    warmed = scene.member()
    scene.warm(warmed)
    (path,) = (warmed.store.layout.records).glob("*/*/*.json")
    path.unlink()
    path.symlink_to(path.name)  # whoever reads it gets an error of the system
    watched = scene.member()
    return scene.warm(watched)


@injects("store-refused")
def store_refused(scene):
    record = warm((ann := scene.member()).session, ann.prepare()).record
    table = config_trust.read({"revoked": {"records": [record.digest]}})
    return scene.warm(scene.member(trust=Trust(table)))


@injects("store-damaged")
def store_damaged(scene):
    warmed = scene.member()
    record = warm(warmed.session, warmed.prepare()).record
    path = warmed.store.layout.blob(record.files[0].sha256)
    overwrite(path, path.read_bytes()[::-1] + b"!")
    return scene.warm(scene.member())


@injects("store-schema")
def store_schema(scene):
    warmed = scene.member()
    scene.warm(warmed)
    (path,) = (warmed.store.layout.records).glob("*/*/*.json")
    path.chmod(0o644)
    path.write_bytes(later(path.read_bytes()))
    return scene.warm(scene.member())


def later(raw):
    """The record as a later cachekit would write it."""
    import hashlib

    from cachekit.key.canonical import canonical_json

    body = {**json.loads(raw)["record"], "schema": 99}
    document = {"record": body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()}
    assert decode(serialise(document)) is None
    return serialise(document)


@injects("store-not-writable")
def store_not_writable(scene):
    (scene.folder / "me" / "v1").mkdir(parents=True)
    (scene.folder / "me" / "v1" / "tmp").write_text("no folder")
    return scene.warm(scene.member(cache_dirs=scene.folder / "cache_dirs"))


@injects("not-kept")
def not_kept(scene):
    class Refuses(StandIn):
        def harvest(self, *arguments, **options):
            if self.refuses:
                raise CompileError("what is there is no module")
            return super().harvest(*arguments, **options)

        refuses = False

    scene.warm(scene.member())
    watched = scene.member(compiler=Refuses(extra=1))
    watched.compiler.refuses = True
    return scene.train(watched)


@injects("cache-dir-unusable")
def cache_dir_unusable(scene):
    (scene.folder / "cache_dirs").write_text("no folder")
    return scene.warm(scene.member(cache_dirs=scene.folder / "cache_dirs"))


@injects("restore-refused")
def restore_refused(scene):
    class Once(StandIn):
        refused = False

        def restore(self, *arguments):
            if not self.refused:
                self.refused = True
                raise UnsafeArchiveError("not what I take")
            return super().restore(*arguments)

    scene.warm(scene.member())
    return scene.train(scene.member(compiler=Once()))


@injects("module-left")
def module_left(scene):
    class Leaves(StandIn):
        left = False

        def restore(self, *arguments):
            done = super().restore(*arguments)
            if self.left:
                return done
            self.left = True
            return Restored("left", reason="somebody's own stands there")

    scene.warm(scene.member())
    return scene.train(scene.member(compiler=Leaves()))


@injects("remote-offline")
def remote_offline(scene):
    watched = scene.member()
    remotes = Remotes((), watched.journal, {"team": lambda: None})
    remotes.postpone = lambda _: None
    watched.session = structs.replace(watched.session, remotes=remotes)
    return scene.warm(watched)


@injects("remote-failed")
def remote_failed(scene):
    return scene.warm(scene.member(shared=[(Broken(scene.storage(), "read", error=RemoteError), "rw")], push=0))


@injects("remote-skipped")
def remote_skipped(scene):
    scene.warm(scene.member(shared=[(Broken(scene.storage(), "read"), "r")]), require_warm=True)
    return scene.warm(scene.member(shared=[(scene.storage(), "r")]), require_warm=True)


@injects("remote-refused")
def remote_refused(scene):
    return scene.warm(scene.member(shared=[(Broken(scene.storage(), "read", error=AuthError), "r")]), require_warm=True)


@injects("remote-untrusted")
def remote_untrusted(scene):
    return scene.warm(
        scene.member(shared=[(Broken(scene.storage(), "read", error=UntrustedError), "r")]), require_warm=True
    )


@injects("remote-damaged")
def remote_damaged(scene):
    other = scene.member("other", shared=[(scene.storage(), "rw")])
    record = warm(other.session, other.prepare()).record
    path, storage = layout.record_path(record.place), scene.storage()
    token = storage.read(path, "", 1 << 20).token
    storage.commit(Commit("spoil", writes=[Write(path, b'{"record": {}}', token)]), "")
    return scene.warm(scene.member(shared=[(scene.storage(), "r")]), require_warm=True)


@injects("remote-write-only")
def remote_write_only(scene):
    return scene.warm(scene.member(shared=[(scene.storage(), "w")]))


@injects("remote-read-only")
def remote_read_only(scene):
    return scene.warm(scene.member(shared=[(scene.storage(), "r")]))


@injects("push-failed")
def push_failed(scene):
    return scene.warm(scene.member(shared=[(Broken(scene.storage(), "upload", error=AuthError), "rw")], push=0))


# What comes along by nature: a remote that fails in the plan fails for the push as well.
ALONG = {"remote-failed": {"push-failed": 1}}


@pytest.mark.feature("W1")
@pytest.mark.parametrize("reason", sorted(INJECT))
def test_each_reason_is_counted_once(scene, reason):
    assert INJECT[reason](scene) == {reason: 1, **ALONG.get(reason, {})}


@pytest.mark.feature("W1")
def test_every_reason_is_injected():
    assert set(INJECT) | {"compiler-not-keyed"} == set(REASONS)
    assert all(meaning.strip() for meaning in REASONS.values())


def test_every_reason_is_explained_in_the_docs():
    text = (Path(__file__).parents[2] / "docs" / "why.md").read_text()
    for reason, meaning in REASONS.items():
        assert f"| `{reason}` | {meaning} |" in text


@pytest.mark.feature("W1")
def test_a_compiler_that_cannot_be_looked_at(command, home, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    command("warm", "tiny.yaml", "--compiler", "inductor", code=1)
    (path,) = home.glob("v1/journal/*/*/*.jsonl")
    assert [event["reason"] for event in read(path) if event["event"] == BYPASS] == ["compiler-not-keyed"]


def test_compilers_own_folder_that_cannot_be_used_is_counted(scene):
    class Elsewhere(StandIn):
        def cache_dir(self, _):
            raise UsageError("the root is in a bucket")

    assert scene.warm(scene.member(compiler=Elsewhere())) == {"cache-dir-unusable": 1}


def test_a_run_that_had_all_of_the_cache_counts_nothing(scene):
    assert scene.warm(scene.member(shared=[(scene.storage(), "rw")])) == {}
    assert scene.warm(scene.member(shared=[(scene.storage(), "rw")])) == {}
    assert scene.train(scene.member("other", shared=[(scene.storage(), "rw")])) == {}
