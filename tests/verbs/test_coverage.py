"""Coverage: which modules a recipe needs, which are cached and where, which failed and why, which are missing."""

import hashlib
import json
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.cli.coverage import human
from cachekit.compilers import Failed
from cachekit.errors import CompileError
from cachekit.remotes import index, layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.index import Known
from cachekit.remotes.push import push
from cachekit.store.notes import note_attempt
from cachekit.store.record import File, Module, Record
from cachekit.verbs.coverage import CACHE_DIR, CoverageOfAll, CoveredModules, coverage, coverage_of_all
from cachekit.verbs.warm import warm
from tests.remotes.storage_processes import swap
from tests.remotes.watched_storages import Counted
from tests.support.processes import memory_folder
from tests.support.standins import StandIn, Watched, publish, recipe, runs

FAILURE = Failed("user-error", "[ERROR] bad operator", "/root/MODULE_8/model.log", "2026-01-01", "change it")


class Rooted(StandIn):
    """A compiler with a folder of its own on this host, as Neuron has, where some modules are and some failed."""

    there = frozenset()
    failures = MappingProxyType({})

    def cache_dir(self, wanted):
        return self.root

    def contents(self, cache_dir):
        return self.there

    def failed(self, cache_dir, names):
        return {name: failure for name, failure in self.failures.items() if name in names}


def modules(count):
    """Modules named 0 to count - 1, each of two files; and their bytes."""
    contents, made = {}, []
    for number in range(count):
        raws = [f"code {number}".encode(), b"done"]
        files = tuple(
            File(name, len(raw), hashlib.sha256(raw).hexdigest())
            for name, raw in zip(("model.code", "model.done"), raws, strict=True)
        )
        contents |= {file.sha256: raw for file, raw in zip(files, raws, strict=True)}
        made.append(Module(f"standin-1.0/MODULE_{number}", files))
    return tuple(made), contents


def record_of(prepared, names, made, watched):
    from cachekit.compilers.keep import provenance

    return Record(
        prepared.key, "standin", prepared.fingerprint.directory, prepared.model_type, "toy",
        dict(prepared.ingredients.hard), {}, tuple(made[number] for number in names), len(names), 90.0,
        provenance(prepared.fingerprint),
    )  # fmt: skip


def of_all(found):
    return CoverageOfAll(0, 0, 0, 0, 0, CoveredModules(0, 0, 0, 0), (found,))


def put(watched, prepared, names):
    """Publish a record of these modules."""
    made, contents = modules(max(names) + 1)
    record = record_of(prepared, names, made, watched)
    wanted = {file.sha256 for file in record.files}
    return publish(watched.store, (record, {sha: raw for sha, raw in contents.items() if sha in wanted}))


def lose(watched, record, number):
    """One of its modules' own file is gone."""
    watched.store.layout.blob(record.modules[number].files[0].sha256).unlink()


def team(tmp_path, name, may="rw", compiler=None):
    (tmp_path / "team").mkdir(exist_ok=True)
    return Watched(tmp_path / name, shared=[(FolderStorage(tmp_path / "team"), may)], compiler=compiler)


@pytest.mark.feature("F3")
def test_7_of_9_and_the_2_are_named(tmp_path):
    compiler = Rooted()
    compiler.root = tmp_path / "root"
    compiler.failures = {"standin-1.0/MODULE_8": FAILURE}
    watched = Watched(tmp_path / "home", compiler=compiler)
    prepared = watched.prepare()
    record = put(watched, prepared, range(9))
    lose(watched, record, 3)
    lose(watched, record, 8)
    found = coverage(watched.session, prepared)
    document = found.as_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["needed"], document["cached"], document["failed"], document["missing"]) == (9, 7, 1, 1)
    assert (document["status"], document["basis"]) == ("failed", "record")
    failed, missing = (next(one for one in found.modules if one.status == kind) for kind in ("failed", "missing"))
    assert (failed.name, missing.name) == ("standin-1.0/MODULE_8", "standin-1.0/MODULE_3")
    assert structs.asdict(failed.failed) == {
        "kind": "user-error", "message": "[ERROR] bad operator", "log": "/root/MODULE_8/model.log",
        "when": "2026-01-01", "advice": "change it", "remembered": False,
    }  # fmt: skip
    error = of_all(found).miss()
    assert error.exit_code == 3
    assert "7 of 9" in error.cause


@pytest.mark.feature("F3")
def test_a_warm_recipe_is_covered_and_a_new_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    watched = Watched(tmp_path / "home")
    prepared = watched.prepare()
    before = coverage(watched.session, prepared)
    assert (before.basis, before.modules, before.graphs, before.whole) == ("unknown", (), None, False)
    warm(watched.session, prepared)
    after = coverage(watched.session, prepared)
    assert (after.whole, after.cached, after.graphs) == (True, 3, 3)
    assert {unit.where for unit in after.modules} == {("local",)}
    near = coverage(watched.session, watched.prepare(recipe(16)))
    assert (near.basis, near.modules, near.graphs, near.whole) == ("nearest", (), 3, False)
    assert of_all(after).miss() is None
    assert len(runs(tmp_path / "log")) == 1, "coverage runs nothing"


@pytest.mark.feature("F3")
def test_where_each_module_lies(tmp_path):
    """Locally, on the remote, in the compiler's own folder, or in several of these places."""
    ann = team(tmp_path, "ann")
    record = put(ann, ann.prepare(), range(4))
    push(ann.store, ann.session.remotes, [record])
    name = ann.session.remotes.writable[0].name
    compiler = Rooted()
    compiler.root, compiler.there = tmp_path / "root", {"standin-1.0/MODULE_1", "standin-1.0/MODULE_9"}
    compiler.failures = {"standin-1.0/MODULE_2": FAILURE}
    bob = team(tmp_path, "bob", "r", compiler)
    gone = tmp_path / "team" / record.modules[3].name / "model.code"
    gone.unlink()
    units = {unit.name[-1]: unit for unit in coverage(bob.session, bob.prepare()).modules}
    # What fits into the record is there with it, so that only large files can be gone from a cache.
    assert {number: unit.where for number, unit in units.items()} == {
        "0": (name,), "1": (name, CACHE_DIR), "2": (name,), "3": (name,)
    }  # fmt: skip
    assert units["2"].status == "cached", "what failed here and lies elsewhere is there"
    put(bob, bob.prepare(), range(2))
    units = {unit.name[-1]: unit for unit in coverage(bob.session, bob.prepare()).modules}
    assert units["0"].where == ("local", name)
    assert units["2"].where == (name,)


@pytest.mark.feature("F3", "R7")
def test_of_many_recipes_a_remotes_index_tells_and_no_record_is_read(tmp_path):
    """Not of what is known here in part, nor where the index lacks a record; and what it makes up is not there."""
    ann = team(tmp_path, "ann")
    wanted = [ann.prepare(recipe(batch)) for batch in (8, 16, 32)]
    push(ann.store, ann.session.remotes, [put(ann, one, range(4)) for one in wanted[:2]])
    remote = FolderStorage(tmp_path / "team")
    made, _ = index.read(remote, "")
    invented = Known.of(record_of(wanted[2], range(4), modules(4)[0], ann))
    swap(remote, layout.INDEX, lambda _: index.encode(made.with_([invented])))

    def asked(home, before=lambda _: None, *, certain=False):
        """What is told of each; and how many records were read."""
        storage = Counted(FolderStorage(tmp_path / "team"))
        me = Watched(tmp_path / home, shared=[(storage, "r")])
        before(me)
        every = [(str(number), lambda one=one: one) for number, one in enumerate(wanted)]
        found = coverage_of_all(me.session, every, skip=False, certain=certain)
        assert (found.covered, found.missing, found.modules.cached) == (2, 1, 8)
        assert [one.where for one in found.recipes[:2]] == [(storage.name,)] * 2
        told = [(one.status, one.basis, one.needed, len(one.modules), one.graphs) for one in found.recipes]
        assert told[2][0] == "missing"
        assert ("what the index of" in "\n".join(human(found))) == ("index" in {one.basis for one in found.recipes})
        return told[:2], storage.calls.count("read")

    def has_a_part(me):
        record = put(me, wanted[0], range(4))
        for number in range(4):
            lose(me, record, number)

    by_index, by_record = ("covered", "index", 4, 0, 4), ("covered", "record", 4, 4, 4)
    assert asked("bob") == ([by_index] * 2, 1), "the index alone"
    assert asked("carl", certain=True) == ([by_record] * 2, 2)
    assert asked("dora", has_a_part) == ([by_record, by_index], 2)
    swap(remote, layout.INDEX, lambda _: index.encode(made.only({index.short_path(wanted[0].place)})))
    assert asked("eve") == ([by_index, by_record], 2)
    swap(remote, layout.INDEX, lambda _: None)
    assert asked("fred") == ([by_record] * 2, 3)


def test_a_cache_that_cannot_be_asked_is_noted(tmp_path):
    bob = Watched(tmp_path / "bob", shared=[(FolderStorage(tmp_path / "nowhere"), "r")])
    found = coverage(bob.session, bob.prepare())
    assert "could not be asked" in found.notes[0]
    assert bob.told("remote.failed")
    assert (found.status, found.missing) == ("unknown", 0)
    every = coverage_of_all(bob.session, [("toy", bob.prepare)], skip=False)
    assert (every.unknown, every.missing, every.miss().exit_code) == (1, 0, 7)
    assert "what the remotes have is not known" in "\n".join(human(every))
    several = [("toy", bob.prepare), ("toy 16", lambda: bob.prepare(recipe(16)))]
    lines = human(coverage_of_all(bob.session, several, skip=False))
    assert " ".join(" ".join(lines).split()).count("could not be asked") == 1, "for both"


# A trial that failed


@pytest.mark.feature("F3")
def test_a_trial_that_failed_is_told_with_its_log_until_one_succeeds(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_FAIL", "compile")
    watched = Watched(tmp_path / "home")
    prepared = watched.prepare()
    with pytest.raises(CompileError):
        warm(watched.session, prepared)
    (unit,) = coverage(watched.session, prepared).modules
    assert (unit.status, unit.failed.kind, unit.failed.log) == ("failed", "compile-failed", str(watched.session.log))
    assert "bad graph" in unit.failed.message
    monkeypatch.delenv("STANDIN_FAIL")
    warm(watched.session, prepared)
    assert coverage(watched.session, prepared).whole


@pytest.mark.feature("F3")
def test_what_a_trial_needed_that_failed_is_what_is_known_to_be_needed(tmp_path):
    names = [f"standin-1.0/MODULE_{number}" for number in range(9)]
    compiler = Rooted()
    compiler.root, compiler.there = tmp_path / "root", frozenset(names[:7])
    compiler.failures = {names[8]: FAILURE}
    watched = Watched(tmp_path / "home", compiler=compiler)
    prepared = watched.prepare()
    error = CompileError("2 of 9 graphs failed", cause="MODULE_8: user-error")
    note_attempt(watched.store.layout, prepared.key, error, watched.session.log, names)
    document = coverage(watched.session, prepared).as_dict()
    assert (document["basis"], document["needed"], document["cached"]) == ("trial", 9, 7)
    assert [module["name"] for module in document["modules"] if module["status"] != "cached"] == names[7:]
    assert document["trial"]["message"] == "2 of 9 graphs failed: MODULE_8: user-error"


# Two builds


@pytest.mark.feature("F3", "F7")
def test_a_key_that_was_built_twice_is_told_with_both_builders(tmp_path):
    ann, bob = team(tmp_path, "ann"), team(tmp_path, "bob", "r")
    record = put(ann, ann.prepare(), range(2))
    push(ann.store, ann.session.remotes, [record])
    other = b"other code"
    file = File("model.code", len(other), hashlib.sha256(other).hexdigest())
    module = Module(record.modules[0].name, (file, record.modules[0].files[1]))
    made = structs.replace(record.provenance, user="bob")
    bobs = structs.replace(record, modules=(module, record.modules[1]), provenance=made)
    contents = modules(2)[1]
    publish(bob.store, (bobs, {file.sha256: other, **{f.sha256: contents[f.sha256] for f in bobs.files[1:]}}))
    (note,) = coverage(bob.session, bob.prepare()).as_dict()["builds"]
    assert note["ours"]["by"].startswith("bob@")
    assert [one["name"] for one in note["modules"]] == [module.name]
    assert note["modules"][0]["ours"] != note["modules"][0]["theirs"]
    assert len(bob.told("record.differs")) == 1
    assert len(coverage(bob.session, bob.prepare()).builds) == 1, "once"


# Any state


@settings(max_examples=40)
@given(
    st.integers(1, 6).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.sets(st.integers(0, count - 1)),
            st.sets(st.integers(0, count - 1)),
            st.sets(st.integers(0, count - 1)),
        )
    )
)
def test_every_module_is_in_one_state_and_it_is_the_right_one(case):
    count, lost, in_cache_dir, failed = case
    with memory_folder() as folder:
        compiler = Rooted()
        compiler.root = folder / "root"
        compiler.there = {f"standin-1.0/MODULE_{number}" for number in in_cache_dir}
        compiler.failures = {f"standin-1.0/MODULE_{number}": FAILURE for number in failed}
        watched = Watched(folder / "home", compiler=compiler)
        record = put(watched, watched.prepare(), range(count))
        for number in lost:
            lose(watched, record, number)
        found = coverage(watched.session, watched.prepare())
        gone = lost - in_cache_dir
        states = {int(unit.name[-1]): unit.status for unit in found.modules}
        assert states == {
            number: "cached" if number not in gone else "failed" if number in failed else "missing"
            for number in range(count)
        }
        assert found.whole == (not gone)
        assert found.needed == count == found.cached + found.failed + found.missing
