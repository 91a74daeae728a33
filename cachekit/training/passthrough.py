"""Run a user's own command in our place: its input, output, exit code and signals are the user's.

What is sent to this process is passed on to the command, once: what a terminal sends goes to the whole group, and has
reached the command already. Output goes straight to where ours goes, unless somebody must hear it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from cachekit.errors import CachekitError, UsageError
from cachekit.process import die_with
from cachekit.text import cause_of
from cachekit.training.launch import GRACE, end, merged

PASSED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"))
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL = 0.2  # seconds between two looks at what the command does
_FROM_KERNEL = 0x80  # SI_KERNEL of asm-generic/siginfo.h: a terminal sent it, to the whole group
_BLOCK = 1 << 16


class Passthrough:
    """Runs one command.

    Args:
        hear: Called with what the command prints, as it comes; None lets it print by itself.
        look: Called with its process id while it runs. Raising ends the command, and is raised on.

    Attributes:
        stopped: Somebody asked for the end of the run: whoever did so may kill it soon.
    """

    def __init__(
        self, look: Callable[[int], None] = lambda _: None, hear: Callable[[bytes], None] | None = None
    ) -> None:
        self._look, self._hear = look, hear
        self._heard: SimpleQueue[bytes] = SimpleQueue()
        self._asked: list[int] = []
        self.stopped = False

    def run(self, command: Sequence[str], changes: Mapping[str, str | None], cwd: Path | None = None) -> int:
        """Run a command to its end, in `cwd` or here, with changes to the environment; None unsets a variable.

        Returns:
            Its exit code; 128 and the signal's number where one ended it, as shells have it.

        Raises:
            UsageError: There is no such program, or it cannot be run.
            CachekitError: What `look` or `hear` raised; the command was ended.
        """
        # At a terminal the command must be in the group that may read from it.
        alone = not any(os.isatty(number) for number in (0, 1, 2))
        with ExitStack() as stack:
            mask = stack.enter_context(self._signals())
            outputs, threads = self._outputs(stack)
            try:
                child = subprocess.Popen(
                    list(command),
                    env=merged(changes),
                    cwd=cwd,
                    preexec_fn=partial(_prepare, os.getpid(), mask, alone),  # noqa: PLW1509
                    stdout=outputs.get("stdout"),
                    stderr=outputs.get("stderr"),
                )
            except OSError as error:
                raise _not_run(command[0], error) from error
            for descriptor in outputs.values():
                os.close(descriptor)
            for thread in threads:
                thread.start()
            try:
                self._follow(child, alone=alone)
                deadline = time.monotonic() + GRACE  # what it left behind may hold its output open
                for thread in threads:
                    thread.join(max(deadline - time.monotonic(), 0))
                self._listen()
            except CachekitError:
                end(child, alone=alone)
                raise
        code = int(child.returncode)
        return code if code >= 0 else 128 - code

    def _follow(self, child: subprocess.Popen[bytes], *, alone: bool) -> None:
        waited = {*PASSED, signal.SIGCHLD}
        looked = time.monotonic()
        while child.poll() is None:
            told = signal.sigtimedwait(waited, POLL)
            self.stopped |= told is not None and told.si_signo in STOPPING
            if told is not None and told.si_signo in PASSED and (alone or told.si_code != _FROM_KERNEL):
                _send(child.pid, told.si_signo)
            while self._asked:  # a thread of somebody's library took it
                number = self._asked.pop(0)
                self.stopped |= number in STOPPING
                _send(child.pid, number)
            self._listen()
            if time.monotonic() - looked >= POLL:
                looked = time.monotonic()
                self._look(child.pid)

    def _listen(self) -> None:
        with suppress(Empty):
            while self._hear is not None:
                self._hear(self._heard.get_nowait())

    @contextmanager
    def _signals(self) -> Iterator[set[signal.Signals]]:
        """Hold signals back until they are passed on; yields the mask that was before."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED, signal.SIGCHLD})
        handlers = {}
        for number in PASSED:
            if signal.getsignal(number) != signal.SIG_IGN:  # `nohup`
                handlers[number] = signal.signal(number, lambda told, _: self._asked.append(told))
        try:
            yield {signal.Signals(number) for number in before}
        finally:
            for number in PASSED:  # what came too late is not for us either
                while number in signal.sigpending():
                    signal.sigtimedwait({number}, 0)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _outputs(self, stack: ExitStack) -> tuple[dict[str, int], list[threading.Thread]]:
        """Descriptors for the command's output, and threads that pass on what comes."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self._hear is None:
            return {}, []
        outputs: dict[str, int] = {}
        threads = []
        for name, target in (("stdout", 1), ("stderr", 2)):
            if name == "stderr" and _one_place():  # one pipe, so that nothing changes its order
                outputs[name] = os.dup(outputs["stdout"])
                continue
            ours, theirs = _pair(target)
            stack.callback(os.close, ours)
            outputs[name] = theirs
            threads.append(threading.Thread(target=self._pass, args=(ours, target), daemon=True))
        return outputs, threads

    def _pass(self, source: int, target: int) -> None:
        while True:
            try:
                block = os.read(source, _BLOCK)
            except OSError:  # a terminal's other end was closed; or ours
                return
            if not block:
                return
            self._heard.put(block)
            with suppress(OSError):  # nobody reads on: the compiler is heard all the same
                while block:
                    select.select([], [target], [])
                    block = block[os.write(target, block) :]


def _prepare(parent: int, mask: set[signal.Signals], alone: bool) -> None:
    """In the command's process, before it is one: signals as they were, a group of its own, no life without us."""
    if alone:
        os.setpgid(0, 0)
    die_with(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _one_place() -> bool:
    """Our two outputs go to one place; a closed one goes nowhere."""
    with suppress(OSError):
        return os.path.sameopenfile(1, 2)
    return False


def _pair(target: int) -> tuple[int, int]:
    """Two ends: what we read, and what the command writes to; a terminal where ours is one."""
    if not os.isatty(target):
        return os.pipe()
    import fcntl
    import termios
    import tty

    ours, theirs = os.openpty()
    tty.setraw(theirs)  # ours makes the line ends
    with suppress(OSError):
        size = fcntl.ioctl(target, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    return ours, theirs


def check_program(program: str, cwd: Path | None = None) -> None:
    """Raise UsageError where there is no such program."""
    path = (cwd or Path()) / program
    if not (path.exists() if os.sep in program else shutil.which(program)):
        raise _script(program) if path.is_file() else _not_run(program, FileNotFoundError())


def _script(program: str) -> CachekitError:
    return UsageError(
        f"the command {program} was not found",
        cause="no program on PATH has this name; a file in this folder has it",
        hint=f"cachekit run -- {'python ' if program.endswith('.py') else './'}{program}",
    )


def _not_run(program: str, error: OSError) -> CachekitError:
    missing = isinstance(error, FileNotFoundError)
    return UsageError(
        f"the command {program or repr(program)} was not found" if missing else f"{program} cannot be run",
        cause="no file and no program on PATH has this name" if missing else cause_of(error),
        hint="cachekit run -- COMMAND ARGUMENT..., as you would type it without cachekit",
    )
