"""Look at one record, and at compiled files wherever they lie: `show`, `neff`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from cachekit.compilers import registry
from cachekit.compilers.adapter import ABSENT, DAMAGED, UNKNOWN
from cachekit.errors import IntegrityError, UsageError
from cachekit.key.canonical import key_of
from cachekit.store import Store
from cachekit.text import one_line
from cachekit.verbs.entry import find


def show(store: Store, name: str) -> dict[str, Any]:
    """A record whole: ingredients, modules, provenance; and whether hashing the ingredients gives its key."""
    record = find(store, name)
    whole = store.lookup(record.key, record.directory, record.model_type) is not None
    document: dict[str, Any] = msgspec.to_builtins(record)
    said = registry.adapter(record.compiler).describe_modules(
        record.modules, lambda file: store.layout.blob(file.sha256)
    )
    for module in document["modules"]:
        module.update(said.get(module["name"], {}))
    return {**document, "bytes": record.size, "key_of_ingredients": key_of(record.hard), "whole": whole}


def compiled_files(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Each file's state and, where a compiler knows it, all that it says; one that cannot be read stops no other."""
    return [{"file": one_line(str(path)), **_said(path)} for path in paths]


def _said(path: Path) -> dict[str, Any]:
    found = {"state": UNKNOWN, "reason": "no compiler that is known here makes such files"}
    for adapter in registry.every():
        if (said := adapter.describe(path)) is not None:
            found = said
            if said["state"] != UNKNOWN:
                break
    return found


def exit_code(found: Iterable[dict[str, Any]]) -> int:
    """What the process says: damage before absence."""
    states = {one["state"] for one in found}
    if states & {DAMAGED, UNKNOWN}:
        return IntegrityError.exit_code
    return UsageError.exit_code if ABSENT in states else 0
