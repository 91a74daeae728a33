"""Causal language modelling: each token from those before it, in blocks packed from texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cachekit.errors import RecipeError
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import packing, token_loss
from cachekit.training.tasks.port import Batch, Feature, Work
from cachekit.training.tasks.text_inputs import inputs_of


class CausalLM:
    """See `port.Task`. Rows are those of `packing.text_rows`, features blocks.

    The stream is `<start> text <end> text <end> ...`. Each block begins with the last token of the one before, as
    context: so every token of every text, and the end of it, is told from what stands before it exactly once.
    """

    auto_model = "AutoModelForCausalLM"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        return {}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        return packing.text_rows(job)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        """See `port.Task`."""
        check_causal(model)
        packing.check_vocabulary(processor, model)
        length, end = job.recipe.training.max_seq_length, packing.end_of_text(processor)
        start = processor.bos_token_id if processor.bos_token_id is not None else end

        def encode(texts: Sequence[Feature]) -> list[list[int]]:
            found = packing.token_lists(processor, [row["text"] for row in texts], special=False)
            # An empty text has no end either: many data sets have thousands of them in a row.
            return [[*ids, end] if row["ends"] and ids else ids for row, ids in zip(texts, found, strict=True)]

        return Work(
            features={
                name: packing.pack(
                    split,
                    encode,
                    packing.Cut(length, end, overlap=1, partial=name != "train"),
                    first=[start],
                    most=most.get(name),
                )
                for name, split in splits.items()
            },
            filler=packing.filler_block(length, end),
            collate=Collator(inputs_of(model)),
            score=score,
            reduce=token_loss.next_token_sums,
            unit=f"blocks of {length} tokens",
        )


class Collator:
    """Blocks as tensors. All places are attended to: a filler comes after everything that is judged.

    Args:
        inputs: What the model is given; see `text_inputs.inputs_of`.
    """

    def __init__(self, inputs: Sequence[str]) -> None:
        self._inputs = inputs

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The batch as tensors of shape (blocks, length)."""
        ids = torch.stack([torch.from_numpy(block["input_ids"]) for block in batch])
        labels = torch.stack([torch.from_numpy(packing.judged_labels(block)) for block in batch])
        known = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        return {**{name: known[name] for name in self._inputs}, "labels": labels}


def check_causal(model: Any) -> None:
    """Refuse a model in which a token sees those after it: it would tell them by looking.

    Raises:
        RecipeError: It is one.
    """
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    config = model.config
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise RecipeError(
            f"a {config.model_type} model is no causal language model",
            cause="each token sees those that follow it",
            hint="choose task: masked-lm, or another model; or train from scratch with model.config.is_decoder=true",
        )


def score(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:  # noqa: ARG001 - the port's
    """Mean loss over tokens, perplexity, tokens, blocks, and texts."""
    return {
        **token_loss.figures(predictions, accuracy=False),
        "features": float(len(features)),
        "rows": float(sum(block["texts"] for block in features)),
    }


TASK = CausalLM()
