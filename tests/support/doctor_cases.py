"""Helpers for tests of `cachekit doctor`; used by `pytest_plugins = ["tests.support.doctor_cases"]`.

PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from cachekit.config import load
from cachekit.verbs.doctor import checks, doctor


def findings(name: str, *, nobody=False, **flags) -> list[dict]:
    wanted = [check for check in checks() if check.name == name]
    assert wanted
    config = load(flags)
    with another_user() if nobody else nullcontext():
        document = doctor(config, wanted).as_dict()
    return [one for one in document["findings"] if one["check"] == name]


def the_problem(name: str, **flags) -> dict:
    """The one problem that a check found; there is always something to be done."""
    (found,) = (one for one in findings(name, **flags) if one["state"] == "problem")
    assert found["repair"] or found["run"]
    return found


def fine(name: str, **flags) -> bool:
    return {one["state"] for one in findings(name, **flags)} == {"ok"}


def shell(line: str, **environ: str) -> str:
    return subprocess.run(
        ["bash", "-c", line], env={**os.environ, **environ}, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def public():
    """A folder that any user reaches."""
    with tempfile.TemporaryDirectory(prefix="cachekit-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


LATE = ("encodings.utf_8_sig", "cachekit.store.pins", "cachekit.verbs.records", "cachekit.api.upkeep")


@contextmanager
def another_user():
    """Somebody who may not write what we made, as far as the system asks: root as nobody, in this thread.

    The C library's `seteuid` makes every thread somebody else, by a signal that also begins their blocked calls anew:
    a test Hub in this process could not write its log any more, and a request that an earlier test gave up woke up.
    """
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    for late in LATE:  # Python itself may lie where only root may look, and then nothing more can be imported
        importlib.import_module(late)
    _be(65534)
    try:
        yield
    finally:
        _be(0)


def _be(user):
    number = {"x86_64": 117, "aarch64": 147}.get(os.uname().machine)  # setresuid, of this thread only
    if sys.platform != "linux" or number is None:
        os.seteuid(user)
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, -1, user, -1):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
