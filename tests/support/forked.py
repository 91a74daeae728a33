"""`python` as a fork of one that has loaded cachekit already: a command takes a fifth of a second of CPU less.

multiprocessing's fork server is the process that is forked. A fork has the environment, folder, streams and session of
its own that `processes.run_python` gives; what a new interpreter does at its start is all that it lacks. Tests of just
that, of signals, and of what is not imported start a real one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import multiprocessing
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType

from tests.support.places import ROOT
from tests.support.processes import LONGEST

ROOMS = ("cli", "api", "verbs", "compilers", "executors")
HEAVY = (".runtime", ".inductor.compare")  # how modules end that may import torch: only workers import them
IN_SERVER = "CACHEKIT_TESTS_FORK_SERVER"
_SERVER = multiprocessing.get_context("forkserver")
_OWN = tuple(folder for folder in sys.path if folder)  # in the fork server: the folders of its interpreter
_WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def ready() -> None:
    """Start the fork server, unless it runs: before a test looks at which processes there are."""
    _SERVER.set_forkserver_preload([__name__])
    kept = dict(os.environ)
    os.environ.update({IN_SERVER: "1", "PYTHONPATH": str(ROOT)})
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(kept)


def load() -> None:
    """Import what commands import."""
    for room in ROOMS:
        package = importlib.import_module(f"cachekit.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(HEAVY):
                importlib.import_module(module.name)
    # They read variables while they are imported, here this server's: a fork with other ones would not be heard.
    early = {"huggingface_hub", "torch"} & sys.modules.keys()
    assert not early, f"cachekit imports {', '.join(sorted(early))} before a command needs it"
    gc.freeze()  # a fork's collections would copy all of it


def run_python(*arguments, folder, environment, code=0, timeout=LONGEST, stdin=""):
    """As `processes.run_python`, for a script, `-c CODE` and `-m MODULE`."""
    words = [str(word) for word in arguments]
    variables = {name: value for name, value in environment.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="cachekit-forked-") as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(stdin)
        process = begin(words, folder, variables, streams)
        process.join(timeout)
        if process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        encoding = _printing(variables)["encoding"]
        out, err = (one.read_text(encoding=encoding) if one.exists() else "" for one in streams[1:])
    assert code in {None, process.exitcode}, f"{arguments}: exit {process.exitcode}\n{out}\n{err}"
    return subprocess.CompletedProcess(words, process.exitcode, out, err)


def begin(words, folder, variables, streams):
    """A fork that goes on beside the test; `streams` are the files, or the terminal, that it opens as 0, 1 and 2."""
    ready()
    process = _SERVER.Process(target=_become, args=(words, str(folder), variables, [str(one) for one in streams]))
    process.start()
    return process


def _become(words, folder, variables, streams) -> None:
    """Be that Python to its end, in the fork."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        for number, (path, flags) in enumerate(zip(streams, (os.O_RDONLY, _WRITTEN, _WRITTEN), strict=True)):
            opened = os.open(path, flags)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        how = _printing(os.environ)
        sys.stdout = sys.__stdout__ = open(1, "w", **how, closefd=False)  # noqa: SIM115
        how["errors"] = "backslashreplace"
        sys.stderr = sys.__stderr__ = open(2, "w", 1, **how, closefd=False)  # noqa: SIM115
        code = _end_of(_run, words)
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)


def _printing(variables) -> dict[str, str]:
    """How Python writes what it prints."""
    encoding, _, errors = variables.get("PYTHONIOENCODING", "").partition(":")
    return {"encoding": encoding or "utf-8", "errors": errors or "strict"}


def _end_of(work, words) -> int:
    """The exit code that Python makes of how some work ended."""
    try:
        work(words)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.last_value = error
        traceback.print_exc()
        return 1
    return 0


def _run(words) -> None:
    first, rest = words[0], words[1:]
    of_program = str(Path.cwd() if first.startswith("-") else Path(first).absolute().parent)
    given = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:] = dict.fromkeys([of_program, *given, *_OWN])
    sys.orig_argv = [sys.executable, *words]
    importlib.invalidate_caches()
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(first, run_name="__main__")


if IN_SERVER in os.environ:
    load()
