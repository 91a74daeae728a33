"""Who may do what: tokens, namespaces, and addresses and tokens that the Hub signs.

The Hub's contract: `Authorization: Bearer TOKEN`; a token reads or writes; a private repository does not exist for
those who may not read it. Names and values of the tokens here, and how signatures are made, are invented.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """A user as one of their tokens shows them; `role` is `write` or `read`."""

    name: str
    role: str = "write"
    orgs: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.name, *self.orgs)


WRITE_TOKEN, READ_TOKEN, OTHER_TOKEN = "hf_admin", "hf_reader", "hf_outsider"


class Accounts:
    """The tokens that the Hub knows; the three above are there from the start."""

    def __init__(self) -> None:
        self._tokens = {
            WRITE_TOKEN: Account("admin", "write", ("team",)),
            READ_TOKEN: Account("reader", "read", ("team",)),
            OTHER_TOKEN: Account("outsider"),
        }

    def add(self, token: str, account: Account) -> None:
        self._tokens[token] = account

    def remove(self, token: str) -> None:
        self._tokens.pop(token, None)

    def of(self, authorization: str | None) -> Account | None:
        """The account of a header; None without one. Raises KeyError for a token that nobody has."""
        if not authorization:
            return None
        return self._tokens[authorization.removeprefix("Bearer ").strip()]


class Signer:
    """Makes short-lived grants: `deadline.signature` over a text."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)

    def grant(self, text: str, seconds: float = 3600) -> str:
        deadline = str(int(time.time() + seconds))
        return f"{deadline}.{self._mac(f'{text}|{deadline}')}"

    def valid(self, text: str, grant: str) -> bool:
        deadline, _, mac = grant.partition(".")
        good = hmac.compare_digest(mac, self._mac(f"{text}|{deadline}"))
        return good and deadline.isdigit() and int(deadline) > time.time()

    def _mac(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:32]
