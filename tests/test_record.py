"""Records: written, read back whole, and never believed when they changed on the way."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.key import canonical_json, key_of
from cachekit.record import SCHEMA, DamagedRecordError, File, Module, Provenance, Record, decode, encode

GOLDEN = Path(__file__).parent / "vectors" / "record-v1.json"
HARD = {"task": "text-classification", "model.config.layer_norm_eps": 1e-12, "compiler.flags": ["-b", "-a"], "é": None}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def record(**changes):
    hard = changes.pop("hard", HARD)
    return Record(
        **{
            "key": key_of(hard),
            "compiler": "inductor",
            "directory": "inductor-2.13.0",
            "model_type": "bert",
            "recipe": "demo",
            "hard": hard,
            "soft": {"training.seed": 42},
            "modules": (Module("inductor-2.13.0/x86/a.tar", (File("a.tar", 10, digest("a")),), 1.5),),
            "graphs": 4,
            "compile_seconds": 29.7,
            "provenance": Provenance(
                "2026-01-01T00:00:00Z", "0.1.0", "me", "here", "Linux", {"torch": "2.13.0"}, "trn1"
            ),
            **changes,
        }
    )


def document(body):
    """A document around a body, with the digest that belongs to it."""
    return json.dumps({"record": body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()}).encode("utf-8")


def body(**changes):
    """The body of a record, fields changed; `...` leaves one out."""
    plain = {**msgspec.to_builtins(record()), **changes}
    return {name: value for name, value in plain.items() if value is not ...}


def refused(raw):
    with pytest.raises(DamagedRecordError) as caught:
        decode(raw)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value)


# There and back


def test_a_record_is_read_back():
    raw = encode(record())
    assert decode(raw) == record()
    assert raw.endswith(b"}\n")
    assert raw.count(b"\n") == 1
    assert encode(decode(raw)) == raw


def test_a_record_knows_its_files():
    files = (File("b", 2, digest("b")), File("c/d", 3, digest("c")))
    made = record(modules=(Module("m", files[:1]), Module("n", files[1:])))
    assert made.files == files
    assert made.size == 5
    assert record(modules=()).size == 0


def test_a_record_is_readable():
    found = json.loads(encode(record()))
    assert set(found) == {"record", "sha256"}
    assert found["record"]["hard"] == HARD
    assert found["record"]["schema"] == SCHEMA
    assert "é".encode() in encode(record())


DIGESTS = st.integers(0, 2**256 - 1).map("{:064x}".format)
STEPS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=6
).filter(lambda step: step not in {".", ".."})
PATHS = st.lists(STEPS, min_size=1, max_size=3).map("/".join)
TEXTS = st.text(max_size=6)
SECONDS = st.floats(0, 1e6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
MAPPINGS = st.dictionaries(TEXTS, VALUES, max_size=3)
FILES = st.lists(
    st.builds(File, PATHS, st.integers(0, 2**62), DIGESTS), min_size=1, max_size=2, unique_by=lambda f: f.path
)
MODULES = st.lists(
    st.builds(Module, PATHS, FILES.map(tuple), st.none() | SECONDS), max_size=2, unique_by=lambda m: m.name
).map(tuple)
RECORDS = st.builds(
    record,
    hard=MAPPINGS,
    soft=MAPPINGS,
    compiler=TEXTS,
    directory=PATHS,
    model_type=PATHS,
    recipe=TEXTS,
    modules=MODULES,
    graphs=st.integers(0, 2**62),
    compile_seconds=SECONDS,
    provenance=st.builds(
        Provenance, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2), TEXTS
    ),
)


@settings(max_examples=150, deadline=None)
@given(RECORDS)
def test_any_record_is_read_back(made):
    raw = encode(made)
    assert decode(raw) == made
    assert encode(decode(raw)) == raw
    assert key_of(decode(raw).hard) == made.key


# Damage


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


@settings(max_examples=300, deadline=None)
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


@pytest.mark.parametrize(
    "name", ["a", "a/b", "...", "..a", "a..", "a/..b", ".a", "a b", "é/😀", "inductor-2.13.0/x-1/f.tar"]
)
def test_a_name_that_stays_inside_is_kept(name):
    made = record(modules=(Module(name, (File(name, 1, digest("a")),)),), directory=name, model_type=name)
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


# Other versions


@pytest.mark.feature("K6")
@pytest.mark.parametrize("schema", [SCHEMA + 1, 99, 0, -1, 1.5, None, "1", [1], 2**70])
def test_a_record_of_another_schema_is_a_miss_and_no_damage(schema):
    assert decode(document(body(schema=schema))) is None
    assert decode(document({"schema": schema, "of": "a shape that nobody knows yet"})) is None


@pytest.mark.feature("K6")
def test_a_damaged_record_of_another_schema_is_damage():
    raw = document(body(schema=SCHEMA + 1))
    refused(raw.replace(b"inductor", b"inductoR", 1))


@pytest.mark.feature("K6", "K5")
def test_the_record_of_the_first_schema_is_still_read():
    """Written once by the first release, never again: what it holds must always come out."""
    found = decode(GOLDEN.read_bytes())
    assert found.schema == 1
    assert (
        found.key == key_of(found.hard, schema=1) == "1c27780351308a9b13b2b935726e7e22f1b38454da425610eeee7d5bce0934fa"
    )
    assert (found.compiler, found.directory, found.model_type, found.recipe) == (
        "inductor",
        "inductor-2.13.0",
        "bert",
        "demo",
    )
    assert found.hard["training.adam_epsilon"] == 1e-8
    assert found.hard["target.isa"] == ["avx", "avx2", "fma"]
    assert found.soft["training.learning_rate"] == 2e-4
    assert [module.name for module in found.modules] == [
        "inductor-2.13.0/x86_64-avx2-0123abcd/" + digest("first") + ".tar",
        "inductor-2.13.0/x86_64-avx2-0123abcd/" + digest("second") + ".tar",
    ]
    assert found.files == (
        File(digest("first") + ".tar", 1_048_576, digest("first")),
        File(digest("second") + ".tar", 10_240, digest("second")),
    )
    assert (found.modules[0].seconds, found.modules[1].seconds) == (27.25, None)
    assert (found.graphs, found.compile_seconds) == (4, 29.7)
    assert found.provenance == Provenance(
        created="2026-01-02T03:04:05Z",
        cachekit="0.1.0",
        user="zoë",
        host="trainer-1",
        platform="Linux-6.1-x86_64-with-glibc2.36",
        toolchain={"torch": "2.13.0+cpu", "transformers": "5.23.0"},
        instance="trn1.2xlarge",
    )
