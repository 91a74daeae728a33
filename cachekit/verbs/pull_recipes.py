"""What `cachekit pull` does for a recipe: find it on the shared caches, whatever is remembered, and fetch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cachekit.values import by_value
from cachekit.verbs.obtain import fetch
from cachekit.verbs.plan import plan
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.session import Session, holding


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one thing that was to be pulled.

    Attributes:
        name: The recipe, or the compiler's folder.
        state: `present` is in the store already, `absent` in no shared cache.
        key: Of the record.
        tier: Where it came from.
        files: Files that were fetched.
        size: Bytes that were, or would be, fetched.
        present: Bytes that the store had.
        seconds: Wall time.
        modules: Those that were, or would be, fetched by their names.
        left: Those that were not, because they are not finished or not to be used, and why.
    """

    name: str
    state: Literal["fetched", "would-fetch", "present", "absent"]
    key: str
    tier: str = ""
    files: int = 0
    size: int = 0
    present: int = 0
    seconds: float = 0.0
    modules: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "state": self.state,
            "key": self.key,
            "tier": self.tier,
            "files": self.files,
            "bytes": self.size,
            "present": self.present,
            "seconds": round(self.seconds, 3),
            "modules": list(self.modules),
            "left": [{"module": name, "reason": reason} for name, reason in sorted(self.left.items())],
        }


@holding
def pull_recipe(session: Session, prepared: Prepared, *, dry_run: bool = False) -> Outcome:
    """Have a recipe's record in the store.

    Raises:
        RemoteError, AuthError: A cache has it, and it could not be fetched.
        IntegrityError: What a cache has is not what its record says.
        StoreError: The store cannot be written.
    """
    for remote in session.chain.readable:
        remote.retry()
    planned = plan(prepared, session.store, session.chain, anew=True)
    name = prepared.recipe.name
    if planned.record is None:
        session.chain.raise_failure()
        return Outcome(name, "absent", prepared.key)
    if planned.found is None:
        return Outcome(name, "present", prepared.key, present=planned.record.size)
    tier = planned.found.remote.name
    if dry_run:
        present = planned.record.size - planned.fetch
        return Outcome(name, "would-fetch", prepared.key, tier, size=planned.fetch, present=present)
    done = fetch(session, planned.found)
    return Outcome(name, "fetched", prepared.key, done.tier, done.files, done.size, done.present, done.seconds)
