"""Small notes beside the records. No plan relies on them: they tell people something, or save them an argument.

The recipe warmed last in a working directory, so that `cachekit train` needs no argument: it says what runs, so
each user has notes of their own, and only what this user or root wrote counts. And what a trial that failed had found
out, by key until a warm of it succeeds: which modules it needs, why it failed, and where its log is. That is only told.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit import files, private, whose
from cachekit.errors import CachekitError, UsageError
from cachekit.store.access import Owners
from cachekit.store.layout import Layout


class Last(Struct, frozen=True):
    """A recipe as it was named, with the overrides that were given, and whether it was taken in small."""

    recipe: str
    overrides: tuple[str, ...]
    compiler: str
    tiny: bool = False


class _Noted(Last, frozen=True):
    """The same, and the working directory: no other directory's note is taken for it, whatever that is called."""

    directory: str = ""


class Attempt(Struct, frozen=True):
    """A trial that failed.

    Attributes:
        key: Of its recipe.
        code: The error's.
        message: Its words, with the cause.
        log: The run's log.
        when: UTC, ISO 8601.
        needed: The modules that the trial had reported by then, by the compiler's names.
    """

    key: str
    code: str
    message: str
    log: str
    when: str
    needed: tuple[str, ...] = ()


def note_last(layout: Layout, cwd: Path, last: Last) -> bool:
    """Note what was warmed in a directory; False where the store cannot be written, which is no reason to fail."""
    path = layout.last(_place(cwd))
    raw = json.dumps(msgspec.to_builtins(last) | {"directory": str(cwd.resolve())}).encode()
    try:
        layout.inside.check(path.parent.parent)
        private.closed_folder(path.parent)
        Owners(layout).remember(raw)
        files.replace(path, raw, mode=private.FILE)
    except OSError:
        return False
    return True


def last_in(layout: Layout, cwd: Path) -> Last:
    """What was warmed last in a directory.

    Raises:
        UsageError: Nothing was.
    """
    path, strangers = layout.last(_place(cwd)), []

    def believe(handle: int) -> bool:
        # In a folder that others can write to, a file of this user may be one that they moved there.
        with suppress(OSError), layout.inside.folder(path.parent) as folder:
            strangers.append(whose.outsider(handle, path) or whose.outsider(folder, path.parent))
            if not os.path.samestat(os.stat(path.name, dir_fd=folder), os.fstat(handle)):
                strangers.append("it was replaced")
            # Where others can write above the store, they can put another folder of this user's in its place.
            raw = os.pread(handle, min(os.fstat(handle).st_size, files.LARGEST_NOTE), 0)
            if not Owners(layout).remembers(raw):
                strangers.append("others can write to the store, and this user noted nothing there")
        return strangers == [""]

    found = files.noted(path, _Noted, believe)
    if found is None or found.directory != str(cwd.resolve()):
        raise UsageError(
            "no recipe was named, and none was warmed in this directory",
            cause="".join(strangers),
            hint="cachekit warm RECIPE first, or train RECIPE (see `cachekit zoo`)",
        )
    return Last(found.recipe, found.overrides, found.compiler, found.tiny)


def _place(cwd: Path) -> str:
    # Kept in the store, not in the user's folder: nothing of ours should turn up in a checkout.
    return hashlib.sha256(os.fsencode(cwd.resolve())).hexdigest()[:32]


def note_attempt(layout: Layout, key: str, error: CachekitError, log: Path, needed: Iterable[str]) -> None:
    """Keep what is known of a failed trial; where that cannot be written, nothing is kept."""
    message = ": ".join(filter(None, [error.message, error.cause]))
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    attempt = Attempt(key, error.code, message, str(log), when, tuple(sorted(needed)))
    layout.inside.note(layout.attempt(key), json.dumps(msgspec.to_builtins(attempt)).encode())


def attempt_of(layout: Layout, key: str) -> Attempt | None:
    """The last trial of a key, where it failed."""
    found = files.noted(layout.attempt(key), Attempt)
    return found if found is not None and found.key == key else None


def forget_attempt(layout: Layout, key: str) -> None:
    """The key is warm now."""
    with suppress(OSError):
        layout.inside.unlink(layout.attempt(key))
