"""What every action works with: one bundle of collaborators, built once by the command line or by a caller."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from msgspec import Struct, field

from cachekit.compilers import Compiler
from cachekit.config import Config
from cachekit.events import Journal
from cachekit.remotes.chain import Chain
from cachekit.store import Store
from cachekit.training import Launcher
from cachekit.values import by_value


class Session(Struct, frozen=True):
    """One run's collaborators.

    Attributes:
        config: Settings.
        journal: Told what happens.
        store: The local store.
        compiler: The compiler chosen for the recipe.
        launcher: Runs workers.
        chain: The shared caches.
    """

    config: Config
    journal: Journal
    store: Store
    compiler: Compiler
    launcher: Launcher
    chain: Chain = field(default_factory=Chain)

    __hash__ = by_value

    @property
    def log(self) -> Path:
        """The file that this run's workers print to."""
        folder = self.store.layout.logs
        if not _writable(folder):
            folder = temporary_home() / "logs"
        return folder / f"{self.journal.run}.log"


P = ParamSpec("P")
R = TypeVar("R")


def holding(action: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[Session, P], R]:
    """For an action that uses records: what it looks up stays in the store until it is done, beside any removal."""

    @wraps(action)
    def held(session: Session, /, *args: P.args, **named: P.kwargs) -> R:
        with session.store.holding():
            return action(session, *args, **named)

    return held


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def temporary_home() -> Path:
    """Where live roots and logs go when the store cannot be written: a read-only store still serves its hits."""
    import tempfile

    owner = os.getuid() if sys.platform != "win32" else 0
    return Path(tempfile.gettempdir()) / f"cachekit-{owner}"
