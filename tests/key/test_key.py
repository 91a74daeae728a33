"""The canonical form of a key, its golden vectors, and differences between keys."""

from __future__ import annotations

import hashlib
import json
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.key.canonical import ABSENT, SCHEMA, Change, Ingredients, canonical, canonical_json, difference, key_of
from cachekit.key.nearest import INTERRUPTED, WEIGHTS, distance
from cachekit.recipe import zoo
from cachekit.store.record import Provenance, Record, decode, encode
from tests.key.key_cases import ingredients
from tests.key.vector_cases import VECTORS, compare

pytestmark = pytest.mark.versions

PATH = VECTORS / "keys.json"


# The canonical form


def test_each_value_is_written_in_one_way():
    for value, written in [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (5e-5, "5e-05"),
        (1e3, "1000"),
        (1e22, "10000000000000000000000"),
        (2**70, "1180591620717411303424"),
        ('é\n"\u2028', '"é\\n\\"\u2028"'),
        ([1.0, [2.0], (3.0,)], "[1,[2],[3]]"),
        ({"b": 1, "a": {"d": 1.0, "c": []}}, '{"a":{"c":[],"d":1},"b":1}'),
        ({}, "{}"),
    ]:
        assert canonical_json(value).decode("utf-8") == written


def test_what_differs_is_written_differently():
    for one, other in [
        (True, 1),
        (False, 0),
        (None, 0),
        (None, ""),
        (None, False),
        (1, "1"),
        (0.1, "0.1"),
        (1, 1 + 2**-40),
        (2**53, 2**53 + 1),
        ([], {}),
        ([], None),
        ([1, 2], [2, 1]),
        ([[1], 2], [1, [2]]),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ("é", "e\u0301"),
        ("a", "A"),
        ("a", "a "),
    ]:
        assert canonical_json(one) != canonical_json(other)
        assert key_of({"x": one}) != key_of({"x": other})


def test_what_is_no_json_is_refused():
    for value in [
        math.nan,
        math.inf,
        -math.inf,
        {1: 2},
        {None: 1},
        {"a": {1: 2}},
        b"a",
        {1},
        object(),
        "\ud800",
        {"\ud800": 1},
    ]:
        for nested in (value, [value], {"a": value}):
            for make in (canonical, canonical_json):
                with pytest.raises(ValueError):
                    make(nested)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "model.type",
        "model.config.a",
        "training.a",
        "training.b",
        "compiler.a",
        "toolchain.a",
        "target.a",
        "task",
        "parallel.a",
        "é",
    ]
)
HARD = st.dictionaries(NAMES, VALUES, max_size=5)
FLAT = st.dictionaries(NAMES, st.sampled_from([None, True, False, 0, 1, 2, 1.5, "", "1", "a"]), max_size=5)


def reordered(value):
    """The same value with the names of every mapping in the opposite order."""
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def as_floats(value):
    """The same value with whole numbers as floats, where a float can be one."""
    if isinstance(value, dict):
        return {name: as_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return float(value) if whole else value


def random_ingredients(random):
    """Names and values, nested now and then; many times faster than a strategy, for many thousands of examples."""
    small = [None, True, False, 0, 1, 2, 1.5, "", "1", "a"]
    values = [*small, [random.choice(small)], {"b": random.choice(small), "a": random.choice(small)}]
    return {f"{random.choice('abc')}.{random.choice('xyz')}": random.choice(values) for _ in range(random.randrange(7))}


def test_a_key_depends_on_each_value_and_on_no_order():
    for seed in range(10_000):  # in a loop: a strategy takes ten times as long
        random = Random(seed)
        hard = random_ingredients(random)
        shuffled = {name: reordered(hard[name]) for name in random.sample(sorted(hard), len(hard))}
        assert key_of(shuffled) == key_of(hard), hard
        for name, value in list(random_ingredients(random).items())[:1]:
            changed = {**shuffled, name: value}
            # JSON tells true from 1, Python does not.
            same = name in hard and json.dumps(reordered(hard[name])) in (
                json.dumps(value),
                json.dumps(reordered(value)),
            )
            assert (key_of(changed) == key_of(hard)) == same, (hard, name, value)
            assert (difference(hard, changed) == []) == same


@settings(max_examples=100)
@given(HARD)
def test_a_key_depends_on_values_only(hard):
    key = key_of(hard)
    assert key_of(reordered(hard)) == key
    assert key_of(as_floats(hard)) == key
    assert key_of(json.loads(json.dumps(hard))) == key
    assert Ingredients(hard, {"a": 1}).key == Ingredients(hard).key == key


@settings(max_examples=100)
@given(VALUES)
def test_the_canonical_form_is_stable_and_loses_nothing(value):
    raw = canonical_json(value)
    assert canonical(json.loads(raw)) == canonical(value) == value
    assert canonical_json(json.loads(raw)) == raw


@settings(max_examples=100)
@given(HARD)
def test_removing_an_ingredient_changes_the_key(hard):
    for name in hard:
        fewer = {other: value for other, value in hard.items() if other != name}
        assert key_of(fewer) != key_of(hard)
        assert difference(hard, fewer) == [Change(name, hard[name], ABSENT)]


# Vectors


@pytest.mark.feature("K6")
def test_keys_are_those_of_the_vectors():
    """Of the canonical form, written by hand. Other keys are other keys for everyone: that takes a new SCHEMA."""
    found = {}
    for vector in json.loads(PATH.read_text(encoding="utf-8"))["vectors"]:
        hard = vector["hard"]
        written = canonical_json({"schema": SCHEMA, "hard": hard})
        key = hashlib.sha256(written).hexdigest()
        assert key_of(hard) == Ingredients(reordered(hard)).key == key
        found[vector["name"]] = {"key": key, "canonical": written.decode("utf-8")}
    compare(PATH, found, SCHEMA)


# Differences


def test_a_difference_is_sorted_and_names_both_sides():
    old = {"a": 1, "c": None, "d": [1], "e": {"x": 1}}
    new = {"a": 1.0, "b": 0, "d": [2], "e": {"x": 1}}
    assert difference(old, new) == [Change("b", ABSENT, 0), Change("c", None, ABSENT), Change("d", [1], [2])]


@settings(max_examples=100)
@given(HARD, HARD)
def test_a_difference_is_what_makes_one_of_the_other(old, new):
    changes = difference(old, new)
    assert [change.name for change in changes] == sorted(change.name for change in changes)
    made = dict(old)
    for change in changes:
        assert change.old is old.get(change.name, ABSENT)
        if change.new is ABSENT:
            del made[change.name]
        else:
            made[change.name] = change.new
    assert key_of(made) == key_of(new)
    assert (not changes) == (key_of(old) == key_of(new))
    assert difference(new, old) == [Change(change.name, change.new, change.old) for change in changes]


@settings(max_examples=100)
@given(FLAT, FLAT, FLAT)
def test_distance_is_a_metric(one, two, three):
    def apart(old, new):
        return distance(difference(old, new))

    assert apart(one, one) == 0
    assert apart(one, two) == apart(two, one) >= 0
    assert (apart(one, two) == 0) == (key_of(one) == key_of(two))
    assert apart(one, three) <= apart(one, two) + apart(two, three)


def test_another_compiler_is_further_than_another_model_than_another_batch_size():
    def apart(*names):
        return distance([Change(name, 1, 2) for name in names])

    assert apart("compiler.name") == apart("toolchain.torch") == apart("target.isa") > apart("model.config.hidden_size")
    assert (
        apart("model.config.hidden_size") > apart("parallel.nodes") > apart("training.per_device_train_batch_size") > 0
    )
    assert apart("training.a", "training.b") == 2 * apart("training.a")
    assert apart(INTERRUPTED) < apart("no-such-section") == apart("training.a") < min({*WEIGHTS.values()} - {1})


# What a record keeps


@pytest.mark.feature("K5")
def test_rehashing_what_a_record_keeps_gives_the_key():
    for name in sorted(zoo.recipes()):
        made = ingredients(path=zoo.recipes()[name])
        record = Record(
            key=made.key,
            compiler="fake",
            directory="fake-1.0",
            model_type="bert",
            recipe=name,
            hard=dict(made.hard),
            soft=dict(made.soft),
            modules=(),
            graphs=0,
            compile_seconds=0,
            provenance=Provenance("2026-01-01T00:00:00Z", "0.1.0", "u", "h", "p"),
        )
        kept = decode(encode(record))
        assert key_of(kept.hard) == made.key == kept.key
        document = json.loads(encode(record))["record"]
        assert key_of(document["hard"]) == made.key
        assert {"task", "model.type", "training.optim", "compiler.name", "toolchain.fakec", "target.isa"} <= set(
            document["hard"]
        )
        assert not set(document["hard"]) & set(document["soft"])
