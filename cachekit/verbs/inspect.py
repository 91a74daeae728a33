"""Look at what the store holds: `ls` and `show`."""

from __future__ import annotations

from typing import Any

import msgspec

from cachekit.compilers import registry
from cachekit.errors import UnknownNameError
from cachekit.key.canonical import key_of
from cachekit.store import Store
from cachekit.store.record import Record

SHORTEST = 4  # digits of a key that name it


def ls(store: Store) -> list[dict[str, Any]]:
    """Every record, youngest first."""
    rows = store.rows()
    rows.sort(key=lambda row: row.key)
    rows.sort(key=lambda row: row.created)
    listed = []
    while rows:  # of 100,000 no two lists are held
        row = rows.pop()
        listed.append(
            {
                "key": row.key,
                "recipe": row.recipe,
                "compiler": row.compiler,
                "directory": row.directory,
                "model_type": row.model_type,
                "graphs": row.graphs,
                "modules": row.modules,
                "bytes": row.bytes,
                "compile_seconds": row.compile_seconds,
                "created": row.created,
                "by": f"{row.user}@{row.host}",
            }
        )
    return listed


def find(store: Store, name: str) -> Record:
    """The record whose key begins with `name`.

    Raises:
        UnknownNameError: None does, or several do.
    """
    if len(name) < SHORTEST:
        raise UnknownNameError(f"{name!r} is too short for a key", hint=f"give {SHORTEST} digits or more")
    found = [row for row in store.refresh().by_prefix(name.lower()) if row.usable]
    if len(found) == 1:
        record = store.read(*found[0].place)
        if record is not None:
            return record
        found = []  # damaged, or gone since it was listed
    keys = ", ".join(each.key[:16] for each in found[:5])
    raise UnknownNameError(
        f"{len(found) or 'no'} records begin with {name!r}",
        cause=keys,
        hint="give more digits" if found else "`cachekit ls` lists the keys; for a recipe use `cachekit plan`",
    )


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
