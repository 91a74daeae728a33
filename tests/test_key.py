"""Keys: the canonical form, what is in a key and what is not, and how far apart two keys are."""

import hashlib
import itertools
import json
import math
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit import zoo
from cachekit.architecture import ELSEWHERE, GENERIC_DEFAULTS, IRRELEVANT, resolve
from cachekit.compilers.inductor.facts import IRRELEVANT_OPTION_PREFIXES, IRRELEVANT_OPTIONS
from cachekit.compilers.inductor.flags import all_options
from cachekit.compilers.inductor.flags import canonical as canonical_flags
from cachekit.errors import CachekitError, RecipeError
from cachekit.ingredients import SOFT_VARIABLES, Fingerprint, build, labels_of
from cachekit.key import (
    ABSENT,
    SCHEMA,
    WEIGHTS,
    Change,
    Ingredients,
    canonical,
    canonical_json,
    difference,
    distance,
    key_of,
    nearest,
)
from cachekit.recipe import load, load_text, tasks
from cachekit.recipe.schema import SOFT_TRAINING, Compiler, Lora, Parallel, Training
from cachekit.record import Provenance, Record, decode, encode

VECTORS = json.loads((Path(__file__).parent / "vectors" / "keys.json").read_text(encoding="utf-8"))
BERT = zoo.recipe_path("bert")

# The canonical form


@pytest.mark.parametrize(
    "value, written",
    [
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
    ],
)
def test_each_value_is_written_in_one_way(value, written):
    assert canonical_json(value).decode("utf-8") == written


@pytest.mark.parametrize(
    "one, other",
    [
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
    ],
)
def test_what_differs_is_written_differently(one, other):
    assert canonical_json(one) != canonical_json(other)
    assert key_of({"x": one}) != key_of({"x": other})


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, {1: 2}, {None: 1}, {"a": {1: 2}}, b"a", {1}, object(), "\ud800", {"\ud800": 1}],
)
def test_what_is_no_json_is_refused(value):
    for nested in (value, [value], {"a": value}):
        with pytest.raises(ValueError):
            canonical_json(nested)


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


@settings(max_examples=10_000, deadline=None)
@given(st.integers(0, 2**64))
def test_a_key_depends_on_each_value_and_on_no_order(seed):
    random = Random(seed)
    hard = random_ingredients(random)
    shuffled = {name: reordered(hard[name]) for name in random.sample(sorted(hard), len(hard))}
    assert key_of(shuffled) == key_of(hard), hard
    for name, value in list(random_ingredients(random).items())[:1]:
        changed = {**shuffled, name: value}
        # JSON tells true from 1, Python does not.
        same = name in hard and json.dumps(reordered(hard[name])) in (json.dumps(value), json.dumps(reordered(value)))
        assert (key_of(changed) == key_of(hard)) == same, (hard, name, value)
        assert (difference(hard, changed) == []) == same


@settings(max_examples=300, deadline=None)
@given(HARD)
def test_a_key_depends_on_values_only(hard):
    key = key_of(hard)
    assert key_of(reordered(hard)) == key
    assert key_of(as_floats(hard)) == key
    assert key_of(json.loads(json.dumps(hard))) == key
    assert Ingredients(hard, {"a": 1}).key == Ingredients(hard).key == key


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_the_canonical_form_is_stable_and_loses_nothing(value):
    raw = canonical_json(value)
    assert canonical(json.loads(raw)) == canonical(value) == value
    assert canonical_json(json.loads(raw)) == raw


@settings(max_examples=100, deadline=None)
@given(HARD)
def test_removing_an_ingredient_changes_the_key(hard):
    for name in hard:
        fewer = {other: value for other, value in hard.items() if other != name}
        assert key_of(fewer) != key_of(hard)
        assert difference(hard, fewer) == [Change(name, hard[name], ABSENT)]


@settings(max_examples=50, deadline=None)
@given(HARD)
def test_the_schema_number_is_in_the_key(hard):
    assert key_of(hard) == key_of(hard, SCHEMA) != key_of(hard, SCHEMA + 1)


def test_a_key_is_the_digest_of_the_canonical_form():
    assert key_of({"b": 1.0, "a": "é"}) == hashlib.sha256('{"hard":{"a":"é","b":1},"schema":1}'.encode()).hexdigest()


# Vectors


@pytest.mark.feature("K6")
@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["name"])
def test_keys_are_those_of_the_vectors(vector):
    """Other keys than these are other keys for everyone: that takes a new SCHEMA, and new vectors."""
    assert VECTORS["schema"] == SCHEMA
    assert canonical_json({"schema": SCHEMA, "hard": vector["hard"]}).decode("utf-8") == vector["canonical"]
    assert hashlib.sha256(vector["canonical"].encode("utf-8")).hexdigest() == vector["key"]
    assert key_of(vector["hard"]) == Ingredients(reordered(vector["hard"])).key == vector["key"]


def test_the_vectors_differ_from_each_other():
    assert len(VECTORS["vectors"]) >= 8
    assert len({vector["key"] for vector in VECTORS["vectors"]}) == len(VECTORS["vectors"])


# Differences


def test_a_difference_is_sorted_and_names_both_sides():
    old = {"a": 1, "c": None, "d": [1], "e": {"x": 1}}
    new = {"a": 1.0, "b": 0, "d": [2], "e": {"x": 1}}
    assert difference(old, new) == [Change("b", ABSENT, 0), Change("c", None, ABSENT), Change("d", [1], [2])]
    assert repr(ABSENT) == "(absent)"


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=300, deadline=None)
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
    assert apart("no-such-section") == apart("training.a") < min(WEIGHTS.values())


@settings(max_examples=200, deadline=None)
@given(FLAT, st.dictionaries(st.text("abc", min_size=1, max_size=2), FLAT, max_size=5))
def test_the_nearest_is_the_least_different(wanted, candidates):
    found = nearest(wanted, candidates)
    assert found == nearest(wanted, dict(reversed(candidates.items())))
    if not candidates:
        assert found is None
        return
    name, changes = found
    assert changes == difference(candidates[name], wanted)
    ranks = {
        other: (distance(difference(hard, wanted)), len(difference(hard, wanted)), other)
        for other, hard in candidates.items()
    }
    assert ranks[name] == min(ranks.values())
    assert nearest(wanted, {**candidates, "": dict(wanted)}) == ("", [])


def test_equal_distances_go_to_fewer_changes_and_then_to_the_smaller_name():
    wanted = {"model.a": 1, "training.a": 1, "training.b": 1, "training.c": 1}
    near = {**wanted, "model.a": 2}
    far = {**wanted, "training.a": 2, "training.b": 2, "training.c": 2}
    assert distance(difference(near, wanted)) == distance(difference(far, wanted))
    assert nearest(wanted, {"a": far, "b": near}) == ("b", [Change("model.a", 2, 1)])
    assert nearest(wanted, {"c": near, "b": dict(near)}) == ("b", [Change("model.a", 2, 1)])
    assert nearest({}, {}) is None


# From a recipe


FINGERPRINT = Fingerprint(
    compiler="fake",
    directory="fake-1.0",
    toolchain={"fakec": "1.0", "python": "cpython 3.11"},
    target={"machine": "x86_64", "isa": ["avx", "avx2"]},
    soft={"numpy": "2.0"},
    bf16=False,
)
COMPILER = {"options": {"a": 1}, "threads": 2, "environment": {"FAKE_VERBOSE": "1"}}


def ingredients(*overrides, fingerprint=FINGERPRINT, compiler=COMPILER, path=BERT):
    recipe = load(path, overrides)
    return build(recipe, resolve(recipe), len(labels_of(recipe)), fingerprint, compiler)


BASE = ingredients()


def another(kind, current):
    """Values of a field's type that are not its current one; from the schema, so that no field is forgotten."""
    info = msgspec.inspect
    if isinstance(kind, info.UnionType):
        return [value for part in kind.types for value in another(part, current)]
    if isinstance(kind, info.NoneType):
        values = [None]
    elif isinstance(kind, info.BoolType):
        values = [True, False]
    elif isinstance(kind, info.LiteralType):
        values = list(kind.values)
    elif isinstance(kind, info.IntType):
        values = [3, 5, 2**20]
    elif isinstance(kind, info.FloatType):
        values = [0.25, 0.5]
    elif isinstance(kind, info.StrType):
        values = ["elsewhere"]
    elif isinstance(kind, info.StructType):
        values = [{}, {"r": 4}]
    else:
        raise TypeError(f"a new kind of field: {kind}")
    return [value for value in values if value != current or isinstance(value, bool) != isinstance(current, bool)]


def fields_of(struct, current):
    return [
        (field.name, value)
        for field in msgspec.inspect.type_info(struct).fields
        for value in another(field.type, getattr(current, field.name))
    ]


# Two spellings of one thing: what `auto`, or nothing at all, means for this recipe and target.
RESOLVED = [
    ("training", "bf16", False),
    ("parallel", "data_parallel_size", 1),
]
FIELD_CHANGES = [
    (section, field, value)
    for section, struct in (("training", Training), ("parallel", Parallel))
    for field, value in fields_of(struct, getattr(load(BERT), section))
]


def for_task(section, field):
    """Overrides that make a recipe of a task to which the field means something."""
    if section != "training" or field not in tasks.not_read("text-classification")["training"]:
        return []
    (task, *_) = tasks.readers(section, field)
    dropped = ("text_column", "label_column", "labels")
    return [f"task={task}", *(f"data.{name}=null" for name in dropped)]


@pytest.mark.parametrize("section, field, value", FIELD_CHANGES)
def test_each_field_is_in_the_key_or_soft(section, field, value):
    extra = ["training.eval_steps=10"] if value == "steps" else []
    of_task = for_task(section, field)
    base, changed = ingredients(*of_task), ingredients(*of_task, f"{section}.{field}={json.dumps(value)}", *extra)
    soft = section == "training" and field in SOFT_TRAINING
    if soft or (section, field, value) in RESOLVED:
        assert changed.key == base.key
        assert changed.hard == base.hard
    else:
        assert changed.key != base.key
        (*changes,) = difference(base.hard, changed.hard)
        known = {
            "bf16": {"training.precision"},
            "per_device_train_batch_size": {
                "training.per_device_train_batch_size",
                "training.per_device_eval_batch_size",
            },
            "lora": {f"training.lora.{name}" for name in Lora.__struct_fields__} | {"training.lora", "toolchain.peft"},
        }
        assert {change.name for change in changes} == known.get(field, {f"{section}.{field}"})


def test_every_field_was_changed():
    names = {(section, field) for section, field, _ in FIELD_CHANGES}
    assert {field for section, field in names if section == "training"} == set(Training.__struct_fields__)
    assert {field for section, field in names if section == "parallel"} == set(Parallel.__struct_fields__)


def test_making_a_field_soft_is_a_deliberate_act():
    """A soft field that reaches a graph is a wrong hit: two runs would share what only one of them compiled."""
    hard = {
        *("per_device_train_batch_size", "per_device_eval_batch_size", "max_seq_length", "gradient_accumulation_steps"),
        *("bf16", "optim", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
        *("label_smoothing_factor", "gradient_checkpointing", "max_target_length", "lora"),
    }
    assert not hard & SOFT_TRAINING
    assert hard | SOFT_TRAINING <= set(Training.__struct_fields__)
    variables = {"MKL_NUM_THREADS", "NEURON_CC_FLAGS", "NEURON_FUSE_SOFTMAX", "XLA_FLAGS", "TORCHINDUCTOR_FREEZING"}
    assert not variables & set(SOFT_VARIABLES)
    assert all(reason.strip() for reason in [*SOFT_VARIABLES.values(), *IRRELEVANT.values()])


@pytest.mark.parametrize("field", sorted(SOFT_TRAINING - {"output_dir"}))
def test_soft_fields_are_recorded_beside_the_key(field):
    value = dict(fields_of(Training, load(BERT).training))[field]
    extra = ["training.eval_steps=10"] if value == "steps" else []
    changed = ingredients(*for_task("training", field), f"training.{field}={json.dumps(value)}", *extra)
    assert changed.soft[f"training.{field}"] == value
    assert not {f"training.{field}"} & set(changed.hard)


def test_auto_means_what_the_target_has():
    strong = msgspec.structs.replace(FINGERPRINT, bf16=True, workers=2)
    assert ingredients(fingerprint=strong).hard["training.precision"] == "bf16"
    assert ingredients(fingerprint=strong).hard["parallel.data_parallel_size"] == 2
    assert (
        ingredients(fingerprint=strong).key
        == ingredients("training.bf16=true", "parallel.data_parallel_size=2", fingerprint=strong).key
    )
    assert ingredients("training.bf16=true").hard["training.precision"] == "bf16"
    assert ingredients(fingerprint=strong).key != BASE.key


def test_an_evaluation_batch_is_a_training_batch_unless_said():
    assert ingredients("training.per_device_eval_batch_size=16").key == BASE.key
    assert (
        ingredients("training.per_device_train_batch_size=8", "training.per_device_eval_batch_size=8").key
        == ingredients("training.per_device_train_batch_size=8").key
    )


CONFIG = zoo.architecture_defaults("bert")


def other_config_value(field, value):
    if isinstance(value, bool):
        return not value
    if "dropout" in field:
        return 0.25
    if field == "hidden_act":
        return "relu"
    if isinstance(value, dict):
        return {"0": [1]}
    if value is None or isinstance(value, int | float):
        return 7
    return "other"


@pytest.mark.parametrize("field", sorted(CONFIG))
def test_each_field_of_the_architecture_is_in_the_key(field):
    now = BASE.hard.get(f"model.config.{field}", CONFIG[field])
    changed = ingredients(f"model.config.{field}={json.dumps(other_config_value(field, now))}")
    assert [change.name for change in difference(BASE.hard, changed.hard)] == [f"model.config.{field}"]
    assert ingredients(f"model.config.{field}={json.dumps(now)}").key == BASE.key


@pytest.mark.parametrize("field", sorted(set(GENERIC_DEFAULTS) - set(CONFIG)))
def test_each_field_that_every_architecture_has_is_in_the_key(field):
    changed = ingredients(f"model.config.{field}={json.dumps(other_config_value(field, GENERIC_DEFAULTS[field]))}")
    assert changed.key != BASE.key
    assert ingredients(f"model.config.{field}={json.dumps(GENERIC_DEFAULTS[field])}").key == BASE.key


@pytest.mark.parametrize("field", sorted(set(IRRELEVANT) - set(ELSEWHERE)))
def test_what_reaches_no_graph_is_not_in_the_key(field):
    assert ingredients(f"model.config.{field}=7").key == BASE.key


@pytest.mark.parametrize("field, place", sorted(ELSEWHERE.items()))
def test_what_a_recipe_says_in_another_place_is_refused(field, place):
    """Seven classes that nobody makes, and a bf16 that is none."""
    assert field in IRRELEVANT, "a model's own config.json may say it"
    with pytest.raises(RecipeError, match=f"model.config.{field} has no effect") as error:
        ingredients(f"model.config.{field}=7")
    assert place in error.value.hint


def test_null_is_a_value_where_the_default_is_another():
    """`pad_token_id: null` makes an embedding without padding row: another graph than pad_token_id 0, the default."""
    assert CONFIG["pad_token_id"] == 0
    assert ingredients("model.config.pad_token_id=null").key != BASE.key
    assert CONFIG["classifier_dropout"] is None
    assert ingredients("model.config.classifier_dropout=null").key == BASE.key


def test_the_number_of_labels_is_in_the_key_and_their_names_are_not():
    assert ingredients("data.labels=[a, b, c, d, e, f]").key == BASE.key
    assert ingredients("data.labels=null", "data.num_labels=6").key == BASE.key
    changed = ingredients("data.labels=[a, b]")
    assert difference(BASE.hard, changed.hard) == [Change("model.num_labels", 6, 2)]


@pytest.mark.parametrize(
    "overrides",
    [
        ["name=other"],
        ["description=other"],
        ["model.id=google-bert/bert-base-uncased"],
        ["model.revision=abc"],
        ["model.from_config=true"],
        ["model.tokenizer=roberta-base"],
        ["data.id=other/data", "data.config=c", "data.revision=r"],
        ["data.id=null", "data.path=/somewhere"],
        ["data.text_column=tweet", "data.label_column=mood"],
        ["data.train_split=a", "data.validation_split=b", "data.test_split=null"],
        ["data.encoding=latin-1", "data.delimiter=;"],
        ["data.validation_fraction=0.3", "data.max_train_samples=9", "data.max_eval_samples=9"],
        ["expect=[]"],
        ["compiler.name=inductor"],
    ],
)
def test_what_says_which_rows_and_weights_is_not_in_the_key(overrides):
    assert ingredients(*overrides).key == BASE.key


def test_a_second_text_is_in_the_key():
    changed = ingredients("data.text_pair_column=context")
    assert difference(BASE.hard, changed.hard) == [Change("data.text_pair", old=False, new=True)]
    assert ingredients("data.text_pair_column=other").key == changed.key


def test_another_architecture_is_another_key():
    keys = {ingredients(f"model.id={name}").key for name in zoo.models()}
    assert len(keys) == len(zoo.models())


@pytest.mark.feature("K3")
def test_a_fine_tune_in_a_folder_shares_the_key_of_its_model(tmp_path):
    """Saved by a library of another version: label names, paths and defaults spelt out."""
    entry = zoo.model("bert-base-uncased")
    saved = {
        **CONFIG,
        **entry.config,
        "_name_or_path": "/home/somebody/model",
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "a", "1": "b"},
        "label2id": {"a": 0, "b": 1},
        "transformers_version": "4.57.6",
        "torch_dtype": "float32",
    }
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
        assert ingredients(f"model.path={folder}").key == BASE.key


@pytest.mark.feature("K1")
@pytest.mark.parametrize(
    "change",
    [
        {"toolchain": {**FINGERPRINT.toolchain, "fakec": "1.1"}},
        {"toolchain": {**FINGERPRINT.toolchain, "fakec": "1.0.0"}},
        {"toolchain": {**FINGERPRINT.toolchain, "fakec": "1.0+cpu"}},
        {"toolchain": {**FINGERPRINT.toolchain, "python": "cpython 3.12"}},
        {"toolchain": {**FINGERPRINT.toolchain, "new": ""}},
        {"target": {**FINGERPRINT.target, "isa": ["avx"]}},
        {"target": {**FINGERPRINT.target, "machine": "aarch64"}},
        {"target": {**FINGERPRINT.target, "gpu": "H200"}},
        {"compiler": "other"},
    ],
)
def test_a_bumped_compiler_is_another_key_and_the_same_one_is_not(change):
    bumped = msgspec.structs.replace(FINGERPRINT, **change)
    assert ingredients(fingerprint=bumped).key != BASE.key
    assert ingredients(fingerprint=msgspec.structs.replace(FINGERPRINT)).key == BASE.key
    (name,) = change
    prefix = {"compiler": "compiler.name"}.get(name, name)
    assert all(c.name.startswith(prefix) for c in difference(BASE.hard, ingredients(fingerprint=bumped).hard))


@pytest.mark.feature("K1")
def test_a_bumped_compiler_misses_every_recipe_of_the_zoo():
    bumped = msgspec.structs.replace(FINGERPRINT, toolchain={**FINGERPRINT.toolchain, "fakec": "1.1"})
    before = {name: ingredients(path=path).key for name, path in zoo.recipes().items()}
    after = {name: ingredients(path=path, fingerprint=bumped).key for name, path in zoo.recipes().items()}
    again = {name: ingredients(path=path).key for name, path in zoo.recipes().items()}
    assert not set(before.values()) & set(after.values())
    assert again == before


def test_soft_versions_are_recorded_beside_the_key():
    other = msgspec.structs.replace(FINGERPRINT, soft={"numpy": "3.0"}, directory="fake-1.0-elsewhere")
    assert ingredients(fingerprint=other).key == BASE.key
    assert ingredients(fingerprint=other).soft["toolchain.numpy"] == "3.0"


@pytest.mark.parametrize(
    "compiler",
    [
        {**COMPILER, "options": {"a": 2}},
        {**COMPILER, "options": {"a": 1, "b": 1}},
        {**COMPILER, "options": {}},
        {**COMPILER, "options": {"b": 1}},
        {**COMPILER, "threads": 3},
        {**COMPILER, "environment": {"FAKE_VERBOSE": "2"}},
        {**COMPILER, "environment": {}},
        {**COMPILER, "flags": ["-O1"]},
        {},
    ],
)
def test_flags_options_and_the_compilers_variables_are_in_the_key(compiler):
    changed = ingredients(compiler=compiler)
    assert changed.key != BASE.key
    assert all(change.name.startswith("compiler.") for change in difference(BASE.hard, changed.hard))


def test_the_order_of_a_compilers_flags_is_in_the_key():
    assert ingredients(compiler={"flags": ["-a", "-b"]}).key != ingredients(compiler={"flags": ["-b", "-a"]}).key


@pytest.mark.parametrize("variable", sorted(SOFT_VARIABLES))
def test_variables_that_reach_no_graph_are_not_in_the_key(variable):
    changed = ingredients(f"environment.{variable}=7")
    assert changed.key == BASE.key
    assert f"environment.{variable}" in changed.soft


@pytest.mark.parametrize("secret", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY"])
def test_a_secret_is_recorded_nowhere(secret):
    changed = ingredients(f"environment.{secret}=hf_abcdefg")
    assert "hf_abcdefg" not in json.dumps([changed.hard, changed.soft])


@pytest.mark.parametrize(
    "variable", ["NEURON_CC_FLAGS", "MKL_NUM_THREADS", "XLA_USE_BF16", "X", "hf_home", "TORCHINDUCTOR_X"]
)
def test_any_other_variable_is_in_the_key(variable):
    changed = ingredients(f"environment.{variable}=7")
    assert difference(BASE.hard, changed.hard) == [Change(f"environment.{variable}", ABSENT, "7")]
    assert ingredients(f"environment.{variable}='7'").key == changed.key
    assert ingredients(f"environment.{variable}=8").key != changed.key


def test_spelling_is_not_in_the_key():
    """Synonyms, order of fields, comments and defaults that are written out."""
    text = """
model: {id: bert-base-uncased}
name: x
data: {labels: [a, b], id: c/d}
training: {lr: 1e-4, batch_size: 16, max_length: 64, weight_decay: 0, adam_epsilon: 0.00000001}
"""
    other = """
# the same
data:
  id: e/f
  num_labels: 2
training:
  sequence_length: 64
  per_device_train_batch_size: 16
  optim: adamw_torch
  adam_epsilon: 1e-8
model: {model_name_or_path: google-bert/bert-base-uncased}
name: y
"""
    one, two = (load_text(spelling) for spelling in (text, other))
    assert (
        build(one, resolve(one), 2, FINGERPRINT, COMPILER).key == build(two, resolve(two), 2, FINGERPRINT, COMPILER).key
    )


@pytest.mark.parametrize("depth", [50, 150, 250, 350, 450])
def test_what_can_be_read_can_be_hashed(depth):
    """Or is refused with an error of ours, wherever the limit of nesting lies."""
    override = f"model.config.hidden_size={'[' * depth}{']' * depth}"
    try:
        load(BERT, [override])
    except CachekitError:
        return
    assert ingredients(override).key != BASE.key


# Inductor's flags


def options(flags=(), **named):
    return canonical_flags(Compiler(flags=tuple(flags), options=named))


def key_with(*flags, **named):
    return ingredients(compiler={"options": options(flags, **named)}).key


FLAGS = ["--max-autotune", "--epilogue_fusion=false", "--cpp.threads=2", "--mode=max-autotune"]


@pytest.mark.feature("K2")
@pytest.mark.parametrize("order", list(itertools.permutations(FLAGS)))
def test_the_order_of_inductors_flags_is_not_in_the_key(order):
    assert options(order) == options(FLAGS)
    assert list(options(order)) == sorted(options(order))
    assert key_with(*order) == key_with(*FLAGS)


@pytest.mark.feature("K2")
@pytest.mark.parametrize(
    "flag", ["--verbose", "--verbose=true", "--quiet", "--trace.enabled=true", "--compile-threads=4"]
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_flags_that_reach_no_code_are_not_in_the_key(flag, place):
    assert key_with(*FLAGS[:place], flag, *FLAGS[place:]) == key_with(*FLAGS)


@pytest.mark.feature("K2")
@pytest.mark.parametrize(
    "flags",
    [
        [*FLAGS[:3], "--mode=reduce-overhead"],
        ["--max-autotune=false", *FLAGS[1:]],
        ["--max-autotune", "--epilogue_fusion=true", *FLAGS[2:]],
        ["--max-autotune", "--epilogue_fusion=0", *FLAGS[2:]],
        [*FLAGS[:2], "--cpp.threads=3", FLAGS[3]],
        FLAGS[1:],
        [*FLAGS, "--fullgraph"],
        [*FLAGS, "--optimization-level=2"],
        [],
    ],
)
def test_a_changed_flag_is_another_key(flags):
    assert key_with(*flags) != key_with(*FLAGS)


@pytest.mark.feature("K2")
def test_the_list_of_what_reaches_no_code_is_written_with_reasons():
    assert all(reason.strip() for reason in IRRELEVANT_OPTIONS.values())
    for name in [*IRRELEVANT_OPTIONS, *(f"{prefix}x" for prefix in IRRELEVANT_OPTION_PREFIXES)]:
        assert options([f"--{name}=7"]) == options(**{name: 7}) == {}
        assert name in all_options(Compiler(flags=(f"--{name}=7",))), "it still reaches the compiler"


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--max-autotune"], {"max_autotune": True}),
        (["--max_autotune=true"], {"max_autotune": True}),
        (["--size=5"], {"size": 5}),
        (["--rate=5e-1"], {"rate": 0.5}),
        (["--words=no"], {"words": "no"}),
        (["--cpp.simdlen=8"], {"cpp.simdlen": 8}),
        (["--mode=max-autotune", "--mode=max-autotune"], {"mode": "max-autotune"}),
    ],
)
def test_a_flag_and_an_option_set_the_same(flags, named):
    assert options(flags) == options(**named) == options(flags, **named) != {}


@pytest.mark.parametrize(
    "flags", [["--mode=default"], ["--fullgraph=false"], ["--threads=4"], ["--mode=default", "--quiet"]]
)
def test_what_is_the_default_or_an_ingredient_of_its_own_is_left_out(flags):
    assert options(flags) == {}


@pytest.mark.parametrize("flag", ["", "-", "--", "--=1", "-O2", "verbose", "mode=default", "—mode"])
def test_a_flag_that_is_none_is_refused(flag):
    with pytest.raises(RecipeError, match=r"compiler\.flags") as caught:
        options([flag])
    assert repr(flag) in caught.value.message
    assert "--name=value" in caught.value.cause


@pytest.mark.parametrize(
    "flags, named",
    [(["--a=1", "--a=2"], {}), (["--a=1"], {"a": 2}), (["--a-b"], {"a_b": False}), (["--a=1"], {"a": "1"})],
)
def test_two_values_for_one_name_are_refused(flags, named):
    with pytest.raises(RecipeError, match=r"compiler: a\w* is ") as caught:
        options(flags, **named)
    assert caught.value.hint == "keep one of them"


@pytest.mark.parametrize("mode", ["fast", "", "1", "[a]", "max_autotune"])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(RecipeError, match=r"compiler\.options\.mode") as caught:
        options([f"--mode={mode}"])
    assert "max-autotune" in caught.value.hint


@pytest.mark.parametrize("threads", ["0", "-1", "many", "1.5", "true", "", "[1]"])
def test_an_impossible_number_of_threads_is_refused(threads):
    with pytest.raises(RecipeError, match=r"compiler\.options\.threads"):
        options([f"--threads={threads}"])


@pytest.mark.parametrize("value", ["[", "{a", "'", ".inf"])
def test_a_flags_value_that_is_no_yaml_is_refused_as_the_flag_it_is(value):
    with pytest.raises(RecipeError) as caught:
        options([f"--a={value}"])
    assert f"--a={value}" in caught.value.message
    assert "--set" not in "".join(caught.value.lines())


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.integers(0, 3) | st.booleans() | st.sampled_from(["x", "no"]), max_size=6
    ),
    st.randoms(use_true_random=False),
)
def test_any_flags_in_any_order_are_their_options(named, random):
    flags = [f"--{name}={json.dumps(value)}" for name, value in named.items()]
    random.shuffle(flags)
    assert canonical_json(options(flags)) == canonical_json(named)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=8) | st.text("-=abm.:[{'1", max_size=8).map("--".__add__), max_size=3))
def test_any_flag_is_read_or_refused(flags):
    try:
        found = options(flags)
    except RecipeError:
        return
    assert set(found) <= {flag[2:].partition("=")[0].replace("-", "_") for flag in flags}


# What a record keeps


@pytest.mark.feature("K5")
@pytest.mark.parametrize("name", sorted(zoo.recipes()))
def test_rehashing_what_a_record_keeps_gives_the_key(name):
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
    assert {"task", "model.type", "training.max_seq_length", "compiler.name", "toolchain.fakec", "target.isa"} <= set(
        document["hard"]
    )
    assert not set(document["hard"]) & set(document["soft"])
