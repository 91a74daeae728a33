"""Tiny language models and tokenizers of a few words, and jobs that train them in this process, uncompiled."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import structs

from cachekit.recipe.schema import Data, Lora
from cachekit.training.job import Job
from tests.training.jobs import job_of, others_warnings, recipe_of, write

WORDS = ["the", "sea", "is", "calm", "and", "a", "bird", "sings", "over", "stone", "moss", "cloud", "wind", "rest"]
WORDS += ["now", "question", "answer"]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]

_DECODER = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "gpt2": {"vocab_size": 64, "n_embd": 16, "n_head": 4, "n_layer": 1, "n_positions": 64},
    "llama": {**_DECODER, "tie_word_embeddings": False},
    "qwen3": {**_DECODER, "head_dim": 8},
    "granite": {**_DECODER, "tie_word_embeddings": True, "logits_scaling": 2.0, "attention_multiplier": 0.5},
    "mistral": _DECODER,
    "bert": {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
}


def _word_level(words: list[str], kind: str, *, template: str | None = None, bos: bool = True):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    level = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate([*SPECIAL, *words])}, unk_token="<unk>")
    )
    level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>", "mask_token": "<mask>"}
    if bos:
        names["bos_token"] = "<s>"
    if kind == "masked":
        level.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
        )
        names |= {"cls_token": "<s>", "sep_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=level, **names)
    tokenizer.chat_template = template
    return tokenizer


def tokenizer_folder(folder: Path, *, template: str | None = None, kind: str = "causal", bos: bool = True) -> Path:
    """A word-level tokenizer of WORDS, saved as Transformers does."""
    place = folder / "tokenizer"
    _word_level(WORDS, kind, template=template, bos=bos).save_pretrained(place)
    return place


def lm_job(
    folder: Path,
    task: str,
    rows: dict[str, list[dict]] | dict[str, str],
    *,
    model_type: str = "gpt2",
    tokenizer: Path | None = None,
    config: dict | None = None,
    data: dict | None = None,
    mode: str = "train",
    resume: str | Path = "",
    weights: str | Path = "",
    **training,
) -> Job:
    """A job on rows or plain texts."""
    settings = {"per_device_train_batch_size": 2, "max_seq_length": 8, "num_train_epochs": 1, "logging_steps": 1}
    settings |= {"save_strategy": "epoch", "eval_strategy": "epoch", **training}
    if "lora" in settings:
        settings["lora"] = msgspec.convert(settings["lora"], Lora)
    read = Data(path=str(write(folder / "data", **rows)), **(data or {}))
    recipe = recipe_of(task, read, **settings)
    if weights:
        recipe = structs.replace(recipe, model=structs.replace(recipe.model, from_config=False))
    sizes = {"model_type": model_type, **CONFIGS[model_type], **(config or {})}
    place = tokenizer or tokenizer_folder(folder)
    return job_of(folder, recipe, config=sizes, tokenizer=place, weights=weights, mode=mode, resume=resume)


def graphs(work, net) -> int:
    """How many forward graphs a training step and an evaluation have, as the compiler's front end sees it."""
    import torch
    from torch._dynamo.testing import CompileCounter

    from cachekit.training import model

    torch._dynamo.reset()
    counter = CompileCounter()
    part = model.compiled_part(net)
    part.forward = torch.compile(part.forward, dynamic=False, backend=counter)
    batch = work.collate([work.features["train"][0]] * 2)
    with others_warnings():
        net.train()
        net(**batch).loss.backward()
        net.eval()
        with torch.no_grad():
            net(**batch)
    return counter.frame_count


def dumped(monkeypatch) -> list:
    """The batches of every evaluation with the model's whole logits, in the order in which they came."""
    import torch

    from cachekit.training.trainer import FixedShapeTrainer

    seen: list = []
    original = FixedShapeTrainer.prediction_step

    def watched(self, model, inputs, *args, **kwargs):
        out = original(self, model, inputs, *args, **kwargs)
        with torch.no_grad():
            seen.append(({name: value.clone() for name, value in inputs.items()}, model(**inputs).logits.clone()))
        return out

    monkeypatch.setattr(FixedShapeTrainer, "prediction_step", watched)
    return seen
