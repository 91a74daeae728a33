"""Envelopes (DSSE): a payload, its type, and signatures over both [secure-systems-lab/dsse: envelope.md, protocol.md].

Several signers are several envelopes, so that each can be added, passed on and judged alone. They lie together in one
document, and bytes in it are base64:

    {"envelopes": [{"payload": "…", "payloadType": "…", "signatures": [{"keyid": "…", "sig": "…"}]}]}
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from cachekit.store.record import Record, no_duplicates, values_of

MOST = 16  # envelopes beside a record
_SIGNATURES = 4  # in an envelope: one of a known signer costs 10 ms to check, and anybody may write them
PAYLOAD = 64 << 20  # bytes: a statement names each file, like the record
SIGNATURE = 16 << 10  # bytes: RSA of 16384 bits has 4 kB
_TYPE = 256  # characters of a type, or of the name of a key
LARGEST = 96 << 20  # bytes of a document
_BYTES, _BYTES_PER_FILE = 2 << 20, 1 << 10  # of a document; an envelope has about 300 for each file of the record
_VALUES = 1000  # of a document; the most envelopes with the most signatures have 257


class MalformedError(ValueError):
    """Bytes that are not an envelope, a signature or a statement."""


class Signature(Struct, frozen=True):
    """One signature.

    Attributes:
        keyid: Whose it claims to be: a hint that nothing protects.
        sig: Its bytes; here always a blob of `sshsig`.
    """

    keyid: str
    sig: bytes


class Envelope(Struct, frozen=True):
    """A payload with signatures.

    Attributes:
        payload: The bytes that were signed. They are parsed only after a signature holds.
        payload_type: What they are; signed as well.
        signatures: At least one.
    """

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    @property
    def message(self) -> bytes:
        """The bytes that a signature is over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: `DSSEv1 LENGTH TYPE LENGTH PAYLOAD`, lengths in bytes."""
    name = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


def to_document(envelopes: Iterable[Envelope]) -> dict[str, Any]:
    """Envelopes as the JSON values that are kept beside a record."""
    return {"envelopes": [_written(envelope) for envelope in envelopes]}


def encode(envelopes: Iterable[Envelope]) -> bytes:
    """Envelopes as a document: one line of JSON and a newline; equal ones give equal bytes."""
    return json.dumps(to_document(envelopes), sort_keys=True, allow_nan=False).encode("ascii") + b"\n"


def from_document(document: object) -> tuple[Envelope, ...]:
    """The envelopes in a parsed document.

    Raises:
        MalformedError: It is not exactly what `to_document` makes, or beyond the limits of this module.
    """
    listed = document.get("envelopes") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(listed, list):
        raise MalformedError('expected {"envelopes": […]}')
    if len(listed) > MOST:
        raise MalformedError(f"{len(listed)} envelopes are too many: at most {MOST}")
    return tuple(_read(one) for one in listed)


def decode(raw: bytes) -> tuple[Envelope, ...]:
    """The envelopes in a document that anybody may have written.

    Raises:
        MalformedError: The bytes are no such document: see `from_document`.
    """
    if len(raw) > LARGEST:
        raise MalformedError(f"{len(raw):,} bytes are too many for signatures")
    if (values := values_of(raw)) > _VALUES:
        raise MalformedError(f"{values:,} values are too many for signatures")
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"not signatures: {error}") from error
    return from_document(document)


def largest(record: Record) -> int:
    """Bytes that the document beside a record may have; anybody may put more there, and all are read."""
    return min(LARGEST, _BYTES + _BYTES_PER_FILE * sum(len(module.files) for module in record.modules))


def too_large(most: int) -> str:
    """Why a record is not used whose document has more than these bytes: words that go on after "it is"."""
    return f"not judged, as the signatures beside it have more than {most:,} bytes"


def fitting(record: Record, envelopes: Sequence[Envelope]) -> bytes:
    """The document of envelopes over a record, which is never too large for `largest`.

    One that is too large alone is left out; where all others together would be, the last of them are.
    """
    most = largest(record)
    kept = [one for one in envelopes if len(encode([one])) <= most]
    while len(raw := encode(kept)) > most:
        kept.pop()
    return raw


def union(first: Sequence[Envelope], second: Sequence[Envelope]) -> tuple[Envelope, ...]:
    """The envelopes of two documents, each once; of more than `MOST` the last of the second are left out."""
    return tuple(dict.fromkeys((*first, *second)))[:MOST]


def _written(envelope: Envelope) -> dict[str, Any]:
    return {
        "payload": base64.b64encode(envelope.payload).decode("ascii"),
        "payloadType": envelope.payload_type,
        "signatures": [
            {"keyid": one.keyid, "sig": base64.b64encode(one.sig).decode("ascii")} for one in envelope.signatures
        ],
    }


def _read(value: object) -> Envelope:
    if not isinstance(value, dict) or value.keys() != {"payload", "payloadType", "signatures"}:
        raise MalformedError("an envelope has a payload, a payloadType and signatures, and nothing else")
    signatures = value["signatures"]
    if not isinstance(signatures, list) or not 1 <= len(signatures) <= _SIGNATURES:
        raise MalformedError(f"an envelope has 1 to {_SIGNATURES} signatures")
    return Envelope(
        _bytes(value["payload"], PAYLOAD),
        _text(value["payloadType"]),
        tuple(_signature(one) for one in signatures),
    )


def _signature(value: object) -> Signature:
    if not isinstance(value, dict) or not {"sig"} <= value.keys() <= {"sig", "keyid"}:
        raise MalformedError("a signature has a sig and perhaps a keyid, and nothing else")
    return Signature(_text(value.get("keyid", "")), _bytes(value["sig"], SIGNATURE))


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _TYPE or not value.isascii():
        raise MalformedError("the payload type, or the name of a key, is not a short text")
    return value


def _bytes(value: object, most: int) -> bytes:
    """Bytes in base64 of either alphabet, as DSSE asks of readers; nothing that is not base64 is passed over."""
    if not isinstance(value, str) or len(value) > most * 4 // 3 + 4:
        raise MalformedError("a payload or a signature is not base64, or is too long")
    if not ("+" in value or "/" in value):
        value = value.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedError("a payload or a signature is not base64") from error
