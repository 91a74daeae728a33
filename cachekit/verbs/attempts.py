"""What a trial that failed had found out: which modules it needs, why it failed, and where its log is.

Kept by key until a warm of it succeeds. No plan believes it: it only tells people what is still to be done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit.errors import CachekitError
from cachekit.store.layout import Layout

_LARGEST = 8 << 20  # bytes of a note


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


def remember(layout: Layout, key: str, error: CachekitError, log: Path, needed: Iterable[str]) -> None:
    """Keep what is known of a failure; where that cannot be written, nothing is kept."""
    note = Attempt(
        key,
        error.code,
        ": ".join(filter(None, [error.message, error.cause])),
        str(log),
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tuple(sorted(needed)),
    )
    path = layout.attempt(key)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(msgspec.to_builtins(note)), encoding="utf-8")
        fresh.replace(path)


def recall(layout: Layout, key: str) -> Attempt | None:
    """The last trial of a key, where it failed."""
    path = layout.attempt(key)
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        if path.stat().st_size <= _LARGEST:
            note = msgspec.json.decode(path.read_bytes(), type=Attempt)
            return note if note.key == key else None
    return None


def forget(layout: Layout, key: str) -> None:
    """The key is warm now."""
    with suppress(OSError):
        layout.attempt(key).unlink(missing_ok=True)
