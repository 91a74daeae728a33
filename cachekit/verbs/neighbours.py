"""The record with the least difference to what is wanted: in the store, and on the shared caches.

A shared cache is asked little: one listing of the records of the same compiler and model type, a second one of all
records only where nothing near is among them, and then the records themselves, in bounded number, bytes and time.
What a record is made from never changes (its key is the digest of it), so that is remembered in the store for ever,
and the listing for a moment: whoever asks again soon asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachekit.errors import AuthError, RemoteError, UnknownNameError
from cachekit.key.canonical import difference
from cachekit.remotes.chain import Chain
from cachekit.store import Store
from cachekit.verbs.nearest_here import nearest_here
from cachekit.verbs.neighbours_known import Fits, Known, Neighbour, Wanted, comparable
from cachekit.verbs.neighbours_shared import DEFAULT, Budget, Looked, on, with_key

__all__ = ["Budget", "Known", "Looked", "Neighbour", "Search", "Wanted", "by_key", "local", "search"]

LEAST = 10  # no two records are nearer than that (see key.WEIGHTS): nobody need be asked for a nearer one


@dataclass(frozen=True, slots=True)
class Search:
    """The nearest record, and where it was sought beside the store."""

    neighbour: Neighbour | None
    looked: tuple[Looked, ...] = ()


def search(
    wanted: Wanted,
    store: Store,
    chain: Chain | None = None,
    *,
    fits: Fits | None = None,
    budget: Budget = DEFAULT,
    here: Neighbour | None = None,
) -> Search:
    """Find the record with the least difference; of equally near ones that in the store.

    A shared cache that cannot be asked is told to the chain, and passed over.

    Args:
        wanted: What for; its own record is never its neighbour.
        store: The local store.
        chain: The shared caches; those that can be read are asked.
        fits: Which records come into question; all by default.
        budget: What each shared cache may cost.
        here: The nearest in the store, where the caller has it already.
    """
    best = here or local(wanted, store, fits)
    looked = []
    for remote in chain.readable if chain else ():
        if best is not None and best.distance <= LEAST:
            break
        found, how_far, failure = on(remote, wanted, store, budget, fits)
        looked.append(how_far)
        if failure is not None and chain is not None:
            chain.failed(remote, failure)
        if found is not None and (best is None or found.rank < best.rank):
            best = found
    return Search(best, tuple(looked))


def local(wanted: Wanted, store: Store, fits: Fits | None = None) -> Neighbour | None:
    """The nearest record in the store."""
    record = nearest_here(
        store, wanted.hard, lambda one: comparable(one.model_type, wanted) and one.key != wanted.key, fits
    )
    if record is None:
        return None
    return Neighbour(Known.of(record), tuple(difference(record.hard, wanted.hard)), record=record)


def by_key(beginning: str, store: Store, chain: Chain) -> tuple[Known | None, str]:
    """The one record on the shared caches whose key begins so, and where; nothing where there is none.

    Raises:
        UnknownNameError: Several begin so.
    """
    found: dict[str, tuple[Known, str]] = {}
    for remote in chain.readable:
        try:
            for known in with_key(remote, store, beginning):
                found.setdefault(known.key, (known, remote.name))
        except (RemoteError, AuthError) as error:
            chain.failed(remote, error)
    if len(found) > 1:
        raise UnknownNameError(
            f"{len(found)} records begin with {beginning!r}",
            cause=", ".join(sorted(key[:16] for key in found)[:5]),
            hint="give more digits",
        )
    return next(iter(found.values()), (None, ""))
