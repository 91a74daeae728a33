"""The schema of a recipe: what may be said, and how a wrong value is answered."""

from __future__ import annotations

import json

import pytest

from cachekit.recipe import Recipe, json_schema, tasks, zoo
from cachekit.recipe.schema import Model, Training
from cachekit.recipe.yaml_text import parse
from tests.recipe.recipe_texts import FIELDS, MINIMAL, SECTIONS, read, refused, with_section

pytestmark = pytest.mark.versions


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


# One field of each kind, and those with limits of their own.
IMPOSSIBLE = [
    ("training", "per_device_train_batch_size", ["0", "-1", "1.5", "'8'", "true", "null", "[8]", "1" + "0" * 20]),
    ("training", "max_seq_length", ["1", "0", "long"]),
    ("training", "bf16", ["1", "yes", "on", "fp16"]),
    ("training", "optim", ["adam", "1", "null"]),
    ("training", "weight_decay", ["-0.1", "small"]),
    ("training", "adam_beta1", ["1", "1.1", "-0.1"]),
    ("training", "label_smoothing_factor", ["2"]),
    ("training", "gradient_checkpointing", ["1", "yes"]),
    ("training", "warmup_steps", ["-1", "0.1"]),
    ("training", "num_train_epochs", ["0", "-3"]),
    ("training", "seed", ["-1", "1.5", "4294967296"]),
    ("training", "output_dir", ["''", "5"]),
    ("data", "labels", ["[a]", "[]", "a", "[a, '']", "[1, 2]"]),
    ("data", "num_labels", ["1", "two", "99999999999"]),
    ("data", "validation_fraction", ["0", "1", "1.5", "-0.1"]),
    ("data", "delimiter", ["''", "';;'", "1"]),
    ("model", "id", ["''", "5", "[a]"]),
    ("model", "config", ["[]", "text"]),
    ("parallel", "data_parallel_size", ["0", "all"]),
    ("compiler", "flags", ["--a", "[1]", "{a: 1}"]),
]


def test_an_impossible_value_is_refused_with_file_line_and_field():
    for section, field, bad in IMPOSSIBLE:
        for value in bad:
            text, line = with_section(section, "# a line between", f"{field}: {value}")
            error = refused(text)
            assert error.message.startswith(f"r.yaml, line {line + 1}: {section}.{field}"), (value, error.lines())
            assert error.hint, value


def test_a_value_of_the_wrong_kind_is_refused_with_file_line_and_field():
    for section, field in FIELDS:
        wrong = "[{a: b}]" if field in {"config", "options", "lora"} else "{a: b}"
        text, line = with_section(section, f"{field}: {wrong}")
        error = refused(text)
        assert error.message.startswith(f"r.yaml, line {line}: {section}.{field} is "), error.lines()
        assert error.cause.startswith("expected"), error.lines()


def test_a_section_that_is_none_is_refused_with_file_and_line():
    for value in ["null", "5", "text", "[1]"]:
        for section in [*SECTIONS, "environment", "expect"]:
            head = "name: x\n" if section == "model" else MINIMAL
            error = refused(f"{head}{section}: {value}\n")
            assert f"r.yaml, line {head.count(chr(10)) + 1}: {section}" in error.message


def test_a_misspelt_field_gets_the_nearest_name():
    for section, field in FIELDS:
        text, line = with_section(section, f"{field}{field[-1]}: 1")
        error = refused(text)
        assert error.message == f"r.yaml, line {line}: unknown field {section}.{field}{field[-1]}"
        assert error.hint == f"did you mean {section}.{field}?"
        assert error.cause.startswith(f"fields of {section} are ")
        assert field in error.cause


def test_another_tools_field_with_other_values_gets_a_pointer_to_ours():
    assert refused(with_section("training", "precision: bf16-mixed")[0]).hint == "did you mean training.bf16?"


def test_a_field_like_no_other_says_where_all_fields_are_listed():
    error = refused(MINIMAL + "zzzzzz: 1\n")
    assert error.message == "r.yaml, line 4: unknown field zzzzzz"
    assert "cachekit zoo schema" in error.hint


@pytest.mark.parametrize(
    "section, field, given, meant",
    [
        ("training", "optim", "adamw_troch", "adamw_torch"),
        ("training", "lr_scheduler_type", "cosin", "cosine"),
        ("training", "eval_strategy", "step", "steps"),
        ("training", "bf16", "atuo", "auto"),
        ("parallel", "data_parallel_size", "aut", "auto"),
    ],
)
def test_a_misspelt_word_gets_the_nearest(section, field, given, meant):
    text, line = with_section(section, f"{field}: {given}")
    error = refused(text)
    assert error.message == f"r.yaml, line {line}: {section}.{field} is {given!r}"
    assert error.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("text", "section"),
    [("name: x\nmodel: someone/thing\n", "model"), ("name: x\nmodel: {id: b}\ndata: someone/thing\n", "data")],
)
def test_a_section_that_is_a_mere_name_is_told_its_form(text, section):
    assert refused(text).hint == f"write {section}: {{id: someone/thing}}"


@pytest.mark.parametrize("missing, text", [("name", "model: {id: b}"), ("model", "name: x")])
def test_what_must_be_there_is_named(missing, text):
    error = refused(text)
    assert error.message.startswith("r.yaml")
    assert f"{missing} is missing" in error.message
    assert error.hint == f"add {missing}"


def test_a_name_that_could_be_no_folder_is_refused():
    for name in ["Bert", "''", "-x", ".x", "a b", "a/b", "../x", "é", "5", "null", '"x\\n"', "x" * 101]:
        error = refused(f"model: {{id: b}}\nname: {name}\n")
        assert error.message.startswith("r.yaml, line 2: name is ")
        assert "regex" not in error.cause
    assert error.cause == "expected text of 100 characters at most"


@pytest.mark.parametrize("name", ["bert", "b", "0", "bert-base_uncased.v2"])
def test_a_name_that_is_a_folder(name):
    assert read(f"name: '{name}'\nmodel: {{id: b}}").name == name


EXPECT = MINIMAL + "expect:\n  - {instance: a, source: b}\n  - "


def test_the_item_that_is_wrong_is_named_with_its_line():
    for text, line, said in [
        (MINIMAL + "compiler:\n  flags:\n    - --a\n    - 5\n", 7, "compiler.flags.1 is "),
        (MINIMAL + "data:\n  labels: [a,\n    5]\n", 6, "data.labels.1 is "),
        (EXPECT + "instance: a\n    source: 7\n", 7, "expect.1.source is "),
        (EXPECT + "7\n", 6, "expect.1 is "),
        (EXPECT + "note: c\n    source: d\n", 6, "expect.1.instance is missing"),
        (EXPECT + "instance: a\n    sorce: b\n", 7, "unknown field expect.1.sorce"),
        (MINIMAL + "environment:\n  A: 1\n  B: [1]\n", 6, "environment.B is "),
        (MINIMAL + "environment:\n  A: 1\n  B:\n", 6, "environment.B is "),
        (MINIMAL + "compiler:\n  options:\n    a: 1\n    b: [1]\n", 7, "compiler.options.b is "),
        (EXPECT + "instance: a\n    source: b\n    metrics:\n      f1: good\n", 9, "expect.1.metrics.f1 is "),
    ]:
        assert refused(text).message.startswith(f"r.yaml, line {line}: {said}")


@pytest.mark.parametrize(
    ("label", "hint"), [("5", 'quote it: "5"'), ("True", 'quote it: "true"'), ("[a]", "correct data.labels.1")]
)
def test_a_label_that_yaml_takes_for_something_else_is_to_be_quoted(label, hint):
    assert refused(MINIMAL + f"data:\n  labels: [a, {label}]\n").hint.startswith(hint)


def test_one_of_several_is_to_be_written_as_a_list():
    assert refused(MINIMAL, "training.report_to=tensorboard").hint == "write [tensorboard]"


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("environment: {A: false}\n", [], 'quote it: "false"'),
        ("", ["environment.A=false"], "for the shell, too: '\"false\"'"),
    ],
)
def test_a_variable_that_yaml_takes_for_a_truth_value_is_to_be_quoted(text, words, hint):
    assert hint in refused(MINIMAL + text, *words).hint


def test_fields_that_do_not_go_together_are_refused():
    for text, line, words in [
        ("name: x\nmodel: {}\n", 2, ["model.id", "model.path", "model.package"]),
        ("name: x\nmodel:\n  path: /a\n  package: b/c\n", 4, ["model.path", "model.package"]),
        (MINIMAL + "data:\n  id: a\n  path: /b\n", 6, ["data.id", "data.path"]),
        (MINIMAL + "data:\n  id: a\n  train_file: /b.csv\n", 6, ["data.id", "data.train_file"]),
        (MINIMAL + "data:\n  labels: [a, b]\n  num_labels: 3\n", 6, ["data.num_labels", "data.labels"]),
        (MINIMAL + "data:\n  labels: [a, b, a]\n", 5, ["twice", "data.labels"]),
        (MINIMAL + "training:\n  eval_strategy: steps\n", 5, ["training.eval_steps"]),
    ]:
        error = refused(text)
        assert error.message.startswith(f"r.yaml, line {line}: ")
        said = "\n".join(error.lines())
        assert all(word in said for word in words)
        assert error.hint


def test_a_placeholder_is_named_with_its_field_before_anything_is_asked_for_it():
    for section, field, value in [
        ("model", "id", "{model_name}"),
        ("model", "id", "$MODEL"),
        ("model", "id", "???"),
        ("model", "path", "path/to/model"),
        ("data", "id", "<your-data>"),
        ("data", "train_file", "$DATA/train.csv"),
    ]:
        text = f"name: x\n{section}:\n  {field}: '{value}'\n" + ("" if section == "model" else "model: {id: b}\n")
        error = refused(text)
        assert error.message == f"r.yaml, line 3: {section}.{field} is the placeholder {value}"
        assert f"--set {section}.{field}=" in error.hint
        other = "a" if field == "id" else "/a"
        assert getattr(getattr(read(text, f"{section}.{field}={other}"), section), field) == other


def test_a_file_that_is_there_is_no_placeholder(tmp_path):
    (tmp_path / "$DATA.csv").write_text("a,b")
    assert read(MINIMAL + f"data: {{train_file: {tmp_path}/$DATA.csv}}").data.train_file


def test_the_json_schema_fits_the_zoos_recipes():
    jsonschema = pytest.importorskip("jsonschema")
    document = json_schema()
    assert set(document["$defs"]["Training"]["properties"]) == set(Training.__struct_fields__)
    validator = jsonschema.Draft202012Validator(document)
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
        f"r.yaml, line {line + 1}: data.{name} is given together with data.{place.partition(':')[0]}"
    )
    assert "data.train_file" in error.hint
    assert read(with_section("data", "train_file: a.csv", f"{name}: mine.csv")[0])


def test_names_with_dots_are_set_as_a_file_says_them():
    options = read(f"{MINIMAL}compiler: {{options: {{cpp.simdlen: 8}}}}\n")
    assert read(MINIMAL, "compiler.options.cpp.simdlen=8") == options
    assert read(f"{MINIMAL}compiler: {{options: {{cpp.simdlen: 4}}}}\n", "compiler.options.cpp.simdlen=8") == options
    assert read(MINIMAL, "env.A.B=1").environment == {"A.B": 1}
    assert read(MINIMAL, "compiler.options={a: 1}").compiler.options == {"a": 1}


# Tasks


@pytest.mark.feature("U2")
def test_what_another_task_reads_is_refused():
    """No recipe carries a value that its task ignores."""
    for task in sorted(tasks.TASKS):
        samples = {
            "mlm_probability": 0.2,
            "doc_stride": 8,
            "lora": {"r": 4},
            "max_seq_length": 8,
            "max_target_length": 8,
        }
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
                assert f"{section}.{name} has no effect on {task}" in error.message
                readers = error.cause.removeprefix("tasks that read it: ").split(", ")
                assert readers == tasks.readers(section, name)
                assert task not in readers
                read(json.dumps({**document, "task": readers[0]}))
                read(json.dumps(document), f"task={readers[0]}")
