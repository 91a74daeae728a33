"""Every test has a clean environment; the rows of the feature table that a run proves are written down."""

from __future__ import annotations

import atexit
import fcntl
import gc
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from cachekit.errors import CachekitError

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / ".features.json"
SERVERS = {"azure", "s3", "seaweedfs"}  # modules of tests/remotes/storage_makers
# What one process runs, one test after another; else a module. Importing torch and its libraries takes each process ten
# seconds, and there may be one Neuron host at a time: whose lock is stale is judged by all processes of a machine. What
# crashes is forked from one process.
TOGETHER = {
    "torch": (
        "training/", "data/test_hostile", "data/test_labels", "data/test_question", "data/test_saved",
        "compilers/neuron/test_backend", "compilers/neuron/test_native_runtime", "recipe/test_model_config",
        "recipe/test_zoo_models",
    ),
    "neuron": ("compilers/neuron/",),
    "crashes": ("store/test_crash", "store/test_gc_crash"),
}  # fmt: skip

# Tests make and remove many files, and stores wait for the disk with each record: folders are in memory where there is
# room for a run, unless somebody says where. Most are removed when their test has passed (pyproject.toml).
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None

# The Hub's client reads this when it is imported, which may be while the tests are collected.
os.environ["HF_HUB_OFFLINE"] = "1"
# Its Xet part keeps there what it sent to which address: a test Hub at an address of an earlier one would lack that.
OWN, NUMBERS = tempfile.mkdtemp(prefix="cachekit-tests-"), itertools.count()
os.environ["HF_HOME"] = str(Path(OWN, "hf"))
atexit.register(shutil.rmtree, OWN, ignore_errors=True)

# Nothing is asserted about time. The environments of old clients of the Hub have no hypothesis, and need none.
with suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile("untimed", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")

# A shell starts its background jobs deaf to Ctrl-C, and every process below inherits that: tests that press it would
# wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    """No setting of the person who runs the tests reaches them, and nothing of theirs is touched.

    Nor does the CI service that runs them: a record says which one made it. Most tests need no folder: each has names
    of its own here, and not a `tmp_path`, which costs more than such a test.
    """
    own = Path(OWN, str(next(NUMBERS)))
    for name in list(os.environ):
        ours = name.startswith(("CACHEKIT_", "HF_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "OMP_"))
        service = name.startswith(("CI_", "GITHUB_", "GITLAB_")) or name == "CI"
        if (ours and name not in {"CACHEKIT_REAL_DIR", "HF_HOME"}) or service:
            monkeypatch.delenv(name)
    monkeypatch.setenv("CACHEKIT_HOME", str(own / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own / "config"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(autouse=True)
def _one_thread(request):
    """Tests that use torch in this process take one thread: beside another process, two wait 20 ms for each other."""
    if _module(request.node).startswith(TOGETHER["torch"]):
        with suppress(ImportError):
            import torch

            torch.set_num_threads(1)


def _module(item):
    return item.path.relative_to(ROOT / "tests").as_posix()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Say which tests want a server from a package.

    Raises:
        UsageError: A test module imports torch by itself: each process would, whatever it runs. A test imports it.
    """
    if "torch" in sys.modules:
        raise pytest.UsageError("a test module imports torch when it is collected: import it in the tests")
    for item in items:
        given = getattr(item, "callspec", None)
        if given and SERVERS & {value for value in given.params.values() if isinstance(value, str)}:
            item.add_marker("servers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection():
    """Little of what is read and collected is garbage: looking for it is a tenth of each process's collection."""
    gc.disable()


def pytest_collection_finish():
    """What was collected stays to the end, and no garbage collection looks through ten thousand tests again."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_runtest_teardown(item, nextitem):
    """Nor does any look through what torch and Transformers are: each training collects twice."""
    if "torch" in sys.modules and (nextitem is None or nextitem.path != item.path):
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Where several processes share the work, one runs a whole module, or all modules of a group.

    pytest-xdist's own groups are told in the names of tests, which pytest 9.2 no longer lets it change: each test went
    to any process, in silence (pytest-xdist issue 1386), and each process imported torch and started each server.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module = nodeid.partition("::")[0].removeprefix("tests/")
            return next((name for name, places in TOGETHER.items() if module.startswith(places)), module)

    config.option.loadscopereorder = False  # else modules of few tests come last, however long these take
    return Groups(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    # With the report, the rows travel from the process that ran the test to the one that writes them down.
    rows = [row for marker in item.iter_markers("feature") for row in marker.args]
    if rows and (report.when == "call" or report.failed):
        report.user_properties.append(("rows", rows))
    # pytest prints an error's first line; why a test failed on another machine is in the others.
    if report.failed and call.excinfo.errisinstance(CachekitError):
        report.sections.append(("cause and hint", f"{call.excinfo.value.cause}\n{call.excinfo.value.hint}"))


class _Outcomes:
    """What the tests of feature rows came to; added to those of the other targets (`make test`, `make test-slow`)."""

    def __init__(self) -> None:
        self._outcomes = {}

    def pytest_runtest_logreport(self, report):
        for name, rows in report.user_properties:
            if name == "rows" and (report.when == "call" or report.failed):
                self._outcomes[report.nodeid] = {"rows": rows, "outcome": report.outcome}

    def pytest_sessionfinish(self):
        if self._outcomes:
            with FEATURES.open("a+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # `make --jobs` runs two targets at a time
                file.seek(0)
                known = {}
                with suppress(ValueError):  # it is new, or a target was killed
                    known = json.loads(file.read())
                file.truncate(0)
                file.write(json.dumps(known | self._outcomes, indent=1))


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # not in a process of pytest-xdist's
        config.pluginmanager.register(_Outcomes())
