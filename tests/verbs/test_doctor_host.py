"""`cachekit doctor` on a machine that somebody broke: each thing is found, with its repair."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import cachekit
from cachekit import disk
from cachekit.cli import main
from cachekit.compilers import select
from cachekit.compilers.neuron import installed
from cachekit.errors import CompilerUnavailableError
from cachekit.store.layout import Layout
from tests.compilers.neuron.neuron_trees import make
from tests.support.cli_session import process
from tests.support.cli_session import publish as publish_recipe
from tests.support.doctor_cases import findings, fine, shell, the_problem
from tests.support.users import ONE

pytest_plugins = ["tests.support.cli_session", "tests.support.doctor_cases"]
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")


def statvfs(monkeypatch, **changes):
    """What the system answers for a full disk, or one of another kind."""
    whole = {"f_flag": 0, "f_bavail": 1 << 30, "f_frsize": 4096, "f_files": 1 << 20, "f_favail": 1 << 20}
    monkeypatch.setattr(disk.os, "statvfs", lambda _: SimpleNamespace(**whole | changes))


# The environment


@pytest.mark.feature("U1")
def test_a_package_that_is_installed_twice(tmp_path, monkeypatch):
    assert fine("installed-once")
    for version in ("0.36.2", "2.4.0"):
        (tmp_path / f"huggingface_hub-{version}.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    found = the_problem("installed-once")
    assert f"huggingface-hub is installed twice in {tmp_path}: 0.36.2, 2.4.0" in found["said"]
    assert found["run"].endswith("-m pip install --force-reinstall huggingface-hub==2.4.0")


def test_another_project_of_the_same_import_name(tmp_path):
    """In a process of its own: what is installed is looked up once."""
    assert fine("import-name")
    (tmp_path / "cachekit-0.24.1.dist-info").mkdir()
    run = partial(process, "store", "ls", "--home", str(tmp_path / "home"))
    assert run().err == ""
    said = f"warning: {tmp_path} has cachekit 0.24.1, another project that is imported under the same name"
    assert run(PYTHONPATH=str(tmp_path)).err.startswith(said)
    assert run("-q", PYTHONPATH=str(tmp_path)).err == ""
    found = json.loads(process("doctor", "--format", "json", code=1, PYTHONPATH=str(tmp_path)).out)["findings"]
    (name,) = [one for one in found if one["check"] == "import-name"]
    assert (name["state"], name["run"].partition(" -m ")[2]) == ("problem", "pip uninstall cachekit cachekit-neuron")


def test_files_of_the_other_project_over_ours_are_told_whatever_is_asked(monkeypatch):
    """It is installed later: then `cachekit/__init__.py` is the other project's, and perhaps more."""
    monkeypatch.delattr(cachekit, "_NAMES")
    with pytest.raises(SystemExit, match=r"files of another project.*\n.*\n.* uninstall cachekit cachekit-neuron"):
        main()


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.feature("U1")
def test_another_cachekit_on_the_path(tmp_path, monkeypatch):
    other = program(tmp_path / "other", "cachekit")
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    found = the_problem("program")
    assert f"cachekit on PATH is {other}" in found["said"]
    fixed = shell(f"{found['run']}; echo $PATH")
    assert fixed.startswith(f"{Path(sys.executable).parent}:")


@pytest.mark.feature("U1")
def test_a_temporary_folder_that_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    found = the_problem("temporary-folder")
    subprocess.run(shlex.split(found["run"]), check=True)
    assert fine("temporary-folder")
    statvfs(monkeypatch, f_flag=os.ST_NOEXEC)
    assert "may be executed (noexec)" in the_problem("temporary-folder")["said"]
    assert "noexec" in the_problem("compiler-cache-dir")["said"]
    statvfs(monkeypatch, f_bavail=10)
    assert "kB are free for" in the_problem("temporary-folder")["said"]


@pytest.mark.feature("U1")
def test_few_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        found = the_problem("open-files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "a process may open only 300 files" in found["said"]
    assert int(shell(f"{found['run']}; ulimit -n")) >= 1024


@pytest.mark.feature("U1")
def test_proxies_that_lead_nowhere(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert fine("proxies")
    monkeypatch.setenv("HTTPS_PROXY", "ann:secret@proxy.corp:3128")
    found = the_problem("proxies")
    assert found["run"] == "export HTTPS_PROXY=http://USER:PASSWORD@proxy.corp:3128"
    assert "secret" not in json.dumps(found)
    monkeypatch.setenv("HTTPS_PROXY", "http://one:3128")
    assert fine("proxies")
    monkeypatch.setenv("https_proxy", "http://two:3128")
    assert the_problem("proxies")["run"] == "unset HTTPS_PROXY"


# Neuron


@pytest.fixture
def neuron(tmp_path, monkeypatch):
    """A Neuron toolchain as far as packages tell."""
    versions = {
        "neuronx-cc": "2.26.6360.0+6f180f47",
        "libneuronxla": "2.2.1",
        "torch-neuronx": "2.9.0",
        "torch-xla": "2.9.0",
    }
    monkeypatch.setattr(installed, "versions", lambda: versions)
    for name in ("neuronxcc", "libneuronxla", "torch_neuronx", "torch_xla"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return versions


@pytest.mark.feature("U1")
def test_a_compiler_that_is_not_that_of_this_environment(neuron, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "venv", "python")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    # With none anywhere, no PATH helps: the package is what must come again, and nothing compiles before.
    found = the_problem("neuron-packages", compiler="neuron")
    why = f"its program neuronx-cc is neither on PATH nor in {tmp_path}/venv"
    assert why in found["said"]
    assert "pip install " in found["run"]
    with pytest.raises(CompilerUnavailableError) as raised:
        select("neuron").fingerprint()
    assert (why in raised.value.cause, found["run"] in raised.value.hint) == (True, True)
    program(tmp_path / "venv", "neuronx-cc")
    found = the_problem("neuron-path")
    assert found["said"] == "neuronx-cc is not on PATH"
    assert shell(f"{found['run']}; echo $PATH") == f"{tmp_path}/venv:/usr/bin:/bin"
    other = program(tmp_path / "other", "neuronx-cc")
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin")
    assert f"neuronx-cc on PATH is {other}, of a different environment" in the_problem("neuron-path")["said"]
    monkeypatch.setenv("PATH", f"{tmp_path}/venv:{other.parent}")
    assert fine("neuron-path")


@pytest.mark.feature("U1")
@pytest.mark.parametrize("version, sdk", [("2.14.213.0+013d129b", "2.19.0"), ("2.15.128.0", "2.20.0")])
def test_a_release_whose_keys_are_wrong(neuron, version, sdk):
    assert fine("neuron-release")
    neuron["neuronx-cc"] = version
    found = the_problem("neuron-release")
    assert f"of SDK {sdk}: its keys depend on the environment's path" in found["said"]
    assert found["run"].endswith("--upgrade")


@pytest.mark.feature("U1")
def test_options_that_were_left_in_the_environment(monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--retry_failed_compilation --model-type 'a b'")
    found = the_problem("neuron-flags")
    assert shell(f'{found["run"]}; echo "$NEURON_CC_FLAGS"') == "--model-type 'a b'"


@pytest.mark.feature("U1")
def test_a_cache_address_that_is_no_local_folder(monkeypatch):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket/cache")
    assert "is a bucket and not a local folder" in the_problem("neuron-root")["said"]
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "/tmp/one")
    monkeypatch.setenv("NEURON_CC_FLAGS", "--cache_dir=/tmp/other")
    assert "let both name the same folder" in the_problem("neuron-root")["said"]


@pytest.mark.feature("U1")
def test_a_neuron_root_of_another_user(public, monkeypatch):
    make(public / "root", "success")
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(public / "root"))
    assert fine("neuron-root")
    found, other = the_problem("neuron-root", nobody=True), the_problem("neuron-owner", nobody=True)
    assert "cannot be written by this user" in found["said"]
    assert found["repair"] == "set NEURON_COMPILE_CACHE_URL to a folder that you may write to"
    assert not found["run"], "no folder is taken from whoever has it, with all that others put there"
    assert "belong to another user" in other["said"]


@ROOT_ONLY
@pytest.mark.feature("U1")
def test_places_of_code_that_another_user_can_change(public, monkeypatch):
    temporary, own = public / "tmp", public / "own"
    for folder, mode in ((temporary, 0o1777), (own, 0o777), (own / "below", 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert fine("temporary-folder")
    taken = temporary / f"cachekit-{os.geteuid()}"
    taken.mkdir()
    os.chown(taken, ONE, ONE)
    found = the_problem("temporary-folder")
    assert f"{taken} belongs to another user" in found["said"]
    assert found["run"] == 'export TMPDIR="$(mktemp -d)"'
    monkeypatch.setenv("TMPDIR", shell(f"{found['run']}; echo $TMPDIR"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert fine("temporary-folder")
    monkeypatch.setenv("CACHEKIT_COMPILER_CACHE_DIR", str(own / "below"))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(own / "below"))
    flags = {"home": own / "below"}
    checked = ("compiler-cache-dir", "neuron-root", "store")
    found = [the_problem(name, **flags) for name in checked]
    assert all(f"every user of this machine can write to {own} (mode 777)" in one["said"] for one in found)
    assert {one["run"] for one in found} == {f"chmod go-w {own}"}
    shell(found[0]["run"])
    assert all(fine(name, **flags) for name in checked)


@ROOT_ONLY
@pytest.mark.feature("U1")
def test_a_store_that_a_group_shares_is_no_problem(public, monkeypatch):
    (public / "v1" / "records").mkdir(parents=True)
    os.chown(public, 0, ONE)
    public.chmod(0o2775)
    assert "the group" in the_problem("store", home=public)["said"]
    monkeypatch.setattr(os, "getgroups", lambda: [ONE])
    (found,) = findings("store", home=public)
    assert (found["state"], "shared with a group" in found["said"]) == ("ok", True)


# The store


@pytest.mark.feature("U1")
def test_a_store_that_cannot_be_written(public, tmp_path):
    assert fine("store", home=public)
    (public / "v1").mkdir()
    for place in (public, public / "below"):
        found = the_problem("store", home=place, nobody=True)
        assert "cannot be written by this user" in found["said"]
        assert not found["run"], "nothing is taken from whoever has it"
    (tmp_path / "file").write_text("")
    found = the_problem("store", home=tmp_path / "file" / "below")
    assert "is not a folder" in found["said"]
    assert "CACHEKIT_HOME" in found["repair"]


@pytest.mark.feature("U1")
@pytest.mark.parametrize("kind, said", [("nfs4", "is on NFS"), ("vfat", "has no hard links or ignores case in names")])
def test_a_store_on_a_file_system_that_does_not_do(tmp_path, monkeypatch, kind, said):
    table = tmp_path / "mounts"
    table.write_text(f"/dev/x / ext4 rw 0 0\nx {tmp_path}/home {kind} rw 0 0\n")
    monkeypatch.setattr(disk, "MOUNTS", table)
    assert said in the_problem("store", home=tmp_path / "home")["said"]
    assert fine("store", home=tmp_path / "other")


@pytest.mark.feature("U1")
@pytest.mark.parametrize(
    "short, said, how",
    [({"f_bavail": 9}, "kB are free for", "df -h "), ({"f_favail": 7}, "has room for 7 more files", "df -i ")],
)
def test_a_full_disk(monkeypatch, tmp_path, short, said, how):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "none"))  # this machine may have one
    assert fine("disk")
    statvfs(monkeypatch, **short)
    found = the_problem("disk")
    assert said in found["said"]
    assert found["run"].startswith(how)
    assert "CACHEKIT_HOME" in found["repair"]


@pytest.mark.feature("U1")
def test_logs_that_grew(home):
    folder = home / "v1" / "logs"
    folder.mkdir(parents=True)
    (folder / "old.log").touch()
    os.truncate(folder / "old.log", 3 << 30)
    os.utime(folder / "old.log", (0, 0))
    Layout(home).journal.mkdir(parents=True)
    found = the_problem("logs")
    assert "take 3.2 GB; they are kept for 90 days" in found["said"]
    subprocess.run(shlex.split(found["run"]), check=True)
    assert fine("logs")


@pytest.mark.feature("U1")
def test_damage_that_was_set_aside(command, machine, home):
    record = publish_recipe(home)
    blob = next((home / "v1" / "blobs").glob(f"*/{record.files[0].sha256}"))
    blob.chmod(0o644)
    blob.write_bytes(b"damaged")
    command("plan", "tiny.yaml")
    found = the_problem("quarantine")
    assert "damaged files were set aside, the last one less than a minute ago" in found["said"]
    subprocess.run(shlex.split(found["run"]), check=True)
    assert fine("quarantine")


@pytest.mark.feature("U1")
def test_a_clock_that_was_set_back(home):
    (Layout(home).journal / "2026-11").mkdir(parents=True)
    assert fine("clock")
    later = time.time() + 7200
    os.utime(Layout(home).journal / "2026-11", (later, later))
    found = the_problem("clock")
    assert "2 hours in the future" in found["said"]
    assert found["run"] == "sudo chronyc makestep"
