"""A configuration of NeuronX Distributed Training: `trainer`, `distributed_strategy`, `data`, `model`.

What its names stand for is in `registry/conversions.yaml`.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe import placeholder
from cachekit.recipe.convert.draft import UNKNOWN, RecipeDraft, slug
from cachekit.recipe.convert.tables import tables
from cachekit.recipe.convert.tree import Tree

_PREFERENCE = ("dpo", "orpo", "kto", "ppo")
_RUNTIME = "a setting of Neuron's runtime that reaches no graph; say it in environment where you need it"


def knows(document: dict[str, Any]) -> bool:
    """Whether a document is such a configuration."""
    return "distributed_strategy" in document and bool({"trainer", "model"} & document.keys())


def convert(document: dict[str, Any], name: str) -> RecipeDraft:
    """Make a draft of a configuration.

    Raises:
        RecipeError: It trains on preferences, which recipes have no task for, or its name is a placeholder.
    """
    tree = Tree(document)
    named = tree.take("name")
    placeholder.refuse([("name", named)], "the configuration", "put values in their places")
    draft = RecipeDraft(slug(str(named or name)), "a configuration of NeuronX Distributed Training")
    tree.take("exp_manager.name")
    draft.task = _task(tree)
    _model(tree, draft)
    _layout(tree, draft)
    _data(tree, draft)
    _training(tree, draft)
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
            hint="take a configuration for SFT",
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
        draft.drop("model.model_config", "model.path is its folder; weights are looked for there, too", place)
    elif isinstance(tokenizer, str) and "/" in tokenizer and not tokenizer.startswith(("/", ".", "~")):
        draft.set("model.id", tokenizer)
        draft.must("model.id", "the file names no model; this is the Hub id of its tokenizer")
    else:
        draft.set("model.id", draft.name)
        draft.must("model.id", "the file names no model; put its Hub id in place of this, or say model.path")
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
        draft.must("data", "NxD's own index of tokens is not read; say data.id, data.path or data.train_file")
    if (rows := tree.number("data.dev_choose_samples")) is not None:
        draft.set("data.max_train_samples", int(rows))
        why = "data.max_train_samples takes that many by chance, not the first"
        draft.drop("data.dev_choose_samples", why, int(rows))
    length = tree.number("data.seq_length", "model.seq_length") or tree.number("model.encoder_seq_length")
    if length:
        draft.set("training.max_seq_length", int(length))
    if draft.task == "instruction-tuning":
        draft.must("data.prompt_column", "the file does not say its columns; prompt and response are looked for")


def _training(tree: Tree, draft: RecipeDraft) -> None:
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
        draft.drop("trainer.limit_val_batches", "every row is judged once; data.max_eval_samples takes fewer", limit)


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
