"""Token classification: which token has a word's label, shapes, rows that are counted, figures, and what is refused."""

from __future__ import annotations

import random

import pytest

from cachekit.data import shapes
from cachekit.errors import DataError, RecipeError
from tests.training.jobs import tokenizer, write  # noqa: F401 - a fixture
from tests.training.task_jobs import WatchedJob, rows_job

pytestmark = pytest.mark.versions
TASK = "token-classification"
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = {
    "O": ["walked", "unbelievably", "to", "the", "antidisestablishmentarianism", ".", "gewöhnlich"],
    "B-PER": ["Ada", "Wolfgang", "Zbigniew"],
    "I-PER": ["Lovelace", "Brzezinski"],
    "B-LOC": ["Reykjavik", "Paris"],
    "I-LOC": ["Heights", "Springs"],
}


def rows(count, seed=1, longest=12, named=True):
    chosen = random.Random(seed)
    made = []
    for _ in range(count):
        labels = [chosen.choice(LABELS) for _ in range(chosen.randint(1, longest))]
        made.append(
            {
                "tokens": [chosen.choice(WORDS[label]) for label in labels],
                "ner_tags": labels if named else [LABELS.index(label) for label in labels],
            }
        )
    return made


def collate(tokenizer, features, length=16):
    from cachekit.training.tasks import inputs
    from cachekit.training.tasks.token_classification import first_tokens

    words, names = [row["words"] for row in features], ("input_ids", "attention_mask")
    encoded = inputs.encode(tokenizer, words, None, length=length, inputs=names, is_split_into_words=True)
    return {**encoded, "labels": first_tokens(encoded, [row["labels"] for row in features])}


def test_the_first_token_of_a_word_has_its_label(tokenizer):
    from cachekit.training.tasks.port import FILLER

    features = [
        {"words": ["Zbigniew", "walked", "."], "labels": [1, 0, 0]},
        {"words": ["\u200b", "antidisestablishmentarianism", "Paris"], "labels": [1, 2, 3]},
        {"words": [], "labels": []},
    ]
    batch = collate(tokenizer, features)
    pieces = [tokenizer.convert_ids_to_tokens(ids) for ids in batch["input_ids"].tolist()]
    for number, row in enumerate(batch["labels"].tolist()):
        starts = [(piece, label) for piece, label in zip(pieces[number], row, strict=True) if label != FILLER]
        assert not any(piece.startswith("##") or piece in tokenizer.all_special_tokens for piece, _ in starts)
        assert [label for _, label in starts] == [[1, 0, 0], [2, 3], []][number]
    assert "##" in "".join(pieces[0]), "a word of several tokens was tried"


def test_what_does_not_fit_is_cut(tokenizer):
    from cachekit.training.tasks.port import FILLER

    batch = collate(tokenizer, [{"words": ["to"] * 40, "labels": list(range(40))}], length=8)
    assert batch["labels"].tolist() == [[FILLER, 0, 1, 2, 3, 4, 5, FILLER]]


@pytest.mark.parametrize("named", [True, False])
def test_figures_are_those_of_seqeval_over_every_row(tmp_path, monkeypatch, tokenizer, named):
    """Computed again from the dumped predictions, each row tokenized by itself."""
    import numpy as np
    import torch
    from seqeval.metrics import accuracy_score, classification_report

    empty = {"tokens": [], "ner_tags": []}
    splits = {
        "train": [*rows(13, named=named), empty, {"tokens": ["\u200b"], "ner_tags": [LABELS[0] if named else 0]}],
        "validation": [*rows(9, seed=2, longest=30, named=named), empty],
        "test": rows(3, seed=3, named=named),
    }
    job = rows_job(tmp_path, TASK, splits, labels=LABELS, eval_strategy="epoch", max_steps=4)
    done = WatchedJob(job, monkeypatch)
    assert len(done.shapes) == 1
    assert len(done.features["train"]) == 13, "a batch of rows without words has no loss"
    assert {name: figures["rows"] for name, figures in done.result.metrics.items()} == {"validation": 10, "test": 3}
    features, logits, _, figures = done.scored[-1]  # of the test split
    assert [row["words"] for row in features] == [row["tokens"] for row in splits["test"]]
    true, found, losses = [], [], []
    for row, scores in zip(splits["test"], np.asarray(logits), strict=True):
        encoded = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=16)
        words = encoded.word_ids()
        places = [words.index(word) for word in range(len(row["tokens"])) if word in words]
        labels = [value if named else LABELS[value] for value in row["ner_tags"][: len(places)]]
        true.append(labels)
        found.append([LABELS[scores[place].argmax()] for place in places])
        for label, place in zip(labels, places, strict=True):
            expected = torch.tensor([LABELS.index(label)])
            losses.append(torch.nn.functional.cross_entropy(torch.tensor(scores[place])[None], expected).item())
    report = classification_report(true, found, output_dict=True, zero_division=0)["micro avg"]
    assert figures["accuracy"] == pytest.approx(accuracy_score(true, found))
    for name, theirs in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
        assert figures[name] == pytest.approx(report[theirs])
    assert figures["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    total = sum(len(row["tokens"]) for row in splits["test"])
    assert (figures["words"], figures["words_cut"]) == (len(losses), total - len(losses))


def test_labels_that_are_no_chunks_have_an_accuracy_only(tmp_path, monkeypatch):
    splits = {name: [{"tokens": ["a", "b"], "ner_tags": [n % 2, 1]} for n in range(8)] for name in ("train", "test")}
    done = WatchedJob(rows_job(tmp_path, TASK, splits, labels=("NOUN", "VERB")), monkeypatch)
    assert done.result.metrics["test"].keys() == {"accuracy", "loss", "rows", "words", "words_cut"}
    assert any("only the accuracy" in note for note in done.notes)


def test_labels_are_read_from_a_local_file(tmp_path):
    wanted = rows_job(tmp_path, TASK, {"train": [*rows(30), {"tokens": [], "ner_tags": []}]}).recipe
    assert shapes.labels_of(wanted) == sorted(LABELS)
    write(tmp_path / "data", train=rows(30, named=False))
    assert shapes.labels_of(wanted) == ["0", "1", "2", "3", "4"]
    shapes.check_data(wanted)


@pytest.mark.parametrize(
    "row, said, hint",
    [
        (
            {"tokens": ["a", "b"], "ner_tags": ["O"]},
            "train row 2: 2 words in tokens, and 1 labels in ner_tags",
            "label",
        ),
        (
            {"tokens": [["a"], "b"], "ner_tags": ["O", "O"]},
            "tokens is not a list with one value for each word",
            "tokens_column",
        ),
        (
            {"tokens": {"a": "b"}, "ner_tags": ["O"]},
            "tokens is not a list with one value for each word",
            "tokens_column",
        ),
        ({"tokens": ["a"], "ner_tags": [["O"]]}, "ner_tags is not a list with one value", "label_column"),
        ({"tokens": ["a"], "ner_tags": ["X"]}, "train row 2: unknown label 'X'", "data.labels"),
        ({"tokens": ["a"], "ner_tags": [None]}, "train row 2 has no label", "label_column"),
        ({"tokens": "a b", "ner_tags": ["O", "O"]}, "tokens is one value", "data.tokens_column"),
        ({"words": ["a"], "ner_tags": ["O"]}, "no column 'tokens'", "data.tokens_column"),
    ],
)
def test_rows_that_are_refused(tmp_path, row, said, hint):
    from cachekit.training import tasks

    job = rows_job(tmp_path, TASK, {"train": [{"tokens": ["a"], "ner_tags": ["O"]}, row]}, labels=LABELS)
    with pytest.raises(DataError) as refused:
        tasks.select(TASK).rows(job, lambda _: None)
    assert said in refused.value.message
    assert hint in refused.value.hint


EMPTY = {"tokens": [], "ner_tags": []}


@pytest.mark.parametrize("words", [[], [" ", ""]])
@pytest.mark.parametrize("name", ["train", "validation"])
def test_data_without_words_is_refused_before_training(tmp_path, monkeypatch, words, name):
    """The loss of an evaluation without a word is no number, and seqeval has no figures for it."""
    useless = {"tokens": words, "ner_tags": ["O"] * len(words)}
    splits = {"train": rows(4), "validation": rows(4)} | {name: [useless] * 5}
    with pytest.raises(DataError, match=f"the {name} data has no words that the tokenizer can read") as refused:
        WatchedJob(rows_job(tmp_path, TASK, splits, labels=LABELS), monkeypatch)
    assert "data.tokens_column" in refused.value.hint


def test_labels_of_rows_without_words_are_told_as_such(tmp_path):
    wanted = rows_job(tmp_path, TASK, {"train": [EMPTY] * 3}).recipe
    with pytest.raises(DataError, match=r"train.jsonl has no labels: every list in 'ner_tags' is empty") as refused:
        shapes.labels_of(wanted)
    assert "data.label_column" in refused.value.hint


def test_a_tokenizer_that_knows_no_words_is_refused():

    class Slow:
        pad_token, is_fast = "[PAD]", False

    from cachekit.training.tasks import inputs

    with pytest.raises(
        RecipeError, match="token-classification needs a tokenizer that knows where its tokens are in the text"
    ):
        inputs.for_words(Slow(), TASK)


def test_words_have_a_space_before_them_where_it_is_a_part_of_them(tmp_path):
    """As RoBERTa was trained; Transformers 4 refuses it the other way, 5 makes other tokens of it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from cachekit.training.tasks.inputs import for_words

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        ["a town in France"] * 3,
        trainers.BpeTrainer(special_tokens=["<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
    for_words(tokenizer, TASK)
    tokenizer.save_pretrained(tmp_path)
    for one in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = one([["town", "in"]], is_split_into_words=True)["input_ids"][0]
        assert one.convert_ids_to_tokens(ids) == ["Ġtown", "Ġin"]
