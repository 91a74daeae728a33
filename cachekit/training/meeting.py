"""The machines that train together: before a run all of them meet, and until its end each knows of the others.

They meet at the address and port of the first one, where the workers meet a moment later: so no other port must be
open, and whoever is missing, or is about to run something else, is named before torch waits for it without a word. The
connections stay open meanwhile: a machine that dies closes its own, and the others say which one it was, where torch
says `Connection closed by peer`.

Each message is a line of JSON. Nobody proves who they are, as nobody does to torch at the same port: nothing of a
message is run, what another machine says is only shown, and shortened, and the hints are this machine's own, as is the
exit code: of a failure elsewhere, a training that failed. Whoever sends too much is put off.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct, structs

from cachekit.compilers import Node
from cachekit.decode import from_json
from cachekit.errors import (
    CachekitError,
    ErrorDocument,
    MachineGoneError,
    TrainingError,
    UsageError,
    WaitedTooLongError,
    from_code,
)
from cachekit.text import cause_of, cut, duration
from cachekit.training.link import ANSWER, POLL, Connection, listening
from cachekit.training.participant import Participant, judged

BEGINS = b'{"cachekit":"meeting/1"}'  # what the first machine says first: torch's store, at the same port, says nothing
PAUSE = 0.5  # seconds between two tries to reach the first machine
GRACE = 10.0  # seconds in which the machine whose failure made this one fail is heard of
SILENT = 30.0  # seconds after which a connection that has said nothing is closed
WAITING = 64  # connections that have said nothing yet, at most: others wait until one of them is closed
SHOWN = 1000  # characters of what another machine says went wrong
# What the first machine finds out of the meeting; whatever else it says is a failure.
_FOUND = {one.code for one in (MachineGoneError, UsageError, WaitedTooLongError)}
ALIKE = "run the same command on all machines, with the same versions, and a different --node-rank on each"
# How a run fails because another one did [torch 2.13: gloo, NCCL, TCPStore].
_CONSEQUENCE = re.compile(r"by peer|broken pipe|gloo|nccl|connection (?:refused|closed)|timed out", re.IGNORECASE)

Told = Callable[[str, float], object]  # who is waited for, and for how long already


class _Word(Struct, omit_defaults=True):
    """What is said after that: go on, I have ended, or this went wrong."""

    go: bool = False
    ended: bool = False
    error: ErrorDocument | None = None


class Meeting:
    """The other machines of a run; the first one has a connection to each, and the others one to the first.

    Args:
        me: This machine.
        place: Its place.
        told: Is told who is waited for.
    """

    def __init__(self, me: Participant, place: Node, told: Told) -> None:
        self.me, self.place, self._told = me, place, told
        self.participants = [me]
        self._links: dict[int, Connection] = {}
        self._known: CachekitError | None = None  # what was found out about another one
        self._later: tuple[float, CachekitError] | None = None  # a failure that another one may have caused

    def gather(self, wait: float) -> None:
        """On the first machine: wait until all others have come, and see that they are to run the same.

        Raises:
            WaitedTooLongError: Some have not come in time.
            UsageError: They are not to run the same; or the port is taken.
        """
        began, come = time.monotonic(), dict[int, Participant]()
        coming: list[Connection] = []
        with listening(self.place) as server:
            while len(come) < self.me.nodes - 1:
                if len(coming) < WAITING:
                    with suppress(OSError):
                        coming.append(Connection(server.accept()[0]))
                        coming[-1].tell(BEGINS)
                else:
                    time.sleep(POLL)
                for rank in [rank for rank in come if self._links[rank].line() or self._links[rank].over]:
                    self._links.pop(rank).peer.close()  # it went away, and may come again
                    del come[rank]
                for link in list(coming):
                    if line := link.line():
                        self._admit(link, line, come)
                    elif link.over or time.monotonic() - link.since > SILENT:
                        link.peer.close()
                    else:
                        continue
                    coming.remove(link)
                waited = time.monotonic() - began
                missing = [f"node {rank}" for rank in range(1, self.me.nodes) if rank not in come]
                if missing and waited > wait:
                    here = ", ".join(str(one) for one in (self.me, *come.values()))
                    raise self._refused(
                        WaitedTooLongError(
                            f"{' and '.join(missing)} of {self.me.nodes} did not arrive within {duration(wait)}",
                            cause=f"here are: {here}",
                            hint="start the same command on all machines; --wait says for how long they wait",
                        )
                    )
                if missing:
                    self._told(" and ".join(missing), waited)
        for link in coming:
            link.peer.close()
        self.participants = [self.me, *(come[rank] for rank in sorted(come))]
        try:
            wrong = judged(self.participants)
        except (RecursionError, ValueError):  # nested too deeply, or numbers that are too large
            wrong = UsageError(
                "what another machine says about itself cannot be compared",
                hint="let only the machines of the training reach --master-port",
            )
        if wrong:
            raise self._refused(wrong)
        self._tell_all(_Word(go=True))

    def _admit(self, link: Connection, line: bytes, come: dict[int, Participant]) -> None:
        try:
            one = from_json(line, Participant)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            link.peer.close()  # no machine of ours
            return
        if one.rank in come or not 0 < one.rank < self.me.nodes:
            other = come.get(one.rank, self.me)
            error = UsageError(
                f"{one.host} and {other.host} both say that they are node {one.rank}"
                if one.rank in come or one.rank == 0
                else f"{one} is not one of {self.me.nodes} machines",
                hint="give each machine a different --node-rank, from 0",
            )
            link.tell(msgspec.json.encode(_Word(error=_short(error.document))))
            link.peer.close()
            return
        come[one.rank], self._links[one.rank] = one, link

    def join(self, wait: float) -> None:
        """On another machine: go to the first one, and wait until all are there.

        Raises:
            WaitedTooLongError: The first one does not answer in time, or others have not come.
            UsageError: They are not to run the same.
            MachineGoneError: The first machine went away.
        """
        began, first = time.monotonic(), f"{self.place.address}:{self.place.port}"
        while True:
            trouble, unknown = "something else answers at that port", ""
            try:
                peer = socket.create_connection((self.place.address, self.place.port), ANSWER)
                if peer.getsockname() != peer.getpeername():  # Linux may connect a socket of one host with itself
                    link = Connection(peer)
                    if link.line(ANSWER) == BEGINS:
                        break
                peer.close()
            except OSError as error:
                trouble = cause_of(error)
                unknown = f" ({trouble})" if isinstance(error, socket.gaierror) else ""  # may be known later
            waited = time.monotonic() - began
            if waited > wait:
                raise WaitedTooLongError(
                    f"node 0 did not answer at {first} within {duration(wait)}",
                    cause=trouble,
                    hint="start the same command there; its firewall or security group must let that port through",
                )
            self._told(f"node 0 at {first}{unknown}", waited)
            time.sleep(PAUSE)
        self._links[0] = link
        link.tell(msgspec.json.encode(self.me))
        began = time.monotonic()
        while (waited := time.monotonic() - began) < wait + ANSWER:  # it has its own bound, and says who is missing
            if line := link.line(POLL):
                word = _word(line)
                if word.error is not None:
                    raise self._raised(word.error)
                if word.go:
                    return
            if link.over:
                break
            self._told("the other machines", waited)
        raise self._gone(0)

    def look(self) -> None:
        """While the run goes on.

        Raises:
            CachekitError: Another machine failed, or went away; the first one names it to all.
        """
        failed: CachekitError | None = None
        for rank, link in list(self._links.items()):
            word = _word(link.line())
            if word.ended or link.over:
                self._links.pop(rank).peer.close()
            if word.error is not None:
                link.failed = True
                error = self._raised(word.error) if self.me.rank else self._failed(rank, word.error)
                if self.me.rank or not _follows(word.error):
                    failed = failed or error
                else:
                    self._later = self._later or (time.monotonic(), error)
            elif link.over and not (word.ended or link.failed):
                raise self._refused(self._gone(rank))
        if failed is None and self._later is not None and time.monotonic() - self._later[0] > GRACE:
            failed = self._later[1]
        if failed is not None:
            raise self._refused(failed)

    def instead(self, error: CachekitError) -> CachekitError:
        """This machine's run has failed: tell the others; returns what to raise: another's failure, if it was that."""
        if error is self._known:
            return error
        if self.me.rank:
            self._tell_all(_Word(error=_short(error.document)))
        until = time.monotonic() + (GRACE if _follows(error.document) else 0.0)
        while self._links:
            try:
                self.look()
            except CachekitError as other:
                return other
            if time.monotonic() >= until:
                break
            time.sleep(POLL)
        if not self.me.rank:
            self._refused(self._failed(0, error.document))
        return error

    def end(self) -> None:
        """This machine's part of the run has ended well."""
        self._tell_all(_Word(ended=True))

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.peer.close()
        self._links.clear()

    def _refused(self, error: CachekitError) -> CachekitError:
        """Where this is the first machine, all others get the error, too."""
        self._known = error
        if not self.me.rank:
            self._tell_all(_Word(error=_short(error.document)))
        return error

    def _tell_all(self, word: _Word) -> None:
        for link in self._links.values():
            link.tell(msgspec.json.encode(word))

    def _name(self, rank: int) -> str:
        return next((str(one) for one in self.participants if one.rank == rank), f"node {rank} ({self.place.address})")

    def _failed(self, rank: int, error: ErrorDocument) -> CachekitError:
        return TrainingError(
            f"{self._name(rank)} failed",
            cause=": ".join(filter(None, [error.message, error.cause])),
            hint="see what the command printed on that machine",
        )

    def _raised(self, error: ErrorDocument) -> CachekitError:
        hint = ALIKE if error.code == UsageError.code else self._again
        code = error.code if error.code in _FOUND else TrainingError.code
        return from_code(code, error.message, cause=error.cause, hint=hint)

    @property
    def _again(self) -> str:
        resume = "; --resume auto continues from the last checkpoint" if self.me.mode == "train" else ""
        return f"start the command again on all machines{resume}"

    def _gone(self, rank: int) -> CachekitError:
        return MachineGoneError(
            f"{self._name(rank)} went away",
            cause="its connection broke without warning: the machine, its network or its command died",
            hint=self._again,
        )


@contextmanager
def meeting(me: Participant, place: Node, wait: float, told: Told) -> Iterator[Meeting]:
    """Meet the other machines of a run, and stay in touch with them; see `Meeting`.

    Args:
        me: This machine.
        place: Its place.
        wait: Seconds to wait for the others.
        told: Is told who is waited for.

    Raises:
        CachekitError: As `Meeting.gather` and `Meeting.join`; what the block raises, or the failure behind it.
    """
    met = Meeting(me, place, told)
    try:
        if me.rank:
            met.join(wait)
        else:
            met.gather(wait)
        try:
            yield met
        except CachekitError as error:
            other = met.instead(error)
            if other is error:
                raise
            raise other from error
        met.end()
    finally:
        met.close()


def _word(line: bytes) -> _Word:
    try:
        word = from_json(line, _Word)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _Word()
    return word if word.error is None else structs.replace(word, error=_short(word.error))


def _short(error: ErrorDocument) -> ErrorDocument:
    """An error as other machines tell it: of a length that can be read."""
    return structs.replace(error, message=cut(error.message, SHOWN), cause=cut(error.cause, SHOWN), hint="")


def _follows(error: ErrorDocument) -> bool:
    """Whether a failure looks like the consequence of another machine's."""
    return bool(_CONSEQUENCE.search(f"{error.message} {error.cause}"))
