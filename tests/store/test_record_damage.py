"""Damaged records: never believed when they changed on the way, whatever they name."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.key.canonical import SCHEMA as KEY_SCHEMA
from cachekit.key.canonical import key_of
from cachekit.store.record import SCHEMA, DamagedRecordError, File, Module, Provenance, decode, encode
from tests.store.record_cases import HARD, VALUES, body, digest, document, record, refused

pytestmark = pytest.mark.versions


@pytest.fixture(scope="module")
def small():
    """A record of few bytes, each of which is changed below."""
    return encode(record(soft={}, provenance=Provenance("2026", "0", "", "", "")))


def decoded(raw):
    """What is read, or the error."""
    try:
        return decode(raw)
    except DamagedRecordError as error:
        return error


def test_a_changed_bit_is_seen(small):
    original = decode(small)
    survivors = 0
    for place in range(len(small)):
        for bit in range(8):
            raw = bytearray(small)
            raw[place] ^= 1 << bit
            found = decoded(bytes(raw))
            assert isinstance(found, DamagedRecordError) or found == original, (place, bit)
            survivors += found == original
    assert survivors < 50, "white space, and no more, may change unseen"


def test_a_record_that_is_cut_off_or_goes_on_is_refused(small):
    for end in range(len(small) - 1):
        refused(small[:end])
    for extra in (b"x", b"{}", b"\0", small, b"]", b"null"):
        refused(small + extra)


@settings(max_examples=100)
@given(st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode("utf-8")))
def test_what_is_no_record_is_refused(raw):
    refused(raw)


def test_each_way_of_being_no_record_is_refused():
    for raw in [
        b"",
        b"null",
        b"[]",
        b'"record"',
        b"{}",
        b'{"record": {}}',
        b'{"record": {}, "sha256": ""}',
        b'{"record": null, "sha256": null}',
        b'{"record": NaN, "sha256": ""}',
        b"[" * 100_000,
        b'{"record": ' + b"1" * 5000 + b', "sha256": ""}',
        b"\xef\xbb\xbf" + encode(record()),
        encode(record()).decode("utf-8").encode("utf-16"),
        encode(record()).replace("é".encode(), "é".encode("latin-1")),
    ]:
        refused(raw)


@pytest.mark.parametrize(
    ("value", "times"),
    [(b"{}", 1_500_000), (b"[" * 400 + b"]" * 400, 3_000), (b'{"a":' * 400 + b"1" + b"}" * 400, 3_000)],
)
def test_a_document_of_millions_of_values_is_refused_before_it_is_read(value, times):
    """Anybody may have put it on a remote: of 60 MB of empty objects Python would make 3 GB."""
    raw = b'{"record": [' + b",".join([value] * times) + b"]}"
    assert "too many for a record" in str(decoded(raw))


def test_what_is_wrong_with_a_record_is_told_in_a_line_however_long_its_names_are():
    assert len(str(decoded(document({**body(), "x" * 200_000: 1})))) < 400


ILL_FITTING = [
    *({name: ...} for name in ("key", "modules", "provenance", "hard")),
    *({"key": key} for key in ("abc", key_of(HARD).upper(), digest("another"), key_of(HARD, KEY_SCHEMA + 1))),
    *({"hard": hard} for hard in ({**HARD, "task": "other"}, {}, [])),
    *({"graphs": count} for count in (-1, 1.5, "4")),
    *({"compile_seconds": seconds} for seconds in (-0.1, None)),
    *({"modules": modules} for modules in ({}, [{}])),
    {"provenance": {}},
    {"new": 1},
]


def test_a_record_that_does_not_fit_the_schema_or_its_key_is_refused():
    for changes in ILL_FITTING:
        refused(document(body(**changes)))


def test_a_document_with_more_or_less_than_a_record_and_its_digest_is_refused():
    whole = json.loads(encode(record()))
    for wrong in ({**whole, "extra": 1}, {"record": whole["record"]}, {"sha256": whole["sha256"]}):
        refused(json.dumps(wrong).encode())
    for wrong in (whole["sha256"].upper(), whole["sha256"][:-1], whole["sha256"] + "0", "", None, 5, [whole["sha256"]]):
        refused(json.dumps({**whole, "sha256": wrong}).encode())
    for inner in (5, None, [], "text", [{"schema": SCHEMA}]):
        refused(document(inner))


def test_a_name_that_stands_twice_is_refused(small):
    """Whichever of the two counted, somebody else's reader might take the other."""
    text = small.decode("utf-8")
    for name in ('"graphs": 4', '"key": ', '"record": {', '"sha256": "', '"size": 10', '"task": "'):
        assert text.count(name) == 1 or name == '"sha256": "'
        twice = text.replace(name, f"{name.partition(':')[0]}: null, {name}", 1)
        refused(twice.encode("utf-8"))


HOSTILE = ["", "/", "a\\b", "..\\a", "a\0b", "a" * 1025]
HOSTILE += [*[".", "..", "../a", "a/..", "a/../b", "a/../../b", "/a", "//a", "a//b", "a/", "./a", "a/.", "a/./b"]]


def test_a_name_that_could_leave_its_folder_is_refused():
    for name in HOSTILE:
        good = File("a", 1, digest("a"))
        for changes in (
            {"modules": (Module(name, (good,)),)},
            {"modules": (Module("m", (good, msgspec.structs.replace(good, path=name))),)},
        ):
            refused(encode(record(**changes)))


def test_a_record_that_would_lie_elsewhere_can_neither_be_made_nor_read():
    """One step of a path, and no more: so `Store.publish` cannot be given one."""
    for name in [*HOSTILE, "a/b", "a\n", "\x1b[31mred", "\x9b31m"]:
        for field in ["directory", "model_type"]:
            with pytest.raises(ValueError, match="cannot name a folder of records"):
                record(**{field: name})
            refused(document(body(**{field: name})))


def test_a_name_that_stays_inside_is_kept():
    for name in ["a", "a/b", "...", "..a", "a..", "a/..b", ".a", "a b", "é/😀", "inductor-2.13.0/x-1/f.tar"]:
        step = name.replace("/", "-")
        made = record(modules=(Module(name, (File(name, 1, digest("a")),)),), directory=step, model_type=step)
        assert decode(encode(made)) == made


def test_a_files_digest_is_64_hex_digits():
    for sha256 in [
        "",
        "a" * 63,
        "a" * 65,
        "A" * 64,
        "g" * 64,
        digest("a") + "\n",
        "\n" + digest("a"),
        "../" + "a" * 61,
    ]:
        refused(encode(record(modules=(Module("m", (File("a", 1, sha256),)),))))


def test_modules_without_files_negative_sizes_and_names_that_stand_twice_are_refused():
    """Two files of one name could not both be restored, and nobody can say which was meant."""
    one, two = File("a", 1, digest("a")), File("a", 2, digest("b"))
    for modules in (
        (Module("m", (File("a", -1, digest("a")),)),),
        (Module("m", ()),),
        (Module("m", (one, two)),),
        (Module("m", (one,)), Module("m", (two,))),
    ):
        refused(encode(record(modules=modules)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: 2}, "\ud800"])
def test_what_has_no_json_form_is_not_written(value):
    with pytest.raises((ValueError, TypeError)):
        encode(msgspec.structs.replace(record(), soft={"a": value}))
