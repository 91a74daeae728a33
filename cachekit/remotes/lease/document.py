"""The document of a lease: who compiles a key, and how long that is to be believed.

Nobody compares clocks. `since` and `sign` are for people to read; what counts is that the document changes while its
writer lives.
"""

from __future__ import annotations

import os
import socket
import uuid
from datetime import datetime, timezone
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from cachekit import host, process
from cachekit.config import LONGEST_LEASE
from cachekit.decode import from_json

SCHEMA = 1
LARGEST = 16 << 10  # bytes
GENERATIONS = 1 << 53

Text = Annotated[str, Meta(max_length=256)]


class Owner(Struct, frozen=True):
    """A process that compiles; `id` is random, for numbers and names come again; `machine` is the type of its host, as
    `host.product` has it; for the rest see `process.is_dead`.
    """

    host: Text
    user: Text
    pid: int
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    place: Annotated[str, Meta(max_length=64)] = ""
    began: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    machine: Annotated[str, Meta(max_length=64)] = ""

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user}@{self.host}" + (f" ({self.machine})" if self.machine else "")

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
        since: Since when, in seconds since the epoch by the owner's clock.
        recipe: What is compiled.
        held: On remotes without compare-and-swap: it has won against the others.
        sign: When the last sign of life was given, as `since`; 0 by a cachekit that did not say.
        answers: As `seconds`, once somebody has asked for signs of life; 0 where they come anyway.
        asked: Somebody has.
    """

    key: Text
    owner: Owner
    generation: Annotated[int, Meta(ge=1, le=GENERATIONS)]
    beat: Annotated[int, Meta(ge=0, le=1 << 53)]
    seconds: Annotated[float, Meta(gt=0, le=LONGEST_LEASE)]
    since: float
    recipe: Text = ""
    held: bool = True
    schema: int = SCHEMA
    sign: float = 0.0
    answers: Annotated[float, Meta(ge=0, le=LONGEST_LEASE)] = 0.0
    asked: bool = False

    @property
    def believed(self) -> float:
        """How long it may stay unchanged as it is now before others take it, in seconds."""
        return self.answers if self.asked and self.answers else self.seconds

    def __str__(self) -> str:
        since = utc(self.since)[:19].replace("T", " ")
        return f"{self.owner}, since {since} UTC by its clock" if since else str(self.owner)

    def next(self, now: float, **changes: object) -> LeaseDocument:
        """The same lease, one beat later."""
        return structs.replace(self, beat=self.beat + 1, sign=now, **changes)


def utc(stamp: float) -> str:
    """Seconds since the epoch as an ISO 8601 time; empty where they are none."""
    try:
        return datetime.fromtimestamp(stamp, timezone.utc).isoformat(timespec="seconds") if stamp else ""
    except (ValueError, OverflowError, OSError):
        return ""


def myself() -> Owner:
    """This process, under an id that nobody else has."""
    pid, user = os.getpid(), process.user_name()
    place, began, machine = process.namespace(), process.began(pid), host.product()[:64]
    return Owner(socket.gethostname()[:256], user[:256], pid, uuid.uuid4().hex, place, began, machine)


def encode(one: LeaseDocument) -> bytes:
    """The document to store."""
    return msgspec.json.encode(one) + b"\n"


def decode(data: bytes) -> LeaseDocument | None:
    """Read a document back; None where it is not a lease, or of another schema; somebody still holds that lease."""
    try:
        found = from_json(data, LeaseDocument)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found.schema == SCHEMA else None
