"""A folder that everybody can write to, and users who sign what they put there, or trust those who do."""

import io
import shutil

import pytest

from cachekit import config_trust
from cachekit.remotes import document, layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.judging import Trust
from cachekit.remotes.port import Commit, Write
from cachekit.verbs.export import export_bundle
from cachekit.verbs.imports import import_bundle
from cachekit.verbs.plan import plan
from cachekit.verbs.warm import warm
from tests.support.standins import Watched
from tests.trust.trust_cases import line, pem

ALICE, BOB, EVE = 0, 1, 2  # seeds of keys


def trust(*signers, key=None, said=None, only="", everything=False, **table):
    """What a user says: whose signatures count, and with which key this one signs.

    Args:
        signers: Seeds of the keys that count.
        key: The seed of the own key.
        said: What the tables of remotes say.
        only: As `--trust`.
        everything: As `--trust-all`.
        table: More of the settings' table.
    """
    known = {f"signer{seed}": {"key": line(seed)} for seed in signers}
    own = {} if key is None else {"key": pem(key)}
    return Trust(config_trust.read({"signers": known, **own, **table}), said or {}, only, everything)


@pytest.fixture
def place(tmp_path):
    """A folder that every user of the machine can write to."""
    folder = tmp_path / "place"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def user(tmp_path, place):
    """Makes a user with an own store."""

    def make(name, said, *, may="rw", where=place, **options):
        return Watched(tmp_path / name, shared=[(FolderStorage(where), may)], trust=said, **options)

    return make


@pytest.fixture(scope="session")
def alices(tmp_path_factory):
    """Where what Alice made first is kept for later tests; made with a test's environment, as this fixture has none."""
    return tmp_path_factory.mktemp("alices"), []


@pytest.fixture
def alice(user, place, alices):
    """Has warmed the toy recipe, signed it, and put it into the place."""
    kept, records = alices
    home = place.with_name("alice")
    if records:
        for one in (place, home):
            shutil.copytree(kept / one.name, one, dirs_exist_ok=True)
    alice = user("alice", trust(key=ALICE))
    if not records:
        records.append(warm(alice.session, alice.prepare()).record)
        for one in (place, home):
            shutil.copytree(one, kept / one.name)
    (alice.record,) = records
    return alice


def planned(watched, wanted=None, **options):
    """What a user is told of the toy recipe, or of another one."""
    return plan(watched.prepare(wanted), watched.store, watched.session.remotes, **options)


def bundle(watched, path):
    """A bundle of all that a user has."""
    export_bundle(watched.session, list(watched.store.records()), path)
    return path


def taken(watched, path, **options):
    """What comes of a bundle's import."""
    return import_bundle(watched.session, io.BytesIO(path.read_bytes()), path.name, **options)


def close(place):
    """Let nobody else write to a folder, nor to what was made in it while everybody could."""
    for made in (place, *place.rglob("*")):
        made.chmod(made.stat().st_mode & ~0o022)


def signatures(where, record):
    """The document of signatures beside a record."""
    return where / layout.signatures_path(record.place)


def shared(where, record):
    """The record as it lies there."""
    return document.read((where / layout.record_path(record.place)).read_bytes())


def put(where, path, data):
    """Write a document of a remote, as anybody can who may write there."""
    storage = FolderStorage(where)
    there = storage.read(path, "", 1 << 26)
    storage.commit(Commit("a stranger's [1]", writes=[Write(path, data, there.token if there else "")]), "")
