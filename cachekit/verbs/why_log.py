"""What a log tells of a run that cachekit did not start: what it found, compiled and failed on, and the time lost."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from cachekit import files
from cachekit.compilers import registry
from cachekit.compilers.logged import Logged
from cachekit.errors import UsageError
from cachekit.text import cause_of
from cachekit.values import Answer

SAVE = "save all that a run prints: COMMAND 2>&1 | tee run.log"


class LogWhy(Logged, Answer, frozen=True, kw_only=True):
    """What a log tells; see `Logged`.

    Attributes:
        file: The log.
        compiler: Whose words it has.
    """

    file: str
    compiler: str


def why_log(path: Path) -> LogWhy:
    """Read a log, by whichever compiler's words are in it.

    Raises:
        UsageError: It cannot be read, is not a regular file, or no compiler knows its words.
    """
    try:
        for adapter in registry.every():
            with files.opened(path) as log:
                if (told := adapter.read_log(log)) is not None:
                    return LogWhy(**structs.asdict(told), file=str(path), compiler=adapter.name)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=cause_of(error),
            hint=SAVE,
        ) from error
    raise UsageError(
        f"{path} says nothing about a compile",
        cause="no line is one of a compiler's, or of its cache's, that cachekit reads",
        hint=f"{SAVE}; or give the compiler's own log",
    )
