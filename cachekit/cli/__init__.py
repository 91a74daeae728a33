"""The command line: one file a verb, errors in three lines, exit codes that mean something."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from gc import freeze, set_threshold  # by their names: `cachekit.cli.upkeep` is a verb, and takes the module's place

import cachekit


def main() -> None:
    """The `cachekit` command."""
    if not hasattr(cachekit, "_NAMES"):
        sys.exit(_OVERWRITTEN.format(place=cachekit.__path__[0], pip=f"{sys.executable} -m pip"))
    from cachekit.cli import stop

    # Loading modules makes many objects that all live on: looking for dead ones among them takes a tenth of a start.
    set_threshold(50_000, 20, 100)
    _open_missing()
    stop.listen()
    code = 1
    # It is registered first, and so runs after all that others have to do at the end.
    atexit.register(lambda: _end(code))
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the verbs were loaded: what one of them does answers for itself
        from cachekit.cli import out

        out.setup_early(sys.argv[1:])
        code = out.error(stop.interrupted())
    # Where the last code that was made of a text was interrupted (dataclasses make theirs so), Python ends `python -m`
    # by SIGINT, whatever the exit code.
    exec("")  # noqa: S102
    freeze()  # nor among what is left at the end
    sys.exit(code)


# Of a module that is another project's nothing can be asked: not even the words of an error.
_OVERWRITTEN = """\
error[overwritten]: {place} has files of another project in place of some of ours
  cause: the project called cachekit on PyPI is imported under the same name as cachekit-neuron
  hint: {pip} uninstall cachekit cachekit-neuron, then install cachekit-neuron again"""


def _end(code: int) -> None:
    """End a process that has a thread inside a client's code, and leave out what the C libraries do at the end.

    OpenSSL throws away its locks then. A thread that takes one of these ends the process by SIGSEGV.
    """
    calls = sys.modules.get("cachekit.calls")
    if calls is not None and calls.under_way():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _open_missing() -> None:
    """What this process was started without (`2>&-`) leads nowhere: a file of the store must not take its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _run(arguments: list[str]) -> int:
    from cachekit.cli.app import run

    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return run(arguments)
