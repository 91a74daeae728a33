"""The library's questions about a store, and what keeps it healthy: the same as the verbs, as values."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import cachekit
from cachekit.errors import IntegrityError
from tests.support.cli_session import publish

pytest_plugins = ["tests.support.cli_session"]

LONGER = {"training.max_seq_length": 16}
LONGER_WORDS = ("--set", "training.max_seq_length=16")


def builtin(result):
    """What a program gets: the result as JSON has it."""
    return json.loads(msgspec.json.encode(result.as_dict()))


@pytest.fixture
def stored(home, machine):
    """A store with the record of `tiny.yaml`."""
    return publish(home)


def blob(home, record):
    sha256 = record.files[0].sha256
    return home / "v1" / "blobs" / sha256[:2] / sha256


# Questions


@pytest.mark.feature("W2")
def test_why_is_what_the_verb_says(command, stored):
    found = cachekit.why(cachekit.Variant("tiny.yaml", LONGER))
    told = command("why", "tiny.yaml", *LONGER_WORDS, "--format", "json").json
    assert builtin(found) == told
    assert found.nearest.key == stored.key
    assert [(change.name, change.old, change.new) for change in found.changes] == [("training.max_seq_length", 8, 16)]
    assert cachekit.why("tiny.yaml").changes == ()


@pytest.mark.feature("W2")
def test_compare_takes_recipes_records_keys_and_files(command, stored, work):
    """Whatever names the two, the difference is the same."""
    (work / "record.json").write_text(json.dumps(command("store", "show", stored.key, "--format", "json").json))
    longer = cachekit.load_recipe(cachekit.Variant("tiny.yaml", LONGER))
    (work / "longer.yaml").write_text(Path("tiny.yaml").read_text().replace("max_seq_length: 8", "max_seq_length: 16"))
    for old in ("tiny.yaml", Path("tiny.yaml"), stored, stored.key[:12], work / "record.json"):
        for new in (longer, "longer.yaml"):
            found = cachekit.compare(old, new)
            assert [told["name"] for told in builtin(found)["changes"]] == ["training.max_seq_length"], (old, new)
            assert found.old.key == stored.key
    assert builtin(cachekit.compare(stored, "tiny.yaml"))["same"]
    with pytest.raises(cachekit.UnknownNameError):
        cachekit.compare("tiny.yaml", "abcdef")


@pytest.mark.feature("F3")
def test_coverage_is_what_the_verb_says(command, stored, home):
    for overrides, words, whole in (({}, (), True), (LONGER, LONGER_WORDS, False)):
        found = cachekit.coverage(cachekit.Variant("tiny.yaml", overrides))
        (told,) = command("coverage", "tiny.yaml", *words, "--format", "json").json["recipes"]
        assert builtin(found) == told
        assert found.whole is whole
    blob(home, stored).unlink()
    assert [unit.status for unit in cachekit.coverage("tiny.yaml").modules] == ["missing"]


@pytest.mark.feature("D1")
def test_stats_and_why_of_a_run(command, home, machine, worker):
    warmed = cachekit.warm("tiny.yaml")
    cachekit.warm("tiny.yaml")
    found = cachekit.stats()
    assert builtin(found) == command("stats", "--format", "json").json
    assert (found.total.runs, found.total.hits, found.total.misses) == (2, 1, 1)
    assert cachekit.stats(run="last").total.graphs_found == 3
    assert found.total.saved_dollars is None
    paid = cachekit.stats(price=3600.0)
    assert paid.total.saved_dollars == pytest.approx(paid.total.saved_seconds, abs=0.006)
    assert cachekit.Cache(instance="trn1.2xlarge").stats().price.instance == "trn1.2xlarge"
    for bad in ({"since": "yesterday"}, {"price": -1.0}, {"run": "last", "since": "7d"}):
        with pytest.raises(cachekit.UsageError):
            cachekit.stats(**bad)

    last = cachekit.why_run()
    assert builtin(last) == command("why", "--run", "last", "--format", "json").json
    assert (last.key, last.planned, last.compiled) == (warmed.key, "hit", 0)
    with pytest.raises(cachekit.UnknownNameError):
        cachekit.why_run("nonsense")


def test_questions_leave_no_store_behind(home, machine):
    for ask in (cachekit.why, cachekit.coverage, cachekit.plan):
        ask("tiny.yaml")
    assert (cachekit.stats().total.runs, cachekit.records(), cachekit.pins()) == (0, [], [])
    assert cachekit.verify().good
    assert not home.exists()


@pytest.mark.parametrize("below", [False, True], ids=["a file", "below a file"])
@pytest.mark.parametrize("ask", ["records", "pins", "stats", "why_run", "open_store", "verify", "gc", "trace"])
def test_a_file_is_no_store(tmp_path, ask, below):
    """Not an empty one, which it would look like."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(cachekit.StoreError) as caught:
        getattr(cachekit.Cache(home=taken / "store" if below else taken), ask)()
    assert str(taken) in caught.value.message
    assert (caught.value.cause, bool(caught.value.hint)) == ("it is not a folder", True)
    assert taken.read_text() == "mine"


# Health


@pytest.mark.feature("S6")
def test_verify_tells_what_is_bad_and_repairs_it_from_a_shared_cache(stored, home, tmp_path):
    (tmp_path / "shared").mkdir()
    cache = cachekit.Cache(cache=f"local:rw,file://{tmp_path / 'shared'}:rw")
    cache.push([stored])
    good = cachekit.verify()
    assert (good.good, good.error(), good.records) == (True, None, 1)

    raw = blob(home, stored).read_bytes()
    blob(home, stored).chmod(0o600)
    blob(home, stored).write_bytes(b"?" + raw[1:])
    assert cachekit.verify(quick=True).good, "of the same size: nothing was hashed"
    bad = cachekit.verify()
    assert [problem.keys for problem in bad.bad] == [(stored.key,)]
    assert isinstance(bad.error(), IntegrityError)
    assert builtin(bad)["problems"][0]["keys"] == [stored.key]

    alone = cachekit.verify(repair=True)
    assert not alone.good, "nobody else has it"
    repaired = cache.verify(repair=True)
    assert (repaired.good, [bool(one.repaired) for one in repaired.problems], repaired.error()) == (True, [True], None)
    assert blob(home, stored).read_bytes() == raw
    assert cachekit.verify(repair=True).good


@pytest.mark.feature("G4")
def test_gc_within_limits_as_numbers_and_as_words(command, stored, home):
    told = cachekit.gc(max_size="0", dry_run=True)
    assert [record.key for record in told.records] == [stored.key]
    assert (
        builtin(told)["records"]
        == command("store", "gc", "--max-size", "0", "--dry-run", "--format", "json").json["records"]
    )
    assert cachekit.gc(max_size=10**12, max_age=10**9).records == ()
    assert cachekit.gc(all_of="neuronxcc-*").records == ()
    for bad in ({"max_size": "much"}, {"max_age": "old"}):
        with pytest.raises(cachekit.UsageError):
            cachekit.gc(**bad)
    assert cachekit.records() == [stored]
    assert cachekit.gc(all_of="inductor-*").bytes >= told.bytes
    assert cachekit.records() == []
    assert not blob(home, stored).exists()


@pytest.mark.feature("G2")
@pytest.mark.parametrize("name", ["record", "recipe", "file", "digits"])
def test_pins_hold_until_they_are_let_go(stored, home, name):
    recipe = cachekit.load_recipe("tiny.yaml")
    entry = {"record": stored, "recipe": recipe, "file": "tiny.yaml", "digits": stored.key[:9]}[name]
    (would,) = cachekit.pin(entry, dry_run=True)
    assert (would.key, would.changed, cachekit.pins()) == (stored.key, True, [])
    (pinned,) = cachekit.pin(entry)
    assert (pinned.key, pinned.recipe) == (stored.key, "tiny.yaml" if name == "file" else "tiny")
    assert (pinned.changed, cachekit.pin(entry)[0].changed) == (True, False)
    assert [one.key for one in cachekit.pins()] == [stored.key]
    assert cachekit.gc(max_size=0).records == ()
    with pytest.raises(cachekit.UsageError, match="pinned"):
        cachekit.rm(entry)
    assert cachekit.records() == [stored]
    (would,) = cachekit.unpin(entry, dry_run=True)
    assert (would.changed, [one.key for one in cachekit.pins()]) == (True, [stored.key])
    (let,) = cachekit.unpin(entry)
    assert let.changed
    assert cachekit.rm(entry, dry_run=True)[0].key == stored.key
    assert cachekit.records() == [stored]
    (gone,) = cachekit.rm(entry)
    assert gone.key == stored.key
    assert cachekit.records() == []
    with pytest.raises(cachekit.UnknownNameError):
        cachekit.rm(stored)


@pytest.mark.feature("M4")
def test_check_build_answers_instead_of_raising(home, machine, worker):
    with pytest.raises(cachekit.MissError):
        cachekit.check_build("tiny.yaml")
    cachekit.warm("tiny.yaml")
    done = cachekit.check_build("tiny.yaml")
    assert (done.differ, done.error()) == ((), None)
