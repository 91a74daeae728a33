"""Modules whose recipe nobody knows: which ones the store has, and the record that they become.

Such a record is of one compiler's folder, and named `import`. Its key is made of the folder and the modules' names. No
plan hits the record; it makes the modules visible, exportable and shared: a later warm that makes the same bytes stores
them once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cachekit.compilers.adapter import Adapter
from cachekit.compilers.foreign import ForeignCache
from cachekit.compilers.keep import provenance
from cachekit.key.canonical import canonical_json, key_of
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store import Store, leaks
from cachekit.store.record import IMPORTED, Module, Record, marked

RECIPE = "import"


def known_modules(store: Store, adapter: Adapter) -> dict[str, Module]:
    """The modules that whole records of a compiler hold, by name."""
    found: dict[str, Module] = {}
    for record in store.records(lambda one: one.directory.startswith(adapter.prefix)):
        fresh = {module.name: module for module in record.modules if module.name not in found}
        if fresh and store.lookup(record.place) is not None:
            found |= fresh
    return found


def known_units(store: Store, adapter: Adapter, cache: ForeignCache) -> frozenset[str]:
    """The units in modules of whole records of a compiler."""
    modules = known_modules(store, adapter).values()
    return frozenset(
        name for module in modules for name in cache.units(module, lambda file: store.layout.blob(file.sha256))
    )


def record_of(
    adapter: Adapter, directory: str, found: Sequence[Module], *, graphs: int, files: Iterable[Path] = ()
) -> Record:
    """The record of modules of one compiler's folder, which hold so many graphs.

    Compilers write into their files what they find around them: the record is marked where these hold a secret.

    Args:
        adapter: The compiler's.
        directory: The folder.
        found: The modules.
        graphs: How many graphs they hold.
        files: What is new of their files.

    Raises:
        OSError: A file cannot be read.
    """
    names = [directory, *(module.name for module in found)]
    hard = ingredients_of(directory, (module.name for module in found))
    fingerprint = Fingerprint(adapter.name, directory, adapter.toolchain(directory), {}, {}, bf16=True)
    record = Record(
        key=key_of(hard),
        compiler=adapter.name,
        directory=directory,
        model_type=IMPORTED,
        recipe=RECIPE,
        hard=hard,
        soft={},
        modules=tuple(found),
        graphs=graphs,
        compile_seconds=0.0,  # nobody measured it
        provenance=provenance(fingerprint),
    )
    return marked(record, told=leaks.told(files, {"modules": names}, os.environ))


def ingredients_of(compiler: str, names: Iterable[str]) -> dict[str, Any]:
    """What the key of such a record is made of: a compiler's folder, and its modules' names."""
    digest = hashlib.sha256(canonical_json(sorted(names))).hexdigest()
    return {"import.compiler": compiler, "import.modules": digest}
