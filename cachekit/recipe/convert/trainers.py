"""The YAML of two other trainers on Trainium, which are told apart by their sections.

NeuronX Distributed Training has `trainer`, `distributed_strategy`, `data` and `model`; the Metaflow examples have
`data_store`, `tokenizer_store`, `model_store` and `training`. What their names stand for is in
`registry/conversions.yaml`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.convert.draft import UNKNOWN, RecipeDraft, refuse_placeholders, slug
from cachekit.recipe.convert.tables import Tree, data_fields, tables
from cachekit.recipe.field_names import SYNONYMS
from cachekit.recipe.schema import Parallel, Training

_PREFERENCE = ("dpo", "orpo", "kto", "ppo")
_RUNTIME = "a setting of Neuron's runtime that affects no graph; if you need it, set it under `environment`"
_STORES = ("data_store", "model_store", "tokenizer_store")
_PLACE = "where Metaflow keeps things: recipes name the Hub's, and cachekit its own remote"
_GENERATES = re.compile(r"llama|gpt|qwen|mistral|gemma|opt-|bloom|falcon|pythia|smollm", re.IGNORECASE)


def convert(document: dict[str, Any], name: str) -> RecipeDraft | None:
    """Make a draft of a configuration; None where it is of neither trainer.

    Raises:
        RecipeError: It trains on preferences, which recipes have no task for, or its name is a placeholder.
    """
    if "distributed_strategy" in document and {"trainer", "model"} & document.keys():
        return _nxdt(Tree(document), name)
    if len(document.keys() & set(_STORES)) > 1:
        return _metaflow(Tree(document), name)
    return None


def _nxdt(tree: Tree, name: str) -> RecipeDraft:
    named = tree.take("name")
    refuse_placeholders([("name", named)], "the configuration", "replace the placeholders with values")
    draft = RecipeDraft(slug(str(named or name)), "a configuration of NeuronX Distributed Training")
    tree.take("exp_manager.name")
    draft.task = _task(tree)
    _model(tree, draft)
    _layout(tree, draft)
    _data(tree, draft)
    _nxdt_training(tree, draft)
    _adapter(tree, draft)
    _compiler(tree, draft)
    for path, value in tree.left():
        draft.drop(path, _reason(path), value)
    return draft


def _reason(path: str) -> str:
    """Why a setting has no field: as the table says of it, or of what is around it."""
    parts = path.split(".")
    around = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    said = (tables().nxdt.reasons.get(one) for one in around)
    return next(filter(None, said), _RUNTIME if len(parts) == 1 else UNKNOWN)


def _task(tree: Tree) -> str:
    strategy = "model_alignment_strategy" if tree.has("model_alignment_strategy") else "data.alignment_strategy"
    said = tree.look(strategy)
    kinds = [said] if isinstance(said, str) else list(said or ())
    if kind := next((kind for kind in kinds if kind in _PREFERENCE), None):
        raise RecipeError(
            f"the configuration uses {kind} training, and recipes have no task for that",
            cause=f"{kind} compares two answers; instruction-tuning has one answer to each instruction",
            hint="use a configuration for SFT",
        )
    if isinstance(said, str):
        tree.take(strategy)
    train = tree.look("data.train_dir")
    rows = isinstance(train, str) and PurePosixPath(train).suffix in {".arrow", ".json", ".jsonl"}
    # In earlier releases nothing but its data loader told fine-tuning from pre-training.
    tuned = "sft" in kinds or tree.has("data.packing") or tree.look("data.use_sft_style_data_module") is True or rows
    return "instruction-tuning" if tuned else "causal-lm"


def _model(tree: Tree, draft: RecipeDraft) -> None:
    place = tree.take("model.model_config")
    tokenizer = tree.take("data.tokenizer.type", "model.tokenizer.type")
    if isinstance(place, str) and place:
        path = PurePosixPath(place)
        draft.set("model.path", str(path.parent) if path.suffix == ".json" else place)
        draft.drop("model.model_config", "model.path is set to its folder; weights are also loaded from there", place)
    elif isinstance(tokenizer, str) and "/" in tokenizer and not tokenizer.startswith(("/", ".", "~")):
        draft.set("model.id", tokenizer)
        draft.must("model.id", "the file names no model; this is the Hub id of its tokenizer")
    else:
        draft.set("model.id", draft.name)
        draft.must("model.id", "the file names no model; put its Hub id in place of this, or set model.path")
    if isinstance(tokenizer, str) and "/" not in tokenizer:
        draft.drop("data.tokenizer.type", "a kind of tokenizer, and no model's", tokenizer)
    elif isinstance(tokenizer, str) and tokenizer != draft.get("model.id"):
        draft.set("model.tokenizer", tokenizer)
    if tree.take("model_source") == "megatron":  # whose layers have no names in a config.json
        draft.drop("model_source", "NxD's own model code; its sizes are those of no config.json", "megatron")
        return
    given = {meant: tree.number(f"model.{name}") for name, meant in tables().nxdt.config.items()}
    if config := {name: value for name, value in given.items() if value is not None}:
        draft.set("model.config", config)
    if tree.look("model.weight_init_only") is True:
        tree.take("model.weight_init_only")  # a fine-tune begins with weights alone


def _layout(tree: Tree, draft: RecipeDraft) -> None:
    tensor = _whole(tree.number("distributed_strategy.tensor_model_parallel_size"))
    pipeline = _whole(tree.number("distributed_strategy.pipeline_model_parallel_size"))
    nodes, devices = _whole(tree.number("trainer.num_nodes")), tree.number("trainer.devices")
    for name, value in (("tensor_parallel_size", tensor), ("pipeline_parallel_size", pipeline), ("nodes", nodes)):
        if value > 1:
            draft.set(f"parallel.{name}", value)
    if tree.take("distributed_strategy.zero1") is True:
        draft.set("parallel.zero_1", value=True)
    if tree.look("distributed_strategy.virtual_pipeline_model_parallel_size") == 1:
        tree.take("distributed_strategy.virtual_pipeline_model_parallel_size")
    if devices and int(devices) % (tensor * pipeline) == 0:
        draft.set("parallel.data_parallel_size", int(devices) // (tensor * pipeline))
    elif devices:
        draft.drop("trainer.devices", "one copy of the model spans several nodes: recipes keep one on a node", devices)
    micro = _whole(tree.number("data.micro_batch_size", "model.micro_batch_size"))
    draft.set("training.per_device_train_batch_size", micro)
    whole = tree.number("data.global_batch_size", "model.global_batch_size")
    # A copy may span nodes, as those of the largest models do.
    steps = (whole or 0) * tensor * pipeline / (micro * int(devices) * nodes) if devices else 0
    if steps >= 1 and steps == int(steps):
        draft.set("training.gradient_accumulation_steps", int(steps))
    elif whole:
        why = (
            "no whole number of micro-batches on each copy"
            if devices
            else "trainer.devices does not give a number of cores"
        )
        draft.drop("data.global_batch_size", why, whole)


def _whole(value: float | None) -> int:
    return max(int(value), 1) if value else 1


def _data(tree: Tree, draft: RecipeDraft) -> None:
    train = tree.take("data.train_dir", "data.train_path")
    validation = tree.take("data.val_dir", "data.val_path")
    if train and not validation:
        tree.take("trainer.val_check_interval")
        draft.set("training.eval_strategy", "no")
    if isinstance(train, str) and PurePosixPath(train).suffix:
        draft.set("data.train_file", train)
        draft.set("data.validation_file", validation)
        if PurePosixPath(train).suffix == ".arrow":
            draft.must("data.train_file", "Arrow files are not read; make it parquet or jsonl")
    elif isinstance(train, str):
        draft.set("data.path", train)
        if validation:
            draft.drop("data.val_dir", "data.path is one folder that holds train.* and validation.*", validation)
    else:
        draft.must("data", "NxD's own index of tokens is not read; set data.id, data.path or data.train_file")
    if (rows := tree.number("data.dev_choose_samples")) is not None:
        draft.set("data.max_train_samples", int(rows))
        why = "data.max_train_samples chooses that many at random, not the first"
        draft.drop("data.dev_choose_samples", why, int(rows))
    length = tree.number("data.seq_length", "model.seq_length") or tree.number("model.encoder_seq_length")
    if length:
        draft.set("training.max_seq_length", int(length))
    if draft.task == "instruction-tuning":
        draft.must("data.prompt_column", "the file does not name its columns; prompt and response are looked for")


def _nxdt_training(tree: Tree, draft: RecipeDraft) -> None:
    for name, paths in tables().nxdt.numbers.items():
        value = tree.number(*paths)
        counts = name.endswith(("_steps", "_epochs", "_limit")) and name != "training.warmup_steps"
        if value is not None and (value > 0 or not counts):  # -1 stands for no limit
            draft.set(name, int(value) if counts and value % 1 == 0 else value)  # `1e2` is a float
    if draft.get("training.save_steps") is not None:
        draft.set("training.save_strategy", "steps")
    betas = tree.take("model.optim.betas")
    if isinstance(betas, list) and len(betas) == 2:  # noqa: PLR2004
        draft.set("training.adam_beta1", betas[0])
        draft.set("training.adam_beta2", betas[1])
    optimizer = tree.take("model.optim.name")
    if isinstance(optimizer, str):
        draft.set("training.optim", "adamw_torch")
        if not optimizer.lower().startswith("adamw"):
            draft.drop("model.optim.name", "adamw_torch in its place", optimizer)
    schedule = tree.take("model.optim.sched.name")
    if isinstance(schedule, str):
        if meant := tables().nxdt.schedules.get(schedule.lower().replace("_", "")):
            draft.set("training.lr_scheduler_type", meant)
        else:
            draft.drop("model.optim.sched.name", "no schedule of Transformers is like it", schedule)
    _evaluation(tree, draft)
    kind = tree.look("precision.type", "precision")
    if isinstance(kind, str):
        whole = kind.lower() in {"fp32", "32", "32-true"}
        draft.set("training.bf16", not whole)
        if whole:
            tree.take("precision")
    if tree.look("model.activations_checkpoint_granularity") == "full":
        tree.take("model.activations_checkpoint_granularity")
        draft.set("training.gradient_checkpointing", value=True)


def _evaluation(tree: Tree, draft: RecipeDraft) -> None:
    every, limit = tree.look("trainer.val_check_interval"), tree.take("trainer.limit_val_batches")
    if limit == 0:
        tree.take("trainer.val_check_interval")
        draft.set("training.eval_strategy", "no")
    elif draft.get("training.eval_strategy") is None and isinstance(every, int) and every is not True and every > 0:
        tree.take("trainer.val_check_interval")
        draft.set("training.eval_strategy", "steps")
        draft.set("training.eval_steps", every)
    if limit and not (isinstance(limit, float) and limit == 1):
        draft.drop(
            "trainer.limit_val_batches",
            "every validation row is evaluated; data.max_eval_samples limits their number",
            limit,
        )


def _adapter(tree: Tree, draft: RecipeDraft) -> None:
    base = "model_alignment_strategy.peft" if tree.has("model_alignment_strategy.peft") else "peft"
    rank = tree.number(f"{base}.lora_rank")
    if rank is None:
        return
    lora: dict[str, Any] = {"r": int(rank)}
    for name in ("lora_alpha", "lora_dropout"):
        if (value := tree.number(f"{base}.{name}")) is not None:
            lora[name] = value
    if isinstance(bias := tree.take(f"{base}.lora_bias"), str):
        lora["bias"] = bias
    modules = tree.take(f"{base}.target_modules")
    if isinstance(modules, list) and modules:
        joined = tables().nxdt.modules
        lora["target_modules"] = [name for module in modules for name in joined.get(module, (module,))]
        if any(module in joined for module in modules):
            draft.drop(f"{base}.target_modules", "joined layers, which Transformers' models have one by one", modules)
    tree.take(f"{base}.lora_verbose")
    draft.set("training.lora", lora)


def _compiler(tree: Tree, draft: RecipeDraft) -> None:
    draft.set("compiler.name", "neuron")
    flags = tree.take("compiler_flags")
    try:
        words = shlex.split(flags) if isinstance(flags, str) else flags or []
    except ValueError:
        draft.drop("compiler_flags", "its quotes do not match", flags)
        return
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        draft.set("compiler.flags", words or None)
    else:
        draft.drop("compiler_flags", "neither a text nor a list of texts", flags)


def _metaflow(tree: Tree, name: str) -> RecipeDraft:
    draft = RecipeDraft(slug(name), "a configuration of metaflow-trainium")
    model = tree.take("model_store.hf_model_name", "model_store.hf_model_id", "model_store.model_name")
    kind = tree.take("model_architecture.model_type")
    if isinstance(model, str):
        draft.set("model.id", model)
    else:
        draft.set("model.id", str(kind or "bert-base-uncased"))
        draft.must("model.id", "the file names no model; put the Hub id of one of its kind in place of this")
    _architecture(tree, draft)
    data = tree.take("data_store.hf_dataset_name", "data_store.dataset_name")
    draft.task = "causal-lm" if _GENERATES.search(f"{model} {kind}") else "text-classification"
    if draft.task == "causal-lm" and isinstance(data, str) and "prompt_column" in data_fields(data):
        draft.task = "instruction-tuning"
    draft.drop("the task", f"the file does not name it; {draft.task}, as model and data suggest")
    if isinstance(data, str):
        draft.set("data.id", data)
        draft.set("data.config", tree.take("data_store.hf_dataset_config", "data_store.hf_dataset_config_name"))
        for field_name, value in data_fields(data).items():
            if field_name not in tasks.not_read(draft.task)["data"]:
                draft.set(f"data.{field_name}", value)
    else:
        draft.must("data", "the file names no data set of the Hub; set data.id, data.path or data.train_file")
    if isinstance(split := tree.take("data_store.hf_dataset_split"), str):
        draft.set("data.train_split", split)
    if tasks.TASKS[draft.task].has_classes and not (draft.get("data.labels") or draft.get("data.num_labels")):
        draft.must("data.labels", "the file does not name them; name them, or set data.num_labels")
    tokenizer = tree.take("tokenizer_store.hf_model_name", "tokenizer_store.hf_tokenizer_name")
    if isinstance(tokenizer, str) and tokenizer != model:
        draft.set("model.tokenizer", tokenizer)
    _metaflow_training(tree, draft)
    for path, value in tree.left():
        reason = tables().metaflow.reasons.get(path, UNKNOWN)
        draft.drop(path, _PLACE if path.startswith(_STORES) else reason, value)
    return draft


def _architecture(tree: Tree, draft: RecipeDraft) -> None:
    """A whole config.json under `model_architecture`; training begins with random weights there."""
    config = tree.look("model_architecture")
    if not isinstance(config, dict):
        return
    shapes = {
        name: value
        for name, value in config.items()
        if name not in tables().metaflow.shapeless and value is not None and not isinstance(value, list | dict)
    }
    for name in (*shapes, "architectures", "model_type", "transformers_version"):
        tree.take(f"model_architecture.{name}")
    draft.set("model.config", shapes)
    draft.set("model.from_config", value=True)


def _metaflow_training(tree: Tree, draft: RecipeDraft) -> None:
    if length := tree.number("data_store.block_size"):
        draft.set("training.max_seq_length", int(length))
    if tree.look("training.use_mix_precision") in (True, 1):
        tree.take("training.use_mix_precision")
        draft.set("training.bf16", value=True)
    names = {**SYNONYMS["parallel"], **SYNONYMS["training"], **tables().metaflow.names}
    fields = (*Training.__struct_fields__, *Parallel.__struct_fields__)
    # What has a recipe's own name first: `max_steps` is the training's, `steps_this_run` a part of it.
    for path, value in sorted(tree.left(), key=lambda one: one[0].partition(".")[2] not in fields):
        section, _, given = path.partition(".")
        if section not in {"training", "train", "parallel"} or "." in given:
            continue
        name = given.replace("-", "_")
        name = names.get(name, name)
        if name in Training.__struct_fields__ and name not in {"lora", "output_dir"}:
            if (other := draft.get(f"training.{name}")) is not None and other != value:
                draft.drop(path, f"training.{name} is said twice; {other} is taken", tree.take(path))
                continue
            draft.set(f"training.{name}", tree.take(path))
            if name == "save_steps":
                draft.set("training.save_strategy", "steps")
        elif name in Parallel.__struct_fields__:
            draft.set(f"parallel.{name}", bool(value) if name == "zero_1" else value)
            tree.take(path)
