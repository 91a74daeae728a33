"""Two builds of one key with other bytes: who made which, told once and kept for `coverage`.

A compiler that is not deterministic does so, and so does a machine that is broken, or somebody who must not push. Which
of the two serves is decided elsewhere; here nothing is changed.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct, json, to_builtins

from cachekit import files
from cachekit.events import Journal
from cachekit.key.canonical import canonical_json
from cachekit.store.layout import Layout
from cachekit.store.record import Module, Record, is_archive, is_closed

MOST = 20  # notes that are kept of a key, the youngest


class Divergent(Struct, frozen=True):
    """One module of a key in two builds of other bytes.

    Attributes:
        name: Of the module; of archives, which are named after their bytes, the folder that they share.
        ours: The digest of one build: of its one file, or of the list of its files.
        theirs: Of the other.
        files: The files that differ, by their paths in the module.
    """

    name: str
    ours: str
    theirs: str
    files: tuple[str, ...]


class Maker(Struct, frozen=True):
    """Who made a record, as far as it says.

    Attributes:
        by: `user@host`.
        created: UTC, ISO 8601.
        cachekit: Its version.
        platform: The operating system and the processor.
        instance: The machine's type; empty where nobody knows.
    """

    by: str
    created: str
    cachekit: str
    platform: str
    instance: str


class DivergentBuilds(Struct, frozen=True):
    """A key that was built twice, with other bytes.

    Attributes:
        key: The key.
        recipe: The name of its recipe.
        where: Where the other build lies: a remote's name, or `local` for what this machine replaced.
        modules: Those of which the builds have other bytes.
        ours: Who made what this machine has, or makes.
        theirs: Who made the other.
    """

    key: str
    recipe: str
    where: str
    modules: tuple[Divergent, ...]
    ours: Maker
    theirs: Maker


def compare(ours: Record, theirs: Record) -> tuple[Divergent, ...]:
    """Where two records of one key have other bytes for the same thing.

    Archives have no name but their digest: they are two builds where neither record has all that the other has. Those
    of a command may be of different graphs.
    """
    mine = {module.name: module for module in ours.modules}
    there = {module.name: module for module in theirs.modules}
    found = [
        Divergent(name, digest_of(mine[name]), digest_of(there[name]), _differing(mine[name], there[name]))
        for name in sorted(mine.keys() & there.keys())
        if mine[name].files != there[name].files and _differing(mine[name], there[name])
    ]
    alone = [sorted(name for name in one.keys() - other.keys()) for one, other in ((mine, there), (there, mine))]
    archives = [
        [name for name in names if is_archive(one[name])] for one, names in zip((mine, there), alone, strict=True)
    ]
    if all(archives) and is_closed(ours):
        first, second = (one[names[0]] for one, names in zip((mine, there), archives, strict=True))
        folder = first.name.rpartition("/")[0]
        found.append(Divergent(folder, digest_of(first), digest_of(second), tuple(file.path for file in first.files)))
    return tuple(found)


def digest_of(module: Module) -> str:
    """One SHA-256 for a module: its file's, where it has one only, else that of the sorted list of its files."""
    if len(module.files) == 1:
        return module.files[0].sha256
    listed = sorted([file.path, file.size, file.sha256] for file in module.files)
    return hashlib.sha256(canonical_json(listed)).hexdigest()


def _differing(one: Module, other: Module) -> tuple[str, ...]:
    ours, theirs = ({file.path: file.sha256 for file in module.files} for module in (one, other))
    return tuple(path for path in sorted(ours.keys() | theirs.keys()) if ours.get(path) != theirs.get(path))


def tell(layout: Layout, journal: Journal, ours: Record, theirs: Record, where: str) -> bool:
    """Tell of two builds of a key, once for each pair; nothing where their bytes are the same.

    Args:
        layout: The store's.
        journal: Gets `record.differs`.
        ours: What this machine has, or makes.
        theirs: What lies in the other place.
        where: That place: a remote's name, or `LOCAL` for the store itself.

    Returns:
        Whether they differ.
    """
    found = compare(ours, theirs)
    if not found:
        return False
    note = DivergentBuilds(ours.key, ours.recipe, where, found, maker_of(ours), maker_of(theirs))
    notes = noted(layout, ours.key)
    if all((old.where, old.modules) != (where, found) for old in notes):
        # Where the store cannot be written, it is told again.
        layout.inside.note(layout.builds(ours.key), json.encode([*notes, note][-MOST:]))
        journal.emit("record.differs", **to_builtins(note))
    return True


def maker_of(record: Record) -> Maker:
    """Who made a record."""
    made = record.provenance
    return Maker(f"{made.user}@{made.host}", made.created, made.cachekit, made.platform, made.instance)


def noted(layout: Layout, key: str) -> list[DivergentBuilds]:
    """What has been told of a key's builds, the oldest first; nothing where the notes cannot be read."""
    return files.noted(layout.builds(key), list[DivergentBuilds]) or []
