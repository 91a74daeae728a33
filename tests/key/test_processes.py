"""The key is the same in any process: hash seed, locale, user, working directory, checkout and reading order."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cachekit.key.canonical import key_of
from tests.support import forked

PLAN = ("-m", "cachekit", "plan", "--format", "json")
ROOT = Path(__file__).resolve().parents[2]
LOCALES = ["C", "POSIX", "C.UTF-8", "en_US.UTF-8", "de_DE.ISO-8859-1", "tr_TR.UTF-8", "ja_JP.EUC-JP", "no_such", ""]
ZONES = ["UTC", "Asia/Kathmandu", "America/St_Johns", "XXX-25", ""]

# Makes the key and nothing else, from folders that list their files in any order.
DRIVER = """
import locale, os, random, sys
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
order = random.Random()

class Shuffled:
    def __init__(self, inner):
        self.inner, self.entries = inner, list(inner)
        order.shuffle(self.entries)
    def __iter__(self):
        return iter(self.entries)
    def __enter__(self):
        return self
    def __exit__(self, *about):
        self.inner.close()
    def close(self):
        self.inner.close()

class Shuffling:
    # No function: pathlib keeps these in a class, where a function would become a method.
    def __init__(self, inner, wrap):
        self.inner, self.wrap = inner, wrap
    def __call__(self, path="."):
        return self.wrap(self.inner(path))

os.scandir = Shuffling(os.scandir, Shuffled)
os.listdir = Shuffling(os.listdir, lambda names: order.sample(names, len(names)))

from cachekit import recipe
from cachekit.recipe import zoo
from cachekit.compilers.prepare import prepare
from cachekit.compilers.inductor.compiler import Inductor
print(prepare(recipe.load(zoo.recipe_path(sys.argv[1])), Inductor()).key)
"""


def surroundings(folder, number, *, checkout=ROOT):
    """A user, a working directory and an environment that no other process has."""
    chance = random.Random(number)
    home = folder / f"home {number} é"
    cwd = folder / f"cwd-{number}" / ("a" * chance.randint(1, 9))
    for made in (home, cwd):
        made.mkdir(parents=True, exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(checkout),
        "PYTHONHASHSEED": str(chance.randrange(2**32)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": chance.choice(LOCALES),
        "LANG": chance.choice(LOCALES),
        "TZ": chance.choice(ZONES),
        "HOME": str(home),
        "USER": f"user{number}",
        "LOGNAME": f"user{number}",
        "HOSTNAME": f"host{number}",
        "TMPDIR": str(cwd),
        "CACHEKIT_HOME": str(home / "store"),
        "HF_HOME": str(home / "hf"),
        "TORCHINDUCTOR_CACHE_DIR": str(cwd / "inductor"),
        "COLUMNS": str(chance.randint(20, 300)),
    }
    if chance.random() < 0.5:
        environ["PYTHONUTF8"] = chance.choice("01")
    return {"env": environ, "cwd": cwd}


def run(arguments, where):
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, encoding="utf-8", check=False, **where
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def plan(recipe, where):
    return json.loads(run([*PLAN, recipe], where))


def plan_in_a_fork(where, *arguments):
    """The plan of the demo recipe, where a new interpreter is not what the test is about."""
    done = forked.run_python(*PLAN, "demo", *arguments, folder=where["cwd"], environment=where["env"])
    return json.loads(done.stdout)


def two_at_a_time(call, numbers):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, numbers))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The plan of the demo recipe from one process, to compare with."""
    return plan("demo", surroundings(tmp_path_factory.mktemp("expected"), 0))


@pytest.mark.feature("K4", "K3")
def test_a_key_is_the_same_in_every_process(tmp_path, expected):
    """Through the command line; the same in a thousand processes is marked slow."""
    path = str(ROOT / "recipes" / "demo.yaml")
    plans = two_at_a_time(lambda number: plan(path, surroundings(tmp_path, number)), range(1, 5))
    assert {document["key"] for document in plans} == {expected["key"]}
    assert all(document["ingredients"]["hard"] == expected["ingredients"]["hard"] for document in plans)


@pytest.mark.feature("K4")
def test_a_key_does_not_depend_on_reading_order(tmp_path, expected):
    keys = two_at_a_time(lambda number: run(["-c", DRIVER, "demo"], surroundings(tmp_path, number)).strip(), range(2))
    assert set(keys) == {expected["key"]}


@pytest.mark.slow
@pytest.mark.feature("K4", "K3")
def test_a_key_is_the_same_in_a_thousand_processes(tmp_path):
    def key(number):
        where = surroundings(tmp_path, number)
        made = run(["-c", DRIVER, "demo"], where).strip()
        shutil.rmtree(where["env"]["HOME"])
        shutil.rmtree(where["cwd"])
        return made

    keys = two_at_a_time(key, range(1000))
    assert len(keys) == 1000
    assert len(set(keys)) == 1
    assert len(keys[0]) == 64


@pytest.mark.feature("K3")
def test_a_key_does_not_depend_on_the_checkout(tmp_path, expected):
    copy = tmp_path / "somewhere else"
    for name in ("cachekit", "recipes", "registry"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    where = surroundings(tmp_path, 1, checkout=copy)
    assert plan("demo", where)["key"] == expected["key"]
    # It was the copy that made the key.
    path = copy / "recipes" / "demo.yaml"
    text, found = re.subn(r"max_seq_length: \d+", "max_seq_length: 77", path.read_text(encoding="utf-8"))
    assert found == 1
    path.write_text(text, encoding="utf-8")
    changed = plan("demo", where)
    assert changed["key"] != expected["key"]
    assert changed["ingredients"]["hard"]["training.max_seq_length"] == 77


@pytest.mark.feature("K3")
def test_a_key_does_not_depend_on_where_the_model_was_found(tmp_path, expected):
    """From the registry, and from a folder of the user's, wherever the package lies."""
    where = surroundings(tmp_path, 1)
    found = plan_in_a_fork(where, "--set", "model.package=null")
    assert found["architecture_from"] == "registry"
    assert found["key"] == expected["key"]


@pytest.mark.feature("K5")
def test_a_plan_prints_every_ingredient_and_rehashing_them_gives_the_key(expected):
    assert key_of(json.loads(json.dumps(expected["ingredients"]["hard"]))) == expected["key"]


@pytest.fixture
def bump(tmp_path):
    """Install another version of a package, as far as a fingerprint can tell: a folder of metadata."""

    def install(name, version):
        site = tmp_path / f"{name}-{version}"
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        where = surroundings(tmp_path, 1)
        where["env"]["PYTHONPATH"] = os.pathsep.join([str(site), str(ROOT)])
        return where

    return install


@pytest.mark.feature("K4")
def test_remains_of_another_version_do_not_make_the_key_a_matter_of_luck(bump):
    """A folder that holds the metadata of two versions lists them in any order."""
    where = bump("torch", "99.9.9")
    site = Path(where["env"]["PYTHONPATH"].split(os.pathsep)[0])
    shutil.copytree(site / "torch-99.9.9.dist-info", site / "torch-98.0.dist-info")
    keys = two_at_a_time(lambda _: run(["-c", DRIVER, "demo"], where).strip(), range(4))
    assert len(set(keys)) == 1


@pytest.mark.feature("K1")
@pytest.mark.parametrize("package, version", [("torch", "99.9.9+cpu"), ("transformers", "99.9.9")])
def test_another_version_of_the_compiler_is_another_key(bump, expected, package, version):
    bumped = plan_in_a_fork(bump(package, version))
    assert bumped["ingredients"]["hard"][f"toolchain.{package}"] == version
    assert version != expected["ingredients"]["hard"][f"toolchain.{package}"]
    assert bumped["key"] != expected["key"]


@pytest.mark.feature("K1")
def test_the_same_version_of_the_compiler_is_the_same_key(bump, expected):
    now = expected["ingredients"]["hard"]["toolchain.torch"]
    assert plan_in_a_fork(bump("torch", now))["key"] == expected["key"]
    assert plan_in_a_fork(bump("numpy", "99.9.9"))["key"] == expected["key"], "soft: recorded beside the key"
