"""Recipes out of what people have: example command lines, and two other trainers' YAMLs; each one made loads."""

from __future__ import annotations

import textwrap

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe import load, load_text
from cachekit.recipe.convert.tables import tables
from cachekit.verbs.zoo import new_recipe
from tests.recipe.importing_cases import at, made, whats
from tests.support.cli_session import the_error
from tests.support.places import real_dir

pytest_plugins = ["tests.support.cli_session"]
GLUE = """\
    #!/bin/bash
    cd ~/transformers
    export TOKENIZERS_PARALLELISM=false
    export NEURON_CC_FLAGS="--model-type=transformer --cache_dir=/tmp/x"
    export WANDB_API_KEY=sEcReT123
    neuron_parallel_compile torchrun --nproc_per_node=2 run_glue.py --model_name_or_path $MODEL --max_steps 10
    if [ -d /tmp/mrpc ]; then
      rm -r /tmp/mrpc
    fi
    XLA_USE_BF16=1 torchrun --nproc_per_node=2 \\
      --master_port 1234 \\
      examples/run_glue.py \\
      --model_name_or_path bert-base-cased \\
      --task_name mrpc \\
      --do_train --do_eval \\
      --max_seq_length 128 --per_device_train_batch_size 32 \\
      # --learning_rate 5e-5 \\
      --learning_rate 2e-5 --logging_steps=20 \\
      --num_train_epochs 3 \\
      --output_dir "/tmp/mrpc/" --hub_token hf_abcdefghijklmnopqrstuvwxyz \\
      --overwrite_output_dir --weird "a b" 2>&1 | tee log.txt
"""


def test_a_shell_script_around_run_glue(tmp_path):
    found = made(tmp_path, GLUE)
    recipe = found.recipe
    assert (recipe.name, recipe.task, recipe.model.id) == ("train", "text-classification", "bert-base-cased")
    assert (recipe.data.id, recipe.data.config) == ("nyu-mll/glue", "mrpc")
    assert (recipe.data.text_column, recipe.data.text_pair_column) == ("sentence1", "sentence2")
    assert recipe.data.labels == ("not_equivalent", "equivalent")
    training = recipe.training
    assert (training.per_device_train_batch_size, training.max_seq_length, training.bf16) == (32, 128, True)
    assert (training.learning_rate, training.num_train_epochs, training.logging_steps) == (2e-5, 3, 20)
    assert training.max_steps is None, "that of the compile beforehand"
    assert recipe.parallel.data_parallel_size == 2
    assert (recipe.compiler.name, recipe.compiler.flags) == ("neuron", ("--model-type=transformer",))
    left = whats(found)
    for what in ("--weird a b", "TOKENIZERS_PARALLELISM false", "--cache_dir=/tmp/x", "--hub_token: a secret"):
        assert what in left
    assert "WANDB_API_KEY: a secret" in left
    assert "neuron_parallel_compile" in left
    assert "do_train" not in left, "what a training does in any case"
    for secret in ("sEcReT123", "hf_abcdefghijklmnopqrstuvwxyz"):
        assert secret not in found.text + left
    assert "# - --weird a b: no field of a recipe stands for it" in found.text


# As the READMEs of examples/pytorch have them.
COMMANDS: dict[str, tuple[str, dict]] = {
    "question-answering": (
        ("python run_qa.py --model_name_or_path bert-base-uncased --dataset_name squad --do_train --do_eval"
        " --per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 --max_seq_length 384"
        " --doc_stride 128 --version_2_with_negative --output_dir /tmp/debug_squad/"),
        {"data.id": "squad", "data.validation_split": "validation", "training.doc_stride": 128},
    ),
    "causal-lm": (
        ("python run_clm.py --model_name_or_path openai-community/gpt2 --dataset_name wikitext"
        " --dataset_config_name wikitext-2-raw-v1 --per_device_train_batch_size 8 --block_size 512 --do_train"),
        {"data.config": "wikitext-2-raw-v1", "training.max_seq_length": 512},
    ),
    "masked-lm": (
        ("python run_mlm.py --model_type roberta --config_name roberta-base --train_file train.txt"
        " --validation_file val.txt --mlm_probability 0.2 --line_by_line --config_overrides num_hidden_layers=2"),
        {"model.from_config": True, "training.mlm_probability": 0.2, "model.config": {"num_hidden_layers": 2}},
    ),
    "token-classification": (
        "python run_ner.py --model_name_or_path bert-base-uncased --dataset_name conll2003 --do_train --task_name ner",
        {"data.id": "conll2003"},
    ),
    "multiple-choice": (
        ("python run_swag.py --model_name_or_path FacebookAI/roberta-base --do_train --per_gpu_train_batch_size=16"
        " --overwrite_output"),
        {"data.id": "allenai/swag", "training.per_device_train_batch_size": 16},
    ),
    "summarization": (
        ("python run_summarization.py --model_name_or_path google-t5/t5-small --do_train --dataset_name cnn_dailymail"
        ' --dataset_config "3.0.0" --source_prefix "summarize: " --predict_with_generate --max_target_length 56'),
        {"data.source_prefix": "summarize: ", "data.target_column": "highlights", "training.max_target_length": 56,
         "training.max_seq_length": 1024, "data.config": "3.0.0"},
    ),
    "translation": (
        ("accelerate launch --num_processes 2 --mixed_precision bf16 run_translation.py --model_name_or_path t5-small"
        " --source_lang en --target_lang ro --dataset_name wmt16 --dataset_config_name ro-en --max_source_length 256"),
        {"data.translation_column": "translation", "data.source_lang": "en", "training.max_seq_length": 256,
         "parallel.data_parallel_size": 2},
    ),
    "image-classification": (
        ("python run_image_classification.py --dataset_name beans --label_column_name labels --learning_rate 2e-5"
        " --remove_unused_columns False --train_val_split 0.2 --model_name_or_path google/vit-base-patch16-224-in21k"),
        {"data.label_column": "labels", "data.validation_split": "validation"},
    ),
    "text-classification": (
        ("python run_classification.py --model_name_or_path bert-base-uncased --train_file a.csv"
        " --validation_file b.csv --text_column_names body --label_column_name class --gradient_accumulation_steps 2"
        " --max_train_samples 500"),
        {"data.text_column": "body", "data.label_column": "class", "data.max_train_samples": 500},
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", sorted(COMMANDS))
def test_every_script_becomes_a_recipe_of_its_task(tmp_path, task):
    line, expected = COMMANDS[task]
    recipe = made(tmp_path, line).recipe
    assert recipe.task == task
    assert {path: at(recipe, path) for path in expected} == expected
    assert set(COMMANDS) == {script.task for script in tables().examples.scripts.values()}


def test_a_command_in_a_readme_is_read(tmp_path):
    text = """
        # How to train

        Based on the script [`run_glue.py`](https://github.com/huggingface/transformers/blob/main/examples/run_glue.py).
        if you like, it is run as run_glue.py or as run_ner.py is. Don't panic: here's the command (it's "easy"):

        ```bash
        $ python run_qa.py \\
            --model_name_or_path distilbert-base-uncased \\
            --dataset_name squad_v2
        ```
        It's done. Another one: `python run_plm.py --model_name_or_path x`.
    """
    assert made(tmp_path, text, "README.md").recipe.data.id == "squad_v2"


def test_what_must_be_added_is_said_first(tmp_path):
    found = made(tmp_path, "python run_glue.py --dataset_name someone/reviews --do_train --do_eval")
    todo = whats(found, todo=True)
    assert "model.id" in todo
    assert "data.labels" in todo
    assert found.notes[0].todo
    assert found.text.index("To be done") < found.text.index("name:")


NXDT = """\
    name: pretrain
    trainer: {devices: 32, num_nodes: 4, max_steps: 100, gradient_clip_val: 1.0, val_check_interval: 20}
    distributed_strategy: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 1, zero1: True}
    data:
      micro_batch_size: 1
      global_batch_size: 1024
      seq_length: ${model.encoder_seq_length}
      data_prefix: [1.0, /data/x_text_document]
    model:
      encoder_seq_length: 4096
      num_layers: 4
      activations_checkpoint_granularity: full
      tokenizer: {type: meta-llama/Llama-2-7b-hf}
      optim: {name: adamw, lr: 3.0e-4, betas: [0.9, 0.95], sched: {name: CosineAnnealing, warmup_steps: 5}}
    precision: {type: mixed_precision}
    compiler_flags: '--model-type=transformer --distribution-strategy=llm-training'
"""


def test_variants_of_the_two_trainers(tmp_path):
    text = textwrap.dedent(NXDT).replace("name: pretrain", "name: old")
    older = text.replace("data_prefix: [1.0, /data/x_text_document]", "train_dir: /d/t.jsonl\n  packing: True")
    assert made(tmp_path, older, "x.yaml").recipe.task == "instruction-tuning"
    with pytest.raises(RecipeError, match="dpo"):
        made(tmp_path, older.replace("packing: True", "alignment_strategy: {dpo: {kl_beta: 0.01}}"), "x.yaml")
    beside = made(tmp_path, text.replace("num_layers: 4", "max_position_embeddings: ${.encoder_seq_length}"), "x.yaml")
    assert beside.recipe.model.config == {"max_position_embeddings": 4096}
    megatron = made(tmp_path, text + "model_source: megatron\n", "x.yaml")
    assert megatron.recipe.model.config == {}
    flow = """
        data_store: {hf_dataset_name: wikicorpus, hf_dataset_config_name: raw_en, block_size: 4096}
        model_store: {local_weights_path: model}
        training: {tensor_parallelism_degree: 8, use_mix_precision: true, micro_batch_size: 1, steps_this_run: 5}
        model_architecture: {architectures: [LlamaForCausalLM], hidden_size: 64, model_type: llama, rope_scaling: null}
    """
    recipe = made(tmp_path, flow, "x.yaml").recipe
    assert (recipe.task, recipe.model.config, recipe.model.from_config) == ("causal-lm", {"hidden_size": 64}, True)
    assert (recipe.parallel.tensor_parallel_size, recipe.training.bf16, recipe.training.max_steps) == (8, True, 5)
    dolly = """
        data_store: {hf_dataset_name: databricks/databricks-dolly-15k}
        model_store: {hf_model_name: philschmid/Llama-2-7b-hf}
        training: {tensor_parallel_size: 8, skip_cache_push: true}
    """
    recipe = made(tmp_path, dolly, "x.yaml").recipe
    assert (recipe.task, recipe.data.prompt_column) == ("instruction-tuning", "instruction")


# The real files


def test_the_nxdt_configuration(tmp_path):
    found = new_recipe(real_dir("recipes") / "nxdt.hf_llama3_8B_SFT_lora_config.yaml")
    recipe = found.recipe
    assert (recipe.name, recipe.task) == ("hf_llama", "instruction-tuning")
    training = recipe.training
    assert (training.max_steps, training.learning_rate, training.warmup_steps, training.seed) == (
        5000,
        1.5e-4,
        10,
        1234,
    )
    assert (training.per_device_train_batch_size, training.gradient_accumulation_steps) == (1, 64)
    assert training.lora is not None
    assert (training.lora.r, training.lora.lora_alpha, training.lora.lora_dropout) == (16, 32, 0.05)
    assert training.lora.target_modules == ("q_proj", "k_proj", "v_proj")
    assert (recipe.parallel.tensor_parallel_size, recipe.parallel.data_parallel_size) == (32, 1)
    assert (training.max_seq_length, training.eval_strategy) == (4096, "no")
    assert recipe.compiler.flags == ("--model-type", "transformer")
    assert recipe.model.config["num_hidden_layers"] == 32
    left = whats(found)
    for what in (
        "kv_replicator 4",
        "sequence_parallel True",
        "compiler_cache_url",
        "packing",
        "resume_from_checkpoint",
    ):
        assert what in left


def test_the_metaflow_configuration():
    found = new_recipe(real_dir("recipes") / "metaflow.bert-finetune-trn.config.yaml")
    recipe = found.recipe
    assert (recipe.task, recipe.model.id, recipe.data.id) == (
        "text-classification", "bert-base-uncased", "philschmid/emotion",
    )  # fmt: skip
    assert (recipe.training.num_train_epochs, recipe.training.per_device_train_batch_size) == (1, 2)
    assert recipe.data.labels == ("sadness", "joy", "love", "anger", "fear", "surprise")
    assert "s3_prefix" in whats(found)


def test_an_nxdt_pretraining(tmp_path):
    found = made(tmp_path, NXDT, "config.yaml")
    recipe = found.recipe
    assert (recipe.task, recipe.model.id) == ("causal-lm", "meta-llama/Llama-2-7b-hf")
    assert recipe.training.gradient_accumulation_steps == 1024 // (1 * 4 * 4)
    layout = recipe.parallel
    assert (layout.data_parallel_size, layout.tensor_parallel_size, layout.nodes, layout.zero_1) == (4, 8, 4, True)
    assert (recipe.training.lr_scheduler_type, recipe.training.adam_beta2) == ("cosine", 0.95)
    assert (recipe.training.max_seq_length, recipe.training.gradient_checkpointing) == (4096, True)
    assert (recipe.training.eval_strategy, recipe.training.eval_steps) == ("steps", 20)
    assert "data" in whats(found, todo=True)
    with pytest.raises(RecipeError, match="dpo"):
        made(tmp_path, textwrap.dedent(NXDT) + "model_alignment_strategy: {dpo: {kl_beta: 0.1}}\n", "config.yaml")


def test_an_nxdt_training_without_rows_to_judge_by_is_not_judged(tmp_path):
    here = NXDT.replace("data_prefix: [1.0, /data/x_text_document]", "train_dir: /d/t.jsonl")
    assert made(tmp_path, here, "config.yaml").recipe.training.eval_strategy == "no"
    judged = made(tmp_path, here.replace("t.jsonl", "t.jsonl\n      val_dir: /d/v.jsonl"), "config.yaml").recipe
    assert (judged.training.eval_strategy, judged.training.eval_steps) == ("steps", 20)


def test_the_batch_of_a_model_that_spans_nodes(tmp_path):
    """Two nodes a copy, so two copies on the four: NxD accumulates 1024 / (1 * 2) micro-batches."""
    found = made(tmp_path, NXDT.replace("pipeline_model_parallel_size: 1", "pipeline_model_parallel_size: 8"), "x.yaml")
    assert found.recipe.training.gradient_accumulation_steps == 512
    assert "trainer.devices 32: one copy of the model spans several nodes" in whats(found)
    nowhere = made(tmp_path, NXDT.replace("devices: 32, ", ""), "x.yaml")
    assert "data.global_batch_size 1024: trainer.devices" in whats(nowhere)


def test_the_other_names_of_a_metaflow_flow(tmp_path):
    flow = """
        data_store: {hf_dataset_name: wikicorpus}
        model_store: {hf_model_name: someone/llama}
        training: {beta1: 0.8, beta2: 0.95, num_keep_checkpoint: 2, micro_batch_size: 1, global_batch_size: 1024}
    """
    found = made(tmp_path, flow, "config.yaml")
    training = found.recipe.training
    assert (training.adam_beta1, training.adam_beta2, training.save_total_limit) == (0.8, 0.95, 2)
    assert "training.global_batch_size 1024: say training.gradient_accumulation_steps" in whats(found)


def test_no_value_can_leave_its_comment(tmp_path):
    found = made(
        tmp_path, NXDT.replace("name: pretrain", 'name: "x\\ntask: masked-lm"\n    trick: "a\\u2028b\\nmodel: {}"')
    )
    assert found.recipe.task == "causal-lm"
    assert load_text(found.text).name == found.recipe.name


# The command line


def test_zoo_new_takes_a_command_line_or_a_file(command):
    words = ("torchrun", "--nproc_per_node=2", "run_glue.py", "--model_name_or_path", "gpt2", "--task_name", "mrpc")
    document = command("zoo", "new", "-f", "json", "--", *words).json
    assert load_text(document["text"]).parallel.data_parallel_size == 2
    assert document["source"] == "torchrun --nproc_per_node=2 run_glue.py --model_name_or_path gpt2 --task_name mrpc"
    for both in ((), ("--from", "train.sh", "--", *words)):
        assert the_error(command("zoo", "new", *both, code=2))[0] == "usage"


def test_zoo_new_writes_a_recipe_and_tells_what_is_missing(command, work):
    (work / "train.sh").write_text(textwrap.dedent(GLUE))
    told = command("zoo", "new", "--from", "train.sh", "--output", "mine.yaml")
    assert "not carried over: --weird a b: no field of a recipe stands for it" in told.err
    assert "next: cachekit plan mine.yaml" in told.out
    assert load(work / "mine.yaml").data.config == "mrpc"
    document = command("zoo", "new", "--from", "train.sh", "-f", "json").json
    assert load_text(document["text"]).name == document["name"] == "train"
    assert {"what": "--weird a b", "why": "no field of a recipe stands for it"} in document["not_carried_over"]
    assert load_text(command("zoo", "new", "--from", "train.sh").out).task == "text-classification"
    assert "there already" in the_error(command("zoo", "new", "--from", "train.sh", "--output", "mine.yaml", code=2))[1]
    command("zoo", "new", "--from", "train.sh", "--output", "mine.yaml", "--force")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.sh", "python train.py --lr 1\n", "no recipe can be made"),
        ("x.yaml", "a: 1\n", "no recipe can be made"),
        ("x.yaml", "a: [1\n", "no recipe can be made"),
        ("x.yaml", "", "no recipe can be made"),
        ("x.yaml", "name: a\ntask: causal-lm\nmodel: {id: gpt2}\n", "recipe already"),
        ("x.sh", "python run_speech_recognition_ctc.py --model_name_or_path x\n", "recipes have no task"),
        ("x.bin", b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_files_of_no_known_kind(command, work, name, text, words):
    (work / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    code, message, _, hint = the_error(command("zoo", "new", "--from", name, code=2))
    assert (code, words in message, bool(hint)) == ("bad-recipe", True, True), message
    assert "does not exist" in the_error(command("zoo", "new", "--from", "nowhere.sh", code=2))[1]
