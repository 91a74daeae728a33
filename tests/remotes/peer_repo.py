"""A repo as optimum-neuron leaves it, and those who use it: fixtures, for modules to import, and helpers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cachekit.verbs.imports import import_cache
from cachekit.verbs.pull_modules import pull_modules
from cachekit.verbs.push import chosen, push_records
from tests.compilers.neuron.neuron_files import make_neff
from tests.compilers.neuron.neuron_trees import COMPILER, OTHER
from tests.compilers.neuron.neuron_trees import make as make_entry
from tests.remotes.storage_makers import hub as hub_maker
from tests.support.processes import run_cachekit
from tests.support.standins import Watched

ROOT = Path(__file__).parents[2]
STATES = ["success", "failed", "locked", "empty", "done-without-neff", "neff-without-done"]
BAD = [state for state in STATES if state != "success"]


@pytest.fixture
def make(tmp_path):
    with hub_maker.serve(tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def hub(make):
    return make.hub


@pytest.fixture
def repo(make):
    return make.repo


@pytest.fixture
def join(tmp_path, make):
    return lambda name, may="rw": Watched(tmp_path / name, shared=[(make(), may)])


def entry(root: Path, state: str = "success", seed: int = 0, compiler: str = COMPILER, *, build: int = 0) -> str:
    """A module in some state, its NEFF as the compiler makes them; another build has other bytes. Its name."""
    folder = make_entry(root, state, seed, compiler)
    if (folder / "model.neff").exists():
        version = compiler.removeprefix("neuronxcc-")
        make_neff(folder / "model.neff", version=version, target="sunda", seed=seed + 1000 * build)
    return f"{compiler}/{folder.name}"


def as_the_peer(repo, files: dict[str, bytes]) -> None:
    """What `upload_folder` of these files would leave: the Hub takes graphs and large binaries as LFS."""
    large = {path: data for path, data in files.items() if path.endswith((".pb", ".neff"))}
    repo.plant({path: data for path, data in files.items() if path not in large})
    repo.plant(large, lfs=True)


def get(member, *names, folder="", dry_run=False):
    return pull_modules(member.session, names, folder, dry_run=dry_run)


def held(member) -> dict[str, bytes]:
    """Files of modules in a store, by their paths on a remote."""
    found = {}
    for record in member.store.records():
        assert member.store.lookup(record.place)
        for module in record.modules:
            for file in module.files:
                found[f"{module.name}/{file.path}"] = member.store.layout.blob(file.sha256).read_bytes()
    return found


def put(member, root: Path):
    """Import a cache and push it, as the commands do."""
    import_cache(member.store, root)
    (done,) = push_records(
        member.session, chosen(member.session, (), pending=False), public=False, replaces=False, dry_run=False
    )
    assert done.error is None
    return done


def crowd(repo) -> dict[str, bytes]:
    """What the peer has collected in some years: 20,000 files and more."""
    files = {}
    for compiler in (COMPILER, OTHER):
        for number in range(2100):
            folder = f"{compiler}/MODULE_{number:020}+e30acd3a"
            for file in ("model.hlo_module.pb", "compile_flags.json", "model.done", "model.neff"):
                files[f"{folder}/{file}"] = f"{file}".encode()
            files[f"{compiler}/0_REGISTRY/0.4.5/{number:064x}/{number:020x}.json"] = b"{}"
    repo.plant(files)
    return files


def lying(hub, repo) -> dict[str, bytes]:
    """The modules' files in a repo, by path; what came by Xet as well."""
    files = repo.tree(repo.head)
    return {
        path: hub.plain_file(file["sha256"]).read_bytes()
        for path, file in files.items()
        if path.startswith("neuronxcc-")
    }


class Member:
    """Commands with a home of their own."""

    def __init__(self, folder: Path, make) -> None:
        self.folder = folder
        folder.mkdir()
        self.cache = f"local:rw,hf://{make.repo.name}:rw"
        hub = {"HF_ENDPOINT": make.hub.endpoint, "HF_TOKEN": make.hub.token, "HF_HUB_OFFLINE": "0"}
        self.variables = {**hub, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(folder / "hf")}

    def __call__(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            **self.variables,
            "CACHEKIT_HOME": str(self.folder / "home"),
            "PYTHONPATH": str(ROOT),
        }
        return run_cachekit(*arguments, folder=self.folder, environment=variables, code=code)

    def push(self, root: Path):
        self("store", "import", root)
        self("push", "--cache", self.cache)
