"""Token classification: one class for each word of a text, as in named entity recognition."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError
from cachekit.recipe import tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks.labels import MANY, numbering
from cachekit.training.tasks.port import FILLER, Array, Batch, Feature, Work
from cachekit.training.tasks.text_classification import class_names
from cachekit.training.tasks.text_inputs import check_tokenizer, cut, encode, for_words, inputs_of, lengths, tensors

# What seqeval takes for a piece of a chunk (its metrics.sequence_labeling, 1.2.2); others it counts as something else.
_CHUNKS = ("B-", "I-", "E-", "S-")
_BARE = frozenset({"O", "B", "I", "E", "S"})
_AT_ONCE = 1000  # rows that are tokenized to see whether they hold words


class TokenClassification:
    """See `port.Task`. Rows are `{"words": [str, ...], "labels": [int, ...]}`, and so are features."""

    auto_model = "AutoModelForTokenClassification"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:
        """See `port.Task`."""
        return class_names(job.labels)

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        """See `port.Task`."""
        columns = tasks.columns(job.recipe)
        tokens, label = columns["tokens_column"], columns["label_column"]
        tables = data.tables(job.recipe)
        number_of = numbering(job.labels, {name: _labels(table, label, name) for name, table in tables.items()}, tell)
        if not _are_chunks(job.labels):
            tell(
                f"the labels {', '.join(job.labels[:MANY])}... are no chunks (O, B-PER, I-PER): "
                "only accuracy is told, not seqeval's precision, recall and F1"
            )

        def read(row: Mapping[str, Any], where: str) -> Feature:
            words = _list_of(row[tokens], tokens, "tokens_column", where)
            classes = [number_of(value, where) for value in _list_of(row[label], label, "label_column", where)]
            if len(words) != len(classes):
                raise DataError(
                    f"{where}: {len(words)} words in {tokens}, and {len(classes)} labels in {label}",
                    hint="there is one label a word; check data.tokens_column and data.label_column",
                )
            return {"words": [data.text(word) for word in words], "labels": classes}

        for name, table in tables.items():
            # Every row is looked at: one whose words and labels are not as many would end an evaluation hours later.
            counts = [len(read(row, f"{name} row {number}")["words"]) for number, row in enumerate(table, start=1)]
            _check_words(name, counts, tokens)
        splits = data.splits(tables, job.recipe, read)
        for name, split in splits.items():  # held back from the training rows, or a sample
            _check_words(name, (len(row["words"]) for row in split), tokens)
        return splits

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        """See `port.Task`."""
        import seqeval.metrics  # noqa: F401 - used by the first evaluation, and missed here, before the first compile

        check_tokenizer(processor)
        for_words(processor, job.recipe.task)
        collate = Collator(processor, job.recipe.training.max_seq_length, inputs_of(model))
        labels = job.labels

        def count(rows: Sequence[Feature]) -> Sequence[int]:
            return lengths(processor, [row["words"] for row in rows], is_split_into_words=True)

        def score(features: Sequence[Feature], predictions: Any, given: Any) -> dict[str, float]:
            return figures(features, predictions, given, labels)

        for name in splits.keys() - {"train"}:
            _judged(splits[name], collate, 1)  # figures over nothing are no numbers
        return Work(
            features={**splits, "train": _judged(splits["train"], collate, most.get("train"))},
            filler={"words": [], "labels": []},
            collate=collate,
            score=score,
            notes=cut(splits, count, job.recipe.training.max_seq_length),
        )


class Collator:
    """Tokenizes a batch, every row padded or cut to one length; the first token of a word has its label.

    Args:
        tokenizer: Of the model, or another one; see `text_inputs.for_words`.
        length: Tokens a row.
        inputs: What the model is given; see `text_inputs.inputs_of`.
    """

    def __init__(self, tokenizer: Any, length: int, inputs: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._inputs = inputs

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The batch as tensors of shape (rows, length), the labels among them."""
        words = [row["words"] for row in batch]
        encoded = encode(
            self._tokenizer, words, None, length=self._length, inputs=self._inputs, is_split_into_words=True
        )
        labels = torch.full_like(encoded["input_ids"], FILLER)
        for number, row in enumerate(batch):
            before = None
            for place, word in enumerate(encoded.word_ids(number)):
                if word is not None and word != before:
                    labels[number, place] = row["labels"][word]
                before = word
        return {**tensors(encoded, self._inputs), "labels": labels}


def figures(features: Sequence[Feature], predictions: Any, labels: Any, names: Sequence[str]) -> dict[str, float]:
    """What seqeval says (precision, recall, F1, accuracy); mean cross entropy of a word; rows and words.

    Words beyond the length of a row are not judged, as everywhere in the field; `words_cut` is their number.
    """
    from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

    logits: Array = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions)
    labels = np.asarray(labels)
    judged = labels != FILLER
    classes = logits.argmax(axis=-1)
    true = [[names[number] for number in row[kept]] for row, kept in zip(labels, judged, strict=True)]
    found = [[names[number] for number in row[kept]] for row, kept in zip(classes, judged, strict=True)]
    kept = logits[judged].astype(np.float64)
    shifted = kept - kept.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    words = len(kept)
    chunks: dict[str, float] = {}
    if _are_chunks(names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of figures that are 0 because nothing was found
            chunks = {
                "precision": float(precision_score(true, found, zero_division=0)),
                "recall": float(recall_score(true, found, zero_division=0)),
                "f1": float(f1_score(true, found, zero_division=0)),
            }
    return {
        **chunks,
        "accuracy": float(accuracy_score(true, found)),
        "loss": float(-log_softmax[np.arange(words), labels[judged]].mean()),
        "rows": float(len(features)),
        "words": float(words),
        "words_cut": float(sum(len(row["words"]) for row in features) - words),
    }


def _check_words(name: str, counts: Iterable[int], column: str) -> None:
    """Refuse a split of which nothing can be learned, or judged: the number of words of each row is always 0.

    Raises:
        DataError: It is.
    """
    if not any(counts):
        raise DataError(
            f"the {name} data has no words: every list in {column!r} is empty",
            hint="is it another column? say data.tokens_column; or give other rows",
        )


def _judged(split: Split, collate: Collator, enough: int | None) -> Split:
    """The rows that have a token with a label: the loss of a batch without any is no number, and neither is a step's.

    Such rows have no words, or only words that the tokenizer makes nothing of. In evaluation they count as rows.
    """
    kept: list[int] = []
    for start in range(0, len(split), _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, len(split)))
        labels = collate([split[number] for number in numbers])["labels"]
        kept += [number for number, has in zip(numbers, (labels != FILLER).any(dim=1).tolist(), strict=True) if has]
        if enough is not None and len(kept) >= enough:
            break
    if not kept:
        raise DataError(
            f"the {split.name} data has no words that the tokenizer can read",
            hint="check data.tokens_column, model.tokenizer and training.max_seq_length",
        )
    return split.take(kept)


def _are_chunks(labels: Sequence[str]) -> bool:
    return all(name in _BARE or name.startswith(_CHUNKS) for name in labels)


def _labels(table: Any, column: str, name: str) -> Iterator[tuple[str, Any]]:
    """Every label of every word, with where it stands."""
    whole = table[column] if hasattr(table, "column_names") else (row[column] for row in table)
    for number, values in enumerate(whole, start=1):
        where = f"{name} row {number}"
        for value in _list_of(values, column, "label_column", where):
            yield where, value


def _list_of(value: Any, column: str, field: str, where: str) -> Sequence[Any]:
    """The list of one value a word that a column must hold.

    Raises:
        DataError: It is something else.
    """
    found = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(found, list | tuple) or any(isinstance(one, list | dict) for one in found):
        raise DataError(
            f"{where}: {column} is no list of one value a word",
            hint=f"is it another column? say data.{field}",
        )
    return found


TASK = TokenClassification()
