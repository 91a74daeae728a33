"""From one text to another, by an encoder and a decoder: what summarization and translation have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError, RecipeError
from cachekit.recipe import Recipe, tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks.greedy import Greedy
from cachekit.training.tasks.port import FILLER, Array, Batch, Feature, Work
from cachekit.training.tasks.text_inputs import check_tokenizer, cut, encode, inputs_of, lengths, tensors

# Figures of what was written, given the texts that should have been; of the same number and order.
Figures = Callable[[Sequence[str], Sequence[str]], dict[str, float]]


class Seq2Seq:
    """See `port.Task`. Rows are `{"source": str, "target": str}`, and so are features; a filler's target is None."""

    auto_model = "AutoModelForSeq2SeqLM"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:  # noqa: ARG002 - the port's
        """See `port.Task`: nothing."""
        return {}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        read = self.reader(job.recipe)
        tables = data.tables(job.recipe)
        for name, table in tables.items():
            # Rows of text files are in memory: each is looked at. Of a data set's millions the first must do.
            for number, row in enumerate(table if isinstance(table, list) else [table[0]], start=1):
                read(row, f"{name} row {number}")
        return data.splits(tables, job.recipe, read)

    def reader(self, recipe: Recipe) -> Callable[[Mapping[str, Any], str], Feature]:
        """What makes a row of the table's."""
        columns = tasks.columns(recipe)
        source, target = columns["source_column"], columns["target_column"]

        def read(row: Mapping[str, Any], where: str) -> Feature:
            return pair(row[source], row[target], where, "data.target_column")

        return read

    def languages(self, job: Job, tokenizer: Any) -> None:
        """Tell the tokenizer which languages it reads and writes."""

    def figures(self, job: Job) -> Figures:
        """What makes this task's figures."""
        raise NotImplementedError

    def ready(
        self,
        job: Job,
        processor: Any,
        model: Any,
        splits: Mapping[str, Split],
        most: Mapping[str, int],  # noqa: ARG002 - each row is a feature, made when it is asked for
    ) -> Work:
        """See `port.Task`."""
        check_tokenizer(processor)
        check_vocabulary(processor, model)
        self.languages(job, processor)
        collate = Collator(
            processor,
            source_length=job.recipe.training.max_seq_length,
            target_length=job.recipe.training.max_target_length,
            prefix=job.recipe.data.source_prefix or "",
            inputs=inputs_of(model),
            start=start_token(model, processor),
        )
        return Work(
            features=splits,
            filler={"source": "", "target": None},
            collate=collate,
            score=Score(processor, self.figures(job)),
            reduce=reduce,
            # With label smoothing the Trainer makes the loss itself, and the model is given no labels.
            generate=decoder(processor, labelled=job.recipe.training.label_smoothing_factor == 0),
            notes=(
                *cut(splits, collate.sources, job.recipe.training.max_seq_length),
                *cut(splits, collate.targets, job.recipe.training.max_target_length, "max_target_length"),
            ),
        )


def pair(source: Any, target: Any, where: str, named_by: str) -> Feature:
    """A row: a text, and what should become of it.

    Raises:
        DataError: The second is missing, or either is no text.
    """
    for value in (source, target):
        if isinstance(value, list | dict):
            raise DataError(f"{where}: no text, but a {type(value).__name__}", hint=f"check {named_by}")
    if not data.text(target).strip():
        raise DataError(f"{where} has no target", hint=f"remove the row, or check {named_by}")
    return {"source": data.text(source), "target": data.text(target)}


class Collator:
    """Tokenizes a batch: sources and targets padded or cut to one length each.

    Args:
        tokenizer: Of the model, or another one.
        source_length: Tokens of a source.
        target_length: Tokens of a target.
        prefix: Put before each source.
        inputs: What the encoder is given; see `text_inputs.inputs_of`.
        start: The token that the decoder is given first.
    """

    def __init__(
        self, tokenizer: Any, *, source_length: int, target_length: int, prefix: str, inputs: Sequence[str], start: int
    ) -> None:
        self._tokenizer = tokenizer
        self._source_length = source_length
        self._target_length = target_length
        self._prefix = prefix
        self._inputs = inputs
        self._start = start

    def sources(self, rows: Sequence[Feature]) -> list[int]:
        """The tokens of each source, uncut."""
        return lengths(self._tokenizer, [self._prefix + row["source"] for row in rows])

    def targets(self, rows: Sequence[Feature]) -> list[int]:
        """The tokens of each target, uncut."""
        encoded = self._tokenizer(text_target=[row["target"] for row in rows], truncation=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The encoder's inputs of shape (rows, source length); `decoder_input_ids` and `labels` of (rows, target's)."""
        texts = [self._prefix + row["source"] for row in batch]
        encoded = encode(self._tokenizer, texts, None, length=self._source_length, inputs=self._inputs)
        targets = encode_targets(self._tokenizer, [row["target"] or "" for row in batch], self._target_length)
        real = torch.tensor([[row["target"] is not None] for row in batch])
        labels = targets["input_ids"].masked_fill(~(targets["attention_mask"].bool() & real), FILLER)
        before = labels.masked_fill(labels == FILLER, self._tokenizer.pad_token_id)[:, :-1]
        return {
            **tensors(encoded, self._inputs),
            "decoder_input_ids": torch.cat([torch.full_like(before[:, :1], self._start), before], dim=1),
            "labels": labels,
        }


def encode_targets(tokenizer: Any, texts: Sequence[str], length: int) -> Any:
    """Tokenize what the decoder should write; some tokenizers do that in another way than a source."""
    return tokenizer(
        text_target=list(texts),
        padding="max_length",
        padding_side="right",
        truncation=True,
        max_length=length,
        return_tensors="pt",
        return_attention_mask=True,
        return_token_type_ids=False,
    )


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer whose tokens the model does not have.

    Raises:
        RecipeError: It has more.
    """
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise RecipeError(
            f"the tokenizer has {len(tokenizer)} tokens, the model has {known}",
            hint="choose the model's own tokenizer with model.tokenizer, or set model.config.vocab_size",
        )


def start_token(model: Any, tokenizer: Any) -> int:
    """The token that the decoder is given first: the one that the model itself puts before labels.

    It may depend on the language (mBART), never on the row.
    """
    try:
        labels = encode_targets(tokenizer, [""], 8)["input_ids"]
        return int(model.prepare_decoder_input_ids_from_labels(labels)[0, 0])
    except (AttributeError, RuntimeError, TypeError, ValueError):  # it has no such method, or its config no such token
        start = getattr(model.config, "decoder_start_token_id", None)
        return int(tokenizer.pad_token_id if start is None else start)


def decoder(tokenizer: Any, *, labelled: bool) -> Greedy:
    """What writes targets as this tokenizer spells them.

    Raises:
        RecipeError: It spells no end.
    """
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    spelt = tokenizer(text_target="a")["input_ids"]
    if end is None or end not in spelt:
        raise RecipeError(
            "the tokenizer puts no end to a text, so the model could not learn to write one",
            cause="it has no end token" if end is None else "its end token is not added to a text",
            hint="choose another with model.tokenizer",
        )
    first = (
        spelt[0] if spelt[0] in tokenizer.all_special_ids and spelt[0] not in {end, tokenizer.unk_token_id} else None
    )
    return Greedy(pad=tokenizer.pad_token_id, end=end, first=first, labelled=labelled)


def reduce(given: Any, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What was written, and the cross entropy of each token of the targets: see `port.Work.reduce`."""
    written, logits = given
    logits = logits[0] if isinstance(logits, tuple) else logits
    each = torch.nn.functional.cross_entropy(
        logits.float().transpose(1, 2), labels, ignore_index=FILLER, reduction="none"
    )
    return written, each


@dataclass(frozen=True)
class Score:
    """See `port.Work.score`: the mean cross entropy over all tokens of the targets, and the task's figures of texts.

    What was written is compared with the targets as they stand in the rows, not as the tokenizer cuts and spells them.
    """

    tokenizer: Any
    figures: Figures

    def __call__(self, features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:
        """See `port.Work.score`."""
        written, losses = predictions
        judged: Array = np.asarray(labels) != FILLER
        return {
            **self.figures(self.texts(written), [row["target"] for row in features]),
            "loss": float(np.asarray(losses, dtype=np.float64)[judged].mean()),
            "tokens": float(judged.sum()),
            "rows": float(len(labels)),
        }

    def texts(self, written: Any) -> list[str]:
        """The texts of tokens; those beyond the tokenizer's, which some models have, are left out."""
        known = np.where(np.asarray(written) < len(self.tokenizer), written, self.tokenizer.pad_token_id)
        return [text.strip() for text in self.tokenizer.batch_decode(known, skip_special_tokens=True)]
