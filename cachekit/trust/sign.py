"""Signing a record, and finding what one has signed of it already."""

from __future__ import annotations

from collections.abc import Sequence

from cachekit.store.origin import Origin
from cachekit.store.record import Record
from cachekit.trust.builder import Builder, builder
from cachekit.trust.envelope import Envelope, MalformedError, Signature, pae
from cachekit.trust.keys import PublicKey
from cachekit.trust.signer import Signer, holds
from cachekit.trust.sshsig import parse
from cachekit.trust.statement import PAYLOAD_TYPE, is_about, read_statement, statement_of


def sign(record: Record, signer: Signer, origin: Origin | None = None, who: Builder | None = None) -> Envelope:
    """An envelope with a statement about a record, as it stands now.

    Args:
        record: The record, exactly as others will see it.
        signer: Whose key signs.
        origin: Where the record came from, if not from nothing: what it reuses is in the statement.
        who: Who says so; this user, on this host or in this run of a CI service, where nothing is said.

    Raises:
        UsageError: The key cannot be used.
    """
    payload = statement_of(record, origin or Origin(), who or builder())
    blob = signer.sign(pae(PAYLOAD_TYPE, payload))
    return Envelope(payload, PAYLOAD_TYPE, (Signature(signer.key.fingerprint, blob),))


def signed_by(key: PublicKey, record: Record, envelopes: Sequence[Envelope]) -> Envelope | None:
    """The envelope among some in which a key signed exactly this record; None where there is none.

    Raises:
        UsageError: Nothing here can check a signature of this key.
    """
    return next((one for one in envelopes if _fits(key, record, one)), None)


def _fits(key: PublicKey, record: Record, envelope: Envelope) -> bool:
    if envelope.payload_type != PAYLOAD_TYPE:
        return False
    for signature in envelope.signatures:
        try:
            if parse(signature.sig).key == key and holds(key, signature.sig, envelope.message):
                return is_about(read_statement(envelope.payload), record)
        except MalformedError:
            continue
    return False
