"""Masked language modelling: blocks, what evaluation hides is always the same, the library's figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cachekit.errors import RecipeError
from tests.training.jobs import ready, train_here, uncompiled  # noqa: F401 - a fixture
from tests.training.language_models import dumped, graphs, lm_job, tokenizer_folder
from tests.training.tasks.test_causal_lm import ROWS, texts

pytestmark = pytest.mark.versions


def masked_job(folder, rows=ROWS, **given):
    given = {"model_type": "bert", "tokenizer": tokenizer_folder(folder, kind="masked"), **given}
    return lm_job(folder, "masked-lm", rows, **given)


def test_every_token_is_in_one_block(tmp_path):
    work, _ = ready(masked_job(tmp_path))
    blocks = list(work.features["validation"])
    found = [int(token) for block in blocks for token in block["input_ids"][block["judged"]]]
    assert len(found) == sum(len(row["text"].split()) + 2 for row in ROWS["validation"])
    assert found.count(2) == found.count(3) == len(ROWS["validation"]), "each text has a start and an end"
    assert all(block["judged"].all() for block in work.features["train"])
    assert sum(block["texts"] for block in blocks) == len(ROWS["validation"])


@pytest.mark.parametrize("share", [0.001, 0.15, 0.9])
def test_batches_have_one_shape_and_something_to_tell(tmp_path, share):
    work, _ = ready(masked_job(tmp_path, mlm_probability=share))
    for name in ("train", "validation"):
        features = work.features[name]
        batches = [work.collate([features[n], features[(n + 1) % len(features)]]) for n in range(len(features))]
        assert {tuple(tensor.shape) for batch in batches for tensor in batch.values()} == {(2, 8)}
        assert all((batch["labels"] != -100).any(dim=1).all() for batch in batches), "the mean over none is no number"
        for batch in batches:
            judged = batch["labels"] != -100
            assert (batch["labels"][judged] > 4).all(), "special tokens are not hidden"
            assert batch["attention_mask"][judged].all()
    filler = work.collate([work.filler])
    assert (filler["labels"] == -100).all()
    assert filler["attention_mask"].all()


def test_hidden_tokens_change_in_training_and_not_in_evaluation(tmp_path):
    import torch

    work, _ = ready(masked_job(tmp_path))

    def hidden(name, epoch):
        work.begin(epoch)
        torch.rand(1)
        return work.collate(list(work.features[name]))["labels"]

    assert torch.equal(hidden("validation", 1), hidden("validation", 2))
    assert torch.equal(hidden("train", 1), hidden("train", 1))
    assert not torch.equal(hidden("train", 1), hidden("train", 2))
    alone = work.collate([work.features["validation"][3]])["labels"]
    assert torch.equal(alone[0], hidden("validation", 5)[3]), "whatever else is in the batch"


def test_figures_are_those_of_the_whole_logits(tmp_path, uncompiled, monkeypatch):
    import torch
    from sklearn.metrics import accuracy_score, log_loss

    seen = dumped(monkeypatch)
    done = train_here(masked_job(tmp_path, per_device_eval_batch_size=4))
    tokens = sum(len(row["text"].split()) + 2 for row in ROWS["validation"])
    batches = math.ceil(tokens / 8 / 4)
    logits = torch.cat([all_logits for _, all_logits in seen[:batches]]).flatten(0, 1)
    labels = torch.cat([batch["labels"] for batch, _ in seen[:batches]]).flatten()
    logits, labels = logits[labels != -100].double(), labels[labels != -100]
    figures = done.metrics["validation"]
    assert figures["tokens"] == len(labels)
    assert (figures["rows"], figures["features"]) == (11, math.ceil(tokens / 8))
    expected = log_loss(labels, logits.softmax(-1).numpy(), labels=np.arange(64))
    assert figures["loss"] == pytest.approx(expected, abs=2e-6)
    assert figures["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert figures["accuracy"] == pytest.approx(accuracy_score(labels, logits.argmax(-1)), abs=1e-6)
    assert train_here(masked_job(tmp_path, mode="trial")).metrics["validation"]["features"] == 3


def test_a_forward_pass_is_one_graph(tmp_path):
    assert graphs(*ready(masked_job(tmp_path))) == 2


def test_lines_and_empty_texts(tmp_path):
    plain = "the sea is calm\n\n  a bird sings \n" * 20
    work, _ = ready(masked_job(tmp_path, {"train": plain, "validation": "the sea\n\nis calm\n"}))
    (block,) = work.features["validation"]
    assert block["input_ids"].tolist() == [2, 5, 6, 3, 2, 7, 8, 3]
    assert block["texts"] == 3


def test_a_tokenizer_or_a_model_that_cannot_is_refused(tmp_path):
    from transformers import AutoTokenizer

    place = tokenizer_folder(tmp_path, kind="masked")
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path / "maskless")
    with pytest.raises(RecipeError, match="the tokenizer has no mask token"):
        ready(masked_job(tmp_path, tokenizer=tmp_path / "maskless"))
    with pytest.raises(RecipeError, match="Transformers has no gpt2 model for masked-lm"):
        ready(masked_job(tmp_path, {"train": texts(9)}, model_type="gpt2"))
