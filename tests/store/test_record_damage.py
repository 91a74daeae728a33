"""Damaged records: never believed when they changed on the way, whatever they name."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def unchanged_or_refused(raw, original):
    found = decoded(raw)
    return isinstance(found, DamagedRecordError) or found == original


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


@pytest.mark.parametrize("byte", [0x00, 0x09, 0x20, 0x22, 0x2C, 0x2E, 0x30, 0x39, 0x5C, 0x65, 0x7B, 0x7D, 0x80, 0xFF])
def test_a_changed_byte_is_seen(small, byte):
    original = decode(small)
    for place in range(len(small)):
        assert unchanged_or_refused(small[:place] + bytes([byte]) + small[place + 1 :], original), place
        assert unchanged_or_refused(small[:place] + bytes([byte]) + small[place:], original), place


def test_a_missing_byte_is_seen(small):
    original = decode(small)
    for place in range(len(small)):
        assert unchanged_or_refused(small[:place] + small[place + 1 :], original), place


def test_a_truncated_record_is_refused(small):
    for end in range(len(small) - 1):
        refused(small[:end])


def test_what_follows_a_record_is_refused(small):
    for extra in (b"x", b"{}", b"\0", small, b"]", b"null"):
        refused(small + extra)


@settings(max_examples=300)
@given(st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode("utf-8")))
def test_what_is_no_record_is_refused(raw):
    refused(raw)


@pytest.mark.parametrize(
    "raw",
    [
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
    ],
)
def test_each_way_of_being_no_record_is_refused(raw):
    refused(raw)


@pytest.mark.parametrize("inner", [5, None, [], "text", [{"schema": SCHEMA}]])
def test_a_body_that_is_no_mapping_is_refused(inner):
    refused(document(inner))


@pytest.mark.parametrize(
    "changes",
    [
        {"key": digest("another")},
        {"hard": {**HARD, "task": "other"}},
        {"hard": {}},
        {"key": key_of(HARD, schema=2)},
    ],
)
def test_a_record_whose_ingredients_do_not_give_its_key_is_refused(changes):
    refused(document(body(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"key": ...},
        {"modules": ...},
        {"provenance": ...},
        {"hard": ...},
        {"new": 1},
        {"key": "abc"},
        {"key": key_of(HARD).upper()},
        {"graphs": -1},
        {"graphs": 1.5},
        {"graphs": "4"},
        {"compile_seconds": -0.1},
        {"compile_seconds": None},
        {"hard": []},
        {"modules": {}},
        {"modules": [{}]},
        {"provenance": {}},
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_refused(changes):
    refused(document(body(**changes)))


def test_a_document_with_more_or_less_than_a_record_is_refused():
    whole = json.loads(encode(record()))
    for wrong in ({**whole, "extra": 1}, {"record": whole["record"]}, {"sha256": whole["sha256"]}):
        refused(json.dumps(wrong).encode())


def test_a_digest_is_lower_case_and_whole():
    whole = json.loads(encode(record()))
    for wrong in (whole["sha256"].upper(), whole["sha256"][:-1], whole["sha256"] + "0", "", None, 5, [whole["sha256"]]):
        refused(json.dumps({**whole, "sha256": wrong}).encode())


def test_a_name_that_stands_twice_is_refused(small):
    """Whichever of the two counted, somebody else's reader might take the other."""
    text = small.decode("utf-8")
    for name in ('"graphs": 4', '"key": ', '"record": {', '"sha256": "', '"size": 10', '"task": "'):
        assert text.count(name) == 1 or name == '"sha256": "'
        twice = text.replace(name, f"{name.partition(':')[0]}: null, {name}", 1)
        refused(twice.encode("utf-8"))


HOSTILE = [
    "",
    ".",
    "..",
    "../a",
    "a/..",
    "a/../b",
    "a/../../b",
    "/a",
    "/",
    "//a",
    "a//b",
    "a/",
    "./a",
    "a/.",
    "a/./b",
    "a\\b",
    "..\\a",
    "a\0b",
    "a" * 1025,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_leave_its_folder_is_refused(name):
    good = File("a", 1, digest("a"))
    for changes in (
        {"modules": (Module(name, (good,)),)},
        {"modules": (Module("m", (good, msgspec.structs.replace(good, path=name))),)},
        {"directory": name},
        {"model_type": name},
    ):
        refused(encode(record(**changes)))


@pytest.mark.parametrize("field", ["directory", "model_type"])
def test_what_says_where_a_record_lies_is_one_step_of_a_path(field):
    refused(encode(record(**{field: "a/b"})))


@pytest.mark.parametrize(
    "name", ["a", "a/b", "...", "..a", "a..", "a/..b", ".a", "a b", "é/😀", "inductor-2.13.0/x-1/f.tar"]
)
def test_a_name_that_stays_inside_is_kept(name):
    step = name.replace("/", "-")
    made = record(modules=(Module(name, (File(name, 1, digest("a")),)),), directory=step, model_type=step)
    assert decode(encode(made)) == made


@pytest.mark.parametrize(
    "sha256", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, digest("a") + "\n", "\n" + digest("a"), "../" + "a" * 61]
)
def test_a_files_digest_is_64_hex_digits(sha256):
    refused(encode(record(modules=(Module("m", (File("a", 1, sha256),)),))))


def test_a_file_has_a_size_and_a_module_has_files():
    refused(encode(record(modules=(Module("m", (File("a", -1, digest("a")),)),))))
    refused(encode(record(modules=(Module("m", ()),))))


def test_two_files_or_modules_of_one_name_are_refused():
    """They could not both be restored, and which of them was meant nobody can say."""
    one, two = File("a", 1, digest("a")), File("a", 2, digest("b"))
    refused(encode(record(modules=(Module("m", (one, two)),))))
    refused(encode(record(modules=(Module("m", (one,)), Module("m", (two,))))))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: 2}, "\ud800"])
def test_what_has_no_json_form_is_not_written(value):
    with pytest.raises((ValueError, TypeError)):
        encode(msgspec.structs.replace(record(), soft={"a": value}))
