"""Locks without owner, and remembered failures: what is certain is cleared, everything else is explained."""

import os
import subprocess
import sys
import time

import pytest

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.locks import clear, examine, find, judge
from cachekit.compilers.neuron.processes import CONTAINER_MARKS, Process, Snapshot, look
from cachekit.disk import FileSystem
from tests.compilers.neuron.neuron_trees import COMPILER, entry_of, make, module_name

LOCAL, NFS = FileSystem("ext4", "/", "/dev/sda"), FileSystem("nfs4", "/", "efs:/")
ON_DISK, ON_NFS = "/dev/sda / ext4 rw 0 0\n", "efs:/ / nfs4 rw 0 0\n"
LOCK = "model.hlo_module.pb.lock"
INIT = Process(1, "systemd", 0, ("/sbin/init",), (), uses_cache=False)


def host(*processes, **changes):
    """A host that hides nothing, up for a year."""
    known = {"whole": True, "boot": time.time() - 3e7, "container": False}
    return Snapshot((INIT, *processes), **{**known, **changes})


def process(name="python3", *arguments, files=(), uses_cache=False, uid=None):
    return Process(4242, name, os.getuid() if uid is None else uid, (name, *arguments), files, uses_cache)


@pytest.fixture
def locked(tmp_path):
    """A module that is locked, and has been for an hour."""
    folder = make(tmp_path, "locked")
    hours_ago(folder, 1)
    return folder


def hours_ago(folder, hours):
    then = time.time() - hours * 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def verdict(folder, seen, system=LOCAL):
    (lock,) = find([entry_of(folder)])
    return judge(lock, seen, system)


def test_a_lock_that_nobody_can_hold_is_stale(locked):
    found = verdict(locked, host(process("bash")))
    assert (found.verdict, found.advice) == ("stale", "clear it")


@pytest.mark.parametrize(
    "holder",
    [
        process("neuronx-cc", "compile", f"/tmp/ann/neuroncc_compile_workdir/1/model.{module_name(0)}.hlo_module.pb"),
        process("walrus_driver", files=(f"/tmp/w/model.{module_name(0)}.neff",)),
        process("neuronx-cc", "compile", f"/cache/{COMPILER}/{module_name(0)}/model.hlo_module.pb"),
    ],
)
def test_a_lock_with_a_compiler_at_work_is_live(locked, holder):
    for system in (LOCAL, NFS):
        found = verdict(locked, host(holder), system)
        assert (found.verdict, found.holders) == ("live", (holder,))
        assert "4242" in found.reason


def test_the_same_module_may_be_compiled_into_another_root(locked, tmp_path):
    word = f"--output=/tmp/u/{locked.name}/model.neff"
    roots = {tmp_path / "another": "stale", locked.parents[1]: "live"}
    for root, expected in roots.items():
        compiler = Process(4242, facts.COMPILER, os.getuid(), ("neuronx-cc", word), (), uses_cache=False, root=root)
        assert verdict(locked, host(compiler)).verdict == expected


def test_whoever_has_a_file_of_the_module_open_holds_it(locked):
    holder = process(files=(str(locked / "model.hlo_module.pb"),))
    assert verdict(locked, host(holder)).verdict == "live"


def test_a_name_that_only_begins_alike_is_another_module(tmp_path):
    folder = make(tmp_path, "locked", name="MODULE_123")
    hours_ago(folder, 1)
    other = process("neuronx-cc", "compile", "/tmp/model.MODULE_1234+f7f529f3.hlo_module.pb")
    assert verdict(folder, host(other)).verdict == "maybe"  # something compiles, but not this
    same = process("neuronx-cc", "compile", "/tmp/model.MODULE_123.hlo_module.pb")
    assert verdict(folder, host(same)).verdict == "live"


@pytest.mark.parametrize(
    ("seen", "system", "words"),
    [
        (host(), NFS, "another host may hold it"),
        (host(), FileSystem("fuse.sshfs"), "another host may hold it"),
        (host(), FileSystem(""), "unknown kind"),
        (host(boot=time.time() + 9e9), NFS, "another host may hold it"),
        (host(container=True), LOCAL, "container"),
        (host(whole=False), LOCAL, "not all processes"),
        (host(process("neuronx-cc", "compile", "other")), LOCAL, "compiles something"),
        (host(process("neuron_parallel_compile")), LOCAL, "compiles something"),
        (host(process(uses_cache=True)), LOCAL, "may hold it"),
        (host(process(uses_cache=None)), LOCAL, "may hold it"),
    ],
)
def test_what_is_not_certain_is_a_maybe_with_advice(locked, seen, system, words):
    found = verdict(locked, seen, system)
    assert found.verdict == "maybe"
    assert words in found.reason
    assert str(locked / LOCK) in found.advice
    assert clear(found, host=host(), mounts=ON_DISK)
    assert (locked / LOCK).exists()


def test_processes_of_others_that_cannot_be_seen_into_do_not_matter(locked):
    """The lock's owner made it: another user's process did not."""
    other = process(uses_cache=None, uid=os.getuid() + 1)
    assert verdict(locked, host(other)).verdict == "stale"


@pytest.mark.parametrize("file", [LOCK, "model.neff"], ids=["begins", "ends"])
def test_a_lock_in_a_folder_just_written_may_be_of_a_compile_that(locked, file):
    (locked / file).touch()
    found = verdict(locked, host())
    assert (found.verdict, "ago" in found.reason) == ("maybe", True)


def test_a_lock_from_before_the_host_started_is_stale_whatever_runs(locked):
    found = verdict(locked, host(process("neuronx-cc", "other"), boot=time.time() - 60, container=True))
    assert found.verdict == "stale"
    assert verdict(locked, host(process("neuronx-cc", "other"), boot=None)).verdict == "maybe"


def test_a_containers_own_folder_is_its_own(locked):
    assert verdict(locked, host(container=True), FileSystem("overlay")).verdict == "stale"


def test_a_lock_that_holds_something_is_not_neurons(locked):
    (locked / LOCK).write_text("pid 1")
    hours_ago(locked, 1)
    assert verdict(locked, host()).verdict == "maybe"


# Clearing


def test_a_stale_lock_is_cleared(locked):
    (found,) = examine([entry_of(locked)], host=host(), mounts=ON_DISK)
    assert clear(found, host=host(), mounts=ON_DISK) == ""
    assert not (locked / LOCK).exists()
    assert entry_of(locked).state == "empty"
    # Twice is no error: it is gone.
    assert clear(found, host=host(), mounts=ON_DISK) == ""


def test_what_changed_since_the_verdict_counts(locked):
    (found,) = examine([entry_of(locked)], host=host(), mounts=ON_DISK)
    assert "compiles" in clear(found, host=host(process("neuronx-cc", "other")), mounts=ON_DISK)
    assert "another host" in clear(found, host=host(), mounts=ON_NFS)
    assert (locked / LOCK).exists()


@pytest.mark.parametrize("how", ["touched", "replaced"])
def test_a_new_lock_is_not_taken_for_the_old_one(locked, how):
    (found,) = examine([entry_of(locked)], host=host(), mounts=ON_DISK)
    if how == "replaced":
        (locked / "new").touch()
        (locked / "new").replace(locked / LOCK)
    hours_ago(locked, 0.8)
    assert "not the lock that was judged" in clear(found, host=host(), mounts=ON_DISK)
    assert (locked / LOCK).exists()


# The host


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def fake_proc(folder, pid, name, *arguments, links=(), maps=""):
    place = folder / str(pid)
    (place / "fd").mkdir(parents=True)
    (place / "comm").write_text(name[:15] + "\n")
    (place / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in arguments))
    (place / "maps").write_text(maps)
    for number, target in enumerate(links):
        (place / "fd" / str(number)).symlink_to(target)


def test_the_processes_of_a_host_are_read(tmp_path):
    fake_proc(tmp_path, 1, "systemd", "/sbin/init")
    fake_proc(tmp_path, 7, "python3.12", "/opt/v/bin/python3.12", "/opt/v/bin/neuronx-cc", "compile", "x.pb")
    fake_proc(tmp_path, 8, "neuron_parallel_compile")
    fake_proc(tmp_path, 9, "python3", "python3", "t.py", links=("/a/b",), maps="7f /v/libneuronxla/libneuronpjrt.so\n")
    (tmp_path / "10").mkdir()  # has ended
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1700000000\n")
    seen = look(tmp_path, container=False)
    assert (seen.whole, seen.boot, seen.container) == (True, 1.7e9, False)
    found = {item.pid: item for item in seen.processes}
    assert [found[pid].name for pid in (1, 7, 8, 9)] == [
        "systemd",
        "neuronx-cc",
        "neuron_parallel_compile",
        "python3",
    ]
    assert [item.pid for item in seen.processes if item.compiles] == [7, 8]
    assert [item.pid for item in seen.processes if item.uses_cache] == [9]
    assert found[9].files == ("/a/b",)
    assert found[7].arguments[-1] == "x.pb"


def test_hidden_processes_are_noticed(tmp_path):
    fake_proc(tmp_path, 9, "python3", "python3")
    assert look(tmp_path, container=False).whole is False
    assert look(tmp_path / "none").whole is False


def test_a_namespace_of_processes_is_taken_for_a_container(tmp_path):
    """Its processes are not all that this host has, although none of its own is hidden."""
    fake_proc(tmp_path, 1, "sh", "sh")
    fake_proc(tmp_path, 2, "python3", "python3")
    assert look(tmp_path).container is True
    (tmp_path / "2" / "comm").write_text("kthreadd\n")
    (tmp_path / "2" / "cmdline").write_bytes(b"")
    assert look(tmp_path).container is any(mark.exists() for mark in CONTAINER_MARKS)


def test_this_host_is_read(tmp_path):
    """A real process, with a real file open and a compiler's name in its arguments."""
    folder = make(tmp_path, "locked")
    code = f"import sys; held = open({str(folder / LOCK)!r}); print('ready', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "ready\n"
        seen = look()
        (found,) = examine([entry_of(folder)], host=seen, mounts=ON_DISK)
        holder.communicate()
    assert found.verdict == "live"
    assert [item.pid for item in found.holders] == [holder.pid]
    assert seen.boot < time.time()
