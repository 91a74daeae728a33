"""Causal language modelling: each token from those before it, in blocks packed from texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, metrics, packing
from cachekit.training.tasks.port import FILLER, Collator, Feature, Task, Work


class CausalLM(Task):
    """Rows are those of `packing.text_rows`, features blocks.

    The stream is `<start> text <end> text <end> ...`. Each block begins with the last token of the one before, as
    context: so every token of every text, and the end of it, is told from what stands before it exactly once.
    """

    auto_model = "AutoModelForCausalLM"

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        return packing.text_rows(job)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        inputs.check_causal(model)
        inputs.check_vocabulary(processor, model)
        length, end = job.recipe.training.max_seq_length, inputs.end_of_text(processor)
        start = processor.bos_token_id if processor.bos_token_id is not None else end

        def tokens(texts: Sequence[Feature]) -> list[list[int]]:
            found = inputs.token_lists(processor, [row["text"] for row in texts], special=False)
            # An empty text has no end either: many data sets have thousands of them in a row.
            return [[*ids, end] if row["ends"] and ids else ids for row, ids in zip(texts, found, strict=True)]

        return Work(
            features={
                name: packing.Blocks(
                    split, tokens, length=length, filler=end, overlap=1, first=[start], most=most.get(name)
                )
                for name, split in splits.items()
            },
            filler=packing.filler_block(length, end),
            collate=Collator(inputs.inputs_of(model), encode),
            score=partial(metrics.of_blocks, accuracy=False),
            reduce=metrics.next_token_sums,
            unit=f"blocks of {length} tokens",
        )


def encode(blocks: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
    """Blocks as tensors. All places are attended to: a filler comes after everything that is judged."""
    ids = torch.stack([torch.from_numpy(block["input_ids"]) for block in blocks])
    judged = torch.stack([torch.from_numpy(block["judged"]) for block in blocks])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.masked_fill(~judged, FILLER)}


TASK = CausalLM()
