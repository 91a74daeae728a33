"""Bits rot, disks lie, people copy files about: whatever happens to a store's files, no wrong byte is ever served."""

import random
from collections import Counter

import pytest

from cachekit.errors import IntegrityError
from cachekit.store.record import DamagedRecordError, decode
from cachekit.verbs.warm import warm
from tests.support.processes import memory_folder
from tests.support.standins import StandIn, Watched, garbage_of, module_files, overwrite, recipe

KINDS = ("flip", "truncate", "extend", "zero", "swap", "delete")


class Campaign:
    """A store with several keys, two of which share their modules; each round damages a file or two.

    Args:
        home: The store's folder.
        seed: Of all choices.
    """

    def __init__(self, home, seed):
        self.home = home
        self.chosen = random.Random(seed)
        # The stand-in's modules depend on batch and length; the optimizer is in the key alone.
        recipes = [recipe(8), recipe(8, optim="sgd"), recipe(16)]
        self.compiler = StandIn(graphs=2)
        self.prepared = [self.watched().prepare(wanted) for wanted in recipes]
        self.records = {}
        self.done = Counter()
        for one in self.prepared:
            self.records[one.key] = warm(self.watched().session, one).record
        assert len(self.records) == 3
        assert len({file.sha256 for record in self.records.values() for file in record.files}) == 12

    def watched(self):
        """A new process's view of the store."""
        return Watched(self.home, wait=0, compiler=self.compiler).limit(0)

    def victims(self):
        """Every file that an entry consists of: records and blobs."""
        layout = self.watched().store.layout
        found = set()
        for record in self.records.values():
            found.add(layout.record(record.place))
            found |= {layout.blob(file.sha256) for file in record.files}
        return sorted(found)

    def damage(self):
        """Damage a file, or swap two; returns the paths of which others depend that they hold what they should."""
        kind = self.kind = self.chosen.choice(KINDS)
        path = self.chosen.choice(self.victims())
        raw = path.read_bytes()
        anew = self.chosen.random() < 0.5
        if kind == "delete":
            path.unlink()
        elif kind == "swap":
            other = self.chosen.choice([one for one in self.victims() if one.read_bytes() != raw])
            there = other.read_bytes()
            overwrite(path, there, anew=anew)
            overwrite(other, raw, anew=anew)
        else:
            overwrite(path, getattr(self, f"_{kind}")(raw), anew=anew)
        self.done[kind, "record" if path.suffix else "blob"] += 1
        return [path, other] if kind == "swap" else [path]

    def _flip(self, raw):
        position, bit = self.chosen.randrange(len(raw)), 1 << self.chosen.randrange(8)
        return raw[:position] + bytes([raw[position] ^ bit]) + raw[position + 1 :]

    def _truncate(self, raw):
        return raw[: self.chosen.randrange(len(raw))]

    def _extend(self, raw):
        return raw + self.chosen.randbytes(self.chosen.choice([1, 100, 5000]))

    def _zero(self, raw):
        start = self.chosen.randrange(len(raw))
        end = self.chosen.randrange(start, len(raw)) + 1
        changed = raw[:start] + bytes(end - start) + raw[end:]
        return changed if changed != raw else self._flip(raw)

    def round(self):
        """Damage, look, restore, compile anew."""
        between = self.chosen.random() < 0.3  # the damage comes between the lookup and the restore
        if between:
            seen = self.watched()
            found = {one.key: seen.lookup(one) for one in self.prepared}
            assert found == self.records
            damaged = self.damage()
        else:
            damaged = self.damage()
            seen = self.watched()
            found = {one.key: seen.lookup(one) for one in self.prepared}
        for one in self.prepared:
            record = found[one.key]
            # Never a record that differs from what was published, and never bytes that differ from what it says.
            assert record in (None, self.records[one.key])
            if record is not None:
                self._restore(seen, one, record, damaged)
        verdict = {one.key: seen.lookup(one) for one in self.prepared} if between else found
        for path in damaged:
            self._assert_reported(path, seen, damaged, verdict)
        self._heal()

    def _restore(self, seen, one, record, damaged):
        try:
            with seen.session.cache_dir(one, record) as cache_dir:
                names = self.compiler.contents(cache_dir.tree)
                restored = {name: (cache_dir.tree / name).read_bytes() for name in names}
        except IntegrityError:
            layout = seen.store.layout
            assert {layout.blob(file.sha256) for file in record.files} & set(damaged)
        else:
            assert restored == module_files(one, self.compiler)

    def _assert_reported(self, path, seen, damaged, verdict):
        """Whatever is looked at and wrong is told; what hangs on a record that is refused is not looked at."""
        layout = seen.store.layout
        for key, record in self.records.items():
            place = layout.record(record.place)
            if path == place:
                # Nobody can tell a record that was deleted from one that never was; nor is it damage when the same
                # record is written in another way (a space at its end).
                assert str(path) in seen.damage() or self.kind == "delete" or self._same(path, record)
            elif path in {layout.blob(file.sha256) for file in record.files} and place not in damaged:
                assert verdict[key] is None
                assert str(path) in seen.damage()

    @staticmethod
    def _same(path, record):
        try:
            return decode(path.read_bytes()) == record
        except DamagedRecordError:
            return False

    def _heal(self):
        """A following warm compiles what is not there any more, and works."""
        again = self.watched()
        for one in self.prepared:
            if again.lookup(one) is None:
                done = warm(again.session, one)
                assert done.compiled == 2
                assert again.restored(one.key, done.record) == module_files(one, self.compiler)
                self.records[one.key] = done.record
        last = self.watched()
        for one in self.prepared:
            assert last.lookup(one) == self.records[one.key]
        assert last.damage() == []
        assert not [name for name in garbage_of(self.home) if not name.startswith("quarantine")]


@pytest.mark.campaign
@pytest.mark.feature("S5")
@pytest.mark.parametrize("rounds", [25, pytest.param(2000, marks=pytest.mark.slow)], ids=lambda rounds: f"{rounds}")
def test_no_damage_is_ever_served(rounds):
    with memory_folder() as folder:
        campaign = Campaign(folder / "home", seed=rounds)
        for _ in range(rounds):
            campaign.round()
    assert sum(campaign.done.values()) == rounds
    assert {kind for kind, _ in campaign.done} == set(KINDS)
    assert {what for _, what in campaign.done} == {"blob", "record"}


@pytest.mark.feature("S5")
def test_a_damaged_store_ends_in_the_same_training(tmp_path):
    """Every blob damaged at once: the run falls back to compiling, with the same modules."""
    home = tmp_path / "home"
    first = Watched(home)
    record = warm(first.session, first.prepare()).record
    for path in (home / "v1" / "blobs").glob("*/*"):
        overwrite(path, path.read_bytes()[::-1] + b"!")
    watched = Watched(home)
    done = warm(watched.session, watched.prepare())
    assert done.compiled == 3
    assert done.record.modules == record.modules
    assert watched.restored(done.record.key, done.record) == module_files(first.prepare(), first.compiler)
    assert {file.sha256 for file in record.files} <= {path.rpartition("/")[2] for path in watched.damage()}
