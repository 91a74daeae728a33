"""`cachekit zoo ls`, `show` and `check`, through the command line."""

import json
import re
import shutil

import msgspec
import pytest

from cachekit.recipe import load, zoo
from cachekit.verbs.zoo_check import check_zoo
from tests.recipe.zoo_cases import RECIPES, REGISTRY

pytest_plugins = ["tests.support.cli_session"]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A zoo of its own, to spoil."""
    shutil.copytree(REGISTRY, tmp_path / "zoo" / "registry")
    shutil.copytree(RECIPES["bert"].parent, tmp_path / "zoo" / "recipes")
    monkeypatch.setattr(zoo, "_root", lambda: tmp_path / "zoo")
    return tmp_path / "zoo"


def rows(command, *arguments):
    return command("zoo", "ls", *arguments, "--format", "json").json


def names(command, *arguments):
    return [row["name"] for row in rows(command, *arguments)]


# Choosing


def test_by_task(command):
    found = rows(command, "--task", "token-classification")
    assert {row["task"] for row in found} == {"token-classification"}
    everything = {name for name, path in RECIPES.items() if load(path).task == "token-classification"}
    assert {row["name"] for row in found} == everything


def test_by_model(command):
    assert "bert-imdb" in names(command, "--model", "bert-base-uncased")
    assert names(command, "--model", "google-bert/bert-base-uncased") == names(command, "--model", "bert-base-uncased")
    assert names(command, "--model", "gpt2") == ["gpt2-clm"]
    assert "granite-3.3-2b-lora" in names(command, "--model", "granite-3.3")


def test_by_instance(command):
    small, large = set(names(command, "--instance", "trn1.2xlarge")), set(names(command, "--instance", "trn1.32xlarge"))
    assert "bert" in small - large
    assert "llama3-8b-lora" in large - small
    assert set(names(command, "--instance", "trn1")) == small | large | {"bert-amazon-polarity"}
    assert set(names(command, "instances", "--instance", "inf2")) == {
        name for name in zoo.instances() if "inf2" in name
    }


def test_nothing_of_the_kind(command):
    answer = command("zoo", "ls", "--max-price", "0")
    assert answer.out == "no recipes of that kind\n"
    assert command("zoo", "ls", "--max-price", "0", "-f", "json").json == []


# One entry


def test_a_recipe_in_full(command):
    found = command("zoo", "show", "bert", "-f", "json").json
    assert (found["kind"], found["name"], found["path"]) == ("recipe", "bert", str(RECIPES["bert"]))
    assert found["model"]["name"] == "google-bert/bert-base-uncased"
    assert found["recipe"]["data"]["id"] == "dair-ai/emotion"
    assert found["text"] == RECIPES["bert"].read_text()
    first = found["expect"][0]
    assert (first["price_per_hour"], first["cost"]) == (1.34, 0.06)
    text = command("zoo", "show", "bert").out
    assert RECIPES["bert"].read_text().strip() in text, "in full"
    assert "$0.06 now, at $1.34 an hour" in " ".join(text.split())
    assert (
        "at $1.34 an hour (philschmid.de, Fine-tune BERT for Text Classification on AWS Trainium, 2023-06-06)"
        in " ".join(text.split())
    )


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_a_model_in_full(command, name):
    found = command("zoo", "show", name, "-f", "json").json
    assert (found["kind"], found["name"]) == ("model", "google-bert/bert-base-uncased")
    assert found["config"]["vocab_size"] == 30522
    assert {"bert", "bert-imdb"} <= set(found["recipes"])
    text = command("zoo", "show", name).out
    assert re.search(r"^    vocab_size +30522$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


def test_an_instance_in_full(command):
    found = command("zoo", "show", "trn1.2xlarge", "-f", "json").json
    assert (found["kind"], found["cores"], found["price"]["per_hour"]) == ("instance", 2, 1.34)
    assert "bert" in found["recipes"]
    assert "$1.34 (us-east-1, 2023-06-06), on demand" in command("zoo", "show", "trn1.2xlarge").out


def test_a_toolchain_says_of_each_chip_what_ships_and_whether_it_trains():
    for name in ["2.26.1", "2.29", "2.30", "2.31", "2.32", "2.33"]:
        release = zoo.toolchain(f"neuron-{name}")
        told = {chip: one for chips, one in release.chips.items() for chip in chips.split(", ")}
        assert {*release.targets} <= {*told} <= {"trn1", "inf2", "trn2", "trn3"}
        best = {one.trains for chip, one in told.items() if chip in release.targets}
        assert release.trains == min(best, key=["seen", "said", "no"].index), "as the best of its chips"


def test_what_serves_only_is_named_with_its_version_and_pythons(command):
    shown = " ".join(command("zoo", "show", "neuron-2.32").out.split())
    assert "trn2, trn3 packages torch 2.12 libtorch-neuronx-lite 2.12.0.1.0.1284 vllm-neuron 0.24.0.1.1.0" in shown
    assert "python 3.11, 3.12, 3.13 trains no" in shown


def test_every_recipe_can_be_shown(command):
    for name in RECIPES:
        assert command("zoo", "show", name).out.startswith(f"recipe {name}\n")


# Checking


def test_the_zoo_is_right():
    checked = check_zoo()
    assert checked.findings == ()
    assert checked.looked_at == {"recipes": len(RECIPES), "models": len(zoo.models())}


@pytest.mark.parametrize(
    "text, said",
    [
        ("training: {max_seq_length: 513}\n", "training.max_seq_length is 513"),
        ("training: {learning_rte: 1}\n", "unknown field training.learning_rte"),
        ("training: {doc_stride: 4}\n", "training.doc_stride has no effect on text-classification"),
        ("expect: [{instance: trn1.3xlarge, source: x}]\n", "expect.instance trn1.3xlarge is unknown"),
        ("parallel: {tensor_parallel_size: 5}\n", "the model's num_attention_heads is 12"),
        ("model: {id: google/electra-base-discriminator}\ntask: translation\ndata: {id: x}\n", "not for the task tra"),
        ("model: {id: google/vit-base-patch16-224}\n", "the task text-classification: a vit model reads images"),
        ("task: image-classification\n", "not for the task image-classification: a bert model reads texts"),
        ("model: {id: gpt2}\n", "model.config.pad_token_id is missing"),
        ("model: {id: bert-base-uncased, config: {hidden_size: 100}}\n", "hidden_size 100 cannot be shared"),
        ("data: {id: x/y}\n", "does not say its labels"),
        (
            "task: question-answering\ndata: {id: x}\ntraining: {max_seq_length: 64, doc_stride: 64}\n",
            "training.doc_stride 64 is not smaller",
        ),
        (
            "parallel: {tensor_parallel_size: 4}\nexpect: [{instance: trn1.2xlarge, source: x}]\n",
            "4 cores share a model, but trn1.2xlarge has 2",
        ),
    ],
)
def test_what_is_wrong_with_a_recipe(command, work, text, said):
    base = {"model": "{id: bert-base-uncased}", "data": "{id: x, labels: [a, b]}"}
    lines = [f"{name}: {value}" for name, value in base.items() if not re.search(f"^{name}:", text, re.MULTILINE)]
    (work / "broken.yaml").write_text("\n".join(["name: broken", *lines, text]))
    answer = command("zoo", "check", "broken.yaml", "-f", "json", code=2)
    assert answer.json["status"] == "wrong"
    assert said in answer.json["findings"][0]["problem"]
    assert answer.json["error"]["code"] == "bad-recipe"
    told = command("zoo", "check", "broken.yaml", code=2)
    assert told.out.startswith("WRONG  broken.yaml")
    assert (told.out + told.err).count("broken.yaml") == 1


def test_what_a_model_is_rarely_used_for_is_a_note(command, work):
    model = "model: {id: gpt2, config: {pad_token_id: 0}}\n"
    (work / "own.yaml").write_text(f"name: own\n{model}data: {{id: x, labels: [a, b]}}\n")
    found = command("zoo", "check", "own.yaml", "-f", "json").json
    assert (found["status"], found["findings"][0]["note"]) == ("ok", True)
    assert "does not name text-classification" in found["findings"][0]["problem"]


def test_all_files_are_checked_though_one_is_wrong(command, work):
    (work / "broken.yaml").write_text("name: broken\n")
    found = command("zoo", "check", "broken.yaml", "tiny.yaml", "bert", "-f", "json", code=2).json
    assert found["looked_at"] == {"recipes": 3}
    assert [finding["where"] for finding in found["findings"]] == ["broken.yaml"]


def test_a_model_that_only_the_hub_knows_is_a_note(command, work, monkeypatch):
    def never(*_):
        raise AssertionError("offline")

    monkeypatch.setattr("cachekit.recipe.hub.download_config", never)
    (work / "own.yaml").write_text("name: own\nmodel: {id: someone/something}\ndata: {id: x, labels: [a, b]}\n")
    found = command("zoo", "check", "own.yaml", "-f", "json").json
    assert (found["status"], found["findings"][0]["note"]) == ("ok", True)


def test_what_is_wrong_with_the_registry(command, copy):
    for path in (copy / "recipes").glob("*.yaml"):
        if path.stem not in {"bert", "gpt2-clm"}:
            path.unlink()
    models = copy / "registry" / "models"
    (models / "google-bert--bert-base-uncased.yaml").rename(models / "bert.yaml")
    (models / "openai-community--gpt2.yaml").unlink()
    found = command("zoo", "check", "-f", "json", code=2).json["findings"]
    said = json.dumps(found)
    assert "name the file google-bert--bert-base-uncased.yaml" in said
    assert "gpt2 is not in the registry" in said


def test_a_compile_time_of_what_the_zoo_has_not_is_wrong(command, copy):
    times = "- {recipe: %s, instance: %s, seconds: [%s], source: somebody's page, date: '2026-11'%s}\n"
    wrong = [
        ("berd", "trn1.2xlarge", "1, 2", ""),
        ("bert", "trn9.large", "1, 2", ""),
        ("bert", "trn1.2xlarge", "2, 1", ""),
    ]
    wrong += [("bert", "trn1.2xlarge", "1, 2", ", set: [training.none=1]")]
    (copy / "registry" / "compile_times.yaml").write_text("".join(times % one for one in wrong))
    said = json.dumps(command("zoo", "check", "-f", "json", code=2).json["findings"])
    for words in (
        "there is no recipe named 'berd'",
        "there is no instance named 'trn9.large'",
        "lower number first",
        "training.none",
    ):
        assert words in said


@pytest.mark.feature("P3")
def test_a_recipe_in_full_has_the_compile_time_that_its_plan_has(command):
    shown = command("zoo", "show", "bert", "-f", "json").json["compiling"]
    planned = command("plan", "bert", "--instance", "trn1.2xlarge", "-f", "json").json
    assert [one["expected"] for one in shown] == [planned["expected"]]
    assert [one["cost"] for one in shown] == [planned["dollars_range"]]
    words = " ".join(command("zoo", "show", "bert").out.split())
    assert "compiling takes 10 to 15 min; $0.22 to $0.34; published: bert, philschmid.de" in words


@pytest.mark.parametrize("name", ["instances", "toolchains"])
def test_a_list_that_cannot_be_read(command, copy, name):
    (copy / "registry" / f"{name}.yaml").write_text("a: 1\n")
    found = command("zoo", "check", "-f", "json", code=2).json["findings"]
    assert any(f"{name}.yaml: a does not fit" in finding["problem"] for finding in found)


WHOLE = {
    "per_hour": 1.5,
    "currency": "USD",
    "region": "us-east-1",
    "terms": "on demand",
    "source": "somebody's page",
    "date": "2026-06-25",
}


def test_a_price_that_nobody_could_look_up_again_is_refused():
    for name, value in [
        ("per_hour", 0),
        ("per_hour", -1),
        ("currency", "$"),
        ("currency", ""),
        ("region", ""),
        ("region", "somewhere"),
        ("terms", ""),
        ("source", ""),
        ("source", "-"),
        ("date", "2026"),
        ("date", "2026-13"),
        ("date", "last year"),
        ("date", ""),
    ]:
        msgspec.convert(WHOLE, zoo.QuotedPrice)
        with pytest.raises(msgspec.ValidationError, match=rf"\$\.{name}"):
            msgspec.convert({**WHOLE, name: value}, zoo.QuotedPrice)


def test_a_price_without_its_source_or_date_or_place_is_refused():
    for missing in WHOLE:
        with pytest.raises(msgspec.ValidationError, match=f"`{missing}`"):
            msgspec.convert({name: value for name, value in WHOLE.items() if name != missing}, zoo.QuotedPrice)


def test_a_name_of_two_models(command, copy):
    path = copy / "registry" / "models" / "FacebookAI--roberta-base.yaml"
    path.write_text(path.read_text().replace("- roberta-base", "- bert-base-uncased"))
    found = command("zoo", "check", "-f", "json", code=2).json["findings"]
    assert any("bert-base-uncased is also a name of" in finding["problem"] for finding in found)
