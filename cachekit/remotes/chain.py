"""The shared caches of a run, in order: the first that has a record serves it.

`local:rw,team:r` names the local store first, then what `[tiers.team]` in cachekit.toml says, read-only. A tier can
also be named by its address: `hf://team/cache:rw`, `s3://bucket/prefix`, `/mnt/efs/cache`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit.errors import AuthError, CachekitError, RemoteError, SkippedError, UsageError
from cachekit.events import Journal, bypass
from cachekit.remotes.layout import LOCAL, Place
from cachekit.store.record import DamagedRecordError, Record
from cachekit.text import has_secret, redacted

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found, Remote

# Compiled when a chain has something to look at.
ADDRESS = r"^(?:hf://|s3://|file://|/|~|\.)"
_SCHEME = r"(?i)^[a-z][a-z0-9+.-]*://"


class Link(Struct, frozen=True):
    """One entry of a chain.

    Attributes:
        name: As it was written: a name or an address.
        address: Where it is; empty for the local store.
        readable: Hits are taken from it.
        writable: What is new is put there.
        options: Further settings of its table: `endpoint`, `region`.
    """

    name: str
    address: str
    readable: bool
    writable: bool
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Link({self.name!r}, {self.address!r}, options={redacted(self.options)})"


def parse(entries: Sequence[str], tables: Mapping[str, Mapping[str, str]]) -> tuple[Link, ...]:
    """Read a chain.

    Args:
        entries: `NAME[:r|w|rw]` each; `r` where nothing is said, but `rw` for the local store.
        tables: What names stand for: an `url`, and options.

    Raises:
        UsageError: A name that no table has, one that stands twice, or no local store in the first place.
    """
    links = []
    for entry in entries:
        matched = re.fullmatch(r"(.+?)(?::(r|w|rw))?", entry.strip())
        name, policy = (matched[1], matched[2]) if matched else (entry, None)
        if name == LOCAL:
            if (policy or "rw") != "rw":
                raise UsageError(
                    f"{entry}: the local store is always read and written",
                    hint="for one that must not change, make its folder read-only; it still serves its hits",
                )
            links.append(Link(LOCAL, "", readable=True, writable=True, options={}))
            continue
        table = tables.get(name)
        _check_words(name, str(table["url"]) if table else "", tables)
        if table is None and not re.match(ADDRESS, name):
            known = ", ".join(sorted({LOCAL, *tables}))
            raise UsageError(
                f"no cache is called {name!r}",
                cause=f"known are {known}, and addresses: hf://OWNER/NAME, s3://BUCKET/PREFIX, /FOLDER",
                hint=f'add [tiers.{name}] with url = "…" to cachekit.toml, or run `cachekit hub use OWNER/NAME`',
            )
        options = {key: str(value) for key, value in (table or {}).items() if key != "url"}
        address = str(table["url"]) if table else name
        links.append(
            Link(name, address, readable="r" in (policy or "r"), writable="w" in (policy or "r"), options=options)
        )
    names = [link.name for link in links]
    places = {(link.address, *sorted(link.options.items())) for link in links}
    if names[:1] != [LOCAL] or len(set(names)) < len(names) or len(places) < len(names):
        raise UsageError(
            f"the chain {','.join(entries)} cannot be used",
            cause="it begins with the local store, and each cache stands in it once",
            hint="--cache local:rw,NAME:r",
        )
    return tuple(links)


def _check_words(name: str, url: str, tables: Mapping[str, Mapping[str, str]]) -> None:
    """Say what is wrong with an entry, where that can be told better than by an unknown name."""
    address = url or name
    if has_secret(name) or has_secret(address):  # which is not repeated
        table = f": [tiers.{name}]" if url and not has_secret(name) else ""
        raise UsageError(
            f"the address of a cache has no room for a token{table}",
            cause="it is written to settings, logs and screens",
            hint="hf auth login, or set HF_TOKEN; for S3 AWS_PROFILE, or the usual variables",
        )
    known, _, policy = name.rpartition(":")
    if not url and (known == LOCAL or known in tables or (re.match(ADDRESS, known) and not policy.startswith("/"))):
        raise UsageError(
            f"{name}: nobody knows what {policy!r} allows",
            hint="one of r (take hits), w (put there), rw (both)",
        )
    scheme = re.match(_SCHEME, address)
    if scheme and not re.match(ADDRESS, address):
        raise UsageError(
            f"{name}: {scheme[0]} leads to no cache" if not url else f"[tiers.{name}]: {url} leads to no cache",
            hint="hf://OWNER/NAME, hf://datasets/…, hf://buckets/…, s3://BUCKET/PREFIX, or a folder",
        )


class Chain:
    """The shared caches of a run, nearest first.

    Args:
        remotes: Without the local store.
        journal: Told once about each that fails.
        offline: Those that are left out, because no connection may be opened: names, and what makes them.
    """

    def __init__(
        self,
        remotes: Sequence[Remote] = (),
        journal: Journal | None = None,
        offline: Mapping[str, Callable[[], Remote]] | None = None,
    ) -> None:
        self.offline = dict(offline or {})
        self._remotes = tuple(remotes)
        self._journal = journal or Journal(None, "")
        self._told: set[str] = set()
        self._failure: RemoteError | AuthError | None = None

    def __bool__(self) -> bool:
        return bool(self._remotes)

    @property
    def readable(self) -> tuple[Remote, ...]:
        """Those that hits are taken from."""
        return tuple(remote for remote in self._remotes if remote.readable)

    @property
    def writable(self) -> tuple[Remote, ...]:
        """Those that take what is new."""
        return tuple(remote for remote in self._remotes if remote.writable)

    def postpone(self, record: Record) -> None:
        """Note a record for those that are left out now, for a push later."""
        for make in self.offline.values():
            with suppress(CachekitError):  # a package that it needs is missing, say: it is not used now
                remote = make()
                if remote.writable:
                    remote.keep_pending(record, "offline")

    def above(self, remote: Remote) -> tuple[Remote, ...]:
        """Those nearer than this one, which a hit fills."""
        return tuple(other for other in self._remotes[: self._remotes.index(remote)] if other.writable)

    def find(self, directory: str, model_type: str, key: str, *, anew: bool = False) -> Found | None:
        """The record of a key from the first that has it; one that fails is told, and passed over.

        Args:
            directory: The compiler's.
            model_type: As in the record.
            key: The key.
            anew: Ask, whatever is remembered.
        """
        for remote in self.readable:
            try:
                found = remote.find(directory, model_type, key, anew=anew)
            except (RemoteError, AuthError) as error:
                self.failed(remote, error)
            except DamagedRecordError as error:
                self._journal.emit("remote.damaged", tier=remote.name, key=key, reason=str(error))
                bypass(self._journal, "tier-damaged", remote.name)
            else:
                if found is not None:
                    return found
        return None

    def find_all(self, places: Sequence[Place], *, anew: bool = False) -> dict[str, Found]:
        """The records of many keys, by key, as `find` finds each; a cache is asked once which of them it has.

        Args:
            places: Where records lie.
            anew: Ask, whatever is remembered.
        """
        found: dict[str, Found] = {}
        for remote in self.readable:
            left = [place for place in dict.fromkeys(places) if place.key not in found]
            if not left:
                break
            try:
                answer = remote.find_all(left, anew=anew)
            except (RemoteError, AuthError) as error:
                self.failed(remote, error)
                continue
            found |= answer.found
            for key, damage in answer.damaged.items():
                self._journal.emit("remote.damaged", tier=remote.name, key=key, reason=str(damage))
                bypass(self._journal, "tier-damaged", remote.name)
            if answer.error is not None:
                self.failed(remote, answer.error)
        return found

    def raise_failure(self) -> None:
        """Raise what the first cache that failed in this run failed with; nothing where none did."""
        if self._failure is not None:
            raise self._failure

    def failed(self, remote: Remote, error: RemoteError | AuthError) -> None:
        """Tell, once in a run, that a cache is not used."""
        self._failure = self._failure or error
        if remote.name in self._told:
            return
        self._told.add(remote.name)
        self._journal.emit(
            "remote.failed",
            tier=remote.name,
            code=error.code,
            reason=error.cause or error.message,
            hint=error.hint,
            skipped=isinstance(error, SkippedError),
        )
        kind = "skipped" if isinstance(error, SkippedError) else "refused" if isinstance(error, AuthError) else "failed"
        bypass(self._journal, f"tier-{kind}", remote.name)
