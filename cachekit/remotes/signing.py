"""The signatures that a push puts beside records: one's own over what was made here, and those that others' came with.

Signed is what others will see, after it was merged with what lies there. What was made elsewhere is never signed as
one's own, nor is what has modules of a record that nobody signed whom the settings name. A record that is written is
signed anew, so that of two statements the later one is about what lies there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from cachekit.errors import TooLargeError, UntrustedError, UsageError
from cachekit.remotes import layout
from cachekit.remotes.document import Shared
from cachekit.remotes.judging import Trust, envelopes_of
from cachekit.remotes.port import ABSENT, Storage, Write
from cachekit.store.origin import HERE, Beside, Origin, ReusedOrigin
from cachekit.store.record import Record
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.remotes.remote import Remote
    from cachekit.trust.envelope import Envelope
    from cachekit.trust.signer import Signer


def signers(raw: bytes) -> tuple[str, ...]:
    """The fingerprints of the keys that a document of signatures names; whether these hold is not looked at."""
    from cachekit.trust import envelope, sshsig

    try:
        found = [sshsig.parse(one.sig).key.fingerprint for made in envelope.decode(raw) for one in made.signatures]
    except envelope.MalformedError:
        return ()
    return tuple(sorted(set(found)))


class ToSign(Struct, frozen=True):
    """A record that a push puts on a remote, or finds there.

    Attributes:
        record: As it will lie there.
        beside: What belongs to the record of the store.
        reused: Records there of which it has modules, beyond those of the store's record.
        fresh: It is written now.
        replaces: It takes the place of one that could not be used, and so of the signatures over that.
    """

    record: Record
    beside: Beside
    reused: tuple[ReusedOrigin, ...] = ()
    fresh: bool = True
    replaces: bool = False

    __hash__ = by_value

    @property
    def origin(self) -> Origin:
        """Where it comes from, as it will lie there."""
        origin = self.beside.origin
        return structs.replace(origin, reused=tuple(dict.fromkeys((*origin.reused, *self.reused))))


class Signing:
    """What one push asks and does about signatures.

    Args:
        trust: What the run asks of records, and what signs.
        remote: Where the push goes; without one nothing lies there, as in a new bundle.
        dry_run: Only find out what would be signed.
    """

    def __init__(self, trust: Trust | None = None, remote: Remote | None = None, *, dry_run: bool = False) -> None:
        self._trust, self._remote = trust or Trust(), remote
        self._dry_run = dry_run
        self._key: str | None = None  # the fingerprint of this user's key, once it was asked for
        self._made: dict[str, Envelope] = {}  # own envelopes by the digests of their records: a lost race asks again

    def origin(
        self, shared: Shared, revision: str, envelopes: tuple[Envelope, ...] | None = None
    ) -> tuple[Origin | None, str]:
        """Why a record of the remote may be used and passed on; None where it may not, and why.

        Args:
            shared: The record.
            revision: The state that it was read in.
            envelopes: Its signatures, if it does not lie at a record's place.

        Raises:
            RemoteError, AuthError: It cannot be asked who may write there, or who signed it.
        """
        if self._remote is None:
            return HERE, ""
        try:
            self._remote.asked(revision)
            found = self._remote.judge(shared, revision, past=envelopes is not None, envelopes=envelopes)
            origin = found.origin
            if origin is None or origin.how == "signed" or (origin.how == "owner" and not self._trust.table.key):
                return origin, ""
            beside = found.beside()
        except UntrustedError as error:
            return None, error.cause
        signed = self._trust.signed(shared.record, beside) if beside else None
        reason = "" if signed else self._trust.withheld(origin)
        return (None if reason else signed or origin), reason

    def concerns(self, beside: Beside) -> bool:
        """Whether a record of the store goes with signatures."""
        return bool(self._passed_on(beside)) or self._signs(beside)

    def lacks(self, raw: bytes, beside: Beside) -> bool:
        """Whether a document of signatures names no key of this user's, whose key signs that record."""
        if not self._signs(beside):
            return False
        if self._key is None:
            self._key = ""
            with suppress(UsageError):  # told by who signs
                self._key = self._trust.signer().key.fingerprint
        return bool(self._key) and self._key not in signers(raw)

    def may_replace(self, todo: ToSign) -> bool:
        """Whether a record may take the place of another one that others use: not where they would need its signature.

        Args:
            todo: The record, as it would lie there.

        Raises:
            RemoteError, AuthError: It cannot be asked who may write there.
        """
        if self._signs(todo.beside, todo.reused):
            return not self._trust.unsignable(todo.record, todo.origin)
        return self.passes_on(todo) or not (self._remote and self._remote.demands())

    def leaves(self, theirs: Record, beside: Beside, revision: str) -> str:
        """For whose signature a record that lies there stays, although it is not used here: a name, or a fingerprint.

        A signature that nothing here can check counts. Empty where it may be replaced: nobody signed it, or the
        settings revoke all that was said; and by a record that goes with signatures, also where the settings name the
        signer, and say until when.

        Args:
            theirs: The record.
            beside: What belongs to the record of the store.
            revision: The state of the remote that it was read in.

        Raises:
            RemoteError, AuthError: It cannot be asked who signed it.
        """
        policy = self._trust.policy
        if self._remote is None or policy.revoked(theirs):
            return ""
        try:
            envelopes, _ = self._remote.signatures(theirs, revision)
        except UntrustedError:  # more of them than anybody reads
            return ""
        named = {one.key.fingerprint for one in policy.signers} if self.concerns(beside) else set[str]()
        stand = [key for key in policy.unrevoked(theirs, envelopes) if key not in named]
        return policy.names(stand)[0] if stand else ""

    def write(self, storage: Storage, revision: str, todo: ToSign, *, exists: bool) -> tuple[Write | None, bytes]:
        """What is to be written beside a record, if anything; and what lies there then.

        Args:
            storage: The remote.
            revision: Its state.
            todo: The record.
            exists: There is such a document.

        Raises:
            UsageError: The user's key cannot be used, or is revoked.
            RemoteError, AuthError: The remote fails.
        """
        from cachekit.trust import envelope
        from cachekit.trust.policy import VAIN
        from cachekit.trust.statement import holding, standing

        record, beside = todo.record, todo.beside
        path = layout.signatures_path(record.place)
        found: tuple[Envelope, ...] = ()
        token, raw = ABSENT, b""
        if exists:
            try:
                document = storage.read(path, revision, envelope.largest(record))
                token, raw = (document.token, document.data) if document else (ABSENT, b"")
                found = envelope.decode(raw) if document else ()
                found = standing(record, found, VAIN) if todo.replaces else found
            except TooLargeError as error:
                token = error.token
            except envelope.MalformedError:
                pass
        wanted = [] if todo.reused else self._passed_on(beside)
        if self._signs(beside, todo.reused):
            signer = self._trust.signer()
            if todo.fresh or not any(holding(record, found, signer.key)):
                if self._dry_run:
                    return Write(path, b"", token), b""
                wanted.append(self._own(todo, signer))
        if not (wanted or found):
            return (Write(path, None, token) if token != ABSENT else None), b""
        if all(one in found for one in wanted):
            return None, raw
        raw = envelope.fitting(record, envelope.union(wanted, found))  # the oldest are left out first
        return Write(path, raw, token), raw

    def passes_on(self, todo: ToSign) -> bool:
        """Whether a record goes with the signatures that it came with, which are over all of it."""
        return bool(not todo.reused and self._passed_on(todo.beside))

    def over(self, todo: ToSign) -> tuple[Envelope, ...]:
        """The signatures over what is added to a record; none where this user signs nothing and passes none on.

        Raises:
            UsageError: The user's key cannot be used, or is revoked.
        """
        signs = not self._dry_run and self._signs(todo.beside, todo.reused)
        passed = self._passed_on(todo.beside) if self.passes_on(todo) else []
        return (*passed, *([self._own(todo, self._trust.signer())] if signs else []))

    def _passed_on(self, beside: Beside) -> list[Envelope]:
        """The signatures that a record came with, without those by keys that are revoked: they would help nobody."""
        from cachekit.trust import sshsig
        from cachekit.trust.envelope import MalformedError

        def stands(signature: bytes) -> bool:
            try:
                return sshsig.parse(signature).key.fingerprint not in self._trust.table.revoked.keys
            except MalformedError:
                return False

        return [one for one in envelopes_of(beside) if any(stands(signature.sig) for signature in one.signatures)]

    def _signs(self, beside: Beside, reused: Sequence[ReusedOrigin] = ()) -> bool:
        """Whether this user's key signs a record: not where others would take a stranger's modules for this user's."""
        if not self._trust.table.key or beside.origin.how != "here":
            return False
        parts = (*beside.origin.reused, *reused)
        return all(one.how in {"here", "stated"} or self._trust.policy.believes(one.signers) for one in parts)

    def _own(self, todo: ToSign, signer: Signer) -> Envelope:
        from cachekit.trust.statement import sign

        digest = todo.record.digest
        if digest not in self._made:
            self._made[digest] = sign(todo.record, signer, todo.origin)
        return self._made[digest]
