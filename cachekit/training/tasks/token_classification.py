"""Token classification: one class for each word of a text, as in named entity recognition."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError
from cachekit.recipe import tasks
from cachekit.text import first_of
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, labels, metrics
from cachekit.training.tasks.port import FILLER, Collator, Encode, Feature, Task, Work

# What seqeval takes for a piece of a chunk (its metrics.sequence_labeling, 1.2.2); others it counts as something else.
_CHUNKS = ("B-", "I-", "E-", "S-")
_BARE = frozenset({"O", "B", "I", "E", "S"})
_AT_ONCE = 1000  # rows that are tokenized to see whether they hold words


class TokenClassification(Task):
    """Rows are `{"words": [str, ...], "labels": [int, ...]}`, and so are features."""

    auto_model = "AutoModelForTokenClassification"

    def config(self, job: Job) -> dict[str, Any]:
        return labels.class_names(job.labels)

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        columns = tasks.columns(job.recipe)
        tokens, label = columns["tokens_column"], columns["label_column"]
        tables = data.tables(job.recipe)
        number_of = labels.numbering(
            job.labels, {name: _labels(table, label, name) for name, table in tables.items()}, tell
        )
        if not _are_chunks(job.labels):
            tell(
                f"the labels {first_of(job.labels, labels.MANY)} are not chunk labels (O, B-PER, I-PER): "
                "only the accuracy is reported, not seqeval's precision, recall and F1"
            )

        def read(row: Mapping[str, Any], where: str) -> Feature:
            words = _list_of(row[tokens], tokens, "tokens_column", where)
            classes = [number_of(value, where) for value in _list_of(row[label], label, "label_column", where)]
            if len(words) != len(classes):
                raise DataError(
                    f"{where}: {len(words)} words in {tokens}, and {len(classes)} labels in {label}",
                    hint="each word needs one label; check data.tokens_column and data.label_column",
                )
            return {"words": [data.text(word) for word in words], "labels": classes}

        for name, table in tables.items():
            # Every row is looked at: one whose words and labels are not as many would end an evaluation hours later.
            for number, row in enumerate(table, start=1):
                read(row, f"{name} row {number}")
        return data.splits(tables, job.recipe, read)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        import seqeval.metrics  # noqa: F401 - used by the first evaluation, and missed here, before the first compile

        inputs.check_tokenizer(processor)
        inputs.for_words(processor, job.recipe.task)
        length, given = job.recipe.training.max_seq_length, inputs.inputs_of(model)

        def encode(rows: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
            words = [row["words"] for row in rows]
            encoded = inputs.encode(processor, words, None, length=length, inputs=given, is_split_into_words=True)
            return {**encoded, "labels": first_tokens(encoded, [row["labels"] for row in rows])}

        def count(rows: Sequence[Feature]) -> Sequence[int]:
            return inputs.lengths(processor, [row["words"] for row in rows], is_split_into_words=True)

        def score(features: Sequence[Feature], predictions: Any, given: Any) -> dict[str, float]:
            return figures(features, predictions, given, job.labels)

        for name in splits.keys() - {"train"}:
            _judged(splits[name], encode, 1)  # figures over nothing are no numbers
        return Work(
            features={**splits, "train": _judged(splits["train"], encode, most.get("train"))},
            filler={"words": [], "labels": []},
            collate=Collator(given, encode),
            score=score,
            notes=inputs.cut(splits, count, length),
        )


def first_tokens(encoded: Any, classes: Sequence[Sequence[int]]) -> torch.Tensor:
    """Labels of tokens: the first one of a word has the word's, and no other has one."""
    found = torch.full_like(encoded["input_ids"], FILLER)
    for number, own in enumerate(classes):
        before = None
        for place, word in enumerate(encoded.word_ids(number)):
            if word is not None and word != before:
                found[number, place] = own[word]
            before = word
    return found


def figures(features: Sequence[Feature], predictions: Any, given: Any, names: Sequence[str]) -> dict[str, float]:
    """What seqeval says (precision, recall, F1, accuracy); mean cross entropy of a word; rows and words.

    Words beyond the length of a row are not judged, as everywhere in the field; `words_cut` is their number.
    """
    from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

    logits, true_classes = metrics.logits_of(predictions), np.asarray(given)
    judged = true_classes != FILLER
    classes = logits.argmax(axis=-1)
    true = [[names[number] for number in row[kept]] for row, kept in zip(true_classes, judged, strict=True)]
    found = [[names[number] for number in row[kept]] for row, kept in zip(classes, judged, strict=True)]
    words = int(judged.sum())
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
        "loss": metrics.cross_entropy(logits[judged], true_classes[judged]),
        "rows": len(features),
        "words": words,
        "words_cut": sum(len(row["words"]) for row in features) - words,
    }


def _judged(split: Split, encode: Encode, enough: int | None) -> Split:
    """The rows that have a token with a label: the loss of a batch without any is not a number, nor is a step's.

    Such rows have no words, or only words that the tokenizer makes nothing of. In evaluation they count as rows.
    """
    kept: list[int] = []
    for start in range(0, len(split), _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, len(split)))
        found = encode([split[number] for number in numbers])["labels"]
        kept += [number for number, has in zip(numbers, (found != FILLER).any(dim=1).tolist(), strict=True) if has]
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
    """The list of one value a word that a column must hold; DataError for anything else."""
    found = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(found, list | tuple) or any(isinstance(one, list | dict) for one in found):
        raise DataError(
            f"{where}: {column} is not a list with one value for each word",
            hint=f"if another column is meant, name it with data.{field}",
        )
    return found


TASK = TokenClassification()
