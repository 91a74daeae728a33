"""The recipe warmed last in a working directory, so that `cachekit train` needs no argument."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from cachekit.errors import UsageError
from cachekit.store import Store


@dataclass(frozen=True, slots=True)
class Last:
    """A recipe as it was named, with the overrides that were given, and whether it was taken in small."""

    recipe: str
    overrides: tuple[str, ...]
    compiler: str
    tiny: bool = False


def _place(store: Store, cwd: Path) -> Path:
    # Kept in the store, not in the user's folder: nothing of ours should turn up in a checkout.
    return store.layout.state / "last" / f"{hashlib.sha256(os.fsencode(cwd.resolve())).hexdigest()[:32]}.json"


def remember(store: Store, cwd: Path, last: Last) -> bool:
    """Note what was warmed here; returns False where the store cannot be written, which is no reason to fail."""
    place = _place(store, cwd)
    fresh = place.with_suffix(f".{os.getpid()}")
    note = {"recipe": last.recipe, "overrides": last.overrides, "compiler": last.compiler, "tiny": last.tiny}
    note["directory"] = str(cwd)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(note), encoding="utf-8")
        fresh.replace(place)
    except OSError:
        return False
    return True


def recall(store: Store, cwd: Path) -> Last:
    """What was warmed last in this directory.

    Raises:
        UsageError: Nothing was.
    """
    try:
        note = json.loads(_place(store, cwd).read_text(encoding="utf-8"))
        return Last(note["recipe"], tuple(note["overrides"]), note["compiler"], bool(note.get("tiny")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            "no recipe was named, and none was warmed in this directory",
            hint="cachekit warm RECIPE first, or train RECIPE (see `cachekit zoo`)",
        ) from None
