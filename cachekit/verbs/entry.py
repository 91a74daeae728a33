"""What a person names: a recipe, or the key of one; and options that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit.errors import IntegrityError, UnknownNameError, UntrustedError, UsageError
from cachekit.key.canonical import DIGITS, FEWEST_DIGITS
from cachekit.recipe import zoo
from cachekit.text import first_of

if TYPE_CHECKING:
    from cachekit.compilers.elsewhere import Elsewhere
    from cachekit.recipe.variant import Variant
    from cachekit.store import IndexRow, Store
    from cachekit.store.record import Record


HEXADECIMAL = frozenset("0123456789abcdef")


def check_contradiction(*, require_warm: bool, recache: bool) -> None:
    """Refuse to compile what must not be compiled.

    Raises:
        UsageError: Both were asked for.
    """
    if require_warm and recache:
        raise UsageError(
            "--require-warm and --recache contradict each other",
            cause="one forbids compiling, and the other asks for it",
            hint="leave one of them out",
        )


class Named(Struct, frozen=True):
    """What a person means.

    Attributes:
        key: The key, or the first digits of one.
        recipe: The recipe's name, if it was one.
    """

    key: str
    recipe: str = ""


def named(variant: Variant, machine: Elsewhere) -> Named:
    """The key of a recipe; a name that is not a recipe's is taken for the beginning of a key.

    Args:
        variant: The recipe, or the key.
        machine: Which the recipe's key is for.

    Raises:
        UnknownNameError: It is neither.
        UsageError: Changes of a recipe are said with a key.
    """
    name = variant.name
    try:
        if name:
            zoo.recipe_path(name)
    except UnknownNameError as error:
        if is_key(name):
            return Named(unchanged(variant))
        if HEXADECIMAL.issuperset(name.lower()):
            raise UnknownNameError(
                error.message,
                hint=f"if it is meant as a key, give {FEWEST_DIGITS} digits or more: `cachekit store ls`",
            ) from None
        raise UnknownNameError(
            error.message, cause="nor is it the beginning of a key, which has the digits 0-9 and a-f", hint=error.hint
        ) from None
    loaded = variant.load()
    return Named(machine.prepare(loaded).key, loaded.name)


def is_key(name: str) -> bool:
    """Whether a name can be the beginning of a key."""
    return len(name) >= FEWEST_DIGITS and HEXADECIMAL.issuperset(name.lower())


def unchanged(variant: Variant) -> str:
    """The beginning of the key that somebody named.

    Raises:
        UsageError: Changes are said with it, as of a recipe.
    """
    if variant.overrides or variant.tiny:
        raise UsageError(
            f"{variant.name} is a key, and --set and --tiny change a recipe",
            hint="leave them out, or name the recipe",
        )
    return variant.name.lower()


def means_key(name: str) -> bool:
    """Whether a name is the beginning of a key, and no recipe's."""
    try:
        zoo.recipe_path(name)
    except UnknownNameError:
        return is_key(name)
    return False


def one_of(names: Iterable[str], beginning: str, what: str, hint: str) -> str:
    """The one key that begins so.

    Args:
        names: Keys.
        beginning: What somebody typed.
        what: What has these keys: `record`.
        hint: Where to look them up, where none begins so.

    Raises:
        UnknownNameError: None does, or several do; or there are too few digits to say so.
    """
    if len(beginning) < FEWEST_DIGITS:
        raise UnknownNameError(f"{beginning!r} is too short for a key", hint=f"give {FEWEST_DIGITS} digits or more")
    found = [name for name in names if name.startswith(beginning.lower())]
    if len(found) == 1:
        return found[0]
    if len(beginning) == DIGITS:
        raise UnknownNameError(f"no {what} has the key {beginning[:16]}", hint=hint)
    raise UnknownNameError(
        f"{len(found)} {what}s begin with {beginning!r}" if found else f"no {what} begins with {beginning!r}",
        cause=first_of((name[:16] for name in found), 5),
        hint="give more digits" if found else hint,
    )


def find(store: Store, beginning: str) -> Record:
    """The record whose key begins so.

    Raises:
        UnknownNameError: None does, or several do.
        UntrustedError: It is there, and the settings do not let it be used.
        IntegrityError: It is there, and damaged.
    """
    row = row_of(store.by_prefix(beginning), beginning)
    record = store.read(row.place)
    if record is None and (refused := store.refusal.of(row.key)):
        from cachekit.remotes.judging import advice

        message = f"the store's record {row.key[:12]} is not used"
        raise UntrustedError(message, cause=f"it is {refused.reason}", hint=advice(refused.helps))
    if record is None and (flaw := store.flaw(row.key)):
        raise IntegrityError(
            f"the store's record {row.key[:12]} cannot be used", cause=flaw, hint="warm its recipe again, or pull it"
        )
    if record is None:
        raise UnknownNameError(f"no record begins with {beginning!r}", cause="it was removed a moment ago")
    return record


def row_of(rows: Iterable[IndexRow], beginning: str) -> IndexRow:
    """The one row of the store's index whose key begins so.

    Raises:
        UnknownNameError: None does, or several do.
    """
    found = {row.key: row for row in rows}
    hint = "`cachekit store ls` lists the keys; for a recipe use `cachekit plan`"
    return found[one_of(found, beginning, "record", hint)]
