"""The YAML of the Metaflow examples on Trainium: `data_store`, `tokenizer_store`, `model_store`, `training`.

What its names stand for is in `registry/conversions.yaml`.
"""

from __future__ import annotations

import re
from typing import Any

from cachekit.recipe import tasks
from cachekit.recipe.convert.draft import UNKNOWN, RecipeDraft, slug
from cachekit.recipe.convert.tables import data_fields, tables
from cachekit.recipe.convert.tree import Tree
from cachekit.recipe.schema import Parallel, Training
from cachekit.recipe.synonyms import SYNONYMS

_STORES = ("data_store", "model_store", "tokenizer_store")
_PLACE = "where Metaflow keeps things: recipes name the Hub's, and cachekit its own remote"
_GENERATES = re.compile(r"llama|gpt|qwen|mistral|gemma|opt-|bloom|falcon|pythia|smollm", re.IGNORECASE)


def knows(document: dict[str, Any]) -> bool:
    """Whether a document is such a configuration."""
    return len(document.keys() & set(_STORES)) > 1


def convert(document: dict[str, Any], name: str) -> RecipeDraft:
    """Make a draft of a configuration."""
    tree = Tree(document)
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
    draft.drop("the task", f"the file does not say it; {draft.task}, as model and data suggest")
    if isinstance(data, str):
        draft.set("data.id", data)
        draft.set("data.config", tree.take("data_store.hf_dataset_config", "data_store.hf_dataset_config_name"))
        for field_name, value in data_fields(data).items():
            if field_name not in tasks.not_read(draft.task)["data"]:
                draft.set(f"data.{field_name}", value)
    else:
        draft.must("data", "the file names no data set of the Hub; say data.id, data.path or data.train_file")
    if isinstance(split := tree.take("data_store.hf_dataset_split"), str):
        draft.set("data.train_split", split)
    if tasks.TASKS[draft.task].has_classes and not (draft.get("data.labels") or draft.get("data.num_labels")):
        draft.must("data.labels", "the file does not say them; name them, or say data.num_labels")
    tokenizer = tree.take("tokenizer_store.hf_model_name", "tokenizer_store.hf_tokenizer_name")
    if isinstance(tokenizer, str) and tokenizer != model:
        draft.set("model.tokenizer", tokenizer)
    _training(tree, draft)
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


def _training(tree: Tree, draft: RecipeDraft) -> None:
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
