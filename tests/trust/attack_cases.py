"""An attacker who may write to a place, a compiler whose files run, and the marker that the attacker wants written."""

import hashlib
import os
import shutil

import pytest
from msgspec import structs

from cachekit.remotes import document, layout
from cachekit.store.origin import MADE_HERE, Origin
from cachekit.store.record import file_path
from cachekit.trust.envelope import Envelope, Signature, encode, pae
from cachekit.trust.statement import PAYLOAD_TYPE, statement_of
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn
from tests.trust.flow_cases import put
from tests.trust.trust_cases import ME, TODAY, blob, key

RUN = b"#!run "  # a file that begins so touches the path that follows, as soon as a compiler is given it


class Loader(StandIn):
    """A compiler that runs what it is given, as those do that load libraries, sources and pickles."""

    def restore(self, module, files, cache_dir):
        for file in files:
            raw = file.path.read_bytes()
            if raw.startswith(RUN):
                os.close(os.open(raw.removeprefix(RUN), os.O_CREAT))
        return super().restore(module, files, cache_dir)


def as_own(store):
    """Let all records of a store be made there: their notes are gone, and they are written anew."""
    records = list(store.records())
    shutil.rmtree(store.layout.trust)
    for record in records:
        store.publish(record, {}, beside=MADE_HERE)


class Attacker:
    """Somebody who may write to a place, and has seen the record that alice signed there.

    Args:
        place: The folder.
        record: The record.
        marker: What must not be written.
        number: Which file of each module the attacker alters.
    """

    def __init__(self, place, record, marker, number=0):
        self.place, self.record, self.marker = place, record, marker
        self.code = RUN + os.fsencode(marker)
        self.signed = (place / layout.signatures_path(record.place)).read_bytes()
        module = record.modules[0]
        self.file = module.files[number]
        evil = structs.replace(self.file, size=len(self.code), sha256=hashlib.sha256(self.code).hexdigest())
        files = [evil if one is self.file else one for one in module.files]
        self.evil = structs.replace(record, modules=(structs.replace(module, files=tuple(files)), *record.modules[1:]))

    def swap_bytes(self, code=None):
        """Put other bytes where a file lies, and change nothing else."""
        path = self.place / file_path(self.record.modules[0], self.file)
        path.unlink()
        path.write_bytes(self.code if code is None else code)

    def publish(self, record=None, **fields):
        """Put the altered record there, with right digests and its bytes beside it."""
        self.swap_bytes()
        record = record or structs.replace(self.evil, **fields)
        put(self.place, layout.record_path(self.record.place), document.Shared(record).raw)
        return record

    def sign(self, *envelopes, raw=None):
        """Put signatures beside it."""
        raw = encode(envelopes) if raw is None else raw
        put(self.place, layout.signatures_path(self.record.place), raw)


def statement(record, created=TODAY):
    return statement_of(record, Origin(), ME, created)


def signed(seed, payload, *, keyid=None, kind=PAYLOAD_TYPE, blob_of=None):
    """An envelope that somebody signed, who may claim another key's name, or put a signature of another into it."""
    made = blob_of or blob(seed, pae(kind, payload))
    return Envelope(payload, kind, (Signature(keyid or key(seed).fingerprint, made),))


@pytest.fixture
def marker(tmp_path):
    """What an attacker wants written."""
    return tmp_path / "marker"


@pytest.fixture
def attacker(alice, place, marker):
    """Somebody who may write to the place too."""
    return Attacker(place, alice.record, marker)


@pytest.fixture
def victim(user):
    """Makes a user whose compiler runs what it is given."""
    return lambda name, said, **options: user(name, said, compiler=Loader(), **options)


def trains(victim, wanted=None):
    """What a training begins with: the compiler is given the record, which is warmed where it has to be."""
    made = warm(victim.session, victim.prepare(wanted))
    victim.restored(made.record.key, made.record)
    return made


def holds_nowhere(home, code):
    """Whether bytes lie in no file below a folder."""
    return not any(code in path.read_bytes() for path in home.rglob("*") if path.is_file())


def unused(victim, attacker):
    """What the attacker made did not run, and the victim does not hold it."""
    assert not attacker.marker.exists()
    assert holds_nowhere(victim.store.layout.home, attacker.code)


@pytest.fixture
def tmp(tmp_path, monkeypatch):
    """A folder like `/tmp`, in which this user works."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    return folder


def written(path, owner=0, mode=0o644, text="name: x\nmodel: {id: google-bert/bert-base-uncased}\n"):
    for folder in (path.parent,) if not path.parent.exists() else ():
        folder.mkdir()
        os.chown(folder, owner, owner)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path
