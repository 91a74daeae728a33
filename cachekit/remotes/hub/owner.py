"""Whether a repo or a bucket of the Hub belongs to this user alone.

The Hub names its owner, and says whether it is private. It must be both: private, and of the token's user or of an
organisation of this user. Whose token it is costs one request a day.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from cachekit.errors import RemoteError
from cachekit.remotes.notes import Notes

_DAY = 86400.0


class _Known(Struct, frozen=True):
    """Names that a token stood for, and when the Hub said so, in seconds since the epoch."""

    names: tuple[str, ...] = ()
    asked: float = 0.0


class Accounts:
    """The names that a token of the Hub stands for, remembered in the store for a day.

    Args:
        memory: A folder of the store for what is remembered between runs; None remembers nothing.
        endpoint: Of the Hub.
        token: The token; only its digest is written down.
        ask: Asks the Hub for its answer to `whoami`.
    """

    def __init__(self, memory: Path | None, endpoint: str, token: str, ask: Callable[[], object]) -> None:
        digest = hashlib.sha256(f"{endpoint}\0{token}".encode("utf-8", "surrogatepass")).hexdigest()
        self._notes, self._note = Notes(memory) if memory else None, f"accounts-{digest[:32]}.json"
        self._ask = ask

    def has(self, owner: str) -> bool:
        """Whether a namespace is the user's, or an organisation's of the user.

        Where the Hub cannot be asked, what was found true before still holds, however long ago that was.

        Raises:
            RemoteError, AuthError: The Hub cannot be asked, and nothing is known.
        """
        known = (self._notes.read(self._note, _Known) if self._notes else None) or _Known()
        if owner in known.names and 0 <= time.time() - known.asked < _DAY:
            return True
        try:
            names = _names(self._ask())
        except RemoteError:
            if owner in known.names:
                return True
            raise
        if self._notes:  # where the store cannot be written, the Hub is asked again
            self._notes.write(self._note, _Known(tuple(sorted(names)), time.time()))
        return owner in names


def _names(answer: object) -> set[str]:
    """The names in an answer to `whoami`: `{name, orgs: [{name, …}]}`."""
    document = answer if isinstance(answer, dict) else {}
    orgs = document.get("orgs")
    named = [document, *(orgs if isinstance(orgs, list) else [])]
    return {one["name"] for one in named if isinstance(one, dict) and isinstance(one.get("name"), str)}


def stranger(place: str, private: object, accounts: Accounts) -> str:
    """Why a repo or a bucket of the Hub does not belong to this user alone; empty where it does.

    Args:
        place: `OWNER/NAME`, as the Hub itself calls it.
        private: What the Hub says of that; only True is private.
        accounts: Whose token it is.

    Raises:
        RemoteError, AuthError: The Hub cannot be asked.
    """
    if private is not True:
        return "it is public"
    owner = place.partition("/")[0]
    if accounts.has(owner):
        return ""
    return f"it belongs to {owner}, which is neither this token's user nor an organisation of this user"
