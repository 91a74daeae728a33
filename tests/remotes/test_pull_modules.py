"""Modules without a record, by their names: from a repo as optimum-neuron's `upload_folder` leaves it."""

from __future__ import annotations

import json

import pytest

from cachekit.errors import IntegrityError, UsageError
from cachekit.remotes.folder import FolderStorage
from tests.compilers.neuron.neuron_files import make_neff
from tests.compilers.neuron.neuron_trees import COMPILER, OTHER, module_name, tree
from tests.remotes.peer_repo import (  # noqa: F401 - some are fixtures
    BAD,
    Member,
    as_the_peer,
    entry,
    get,
    held,
    hub,
    join,
    make,
    put,
    repo,
)
from tests.support.standins import Watched


@pytest.mark.feature("R3")
def test_finished_modules_come_without_a_record(join, repo, hub, tmp_path):
    root = tmp_path / "root"
    wanted = {entry(root, seed=1), entry(root, seed=2)}
    bad = {entry(root, state, 10 + number) for number, state in enumerate(BAD)}
    as_the_peer(repo, tree(root) | {f"{COMPILER}/0_REGISTRY/0.4.5/bert/a/b/c.json": b"{}"})
    bob = join("bob", "r")
    (dry,) = get(bob, folder=COMPILER, dry_run=True)
    assert (dry.state, {*dry.modules}, held(bob)) == ("would-fetch", wanted, {})
    (done,) = get(bob, folder=COMPILER)
    assert (done.state, {*done.modules}, {one.module for one in done.left}) == ("fetched", wanted, bad)
    assert held(bob) == {path: data for path, data in tree(root).items() if path.rpartition("/")[0] in wanted}
    hub.log.clear()
    (again,) = get(bob, folder=COMPILER)
    assert again.state == "present"
    assert get(bob, *wanted)[0].state == "present"
    assert [request.path for request in hub.requests if request.kind != "api"] == []


def test_what_an_earlier_push_left_behind_hides_no_finished_module(join, repo, tmp_path):
    """The peer's pushes delete nothing: the lock and the log of a first try stay beside what was finished since."""
    name = entry(tmp_path / "root", seed=1)
    extra = {f"{name}/model.hlo_module.pb.lock": b"", f"{name}/model.log": b"Failed", f"{name}/notes.txt": b"mine"}
    as_the_peer(repo, tree(tmp_path / "root") | extra)
    bob = join("bob")
    assert get(bob, name)[0].state == "fetched"
    assert held(bob) == tree(tmp_path / "root")


def test_a_module_that_is_not_finished_says_why(join, repo, tmp_path):
    names = [entry(tmp_path / "root", state, number) for number, state in enumerate(BAD)]
    as_the_peer(repo, tree(tmp_path / "root"))
    found = get(join("bob"), *names, f"{COMPILER}/{module_name(99)}")
    assert {one.state for one in found} == {"absent"}
    assert [bool(one.left) for one in found] == [True] * len(names) + [False]


@pytest.mark.parametrize("harm", ["digest", "chip", "compiler"])
def test_a_damaged_one_is_refused_and_spoils_no_other(join, repo, tmp_path, harm):
    good, bad = entry(tmp_path / "root", seed=1), entry(tmp_path / "root", seed=2)
    neff = tmp_path / "root" / bad / "model.neff"
    version = OTHER if harm == "compiler" else COMPILER
    made = make_neff(version=version.removeprefix("neuronxcc-"), target="cayman" if harm == "chip" else "sunda", seed=2)
    neff.write_bytes(made[:-5000] + b"damage" + made[-4994:] if harm == "digest" else made)
    as_the_peer(repo, tree(tmp_path / "root"))
    bob = join("bob")
    (done,) = get(bob, folder=COMPILER)
    assert (done.modules, {one.module for one in done.left}) == ((good,), {bad})
    with pytest.raises(IntegrityError):
        get(bob, bad)
    assert {path.rpartition("/")[0] for path in held(bob)} == {good}
    assert not any((bob.store.layout.partial).glob("?*"))


@pytest.mark.parametrize("path", ["compile_flags.json", "model.neff"])
def test_bytes_that_are_not_what_the_cache_says_are_refused(join, repo, hub, tmp_path, path):
    good, bad = entry(tmp_path / "root", seed=1), entry(tmp_path / "root", seed=2)
    (tmp_path / "root" / bad / "compile_flags.json").write_text('["--target=trn1"]')
    as_the_peer(repo, tree(tmp_path / "root"))
    bob = join("bob")
    file = repo.tree(repo.head)[f"{bad}/{path}"]
    where = f"GET /cdn/*{file['sha256']}*" if file["lfs"] else f"GET */resolve/*/{bad.replace('+', '*')}/{path}"
    hub.fault("wrong-bytes", where, times=None, count=3)
    (done,) = get(bob, folder=COMPILER)
    assert (done.modules, {one.module for one in done.left}) == ((good,), {bad})
    hub.faults.clear()
    assert get(bob, bad)[0].state == "fetched"


def test_records_of_the_cache_vouch_for_what_they_name(join, repo, hub, tmp_path):
    name = entry(tmp_path / "root", seed=1)
    put(join("ann"), tmp_path / "root")
    hub.log.clear()
    bob = join("bob")
    assert get(bob, name)[0].state == "fetched"
    # The record, which has the small files inside, and then the NEFF alone.
    assert len({request.path for request in hub.requests if request.kind == "resolve"}) == 2
    entry(tmp_path / "other", seed=1, build=1)
    as_the_peer(repo, {f"{name}/model.neff": (tmp_path / "other" / name / "model.neff").read_bytes()})
    with pytest.raises(IntegrityError, match="cannot be used") as caught:
        get(join("eve"), name)
    assert "record" in caught.value.cause


HOSTILE = [
    "neuronxcc-1/../../etc", "/etc/passwd", "neuronxcc-1", "neuronxcc-1/MODULE_ab\n", "neuronxcc-1/MODULE_ab/..",
    "MODULE_ab", "", "neuronxcc-1/MODULE_ab/model.neff", "neuronxcc-1\\MODULE_ab", "../neuronxcc-1/MODULE_ab",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_are_none_of_modules_ask_nobody(join, hub, name):
    bob = join("bob")
    for arguments in ({"folder": name or "."}, {"folder": ""}):
        if arguments["folder"] == "neuronxcc-1":
            continue
        with pytest.raises(UsageError):
            get(bob, *([] if arguments["folder"] else [name]), **arguments)
    assert hub.requests == []


def test_hostile_paths_on_a_cache_go_nowhere(join, repo, tmp_path):
    name = entry(tmp_path / "root", seed=1)
    files = tree(tmp_path / "root")
    ends = ("model.neff", "model.done")
    folders = [f"{COMPILER}/MODULE_../..", f"{COMPILER}/MODULE_zz+12345678", f"{COMPILER}/../MODULE_ab+12345678"]
    folders += [f"{COMPILER}/MODULE_ab+12345678/sub", f"{COMPILER}/MODULE_ab\n+12345678", f"{COMPILER}//MODULE_ab"]
    evil = {f"{folder}/{end}": files[f"{name}/{end}"] for folder in folders for end in ends}
    evil |= {f"{name}/../../../{end}": b"x" for end in ends}
    as_the_peer(repo, {**evil, **files})
    bob = join("bob")
    get(bob, folder=COMPILER)
    assert held(bob) == files
    assert {path.name for path in tmp_path.iterdir()} <= {"server", "root", "bob", "cachekit-home"}


def test_each_module_comes_from_the_nearest_cache_that_has_it_finished(tmp_path, make, repo):
    far, both = entry(tmp_path / "far", seed=1), entry(tmp_path / "far", seed=2)
    entry(tmp_path / "near", "failed", seed=1)
    entry(tmp_path / "near", seed=2)
    as_the_peer(repo, tree(tmp_path / "far"))
    near = FolderStorage(tmp_path / "near")
    bob = Watched(tmp_path / "bob", shared=[(near, "r"), (make(), "r")])
    assert {(one.remote, one.modules) for one in get(bob, folder=COMPILER)} == {
        (near.name, (both,)),
        (f"hf://{repo.name}", (far,)),
    }
    away = Watched(tmp_path / "eve", shared=[(FolderStorage(tmp_path / "nowhere" / "at all"), "r"), (make(), "r")])
    assert [one.state for one in get(away, far, both)] == ["fetched"] * 2


def test_modules_of_two_compilers_become_two_records(join, repo, tmp_path):
    names = [entry(tmp_path / "root", seed=1), entry(tmp_path / "root", seed=1, compiler=OTHER)]
    as_the_peer(repo, tree(tmp_path / "root"))
    bob = join("bob")
    found = get(bob, *names)
    assert len({one.key for one in found}) == 2
    assert held(bob) == tree(tmp_path / "root")


def test_the_command(make, repo, tmp_path):
    good, bad = entry(tmp_path / "root", seed=1), entry(tmp_path / "root", "failed", seed=2)
    as_the_peer(repo, tree(tmp_path / "root"))
    bob = Member(tmp_path / "bob", make)
    pull = ["pull", "--cache", bob.cache]
    done = bob(*pull, "--all-of", COMPILER)
    assert f"{COMPILER}: 1 module, 4 files, " in done.stdout
    assert f"left {bad}: its compile failed" in done.stdout
    assert "fetching 3 files" in done.stderr
    assert "its compile failed" in bob(*pull, "--module", bad, code=3).stderr
    assert json.loads(bob(*pull, "--module", good, "--format", "json").stdout)["pulled"][0]["state"] == "present"
