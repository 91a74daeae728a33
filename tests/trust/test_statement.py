"""What is signed of a record: an in-toto Statement about all of its files and where it came from."""

import json

import pytest
from msgspec import structs

from cachekit.errors import UsageError
from cachekit.store.origin import Origin, ReusedOrigin
from cachekit.store.record import File, Module, to_document
from cachekit.trust.envelope import MalformedError, Signature
from cachekit.trust.signer import signer_of
from cachekit.trust.statement import holding, is_about, moment, read_statement, sign, standing, statement_of
from tests.store.record_cases import HARD, digest, record
from tests.trust.trust_cases import ME, TODAY, _forgets, envelope, key, key_file  # noqa: F401 - fixtures

REUSING = Origin(reused=(ReusedOrigin(digest("k"), digest("r"), "team", "signed", (key(1).fingerprint,)),))
NEURON = Module("neuronxcc-2/MODULE_1", (File("model.neff", 9, digest("n")), File("flags.json", 2, digest("f"))))


def document(**changes):
    return {**json.loads(statement_of(record(), Origin(), ME, TODAY)), **changes}


@pytest.mark.feature("T3")
def test_it_is_a_statement_that_tools_of_in_toto_read():
    hard = {**HARD, "target.arch": "trn1"}
    one = record(hard=hard, modules=(NEURON,))
    said = json.loads(statement_of(one, REUSING, ME, TODAY))
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["subject"] == [
        {"name": "neuronxcc-2/MODULE_1/flags.json", "digest": {"sha256": digest("f")}},
        {"name": "neuronxcc-2/MODULE_1/model.neff", "digest": {"sha256": digest("n")}},
    ]
    assert said["predicate"] == {
        "record": to_document(one)["sha256"],
        "key": one.key,
        "directory": "inductor-2.13.0",
        "model_type": "bert",
        "compiler": "inductor",
        "ingredients": hard,
        "toolchain": {"torch": "2.13.0"},
        "target": {"arch": "trn1"},
        "reused": [{"key": digest("k"), "record": digest("r"), "signers": [key(1).fingerprint], "created": ""}],
        "builder": {"user": "me", "host": "here", "ci": None},
        "created": TODAY,
    }


def test_it_is_read_back_and_is_about_that_record_only():
    found = read_statement(statement_of(record(), REUSING, ME))
    assert is_about(found, record())
    assert found.predicate.reused[0].key == digest("k")
    (module,) = record().modules
    (file,) = module.files
    for other in (
        record(model_type="gpt2"),
        record(directory="inductor-2.12.0"),
        record(hard={"other": 1}),
        record(graphs=5),
        record(soft={}),
        record(modules=(structs.replace(module, files=(structs.replace(file, sha256=digest("x")),)),)),
        record(modules=(*record().modules, NEURON)),
        record(modules=()),
    ):
        assert not is_about(found, other)


@pytest.mark.parametrize("how", ["here", "signed", "owner", "all", "stated"])
def test_it_says_why_a_record_was_taken_where_that_was_not_for_its_signatures(how):
    (one,) = REUSING.reused
    raw = statement_of(record(), Origin(reused=(structs.replace(one, how=how),)), ME, TODAY)
    (said,) = json.loads(raw)["predicate"]["reused"]
    assert said.get("how") == (None if how in {"here", "signed"} else how)
    (found,) = read_statement(raw).predicate.reused
    assert found.taken == ("signed" if how == "here" else how)


@pytest.mark.parametrize("change", ["name", "file", "more", "less"])
def test_its_files_are_compared_both_ways_whatever_digest_it_names(change):
    one = record(modules=(NEURON,))
    said = json.loads(statement_of(one, Origin(), ME, TODAY))
    subject = said["subject"]
    if change == "name":
        subject[0]["name"], subject[1]["name"] = subject[1]["name"], subject[0]["name"]
    elif change == "file":
        subject[0]["digest"]["sha256"] = digest("x")
    elif change == "more":
        subject.append({"name": "more", "digest": {"sha256": digest("x")}})
    else:
        subject.pop()
    assert said["predicate"]["record"] == one.digest
    assert not is_about(read_statement(json.dumps(said).encode()), one)


def test_anything_else_is_refused():
    for said in [
        [],
        {},
        document(_type="https://in-toto.io/Statement/v0.1"),
        document(predicateType="https://slsa.dev/provenance/v1"),
        document(subject=None),
        document(subject=[{"name": "a"}]),
        document(subject=[{"name": "a", "digest": {"sha1": "b"}}]),
        document(subject=[{"name": 1, "digest": {"sha256": digest("a")}}]),
        document(
            subject=[{"name": "a", "digest": {"sha256": digest("a")}}, {"name": "a", "digest": {"sha256": digest("b")}}]
        ),
        document(predicate={}),
        document(predicate={**document()["predicate"], "created": "yesterday"}),
        document(predicate={**document()["predicate"], "created": "2026-01-01T00:00:00"}),
        document(predicate={**document()["predicate"], "record": "x"}),
    ]:
        with pytest.raises(MalformedError):
            read_statement(json.dumps(said).encode())


def test_a_name_that_stands_twice_is_refused():
    for place, twice in [
        (b'{"_type":', b'{"_type":"x","_type":'),
        (b'"created":', b'"created":"x","created":'),
        (b'"subject":', b'"subject":[],"subject":'),
        (b'{"digest":', b'{"digest":{"sha256":"x"},"digest":'),
        (b'{"sha256":', b'{"sha256":"x","sha256":'),
        (b'"predicateType":', b'"subject":[],"predicateType":'),
    ]:
        raw = statement_of(record(), Origin(), ME, TODAY)
        assert place in raw
        with pytest.raises(MalformedError):
            read_statement(raw.replace(place, twice, 1))


def test_a_statement_of_millions_of_values_is_refused_before_it_is_read():
    """Whoever signed it: signatures of strangers are kept beside records that were taken unsigned."""
    raw = statement_of(record(), Origin(), ME, TODAY).replace(b'"subject":[', b'"subject":[' + b"{}," * 600_000, 1)
    with pytest.raises(MalformedError, match="values are too many"):
        read_statement(raw)


def test_what_a_later_version_says_more_is_passed_over():
    predicate = {**document()["predicate"], "more": 1}
    assert is_about(read_statement(json.dumps(document(predicate=predicate, more=1)).encode()), record())


def test_times_are_compared_in_utc():
    assert moment("2026-11-23T02:00:00+02:00") == moment("2026-11-23T00:00:00Z")


def test_one_finds_what_one_has_signed_already(tmp_path, monkeypatch):
    mine = sign(record(), signer_of(str(key_file(tmp_path))), REUSING)
    assert mine.signatures[0].keyid == key(0).fingerprint
    spoilt = structs.replace(mine, payload=mine.payload + b" ")
    other = structs.replace(envelope(), payload_type="text/plain")
    assert [one for one, _, _ in holding(record(), [envelope(1), other, spoilt, mine], key(0))] == [mine]
    assert [signer for _, signer, _ in holding(record(), [envelope(1), other, spoilt, mine])] == [key(1), key(0)]
    assert not [*holding(record(graphs=5), [mine], key(0))]
    assert not [*holding(record(), [mine], key(1))]


@pytest.mark.feature("T4")
def test_what_a_signature_is_worth_is_found_out_where_it_can_be(monkeypatch):
    good, false = envelope(), Signature("", envelope(about=record(graphs=5)).signatures[0].sig)
    mixed = structs.replace(good, signatures=(false, *good.signatures))
    other = envelope(about=record(graphs=5))
    assert standing(record(), [mixed, other, structs.replace(good, signatures=(false,))]) == (good,)

    def useless(*_):
        raise UsageError("nothing here can check it")

    monkeypatch.setattr("cachekit.trust.statement.holds", useless)
    assert standing(record(), [mixed]) == (mixed,), "another machine may be able to"
