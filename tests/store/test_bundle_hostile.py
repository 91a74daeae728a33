"""Bundles that somebody made to harm: nothing is written outside of the store, and nothing of them is taken."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile

import pytest
from msgspec import structs

from cachekit.errors import IntegrityError, StoreError, UsageError
from cachekit.key.canonical import canonical_json
from cachekit.remotes.document import Shared
from cachekit.remotes.layout import record_path
from cachekit.store.bundle import INDEX, header
from cachekit.store.record import File, serialise
from tests.store.bundle_files import crafted, sealed, taken
from tests.support.standins import garbage_of, make_record, tree

pytest_plugins = ["tests.store.bundle_files"]


def odd(kind, name="standin-1.0/MODULE_1/model-a.code", size=200, link=""):
    """A header that tarfile makes."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse():
    info = tarfile.TarInfo("standin-1.0/MODULE_1/model-a.code")
    info.size, info.pax_headers = 200, {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(1 << 50)}
    return info.tobuf(tarfile.PAX_FORMAT)


def renamed(target):
    info = tarfile.TarInfo("standin-1.0/MODULE_1/model-a.code")
    info.size, info.pax_headers = 200, {"path": target}
    return info.tobuf(tarfile.PAX_FORMAT)


HEADS = {
    "symbolic link": odd(tarfile.SYMTYPE, link="/etc/passwd"),
    "link": odd(tarfile.LNKTYPE, link="../../outside"),
    "device": odd(tarfile.CHRTYPE),
    "block device": odd(tarfile.BLKTYPE),
    "pipe": odd(tarfile.FIFOTYPE),
    "folder": odd(tarfile.DIRTYPE),
    "contiguous": odd(tarfile.CONTTYPE),
    "gnu sparse": odd(tarfile.GNUTYPE_SPARSE),
    "pax sparse": sparse(),
    "above": odd(tarfile.REGTYPE, "../outside"),
    "absolute": odd(tarfile.REGTYPE, "/tmp/outside"),
    "hidden above": odd(tarfile.REGTYPE, "standin-1.0/../../outside"),
    "backslashes": odd(tarfile.REGTYPE, "..\\outside"),
    "renamed by pax": renamed("../outside"),
    "a size beyond any disk": header("standin-1.0/MODULE_1/model-a.code", 1 << 60),
    "another size": header("standin-1.0/MODULE_1/model-a.code", 100),
    "a long name without end": odd(tarfile.GNUTYPE_LONGNAME, "././@LongLink", 1 << 33),
    "pax data without end": odd(tarfile.XHDTYPE, "PaxHeader", 1 << 33),
    "global pax data": odd(tarfile.XGLTYPE, "PaxHeader", 10),
}


@pytest.fixture
def yard(tmp_path, monkeypatch):
    """An import runs inside of it; whatever lies there afterwards and not in the store was written outside."""
    folder = tmp_path / "yard"
    folder.mkdir()
    (folder / "outside").write_text("untouched")
    monkeypatch.chdir(folder)
    return folder


def refused(yard, raw, error=IntegrityError):
    for dry_run in (True, False):
        with pytest.raises(error) as raised:
            taken(yard / "home", raw, dry_run=dry_run)
        assert raised.value.hint
        assert tree(yard / "home") == set()
        assert garbage_of(yard / "home") == set()
    assert {path.name for path in yard.iterdir()} <= {"outside", "home"}
    assert (yard / "outside").read_text() == "untouched"
    return raised.value


@pytest.mark.feature("S7")
def test_a_member_that_is_no_plain_file_at_its_place_is_refused(yard, whole):
    for head in HEADS.values():
        for number in (0, 1):  # the record, and a file
            refused(yard, crafted(whole[1], heads={number: head}))


LEADING = ["../outside", "/etc/outside", "a/../../outside", "a//b", "a/./b"]
BAD_PATHS = [*LEADING, "", ".", "..", "a\\b", "a\0b", "x" * 1025]


@pytest.mark.feature("S7")
def test_an_index_with_a_path_that_leads_elsewhere_is_refused(yard, whole):
    for path in BAD_PATHS:
        _, contents = whole
        listed = [{"path": path, "size": 3, "sha256": hashlib.sha256(b"bad").hexdigest()}]
        said = refused(yard, crafted([*contents, ("bad", b"bad")], listed=listed))
        assert "not a complete bundle" in str(said)
        assert "regex" not in said.cause


@pytest.mark.feature("S7")
def test_a_record_with_a_path_that_leads_elsewhere_is_refused(yard, whole):
    for path in LEADING:
        _, ((name, raw), *files) = whole
        for change in ("module", "file"):
            document = json.loads(raw)
            module = document["record"]["modules"][0]
            (module if change == "module" else module["files"][0])["name" if change == "module" else "path"] = path
            document["sha256"] = hashlib.sha256(canonical_json(document["record"])).hexdigest()
            assert "regex" not in refused(yard, crafted([(name, serialise(document)), *files])).cause


@pytest.mark.feature("S7")
def test_a_record_that_places_its_files_elsewhere_is_refused(yard, whole):
    _, ((name, raw), *files) = whole
    document = json.loads(raw)
    digest = document["record"]["modules"][0]["files"][0]["sha256"]
    refused(yard, crafted([(name, serialise(document | {"places": {digest: "../outside"}})), *files]))
    blob = f"cachekit/v1/blobs/{digest[:2]}/{digest}"
    refused(yard, crafted([(name, serialise(document | {"places": {digest: blob}})), *files]))  # it is not there


LISTS = {
    "schema of a list": {"schema": [], "members": []},
    "no members": {"schema": 1, "members": []},
    "members of another kind": {"schema": 1, "members": {"a": 1}},
    "a negative size": {"schema": 1, "members": [{"path": "a", "size": -512, "sha256": "0" * 64}]},
    "a size without end": {"schema": 1, "members": [{"path": "a", "size": 1 << 80, "sha256": "0" * 64}]},
    "itself": {"schema": 1, "members": [{"path": INDEX, "size": 0, "sha256": "0" * 64}]},
    "more fields": {"schema": 1, "members": [{"path": "a", "size": 0, "sha256": "0" * 64, "mode": 2048}]},
    "one twice": {"schema": 1, "members": [{"path": "a", "size": 0, "sha256": "0" * 64}] * 2},
}
INDEXES = {name: sealed(body) for name, body in LISTS.items()} | {
    "no json": b"\xff\xfe{}",
    "deep": b"[" * 100_000,
    "no digest": serialise({"bundle": LISTS["no members"], "sha256": "0" * 64}),
    "a name twice": b'{"bundle": {}, "bundle": {}, "sha256": ""}',
    "half a pair": json.dumps(
        {"bundle": LISTS["no members"] | {"members": [{"path": "\udc80"}]}, "sha256": ""}
    ).encode(),
}


@pytest.mark.feature("S7")
def test_an_index_that_is_none_is_refused(yard):
    for name, raw in INDEXES.items():
        error = UsageError if name == "schema of a list" else IntegrityError
        refused(yard, crafted([], raw_index=raw), error)


def listing(contents):
    return [{"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in contents]


def inlined(record):
    path, raw = record
    return path, serialise(json.loads(raw) | {"inline": {"0" * 64: base64.b64encode(b"x").decode()}})


CONTENTS = {
    "one more": lambda record, *files: crafted([record, *files, ("standin-1.0/extra", b"extra")]),
    "one less": lambda record, *files: crafted([record, *files[:-1]]),
    "no record": lambda _, *files: crafted(files),
    "a record last": lambda record, *files: crafted([*files, record]),
    "one twice": lambda record, *files: crafted([record, *files, files[-1]]),
    "not in the index": lambda *own: crafted([*own, ("more", b"more")], listed=listing(own)),
    "an index written otherwise": lambda *own: crafted(
        own, raw_index=sealed({"schema": 1, "members": listing(own)}).replace(b": ", b":  ")
    ),
    "swapped": lambda record, one, two: crafted([record, (one[0], two[1]), (two[0], one[1])]),
    "another key's place": lambda record, *files: crafted([(record[0].replace("/bert/", "/vit/"), record[1]), *files]),
    "no record's json": lambda record, *files: crafted([(record[0], b"{}"), *files]),
    "a record without end": lambda record, *_: crafted([record], listed=[listing([record])[0] | {"size": 65 << 20}]),
    "a file within a record": lambda record, *files: crafted([inlined(record), *files]),
}


@pytest.mark.feature("S7")
def test_a_bundle_that_is_not_what_its_records_say_is_refused(yard, whole):
    for made in CONTENTS.values():
        refused(yard, made(*whole[1]))


@pytest.mark.feature("S7")
def test_a_bundle_larger_than_the_disk_is_refused_before_it_is_read(yard):
    """Its index and its records agree; only the room is missing."""
    record, _ = make_record(artifacts=("a",))
    files = tuple(File(f"{number}", 1 << 42, f"{number:064x}") for number in range(4096))
    record = structs.replace(record, modules=(structs.replace(record.modules[0], files=files),))
    raw = Shared(record).raw
    listed = [
        {"path": record_path(record.place), "size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()},
        *({"path": f"{record.modules[0].name}/{one.path}", "size": one.size, "sha256": one.sha256} for one in files),
    ]
    with pytest.raises(StoreError, match="no room for this bundle"):
        taken(yard / "home", crafted([(record_path(record.place), raw)], listed=listed))
    assert tree(yard / "home") == set()
    assert garbage_of(yard / "home") == set()
