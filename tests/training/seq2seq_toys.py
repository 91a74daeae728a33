"""Encoder-decoders of a few thousand parameters, and tokenizers of whole words, for the tests of two tasks."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import structs

from cachekit.recipe.schema import Data
from cachekit.recipe.schema import Model as ModelPart
from tests.training.jobs import job_of, recipe_of

SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]
SIZES = {
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0},
    "bart": {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "bos_token_id": 3,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
    },
}
SIZES["marian"] = {**SIZES["bart"], "decoder_start_token_id": 0}
SIZES["mbart"] = {**SIZES["bart"], "decoder_start_token_id": None}


def words(*texts):
    return sorted({word for text in texts for word in text.split()})


def tokenizer(vocabulary, template="$A </s>"):
    """Whole words between spaces, with an end."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate([*SPECIAL, *vocabulary])}
    made = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[(token, numbers[token]) for token in SPECIAL]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", bos_token="<s>"
    )


def folder_of(place: Path, kind: str, vocabulary, template="$A </s>") -> Path:
    """A model's folder: its config and its tokenizer."""
    made = tokenizer(vocabulary, template)
    made.save_pretrained(place)
    size = len(made)
    config = {"model_type": kind, "vocab_size": size, **SIZES[kind]}
    if kind == "marian":
        config["decoder_vocab_size"] = size
    (place / "config.json").write_text(json.dumps(config))
    return place


def seq2seq_job(place: Path, task: str, data: Data, kind: str = "t5", template: str = "$A </s>", **training):
    """A job over the rows of `data`, with a model whose words are theirs."""
    (place / "model").mkdir(exist_ok=True)
    lines = [line for file in Path(data.path).glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    texts = [text for line in lines for text in _texts(json.loads(line))]
    folder = folder_of(place / "model", kind, words(*texts), template)
    settings = {"max_seq_length": 24, "max_target_length": 10, "num_train_epochs": 1, **training}
    recipe = structs.replace(recipe_of(task, data, **settings), model=ModelPart(path=str(folder), from_config=True))
    config = json.loads((folder / "config.json").read_text())
    return job_of(place, recipe, config=config, tokenizer=folder, weights=folder)


def _texts(value):
    return [text for inner in value.values() for text in _texts(inner)] if isinstance(value, dict) else [str(value)]
