"""Recipes: the schema, other names for fields, overrides, YAML's surprises, and errors that say where and what."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit import zoo
from cachekit.errors import CachekitError, RecipeError, UsageError
from cachekit.recipe import Recipe, json_schema, load, load_text, tasks
from cachekit.recipe.load import LARGEST
from cachekit.recipe.schema import Compiler, Data, Expectation, Model, Parallel, Training
from cachekit.recipe.synonyms import SYNONYMS
from cachekit.recipe.yamltext import parse

BASE = Path("/base").absolute()
MINIMAL = "name: x\nmodel:\n  id: bert-base-uncased\n"
SECTIONS = {"model": Model, "data": Data, "training": Training, "parallel": Parallel, "compiler": Compiler}
FIELDS = [(section, field) for section, struct in SECTIONS.items() for field in struct.__struct_fields__]


def read(text, *overrides, base=BASE):
    return load_text(text, overrides, source="r.yaml", base=base)


def refused(text, *overrides, kind=RecipeError):
    with pytest.raises(kind) as caught:
        read(text, *overrides)
    return caught.value


def attempt(call, *arguments):
    """What a call returns, or the error of ours that it raises."""
    try:
        return call(*arguments)
    except CachekitError as error:
        return error


def whole(error):
    return "\n".join(error.lines())


def with_section(section, *lines):
    """A recipe with a section of one's own, and the number of its first line inside."""
    inner = "".join(f"  {line}\n" for line in lines)
    if section == "model":
        return f"name: x\nmodel:\n{inner}", 3
    return f"{MINIMAL}{section}:\n{inner}", 5


def config_value(text):
    """What YAML text means, read through a field that takes anything."""
    return read(f"name: x\nmodel:\n  id: b\n  config:\n    v: {text}\n").model.config["v"]


# The schema


def test_a_recipe_needs_a_name_and_a_model_and_no_more():
    recipe = read(MINIMAL)
    assert recipe == Recipe(name="x", model=Model(id="bert-base-uncased"))
    assert recipe.training == Training()
    assert (recipe.task, recipe.training.per_device_train_batch_size, recipe.training.max_seq_length) == (
        "text-classification",
        8,
        128,
    )


def test_every_field_is_read():
    recipe = read("""
name: all
description: every field
task: text-classification
model: {id: a/b, revision: r, path: /m, from_config: true, config: {num_hidden_layers: 2}, tokenizer: a/c}
data:
  id: d/e
  config: c
  revision: v
  train_split: t
  validation_split: w
  test_split: u
  delimiter: ";"
  encoding: latin-1
  text_column: one
  text_pair_column: two
  label_column: three
  labels: [no, yes]
  num_labels: 2
  validation_fraction: 0.2
  max_train_samples: 10
  max_eval_samples: 20
training: {per_device_train_batch_size: 4, learning_rate: 1, bf16: true, optim: sgd, eval_strategy: no}
parallel: {data_parallel_size: 2, tensor_parallel_size: 2, pipeline_parallel_size: 2, zero_1: true, nodes: 2}
compiler: {name: inductor, flags: [--b, --a=1], options: {c: 1, d: true, e: 0.5, f: g}}
environment: {A: text, B: 1, C: 0.5}
expect: [{instance: i, source: s, metrics: {accuracy: 0.9}, train_seconds: 1, dollars: 0.5, note: n}]
""")
    assert recipe.model == Model(
        "a/b", "r", "/m", None, from_config=True, config={"num_hidden_layers": 2}, tokenizer="a/c"
    )
    assert recipe.data.labels == ("no", "yes")
    assert (recipe.data.delimiter, recipe.data.text_pair_column, recipe.data.max_eval_samples) == (";", "two", 20)
    assert (recipe.training.learning_rate, recipe.training.eval_strategy) == (1.0, "no")
    assert recipe.parallel == Parallel(2, 2, 2, zero_1=True, nodes=2)
    assert recipe.compiler == Compiler("inductor", ("--b", "--a=1"), {"c": 1, "d": True, "e": 0.5, "f": "g"})
    assert recipe.environment == {"A": "text", "B": 1, "C": 0.5}
    assert recipe.expect == (Expectation("i", "s", {"accuracy": 0.9}, 1.0, 0.5, "n"),)


@pytest.mark.parametrize("part", ["name", "model", "data", "training"])
def test_a_recipe_cannot_be_changed(part):
    with pytest.raises(AttributeError):
        setattr(read(MINIMAL), part, None)


@pytest.mark.parametrize(
    "section, field, bad",
    [
        ("training", "per_device_train_batch_size", ["0", "-1", "1.5", "'8'", "true", "null", "[8]", "1" + "0" * 20]),
        ("training", "per_device_eval_batch_size", ["0", "no"]),
        ("training", "max_seq_length", ["1", "0", "long"]),
        ("training", "gradient_accumulation_steps", ["0"]),
        ("training", "bf16", ["1", "yes", "on", "fp16"]),
        ("training", "optim", ["adam", "1", "null"]),
        ("training", "weight_decay", ["-0.1", "small"]),
        ("training", "adam_beta1", ["1", "1.1", "-0.1"]),
        ("training", "adam_beta2", ["1.0", "1.1", "-0.1"]),
        ("training", "adam_epsilon", ["-1e-8"]),
        ("training", "max_grad_norm", ["-1"]),
        ("training", "label_smoothing_factor", ["2"]),
        ("training", "gradient_checkpointing", ["1", "yes"]),
        ("training", "learning_rate", ["-1e-5", "fast", "true"]),
        ("training", "lr_scheduler_type", ["lineer"]),
        ("training", "warmup_steps", ["-1", "0.1"]),
        ("training", "num_train_epochs", ["0", "-3"]),
        ("training", "max_steps", ["0"]),
        ("training", "seed", ["-1", "1.5"]),
        ("training", "eval_strategy", ["never", "true"]),
        ("training", "save_strategy", ["best"]),
        ("training", "save_total_limit", ["0"]),
        ("training", "dataloader_num_workers", ["-1"]),
        ("training", "output_dir", ["''", "5"]),
        ("data", "labels", ["[a]", "[]", "a", "[a, '']", "[1, 2]"]),
        ("data", "num_labels", ["1", "two", "99999999999"]),
        ("data", "validation_fraction", ["0", "1", "1.5", "-0.1"]),
        ("data", "delimiter", ["''", "';;'", "1"]),
        ("data", "text_column", ["''", "5"]),
        ("data", "max_train_samples", ["0"]),
        ("model", "id", ["''", "5", "[a]"]),
        ("model", "from_config", ["1", "no"]),
        ("model", "config", ["[]", "text"]),
        ("parallel", "data_parallel_size", ["0", "all"]),
        ("parallel", "nodes", ["0"]),
        ("parallel", "zero_1", ["1"]),
        ("compiler", "name", ["gcc", "on", "null"]),
        ("compiler", "flags", ["--a", "[1]", "{a: 1}"]),
        ("compiler", "options", ["[a]", "a"]),
    ],
)
def test_an_impossible_value_is_refused_with_file_line_and_field(section, field, bad):
    for value in bad:
        text, line = with_section(section, "# a line between", f"{field}: {value}")
        error = refused(text)
        assert error.message.startswith(f"r.yaml, line {line + 1}: {section}.{field}"), (value, error.lines())
        assert error.hint, value


@pytest.mark.parametrize("section, field", FIELDS)
def test_a_value_of_the_wrong_kind_is_refused_with_file_line_and_field(section, field):
    wrong = "[{a: b}]" if field in {"config", "options", "lora"} else "{a: b}"
    text, line = with_section(section, f"{field}: {wrong}")
    error = refused(text)
    assert error.message.startswith(f"r.yaml, line {line}: {section}.{field} is "), error.lines()
    assert error.cause.startswith("expected"), error.lines()


@pytest.mark.parametrize("section", [*SECTIONS, "environment", "expect"])
@pytest.mark.parametrize("value", ["null", "5", "text", "[1]"])
def test_a_section_that_is_none_is_refused_with_file_and_line(section, value):
    head = "name: x\n" if section == "model" else MINIMAL
    error = refused(f"{head}{section}: {value}\n")
    assert f"r.yaml, line {head.count(chr(10)) + 1}: {section}" in error.message


@pytest.mark.parametrize("section, field", FIELDS)
def test_a_misspelt_field_gets_the_nearest_name(section, field):
    text, line = with_section(section, f"{field}{field[-1]}: 1")
    error = refused(text)
    assert error.message == f"r.yaml, line {line}: unknown field {section}.{field}{field[-1]}"
    assert error.hint == f"did you mean {section}.{field}?"
    assert error.cause.startswith(f"fields of {section} are ")
    assert field in error.cause


@pytest.mark.parametrize("field", Recipe.__struct_fields__)
def test_a_misspelt_section_gets_the_nearest_name(field):
    error = refused(f"{MINIMAL}{field}{field[-1]}: 1\n")
    assert error.message == f"r.yaml, line 4: unknown field {field}{field[-1]}"
    assert error.hint == f"did you mean {field}?"


@pytest.mark.parametrize("section, given", [(s, g) for s, names in SYNONYMS.items() if s for g in names])
def test_a_misspelt_synonym_gets_the_name_we_use(section, given):
    text, line = with_section(section, f"{given}{given[-1]}: 1")
    error = refused(text)
    assert error.message == f"r.yaml, line {line}: unknown field {section}.{given}{given[-1]}"
    assert error.hint.startswith(f"did you mean {section}.")
    assert error.hint[len(f"did you mean {section}.") : -1] in SECTIONS[section].__struct_fields__


def test_a_field_like_no_other_says_where_all_fields_are_listed():
    error = refused(MINIMAL + "zzzzzz: 1\n")
    assert error.message == "r.yaml, line 4: unknown field zzzzzz"
    assert "cachekit zoo schema" in error.hint


@pytest.mark.parametrize(
    "section, field, given, meant",
    [
        ("training", "optim", "adamw_troch", "adamw_torch"),
        ("training", "optim", "adafactr", "adafactor"),
        ("training", "lr_scheduler_type", "cosin", "cosine"),
        ("training", "eval_strategy", "step", "steps"),
        ("training", "bf16", "atuo", "auto"),
        ("compiler", "name", "inducter", "inductor"),
        ("parallel", "data_parallel_size", "aut", "auto"),
    ],
)
def test_a_misspelt_word_gets_the_nearest(section, field, given, meant):
    text, line = with_section(section, f"{field}: {given}")
    error = refused(text)
    assert error.message == f"r.yaml, line {line}: {section}.{field} is {given!r}"
    assert error.hint == f"did you mean {meant}?"


def test_a_word_like_no_other_gets_all_of_them():
    error = refused(with_section("training", "eval_strategy: 77")[0])
    assert error.hint == "one of no, steps, epoch"


@pytest.mark.parametrize("missing, text", [("name", "model: {id: b}"), ("model", "name: x")])
def test_what_must_be_there_is_named(missing, text):
    error = refused(text)
    assert error.message.startswith("r.yaml")
    assert f"{missing} is missing" in error.message
    assert error.hint == f"add {missing}"


def test_a_missing_field_of_an_item_has_its_line():
    error = refused(MINIMAL + "expect:\n  - {instance: a, source: b}\n  - note: c\n    source: d\n")
    assert error.message == "r.yaml, line 6: expect.1.instance is missing"


@pytest.mark.parametrize("name", ["Bert", "''", "-x", ".x", "a b", "a/b", "../x", "é", "5", "null"])
def test_a_name_that_could_be_no_folder_is_refused(name):
    error = refused(f"model: {{id: b}}\nname: {name}\n")
    assert error.message.startswith("r.yaml, line 2: name is ")


def test_a_name_does_not_end_in_a_newline():
    refused('name: "x\\n"\nmodel: {id: b}\n')


@pytest.mark.parametrize("name", ["bert", "b", "0", "bert-base_uncased.v2"])
def test_a_name_that_is_a_folder(name):
    assert read(f"name: '{name}'\nmodel: {{id: b}}").name == name


@pytest.mark.parametrize(
    "text, line, field",
    [
        (MINIMAL + "compiler:\n  flags:\n    - --a\n    - 5\n", 7, "compiler.flags.1"),
        (MINIMAL + "data:\n  labels: [a,\n    5]\n", 6, "data.labels.1"),
        (MINIMAL + "expect:\n  - {instance: a, source: b}\n  - instance: a\n    source: 7\n", 7, "expect.1.source"),
        (MINIMAL + "expect:\n  - {instance: a, source: b}\n  - 7\n", 6, "expect.1"),
        (MINIMAL + "environment:\n  A: 1\n  B: [1]\n", 6, "environment.B"),
        (MINIMAL + "environment:\n  A: 1\n  B:\n", 6, "environment.B"),
        (MINIMAL + "compiler:\n  options:\n    a: 1\n    b: [1]\n", 7, "compiler.options.b"),
        (MINIMAL + "expect:\n  - instance: a\n    source: b\n    metrics:\n      f1: good\n", 8, "expect.0.metrics.f1"),
    ],
)
def test_the_item_that_is_wrong_is_named_with_its_line(text, line, field):
    assert refused(text).message.startswith(f"r.yaml, line {line}: {field} is ")


def test_an_unknown_field_of_an_item_is_named_with_its_line():
    error = refused(MINIMAL + "expect:\n  - {instance: a, source: b}\n  - instance: a\n    sorce: b\n")
    assert error.message == "r.yaml, line 7: unknown field expect.1.sorce"
    assert error.hint == "did you mean expect.1.source?"


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("name: x\nmodel: {}\n", 2, ["model.id", "model.path", "model.package"]),
        ("name: x\nmodel:\n  path: /a\n  package: b/c\n", 4, ["model.path", "model.package"]),
        (MINIMAL + "data:\n  id: a\n  path: /b\n", 6, ["data.id", "data.path"]),
        (MINIMAL + "data:\n  id: a\n  train_file: /b.csv\n", 6, ["data.id", "data.train_file"]),
        (MINIMAL + "data:\n  labels: [a, b]\n  num_labels: 3\n", 6, ["data.num_labels", "data.labels"]),
        (MINIMAL + "data:\n  labels: [a, b, a]\n", 5, ["twice", "data.labels"]),
        (MINIMAL + "training:\n  eval_strategy: steps\n", 5, ["training.eval_steps"]),
    ],
)
def test_fields_that_do_not_go_together_are_refused(text, line, words):
    error = refused(text)
    assert error.message.startswith(f"r.yaml, line {line}: ")
    assert all(word in whole(error) for word in words)
    assert error.hint


def test_the_json_schema_knows_every_field():
    document = json_schema()
    assert document["$schema"].startswith("https://json-schema.org/")
    assert set(json.loads(json.dumps(document))) == set(document)
    for name, struct in {
        **{s.__name__: s for s in SECTIONS.values()},
        "Recipe": Recipe,
        "Expectation": Expectation,
    }.items():
        part = document["$defs"][name]
        assert set(part["properties"]) == set(struct.__struct_fields__)
        assert part["additionalProperties"] is False
    assert document["$defs"]["Recipe"]["required"] == ["name", "model"]


def test_the_json_schema_fits_the_zoos_recipes():
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema())
    for path in zoo.recipes().values():
        validator.validate(parse(path.read_text(encoding="utf-8"), str(path))[0])
    assert not validator.is_valid({"name": "x", "model": {"id": "b"}, "trainig": {}})


@pytest.mark.parametrize("place", ["id: a/b", "path: here"])
@pytest.mark.parametrize("name", ["validation_file", "test_file"])
def test_a_file_that_nobody_would_read_is_refused(place, name):
    """The figures were those of the Hub's split, or of the folder's own file."""
    text, line = with_section("data", place, f"{name}: mine.csv")
    error = refused(text)
    assert error.message.startswith(
        f"r.yaml, line {line + 1}: data.{name} is given beside data.{place.partition(':')[0]}"
    )
    assert "data.train_file" in error.hint
    assert read(with_section("data", "train_file: a.csv", f"{name}: mine.csv")[0])


def test_names_with_dots_are_set_as_a_file_says_them():
    options = read(f"{MINIMAL}compiler: {{options: {{cpp.simdlen: 8}}}}\n")
    assert read(MINIMAL, "compiler.options.cpp.simdlen=8") == options
    assert read(f"{MINIMAL}compiler: {{options: {{cpp.simdlen: 4}}}}\n", "compiler.options.cpp.simdlen=8") == options
    assert read(MINIMAL, "env.A.B=1").environment == {"A.B": 1}
    assert read(MINIMAL, "compiler.options={a: 1}").compiler.options == {"a": 1}


# Other names for fields

SAMPLES = {
    "environment": {"A": "1"},
    "training": {"seed": 7},
    "data": {"id": "a/b"},
    "expect": [{"instance": "a", "source": "b"}],
    "parallel": {"nodes": 2},
    "model.id": "roberta-base",
    "model.config": {"num_hidden_layers": 2},
    "model.tokenizer": "roberta-base",
    "data.id": "a/b",
    "data.config": "c",
    "data.train_file": "/a.csv",
    "data.validation_file": "/b.csv",
    "data.test_file": "/c.csv",
    "data.text_column": "sentence",
    "data.target_column": "out",
    "data.source_lang": "en",
    "data.target_lang": "fr",
    "data.labels": ["a", "b"],
    "data.max_train_samples": 10,
    "data.max_eval_samples": 10,
    "training.per_device_train_batch_size": 4,
    "training.per_device_eval_batch_size": 4,
    "training.max_seq_length": 64,
    "training.max_target_length": 64,
    "training.lora": {"r": 4},
    "training.num_train_epochs": 2,
    "training.max_steps": 9,
    "training.learning_rate": 0.001,
    "training.gradient_accumulation_steps": 2,
    "training.eval_strategy": "no",
    "training.lr_scheduler_type": "cosine",
    "training.optim": "sgd",
    "training.label_smoothing_factor": 0.1,
    "parallel.data_parallel_size": 2,
    "parallel.tensor_parallel_size": 2,
    "parallel.pipeline_parallel_size": 2,
    "parallel.zero_1": True,
    "parallel.nodes": 2,
    "compiler.flags": ["--a"],
    "compiler.name": "neuron",
}
ALL_SYNONYMS = [(section, given, name) for section, names in SYNONYMS.items() for given, name in names.items()]


def dotted(section, name):
    return f"{section}.{name}" if section else name


def reader(section, *names):
    """A task to which the field, by whatever name, means something."""
    names = {SYNONYMS.get(section, {}).get(name, name) for name in names}
    return next(task for task in tasks.TASKS if not names & tasks.not_read(task).get(section, set()))


def written(section, **fields):
    """A recipe in JSON, which is YAML, with these fields in a section."""
    document = {"name": "x", "model": {"id": "bert-base-uncased"}, "task": reader(section, *fields)}
    if section == "model":
        document["model"] = {"package": "p/q", **fields}
    elif section:
        document[section] = fields
    else:
        document.update(fields)
    return json.dumps(document, indent=1)


@pytest.mark.parametrize("section, given, name", ALL_SYNONYMS)
def test_each_synonym_reads_to_its_field(section, given, name):
    value = SAMPLES[dotted(section, name)]
    recipe = read(written(section, **{given: value}))
    assert recipe == read(written(section, **{name: value}))
    assert recipe != read(written(section).replace("text-classification", reader(section, name)))


@pytest.mark.parametrize("section, given, name", ALL_SYNONYMS)
def test_each_synonym_overrides_its_field(section, given, name):
    value = json.dumps(SAMPLES[dotted(section, name)])
    text = written(section).replace("text-classification", reader(section, name))
    recipe = read(text, f"{dotted(section, given)}={value}")
    assert recipe == read(text, f"{dotted(section, name)}={value}")
    assert recipe != read(text)


@pytest.mark.parametrize("section, given, name", ALL_SYNONYMS)
@pytest.mark.parametrize("synonym_first", [True, False])
def test_two_names_for_one_field_are_an_error(section, given, name, synonym_first):
    value = SAMPLES[dotted(section, name)]
    order = (given, name) if synonym_first else (name, given)
    text = written(section, **dict.fromkeys(order, value))
    error = refused(text)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if f'"{order[1]}":' in line]
    assert error.message.startswith(tuple(f"r.yaml, line {number}: " for number in lines)), error.message
    assert re.search(rf"(^|\W){re.escape(dotted(section, given))}(\W|$)", error.message), "which other name?"
    assert dotted(section, name) in error.message
    assert error.hint == f"keep {dotted(section, name)}"


def test_two_synonyms_for_one_field_are_an_error_too():
    error = refused(MINIMAL + "training:\n  epochs: 1\n  seed: 1\n  num_epochs: 2\n")
    assert error.message.startswith("r.yaml, line 7: ")
    assert "training.epochs" in error.message
    assert "training.num_epochs" in error.message


def test_no_synonym_hides_a_field():
    for section, names in SYNONYMS.items():
        fields = SECTIONS[section].__struct_fields__ if section else Recipe.__struct_fields__
        assert not set(names) & set(fields)
        assert set(names.values()) <= set(fields)


def test_synonyms_may_be_mixed_and_nested():
    recipe = read("""
name: x
model: {model_name_or_path: bert-base-uncased, config_overrides: {num_hidden_layers: 2}}
dataset: {dataset_name: a/b, label_names: [p, n]}
trainer: {lr: 1e-3, batch_size: 4, max_length: 64}
parallelism: {nproc_per_node: 2}
env: {A: 1}
""")
    assert recipe.model.config == {"num_hidden_layers": 2}
    assert (recipe.data.id, recipe.data.labels) == ("a/b", ("p", "n"))
    assert (recipe.training.learning_rate, recipe.training.max_seq_length) == (1e-3, 64)
    assert recipe.parallel.data_parallel_size == 2
    assert recipe.environment == {"A": 1}


def test_an_error_in_a_synonym_has_its_line_and_our_name():
    error = refused(MINIMAL + "trainer:\n  seed: 1\n  lr: fast\n")
    assert error.message == "r.yaml, line 6: training.learning_rate is 'fast'"


# Overrides


@pytest.mark.parametrize(
    "override, get, value",
    [
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
        ("model.config={a: 1}", lambda r: r.model.config, {"a": 1}),
        ("environment.OMP_NUM_THREADS=2", lambda r: r.environment, {"OMP_NUM_THREADS": 2}),
        ("env.X=a=b", lambda r: r.environment, {"X": "a=b"}),
        ("description=a=b", lambda r: r.description, "a=b"),
        ("description='5'", lambda r: r.description, "5"),
        ("name=other", lambda r: r.name, "other"),
    ],
)
def test_an_override_is_read_as_yaml(override, get, value):
    found = get(read(MINIMAL, override))
    assert found == value
    assert type(found) is type(value)


def test_an_override_beats_the_file_and_the_last_one_the_others():
    text = MINIMAL + "training: {lr: 1e-3, seed: 1}\n"
    recipe = read(text, "training.learning_rate=2e-3", "training.lr=3e-3")
    assert (recipe.training.learning_rate, recipe.training.seed) == (3e-3, 1)


def test_an_override_leaves_its_neighbours():
    text = "name: x\nmodel: {id: b, config: {a: 1, b: 2}}\nenvironment: {A: 1}\n"
    recipe = read(text, "model.config.b=3", "environment.B=2")
    assert recipe.model.config == {"a": 1, "b": 3}
    assert recipe.environment == {"A": 1, "B": 2}


def test_overrides_make_what_the_file_leaves_out():
    assert read("name: x", "model.id=b").model.id == "b"
    assert read("name: x\nmodel:\n", "model.id=b").model.id == "b"


def test_a_synonym_reads_inside_an_override_as_well():
    assert read(MINIMAL, "model.config_overrides.num_hidden_layers=2").model.config == {"num_hidden_layers": 2}


def test_a_synonym_reads_inside_a_whole_section():
    assert read(MINIMAL, "training={lr: 1e-3}").training.learning_rate == 1e-3


def test_data_can_be_swapped():
    text = MINIMAL + "data: {id: a/b}\n"
    assert refused(text, "data.path=/x").hint
    recipe = read(text, "data.id=null", "data.path=/x")
    assert (recipe.data.id, recipe.data.path) == (None, "/x")


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


@pytest.mark.parametrize(
    "value", ["[1", "{a", "'a", "*x", "&", ".inf", ".nan", "1e999", "a: b: c", "!!python/name:a b"]
)
def test_an_override_that_is_no_yaml_is_named(value):
    error = refused(MINIMAL, f"training.learning_rate={value}")
    assert "--set training.learning_rate" in error.message, error.lines()


@pytest.mark.parametrize("override", ["", "x", "training.lr", "=1", ".=1", "training.=1", ".lr=1", "a..b=1"])
def test_a_malformed_override_is_a_usage_error(override):
    error = refused(MINIMAL, override, kind=UsageError)
    assert f"--set {override}" in error.message
    assert "field=value" in error.message
    assert error.exit_code == 2


@pytest.mark.parametrize("override", ["name.x=1", "model.id.x=1", "expect.a=1"])
def test_an_override_inside_what_has_no_fields_is_a_usage_error(override):
    error = refused(MINIMAL + "expect: [{instance: a, source: b}]\n", override, kind=UsageError)
    assert override in error.message


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


def test_undecodable_bytes_in_an_override_are_answered():
    refused(MINIMAL, "description=\udcff", kind=CachekitError)


# YAML's surprises


@pytest.mark.parametrize(
    "text, value",
    [
        ("5e-5", 5e-5),
        ("5E-5", 5e-5),
        ("+5e5", 5e5),
        ("1e3", 1000.0),
        ("-1.5", -1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1.5e3", 1500.0),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("0", 0),
        ("0x1F", 31),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("No", "No"),
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("n", "n"),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'null'", "null"),
        ("'5e-5'", "5e-5"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
        ("1.2.3", "1.2.3"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("!!str 5", "5"),
        ("é", "é"),
        ("[1, 2.0, a, null]", [1, 2.0, "a", None]),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text, value):
    found = config_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [".inf", "-.inf", "+.INF", ".nan", ".NaN", "1e999", "-1e999"])
def test_what_is_not_finite_is_refused_where_it_stands(value):
    error = refused(with_section("training", "seed: 1", f"learning_rate: {value}")[0])
    assert error.message == "r.yaml, line 6: training.learning_rate is not a finite number"


@pytest.mark.parametrize(
    "text, line, name",
    [
        (MINIMAL + "name: y\n", 4, "name"),
        (MINIMAL + "name: x\n", 4, "name"),
        (MINIMAL + "training:\n  seed: 1\n  lr: 1\n  seed: 1\n", 7, "training.seed"),
        (MINIMAL + "training: {seed: 1,\n  seed: 2}\n", 5, "training.seed"),
        ("name: x\nmodel:\n  id: b\n  config:\n    a: 1\n    'a': 1\n", 6, "model.config.a"),
        (MINIMAL + "expect:\n  - instance: a\n    instance: b\n", 6, "expect.0.instance"),
        (MINIMAL + "environment: {1: a, '1': b}\n", 4, "environment.1"),
    ],
)
def test_a_name_that_stands_twice_is_refused(text, line, name):
    error = refused(text)
    assert error.message == f"r.yaml, line {line}: {name} stands twice"
    assert "first on line" in error.cause


@pytest.mark.parametrize(
    "value",
    [
        "!!python/name:os.system ''",
        "!!python/object/apply:os.system [echo]",
        "!!python/object:os.system {a: b}",
        "!!python/tuple [a]",
        "!own a",
        "!own [a]",
        "!own {a: b}",
        "!!set {a, b}",
        "!!omap [a: b]",
        "!!binary aGk=",
        "!!timestamp 2024-01-01",
    ],
)
def test_a_tag_is_refused_where_it_stands(value):
    error = refused(f"name: x\nmodel:\n  id: b\n  config:\n    v: {value}\n")
    assert error.message.startswith("r.yaml, line 5: ")


@pytest.mark.parametrize("text", ["0b_", "0x_", "0_", "-_", "0x", "0b", "1_000", "0b11", "1_0.5", "1:30.5"])
def test_what_is_a_number_to_some_is_a_word_or_refused(text):
    found = attempt(config_value, text)
    assert isinstance(found, RecipeError) or found == text


@pytest.mark.parametrize(
    "value",
    ["!!int abc", "!!int ''", "!!float abc", "!!bool abc", "!!timestamp x", "9" * 5000, "=", "<<"],
)
def test_a_value_that_cannot_be_made_is_refused_where_it_stands(value):
    error = refused(f"name: x\nmodel:\n  id: b\n  config:\n    v: {value}\n")
    assert error.message.startswith("r.yaml, line 5: ")


@pytest.mark.parametrize("text", ["[a]: 1", "{a: b}: 1", "? [a]\n: 1", "<<: {a: 1}", "? \n: 1\n? !!null x\n: [*a]"])
def test_a_name_that_is_no_word_is_refused(text):
    refused(MINIMAL + text)


def test_an_anchor_gives_a_value_again():
    recipe = read("""
name: &name x
description: *name
model: {id: b}
environment: &env {A: "1"}
compiler: {options: *env}
""")
    assert recipe.description == "x"
    assert recipe.compiler.options == recipe.environment == {"A": "1"}


@pytest.mark.parametrize("text", ["description: *nobody", "environment: &a {A: *a}", "expect: &a [*a]"])
def test_an_anchor_that_is_not_there_or_holds_itself_is_refused(text):
    refused(MINIMAL + text)


def test_anchors_that_multiply_are_refused():
    """A page of text that stands for a hundred thousand items; one more line would be a million."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 5)]
    text = "name: x\nmodel:\n  id: b\n  config:\n" + "".join(f"    {line}\n" for line in lines)
    assert "r.yaml" in refused(text).message


@pytest.mark.parametrize(
    "text, line",
    [
        ("name: x\n\tmodel: 1\n", 2),
        ("name: x\nmodel:\n\tid: b\n", 3),
        ("name: x\nmodel: {id: b\ndata: {}\n", 3),
        ("name: x\nmodel: [a\n", 3),
        ("name: x\ndescription: 'a\n", 3),
        ("name: x\n  model: {id: b}\n", 2),
        ("name: x\ndescription: a: b\n", 2),
        ("name: x\nmodel: @b\n", 2),
        ("name: x\n---\nname: y\n", 2),
        ("%YAML 1.2\nname: x\n", 2),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_line(text, line):
    error = refused(text)
    assert error.message == f"r.yaml, line {line}: not valid YAML"
    assert error.cause


def test_tabs_get_a_hint():
    for text in ("name: x\nmodel:\n\tid: b\n", "name: x\n\tmodel: 1\n"):
        assert "spaces" in refused(text).hint


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# nothing\n", "---\n", "null", "~", "[]", "- name: x", "text", "5", "true"]
)
def test_what_is_no_mapping_is_refused(text):
    error = refused(text)
    assert error.message == "r.yaml: a recipe is a mapping of fields"
    assert error.cause.startswith("this is ")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_newline_will_do(newline):
    text = "name: x\nmodel:\n  id: b\ntraining:\n  sed: 1\n".replace("\n", newline)
    assert refused(text).message == "r.yaml, line 5: unknown field training.sed"


@pytest.mark.parametrize(
    "text", [MINIMAL + "description: a\x00b", MINIMAL + "description: a\x07b", MINIMAL + "a: \ufffe"]
)
def test_control_characters_are_refused(text):
    assert refused(text).message.startswith("r.yaml")


def test_a_lone_surrogate_is_refused():
    refused(MINIMAL + "description: \ud800", kind=CachekitError)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[31mb", "a\u2028b"])
def test_an_error_stays_on_its_lines(name):
    """Three lines, whatever stands in the file: what reads them, and a terminal, must not be fooled."""
    for text in (MINIMAL + f"{json.dumps(name)}: 1\n", MINIMAL + f"training: {{optim: {json.dumps(name)}}}\n"):
        error = refused(text)
        assert 1 <= len(error.lines()) <= 3
        for line in error.lines():
            assert line.isprintable()


@pytest.mark.parametrize("depth", [60, 300, 2000])
@pytest.mark.parametrize("left, right", [("[", "]"), ("{a: ", "}")])
def test_deep_nesting_is_refused_or_read(depth, left, right):
    value = attempt(config_value, left * depth + "1" + right * depth)
    if isinstance(value, CachekitError):
        assert value.message.startswith("r.yaml")
        return
    for _ in range(depth):
        value = value[0] if isinstance(value, list) else value["a"]
    assert value == 1


def test_no_depth_of_nesting_ends_the_process():
    """In a process of its own: libyaml's binding recurses on the C stack."""
    script = (
        "from cachekit.recipe import load_text\n"
        "from cachekit.errors import RecipeError\n"
        "for text in ('[' * 300_000, '- ' * 300_000, '{a: ' * 200_000, 'a: ' + '[' * 300_000 + ']' * 300_000):\n"
        "    try: load_text(text)\n"
        "    except RecipeError: print('refused')\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split()) == (0, ["refused"] * 4), run.stderr[-500:]


# Files


def test_a_file_is_read(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\nmodel: {id: b}\r\ndescription: caf\xc3\xa9\r\n")
    assert load(path).description == "café"


@pytest.mark.parametrize("spoil, line", [(b"\xff", 1), (b"name: x\n# caf\xe9\n", 2), (b"\n\n\xc3", 3)])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path, spoil, line, bom):
    path = tmp_path / "r.yaml"
    path.write_bytes(bom + spoil)
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.message == f"{path}, line {line}: not UTF-8"


def test_utf_16_is_refused(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes(MINIMAL.encode("utf-16"))
    with pytest.raises(RecipeError, match="not UTF-8"):
        load(path)


def test_a_file_that_is_too_large_to_be_a_recipe_is_refused(tmp_path):
    path = tmp_path / "r.yaml"
    text = MINIMAL.encode()
    path.write_bytes(text + b"#" * (LARGEST - len(text)))
    assert load(path).name == "x"
    path.write_bytes(text + b"#" * (LARGEST - len(text) + 1))
    with pytest.raises(RecipeError, match="is no recipe"):
        load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, words in ((tmp_path / "no.yaml", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(RecipeError) as caught:
            load(path)
        assert str(path) in caught.value.message
        assert words in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize("name", ["a" * 5000, "a/b.yaml", "r.yaml/b.yaml", "a\0b"])
def test_a_path_that_cannot_be_is_answered(tmp_path, name):
    (tmp_path / "r.yaml").write_text(MINIMAL)
    with pytest.raises(RecipeError):
        load(tmp_path / name)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL + "trainig: {}\n")
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.message == f"{path}, line 4: unknown field trainig"


# Paths


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A recipe's folder, and another that is the working directory."""
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    return home, cwd


LOCAL = [
    ("data", "path"),
    ("data", "train_file"),
    ("data", "validation_file"),
    ("data", "test_file"),
    ("model", "path"),
]


def put(folder, text):
    path = folder / "r.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("section, field", LOCAL)
@pytest.mark.parametrize("value", ["texts", "./texts", "../texts", "a/b.csv"])
def test_relative_paths_start_at_the_recipe(places, section, field, value):
    home, cwd = places
    path = put(home, with_section(section, f"{field}: {value}")[0])
    for spelling in (path, Path(os.path.relpath(path, cwd))):
        found = Path(getattr(getattr(load(spelling), section), field))
        assert found.is_absolute()
        assert os.path.normpath(found) == os.path.normpath(home / value)


@pytest.mark.parametrize("section, field", LOCAL)
@pytest.mark.parametrize("whole_section", [True, False])
def test_relative_paths_of_overrides_start_at_the_working_directory(places, section, field, whole_section):
    home, cwd = places
    path = put(home, with_section(section, f"{field}: elsewhere")[0])
    override = f"{section}={{{field}: texts}}" if whole_section else f"{section}.{field}=texts"
    assert getattr(getattr(load(path, [override]), section), field) == str(cwd / "texts")


def test_an_override_elsewhere_leaves_the_files_paths(places):
    home, _ = places
    path = put(home, MINIMAL + "data: {train: a.csv}\n")
    assert load(path, ["data.label_column=x"]).data.train_file == str(home / "a.csv")


@pytest.mark.parametrize("section, field", LOCAL)
def test_absolute_paths_stay(places, section, field):
    home, cwd = places
    path = put(home, with_section(section, f"{field}: {cwd}/x")[0])
    assert getattr(getattr(load(path), section), field) == f"{cwd}/x"


def test_a_tilde_is_the_users_home(places, monkeypatch):
    home, cwd = places
    monkeypatch.setenv("HOME", str(cwd))
    path = put(home, MINIMAL + "data: {path: ~/texts}\n")
    assert load(path).data.path == str(cwd / "texts")
    assert load(path, ["data.path=~/others"]).data.path == str(cwd / "others")


@pytest.mark.parametrize("override", [[], ["data.path=~no-such-user-at-all/x"]])
def test_the_home_of_nobody_is_answered(places, override):
    home, _ = places
    path = put(home, MINIMAL + ("" if override else "data: {path: ~no-such-user-at-all/x}\n"))
    with pytest.raises(CachekitError):
        load(path, override)


def test_a_tokenizer_is_a_folder_only_if_it_is_one(places):
    home, cwd = places
    path = put(home, "name: x\nmodel: {id: b, tokenizer: a/tok}\n")
    assert load(path).model.tokenizer == "a/tok"
    (home / "a" / "tok").mkdir(parents=True)
    assert load(path).model.tokenizer == str(home / "a" / "tok")
    assert load(path, ["model.tokenizer=./tok"]).model.tokenizer == str(cwd / "tok")
    assert load(path, ["model.tokenizer=b/tok"]).model.tokenizer == "b/tok"


def test_a_models_id_is_never_a_path(places):
    home, cwd = places
    for folder in (home, cwd):
        (folder / "bert-base-uncased").mkdir()
    assert load(put(home, MINIMAL)).model.id == "bert-base-uncased"


# Anything at all

WORDS = [
    *("name", "model", "data", "training", "parallel", "compiler", "environment", "expect", "id", "config", "flags"),
    *("options", "labels", "learning_rate", "lr", "bf16", "path", "metrics", "instance", "source", "x", "auto", "no"),
]
FRAGMENTS = [
    *WORDS,
    *(
        ": ",
        ":\n  ",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "'",
        '"',
        "|\n",
        ">\n",
        "#",
        "? ",
        "---\n",
        "\t",
    ),
    *("&a ", "*a", "!!int ", "!!float ", "!!bool ", "!!null ", "!!str ", "!!python/name:os ", "!x ", "<<", "=", "~"),
    *(
        "0",
        "1",
        "-",
        "+",
        ".",
        "_",
        "0x",
        "0b",
        "0o",
        "e5",
        ".inf",
        ".nan",
        "1:30",
        "\\",
        "\x00",
        "\ufeff",
        "\x85",
        "é",
    ),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)
PLAUSIBLE = st.fixed_dictionaries(
    {"name": st.just("x"), "model": st.just({"id": "b"})},
    optional={
        **{
            section: st.dictionaries(st.sampled_from(struct.__struct_fields__), DOCUMENTS, max_size=3)
            for section, struct in SECTIONS.items()
            if section != "model"
        },
        "environment": DOCUMENTS,
        "expect": st.lists(
            st.fixed_dictionaries(
                {}, optional=dict.fromkeys(("instance", "source", "metrics", "note", "wrong"), DOCUMENTS)
            ),
            max_size=3,
        ),
    },
)


def answered(text, *overrides):
    """Read, or refused with an error of ours that says where."""
    outcome = attempt(read, text, *overrides)
    if isinstance(outcome, CachekitError):
        assert 1 <= len(outcome.lines()) <= 3
        assert "r.yaml" in outcome.message or "--set" in outcome.message
    else:
        assert isinstance(outcome, Recipe)


@settings(max_examples=800, deadline=None)
@given(st.text(max_size=60) | st.lists(st.sampled_from(FRAGMENTS), max_size=15).map("".join))
def test_any_text_is_read_or_refused(text):
    answered(text)
    answered(MINIMAL + text)


@settings(max_examples=250, deadline=None)
@given(DOCUMENTS)
def test_any_document_is_read_or_refused(document):
    answered(json.dumps(document))


@settings(max_examples=150, deadline=None)
@given(PLAUSIBLE)
def test_any_nearly_right_document_is_read_or_refused(document):
    answered(json.dumps(document, indent=1))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, ".", "..", " "]), max_size=4).map(".".join)
    | st.sampled_from([f"{section}.{field}" for section, field in FIELDS]),
    st.text(max_size=12) | st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join),
)
def test_any_override_is_read_or_refused(name, value):
    answered(MINIMAL, f"{name}={value}")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_file_is_read_or_refused(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(raw)
    outcome = attempt(load, path)
    assert isinstance(outcome, CachekitError), "forty bytes are no recipe"
    assert str(path) in outcome.message


# Tasks


@pytest.mark.feature("U2")
@pytest.mark.parametrize("task", sorted(tasks.TASKS))
def test_what_another_task_reads_is_refused(task):
    """No recipe carries a value that its task ignores."""
    samples = {"mlm_probability": 0.2, "doc_stride": 8, "lora": {"r": 4}, "max_seq_length": 8, "max_target_length": 8}
    samples |= {
        "label_smoothing_factor": 0.1,
        "labels": ["a", "b"],
        "num_labels": 2,
        "num_choices": 2,
        "choices_columns": ["a", "b"],
    }
    samples["image_size"] = 8
    for section, names in tasks.not_read(task).items():
        for name in names:
            value = samples.get(name, "text")
            document = {"name": "x", "task": task, "model": {"id": "bert-base-uncased"}, section: {name: value}}
            error = refused(json.dumps(document, indent=1))
            assert f"{section}.{name} means nothing to {task}" in error.message
            readers = error.cause.removeprefix("it is read by ").split(", ")
            assert readers == tasks.readers(section, name)
            assert task not in readers
            read(json.dumps({**document, "task": readers[0]}))
            read(json.dumps(document), f"task={readers[0]}")
