"""Envelopes as they lie beside records: what is read, and what is refused."""

import base64
import json

import pytest

from cachekit.trust.envelope import (
    LARGEST,
    MOST,
    Envelope,
    MalformedError,
    Signature,
    decode,
    encode,
    fitting,
    from_document,
    largest,
    pae,
    union,
)
from tests.store.record_cases import record

ONE = Envelope(b"\xfb\xef\xff{}", "application/x", (Signature("SHA256:x", b"\xfb\xef\xff"),))


def document(**changes):
    signature = {"keyid": "k", "sig": "AAAA"} | changes.pop("signature", {})
    one = {"payload": "e30=", "payloadType": "t", "signatures": [signature]} | changes
    return {"envelopes": [{name: value for name, value in one.items() if value is not ...}]}


def test_what_is_signed_is_the_type_and_the_payload_with_their_lengths_in_bytes():
    # The example of DSSE's protocol.md.
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


def test_envelopes_come_back_as_they_were_written():
    assert decode(encode([ONE, ONE])) == (ONE, ONE)
    assert decode(encode([])) == ()
    assert encode([ONE]).endswith(b"\n")


def test_both_alphabets_of_base64_are_read_and_a_signature_needs_no_name():
    usual = encode([ONE]).decode()
    assert "++//" in usual
    assert decode(usual.replace("+", "-").replace("/x", "\0").replace("/", "_").replace("\0", "/x").encode()) == (ONE,)
    (found,) = from_document(document(signatures=[{"sig": "AAAA"}]))
    assert found.signatures == (Signature("", b"\0\0\0"),)


def test_anything_else_is_refused():
    for value in [
        [],
        {},
        {"envelopes": {}},
        {"envelopes": [], "more": 1},
        {"envelopes": [3]},
        {"envelopes": document()["envelopes"] * (MOST + 1)},
        document(payload=...),
        document(more=1),
        document(payload="e3 0="),
        document(payload="e30"),
        document(payload="e30=\n"),
        document(payload="-_+/"),
        document(payload=3),
        document(payloadType=3),
        document(payloadType="x" * 257),
        document(payloadType="é"),
        document(signatures=[]),
        document(signatures={}),
        document(signatures=[3]),
        document(signatures=[{"keyid": "k"}]),
        document(signatures=document()["envelopes"][0]["signatures"] * (MOST + 1)),
        document(signature={"more": 1}),
        document(signature={"keyid": 3}),
        document(signature={"sig": base64.b64encode(bytes(17 << 10)).decode()}),
    ]:
        with pytest.raises(MalformedError):
            from_document(value)
        with pytest.raises(MalformedError):
            decode(json.dumps(value).encode())


def test_bytes_that_are_no_document_are_refused():
    for raw in [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"envelopes": [' + b"9" * 1_000_000 + b"]}",
        b'{"envelopes": [], "envelopes": []}',
        json.dumps(document()).replace('"payload"', '"payload": "e30=", "payload"').encode(),
        b" " * (LARGEST + 1),
    ]:
        with pytest.raises(MalformedError):
            decode(raw)


@pytest.mark.parametrize("value", [b"{}", b"[" * 400 + b"]" * 400, b'{"a":' * 400 + b"1" + b"}" * 400])
def test_a_document_of_many_values_is_refused_before_it_is_read(value):
    """Anybody may have put it beside a record, and of 90 MB of empty objects Python would make 3 GB."""
    with pytest.raises(MalformedError, match="values are too many"):
        decode(b'{"envelopes": [' + b",".join([value] * 1000) + b"]}")


def test_the_most_envelopes_with_the_most_signatures_are_read():
    most = [Envelope(b"%d" % number, "t", (Signature("k", b"s"),) * 4) for number in range(MOST)]
    assert decode(encode(most)) == tuple(most)


def test_two_documents_are_one_with_each_envelope_once():
    many = [Envelope(b"%d" % number, "t", (Signature("k", b"s"),)) for number in range(20)]
    assert union([ONE], [ONE, many[0]]) == (ONE, many[0])
    assert union([ONE], many) == (ONE, *many[: MOST - 1])


def test_of_envelopes_that_are_too_large_for_a_record_the_oldest_are_left_out():
    about = record()
    assert largest(about) == (2 << 20) + 1024 * len(about.files)
    many = [Envelope(b"%d" % number * 700_000, "t", (Signature("k", b"s"),)) for number in range(5)]
    raw = fitting(about, many)
    assert len(raw) <= largest(about)
    assert decode(raw) == tuple(many[:2])
    assert decode(fitting(about, many[4:])) == tuple(many[4:])
    alone = Envelope(bytes(3 << 20), "t", (Signature("k", b"s"),))
    assert decode(fitting(about, [alone, many[0]])) == (many[0],), "nobody would read the document with it"
