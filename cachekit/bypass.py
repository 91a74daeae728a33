"""Why a run went without the cache, or without a part of it: one table of reasons, counted by name.

Each time is an event of the journal, `cache.bypass`, with `reason` (a name of the table) and `detail`. It is not the
place where people are told: what they must know is told as it happens, by the event that belongs to it.
"""

from __future__ import annotations

from cachekit.journal import Journal

EVENT = "cache.bypass"

REASONS = {
    "recache": "the user asked to compile although a record was there (--recache)",
    "caching-off": "the compiler kept nothing of what it compiled: its own cache is switched off",
    "compiler-bypass": "the compiler's own cache refused a graph",
    "compiler-not-keyed": "the compiler cannot be looked at, so there is no key",
    "store-unreadable": "the key's record in the store cannot be read",
    "store-damaged": "the key's record in the store, or a file of it, is damaged or missing",
    "store-schema": "the key's record in the store is one that only another cachekit reads",
    "store-not-writable": "the store cannot be written: read-only, no permission, or no space",
    "not-kept": "what compiled could not be kept, for a reason of its own",
    "live-root-unusable": "the place where the compiler should look cannot be used",
    "restore-refused": "the record could not be restored",
    "module-left": "a module of the record was not restored: what stands in its place must not be touched",
    "tier-offline": "a shared cache was not asked: no connection may be opened",
    "tier-failed": "a shared cache could not be reached, or gave up",
    "tier-skipped": "a shared cache was left alone, as it had failed a moment ago",
    "tier-refused": "a shared cache did not let us in",
    "tier-untrusted": "a shared cache may hold what somebody else made, and nobody said to trust it",
    "tier-damaged": "what a shared cache has for the key is not what it should be",
    "tier-write-only": "a shared cache was not asked, as the chain says only to write there",
    "tier-read-only": "what compiled was not put on a shared cache, as the chain says only to read there",
    "push-failed": "what compiled could not be put on a shared cache",
}


def bypass(journal: Journal, reason: str, detail: str = "") -> None:
    """Note that this run goes without the cache, or a part of it.

    Args:
        journal: The run's; it counts.
        reason: A name of `REASONS`.
        detail: What in particular: a shared cache's name, a path, a cause.
    """
    assert reason in REASONS, reason
    journal.count(EVENT, reason)
    journal.emit(EVENT, reason=reason, detail=detail)


def bypassed(journal: Journal) -> dict[str, int]:
    """How often in this run, by reason."""
    return journal.counted(EVENT)
