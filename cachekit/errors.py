"""Every error that cachekit raises on purpose, in one tree.

    CachekitError (1)
    ├── UsageError (2)                what was asked cannot be: options, recipes, data
    │   ├── RecipeError               a recipe that does not fit the schema
    │   ├── UnknownNameError          a model, recipe, record or compiler nobody knows
    │   ├── DataError                 the data set cannot be trained on
    │   └── SecretError               what would be shared holds a secret
    ├── MissError (3)                 something would compile under --require-warm
    ├── AuthError (4)                 a remote that the token may not read or write
    │   ├── MissingRemoteError (7)    a remote that is not there
    │   └── UntrustedError (5)        what somebody else may have made, and nobody said to trust
    ├── IntegrityError (5)            bytes that are not what their record says
    │   └── TooLargeError             a document on a remote beyond any size that it can have
    ├── CompileError (6)              the compiler, or the trial run around it, failed
    ├── RemoteError (7)               a remote that cannot be reached, or does not do as asked
    │   ├── ConflictError             somebody else wrote there meanwhile
    │   ├── BusyError                 it takes nothing now: too many requests, another commit
    │   ├── UncertainError            the answer to a commit was lost
    │   └── SkippedError              it failed a moment ago and was not asked
    ├── WaitedTooLongError (75)       another process compiles the same key and the deadline passed
    ├── StoreError (1)                the store cannot be read or written
    ├── CompilerUnavailableError (1)  the compiler or a part it needs is not on this machine
    ├── TrainingError (1)             the training run failed
    ├── EngineError (1)               an engine that runs commands on machines is absent, silent, or refuses
    └── InterruptedRunError (130)     Ctrl-C, SIGTERM

The number is the process's exit code. The command line prints an error as three lines: what happened, the cause, and
the command or the edit that helps.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cachekit import redact
from cachekit.text import duration, one_line

LONGEST_WAIT = 3600.0  # seconds; who is asked to wait longer, for ten days say, looks again after an hour
LATER = "try again later"
# What helps where a package for training is missing.
INSTALL = 'pip install "cachekit-neuron[train]" (on a machine without GPU, install torch\'s CPU build first)'


EXIT_CODES = {
    0: "ok",
    1: "failed",
    2: "wrong options, recipe or data",
    3: "not warm (--require-warm), on no remote, or not as locked",
    4: "a remote refuses your token",
    5: "bytes or figures that are damaged or differ, or a record whose maker you do not trust",
    6: "the compiler failed",
    7: "a remote failed, could not be asked, or is not there",
    75: "waited too long for another process",
    130: "interrupted (Ctrl-C, SIGTERM)",
}


class ErrorDocument(Struct, frozen=True):
    """An error for programs."""

    code: str
    message: str
    cause: str = ""
    hint: str = ""
    exit_code: int = 1


class CachekitError(Exception):
    """The root: an error with a kebab-case code, an exit code, a cause and a hint. It repeats no secret.

    Args:
        message: What happened, one line, no full stop.
        cause: Why, as far as it is known.
        hint: The command to run or the edit to make.
    """

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, cause: str = "", hint: str = "") -> None:
        message = redact.printed(message)
        super().__init__(message)
        self.message = message
        self.cause = redact.printed(cause)
        self.hint = redact.printed(hint)

    def lines(self) -> list[str]:
        """The text a person reads: one to three lines."""
        text = [f"error[{self.code}]: {self.message}"]
        if self.cause:
            text.append(f"  cause: {self.cause}")
        if self.advice:
            text.append(f"  hint: {self.advice}")
        return [one_line(line) for line in text]

    @property
    def advice(self) -> str:
        """What helps: the hint, or what helps with most errors of this kind."""
        return self.hint

    @property
    def said(self) -> str:
        """What happened, and why, in one sentence."""
        return ": ".join(filter(None, [self.message, self.cause]))

    @property
    def document(self) -> ErrorDocument:
        """The same facts for programs."""
        return ErrorDocument(self.code, self.message, self.cause, self.advice, self.exit_code)


class UsageError(CachekitError):
    """What was asked cannot be done as asked."""

    code = "usage"
    exit_code = 2


class RecipeError(UsageError):
    """A recipe that cannot be read, or does not fit the schema."""

    code = "bad-recipe"


class UnknownNameError(UsageError):
    """A name that nobody knows: a recipe, a model, a record, a compiler."""

    code = "unknown-name"


class DataError(UsageError):
    """A data set that is missing, unreadable, or cannot be trained on."""

    code = "bad-data"


class SecretError(UsageError):
    """What would be shared holds a secret: a record, a lock file."""

    code = "secret"


class MissError(CachekitError):
    """A compile would be needed, and the caller asked to fail instead."""

    code = "not-warm"
    exit_code = 3


class AuthError(CachekitError):
    """A remote that this token may not read or write; a Hub does not tell a hidden repo from one that is not there.

    And a model or a data set that its owners give only to people whom they let in.
    """

    code = "auth"
    exit_code = 4


class MissingRemoteError(AuthError):
    """A remote that is not there, and not only hidden from this token: nobody need log in for it."""

    code = "no-remote"
    exit_code = 7


# What helps where something is not used that others may have made: that its maker signs it, and is named; that it is
# signed or made anew; or nothing, as it is revoked.
Helps = Literal["signer", "anew", "nothing"]


class UntrustedError(AuthError):
    """What somebody else may have made is not used: a compiler cache is code. See `remotes.judging`."""

    code = "untrusted"
    exit_code = 5
    helps: Helps = "signer"


class IntegrityError(CachekitError):
    """Bytes that are not what their record says."""

    code = "damaged"
    exit_code = 5


class TooLargeError(IntegrityError):
    """A document on a remote that is larger than any of its kind; it was not read whole.

    Args:
        token: Of its state, for who writes another in its place.
    """

    code = "too-large"

    def __init__(self, message: str, *, cause: str = "", hint: str = "", token: str = "") -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.token = token


class CompileError(CachekitError):
    """The compiler, or the trial run that drives it, failed."""

    code = "compile-failed"
    exit_code = 6


class RemoteError(CachekitError):
    """A remote that cannot be reached in time, or does not do what was asked.

    Args:
        wait: Seconds after which to try again, as far as the remote says, `LONGEST_WAIT` at most; 0 where it does not.
        lasting: Asking again soon gets the same answer.
    """

    code = "remote"
    exit_code = 7

    def __init__(
        self, message: str, *, cause: str = "", hint: str = "", wait: float = 0.0, lasting: bool = False
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.wait, self.lasting = min(max(0.0, wait), LONGEST_WAIT), lasting

    @property
    def advice(self) -> str:
        """The hint; else whether to try again."""
        return self.hint or ("check the remote's address, and anything in between (a proxy)" if self.lasting else LATER)

    @property
    def asks(self) -> str:
        """What the remote asks for, as the end of a sentence; empty where it asks for nothing."""
        if not self.wait:
            return ""
        return f"; it asks to wait {'an hour or more' if self.wait >= LONGEST_WAIT else duration(self.wait)}"


class ConflictError(RemoteError):
    """Somebody else wrote meanwhile: read again, merge, and commit on top of that."""

    code = "conflict"


class BusyError(RemoteError):
    """The remote cannot take it now: another commit in progress, too many requests, a quota."""

    code = "busy"


class UncertainError(RemoteError):
    """The answer to a commit was lost: it may have happened. Look for its id before trying again."""

    code = "uncertain"


class SkippedError(RemoteError):
    """The remote failed a moment ago and was not asked."""

    code = "remote-skipped"


class WaitedTooLongError(CachekitError):
    """Another process holds the key, and the caller's deadline passed."""

    code = "waited-too-long"
    exit_code = 75

    @classmethod
    def of(cls, other: str, what: str, holder: object, waited: float) -> WaitedTooLongError:
        """The error of a compile that another `process` or `machine` is busy with."""
        return cls(
            f"another {other} has been compiling {what} for longer than this one may wait",
            cause=f"{holder or 'an unknown process'}; waited {waited:.0f} s",
            hint="wait longer with --wait TIME, or look at that process",
        )


class StoreError(CachekitError):
    """The store cannot be read or written: permissions, a full disk, a path that is not a folder."""

    code = "store"


class CompilerUnavailableError(CachekitError):
    """The compiler, or something it needs (torch, a C++ compiler), is not on this machine."""

    code = "compiler-unavailable"


class TrainingError(CachekitError):
    """The training run failed for a reason that is not the compiler's."""

    code = "training-failed"


class MachineGoneError(TrainingError):
    """Another machine of the run went away: the same command, started again on all of them, goes on."""

    code = "machine-gone"
    exit_code = 75


class EngineError(CachekitError):
    """An engine that runs commands on machines (Slurm) is not here, does not answer, or refuses."""

    code = "engine"


class InterruptedRunError(CachekitError):
    """The user stopped the run."""

    code = "interrupted"
    exit_code = 130


def every_error() -> list[type[CachekitError]]:
    """All error classes, the root first: for the worker's answer and for the documentation of exit codes."""
    found: list[type[CachekitError]] = [CachekitError]
    for cls in found:
        found.extend(sub for sub in cls.__subclasses__() if sub not in found)
    return found


def from_code(code: str, message: str, *, cause: str = "", hint: str = "") -> CachekitError:
    """Build the error that `code` names again, as the training worker sends it across the process border."""
    for cls in every_error():
        if cls.code == code:
            return cls(message, cause=cause, hint=hint)
    return CachekitError(message, cause=cause, hint=hint)


def chain_of(error: BaseException) -> list[BaseException]:
    """An exception, then what it was raised from and what was being handled meanwhile, each once, the nearest first."""
    found, pending = list[BaseException](), [error]
    while pending:
        one = pending.pop(0)
        if not any(one is known for known in found):
            found.append(one)
            pending += [other for other in (one.__cause__, one.__context__) if other is not None]
    return found
