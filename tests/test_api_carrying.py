"""The library's bundles, Neuron caches, lock files, page and doctor: the same as the verbs, as values."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

import cachekit
from cachekit.values import builtins
from tests.compilers.neuron.neuron_import_cases import WHOLE, added, cache, judge  # noqa: F401 - a fixture
from tests.compilers.neuron.neuron_trees import check, tree
from tests.support.cli_session import publish

pytest_plugins = ["tests.support.cli_session"]

LONGER = {"training.max_seq_length": 16}
TRUSTING = cachekit.Cache(trust_all=True)


def builtin(result):
    """What a program gets: the result as JSON has it, without how long it took."""
    document = json.loads(msgspec.json.encode(result.as_dict()))
    document.pop("seconds", None)
    return document


def said(answer):
    document = dict(answer.json)
    document.pop("seconds", None)
    return document


@pytest.fixture
def stored(home, machine):
    """A store with the record of `tiny.yaml`."""
    return publish(home)


@pytest.fixture
def box(tmp_path):
    """Another machine."""
    return cachekit.Cache(home=tmp_path / "box")


# Bundles


@pytest.mark.feature("F4")
@pytest.mark.parametrize("entry", ["record", "recipe", "file", "digits", "all", "compiler"])
def test_a_bundle_goes_to_an_empty_box(stored, box, command, entry):
    recipe = cachekit.load_recipe("tiny.yaml")
    entries = {"record": [stored], "recipe": [recipe], "file": ["tiny.yaml"], "digits": [stored.key[:9]]}.get(entry, [])
    all_of = stored.directory if entry == "compiler" else ""
    planned = cachekit.export_bundle("tiny.tar", entries, all_of=all_of, dry_run=True)
    assert ([one.key for one in planned.records], planned.size) == ([stored.key], 0)
    written = cachekit.export_bundle("tiny.tar", entries, all_of=all_of)
    assert builtin(written) == said(command("store", "export", "tiny.tar", "tiny.yaml", "--format", "json"))
    assert not box.plan("tiny.yaml").hit
    assert [one.state for one in box.import_bundle("tiny.tar", dry_run=True).records] == ["added"]
    assert box.records() == []
    taken = replace(box, trust_all=True).import_bundle("tiny.tar")
    assert (taken.sha256, [one.state for one in taken.records]) == (written.sha256, ["added"])
    assert box.plan("tiny.yaml").hit
    assert builtin(TRUSTING.import_bundle("tiny.tar")) == said(
        command("store", "import", "tiny.tar", "--trust-all", "--format", "json")
    )


def test_a_bundle_is_called_as_one_likes_and_never_goes_to_the_terminal(stored, work, capfd):
    """What the command line takes for standard output is a file's name here."""
    cachekit.export_bundle("-", [stored])
    assert (work / "-").stat().st_size > 0
    assert TRUSTING.import_bundle("-").records[0].key == stored.key
    assert capfd.readouterr() == ("", "")


def test_imports_are_told_and_leave_a_journal(stored, box, home):
    cachekit.export_bundle("tiny.tar")
    told = []
    cachekit.Cache(home=box.home, progress=told.append, trust_all=True).import_bundle("tiny.tar")
    assert [event["event"] for event in told] == ["trust.all", "import.record", "import.end"]
    assert told[-1]["records"][0]["key"] == stored.key


def test_what_cannot_go_into_a_bundle_or_come_out_of_one(stored, work):
    (work / "mine.txt").write_text("mine")
    longer = cachekit.load_recipe(cachekit.Variant("tiny.yaml", LONGER))
    for act, kind in (
        (lambda: cachekit.export_bundle("x.tar", [longer]), cachekit.MissError),
        (lambda: cachekit.export_bundle("x.tar", ["abcdef"]), cachekit.UnknownNameError),
        (lambda: cachekit.export_bundle("x.tar", all_of="neuronxcc-2"), cachekit.UnknownNameError),
        (lambda: cachekit.export_bundle("x.tar", [stored], all_of=stored.directory), cachekit.UsageError),
        (lambda: cachekit.export_bundle("mine.txt"), cachekit.UsageError),
        (lambda: TRUSTING.import_bundle("mine.txt"), cachekit.IntegrityError),
        (lambda: TRUSTING.import_bundle("none.tar"), cachekit.UsageError),
        (lambda: TRUSTING.import_bundle(work), cachekit.UsageError),
    ):
        with pytest.raises(kind):
            act()
    assert not (work / "x.tar").exists()
    assert (work / "mine.txt").read_text() == "mine"


def test_one_text_is_no_list_of_entries(stored, tmp_path):
    """Each of its letters would be the beginning of a key."""
    for act in (
        lambda: cachekit.export_bundle("x.tar", "tiny.yaml"),
        lambda: cachekit.export_neuron_cache(tmp_path / "out", "tiny.yaml"),
        lambda: cachekit.Cache(cache=f"local:rw,{tmp_path}:rw").push("tiny.yaml"),
    ):
        with pytest.raises(TypeError, match="not the text"):
            act()


# Caches of Neuron's own


@pytest.mark.feature("F4")
def test_a_neuron_cache_comes_in_and_goes_out(box, cache, command, tmp_path, monkeypatch):
    """Its modules are small texts here, which no compiler made: what judges them is replaced."""
    monkeypatch.setattr("cachekit.compilers.neuron.fit.check", check)
    told = []
    store = cachekit.Cache(home=box.home, progress=told.append)
    looked = store.import_neuron_cache(cache, dry_run=True)
    assert (added(looked), store.records()) == (WHOLE, [])
    taken = store.import_neuron_cache(f"file://{cache}")
    assert added(taken) == WHOLE
    assert {"import.reading", "import.storing", "import.end"} <= {event["event"] for event in told}
    again = command("store", "import", str(cache), "--home", str(box.home), "--format", "json").json
    assert (again["added"], again["known"]) == (0, len(WHOLE))
    assert {item["reason"] for item in again["left"]} == {item.reason for item in taken.left}

    out = tmp_path / "out"
    assert {one.outcome for one in store.export_neuron_cache(out, dry_run=True).modules} == {"restored"}
    assert not out.exists()
    done = store.export_neuron_cache(f"file://{out}")
    assert len({taken, done}) == 2, "values"
    assert (sorted(one.module for one in done.modules), done.error()) == (WHOLE, None)
    assert {name.rpartition("/")[0] for name in tree(out)} == set(WHOLE)
    one = store.records()[0]
    part = store.export_neuron_cache(tmp_path / "part", [one])
    assert part.records == (one.key,)
    assert builtin(part) | {"restored": 0, "present": len(part.modules), "bytes": 0, "modules": []} == (
        command("store", "export", str(tmp_path / "part"), one.key, "--home", str(box.home), "--format", "json").json
        | {"modules": []}
    )


def test_modules_that_are_damaged_in_the_store_are_told(box, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("cachekit.compilers.neuron.fit.check", check)
    box.import_neuron_cache(cache)
    for path in (box.home / "v1" / "blobs").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"?" + path.read_bytes()[1:])
    done = box.export_neuron_cache(tmp_path / "out")
    assert len(done.damaged) == len(WHOLE)
    assert isinstance(done.error(), cachekit.IntegrityError)


def test_what_is_no_neuron_cache_is_said(stored, work):
    for act in (
        lambda: cachekit.import_neuron_cache(work),
        lambda: cachekit.import_neuron_cache("tiny.yaml"),
        lambda: cachekit.import_neuron_cache("s3://bucket/cache"),
        lambda: cachekit.export_neuron_cache("s3://bucket/cache"),
        lambda: cachekit.export_neuron_cache(work / "out", [stored]),
    ):
        with pytest.raises(cachekit.UsageError):
            act()
    assert not (work / "out").exists()
    assert not (work / "s3:").exists()


# The lock file


@pytest.mark.feature("F5")
def test_lock_is_what_the_verb_writes(stored, command, work):
    with pytest.raises(cachekit.MissError):
        cachekit.lock(cachekit.Variant("tiny.yaml", LONGER))
    assert cachekit.lock("tiny.yaml", dry_run=True).changed
    assert not (work / "cachekit.lock").exists()
    done = cachekit.lock("tiny.yaml")
    assert (done.changed, [one.key for one in done.locked], len(done.unshared)) == (True, [stored.key], 1)
    text = (work / "cachekit.lock").read_text()
    told = command("store", "lock", "--format", "json").json
    assert builtin(cachekit.lock()) == told
    assert told["changed"] is False
    (work / "cachekit.lock").unlink()
    command("store", "lock", "tiny.yaml")
    assert (work / "cachekit.lock").read_text() == text
    assert builtin(cachekit.lock("tiny.yaml", lock_file="other.lock")) == {
        **told,
        "file": "other.lock",
        "changed": True,
    }


@pytest.mark.feature("F5")
def test_changes_are_locked_as_set_writes_them(home, machine, work, command):
    publish(home, "training.max_seq_length=16")
    cachekit.lock(cachekit.Variant("tiny.yaml", LONGER))
    text = (work / "cachekit.lock").read_text()
    assert not cachekit.lock(cachekit.Variant("tiny.yaml", LONGER)).changed
    command("store", "lock", "tiny.yaml", "--set", "training.max_seq_length=16")
    assert (work / "cachekit.lock").read_text() == text
    assert cachekit.check_lock().good


@pytest.mark.feature("F5")
def test_check_lock_answers_instead_of_raising(stored, command, work):
    cachekit.lock("tiny.yaml")
    fits = cachekit.check_lock("tiny.yaml")
    assert (fits.good, fits.error(), [one.changes for one in fits.checked]) == (True, None, [()])
    (work / "tiny.yaml").write_text((work / "tiny.yaml").read_text().replace("max_seq_length: 8", "max_seq_length: 16"))
    found = cachekit.check_lock()
    assert [[change.name for change in one.changes] for one in found.changed] == [["training.max_seq_length"]]
    told = command("store", "lock", "--check", "--format", "json", code=3).json
    error = told.pop("error")
    assert builtin(found) == told
    assert builtins(found.error()) == error
    with pytest.raises(cachekit.UnknownNameError):
        cachekit.check_lock("other.yaml")


@pytest.mark.feature("F5")
def test_pull_locked_gives_what_is_locked(stored, tmp_path, work, box):
    (tmp_path / "shared").mkdir()
    remotes = f"local:rw,file://{tmp_path / 'shared'}:rw"
    mine, theirs = cachekit.Cache(cache=remotes), cachekit.Cache(home=box.home, cache=remotes)
    mine.push([stored])
    assert mine.lock("tiny.yaml").unshared == ()
    assert [one.state for one in theirs.pull_locked(dry_run=True).pulled] == ["would-fetch"]
    assert theirs.records() == []
    assert [one.state for one in theirs.pull_locked("tiny.yaml").pulled] == ["fetched"]
    assert [record.key for record in theirs.records()] == [stored.key]
    assert [one.state for one in theirs.pull_locked().pulled] == ["present"]
    failed = cachekit.Cache(home=tmp_path / "other").pull_locked()
    assert [one.state for one in failed.pulled] == ["failed"]
    with pytest.raises(cachekit.IntegrityError, match="cannot be found"):
        raise failed.error()
    with pytest.raises(cachekit.UsageError, match="cannot be read"):
        theirs.pull_locked(lock_file="none.lock")
    with pytest.raises(cachekit.UsageError, match="locks nothing"):
        cachekit.check_lock(lock_file="none.lock")


def test_a_lock_file_names_its_recipes(stored, work):
    """A value has no name that somebody else could read it by."""
    recipe = cachekit.load_recipe("tiny.yaml")
    for act in (cachekit.lock, cachekit.check_lock, cachekit.pull_locked):
        with pytest.raises(cachekit.UsageError, match="names its recipes"):
            act(recipe)
    assert not (work / "cachekit.lock").exists()


# This host


def test_doctor_is_what_the_verb_says(home, machine, work, command, monkeypatch):
    """As far as two looks at one host find the same: not how much of a disk is free."""
    found = cachekit.doctor()
    answer = command("doctor", "--format", "json", code=int(not found.good))
    mine, theirs = builtin(found)["findings"], answer.json["findings"]
    assert [(one["check"], one["state"]) for one in mine] == [(one["check"], one["state"]) for one in theirs]
    assert found.good is not any(one["state"] == "problem" for one in mine)
    assert len(found.problems) == builtin(found)["counts"]["problem"]

    nowhere = cachekit.Cache(cache=f"local:rw,{work / 'nowhere'}:r").doctor()
    assert not nowhere.good
    assert "nowhere" in " ".join(one.said for one in nowhere.findings if one.check == "remotes")
    (work / "cachekit.toml").write_text("nonsense = 1")
    broken = cachekit.doctor().findings[0]
    assert (broken.check, broken.state, "nonsense" in broken.said) == ("settings", "problem", True)


def test_doctor_offline_asks_nobody(home, machine, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    found = cachekit.Cache(cache="local:rw,hf://team/cache:r,s3://bucket/place:r", offline=True).doctor()
    remotes = [one for one in found.findings if one.check == "remotes"]
    assert [one.state for one in remotes] == ["unknown", "unknown"]
    assert "offline" not in {one.check for one in found.findings}


@pytest.mark.feature("U1")
def test_the_contract_without_neuron(home):
    told = []
    found = cachekit.Cache(progress=told.append).neuron_contract()
    assert (found.good, found.compiler, found.promises, found.assumptions) == (False, "", (), ())
    assert found.problem
    assert told == []
