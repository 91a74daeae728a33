"""Records, their documents, and how they are refused."""

import hashlib
import json

import msgspec
import pytest
from hypothesis import strategies as st

from cachekit.key.canonical import canonical_json, key_of
from cachekit.store.record import DamagedRecordError, File, Module, Provenance, Record, decode

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


TEXTS = st.text(max_size=6)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)
