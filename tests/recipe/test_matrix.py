"""`cachekit warm --matrix`: lists of fine-tunes."""

import json

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe import load, zoo
from cachekit.recipe.variant import read_matrix

pytest_plugins = ["tests.support.cli_session"]


def loaded(entry):
    return load(zoo.recipe_path(entry.recipe), entry.overrides)


def matrix(tmp_path, document, name="list.json"):
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "document, said",
    [
        ({"bert": {"bert-base-uncased": {"default": {"batch_size": 8}}}}, "is not a list"),
        ({}, "is not a list"),
        ([], "is not a list"),
        ("bert", "is not a list"),
        ([{"set": {}}], "entry 1"),
        ([{"recipe": "bert", "sets": {}}], "entry 1"),
        ([{"recipe": "bert"}, {"recipe": "bert", "set": ["seed"]}], "entry 2: set has 'seed'"),
    ],
)
def test_what_is_no_list(tmp_path, document, said):
    with pytest.raises(RecipeError) as caught:
        read_matrix(matrix(tmp_path, document))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["{", "\xff", '{"a": 1'])
def test_what_cannot_be_read(tmp_path, text):
    (tmp_path / "list.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RecipeError):
        read_matrix(tmp_path / "list.json")
    with pytest.raises(RecipeError):
        read_matrix(tmp_path / "missing.yaml")


def test_our_own_list(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text(
        "- bert\n"
        "- recipe: bert\n"
        "  set: {training.max_seq_length: 64, data.text_column: '7', description: 'a: b'}\n"
        "- {recipe: gpt2-clm, set: [training.max_seq_length=32], name: short}\n"
    )
    plain, changed, short = read_matrix(path)
    assert (plain.recipe, plain.overrides, plain.name) == ("bert", (), "bert")
    one = loaded(changed)
    assert (one.training.max_seq_length, one.data.text_column, one.description) == (64, "7", "a: b")
    assert (short.name, loaded(short).training.max_seq_length) == ("short", 32)


def test_a_section_that_is_set_as_recipes_write_it_keeps_its_other_fields(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text("- bert\n- {recipe: bert, set: {training: {max_seq_length: 64, bf16: false}}}\n")
    plain, changed = (loaded(entry).training for entry in read_matrix(path))
    assert (changed.max_seq_length, changed.bf16) == (64, False)
    assert changed.per_device_train_batch_size == plain.per_device_train_batch_size == 16


# The verb


LIST = "- tiny.yaml\n- {recipe: tiny.yaml, set: {training.max_seq_length: 513}}\n- {recipe: tiny.yaml, name: again}\n"


def test_it_goes_on_after_a_failure_and_says_what_became_of_each(command, work, machine, worker):
    (work / "list.yaml").write_text(LIST)
    answer = command("warm", "--matrix", "list.yaml", "--format", "json", code=2)
    found = answer.json
    assert [entry["status"] for entry in found["entries"]] == ["compiled", "failed", "hit"]
    assert (found["compiled"], found["failed"], found["hit"]) == (1, 1, 1)
    assert found["entries"][0]["key"] == found["entries"][2]["key"]
    assert "max_seq_length is 513" in found["entries"][1]["error"]["message"]
    assert found["error"]["code"] == "bad-recipe"
    assert "1 of 3 could not be warmed" in found["error"]["message"]
    assert "3 of 3: again" in answer.err
    text = command("warm", "--matrix", "list.yaml", code=2).out
    assert "2 hit, 1 failed" in text
    assert "again" in text


def test_a_list_that_is_all_warm(command, work, machine, worker):
    (work / "list.yaml").write_text("- tiny.yaml\n- {recipe: tiny.yaml, set: {training.max_seq_length: 16}}\n")
    first = command("warm", "--matrix", "list.yaml", "-f", "json").json
    assert first["compiled"] == 2
    keys = command("warm", "--matrix", "list.yaml", "-f", "quiet").out.split()
    assert keys == [entry["key"] for entry in first["entries"]]
    assert command("plan", "tiny.yaml", "--set", "training.max_seq_length=16", "-f", "quiet").out == "hit\n"


def test_what_is_set_changes_every_entry(command, work, machine, worker):
    (work / "list.yaml").write_text(LIST)
    command("warm", "--matrix", "list.yaml", "--set", "training.max_seq_length=16")
    assert command("plan", "tiny.yaml", "--set", "training.max_seq_length=16", "-f", "quiet").out == "hit\n"
    assert command("plan", "tiny.yaml", "-f", "quiet").out == "miss\n"


def test_a_dry_run_of_a_list_compiles_nothing(command, work, machine, home):
    (work / "list.yaml").write_text("- tiny.yaml\n")
    found = command("warm", "--matrix", "list.yaml", "--dry-run", "-f", "json").json
    assert (found["miss"], found["compiled"]) == (1, 0)
    assert not (home / "v1").exists()


def test_require_warm_of_a_list(command, work, machine):
    (work / "list.yaml").write_text("- tiny.yaml\n")
    assert command("warm", "--matrix", "list.yaml", "--require-warm", "-f", "json", code=3).json["failed"] == 1


@pytest.mark.parametrize("arguments", [["tiny.yaml", "--matrix", "tiny.yaml"], []])
def test_a_recipe_or_a_list(command, arguments):
    answer = command("warm", *arguments, code=2)
    assert answer.err.startswith("error[usage]")
