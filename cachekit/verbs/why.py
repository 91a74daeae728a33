"""Why a recipe misses: the nearest record, here or on a remote, and what differs from it. Nothing else.

And what differs between two: recipes, records by the first digits of their keys, and files that hold either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from cachekit.compilers import registry
from cachekit.compilers.prepare import Prepared
from cachekit.disk import named
from cachekit.errors import UnknownNameError, UsageError
from cachekit.files import opened
from cachekit.key.canonical import canonical_json, difference, is_older, key_of
from cachekit.key.words import Told, told
from cachekit.remotes.index import Known
from cachekit.remotes.nearest import Looked, Nearest, Wanted, search
from cachekit.remotes.nearest_on import by_key
from cachekit.store.layout import LOCAL
from cachekit.store.record import LARGEST, DamagedRecordError, Record, parse
from cachekit.text import cause_of
from cachekit.values import Answer
from cachekit.verbs.entry import find
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import Unanswered, unanswered
from cachekit.verbs.session import Session


class ComparedRecord(Struct, frozen=True, kw_only=True):
    """The record that a recipe misses by least.

    Attributes:
        remote: Where it is: `local`, or the name of a remote.
        distance: How much differs.
        by: Who made it.
    """

    key: str
    recipe: str
    remote: str
    directory: str
    model_type: str
    distance: int
    graphs: int
    bytes: int
    compile_seconds: float
    created: str
    by: str


class Why(Answer, frozen=True, kw_only=True, tag="cachekit/why/1"):
    """Why a recipe misses, or that it does not.

    Attributes:
        flaw: What is wrong with the key's own record; empty where it has none.
        untrusted: Where a record of the key lies that may not be used, with the reason.
        unanswered: The remotes that may have the record, and did not give it.
        nearest: None on a hit, and where there is no record at all.
        changes: From the nearest record to the recipe.
        looked: How far each remote was searched.
    """

    recipe: str
    source: str
    status: Literal["hit", "miss", "unknown"]
    key: str
    directory: str
    remote: str
    flaw: str
    untrusted: tuple[str, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    nearest: ComparedRecord | None
    changes: tuple[Told, ...] = ()
    looked: tuple[Looked, ...] = ()


def why(session: Session, prepared: Prepared) -> Why:
    """Look a recipe up as `plan` does; on a miss find what differs from the nearest record.

    Args:
        session: Collaborators.
        prepared: The recipe.
    """
    planned = plan(prepared, session.store, session.remotes, everywhere=True)
    return Why(
        recipe=prepared.recipe.name,
        source=prepared.source,
        status=planned.status,
        key=prepared.key,
        directory=prepared.fingerprint.directory,
        remote=planned.remote,
        flaw=planned.flaw,
        untrusted=planned.untrusted,
        unanswered=unanswered(planned),
        nearest=_nearest(planned.nearest) if planned.nearest else None,
        changes=told(planned.changes, registry.adapter(prepared.fingerprint.compiler).explain),
        looked=planned.looked,
    )


def _nearest(near: Nearest) -> ComparedRecord:
    known = near.known
    return ComparedRecord(
        key=known.key,
        recipe=known.recipe,
        remote=near.place,
        directory=known.directory,
        model_type=known.model_type,
        distance=near.distance,
        graphs=known.graphs,
        bytes=known.size,
        compile_seconds=known.compile_seconds,
        created=known.created,
        by=known.by,
    )


class ComparedSide(Struct, frozen=True):
    """One of two that were compared.

    Attributes:
        name: What to call it: `bert (recipe)`.
        remote: Where a record is.
    """

    name: str
    kind: Literal["recipe", "record", "file"]
    key: str
    remote: str = ""


class Side(ComparedSide, frozen=True, kw_only=True):
    """One of two that are compared, with what is compared.

    Attributes:
        soft: What is recorded beside its key.
    """

    compiler: str
    hard: Mapping[str, Any]
    soft: Mapping[str, Any] = {}

    def shown(self) -> ComparedSide:
        """What the answer says of it."""
        return ComparedSide(self.name, self.kind, self.key, self.remote)


class Compared(Answer, frozen=True, tag="cachekit/why-compared/1"):
    """What differs from one to another: what is in the keys, and what is recorded beside them (`soft`)."""

    old: ComparedSide
    new: ComparedSide
    same: bool
    changes: tuple[Told, ...]
    soft: tuple[Told, ...]


def compare(old: Side, new: Side) -> Compared:
    """The difference between two recipes or records."""
    explain = registry.adapter(new.compiler if old.compiler == new.compiler else "").explain
    sides = ("the first", "the second")
    soft = told(difference(old.soft, new.soft), explain, sides)
    changes = told(difference(old.hard, new.hard), explain, sides)
    return Compared(old.shown(), new.shown(), not changes, changes, soft)


# What can be compared


def of_record(record: Record) -> Side:
    """A record, wherever it is from."""
    return _side(Known.of(record), record, "")


def of_recipe(prepared: Prepared) -> Side:
    """A recipe."""
    made = prepared.ingredients
    compiler = prepared.fingerprint.compiler
    return Side(prepared.source, "recipe", prepared.key, compiler=compiler, hard=made.hard, soft=made.soft)


def of_key(session: Session, beginning: str) -> Side:
    """The record whose key begins so, in the store or else on a remote.

    Raises:
        UnknownNameError: None does, or several do.
    """
    return _side(*_named(session, beginning))


def with_nearest(session: Session, beginning: str) -> tuple[Side, Side]:
    """The record whose key begins so, behind the nearest other one, as a recipe stands behind its nearest.

    Raises:
        UnknownNameError: No key begins so, or several do.
        UsageError: There is no other record.
    """
    known, record, remote = _named(session, beginning)
    wanted = Wanted(known.place, known.hard, whole=True)
    near = search(wanted, session.store, session.remotes).nearest
    if near is None:
        raise UsageError(
            f"there is no other record to compare {known.key[:16]} ({known.recipe}) with",
            hint=f"name a recipe, too: cachekit why {known.key[:16]} RECIPE",
        )
    return _side(near.known, near.record if near.remote is None else None, near.place), _side(known, record, remote)


def _named(session: Session, beginning: str) -> tuple[Known, Record | None, str]:
    """The record of a key, and where it is; whole where that is the store."""
    try:
        record = find(session.store, beginning)
    except UnknownNameError:
        # Several in the store are several; none there may be one elsewhere.
        if session.store.by_prefix(beginning):
            raise
        known, remote = by_key(beginning, session.store, session.remotes)
        if known is None:
            raise
        return known, None, remote
    return Known.of(record), record, LOCAL


def _side(known: Known, record: Record | None, remote: str) -> Side:
    name, soft = f"{known.key[:16]} ({known.recipe})", record.soft if record else {}
    return Side(name, "record", known.key, remote, compiler=known.compiler, hard=known.hard, soft=soft)


def of_file(path: Path) -> Side:
    """A record as it lies on a remote or in a store, or what `plan` and `show` print with `--format json`.

    Raises:
        UsageError: It cannot be read, or is nothing of that.
    """
    try:
        with opened(path) as source:
            document = parse(source.read(LARGEST + 1))
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=cause_of(error), hint="check the path") from error
    except DamagedRecordError as error:
        raise _strange(path, str(error)) from error
    body = document.get("record", document)
    made = body.get("ingredients", body) if isinstance(body, dict) else None
    if not isinstance(made, dict) or not isinstance(hard := made.get("hard"), dict) or not isinstance(body, dict):
        raise _strange(path, "it names no ingredients")
    soft = made.get("soft")
    soft = soft if isinstance(soft, Mapping) else {}
    try:
        key = key_of(hard)
        canonical_json([[[[[hard, soft]]]]])  # in the answer both are a part of something, too: nested deeper
    except (ValueError, RecursionError) as error:
        raise _strange(path, str(error)) from error
    if (said := body.get("key")) not in (None, key):
        if is_older(said, hard):
            raise UsageError(
                f"the key of {path} is one of an older cachekit",
                cause="it gave other keys to the same ingredients: no recipe has this one any more",
                hint="compare a record that this cachekit made",
            )
        raise _strange(path, "its ingredients do not hash to its key")
    return Side(str(path), "file", key, compiler=str(body.get("compiler", "")), hard=hard, soft=soft)


def refuse_alone(name: str) -> None:
    """Refuse a file with a record or a plan where a recipe is expected; a recipe may be JSON, too.

    Raises:
        UsageError: The name means such a file.
    """
    path = file_of_one(name)
    if path is None:
        return
    try:
        of_file(path)
    except UsageError:
        return
    raise UsageError(
        f"{path} is a record or a plan, and no recipe",
        hint=f"name what to compare it with: cachekit why {path} RECIPE",
    )


def _strange(path: Path, cause: str) -> UsageError:
    return UsageError(
        f"{path} is neither a record nor a plan",
        cause=cause,
        hint="give a record's file, or what `cachekit plan RECIPE --format json` prints",
    )


def file_of_one(name: str) -> Path | None:
    """The file that a name means, where it may hold a record or a plan; None where it means something else.

    Raises:
        UsageError: It is in a home directory that is not known.
    """
    path = named(name)
    try:
        return path if path.suffix == ".json" and path.is_file() else None
    except OSError:
        return None
