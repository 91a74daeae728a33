"""Masked language modelling: hidden tokens from those around them, in blocks packed from texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import RecipeError
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import packing, token_loss
from cachekit.training.tasks.port import FILLER, Batch, Feature, Work
from cachekit.training.tasks.text_inputs import inputs_of


class MaskedLM:
    """See `port.Task`. Rows are those of `packing.text_rows`, features blocks.

    The stream is each text with its special tokens, `[CLS] text [SEP] [CLS] text [SEP] ...`, as in Transformers'
    example. Which tokens of a block are hidden changes with every pass of training, and never in evaluation.
    """

    auto_model = "AutoModelForMaskedLM"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        return {}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        return packing.text_rows(job)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        """See `port.Task`."""
        if processor.mask_token is None:
            raise RecipeError("the tokenizer has no mask token", hint="choose another with model.tokenizer")
        packing.check_vocabulary(processor, model)
        length = job.recipe.training.max_seq_length
        pad = processor.pad_token_id if processor.pad_token_id is not None else packing.end_of_text(processor)

        def encode(texts: Sequence[Feature]) -> list[list[int]]:
            # A line's end is no token of it, and an empty text would be nothing but special ones.
            stripped = [row["text"].strip() for row in texts]
            found = packing.token_lists(processor, stripped, special=True)
            return [ids if text else [] for text, ids in zip(stripped, found, strict=True)]

        packed = {
            name: packing.pack(split, encode, packing.Cut(length, pad, partial=name != "train"), most=most.get(name))
            for name, split in splits.items()
        }
        training = job.recipe.training
        collate = Collator(processor, training.mlm_probability, inputs_of(model), training.seed)
        return Work(
            features={name: blocks if name == "train" else Still(blocks) for name, blocks in packed.items()},
            filler={**packing.filler_block(length, pad), "still": True},
            collate=collate,
            score=score,
            reduce=token_loss.sums,
            unit=f"blocks of {length} tokens",
            begin=collate.begin,
        )


class Still(Sequence[Feature]):
    """Blocks whose hidden tokens are always the same, by the block's number."""

    def __init__(self, blocks: Sequence[Feature]) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: Any) -> Any:
        return {**self._blocks[index], "still": True}


class Collator:
    """Hides tokens of blocks: Transformers' own choice of them and of what stands in their place.

    In training that follows from the seed, the pass and the block's number alone. PyTorch's own generator would not do:
    batches are made ahead of the steps, so a run that goes on from a checkpoint would hide others.

    Args:
        tokenizer: Of the model, or another one.
        share: Of the tokens that are hidden.
        inputs: What the model is given; see `text_inputs.inputs_of`.
        seed: Of the training.
    """

    def __init__(self, tokenizer: Any, share: float, inputs: Sequence[str], seed: int) -> None:
        from transformers import DataCollatorForLanguageModeling

        self._mask = tokenizer.mask_token_id
        self._special = np.asarray(tokenizer.all_special_ids)
        self._hide = DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=share)
        self._inputs = inputs
        self._seed = seed
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """See `port.Work`."""
        self._epoch = epoch

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The batch as tensors of shape (blocks, length)."""
        hidden = [self._hidden(block) for block in batch]
        ids, labels = (torch.stack(part) for part in zip(*hidden, strict=True))
        # A block of which nothing is judged only fills the batch: it is seen whole, as attention to nothing is NaN.
        seen = [block["judged"] if block["judged"].any() else ~block["judged"] for block in batch]
        mask = torch.from_numpy(np.stack(seen)).long()
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        return {**{name: known[name] for name in self._inputs}, "labels": labels}

    def _hidden(self, block: Feature) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.from_numpy(block["input_ids"])
        kept = torch.from_numpy(~block["judged"] | np.isin(block["input_ids"], self._special))
        if kept.all():
            return ids, torch.full_like(ids, FILLER)
        generator = torch.Generator().manual_seed(block["number"] if block.get("still") else self._draw(block))
        self._hide.generator = generator
        found, labels = self._hide.torch_mask_tokens(ids[None].clone(), kept[None].clone())
        found, labels = found[0], labels[0]
        if (labels == FILLER).all():
            # Of a short block perhaps none is hidden, and the mean over no token is no number.
            place = torch.multinomial((~kept).float(), 1, generator=generator)
            found[place], labels[place] = self._mask, ids[place]
        return found, labels

    def _draw(self, block: Feature) -> int:
        words = f"{self._seed} {self._epoch} {block['number']}".encode()
        return int.from_bytes(hashlib.blake2b(words, digest_size=7).digest(), "big")


def score(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:  # noqa: ARG001 - the port's
    """Mean loss over hidden tokens, perplexity, hidden tokens and their accuracy, blocks, and texts."""
    return {
        **token_loss.figures(predictions, accuracy=True),
        "features": float(len(features)),
        "rows": float(sum(block["texts"] for block in features)),
    }


TASK = MaskedLM()
