"""What the example scripts do where a command says nothing, and what only a careful reader sees in a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe.convert.draft import grouped
from tests.recipe.importing_cases import made, whats

START = "python run_{}.py --model_name_or_path bert-base-cased --do_train "


def recipe(tmp_path, text):
    return made(tmp_path, text).recipe


def test_words_are_labelled_by_the_task_that_run_ner_is_given(tmp_path):
    """Its columns are `ner_tags`, `pos_tags`, `chunk_tags`: one task's classes are not another's."""
    names = recipe(tmp_path, START.format("ner") + "--dataset_name conll2003")
    assert len(names.data.labels) == 9
    found = made(tmp_path, START.format("ner") + "--dataset_name conll2003 --task_name pos")
    assert (found.recipe.data.label_column, found.recipe.data.labels) == ("pos_tags", None)
    assert "data.labels" in whats(found, todo=True)
    said = "--dataset_name conll2003 --task_name pos --label_column_name xpos"
    assert recipe(tmp_path, START.format("ner") + said).data.label_column == "xpos"


def test_run_swag_reads_its_columns_of_any_file(tmp_path):
    data = recipe(tmp_path, START.format("swag") + "--train_file a.json --validation_file b.json").data
    assert (data.context_column, data.question_column, data.choices_columns[0]) == ("sent1", "sent2", "ending0")
    assert (data.train_file[-6:], data.validation_split) == ("a.json", None)


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
def test_folders_of_images(tmp_path, arguments, path):
    found = made(tmp_path, f"python run_image_classification.py --model_name_or_path microsoft/resnet-50 {arguments}")
    place = found.recipe.data.path
    assert (place and place.removeprefix(f"{Path.cwd()}/")) == path
    assert ("data" in whats(found, todo=True)) == (path is None)
    assert ("data.path is a folder that holds train/ and validation/" in whats(found)) == (path is None)


def test_the_model_of_a_script_that_needs_none_named(tmp_path):
    found = made(tmp_path, "python run_image_classification.py --dataset_name beans --do_train")
    assert found.recipe.model.id == "google/vit-base-patch16-224-in21k"
    assert not whats(found, todo=True)


def test_test_rows_that_are_named_are_carried_over(tmp_path):
    known = made(tmp_path, START.format("ner") + "--dataset_name conll2003 --do_predict")
    assert (known.recipe.data.test_split, "do_predict" in whats(known)) == ("test", False)
    assert "do_predict" in whats(made(tmp_path, START.format("ner") + "--train_file a.json --do_predict"))


@pytest.mark.parametrize(
    ("option", "bf16", "noted"), [("bf16", True, False), ("no", False, False), ("fp16", "auto", True)]
)
def test_the_precision_of_accelerate(tmp_path, option, bf16, noted):
    text = f"accelerate launch --mixed_precision {option} run_glue.py --model_name_or_path m --task_name cola"
    found = made(tmp_path, text)
    assert found.recipe.training.bf16 == bf16
    assert ("--mixed_precision" in whats(found)) == noted


def test_what_goes_by_steps(tmp_path):
    training = recipe(tmp_path, START.format("qa") + "--train_file a --max_steps 101 --warmup_ratio 0.1").training
    assert training.warmup_steps == 11  # as TrainingArguments rounds
    assert "warmup_ratio" in whats(made(tmp_path, START.format("qa") + "--train_file a --warmup_ratio 0.1"))
    training = recipe(tmp_path, START.format("qa") + "--train_file a --save_steps 50").training
    assert (training.save_strategy, training.save_steps) == ("steps", 50)


def test_a_length_that_the_script_assumes_is_one_that_the_model_has(tmp_path):
    text = "python run_translation.py --model_name_or_path Helsinki-NLP/opus-mt-en-es --train_file a.json {}"
    found = made(tmp_path, text.format(""))
    assert (found.recipe.training.max_seq_length, found.recipe.training.max_target_length) == (512, 128)
    assert "training.max_seq_length 1024: the model has 512 positions" in whats(found)
    assert recipe(tmp_path, text.format("--max_source_length 700")).training.max_seq_length == 700, "as it was said"
    small = 'python run_clm.py --model_type gpt2 --config_overrides="n_embd=64,n_head=2,n_positions=102" --train_file a'
    assert recipe(tmp_path, small).training.max_seq_length == 102


@pytest.mark.parametrize("path", ["./rows", "../rows", "/rows"])
def test_a_data_set_in_a_folder_has_no_splits_by_name(tmp_path, path):
    found = made(tmp_path, START.format("qa") + f"--dataset_name {path} --do_eval")
    assert (found.recipe.data.id, found.recipe.data.validation_split) == (None, None)
    assert ("--dataset_name" in whats(found)) == (path != "/rows")
    assert "a recipe cannot say this" not in whats(found)


def test_columns_that_a_script_finds_by_itself_are_to_be_named(tmp_path):
    assert "name them with data.text_column" in whats(made(tmp_path, START.format("glue") + "--train_file a.csv"))
    said = START.format("summarization") + "--train_file a.csv"
    assert "name them with data.source_column" in whats(made(tmp_path, said))
    assert "name them with" not in whats(made(tmp_path, f"{said} --text_column a --summary_column b"))


def test_a_length_that_nobody_says_is_told(tmp_path):
    said = START.format("ner") + "--train_file a.json"
    assert "--max_seq_length: it is not said" in whats(made(tmp_path, said))
    assert "--max_seq_length: it is not said" not in whats(made(tmp_path, f"{said} --max_seq_length 96"))


def test_what_other_trainers_say_twice_or_in_another_form(tmp_path):
    flow = """\
        data_store: {hf_dataset_name: wikitext, block_size: 512}
        model_store: {hf_model_name: gpt2}
        training: {steps_this_run: 10, max_steps: 100, lr: 1e-3, learning_rate: 2e-3, use_mix_precision: 1}
        """
    found = made(tmp_path, flow, "flow.yaml")
    training = found.recipe.training
    assert (training.max_steps, training.learning_rate, training.bf16) == (100, 2e-3, True)
    assert "training.steps_this_run 10" in whats(found)
    assert "training.lr 0.001" in whats(found)
    nxdt = "distributed_strategy: {{zero1: true}}\ntrainer: {{devices: 2}}\nmodel: {{}}\ncompiler_flags: {}\n"
    listed = made(tmp_path, nxdt.format("[--model-type, transformer]"), "a.yaml")
    assert listed.recipe.compiler.flags == ("--model-type", "transformer")
    assert "compiler_flags" in whats(made(tmp_path, nxdt.format("[--x, 3]"), "b.yaml"))


def test_what_of_a_config_reaches_no_model_is_left_out(tmp_path):
    text = 'python run_clm.py --model_type gpt2 --config_overrides="n_embd=64,use_cache=False" --train_file a'
    found = made(tmp_path, text)
    assert found.recipe.model.config == {"n_embd": 64}
    assert "model.config.use_cache False" in whats(found)


ARGUMENTS = {
    "model_name_or_path": "bert-base-cased",
    "task_name": "mrpc",
    "do_train": True,
    "max_seq_length": 96,
    "learning_rate": 3e-05,
    "per_device_train_batch_size": 8,
    "num_train_epochs": 2.0,
    "fp16": False,
    "seed": None,
    "label_names": ["labels"],
}


def test_arguments_from_a_file_are_those_of_the_command_line(tmp_path):
    (tmp_path / "mrpc.json").write_text(json.dumps(ARGUMENTS))
    found = made(tmp_path, "torchrun --nproc_per_node=2 run_glue.py mrpc.json")
    line = START.format("glue") + (
        "--task_name mrpc --max_seq_length 96 --learning_rate 3e-05 --per_device_train_batch_size 8 "
        "--num_train_epochs 2.0 --fp16 false --label_names labels"
    )
    said = made(tmp_path, line.replace("python", "torchrun --nproc_per_node=2"))
    assert found.recipe == said.recipe
    assert (found.recipe.training.max_seq_length, found.recipe.training.learning_rate) == (96, 3e-05)
    assert whats(found) == whats(said)
    assert "label_names" in whats(found)


@pytest.mark.parametrize("name", ["lost.json", "~nobody-here/lost.json", "x" * 300 + "lost.json"])
def test_a_file_of_arguments_that_is_not_there_is_asked_for(tmp_path, name):
    with pytest.raises(RecipeError, match=r"takes its arguments from .*lost\.json") as caught:
        made(tmp_path, f"python run_glue.py {name}")
    assert "beside the file" in caught.value.hint


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\udcff", "null", "[" * 100_000])
def test_a_file_that_holds_no_arguments_is_refused(tmp_path, text):
    (tmp_path / "args.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RecipeError, match=r"args\.json"):
        made(tmp_path, "python run_glue.py args.json")


def test_texts_that_the_script_joins_are_no_column_of_that_name(tmp_path):
    several = START.format("classification") + '--dataset_name a/b --text_column_names "title, body"'
    found = made(tmp_path, several)
    assert found.recipe.data.text_column == "title"
    assert "--text_column_names title, body: the script joins them" in whats(found, todo=True)
    assert recipe(tmp_path, several.replace("title, body", "body")).data.text_column == "body"


def test_a_regression_is_told_before_anything_is_used(tmp_path):
    found = made(tmp_path, START.format("classification") + "--dataset_name a/b --do_regression True")
    assert "--do_regression: its rows have numbers for labels" in whats(found, todo=True)
    assert "data.labels" not in whats(found, todo=True)


@pytest.mark.parametrize(
    ("languages", "config", "left"),
    [("--language de --train_language en", "en", True), ("--language de", "de", False), ("", "en", False)],
)
def test_run_xnli_trains_on_its_training_language(tmp_path, languages, config, left):
    found = made(tmp_path, START.format("xnli") + languages)
    assert found.recipe.data.config == config
    assert ("--language de" in whats(found)) == left


def test_saving_that_is_switched_off_stays_so(tmp_path):
    assert recipe(tmp_path, START.format("glue") + "--task_name rte --save_steps -1").training.save_strategy == "no"


def test_the_flag_of_an_optimizer_is_the_optimizer(tmp_path):
    found = made(tmp_path, START.format("glue") + "--task_name rte --optim adamw_8bit --adafactor")
    assert found.recipe.training.optim == "adafactor"
    assert "optim" not in whats(found)
    eight = made(tmp_path, START.format("glue") + "--task_name rte --optim adamw_8bit")
    assert "adamw_torch in its place: which keeps its state in 32 bits" in whats(eight)


@pytest.mark.parametrize(
    ("launch", "layout"),
    [
        ("accelerate launch --num_machines 2 --num_processes 16", (8, 2)),
        ("accelerate launch --num_processes 8", (8, 1)),
        ("torchrun --nnodes 2 --nproc_per_node 16", (16, 2)),
    ],
)
def test_workers_are_counted_a_node(tmp_path, launch, layout):
    parallel = recipe(tmp_path, f"{launch} {START.format('glue').removeprefix('python ')} --task_name rte").parallel
    assert (parallel.data_parallel_size, parallel.nodes) == layout


def test_a_number_of_nodes_that_may_change_is_told(tmp_path):
    found = made(tmp_path, f"torchrun --nnodes=2:4 {START.format('glue').removeprefix('python ')} --task_name rte")
    assert "--nnodes 2:4: a recipe has one number of nodes" in whats(found)


def test_steps_that_are_a_share_of_all(tmp_path):
    line = START.format("glue") + "--task_name rte --eval_strategy steps --eval_steps 0.1 --save_steps 0.25"
    known = recipe(tmp_path, line + " --max_steps 90").training
    assert (known.eval_steps, known.save_steps, known.save_strategy) == (9, 23, "steps")
    found = made(tmp_path, line)
    assert (found.recipe.training.eval_strategy, found.recipe.training.save_strategy) == ("epoch", "epoch")
    assert "--eval_steps 0.1, --save_steps 0.25: a recipe counts steps" in "\n".join(grouped(found.notes))


def test_a_number_of_steps_that_is_none_is_left_out(tmp_path):
    found = made(tmp_path, START.format("glue") + "--task_name rte --eval_strategy steps --eval_steps often")
    assert found.recipe.training.eval_strategy == "epoch"
    assert "training.eval_steps often: a recipe cannot say this" in whats(found)


def test_a_token_of_a_text_is_no_secret(tmp_path):
    line = START.format("translation") + "--dataset_name wmt16 --source_lang en --target_lang ro"
    found = made(tmp_path, line + " --forced_bos_token deu_Latn --hub_token something")
    assert "--forced_bos_token deu_Latn: no field" in whats(found)
    assert "--hub_token: a secret" in whats(found)
