"""Tiny language models and tokenizers of a few words, and jobs that train them in this process, uncompiled."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from cachekit.recipe import Recipe
from cachekit.training.job import Job

WORDS = [
    "the",
    "sea",
    "is",
    "calm",
    "and",
    "a",
    "bird",
    "sings",
    "over",
    "stone",
    "moss",
    "cloud",
    "wind",
    "rest",
    "now",
]
WORDS += ["question", "answer"]
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


def job(
    folder: Path,
    task: str,
    rows: dict[str, list[dict]] | dict[str, str],
    *,
    model_type: str = "gpt2",
    mode: str = "train",
    resume: str = "",
    tokenizer: Path | None = None,
    weights: str = "",
    config: dict | None = None,
    data: dict | None = None,
    **training,
) -> Job:
    """A job on rows, written as json lines, or on plain texts."""
    place, work = folder / "data", folder / "work"
    for one in (place, work):
        one.mkdir(exist_ok=True, parents=True)
    for name, given in rows.items():
        if isinstance(given, str):
            (place / f"{name}.txt").write_text(given)
        else:
            (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    recipe = msgspec.convert(
        {
            "name": "toy",
            "task": task,
            "model": {"id": "nobody/nothing", "from_config": not weights},
            "data": {"path": str(place), **(data or {})},
            "training": {
                "per_device_train_batch_size": 2,
                "max_seq_length": 8,
                "num_train_epochs": 1,
                "logging_steps": 1,
                **training,
            },
        },
        Recipe,
    )
    return Job(
        mode=mode,
        recipe=recipe,
        labels=(),
        precision="fp32",
        config={"model_type": model_type, **CONFIGS[model_type], **(config or {})},
        weights=weights,
        tokenizer=str(tokenizer or tokenizer_folder(folder)),
        output_dir=str(folder / "out"),
        runtime="cachekit.compilers.inductor.runtime",
        settings={},
        events=str(work / "events.jsonl"),
        result=str(work / "result.json"),
        resume=resume,
    )


def notes(made: Job) -> list[str]:
    """What a run told."""
    events = [json.loads(line) for line in Path(made.events).read_text().splitlines()]
    return [event["note"] for event in events if "note" in event]


def ready(made: Job, most: dict[str, int] | None = None):
    """The work of a job, and its model."""
    from cachekit.training import model, tasks

    task = tasks.select(made.recipe.task)
    splits = task.rows(made, lambda _: None)
    processor, net = model.load(made, task, {})
    return task.ready(made, processor, net, splits, most or {}), net


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


TINY = Path(__file__).parents[2] / "recipes" / "tiny"


def tiny_machine(machine, task: str, model_type: str, training: str, **config) -> str:
    """A folder with a model of random weights and a tokenizer of the tiny rows' words, and a recipe that names them."""
    rows = [json.loads(line) for line in (TINY / task / "train.jsonl").read_text().splitlines()]
    words = sorted({word for row in rows for text in row.values() for word in text.split()})
    place = machine.work / "model"
    _word_level(words, "masked" if task == "masked-lm" else "causal").save_pretrained(place)
    sizes = {"vocab_size": len(words) + len(SPECIAL), "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    (place / "config.json").write_text(json.dumps({"model_type": model_type, **CONFIGS[model_type], **sizes, **config}))
    (machine.work / "tiny.yaml").write_text(
        f"name: tiny\ntask: {task}\nmodel: {{path: model, from_config: true}}\ndata: {{path: {TINY / task}}}\n"
        f"training:\n  per_device_train_batch_size: 4\n  per_device_eval_batch_size: 4\n  max_seq_length: 24\n"
        f"  learning_rate: 1e-2\n  bf16: false\n  logging_steps: 100\n{training}"
    )
    return "tiny.yaml"
