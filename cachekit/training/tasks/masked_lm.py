"""Masked language modelling: hidden tokens from those around them, in blocks packed from texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from cachekit.errors import RecipeError
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, metrics, packing
from cachekit.training.tasks.port import FILLER, Collator, Feature, Task, Work


class MaskedLM(Task):
    """Rows are those of `packing.text_rows`, features blocks.

    The stream is each text with its special tokens, `[CLS] text [SEP] [CLS] text [SEP] ...`, as in Transformers'
    example. Which tokens of a block are hidden changes with every pass of training, and never in evaluation.
    """

    auto_model = "AutoModelForMaskedLM"

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        return packing.text_rows(job)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        if processor.mask_token is None:
            raise RecipeError("the tokenizer has no mask token", hint="choose another with model.tokenizer")
        inputs.check_vocabulary(processor, model)
        training = job.recipe.training
        length = training.max_seq_length
        pad = processor.pad_token_id if processor.pad_token_id is not None else inputs.end_of_text(processor)

        def tokens(texts: Sequence[Feature]) -> list[list[int]]:
            # A line's end is not a token of it, and an empty text would be nothing but special ones.
            stripped = [row["text"].strip() for row in texts]
            found = inputs.token_lists(processor, stripped, special=True)
            return [ids if text else [] for text, ids in zip(stripped, found, strict=True)]

        hiding = Hiding(processor, training.mlm_probability, training.seed)
        return Work(
            features={
                name: packing.Blocks(split, tokens, length=length, filler=pad, most=most.get(name))
                for name, split in splits.items()
            },
            filler=packing.filler_block(length, pad),
            collate=Collator(inputs.inputs_of(model), hiding.encode),
            score=partial(metrics.of_blocks, accuracy=True),
            reduce=metrics.sums,
            unit=f"blocks of {length} tokens",
            begin=hiding.begin,
        )


class Hiding:
    """Hides tokens of blocks: Transformers' own choice of them and of what stands in their place.

    In training that follows from the seed, the pass and the block's number alone. PyTorch's own generator would not do:
    batches are made ahead of the steps, so a run that goes on from a checkpoint would hide others.

    Args:
        tokenizer: Of the model, or another one.
        share: Of the tokens that are hidden.
        seed: Of the training.
    """

    def __init__(self, tokenizer: Any, share: float, seed: int) -> None:
        from transformers import DataCollatorForLanguageModeling

        self._mask = tokenizer.mask_token_id
        self._special = np.asarray(tokenizer.all_special_ids)
        self._hide = DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=share)
        self._seed = seed
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """Hide others from now on: a pass over the training features begins, counted from 0."""
        self._epoch = epoch

    def encode(self, blocks: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
        """Blocks as tensors; the labels are the tokens that are hidden."""
        ids, labels = (torch.stack(part) for part in zip(*map(self._hidden, blocks), strict=True))
        # A block of which nothing is judged only fills the batch: it is seen whole, as attention to nothing is NaN.
        seen = [block["judged"] if block["judged"].any() else ~block["judged"] for block in blocks]
        return {"input_ids": ids, "attention_mask": torch.from_numpy(np.stack(seen)).long(), "labels": labels}

    def _hidden(self, block: Feature) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.from_numpy(block["input_ids"])
        kept = torch.from_numpy(~block["judged"] | np.isin(block["input_ids"], self._special))
        if kept.all():
            return ids, torch.full_like(ids, FILLER)
        generator = torch.Generator().manual_seed(block["number"] if block["still"] else self._draw(block))
        self._hide.generator = generator
        found, labels = self._hide.torch_mask_tokens(ids[None].clone(), kept[None].clone())
        found, labels = found[0], labels[0]
        if (labels == FILLER).all():
            # Of a short block perhaps none is hidden, and the mean over no token is not a number.
            place = torch.multinomial((~kept).float(), 1, generator=generator)
            found[place], labels[place] = self._mask, ids[place]
        return found, labels

    def _draw(self, block: Feature) -> int:
        words = f"{self._seed} {self._epoch} {block['number']}".encode()
        return int.from_bytes(hashlib.blake2b(words, digest_size=7).digest(), "big")


TASK = MaskedLM()
