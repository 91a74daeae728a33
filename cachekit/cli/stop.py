"""Who asks a run to end, and the words for it. Imports next to nothing: a run may be stopped before the verbs load."""

from __future__ import annotations

import signal
from typing import NoReturn

from cachekit.errors import InterruptedRunError


class CommandExit(int):
    """The exit code of a user's own command: not to be taken for one of ours."""


_asked: list[signal.Signals] = []


def listen() -> None:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: locks and leases are given back, and workers end.

    Schedulers end runs so. What this process was started deaf to (`nohup`) stays unheard.
    """

    def stop(number: int, _: object) -> NoReturn:
        _asked.append(signal.Signals(number))
        raise KeyboardInterrupt(_asked[0].name)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, stop)


def interrupted() -> InterruptedRunError:
    """What is told of a run that was asked to end."""
    return InterruptedRunError("stopped", cause=_asked[0].name if _asked else "Ctrl-C", hint="run the command again")
