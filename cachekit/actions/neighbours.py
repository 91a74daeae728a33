"""The record with the least difference to what is wanted: in the store, and on the shared caches.

A shared cache is asked little: one listing of the records of the same compiler and model type, a second one of all
records only where nothing near is among them, and then the records themselves, in bounded number, bytes and time.
What a record is made from never changes (its key is the digest of it), so that is remembered in the store for ever,
and the listing for a moment: whoever asks again soon asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachekit.actions.neighbours_known import Fits, Known, Neighbour, Wanted, comparable
from cachekit.actions.neighbours_shared import Budget, Looked, on
from cachekit.key import nearest
from cachekit.record import IMPORTED
from cachekit.store import Store
from cachekit.tiers.chain import Chain

__all__ = ["Budget", "Known", "Looked", "Neighbour", "Search", "Wanted", "local", "search"]

DEFAULT = Budget()
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
    others = {
        record.key: record
        for record in store.records(without=IMPORTED)
        if comparable(record.model_type, wanted) and record.key != wanted.key and (fits is None or fits(record.hard))
    }
    near = nearest(wanted.hard, {key: record.hard for key, record in others.items()})
    if near is None:
        return None
    return Neighbour(Known.of(others[near[0]]), tuple(near[1]), record=others[near[0]])
