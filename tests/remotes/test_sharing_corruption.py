"""Whatever a remote serves, nothing bad enters the store or leaves its folder: it is told, and compiled anew."""

import copy
import hashlib
import json
import random
from contextlib import suppress

import pytest

from cachekit.errors import IntegrityError
from cachekit.key.canonical import canonical_json
from cachekit.remotes import layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.port import Document, Entry
from cachekit.store.archive import UnsafeArchiveError
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.processes import memory_folder
from tests.support.standins import Watched, module_files

EVIL_NAMES = [
    "../evil", "../../../../evil", "/tmp/evil", "a/../../evil", ".", "..", "", "a//b", "a\0b", "MODULE_x/..", "~/evil",
    "..\\evil", "standin-1.0/MODULE_../../evil", "\u202egnp", "a" * 5000, "standin-1.0/MODULE_a\n", "C:\\evil", "CON",
    "standin-1.0/../../../blobs/evil", "standin-1.0/MODULE_0/./x", "\ud800",
]  # fmt: skip
EVIL_VALUES = [
    None, True, -1, 0, 1, 1 << 63, 1 << 200, 1e308, -0.0, "", "0", [], {}, [[]], "a" * 64, "A" * 64, "0" * 63,
    "x" * 99_999,    {"a": {"b": {}}}, [1] * 1000, *EVIL_NAMES,
]  # fmt: skip
NAME, PREY = "canary", "never touched"


class Evil:
    """A remote that serves what a stranger or a broken disk makes of it.

    Args:
        storage: What is right.
        records: Changes the bytes of records.
        files: Changes the bytes of other files.
        facts: Changes what is said of files.
        sealed: The records have digests that fit.
    """

    def __init__(self, storage, records=None, files=None, facts=None, *, sealed=False):
        self.sealed = sealed
        self._storage, self._records, self._files, self._facts = storage, records, files, facts

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def read(self, path, revision, limit):
        found = self._storage.read(path, revision, limit)
        if found is None or not self._records or not path.startswith(layout.RECORDS):
            return found
        return Document(self._records(found.data), found.token)

    def chunks(self, path, revision, start=0, end=None):
        data = b"".join(self._storage.chunks(path, revision))
        data = self._files(data) if self._files else data
        return iter([data[start:]] if data[start:] else [])

    def stat(self, paths, revision):
        found = self._storage.stat(paths, revision)
        return {path: self._facts(entry) for path, entry in found.items()} if self._facts else found


# What is done to bytes


def spoilt(rng, data):
    """Bytes that are not those."""
    data, kind = bytearray(data), rng.randrange(8)
    place = rng.randrange(len(data)) if data else 0
    if kind == 0 and data:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data += rng.randbytes(rng.choice([1, 100, 100_000]))
    elif kind == 3:
        data[:] = rng.randbytes(len(data))
    elif kind == 4:
        data.clear()
    elif kind == 5:
        data[:] = bytes(len(data))
    elif kind == 6:
        data[place : place + rng.randrange(1, 50)] = rng.randbytes(rng.randrange(60))
    else:
        data[:] = data[place:] + data[:place]
    return bytes(data)


def monstrous(rng, data):
    """What is no record, in one of the ways that parsers fall for."""
    text = data.decode()
    return rng.choice([
        b"[" * rng.choice([100, 1_000, 200_000]),
        b'{"a":' * 50_000,
        b"\xff\xfe" + data,
        b"\xef\xbb\xbf" + data,
        b"null", b"0", b'""', b"{}", b"[]", b"NaN", b"-Infinity", b" " * 1_000_000,
        text.replace('"graphs": 3', '"graphs": 1e999').encode(),
        text.replace('"graphs": 3', '"graphs": NaN').encode(),
        text.replace('"graphs": 3', '"graphs": ' + "9" * 5000).encode(),
        text.replace('"graphs": 3', '"graphs": 3, "graphs": 3').encode(),
        text.replace('{"inline"', '{"record": {}, "inline"').encode(),
        data + data,
        b'{"record":' + b'"x' * 1000 + b'"}',
        json.dumps({"record": {"a" * 100_000: list(range(10_000))}, "sha256": "0" * 64}).encode(),
    ])  # fmt: skip


def nodes(value, path=()):
    """The places of everything in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from nodes(value[key], (*path, key))


def changed(rng, value):
    """The value with something else in one place."""
    value = copy.deepcopy(value)
    # Another schema is a miss without a word: a later cachekit's.
    *way, last = rng.choice([place for place in nodes(value) if place and place != ("schema",)])
    inner = value
    for step in way:
        inner = inner[step]
    what = rng.randrange(4)
    if what == 0 and isinstance(inner, dict):
        del inner[last]
    elif what == 1 and isinstance(inner, dict):
        inner[rng.choice([*EVIL_NAMES[:-1], "extra"])] = inner.pop(last)
    elif what == 2 and isinstance(inner, list):
        inner.append(copy.deepcopy(inner[last]))
    else:
        inner[last] = rng.choice(EVIL_VALUES)
    return value


def sealed(rng, data):
    """A record with something else in it, and a digest that fits: made by a stranger who knows how."""
    whole = json.loads(data)
    part = rng.choice(["record", "record", "record", "inline", "places", "names", "sizes"])
    body = whole["record"]
    if part == "names":
        module = rng.choice(body["modules"])
        target = rng.choice([module, rng.choice(module["files"])])
        target["name" if target is module else "path"] = rng.choice(EVIL_NAMES)
    elif part == "sizes":
        file = rng.choice(rng.choice(body["modules"])["files"])
        file[rng.choice(["size", "sha256"])] = rng.choice(
            [0, 1, 1 << 40, 1 << 62, hashlib.sha256(rng.randbytes(4)).hexdigest()]
        )
    elif part == "record":
        whole["record"] = body = changed(rng, body)
    elif part == "places":
        digest = rng.choice(rng.choice(body["modules"])["files"])["sha256"]
        whole["places"] = {
            rng.choice([digest, "0" * 64, "x"]): rng.choice(
                [*EVIL_NAMES[:-1], layout.CARD, layout.blob_path(digest), 7]
            )
        }
    else:
        inline = whole.get("inline") or {}
        whole["inline"] = rng.choice([
            [], "x", {**inline, "0" * 64: "AAAA"}, dict.fromkeys(inline, "AAAA"), dict.fromkeys(inline, 7),
            {digest: text[:-4] for digest, text in inline.items()}, {"../evil": "AAAA"}, {},
            dict.fromkeys(inline, "!" * 100000),
        ])  # fmt: skip
    try:
        whole["sha256"] = hashlib.sha256(canonical_json(body)).hexdigest()
    except Exception:  # noqa: BLE001 - what has no canonical form goes without
        whole["sha256"] = "0" * 64
    return json.dumps(whole).encode()


def lied(rng, entry):
    """What a remote may say of a file that is not so."""
    size = rng.choice([entry.size, 0, entry.size + 1, 1 << 62])
    return Entry(entry.path, size, rng.choice([{}, {"sha256": "0" * 64}, {"git": "0" * 40}, {"md5": ""}]))


def evil(rng, storage):
    """A remote with one corruption."""
    return rng.choice([
        lambda: Evil(storage, files=lambda data: spoilt(rng, data)),
        lambda: Evil(storage, records=lambda data: spoilt(rng, data)),
        lambda: Evil(storage, records=lambda data: monstrous(rng, data)),
        lambda: Evil(storage, records=lambda data: sealed(rng, data), sealed=True),
        lambda: Evil(storage, records=lambda data: sealed(rng, data), sealed=True),
        lambda: Evil(storage, facts=lambda entry: lied(rng, entry)),
    ])()  # fmt: skip


# What must hold


class Place:
    """Where a home lies among things that are nobody's business."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "a" / "b").mkdir(parents=True)
        (folder / NAME).write_text(PREY)
        self.home = folder / "a" / "b" / "home"

    def intact(self):
        """Nothing is there but the home and what was there before."""
        found = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")}
        outside = {path for path in found if not path.startswith("a/b/home/")}
        assert outside == {"a", "a/b", "a/b/home", NAME}
        assert (self.folder / NAME).read_text() == PREY
        for path in self.home.rglob("*"):
            assert not path.is_symlink()
            assert "evil" not in path.name

    def sound(self, watched):
        """Every blob of the store has the bytes that its name says."""
        for path in (self.home / "v1" / "blobs").glob("*/*"):
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        assert not watched.damage()


def survives(folder, storage, right):
    """A machine that uses such a cache has what it needs in the end, and says what was wrong."""
    place = Place(folder)
    bob = Watched(place.home, shared=[(storage, "r")])
    done = warm(bob.session, bob.prepare())
    if getattr(storage, "sealed", False):
        # Whoever may write to the cache can say that there are fewer modules, or others; each is whole all the same.
        with suppress(UnsafeArchiveError, IntegrityError):
            assert set(bob.restored("check", done.record).values()) <= set(right.values())
    else:
        assert bob.restored("check", done.record) == right
    trained = train(bob.session, bob.prepare(), output_dir=place.home / "output")
    assert trained.steps
    place.intact()
    place.sound(bob)
    if done.compiled:
        assert bob.told("remote.damaged") or bob.told("remote.failed")
    return done.compiled > 0


def filled(folder):
    """A shared folder with one warm."""
    (folder / "shared").mkdir(parents=True)
    ann = Watched(folder / "ann", shared=[(FolderStorage(folder / "shared"), "rw")])
    warm(ann.session, ann.prepare())
    return FolderStorage(folder / "shared"), module_files(ann.prepare(), ann.compiler)


def campaign(seeds):
    """So many corruptions; how many of them mattered."""
    mattered = 0
    with memory_folder() as folder:
        storage, right = filled(folder / "team")
        for seed in seeds:
            with memory_folder() as own:
                try:
                    mattered += survives(own / "x", evil(random.Random(seed), storage), right)
                except BaseException as error:
                    error.add_note(f"seed {seed}") if hasattr(error, "add_note") else None
                    raise
    return mattered


@pytest.mark.campaign
@pytest.mark.feature("S5", "S7")
def test_corruptions_of_all_kinds():
    assert campaign(range(30)) > 15


@pytest.mark.slow
@pytest.mark.feature("S5", "S7")
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_corruptions(part):
    assert campaign(range(1000 + part * 500, 1500 + part * 500)) > 250


@pytest.mark.feature("S5", "S7")
@pytest.mark.parametrize("what", ["record", "file", "folder", "root"])
def test_links_on_a_shared_folder_are_not_followed(tmp_path, what):
    storage, _ = filled(tmp_path / "team")
    shared = tmp_path / "team" / "shared"
    secret = tmp_path / "secret"
    target = {
        "record": next(path for path in (shared / layout.RECORDS).rglob("*") if path.name == "000000000001"),
        "file": next(path for path in shared.glob("standin-1.0/MODULE_*/model.code")),
        "folder": next(shared.glob("standin-1.0/MODULE_*")),
        "root": shared / "standin-1.0",
    }[what]
    target.rename(secret)  # the same bytes, by a link
    target.symlink_to(secret)
    place = Place(tmp_path / "x")
    bob = Watched(place.home, shared=[(storage, "r")])
    assert warm(bob.session, bob.prepare()).compiled == 3  # a link is as good as nothing
    place.intact()
    place.sound(bob)
