"""From one text to another, by an encoder and a decoder: what summarization and translation have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from msgspec import Struct

from cachekit.errors import DataError, RecipeError
from cachekit.recipe import Recipe, tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs
from cachekit.training.tasks.port import FILLER, Array, Batch, Collator, Feature, Task, Work

# Figures of what was written, given the texts that should have been; of the same number and order.
Figures = Callable[[Sequence[str], Sequence[str]], dict[str, float]]


class Seq2Seq(Task):
    """Rows are `{"source": str, "target": str}`, and so are features; a filler's target is None."""

    auto_model = "AutoModelForSeq2SeqLM"

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
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

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        inputs.check_tokenizer(processor)
        inputs.check_vocabulary(processor, model)
        self.languages(job, processor)
        training, prefix = job.recipe.training, job.recipe.data.source_prefix or ""
        given, start = inputs.inputs_of(model), start_token(model, processor)

        def sources(rows: Sequence[Feature]) -> list[str]:
            return [prefix + row["source"] for row in rows]

        def encode(rows: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
            encoded = inputs.encode(processor, sources(rows), None, length=training.max_seq_length, inputs=given)
            labels = target_labels(processor, [row["target"] for row in rows], training.max_target_length)
            before = labels.masked_fill(labels == FILLER, processor.pad_token_id)[:, :-1]
            fed = torch.cat([torch.full_like(before[:, :1], start), before], dim=1)
            return {**encoded, "decoder_input_ids": fed, "labels": labels}

        def target_lengths(rows: Sequence[Feature]) -> list[int]:
            texts = [row["target"] for row in rows]
            return [len(ids) for ids in processor(text_target=texts, truncation=False, verbose=False)["input_ids"]]

        return Work(
            features=splits,
            filler={"source": "", "target": None},
            collate=Collator((*given, "decoder_input_ids"), encode),
            score=partial(score, processor, self.figures(job)),
            reduce=reduce,
            # With label smoothing the Trainer makes the loss itself, and the model is given no labels.
            generate=decoder(processor, labelled=training.label_smoothing_factor == 0),
            notes=(
                *inputs.cut(splits, lambda rows: inputs.lengths(processor, sources(rows)), training.max_seq_length),
                *inputs.cut(splits, target_lengths, training.max_target_length, "max_target_length"),
            ),
        )


def pair(source: Any, target: Any, where: str, named_by: str) -> Feature:
    """A row: a text, and what should become of it; DataError where the second is missing, or either is not a text."""
    for value in (source, target):
        if isinstance(value, list | dict):
            raise DataError(f"{where}: not a text, but a {type(value).__name__}", hint=f"check {named_by}")
    if not data.text(target).strip():
        raise DataError(f"{where} has no target", hint=f"remove the row, or check {named_by}")
    return {"source": data.text(source), "target": data.text(target)}


def target_labels(tokenizer: Any, targets: Sequence[str | None], length: int) -> torch.Tensor:
    """The tokens of targets, padded or cut to one length; FILLER beyond their ends, and for the target of a filler."""
    encoded = encode_targets(tokenizer, [target or "" for target in targets], length)
    real = torch.tensor([[target is not None] for target in targets])
    labels: torch.Tensor = encoded["input_ids"].masked_fill(~(encoded["attention_mask"].bool() & real), FILLER)
    return labels


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
    """What writes targets as this tokenizer spells them; RecipeError where it spells no end."""
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    spelt = tokenizer(text_target="a")["input_ids"]
    if end is None or end not in spelt:
        raise RecipeError(
            "the tokenizer does not mark the end of a text, so the model could not learn to write one",
            cause="it has no end token" if end is None else "its end token is not added to a text",
            hint="choose another with model.tokenizer",
        )
    first = (
        spelt[0] if spelt[0] in tokenizer.all_special_ids and spelt[0] not in {end, tokenizer.unk_token_id} else None
    )
    return Greedy(pad=tokenizer.pad_token_id, end=end, first=first, labelled=labelled)


class Greedy(Struct, frozen=True):
    """What an encoder-decoder writes, greedily, in passes that are all the graph of an evaluation batch.

    The usual loop asks for one token at a time, from inputs that grow: each length needs its own graph. Here each
    pass is over the whole target at once, and feeds back what the pass before chose at every place. A token depends on
    those before it only, so the n-th pass has the first n tokens right, and once nothing changes the text is the one
    that the usual loop writes. That takes as many passes as the longest text has tokens, at the most, and needs no
    shape, no index and no cache that evaluation's own forward pass has not. Tokens after a text's end are `pad`.

    Attributes:
        end: The token that ends a text.
        first: What every text begins with, which is not for the model to choose: `<s>` of BART, a language of mBART.
        labelled: Labels are among the inputs of evaluation's forward pass, and so here; nothing is read from them.
    """

    pad: int
    end: int
    first: int | None = None
    labelled: bool = True

    def __call__(self, model: Any, batch: Batch) -> torch.Tensor:
        """The tokens of each row's text, in the shape of `decoder_input_ids`, less the one that they start with."""
        given = {name: value for name, value in batch.items() if self.labelled or name != "labels"}
        start = batch["decoder_input_ids"][:, :1]
        written = torch.full_like(batch["decoder_input_ids"], self.pad)
        fed = torch.cat([start, written[:, 1:]], dim=1)
        _end_graph(fed)
        for _ in range(fed.shape[1]):
            chosen = model(**{**given, "decoder_input_ids": fed})["logits"].argmax(dim=-1)
            written = self._ended(chosen)
            following = torch.cat([start, written[:, :-1]], dim=1)
            same = (following == fed).all()
            fed = following
            _end_graph(fed)
            if bool(same):
                break
        return written

    def _ended(self, chosen: torch.Tensor) -> torch.Tensor:
        if self.first is not None:
            chosen = torch.cat([torch.full_like(chosen[:, :1], self.first), chosen[:, 1:]], dim=1)
        ends = (chosen == self.end).long()
        return chosen.masked_fill(ends.cumsum(dim=1) - ends > 0, self.pad)


def _end_graph(tensor: torch.Tensor) -> None:
    """Where tensors are lazy, what was asked for so far is one graph; cut here, each pass is the same one."""
    if tensor.device.type == "xla":
        from torch_xla.core import xla_model

        xla_model.mark_step()


def reduce(given: Any, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What was written, and the cross entropy of each token of the targets: see `port.Work.reduce`."""
    written, logits = given
    logits = logits[0] if isinstance(logits, tuple) else logits
    each = torch.nn.functional.cross_entropy(
        logits.float().transpose(1, 2), labels, ignore_index=FILLER, reduction="none"
    )
    return written, each


def score(
    tokenizer: Any, figures: Figures, features: Sequence[Feature], predictions: Any, labels: Any
) -> dict[str, float]:
    """The mean cross entropy over all tokens of the targets, and the task's figures of texts.

    What was written is compared with the targets as they stand in the rows, not as the tokenizer cuts and spells them.
    """
    written, losses = predictions
    judged: Array = np.asarray(labels) != FILLER
    # Some models have tokens beyond the tokenizer's: those are left out.
    known = np.where(np.asarray(written) < len(tokenizer), written, tokenizer.pad_token_id)
    texts = [text.strip() for text in tokenizer.batch_decode(known, skip_special_tokens=True)]
    return {
        **figures(texts, [row["target"] for row in features]),
        "loss": float(np.asarray(losses, dtype=np.float64)[judged].mean()),
        "tokens": int(judged.sum()),
        "rows": len(labels),
    }
