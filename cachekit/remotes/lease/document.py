"""The document of a lease: who compiles a key, and how long that is to be believed.

Nobody compares clocks. `since` is for people to read; what counts is that the document changes while its writer lives.
"""

from __future__ import annotations

import os
import socket
import uuid
from datetime import datetime, timezone
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from cachekit import process

SCHEMA = 1
LARGEST = 16 << 10  # bytes
GENERATIONS = 1 << 53
LONGEST = 24 * 3600.0  # seconds that a lease of somebody else may ask for

Text = Annotated[str, Meta(max_length=256)]


class Owner(Struct, frozen=True):
    """A process that compiles; `id` is random, for numbers and names come again; for the rest see `process.is_dead`."""

    host: Text
    user: Text
    pid: int
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    place: Annotated[str, Meta(max_length=64)] = ""
    began: Annotated[int, Meta(ge=0, le=1 << 53)] = 0

    def is_dead(self) -> bool:
        """Whether that is certain, which only processes of the same machine can know."""
        return process.is_dead(self.place, self.pid, self.began)


class LeaseDocument(Struct, frozen=True):
    """What stands in a lease.

    Attributes:
        key: Of the recipe.
        owner: Who.
        generation: Goes up by one with each owner that takes the lease of one that died.
        beat: Goes up with each sign of life.
        seconds: How long the lease may stay unchanged before others take it.
        since: Seconds since the epoch by the owner's clock.
        recipe: What is compiled.
        held: On remotes without compare-and-swap: it has won against the others.
    """

    key: Text
    owner: Owner
    generation: Annotated[int, Meta(ge=1, le=GENERATIONS)]
    beat: Annotated[int, Meta(ge=0, le=1 << 53)]
    seconds: Annotated[float, Meta(gt=0, le=LONGEST)]
    since: float
    recipe: Text = ""
    held: bool = True
    schema: int = SCHEMA

    def __str__(self) -> str:
        owner = self.owner
        try:
            since = f", since {datetime.fromtimestamp(self.since, timezone.utc):%Y-%m-%d %H:%M:%S} UTC by its clock"
        except (ValueError, OverflowError, OSError):
            since = ""
        return f"process {owner.pid} of {owner.user}@{owner.host}{since}"

    def next(self, **changes: object) -> LeaseDocument:
        """The same lease, one beat later."""
        return structs.replace(self, beat=self.beat + 1, **changes)


def myself() -> Owner:
    """This process, under an id that nobody else has."""
    pid, user = os.getpid(), process.user_name()
    return Owner(socket.gethostname()[:256], user[:256], pid, uuid.uuid4().hex, process.namespace(), process.began(pid))


# Made once, where no other thread is: msgspec learns a type at its first use.
_DECODER = msgspec.json.Decoder(LeaseDocument)


def encode(one: LeaseDocument) -> bytes:
    """The document to store."""
    return msgspec.json.encode(one) + b"\n"


def decode(data: bytes) -> LeaseDocument | None:
    """Read a document back; None where it is not a lease, or of another schema; somebody still holds that lease."""
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found.schema == SCHEMA else None
