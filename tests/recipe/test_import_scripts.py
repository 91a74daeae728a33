"""What the example scripts do where a command says nothing, and what only a careful reader sees in a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe.convert.draft import grouped
from tests.recipe.importing_cases import at, called, whats

START = "run_{}.py --model_name_or_path bert-base-cased --do_train "
QA = START.format("qa") + "--train_file a "
RTE = START.format("glue") + "--task_name rte "
NER = START.format("ner")
SHARES = RTE + "--eval_strategy steps --eval_steps 0.1 --save_steps 0.25 "
OPUS = "run_translation.py --model_name_or_path Helsinki-NLP/opus-mt-en-es --train_file a.json "
GPT2 = "run_clm.py --model_type gpt2 --train_file a --config_overrides="
NAMED = "name them with data."
UNSAID = "--max_seq_length: not given"

# A command, fields of its recipe, what its notes say, and what they do not say.
READ: list[tuple[str, dict, list[str], list[str]]] = [
    # run_ner's columns are `ner_tags`, `pos_tags`, `chunk_tags`: one task's classes are not another's.
    (NER + "--dataset_name conll2003 --task_name pos", {"data.label_column": "pos_tags", "data.labels": None},
     ["data.labels"], []),
    (NER + "--dataset_name conll2003 --task_name pos --label_column_name xpos", {"data.label_column": "xpos"}, [], []),
    # run_swag reads its columns of any file.
    (START.format("swag") + "--train_file /a.json --validation_file /b.json",
     {"data.context_column": "sent1", "data.question_column": "sent2", "data.train_file": "/a.json",
      "data.validation_split": None}, [], []),
    ("run_image_classification.py --dataset_name beans --do_train",
     {"model.id": "google/vit-base-patch16-224-in21k"}, [], ["model.id"]),
    (NER + "--dataset_name conll2003 --do_predict", {"data.test_split": "test"}, [], ["do_predict"]),
    (NER + "--train_file a.json --do_predict", {"data.test_split": None}, ["do_predict"], []),
    # Steps: as TrainingArguments rounds them.
    (QA + "--max_steps 101 --warmup_ratio 0.1", {"training.warmup_steps": 11}, [], ["warmup_ratio"]),
    (QA + "--warmup_ratio 0.1", {"training.warmup_steps": 0}, ["warmup_ratio"], []),
    (QA + "--save_steps 50", {"training.save_strategy": "steps", "training.save_steps": 50}, [], []),
    (f"torchrun --nnodes 0 {RTE} --tensor_parallel_size 0", {},
     ["parallel.nodes 0", "parallel.tensor_parallel_size 0"], []),
    (RTE + "--save_steps -1", {"training.save_strategy": "no"}, [], []),
    (RTE + "--eval_strategy steps --eval_steps often", {"training.eval_strategy": "epoch"},
     ["training.eval_steps often: a recipe has no such value"], []),
    (SHARES + "--max_steps 90",
     {"training.eval_steps": 9, "training.save_steps": 23, "training.save_strategy": "steps"}, [], []),
    (SHARES, {"training.eval_strategy": "epoch", "training.save_strategy": "epoch"},
     ["training.eval_steps 0.1", "training.save_steps 0.25", "a recipe has no such value"], []),
    # Lengths: one that the script assumes is one that the model has; one that is said stays.
    (OPUS, {"training.max_seq_length": 512, "training.max_target_length": 128},
     ["training.max_seq_length 1024: the model has 512 positions"], []),
    (OPUS + "--max_source_length 700", {"training.max_seq_length": 700}, [], []),
    (GPT2 + '"n_embd=64,n_head=2,n_positions=102"', {"training.max_seq_length": 102}, [], []),
    (NER + "--train_file a.json", {}, [UNSAID], []),
    (NER + "--train_file a.json --max_seq_length 96", {"training.max_seq_length": 96}, [], [UNSAID]),
    # What of a config reaches no model.
    (GPT2 + '"n_embd=64,use_cache=False"', {"model.config": {"n_embd": 64}}, ["model.config.use_cache False"], []),
    # Columns that a script finds by itself, joins, or has numbers in.
    (START.format("glue") + "--train_file a.csv", {}, [NAMED + "text_column"], []),
    (START.format("summarization") + "--train_file a.csv", {}, [NAMED + "source_column"], []),
    (START.format("summarization") + "--train_file a.csv --text_column a --summary_column b", {}, [], [NAMED]),
    (START.format("classification") + '--dataset_name a/b --text_column_names "title, body"',
     {"data.text_column": "title"}, ["--text_column_names title, body: the script joins these columns"], []),
    (START.format("classification") + "--dataset_name a/b --text_column_names body", {"data.text_column": "body"},
     [], ["text_column_names"]),
    (START.format("classification") + "--dataset_name a/b --do_regression True", {"task": "text-regression"},
     [], ["data.labels", "do_regression"]),
    (START.format("glue") + "--task_name stsb", {"task": "text-regression", "data.text_pair_column": "sentence2"}, [],
     ["data.labels"]),
    # run_xnli trains on its training language.
    (START.format("xnli") + "--language de --train_language en", {"data.config": "en"}, ["--language de"], []),
    (START.format("xnli") + "--language de", {"data.config": "de"}, [], ["--language"]),
    (START.format("xnli"), {"data.config": "en"}, [], []),
    # The flag of an optimizer wins over its name.
    (RTE + "--optim adamw_8bit --adafactor", {"training.optim": "adafactor"}, [], ["optim"]),
    (RTE + "--optim adamw_8bit", {"training.optim": "adamw_torch"}, ["training.optim adamw_8bit"], []),
    (RTE + "--seed 7 --seed=8", {"training.seed": 8}, ["--seed: given twice"], []),
    # A token of a text is no secret.
    (START.format("translation") + "--train_file a --forced_bos_token deu_Latn --hub_token something", {},
     ["--forced_bos_token deu_Latn: a recipe has no field", "--hub_token: a secret"], []),
    # Launchers: precision; workers are counted a node.
    (f"accelerate launch --mixed_precision bf16 {RTE}", {"training.bf16": True}, [], ["--mixed_precision"]),
    (f"accelerate launch --mixed_precision no {RTE}", {"training.bf16": False}, [], ["--mixed_precision"]),
    (f"accelerate launch --mixed_precision fp16 {RTE}", {"training.bf16": "auto"}, ["--mixed_precision"], []),
    (f"accelerate launch --num_machines 2 --num_processes 16 {RTE}",
     {"parallel.data_parallel_size": 8, "parallel.nodes": 2}, [], []),
    (f"accelerate launch --num_processes 8 {RTE}", {"parallel.data_parallel_size": 8}, [], []),
    (f"torchrun --nnodes 2 --nproc_per_node 16 {RTE}",
     {"parallel.data_parallel_size": 16, "parallel.nodes": 2}, [], []),
    (f"torchrun --nnodes=2:4 {RTE}", {"parallel.nodes": 1}, ["parallel.nodes 2:4: a recipe has no such value"], []),
    # Values that no recipe can have are named and left out.
    (RTE + "--learning_rate fast --lr_scheduler_type inverse_sqrt --per_device_train_batch_size 0 --seed 7",
     {"training.seed": 7},
     ["training.learning_rate", "training.lr_scheduler_type", "training.per_device_train_batch_size"], []),
    (RTE + "--save_total_limit -1 --eval_strategy steps",
     {"training.eval_strategy": "steps", "training.eval_steps": 500}, [], ["save_total_limit"]),
]  # fmt: skip


def test_a_command_is_read_as_its_script_reads_it():
    for line, fields, told, untold in READ:
        found = called(line if line.startswith(("accelerate", "torchrun")) else f"python {line}")
        assert {path: at(found.recipe, path) for path in fields} == fields
        notes = "\n".join(grouped(found.notes))
        assert [words for words in told if words not in notes] == []
        assert [words for words in untold if words in notes] == []


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ("--train_dir ./imgs/train --validation_dir ./imgs/val", "imgs"),
        ("--train_dir /data/imgs/train", "/data/imgs"),
        ("--train_dir imgs/train/ --validation_dir imgs/validation", "imgs"),
        ("--train_dir cats --validation_dir dogs", None),
        ("--train_dir a/train --validation_dir b/val", None),
    ],
)
def test_folders_of_images(arguments, path):
    found = called(f"python run_image_classification.py --model_name_or_path microsoft/resnet-50 {arguments}")
    place = found.recipe.data.path
    assert (place and place.removeprefix(f"{Path.cwd()}/")) == path
    assert ("data" in whats(found, todo=True)) == (path is None)
    assert ("data.path is a folder that holds train/ and validation/" in whats(found)) == (path is None)


@pytest.mark.parametrize("path", ["./rows", "../rows", "/rows"])
def test_a_data_set_in_a_folder_has_no_splits_by_name(path):
    found = called(f"python {START.format('qa')} --dataset_name {path} --do_eval")
    assert (found.recipe.data.id, found.recipe.data.validation_split) == (None, None)
    assert ("--dataset_name" in whats(found)) == (path != "/rows")
    assert "a recipe has no such value" not in whats(found)


ARGUMENTS = {
    "model_name_or_path": "bert-base-cased",
    "task_name": "mrpc",
    "do_train": True,
    "max_seq_length": 96,
    "learning_rate": 3e-05,
    "num_train_epochs": 2.0,
    "fp16": False,
    "seed": None,
    "label_names": ["labels"],
}


def test_arguments_from_a_file_are_those_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mrpc.json").write_text(json.dumps(ARGUMENTS))
    found = called("torchrun --nproc_per_node=2 run_glue.py mrpc.json")
    line = START.format("glue") + (
        "--task_name mrpc --max_seq_length 96 --learning_rate 3e-05 --num_train_epochs 2.0 --fp16 false "
        "--label_names labels"
    )
    said = called(f"torchrun --nproc_per_node=2 {line}")
    assert found.recipe == said.recipe
    assert (found.recipe.training.max_seq_length, found.recipe.training.learning_rate) == (96, 3e-05)
    assert whats(found) == whats(said)
    assert "label_names" in whats(found)


@pytest.mark.parametrize("name", ["lost.json", "x" * 300 + "lost.json"])
def test_a_file_of_arguments_that_is_not_there_is_asked_for(name):
    with pytest.raises(RecipeError, match=r"takes its arguments from .*lost\.json") as caught:
        called(f"python run_glue.py {name}")
    assert "as JSON" in caught.value.hint


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\udcff", "null", "[" * 100_000])
def test_a_file_that_holds_no_arguments_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("args.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RecipeError, match=r"args\.json"):
        called("python run_glue.py args.json")
