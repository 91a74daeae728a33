"""Recipes out of what people have: example command lines, and two other trainers' YAMLs; each one made loads."""

from __future__ import annotations

import textwrap

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe import load, load_text
from cachekit.recipe.convert.tables import tables
from cachekit.recipe.schema import Lora
from cachekit.verbs.zoo_check import new_recipe
from tests.recipe.importing_cases import at, called, made, whats
from tests.support.cli_session import the_error
from tests.support.places import real_dir

pytest_plugins = ["tests.support.cli_session"]
GLUE = (
    "NEURON_CC_FLAGS='--model-type=transformer --cache_dir=/tmp/x' WANDB_API_KEY=sEcReT123 TOKENIZERS_PARALLELISM=false"
    " XLA_USE_BF16=1 torchrun --nproc_per_node=2 --master_port 1234 examples/run_glue.py"
    " --model_name_or_path bert-base-cased --task_name mrpc --do_train --do_eval --max_seq_length 128"
    " --per_device_train_batch_size 32 --learning_rate 2e-5 --logging_steps=20 --num_train_epochs 3"
    " --output_dir /tmp/mrpc/ --hub_token hf_abcdefghijklmnopqrstuvwxyz --overwrite_output_dir --weird 'a b'"
)


def test_a_call_of_run_glue():
    found = called(GLUE)
    recipe = found.recipe
    assert (recipe.name, recipe.task, recipe.model.id) == ("glue", "text-classification", "bert-base-cased")
    assert (recipe.data.id, recipe.data.config) == ("nyu-mll/glue", "mrpc")
    assert (recipe.data.text_column, recipe.data.text_pair_column) == ("sentence1", "sentence2")
    assert recipe.data.labels == ("not_equivalent", "equivalent")
    training = recipe.training
    assert (training.per_device_train_batch_size, training.max_seq_length, training.bf16) == (32, 128, True)
    assert (training.learning_rate, training.num_train_epochs, training.logging_steps) == (2e-5, 3, 20)
    assert recipe.parallel.data_parallel_size == 2
    assert (recipe.compiler.name, recipe.compiler.flags) == ("neuron", ("--model-type=transformer",))
    left = whats(found)
    for what in ("--weird a b", "TOKENIZERS_PARALLELISM false", "--cache_dir=/tmp/x", "--hub_token: a secret"):
        assert what in left
    assert "WANDB_API_KEY: a secret" in left
    assert "do_train" not in left, "what a training does in any case"
    for secret in ("sEcReT123", "hf_abcdefghijklmnopqrstuvwxyz"):
        assert secret not in found.text + left
    assert "# - --weird a b: a recipe has no field for it" in found.text


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
def test_every_script_becomes_a_recipe_of_its_task(task):
    line, expected = COMMANDS[task]
    recipe = called(line).recipe
    assert recipe.task == task
    assert {path: at(recipe, path) for path in expected} == expected
    assert set(COMMANDS) == {script.task for script in tables().examples.scripts.values()}


def test_what_must_be_added_is_said_first():
    found = called("python run_glue.py --dataset_name someone/reviews --do_train --do_eval")
    todo = whats(found, todo=True)
    assert "model.id" in todo
    assert "data.labels" in todo
    assert found.notes[0].todo
    assert found.text.index("To do before") < found.text.index("name:")


NXDT = textwrap.dedent("""\
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
    compiler_flags: [--model-type, transformer]
""")
CHECKPOINTS = "exp_manager: {checkpoint_callback_params: {every_n_train_steps: 1e2}}\n"
TOKENS = "data_prefix: [1.0, /data/x_text_document]"
FLOW = "data_store: {{hf_dataset_name: {}}}\nmodel_store: {{hf_model_name: {}}}\ntraining: {{{}}}\n"
# Variants of the two trainers: a text, fields of its recipe, and what the notes say.
YAMLS: list[tuple[str, dict, list[str]]] = [
    (NXDT, {
        "model.id": "meta-llama/Llama-2-7b-hf", "training.gradient_accumulation_steps": 1024 // (1 * 4 * 4),
        "parallel.data_parallel_size": 4, "parallel.tensor_parallel_size": 8, "parallel.nodes": 4,
        "parallel.zero_1": True, "training.lr_scheduler_type": "cosine", "training.adam_beta2": 0.95,
        "training.max_seq_length": 4096, "training.gradient_checkpointing": True,
        "training.eval_strategy": "steps", "training.eval_steps": 20,
        "compiler.flags": ("--model-type", "transformer"),
    }, ["data: NxD's own index of tokens is not read"]),
    # Without rows to judge by nothing is judged.
    (NXDT.replace(TOKENS, "train_dir: /d/t.jsonl"), {"training.eval_strategy": "no"}, []),
    (NXDT.replace(TOKENS, "train_dir: /d/t.jsonl\n  val_dir: /d/v.jsonl"),
     {"training.eval_strategy": "steps", "training.eval_steps": 20}, []),
    # Two nodes a copy, so two copies on the four: NxD accumulates 1024 / (1 * 2) micro-batches.
    (NXDT.replace("pipeline_model_parallel_size: 1", "pipeline_model_parallel_size: 8"),
     {"training.gradient_accumulation_steps": 512}, ["trainer.devices 32: one copy of the model spans several nodes"]),
    (NXDT.replace("devices: 32, ", ""), {}, ["data.global_batch_size 1024: trainer.devices"]),
    (NXDT.replace("num_layers: 4", "max_position_embeddings: ${.encoder_seq_length}"),
     {"model.config": {"max_position_embeddings": 4096}}, []),
    # Whole numbers that are written as floats; YAML reads 1e2 as a string.
    (NXDT.replace("max_steps: 100", "max_steps: 1.0e+3") + CHECKPOINTS,
     {"training.max_steps": 1000, "training.save_steps": 100, "training.save_strategy": "steps"}, []),
    (f"{NXDT}model_source: megatron\n", {"model.config": {}}, []),
    (NXDT.replace("[--model-type, transformer]", "[--x, 3]"), {"compiler.flags": ()}, ["compiler_flags --x 3"]),
    (FLOW.format("wikicorpus, hf_dataset_config_name: raw_en, block_size: 4096", "x/llama",
                 "tensor_parallelism_degree: 8, use_mix_precision: true, steps_this_run: 5"
     ) + "model_architecture: {architectures: [LlamaForCausalLM], hidden_size: 64, model_type: llama}\n",
     {"model.config": {"hidden_size": 64}, "model.from_config": True, "parallel.tensor_parallel_size": 8,
      "data.config": "raw_en", "training.bf16": True, "training.max_steps": 5}, []),
    (FLOW.format("databricks/databricks-dolly-15k", "philschmid/Llama-2-7b-hf", "skip_cache_push: true"),
     {"data.prompt_column": "instruction"}, []),
    (FLOW.format("wikitext, block_size: 512", "gpt2",
                 "steps_this_run: 10, max_steps: 100, lr: 1e-3, learning_rate: 2e-3, use_mix_precision: 1"),
     {"training.max_steps": 100, "training.learning_rate": 2e-3, "training.bf16": True},
     ["training.steps_this_run 10", "training.lr 0.001"]),
    (FLOW.format("wikicorpus", "someone/llama",
                 "beta1: 0.8, beta2: 0.95, num_keep_checkpoint: 2, global_batch_size: 1024"),
     {"training.adam_beta1": 0.8, "training.adam_beta2": 0.95, "training.save_total_limit": 2},
     ["training.global_batch_size 1024: set training.gradient_accumulation_steps"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fields", "told"), YAMLS)
def test_yaml_of_two_trainers(tmp_path, text, fields, told):
    found = made(tmp_path, text, "config.yaml")
    assert {path: at(found.recipe, path) for path in fields} == fields
    notes = f"{whats(found)}\n{whats(found, todo=True)}"
    assert [words for words in told if words not in notes] == []


def test_the_task_that_a_yaml_of_nxdt_trains(tmp_path):
    older = NXDT.replace(TOKENS, "train_dir: /d/t.jsonl\n  packing: True")
    assert made(tmp_path, NXDT, "x.yaml").recipe.task == "causal-lm"
    assert made(tmp_path, older, "x.yaml").recipe.task == "instruction-tuning"
    preference = "alignment_strategy: {dpo: {kl_beta: 0.01}}"
    for text in (older.replace("packing: True", preference), f"{NXDT}model_{preference}\n"):
        with pytest.raises(RecipeError, match="dpo"):
            made(tmp_path, text, "x.yaml")


# The real files


def test_the_nxdt_configuration():
    found = new_recipe(real_dir("recipes") / "nxdt.hf_llama3_8B_SFT_lora_config.yaml")
    recipe, training = found.recipe, found.recipe.training
    assert (recipe.name, recipe.task, recipe.compiler.flags) == (
        "hf_llama", "instruction-tuning", ("--model-type", "transformer"),
    )  # fmt: skip
    assert (training.max_steps, training.learning_rate, training.warmup_steps) == (5000, 1.5e-4, 10)
    assert (training.seed, training.max_seq_length, training.eval_strategy) == (1234, 4096, "no")
    assert (training.per_device_train_batch_size, training.gradient_accumulation_steps) == (1, 64)
    assert training.lora == Lora(16, 32, 0.05, ("q_proj", "k_proj", "v_proj"), training.lora.bias)
    assert (recipe.parallel.tensor_parallel_size, recipe.parallel.data_parallel_size) == (32, 1)
    assert recipe.model.config["num_hidden_layers"] == 32
    for what in (
        "kv_replicator 4",
        "sequence_parallel True",
        "compiler_cache_url",
        "packing",
        "resume_from_checkpoint",
    ):
        assert what in whats(found)


def test_the_metaflow_configuration():
    found = new_recipe(real_dir("recipes") / "metaflow.bert-finetune-trn.config.yaml")
    recipe = found.recipe
    assert (recipe.task, recipe.model.id, recipe.data.id) == (
        "text-classification", "bert-base-uncased", "philschmid/emotion",
    )  # fmt: skip
    assert (recipe.training.num_train_epochs, recipe.training.per_device_train_batch_size) == (1, 2)
    assert recipe.data.labels == ("sadness", "joy", "love", "anger", "fear", "surprise")
    assert "s3_prefix" in whats(found)
    assert "model_store.s3_checkpoints_key checkpoints" in whats(found), "where something lies is no secret"


def test_no_value_can_leave_its_comment(tmp_path):
    found = made(
        tmp_path, NXDT.replace("name: pretrain", 'name: "x\\ntask: masked-lm"\ntrick: "a\\u2028b\\nmodel: {}"')
    )
    assert found.recipe.task == "causal-lm"
    assert load_text(found.text).name == found.recipe.name


# The command line


def test_zoo_new_takes_a_command_line_or_a_file(command):
    words = ("torchrun", "--nproc_per_node=2", "run_glue.py", "--model_name_or_path", "gpt2", "--task_name", "mrpc")
    document = command("zoo", "new", "-f", "json", "--", *words).json
    assert load_text(document["text"]).parallel.data_parallel_size == 2
    assert document["source"] == "torchrun --nproc_per_node=2 run_glue.py --model_name_or_path gpt2 --task_name mrpc"
    for both in ((), ("--from", "nxdt.yaml", "--", *words)):
        assert the_error(command("zoo", "new", *both, code=2))[0] == "usage"


def test_zoo_new_writes_a_recipe_and_tells_what_is_missing(command, work):
    (work / "nxdt.yaml").write_text(NXDT + "weird: a b\n")
    told = command("zoo", "new", "--from", "nxdt.yaml", "--output", "mine.yaml")
    assert "not carried over: weird a b: " in told.err
    assert "next: cachekit plan mine.yaml" in told.out
    assert load(work / "mine.yaml").training.max_steps == 100
    document = command("zoo", "new", "--from", "nxdt.yaml", "-f", "json").json
    assert load_text(document["text"]).name == document["recipe"]["name"] == "pretrain"
    assert "weird a b" in [note["what"] for note in document["notes"] if not note["todo"]]
    for stdout in ((), ("-o", "-")):
        assert load_text(command("zoo", "new", "--from", "nxdt.yaml", *stdout).out).task == "causal-lm"
    refused = command("zoo", "new", "--from", "nxdt.yaml", "--output", "mine.yaml", code=2)
    assert "exists already" in the_error(refused)[1]
    (work / "mine.yaml").write_text("an older one")
    again = ("zoo", "new", "--from", "nxdt.yaml", "--output", "mine.yaml", "--force")
    assert command(*again, "--dry-run").out.startswith("would write mine.yaml: ")
    assert (work / "mine.yaml").read_text() == "an older one"
    command(*again)
    assert load(work / "mine.yaml").training.max_steps == 100


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.sh", "python train.py --lr 1\n", "it has no call of an example script"),
        ("x.yaml", "a: 1\n", "no recipe can be made"),
        ("x.json", '{"model_name_or_path": "gpt2"}', "no recipe can be made from x.json alone"),
        ("x.yaml", "a: [1\n", "no recipe can be made"),
        ("x.yaml", "", "no recipe can be made"),
        ("x.yaml", "name: a\ntask: causal-lm\nmodel: {id: gpt2}\n", "recipe already"),
        ("x.bin", b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_files_of_no_known_kind(command, work, name, text, words):
    (work / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    code, message, cause, hint = the_error(command("zoo", "new", "--from", name, code=2))
    assert (code, words in f"{message}: {cause}", bool(hint)) == ("bad-recipe", True, True), message
    assert "does not exist" in the_error(command("zoo", "new", "--from", "nowhere.sh", code=2))[1]
