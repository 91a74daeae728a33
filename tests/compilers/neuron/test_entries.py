"""The cache of torch-neuronx on disk: where it is, and what is in it."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.neuron.entries import STATES, classify, scan
from cachekit.compilers.neuron.root import resolve
from cachekit.disk import file_system
from tests.compilers.neuron.neuron_trees import COMPILER, FILES, OTHER, make, module_name
from tests.support.places import real_dir

pytest_plugins = ["tests.support.cli_session"]

MOUNTS = """\
/dev/nvme0n1p1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
fs-1.efs.us-east-1.amazonaws.com:/ /efs nfs4 rw 0 0
10.0.0.1@tcp:/abc /fsx lustre rw 0 0
systemd-1 /auto autofs rw 0 0
mountpoint-s3 /bucket fuse rw 0 0
/dev/sdb /with\\040blank xfs rw 0 0
server:/x /data nfs rw 0 0
/dev/sdc /data xfs rw 0 0
"""


def root_of(**environ):
    return resolve(environ, cwd=Path("/home/ann"), mounts=MOUNTS)


# The root


def test_the_root_is_found_in_the_order_of_aws():
    for environ, path, origin in [
        ({}, "/var/tmp/neuron-compile-cache", "default"),
        ({"NEURON_COMPILE_CACHE_URL": ""}, "/var/tmp/neuron-compile-cache", "default"),
        ({"NEURON_COMPILE_CACHE_URL": "/a/b"}, "/a/b", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_COMPILE_CACHE_URL": "file:///a/b%20c"}, "/a/b c", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_COMPILE_CACHE_URL": "/a/", "NEURON_CC_FLAGS": "-O1"}, "/a", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_CC_FLAGS": "--cache_dir=/x"}, "/x", "NEURON_CC_FLAGS --cache_dir"),
        ({"NEURON_CC_FLAGS": "-O1 --cache_dir /x --model-type=t"}, "/x", "NEURON_CC_FLAGS --cache_dir"),
        ({"NEURON_CC_FLAGS": "--cache_dir='/x y'"}, "/x y", "NEURON_CC_FLAGS --cache_dir"),
        ({"NEURON_CC_FLAGS": "--cache_dir=/x --cache_dir=/y"}, "/y", "NEURON_CC_FLAGS --cache_dir"),
        (
            {"NEURON_CC_FLAGS": "--cache_dir=/x", "NEURON_COMPILE_CACHE_URL": "/y"},
            "/x",
            "NEURON_CC_FLAGS --cache_dir",
        ),
        (
            {"NEURON_CC_FLAGS": "--cache_dir=./compiler_cache"},
            "/home/ann/compiler_cache",
            "NEURON_CC_FLAGS --cache_dir",
        ),
    ]:
        root = root_of(**environ)
        assert (str(root.path), root.origin) == (path, origin)


def test_a_plain_root_has_no_warnings():
    assert root_of(NEURON_COMPILE_CACHE_URL="/tmp/cache", NEURON_CC_FLAGS="--cache_dir=/tmp/cache -O1").warnings == ()
    assert root_of().warnings == ()


def test_what_is_wrong_with_a_root_is_said():
    for environ, words in [
        ({"NEURON_CC_FLAGS": "--cache_dir=/x", "NEURON_COMPILE_CACHE_URL": "/y"}, "the flag wins"),
        ({"NEURON_CC_FLAGS": "--cache_dir=/x", "NEURON_COMPILE_CACHE_URL": "s3://b/y"}, "the flag wins"),
        ({"NEURON_COMPILE_CACHE_URL": "/data/cache-v1.2/nc"}, "optimum-neuron cuts"),
        ({"NEURON_COMPILE_CACHE_URL": "/efs/cache"}, "NFS"),
        ({"NEURON_COMPILE_CACHE_URL": "/fsx/cache"}, "Lustre"),
        ({"NEURON_COMPILE_CACHE_URL": "/bucket/cache"}, "FUSE (mountpoint-s3)"),
        ({"NEURON_COMPILE_CACHE_URL": "s3://b/p"}, "bucket"),
        ({"NEURON_COMPILE_CACHE_URL": "gs://b/p"}, "not a place"),
        ({"NEURON_COMPILE_CACHE_URL": "file://var/cache"}, "three slashes"),
        ({"NEURON_COMPILE_CACHE_URL": "cache"}, "relative"),
        ({"NEURON_CC_FLAGS": "--cache_dir=~/cache"}, "~"),
        ({"NEURON_CC_FLAGS": "--no_cache"}, "nothing is looked up"),
        ({"NEURON_CC_FLAGS": "--no-cache"}, "--no_cache"),
        ({"NEURON_CC_FLAGS": "--cache-dir=/x"}, "--cache_dir"),
        ({"NEURON_CC_FLAGS": "--cache_dir"}, "names no folder"),
        ({"NEURON_CC_FLAGS": "--cache_dir=/x --cache_dir=/y"}, "2 times"),
        ({"NEURON_CC_FLAGS": "--cache_dir='/x"}, "No closing quotation"),
    ]:
        assert any(words in warning for warning in root_of(**environ).warnings)


def test_a_bucket_is_no_local_root():
    root = root_of(NEURON_COMPILE_CACHE_URL="s3://bucket/prefix")
    assert (root.path, root.url, root.caching) == (None, "s3://bucket/prefix", True)


def test_the_file_system_of_a_path():
    for path, kind, local in [
        ("/x", "ext4", True),
        ("/tmp/x", "tmpfs", True),
        ("/efs", "nfs4", False),
        ("/efsx", "ext4", True),
        ("/fsx/deep/er", "lustre", False),
        ("/auto/x", "ext4", True),
        ("/bucket/x", "fuse", False),
        ("/with blank/x", "xfs", True),
        ("/data/x", "xfs", True),
    ]:
        found = file_system(Path(path), MOUNTS)
        assert (found.kind, found.local) == (kind, local)
        assert not file_system(Path("/x"), "dev / newfs rw 0 0\n").local, (
            "what nobody knows may be another host's as well"
        )


# States


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_recognised(tmp_path, state):
    make(tmp_path, state)
    (entry,) = scan(tmp_path).entries
    assert entry.state == state
    assert (entry.compiler, entry.name) == (COMPILER, module_name(0))
    assert entry.module == f"{COMPILER}/{module_name(0)}"
    assert entry.finished == (state == "success")
    assert [*entry.files()] == sorted(FILES[state])
    assert sum(file.st_size for file in entry.files().values()) == sum(
        path.stat().st_size for path in entry.path.iterdir()
    )


NAMES = ("model.neff", "model.done", "model.log", "model.hlo_module.pb.lock", "model.hlo_module.pb")


@given(st.sets(st.sampled_from(NAMES)))
def test_states_are_those_of_the_peer(names):
    """optimum-neuron's order: neff and done, then a log without a NEFF, then a lock, else empty."""
    if {"model.neff", "model.done"} <= names:
        theirs = "success"
    elif "model.log" in names and "model.neff" not in names:
        theirs = "failed"
    else:
        theirs = "locked" if "model.hlo_module.pb.lock" in names else "empty"
    ours = classify(names)
    assert ("empty" if ours in {"done-without-neff", "neff-without-done"} else ours) == theirs


# Layouts


@pytest.mark.parametrize(
    "name",
    ["MODULE_10918481393192567537+f7f529f3", "MODULE_56f0d314fda2b6e1e336+617f6939", "MODULE_6151d82caf2d3b2f7a6f"],
)
def test_all_names_of_modules_are_known(tmp_path, name):
    make(tmp_path, name=name)
    assert [entry.name for entry in scan(tmp_path).entries] == [name]


def test_what_is_no_module_is_told_and_never_followed(tmp_path):
    root = tmp_path / "root"
    elsewhere = make(tmp_path / "elsewhere", seed=9)
    good = make(root)
    (root / COMPILER / "MODULE_77+f7f529f3").write_text("a file")
    (root / COMPILER / "MODULE_88+f7f529f3").symlink_to(elsewhere)
    (root / COMPILER / "MODULE_0_SyncTensorsGraph.1_2_host").mkdir()
    (root / COMPILER / "notes").mkdir()
    (root / COMPILER / "0_REGISTRY" / "0.4.5").mkdir(parents=True)
    (root / COMPILER / ".cachekit-0123").mkdir()
    (root / OTHER).symlink_to(elsewhere.parent)
    (root / "lock").touch()
    (root / "model.pt").touch()
    (root / "MODULE_5+f7f529f3").mkdir()
    (root / "USER_neuroncc-2.7.0.40+f7c6cf2a3" / "MODULE_1").mkdir(parents=True)
    found = scan(root)
    assert [entry.path for entry in found.entries] == [good]
    assert {str(one.path.relative_to(root)): one.reason for one in found.unknown} == {
        f"{COMPILER}/MODULE_77+f7f529f3": "a file where a module's folder is expected",
        f"{COMPILER}/MODULE_88+f7f529f3": "a link, not followed",
        f"{COMPILER}/MODULE_0_SyncTensorsGraph.1_2_host": "not a name that Neuron gives a module",
        f"{COMPILER}/notes": "not part of Neuron's cache",
        OTHER: "a link, not followed",
        "model.pt": "a file",
        "MODULE_5+f7f529f3": "a module outside of a compiler's folder",
        "USER_neuroncc-2.7.0.40+f7c6cf2a3": "not part of Neuron's cache",
    }


def test_links_to_files_count_and_dead_ones_do_not(tmp_path):
    """optimum-neuron links NEFFs from the Hub's cache."""
    linked, dead = make(tmp_path / "root", seed=1), make(tmp_path / "root", seed=2)
    shutil.move(linked / "model.neff", tmp_path / "blob")
    (linked / "model.neff").symlink_to(tmp_path / "blob")
    (dead / "model.neff").unlink()
    (dead / "model.neff").symlink_to(tmp_path / "nothing")
    one, two = scan(tmp_path / "root").entries
    assert one.state == "success"
    assert sum(file.st_size for file in one.files().values()) > (tmp_path / "blob").stat().st_size
    assert (two.state, two.odd) == ("done-without-neff", ("model.neff",))


def test_a_compilers_folder_can_be_looked_at_alone(tmp_path):
    make(tmp_path)
    make(tmp_path, compiler=OTHER)
    assert [entry.compiler for entry in scan(tmp_path / OTHER).entries] == [OTHER]
    assert scan(tmp_path).compilers == (OTHER, COMPILER)


def test_a_root_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        scan(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        scan(tmp_path / COMPILER)


def test_a_real_listing_is_understood(tmp_path):
    """`aws s3 ls --recursive` of a real NxDI cache."""
    (listing,) = real_dir("cache-layout").glob("s3-listing*.txt")
    for line in listing.read_text().splitlines():
        size, name = line.split()[2:4]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0" * int(size))
    found = scan(tmp_path / "cache")
    assert [entry.state for entry in found.entries] == ["success", "success"]
    assert {one.path.name for one in found.unknown} == {"model.pt", "neuron_config.json"}
