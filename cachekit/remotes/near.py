"""What is wanted, what is known of a record without its modules, and how near the one is to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.key.canonical import Change
from cachekit.key.nearest import distance, reusable
from cachekit.store.layout import LOCAL
from cachekit.store.record import COMMAND, IMPORTED, Record
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found, Remote


class Known(Struct, frozen=True):
    """What is known of a record, all but its modules.

    Attributes:
        size: Bytes of its files.
        by: Who made it.
    """

    key: str
    directory: str
    model_type: str
    recipe: str
    compiler: str
    hard: dict[str, Any]
    graphs: int
    size: int
    compile_seconds: float
    cold_seconds: float
    created: str
    by: str

    @classmethod
    def of(cls, record: Record) -> Known:
        """What of a record is remembered."""
        made = record.provenance
        return cls(
            record.key,
            record.directory,
            record.model_type,
            record.recipe,
            record.compiler,
            record.hard,
            record.graphs,
            record.size,
            record.compile_seconds,
            record.cold_seconds,
            made.created,
            f"{made.user}@{made.host}",
        )


class Wanted(Struct, frozen=True):
    """What is sought for; its own record is never the nearest.

    Attributes:
        foreign: See `Compiler.foreign`.
        reuse_bytes: The largest record that a compile may begin with, and the most to fetch; 0 seeks for none.
    """

    key: str
    directory: str
    model_type: str
    hard: Mapping[str, Any]
    foreign: tuple[str, ...] = ()
    reuse_bytes: int = 0

    def comparable(self, model_type: str) -> bool:
        """Recipes and commands have no ingredients in common; what was imported has none at all."""
        return model_type != IMPORTED and (model_type == COMMAND) == (self.model_type == COMMAND)

    def can_reuse(self, known: Known, changes: Sequence[Change]) -> bool:
        """Whether a compile can begin with a record."""
        return (
            known.size <= self.reuse_bytes
            and known.directory == self.directory
            and known.model_type != COMMAND
            and reusable(changes, self.foreign)
        )


class Near(Struct, frozen=True):
    """A record near to what is wanted.

    Attributes:
        known: What it is.
        changes: From it to what is wanted.
        record: The record whole, where it is in the store or was read on its remote.
        remote: The remote that has it, where the store has not.
        found: The record as it was read there, to be fetched.
        fetch: Of that, the bytes that the store lacks.
    """

    known: Known
    changes: tuple[Change, ...]
    record: Record | None = None
    remote: Remote | None = None
    found: Found | None = None
    fetch: int = 0

    __hash__ = by_value

    @property
    def place(self) -> str:
        """Where it is: `local`, or the name of a remote."""
        return self.remote.name if self.remote else LOCAL

    @property
    def distance(self) -> int:
        """How far away it is; see `key.nearest.WEIGHTS`."""
        return distance(self.changes)

    @property
    def rank(self) -> tuple[int, int]:
        """What near records are sorted by."""
        return self.distance, len(self.changes)


def settled(wanted: Wanted, near: Near | None, reuse: Near | None, limit: int) -> bool:
    """Whether nothing that is sought can lie nearer than this elsewhere."""
    if near is None or near.distance > limit:
        return False
    return not wanted.reuse_bytes or (reuse is not None and reuse.distance <= limit)


class Looked(Struct, frozen=True):
    """How far one remote was searched.

    Attributes:
        remote: Its name.
        records: Records of this kind that it lists, as far as the listing went.
        compared: Those whose ingredients were compared.
        problem: Why it was not searched to the end; empty where it was.
    """

    remote: str
    records: int
    compared: int
    problem: str = ""
