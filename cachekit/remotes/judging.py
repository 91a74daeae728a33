"""What a run asks of records before they are used: the settings, with what a command narrows or leaves out.

Where only this user, or an organisation of this user, can write, nothing is asked by default; elsewhere a signature by
somebody whom the settings name. What is distrusted is never remembered beyond the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from cachekit.config_trust import Mode, TrustTable
from cachekit.errors import Helps, UntrustedError
from cachekit.store import staying
from cachekit.store.origin import HERE, Beside, How, Origin, ReusedOrigin, marks_of, reused_modules
from cachekit.store.record import Module, Record
from cachekit.store.refusal import Refused
from cachekit.text import cut, one_line, spelled
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.remotes.index import Known
    from cachekit.store import Store
    from cachekit.trust.envelope import Envelope
    from cachekit.trust.policy import Judgement, Policy
    from cachekit.trust.signer import Signer
    from cachekit.trust.statement import StatedReuse

_NAME = 80  # characters of a stranger's name that are shown
_CODE = "a compiler cache is code, which runs on this machine"
_TABLE = (
    'put trust = "all" next to its url ([remotes.NAME] in cachekit.toml; trust = "owner" for a bucket that only your '
    "own people can write to, or a bundle of theirs), or pass --trust-all"
)
HINT = (
    f"{_CODE}: let its maker sign it (`cachekit trust init`, then `cachekit push`), and name the signer "
    f"(`cachekit trust add NAME KEY`); or, if you trust everybody who may write there, {_TABLE}"
)
_HINT_REVOKED = (
    f"{_CODE}, and what is revoked is not used, whoever vouches for it: compile it here (`cachekit warm RECIPE`), or "
    "look at [trust.revoked] in your settings"
)
_HINT_AGAIN = (
    f"{_CODE}: let a signer whom you trust sign it again (`cachekit push`), or compile it here (`cachekit warm RECIPE`)"
)
HINT_BARE = f"{_CODE}: if you trust everybody who may write there, {_TABLE}"
HINT_BUNDLE = (
    f"{_CODE}: if you trust who made it, name the signer's key (`cachekit trust add NAME KEY`), or pass --trust-all"
)
HINT_FOLDER = f"{_CODE}: if you trust who made it, pass --trust-all"
_UNKNOWN = (
    "of unknown origin: there is no note of yours that says who made it (`cachekit warm RECIPE` compiles it again, "
    "--trust-all uses it)"
)
# For a record that others made.
OWN = (
    "if it is signed, name the signer (`cachekit trust add NAME KEY`); if its maker has signed it since it came here, "
    "remove it (`cachekit store rm KEY`) and fetch it again; or compile it here (`cachekit warm RECIPE --recache`)"
)


class Trust(Struct, frozen=True):
    """What a run asks of records.

    Attributes:
        table: Whose records are used, and what signs one's own.
        said: What tables say of remotes, by the names of those; a remote of which nothing is said is not there.
        only: What a command narrows that to: `signed` asks for a signature everywhere, `owner` wherever others can
            write.
        everything: A command said to use what anybody made.
    """

    table: TrustTable = TrustTable()
    said: Mapping[str, Mode] = {}
    only: Literal["", "owner", "signed"] = ""
    everything: bool = False

    __hash__ = by_value

    def mode(self, remote: str) -> Mode:
        """What is asked of records of a remote or a bundle."""
        return self.asks(self.said.get(remote, ""))

    def asks(self, said: Mode | Literal[""]) -> Mode:
        """What is asked of records of a place, by what the settings say of it; empty is nothing."""
        if self.only:
            return "signed" if "signed" in {self.only, said} else "owner"
        return "all" if self.everything else said or "owner"

    @property
    def signs(self) -> str:
        """Who asks for signatures everywhere: a sentence for people."""
        return "--trust asks for signatures" if self.only == "signed" else "the settings ask for signatures"

    def vouches(self, remote: str) -> bool:
        """Whether the settings say that only this user's own people can write there."""
        return self.said.get(remote) == "owner"

    @property
    def policy(self) -> Policy:
        """Whose signatures count.

        Raises:
            UsageError: A signer's key is none.
        """
        return _policy(self.table)

    def signer(self) -> Signer:
        """What signs this user's records, where the table names a key.

        Raises:
            UsageError: The key cannot be used, or is revoked.
        """
        from cachekit.trust.signer import signer_of

        found = signer_of(self.table.key)
        self.table.check_signs(found.key.fingerprint)
        return found

    def asked(self, record: Record, beside: Callable[[Record], Beside], strange: str) -> Refused | None:
        """Why a record of the store may not be used; None where it may, as most: they are this user's by now.

        What came by a signature needs one of its signers still. What came by --trust-all stays, as somebody said so of
        that record; a command that narrows what is asked leaves it out.

        Args:
            record: The record.
            beside: Gives what is kept beside it.
            strange: Why others can have put it there; empty where they cannot.
        """
        origin = beside(record).origin
        if strange and not self.everything:
            verdict = self.policy.judge(record, envelopes_of(beside(record)), mode="signed")
            if not verdict.trusted:  # a note that somebody else can have written says nothing, whatever it holds
                known = origin.how or verdict.helps == "nothing"
                reason, helps = (verdict.reason, verdict.helps) if known else (_UNKNOWN, "anew")
                return Refused(f"{reason}; {strange}", revoked=False, helps=helps)
        if not (origin.how or self.everything):  # whoever removed the note may be whom it named
            return Refused(_UNKNOWN, revoked=False, helps="anew")
        if origin == HERE and not self.table.revokes:
            return None
        if self.table.revokes and (reason := self.policy.revoked(record, origin)):
            return Refused(reason)
        sources = [(origin.remote, origin.how), *((one.remote, one.how) for one in origin.reused)]
        if self.only:
            enough = {"here", "signed", "stated", self.only}
            lacking = [remote for remote, how in sources if how not in enough]
            if lacking and self.signed(record, beside(record)) is None:
                lacks = " and not signed, which --trust signed asks for"
                if self.only == "owner":
                    lacks = ", not a place of yours, and not signed: --trust owner asks for one of the two"
                return Refused(f"from {lacking[0]}{lacks}", revoked=False, helps="signer")
        lost = None if self.everything else self._lost(origin)
        return lost if lost and self.signed(record, beside(record)) is None else None

    def _lost(self, origin: Origin) -> Refused | None:
        """What was taken for a signature by somebody whom the settings do not believe now, and why; or nothing.

        What a signer only said of other records rests on that signer alone.
        """
        sources = [("", origin.remote, origin.how, origin.signers)]
        sources += [(f"made by reuse of {one.key[:12]} ", one.remote, one.how, one.signers) for one in origin.reused]
        for what, remote, how, signers in sources:
            if how == "signed" and not self.policy.believes(signers):
                why, helps = self.policy.unbelieved(signers, once=True)
                return Refused(f"{what}from {remote}, {why}", revoked=False, helps=helps)
        return None

    def unpublishable(self, record: Record, beside: Beside) -> str:
        """Why a record of the store may not be given to others; empty where it may.

        What was taken unasked is as good as signed once the settings name somebody who signed it.

        Args:
            record: The record.
            beside: What is kept beside it.
        """
        if self.table.revokes and (reason := self.policy.revoked(record, beside.origin)):
            return reason
        reason = self.withheld(beside.origin)
        signed = self.signed(record, beside) if reason else None
        return reason if signed is None else self.withheld(signed)

    def unshared(self, record: Record, beside: Beside) -> str:
        """Why a record of the store is not signed, nor given to others; empty where it may be.

        Args:
            record: The record.
            beside: What is kept beside it.
        """
        return self.unpublishable(record, beside) or self.unsignable(record, beside.origin)

    def unsignable(self, record: Record, origin: Origin) -> str:
        """Why no reader would accept what this user's key would say of a record; empty where they would."""
        from cachekit.trust.statement import fits

        if not (self.table.key and origin.reused) or fits(record, origin):
            return ""
        return f"it reuses {len(origin.reused):,} records, more than a signature may say"

    def signed(self, record: Record, beside: Beside) -> Origin | None:
        """The origin of a record as if it came now; None where nobody whom the settings name signed it."""
        verdict = self.policy.judge(record, envelopes_of(beside), mode="signed")
        return origin_of(beside.origin.remote, verdict) if verdict.trusted else None

    def withheld(self, origin: Origin) -> str:
        """Why what came from somewhere may not be given to others; empty where it may."""
        if origin == HERE:
            return ""
        sources = [("it", origin.remote, origin.how, origin.signers)]
        sources += [(f"{one.key[:12]}, which it reuses,", one.remote, one.how, one.signers) for one in origin.reused]
        for what, remote, how, signers in sources:  # of one key perhaps several states
            if not how:
                return f"it is not known where {what} came from"
            believed = self.policy.believes(signers)
            if how == "signed" and not believed:
                return f"{what} came from {remote}, {self.policy.unbelieved(signers)[0]}"
            if how == "owner" and self.said.get(remote) == "signed" and not believed:
                return f"{what} came unsigned from {remote}, which now asks for signatures"
            if how == "all" and self.said.get(remote) != "all":
                return f"{what} came from {remote}, where nobody checked who made it"
        return ""


@cache
def _policy(table: TrustTable) -> Policy:
    from cachekit.trust.policy import policy_of

    return policy_of(table)


def envelopes_of(beside: Beside) -> tuple[Envelope, ...]:
    """The signatures that a record of the store came with; none where somebody spoilt the note."""
    from cachekit.trust.envelope import MalformedError, from_document

    try:
        return from_document({"envelopes": list(beside.envelopes)})
    except MalformedError:
        return ()


def beside_of(record: Record, origin: Origin, envelopes: Sequence[Envelope]) -> Beside:
    """What the store keeps beside a record that was taken: also who signed it where nobody asked for that."""
    if not envelopes:
        return Beside(origin)
    from cachekit.trust.envelope import to_document
    from cachekit.trust.statement import holding, standing

    envelopes = standing(record, envelopes)  # a push passes them on
    if origin.how != "signed":
        found = [(key.fingerprint, statement) for _, key, statement in holding(record, envelopes)]
        keys = tuple(dict.fromkeys(key for key, _ in found))
        told = {(one.key, one.record) for one in origin.reused}  # and why they were taken
        said = (one for _, statement in found for one in statement.predicate.reused)
        unasked = (one for one in said if (one.key, one.record) not in told)
        reused = dict.fromkeys((*origin.reused, *_reused(origin.remote, unasked, origin.how)))
        origin = structs.replace(origin, signers=keys, reused=tuple(reused))
    return Beside(origin, tuple(to_document(envelopes)["envelopes"]))


def not_used(store: Store, modules: Sequence[Module], tree: Path | None = None) -> dict[str, str]:
    """Which of these bare modules the settings do not let be used, from wherever they come, and why; by name.

    Args:
        store: The store.
        modules: The modules.
        tree: The folder in which they lie, if any; see `staying.reused`.
    """
    found: dict[str, str] = {}
    for other, beside in store.refusal.known(modules, tree):
        if refused := store.refusal.judged_found(other, beside):
            digests = {file.sha256 for module in reused_modules(modules, other) for file in module.files}
            whose = f"it is of the record {other.key[:12]}, and that record is {refused.reason}"
            found |= {one.name: whose for one in modules if not digests.isdisjoint(marks_of(one))}
    return found


def none_used(place: str, refused: Mapping[str, str]) -> UntrustedError:
    """The error for a place that has nothing but modules which are `not_used`."""
    name, why = next(iter(refused.items()))
    return UntrustedError(
        f"{place} is not used: it holds {name}", cause=why, hint=f"{_CODE}: remove {name} there, or make it again"
    )


def best(helps: Iterable[Helps | Literal[""]]) -> Helps | Literal[""]:
    """What helps with the most of what is not used; empty where nothing is said."""
    said = set(helps)
    order: tuple[Helps, ...] = ("signer", "anew", "nothing")
    return next((one for one in order if one in said), "")


def advice(helps: Helps | Literal[""], otherwise: str = HINT) -> str:
    """What the user may do where records are not used.

    Args:
        helps: What helps.
        otherwise: What to say where a signature, or the name of its signer, is all that a record lacks.
    """
    return {"nothing": _HINT_REVOKED, "anew": _HINT_AGAIN}.get(helps, otherwise)


def unreadable(verdict: Judgement, damage: str) -> tuple[str, Helps]:
    """Why a record is not used, also where what lies beside it as its signatures cannot be read; and what helps."""
    if damage and verdict.helps == "signer":
        return f"beside signatures that cannot be read ({one_line(damage)})", "anew"
    return verdict.reason, verdict.helps


def beside_found(store: Store, record: Record, origin: Origin, tree: Path | None = None) -> Beside:
    """What the store keeps beside a record of bare modules: what it knows of them already is not forgotten.

    Args:
        store: The store.
        record: The record that they become, without those that are `not_used`.
        origin: What the place says where they lay.
        tree: The folder in which they lay, if any; see `staying.reused`.
    """
    known = store.refusal.known(record.modules)
    return store.origins.found(origin, known, staying.reused(store.layout, record.modules, tree) if tree else ())


def origin_of(remote: str, verdict: Judgement) -> Origin:
    """The origin of a record that was taken from a remote."""
    remote = spelled(remote)
    return Origin(remote, verdict.how, verdict.keys, _reused(remote, verdict.reused))


def _reused(remote: str, reused: Iterable[StatedReuse], how: How | None = None) -> tuple[ReusedOrigin, ...]:
    """What a record of a remote reuses, as a statement says; taken as the record was, where that is given."""
    return tuple(
        ReusedOrigin(one.key, one.record, remote, one.taken if how is None else how, one.signers, one.created)
        for one in reused
    )


def refusal(place: str, why: str, hint: str) -> UntrustedError:
    """The error for a place whose contents are not used.

    Args:
        place: The name of the remote, the bundle or the folder.
        why: What makes it untrusted: a sentence about the place.
        hint: What the user may say.
    """
    return UntrustedError(f"{place} is not used: somebody else may have made what it holds", cause=why, hint=hint)


def untrusted(remote: str, record: Record, reason: str, helps: Helps, demands: str = "") -> UntrustedError:
    """The error for a record that lies on a remote, and is not used.

    Args:
        remote: Its name.
        record: The record.
        reason: Words that go on after "there, but it is".
        helps: What helps.
        demands: Why it needs a signature, if it does; what is revoked would not be used with one.
    """
    cause = f"a record of this key is there, but it is {reason}"
    cause += f"; {demands}" if demands and helps != "nothing" else ""
    error = UntrustedError(f"{named(record)} on {remote} is not used", cause=cause, hint=advice(helps))
    error.helps = helps
    return error


def named(record: Record | Known) -> str:
    """A stranger's record for people."""
    return f"{name_of(record)} ({record.key[:12]})"


def name_of(record: Record | Known) -> str:
    """The name of a stranger's recipe as it is shown: it may hold anything, and be of any length."""
    return one_line(cut(record.recipe, _NAME))
