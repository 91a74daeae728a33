"""What came from elsewhere and stays in a compiler's own folder: who finds it there owes it to where it came from."""

import os

import msgspec
import pytest
from msgspec import structs

from cachekit.compilers.cachedir import cache_dir, note_origin
from cachekit.errors import IntegrityError
from cachekit.events import Journal
from cachekit.files import LARGEST_NOTE
from cachekit.remotes.judging import beside_found
from cachekit.store import Store, origin, staying
from cachekit.store.gc import Keep, gc
from cachekit.store.origin import MADE_HERE, UNKNOWN, Beside, Origin
from cachekit.store.record import file_path
from cachekit.store.refusal import Refused
from cachekit.store.removal import Remover, Victim
from tests.support.standins import StandIn, make_record, publish
from tests.support.users import ONE

pytestmark = pytest.mark.feature("T5")

ANYBODY = Beside(Origin("/place", "all"))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", Journal(None, "test"), asked=lambda *_: None)


@pytest.fixture
def own(tmp_path):
    """The compiler's own folder."""
    return tmp_path / "own"


def restore(store, own, record):
    """Put a record's modules into the folder, as `cache_dir` does."""
    note_origin(store, own, record, store.origins.of(record))
    for module in record.modules:
        for file in module.files:
            path = own / file_path(module, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.layout.blob(file.sha256).read_bytes())


def remove(store, record):
    row = store.refresh().row(record.place)
    Remover(store).records([Victim(row, row.published + 1e9, "named")])


@pytest.mark.parametrize("removed", [False, True])
def test_a_record_with_its_modules_reuses_it(store, own, removed):
    theirs = publish(store, make_record(1, ("a", "b")), beside=ANYBODY)
    restore(store, own, theirs)
    if removed:
        remove(store, theirs)
    for seed in (1, 2):  # its own key, and another
        if seed == 1 and not removed:
            continue
        found = publish(store, make_record(seed, ("a", "c")))
        reused = store.origins.of(found).origin.reused
        assert [(one.record, one.how) for one in reused] == [(theirs.digest, "all")]
    assert store.origins.of(publish(store, make_record(3, ("d",)))) == MADE_HERE


def test_small_files_that_are_alike_are_no_reuse(store, own):
    theirs, files = make_record(1, ("a",))
    mine, flags = make_record(2, ("flags",), size=100)
    (module,) = theirs.modules
    theirs = structs.replace(theirs, modules=(structs.replace(module, files=(*module.files, *mine.modules[0].files)),))
    restore(store, own, publish(store, (theirs, files | flags), beside=ANYBODY))
    assert store.origins.of(publish(store, (mine, flags))) == MADE_HERE


@pytest.mark.parametrize("for_good", [True, False])
def test_what_is_refused_goes_although_its_record_is_gone(store, own, for_good):
    theirs = publish(store, make_record(1, ("a", "b")), beside=ANYBODY)
    restore(store, own, theirs)
    remove(store, theirs)
    assert store.refusal.withdraw(own) == {}
    asked = []

    def revoked(record, beside, _):
        asked.append((record, beside(record)))
        return Refused("revoked", revoked=for_good)

    wary = Store(store.layout.home, Journal(None, "test"), asked=revoked)
    assert wary.refusal.withdraw(own.parent / "another") == {}
    assert wary.refusal.withdraw(own) == dict.fromkeys((module.name for module in theirs.modules), "it is revoked")
    assert asked == [(theirs, ANYBODY)]
    assert [path for path in own.rglob("*") if path.is_file()] == []
    assert not list(staying.noted(store.layout))


@pytest.mark.parametrize("removed", [False, True])
def test_what_is_compiled_anew_loses_what_came_from_elsewhere_for_its_key(store, own, removed):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    other = publish(store, make_record(2, ("b",)), beside=ANYBODY)
    for record in (theirs, other):
        restore(store, own, record)
    if removed:
        remove(store, theirs)
    assert list(store.refusal.withdraw(own, theirs.place)) == [module.name for module in theirs.modules]
    assert [one.record for _, one in staying.noted(store.layout)] == [other]


def test_what_was_made_here_stays_for_a_compile_anew(store, own):
    mine = publish(store, make_record(1, ("a",)))
    restore(store, own, mine)
    staying.forget(store.layout, own, mine)
    assert store.refusal.withdraw(own, mine.place) == {}


def test_gc_takes_a_note_once_its_modules_are_gone(store, own, tmp_path):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    ((path, _),) = staying.noted(store.layout)
    os.utime(path, (1, 1))
    gc(store, tmp_path / "cache_dirs", Keep())
    assert path.exists()
    for file in own.rglob("*"):
        if file.is_file():
            file.unlink()
    os.utime(path)
    gc(store, tmp_path / "cache_dirs", Keep())
    assert path.exists(), "its modules may be on their way"
    os.utime(path, (1, 1))
    gc(store, tmp_path / "cache_dirs", Keep())
    assert not path.exists()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"tree": 7}', b"[" * 100_000, b"\xff"])
def test_a_damaged_note_disturbs_nobody(store, own, damage):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    ((path, _),) = staying.noted(store.layout)
    path.chmod(0o600)
    path.write_bytes(damage)
    assert store.refusal.withdraw(own) == {}
    assert publish(store, make_record(2, ("c",)))


@pytest.fixture
def another(tmp_path):
    """A store of the same user, which never met the records that the first one had."""
    return Store(tmp_path / "another", Journal(None, "test"), asked=lambda *_: Refused("revoked"))


@pytest.mark.parametrize("spelled", ["own", "link", "elsewhere"])
def test_another_store_knows_what_came_from_elsewhere_into_the_folder(store, another, own, spelled):
    theirs = publish(store, make_record(1, ("a", "b")), beside=ANYBODY)
    restore(store, own, theirs)
    link = own.with_name("link")
    link.symlink_to(own)
    if spelled == "elsewhere":
        own.rename(own.with_name("elsewhere"))
    mine, files = make_record(2, ("a", "c"))
    found = [one.record for one in made_in(another, own.with_name(spelled), mine, files).reused]
    assert found == [theirs.digest]
    gone = another.refusal.withdraw(own.with_name(spelled))
    assert gone == dict.fromkeys((module.name for module in theirs.modules), "it is revoked")
    assert not staying.records(another.layout, own.with_name(spelled))


def made_in(store, tree, record, blobs):
    """The origin of a record that was made in a folder."""
    with store.workspace() as folder:
        finished = {}
        for sha256, raw in blobs.items():
            finished[sha256] = folder / sha256
            finished[sha256].write_bytes(raw)
        store.publish(record, finished, tree=tree)
    return store.origins.of(record).origin


def test_the_same_store_knows_a_folder_by_a_link(store, own):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    own.with_name("link").symlink_to(own)
    wary = Store(store.layout.home, Journal(None, "test"), asked=lambda *_: Refused("revoked"))
    assert list(wary.refusal.withdraw(own.with_name("link"))) == [module.name for module in theirs.modules]
    assert not list(staying.noted(store.layout))


def test_what_a_store_says_of_a_record_counts_before_what_the_folder_says(store, another, own):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    signed = Beside(Origin("/team", "signed", ("SHA256:key",)))
    publish(another, make_record(1, ("a",)), beside=signed)
    note_origin(another, own, theirs, signed)
    assert staying.records(another.layout, own) == {theirs.digest: (theirs, signed)}
    assert staying.records(store.layout, own) == {theirs.digest: (theirs, ANYBODY)}


def test_where_the_folder_takes_no_note_nothing_is_restored(store, own):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    own.mkdir()
    there = own / f".notes-of-cachekit-{os.geteuid()}"
    there.touch()
    with pytest.raises(NotADirectoryError):
        restore(store, own, theirs)
    assert [*own.iterdir()] == [there]


def test_a_note_in_the_folder_goes_once_its_modules_are_gone(store, own):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    other = publish(store, make_record(2, ("b",)), beside=ANYBODY)
    restore(store, own, theirs)
    for path in own.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
            if path.suffix != ".json":
                path.unlink()
    restore(store, own, other)
    assert [path.stem for path in own.glob(".notes*/*.json")] == [other.digest]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_note_that_somebody_else_wrote_says_nothing(store, another, own):
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    (path,) = own.glob(".notes*/*.json")
    os.chown(path, ONE, ONE)
    assert another.refusal.withdraw(own) == {}


def test_a_note_in_a_folder_makes_nothing_signed(store, another, own):
    theirs = publish(store, make_record(1, ("a",)), beside=Beside(Origin("/team", "signed", ("SHA256:key",))))
    restore(store, own, theirs)
    origin = beside_found(another, theirs, Origin(str(own), "owner"), own).origin
    assert origin.how == "owner"
    assert [one.record for one in origin.reused] == [theirs.digest]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_note_that_somebody_else_wrote_into_the_store_does_not_say_where_a_record_came_from(store, own, tmp_path):
    """In a store that everybody can write to, it would have the modules signed as made here."""
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    ((path, one),) = staying.noted(store.layout)
    path.write_bytes(msgspec.json.encode(structs.replace(one, beside=MADE_HERE)))
    os.chown(path, ONE, ONE)
    for tree, known in ((own, ANYBODY.origin), (None, UNKNOWN.origin)):
        mine, files = make_record(2, ("a", "c"))
        (found,) = made_in(Store(store.layout.home, Journal(None, "test")), tree, mine, files).reused
        assert (found.record, found.remote, found.how) == (theirs.digest, known.remote, known.how)
        remove(store, mine)
    restore(store, own, theirs)
    assert [one.beside for _, one in staying.noted(store.layout)] == [ANYBODY]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_of_strangers_notes_a_few_bytes_are_read(store, own, monkeypatch):
    """Whoever can write to the store can put notes there without end, and each publish and `verify` reads them."""
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    restore(store, own, theirs)
    ((path, one),) = staying.noted(store.layout)
    shape = {"tree": one.tree, "document": one.document, "beside": [{}] * 1000}  # no `beside` that anybody can have
    strange = [path.with_name(f"{letter * 64}.json") for letter in "abc"]
    for other in strange:
        other.write_bytes(msgspec.json.encode(shape))
        os.chown(other, ONE, ONE)
    size = strange[0].stat().st_size
    for most, read in ((size - 1, 0), (size, 1), (3 * size - 1, 2), (3 * size, 3)):
        monkeypatch.setattr(staying, "STRANGE", most)
        found = dict(staying.noted(store.layout))
        assert [other for other in strange if other in found] == strange[:read]
        assert all(found[other].beside == UNKNOWN for other in strange[:read])
        assert found[path] == one, "one's own is always read"


def test_what_cannot_be_noted_is_not_restored(store, own, monkeypatch):
    """A note that is too long to be read again would hide where modules came from."""
    theirs = publish(store, make_record(1, ("a",)), beside=ANYBODY)
    monkeypatch.setattr(origin, "LARGEST", 900)
    with pytest.raises(IntegrityError, match="its origin cannot be noted"):
        restore(store, own, theirs)
    assert not any(path.is_file() for path in own.rglob("*"))


def test_a_note_of_a_record_with_large_signatures_is_read_again(store, another, own):
    """Longer than any other note: whoever can write to a remote can put that much beside a record there."""
    large = structs.replace(ANYBODY, envelopes=({"payload": "A" * LARGEST_NOTE},))
    theirs = publish(store, make_record(1, ("a",)), beside=large)
    assert store.origins.of(theirs) == large
    restore(store, own, theirs)
    assert staying.records(another.layout, own) == {theirs.digest: (theirs, large)}


def test_modules_that_another_run_withdrew_while_they_were_restored_are_noted_again(store, own, tmp_path):
    """The other run does not trust them, and this one goes on: the next one is to know what it finds."""
    theirs = publish(store, make_record(1, ("a", "b")), beside=ANYBODY)

    class Restoring(StandIn):
        def restore(self, module, files, cache_dir):
            if module is theirs.modules[-1]:
                wary = Store(store.layout.home, Journal(None, "test"), asked=lambda *_: Refused("revoked"))
                assert wary.refusal.withdraw(cache_dir)
            return super().restore(module, files, cache_dir)

    with cache_dir(store, Restoring(), theirs, key=theirs.key, base=tmp_path / "cache_dirs", shared=own):
        pass
    assert staying.records(store.layout, own) == {theirs.digest: (theirs, ANYBODY)}
    assert [path.stem for path in own.glob(".notes*/*.json")] == [theirs.digest]
