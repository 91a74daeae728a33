"""Other names for a recipe's fields, and `--set`."""

from __future__ import annotations

import json
import re

import pytest

from cachekit.errors import UsageError
from cachekit.recipe import Recipe, tasks
from cachekit.recipe.field_names import SYNONYMS
from cachekit.recipe.schema import Training
from tests.recipe.recipe_texts import MINIMAL, SECTIONS, read, refused

# Other names for fields


# A name of each section, and the field's value.
SYNONYM_OF = [
    ("", "env", "environment", {"A": "1"}),
    ("model", "model_id", "id", "roberta-base"),
    ("data", "label_names", "labels", ["a", "b"]),
    ("training", "peft", "lora", {"r": 4}),
    ("training", "max_source_length", "max_seq_length", 64),
    ("parallel", "use_zero_1", "zero_1", True),
    ("compiler", "backend", "name", "neuron"),
]


def dotted(section, name):
    return f"{section}.{name}" if section else name


def reader(section, name):
    """A task to which the field means something."""
    return next(task for task in tasks.TASKS if name not in tasks.not_read(task).get(section, ()))


def written(section, task, **fields):
    """A recipe in JSON, which is YAML, with these fields in a section."""
    document = {"name": "x", "model": {"id": "bert-base-uncased"}, "task": task}
    if section == "model":
        document["model"] = {"package": "p/q", **fields}
    elif section:
        document[section] = fields
    else:
        document.update(fields)
    return json.dumps(document, indent=1)


def test_a_synonym_reads_to_its_field_and_overrides_it():
    for section, given, name, value in SYNONYM_OF:
        task = reader(section, name)
        bare = written(section, task)
        recipe = read(written(section, task, **{name: value}))
        assert recipe != read(bare)
        assert recipe == read(written(section, task, **{given: value}))
        said = [read(bare, f"{dotted(section, one)}={json.dumps(value)}") for one in (name, given)]
        assert said[0] == said[1] != read(bare)


def test_two_names_for_one_field_are_an_error():
    for synonym_first in [True, False]:
        for section, given, name, value in SYNONYM_OF:
            order = (given, name) if synonym_first else (name, given)
            text = written(section, reader(section, name), **dict.fromkeys(order, value))
            error = refused(text)
            lines = [number for number, line in enumerate(text.splitlines(), 1) if f'"{order[1]}":' in line]
            assert error.message.startswith(tuple(f"r.yaml, line {number}: " for number in lines)), error.message
            assert re.search(rf"(^|\W){re.escape(dotted(section, given))}(\W|$)", error.message), "which other name?"
            assert dotted(section, name) in error.message
            assert error.hint == f"keep {dotted(section, name)}"


def test_each_synonym_is_of_a_field_and_hides_none():
    assert {section for section, *_ in SYNONYM_OF} == set(SYNONYMS)
    for section, names in SYNONYMS.items():
        fields = SECTIONS[section].__struct_fields__ if section else Recipe.__struct_fields__
        assert not set(names) & set(fields)
        assert set(names.values()) <= set(fields)


def test_an_error_in_a_synonym_has_its_line_and_our_name():
    error = refused(MINIMAL + "trainer:\n  seed: 1\n  lr: fast\n")
    assert error.message == "r.yaml, line 6: training.learning_rate is 'fast'"


# Overrides


def test_an_override_is_read_as_yaml():
    for override, get, value in [
        ("training.per_device_train_batch_size=4", lambda r: r.training.per_device_train_batch_size, 4),
        ("training.learning_rate=5e-5", lambda r: r.training.learning_rate, 5e-5),
        ("training.learning_rate=1", lambda r: r.training.learning_rate, 1.0),
        ("training.learning_rate = 1e-3", lambda r: r.training.learning_rate, 1e-3),
        ("training.bf16=true", lambda r: r.training.bf16, True),
        ("training.eval_strategy=no", lambda r: r.training.eval_strategy, "no"),
        ("training.save_total_limit=null", lambda r: r.training.save_total_limit, None),
        ("training.save_total_limit=", lambda r: r.training.save_total_limit, None),
        ("training={seed: 7}", lambda r: r.training, Training(seed=7)),
        ("data.labels=[a, b]", lambda r: r.data.labels, ("a", "b")),
        ("data.labels=[no, on]", lambda r: r.data.labels, ("no", "on")),
        ("data.delimiter=;", lambda r: r.data.delimiter, ";"),
        ("compiler.flags=[--a=1, --b]", lambda r: r.compiler.flags, ("--a=1", "--b")),
        ("compiler.options.mode=max-autotune", lambda r: r.compiler.options, {"mode": "max-autotune"}),
        ("model.config.num_hidden_layers=2", lambda r: r.model.config, {"num_hidden_layers": 2}),
        ("model.config.a.b=2", lambda r: r.model.config, {"a": {"b": 2}}),
        ("model.config_overrides.num_hidden_layers=2", lambda r: r.model.config, {"num_hidden_layers": 2}),
        ("training={lr: 1e-3}", lambda r: r.training.learning_rate, 1e-3),
        ("model.config={a: 1}", lambda r: r.model.config, {"a": 1}),
        ("environment.OMP_NUM_THREADS=2", lambda r: r.environment, {"OMP_NUM_THREADS": 2}),
        ("env.X=a=b", lambda r: r.environment, {"X": "a=b"}),
        ("description=a=b", lambda r: r.description, "a=b"),
        ("description='5'", lambda r: r.description, "5"),
        ("name=other", lambda r: r.name, "other"),
    ]:
        found = get(read(MINIMAL, override))
        assert found == value
        assert type(found) is type(value)


def test_an_override_beats_the_file_leaves_its_neighbours_and_makes_what_is_not_there():
    text = "name: x\nmodel: {id: b, config: {a: 1, b: 2}}\nenvironment: {A: 1}\ntraining: {lr: 1e-3, seed: 1}\n"
    recipe = read(text, "model.config.b=3", "environment.B=2", "training.learning_rate=2e-3", "training.lr=3e-3")
    assert recipe.model.config == {"a": 1, "b": 3}
    assert recipe.environment == {"A": 1, "B": 2}
    assert (recipe.training.learning_rate, recipe.training.seed) == (3e-3, 1)
    for text in ("name: x", "name: x\nmodel:\n"):
        assert read(text, "model.id=b").model.id == "b"


@pytest.mark.parametrize(
    "override, name, hint",
    [
        ("training.leraning_rate=1", "training.leraning_rate", "training.learning_rate"),
        ("trainig.seed=1", "trainig", "training"),
        ("modle={id: b}", "modle", "model"),
        ("training.learning_rate.x=1", "training.learning_rate", ""),
    ],
)
def test_an_unknown_override_is_named_with_the_nearest(override, name, hint):
    error = refused(MINIMAL, override)
    assert f"--set {name}" in error.message
    assert hint in error.hint
    assert "r.yaml" not in error.message, "the file is not to blame"


@pytest.mark.parametrize(
    "override", ["training.lr=abc", "training.learning_rate=-1", "training.learning_rate=[1]", "training.lr=true"]
)
def test_an_impossible_override_is_named(override):
    error = refused(MINIMAL + "training: {lr: 1e-3}\n", override)
    assert error.message.startswith("--set training.learning_rate: training.learning_rate is ")
    assert error.cause.startswith("expected")


def test_an_override_that_is_no_yaml_is_named():
    for value in ["[1", "{a", "'a", "*x", "&", ".inf", ".nan", "1e999", "a: b: c", "!!python/name:a b", "\udcff"]:
        error = refused(MINIMAL, f"training.learning_rate={value}")
        assert "--set training.learning_rate" in error.message, error.lines()


def test_a_malformed_override_is_a_usage_error():
    for override in ["", "x", "training.lr", "=1", ".=1", "training.=1", ".lr=1", "a..b=1"]:
        error = refused(MINIMAL, override, kind=UsageError)
        assert f"--set {override}" in error.message
        assert "field=value" in error.message
        assert error.exit_code == 2


@pytest.mark.parametrize(
    "text, override",
    [
        (MINIMAL + "data: {labels: [a, b]}\n", "data.num_labels=3"),
        (MINIMAL + "data: {id: a/b}\n", "data.path=/x"),
        (MINIMAL, "data.labels=[a, a]"),
        (MINIMAL, "training.eval_strategy=steps"),
        (MINIMAL, "model.id=null"),
    ],
)
def test_an_override_that_does_not_go_with_the_file_is_named(text, override):
    assert f"--set {override.partition('=')[0]}" in refused(text, override).message
