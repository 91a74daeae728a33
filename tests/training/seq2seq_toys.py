"""Encoder-decoders of a few thousand parameters, and tokenizers of whole words, for the tests of two tasks."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import structs

from cachekit.recipe.schema import Data, Training
from cachekit.recipe.schema import Model as ModelPart
from tests.training.test_training_model import job as toy

RECIPES = Path(__file__).parents[2] / "recipes" / "tiny"
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


def rows_of(task: str, split: str = "train") -> list[dict]:
    text = (RECIPES / task / f"{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def write_rows(folder: Path, **splits) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder


def seq2seq_job(place: Path, task: str, data: Data, kind: str = "t5", template: str = "$A </s>", **training):
    """A job over the rows of `data`, with a model whose words are theirs."""
    work = place / "work"
    for folder in (work, place / "model"):
        folder.mkdir(exist_ok=True)
    texts = [file.read_text(encoding="utf-8") for file in Path(data.path).glob("*.jsonl")]
    every = [value for text in texts for line in text.splitlines() for value in _texts(json.loads(line))]
    folder = folder_of(place / "model", kind, words(*every), template)
    settings = {
        "per_device_train_batch_size": 4,
        "max_seq_length": 24,
        "max_target_length": 10,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        **training,
    }
    job = toy()
    recipe = structs.replace(
        job.recipe,
        task=task,
        model=ModelPart(path=str(folder), from_config=True),
        data=data,
        training=structs.replace(Training(), **settings),
    )
    return structs.replace(
        job,
        mode="train",
        recipe=recipe,
        labels=(),
        config=json.loads((folder / "config.json").read_text()),
        weights=str(folder),
        tokenizer=str(folder),
        output_dir=str(place / "out"),
        runtime="cachekit.compilers.inductor.runtime",
        events=str(work / "events.jsonl"),
        result=str(work / "result.json"),
    )


def _texts(value):
    return [text for inner in value.values() for text in _texts(inner)] if isinstance(value, dict) else [str(value)]
