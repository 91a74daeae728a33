"""Records: written and read back whole, also those of other versions."""

import json
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import SecretError
from cachekit.key.canonical import SCHEMA as KEY_SCHEMA
from cachekit.key.canonical import key_of
from cachekit.store.record import SCHEMA, File, Module, Provenance, check_shareable, decode, encode, to_document
from tests.store.record_cases import HARD, TEXTS, VALUES, body, digest, document, record, refused

pytestmark = pytest.mark.versions

GOLDEN = Path(__file__).parents[1] / "vectors" / "record-v1.json"


# There and back


def test_what_a_record_that_was_read_is_told_by_is_not_made_anew(monkeypatch):
    """Of 10,000 modules that takes 0.1 s, and a hit asks for it several times."""
    read = decode(encode(record()))
    left_out = decode(
        document(body(modules=[{name: x for name, x in body()["modules"][0].items() if name != "seconds"}]))
    )
    monkeypatch.setattr("cachekit.store.record.canonical_json", None)
    assert read.digest == to_document(read)["sha256"] == json.loads(encode(read))["sha256"]
    assert left_out.digest  # of the record, not of the document that leaves out what is taken for granted
    monkeypatch.undo()
    assert read.digest == record().digest
    assert left_out.digest == structs.replace(left_out).digest


DIGESTS = st.integers(0, 2**256 - 1).map("{:064x}".format)
STEPS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=6
).filter(lambda step: step not in {".", ".."})
PATHS = st.lists(STEPS, min_size=1, max_size=3).map("/".join)

SECONDS = st.floats(0, 1e6)
MAPPINGS = st.dictionaries(TEXTS, VALUES, max_size=3)
FILES = st.lists(
    st.builds(File, PATHS, st.integers(0, 2**42), DIGESTS), min_size=1, max_size=2, unique_by=lambda f: f.path
)
MODULES = st.lists(
    st.builds(Module, PATHS, FILES.map(tuple), st.none() | SECONDS), max_size=2, unique_by=lambda m: m.name
).map(tuple)
RECORDS = st.builds(
    record,
    hard=MAPPINGS,
    soft=MAPPINGS,
    compiler=TEXTS,
    directory=STEPS,
    model_type=STEPS,
    recipe=TEXTS,
    modules=MODULES,
    graphs=st.integers(0, 2**42),
    compile_seconds=SECONDS,
    provenance=st.builds(
        Provenance, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2), TEXTS
    ),
)


@settings(max_examples=60)
@given(RECORDS)
def test_any_record_is_read_back(made):
    raw = encode(made)
    assert decode(raw) == made
    assert encode(decode(raw)) == raw
    assert key_of(decode(raw).hard) == made.key


# Other versions


@pytest.mark.feature("K6")
def test_a_record_of_another_schema_is_a_miss_and_no_damage():
    for schema in [SCHEMA + 1, 99, 0, -1, 1.5, None, "1", [1], 2**70]:
        assert decode(document(body(schema=schema))) is None
        assert decode(document({"schema": schema, "of": "a shape that nobody knows yet"})) is None


@pytest.mark.feature("K6")
def test_a_record_whose_key_has_an_older_schema_is_a_miss_and_no_damage():
    for schema in range(1, KEY_SCHEMA):
        assert decode(encode(record(key=key_of(HARD, schema)))) is None
    refused(document(body(key=key_of(HARD, 0))))


@pytest.mark.feature("K6")
def test_a_damaged_record_of_another_schema_is_damage():
    raw = document(body(schema=SCHEMA + 1))
    refused(raw.replace(b"inductor", b"inductoR", 1))


@pytest.mark.feature("K6", "K5")
def test_the_record_of_the_first_schema_is_still_read():
    """Written once by the first release, never again: what it holds must always come out."""
    found = decode(GOLDEN.read_bytes())
    assert to_document(found)["record"]["schema"] == 1
    assert (
        found.key == key_of(found.hard, schema=2) == "7772929de0e6c6a6b21fbe50ab6144cb368c1fb521ad143113d1c675ee3256f5"
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


# What others may see


SECRET = 'zqsvc"value/991122'
IN_BASE64 = b64encode(f"ann:{SECRET}".encode()).decode()


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"recipe": f"bert-{SECRET}"}, "recipe"),
        ({"hard": {**HARD, "ingredient.svc": SECRET}}, "hard.ingredient.svc"),
        ({"hard": {**HARD, "command.arguments": ["--to", quote(SECRET, safe="")]}}, "hard.command.arguments.1"),
        ({"hard": {**HARD, "command.arguments": [json.dumps({"a": SECRET})]}}, "hard.command.arguments.0"),
        ({"hard": {**HARD, "command.arguments": ["--data", IN_BASE64]}}, "hard.command.arguments.1"),
        ({"hard": {**HARD, f"ingredient.{SECRET}": "1"}}, "hard.ingredient.***"),
        ({"soft": {"data.name": SECRET}}, "soft.data.name"),
        ({"modules": (Module("jit_zqsvc_991122", (File("a", 1, digest("a")),)),)}, "modules"),
    ],
)
def test_a_record_with_the_value_of_a_variable_is_not_shared(monkeypatch, changes, field):
    """However the record has it; the field is named, and the value is not."""
    one = record(**changes)
    check_shareable(one)
    monkeypatch.setenv("MY_SERVICE_TOKEN", "jit_zqsvc_991122" if field == "modules" else SECRET)
    with pytest.raises(SecretError) as refused:
        check_shareable(one)
    assert f"holds a secret in {field} (MY_SERVICE_TOKEN)" in refused.value.cause
    assert f"with MY_SERVICE_TOKEN in an environment variable alone, and not in {field}" in refused.value.hint
    assert "zqsvc" not in str(refused.value.lines())


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--api-key", "h7sh1hush"], "hard.command.arguments.2 (--api-key)"),
        (["run", "--api-key=h7sh1hush"], "hard.command.arguments.1 (--api-key)"),
        (["sh", "-c", "HF_TOKEN='h7sh1hush' run"], "hard.command.arguments.2 (HF_TOKEN)"),
        (["run", "ghp_" + "a1" * 18], "hard.command.arguments.1"),
    ],
)
def test_what_names_the_secret_is_named_with_the_field(arguments, said):
    """A variable or an option, and what to do about it."""
    with pytest.raises(SecretError) as refused:
        check_shareable(record(hard={**HARD, "command.arguments": arguments}))
    assert refused.value.cause == f"its record holds a secret in {said}"
    field, _, by = said.partition(" ")
    wanted = by.strip("()") or "the secret"
    assert refused.value.hint.endswith(f"with {wanted} in an environment variable alone, and not in {field}")
