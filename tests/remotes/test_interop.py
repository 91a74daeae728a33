"""One repo for cachekit and for optimum-neuron: what either pushes the other finds, and neither spoils the other's.

Tests marked `xla` have the peer's own code, from PyPI, over the stand-in of AWS's closed packages (`make test-xla`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from cachekit.errors import IntegrityError
from cachekit.verbs.plan import plan
from tests.compilers.neuron.neuron_files import make_neff
from tests.compilers.neuron.neuron_trees import COMPILER, OTHER, tree
from tests.remotes.peer_repo import (  # noqa: F401 - some are fixtures
    BAD,
    Member,
    as_the_peer,
    crowd,
    entry,
    get,
    held,
    hub,
    join,
    lying,
    make,
    put,
    repo,
)
from tests.support.neuron_sdk import SCRIPTS, neuron_host


@pytest.mark.campaign
@pytest.mark.feature("R2")
def test_a_large_repo_of_the_peers_is_never_listed_nor_touched(join, repo, hub, tmp_path):
    crowded = crowd(repo)
    assert len(crowded) > 20_000
    before = dict(repo.tree(repo.head))
    own = entry(tmp_path / "root", seed=1)
    ann = join("ann")
    hub.log.clear()
    assert put(ann, tmp_path / "root").records
    assert all("/cachekit/v1/records" in unquote(request.path) for request in hub.requests if "/tree/" in request.path)
    assert sum(request.kind != "xet" for request in hub.requests) <= 12  # 0.36 asks more often
    assert sum(request.sent + request.received for request in hub.requests) < 100_000
    after = repo.tree(repo.head)
    assert {path: after.get(path) for path in before} == before
    hub.log.clear()
    bob = join("bob")
    assert plan(bob.prepare(), bob.store, bob.session.remotes).record is None
    assert get(bob, own)[0].state == "fetched"
    assert all("/records/" in unquote(request.path) for request in hub.requests if "/tree/" in request.path)
    assert sum(request.sent for request in hub.requests) < 100_000
    hub.log.clear()
    (all_of,) = get(bob, folder=COMPILER, dry_run=True)
    assert len(all_of.modules) == 2100
    assert hub.count("GET */tree/*") <= 16  # of that folder's 12,600 files and folders, a thousand each
    assert all(f"/{COMPILER}" in unquote(request.path) for request in hub.requests if "/tree/" in request.path)


def test_only_finished_modules_are_pushed(join, repo, hub, tmp_path):
    root = tmp_path / "root"
    wanted = {entry(root, seed=number) for number in range(3)}
    for number, state in enumerate(BAD):
        entry(root, state, 10 + number)
    (root / entry(root, seed=20) / "model.hlo_module.pb.lock").touch()
    ann = join("ann")
    assert len(put(ann, root).records) == 1
    assert lying(hub, repo) == {path: data for path, data in tree(root).items() if path.rpartition("/")[0] in wanted}
    assert put(ann, root).unchanged == 1


def test_what_the_peer_overwrote_is_repaired_by_the_next_push(join, repo, hub, tmp_path):
    """Its push puts its own build in the place of ours, which the record still names."""
    for build, root in enumerate(("first", "theirs", "second")):
        name = entry(tmp_path / root, seed=1, build=build)
    ann, bob, eve = join("ann"), join("bob"), join("eve")
    put(ann, tmp_path / "first")
    as_the_peer(repo, tree(tmp_path / "theirs"))
    place = next(record.place for record in ann.store.records())
    (remote,) = eve.session.remotes.readable
    with pytest.raises(IntegrityError):
        eve.pull(remote.find(place))
    assert put(bob, tmp_path / "second").records
    remote.refresh()
    eve.pull(remote.find(place))
    assert held(eve) == tree(tmp_path / "second")
    assert lying(hub, repo) == tree(tmp_path / "theirs")
    assert f"{name}/model.neff" in held(eve)


# With the peer itself


PEER = """
import sys
sys.path.insert(0, {scripts!r})
from optimum.neuron.cache import hub_cache
"""
LOOK_UP = """
import graphs, logging
from libneuronxla import neuron_cc_wrapper
with hub_cache.hub_neuronx_cache(cache_repo_id=sys.argv[1]):
    for graph in sys.argv[2:]:
        print("neff", neuron_cc_wrapper.neuron_xla_compile(graphs.content(graph), graph).resolve())
"""
SYNCHRONISE = "hub_cache.synchronize_hub_cache(cache_path=sys.argv[2], cache_repo_id=sys.argv[1])"
LISTED = """
from optimum.neuron.utils import version_utils
hub_cache.get_pinned_version = lambda _: sys.argv[2]
print(sorted(hub_cache.get_hub_cached_models(sys.argv[1])))
"""


@pytest.fixture
def peer(make, tmp_path):
    """Runs optimum-neuron on a host of its own."""
    pytest.importorskip("optimum.neuron", reason="optimum-neuron is not installed: make test-xla")

    def run(name: str, source: str, *arguments: object):
        host = neuron_host(tmp_path / name)
        member = Member(tmp_path / f"{name}-hub", make).variables if source else {}
        program = (
            ["-c", PEER.format(scripts=str(SCRIPTS)) + source, make.repo.name]
            if source
            else [str(SCRIPTS / "graphs.py")]
        )
        done = subprocess.run(
            [sys.executable, *program, *map(str, arguments)], cwd=host.folder, env={**host.environment, **member},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return host, done.stdout + done.stderr

    return run


@pytest.mark.xla
@pytest.mark.feature("R3")
def test_the_peer_finds_what_we_pushed(make, peer, hub, tmp_path):
    host, _ = peer("first", "", 61, 62)
    entries = {one.name: one for one in host.entries()}
    (entries["MODULE_62+e30acd3a"].path / "model.done").unlink()
    Member(tmp_path / "ann", make).push(host.root)
    hub.log.clear()
    other, said = peer("second", LOOK_UP, 61, 62)
    assert "MODULE_61+e30acd3a/model.done not found" not in said
    assert "MODULE_62+e30acd3a/model.done not found" in said  # it was not finished, and not pushed
    assert other.compiles == 1
    found = Path(next(line for line in said.splitlines() if line.startswith("neff "))[5:])
    assert found.read_bytes() == (entries["MODULE_61+e30acd3a"].path / "model.neff").read_bytes()
    assert hub.count("GET /cdn/*/model.neff") == 1


@pytest.mark.xla
@pytest.mark.feature("R3")
def test_what_the_peer_pushed_we_pull(make, peer, repo, tmp_path):
    host, _ = peer("first", "", 61, 62)
    for number, state in enumerate(BAD):
        entry(host.root, state, 10 + number)
    peer("pusher", SYNCHRONISE, host.root)
    assert any(path.endswith("model.log") for path in repo.files())  # 0.4.5 pushes what failed as well
    bob = Member(tmp_path / "bob", make)
    (done,) = json.loads(bob("pull", "--cache", bob.cache, "--all-of", COMPILER, "--format", "json").stdout)["pulled"]
    names = ["MODULE_61+e30acd3a", "MODULE_62+e30acd3a"]
    assert done["modules"] == [f"{COMPILER}/{name}" for name in names]
    assert len(done["left"]) == len(BAD)
    bob("store", "export", tmp_path / "out", "--all")
    assert tree(tmp_path / "out") == {
        path: data for path, data in tree(host.root).items() if path.split("/")[1] in names
    }


@pytest.mark.xla
def test_the_peer_still_sees_the_first_of_two_builds(make, peer, repo, tmp_path):
    first, _ = peer("first", "", 61)
    peer("pusher", SYNCHRONISE, first.root)
    (one,) = first.entries()
    neff = (one.path / "model.neff").read_bytes()
    make_neff(one.path / "model.neff", version=COMPILER.removeprefix("neuronxcc-"), target="sunda", seed=7)
    Member(tmp_path / "ann", make).push(first.root)
    assert [path for path in repo.files() if path.startswith("cachekit/v1/blobs/")]
    other, said = peer("second", LOOK_UP, 61)
    assert other.compiles == 0
    assert Path(next(line for line in said.splitlines() if line.startswith("neff "))[5:]).read_bytes() == neff


@pytest.mark.xla
def test_the_peers_registry_reads_as_before(make, peer, repo, tmp_path):
    files = crowd(repo)
    folder = f"{OTHER}/0_REGISTRY/0.4.5/bert/google/bert-tiny"
    repo.plant({f"{folder}/0123456789abcdef0123.json": b"{}"})
    entry(tmp_path / "root", seed=1)
    Member(tmp_path / "ann", make).push(tmp_path / "root")
    assert len(files) > 20_000
    _, said = peer("reader", LISTED, "2.21.33363.0")
    assert "[('bert', 'google', 'bert-tiny')]" in said
