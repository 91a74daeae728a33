"""`cachekit warm --matrix`: lists of fine-tunes, ours and the one that a peer filled its public cache from."""

import json

import pytest

from cachekit.errors import RecipeError, UnknownNameError
from cachekit.recipe import load, tasks, zoo
from cachekit.recipe.architecture import check_length, resolve
from cachekit.recipe.ingredients import build, labels_of
from cachekit.verbs.matrix import read
from cachekit.verbs.zoo_check import NO_COMPILER
from tests.support.places import real_dir

pytest_plugins = ["tests.support.cli_session"]

# No config of it can be read that is sure to be of today: the public copy (sshleifer/transformers_config_mirror, 2020)
# has 58,379 words, and of opus-mt-en-es, which has 65,001 now, it has 58,866. A wrong key would be worse than none.
NOT_IN_THE_REGISTRY = {"Helsinki-NLP/opus-mt-es-en"}


@pytest.fixture
def peers():
    return real_dir("registry") / "training-cache-models.extracted.json"


def loaded(entry):
    return load(zoo.recipe_path(entry.recipe), entry.overrides)


def matrix(tmp_path, document, name="list.json"):
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return path


# The peer's list


def test_every_entry_of_the_peers_list_is_a_recipe_and_what_is_set_in_it(peers):
    theirs = json.loads(peers.read_text())
    recipes = [loaded(entry) for entry in read(peers)]
    wanted = 0
    for models in theirs.values():
        for model, by_task in models.items():
            for task, shapes in by_task.items():
                fitting = [one for one in recipes if one.model.id in _names(model) and fits(one, shapes)]
                if task != "default":
                    fitting = [one for one in fitting if one.task == task]
                assert fitting, (model, task)
                wanted += 1
    assert wanted == 51
    assert {one.task for one in recipes} == set(tasks.TASKS) - {"instruction-tuning", "masked-lm"}


def _names(model):
    entry = zoo.model(model)
    return {model, *((entry.id, *entry.aliases) if entry else ())}


def fits(one, shapes):
    length = shapes.get("sequence_length", shapes.get("source_sequence_length", one.training.max_seq_length))
    return (
        one.training.per_device_train_batch_size == shapes["batch_size"]
        and one.training.max_seq_length == length
        and one.training.max_target_length == shapes.get("target_sequence_length", one.training.max_target_length)
    )


def test_every_entry_of_the_peers_list_has_a_key_without_a_network(peers, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("cachekit.recipe.architecture._download", _never)
    unknown = set()
    for entry in read(peers):
        one = loaded(entry)
        try:
            found = resolve(one)
        except UnknownNameError:
            unknown.add(one.model.id)
            continue
        for field in {"max_seq_length", "max_target_length"} & tasks.fields(one).training:
            check_length(found, getattr(one.training, field), field)
        if one.task == "question-answering":
            assert one.training.doc_stride < one.training.max_seq_length
        registered = zoo.model(one.model.id)
        assert one.task in registered.tasks
        assert "neuron" in registered.compilers
        assert build(one, found, len(labels_of(one)), NO_COMPILER, {}).key
    assert unknown == NOT_IN_THE_REGISTRY


def _never(model_id, _):
    raise UnknownNameError(f"{model_id} is not here")


def test_a_model_is_not_told_what_another_is(tmp_path):
    """T5 is told what to do in words; BART has no recipe of its own for it, and takes T5's without them."""
    path = matrix(tmp_path, {"bart": {"facebook/bart-base": {"translation": {"batch_size": 8}}}})
    (entry,) = read(path)
    assert loaded(entry).data.source_prefix is None
    path = matrix(tmp_path, {"t5": {"t5-base": {"translation": {"batch_size": 8}}}})
    (entry,) = read(path)
    assert loaded(entry).data.source_prefix == "translate English to French: "


def test_default_is_every_task_that_is_not_named(tmp_path):
    shapes = {"batch_size": 4, "sequence_length": 64}
    path = matrix(tmp_path, {"bert": {"bert-base-uncased": {"default": shapes, "multiple-choice": shapes}}})
    found = [loaded(entry).task for entry in read(path)]
    assert sorted(found) == ["multiple-choice", "question-answering", "text-classification", "token-classification"]


def test_a_model_that_nobody_knows_has_the_tasks_of_its_type(tmp_path):
    path = matrix(tmp_path, {"vit": {"someone/vit-huge": {"default": {"batch_size": 2}}}})
    (entry,) = read(path)
    one = loaded(entry)
    assert (one.task, one.model.id) == ("image-classification", "someone/vit-huge")
    assert one.training.per_device_train_batch_size == 2


@pytest.mark.parametrize(
    "document, said",
    [
        ({"bert": {"m": {"dancing": {"batch_size": 1}}}}, "there is no task 'dancing'"),
        ({"bert": {"m": {"text-classification": {"batch_size": "many"}}}}, "batch_size is 'many'"),
        ({"bert": {"m": {"text-classification": {"heads": 4}}}}, "heads is 4"),
        ({"bert": {"m": {"default": {"batch_size": 1, "target_sequence_length": 4}}}}, "nothing is known that"),
        ({"mamba": {"m": {"default": {"batch_size": 1}}}}, "nothing is known that"),
        ({"gpt2": [{"batch_size": 1, "num_cores": 2, "sequence_length": 8}]}, "gpt2 holds"),
        ({"bert": {"m": {"text-classification": 3}}}, "no shapes by task"),
        ({}, "holds no list"),
        ([], "holds no list"),
        ("bert", "holds no list"),
        ([{"set": {}}], "entry 1"),
        ([{"recipe": "bert", "sets": {}}], "entry 1"),
        ([{"recipe": "bert"}, {"recipe": "bert", "set": ["seed"]}], "entry 2: set"),
    ],
)
def test_what_is_no_list(tmp_path, document, said):
    with pytest.raises(RecipeError) as caught:
        read(matrix(tmp_path, document))
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["inference-cache-models.extracted.json", "qwen3-embedding-4b_configs.json"])
def test_a_list_for_inference_is_refused(name):
    with pytest.raises(RecipeError, match="holds") as caught:
        read(real_dir("registry") / name)
    assert "inference" in caught.value.hint


@pytest.mark.parametrize("text", ["{", "\xff", '{"a": 1'])
def test_what_cannot_be_read(tmp_path, text):
    (tmp_path / "list.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RecipeError):
        read(tmp_path / "list.json")
    with pytest.raises(RecipeError):
        read(tmp_path / "missing.yaml")


# Ours


def test_our_own_list(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text(
        "- bert\n"
        "- recipe: bert\n"
        "  set: {training.max_seq_length: 64, data.text_column: '7', description: 'a: b'}\n"
        "- {recipe: gpt2-clm, set: [training.max_seq_length=32], name: short}\n"
    )
    plain, changed, short = read(path)
    assert (plain.recipe, plain.overrides, plain.name) == ("bert", (), "bert")
    one = loaded(changed)
    assert (one.training.max_seq_length, one.data.text_column, one.description) == (64, "7", "a: b")
    assert (short.name, loaded(short).training.max_seq_length) == ("short", 32)


def test_a_section_that_is_set_as_recipes_write_it_keeps_its_other_fields(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text("- bert\n- {recipe: bert, set: {training: {max_seq_length: 64, bf16: false}}}\n")
    plain, changed = (loaded(entry).training for entry in read(path))
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
