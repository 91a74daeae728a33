"""Causal language modelling: blocks of one length, every token judged once, perplexity as the library computes it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cachekit.data import shapes
from cachekit.errors import DataError, RecipeError
from cachekit.recipe import architecture
from tests.training.grids import representative
from tests.training.jobs import ready, train_here, uncompiled  # noqa: F401 - a fixture
from tests.training.language_models import CONFIGS, WORDS, dumped, graphs, lm_job, tokenizer_folder

pytestmark = pytest.mark.versions
DECODERS = sorted(set(CONFIGS) - {"bert"})
FAMILIES = representative(DECODERS, ["gpt2", "llama"])


def texts(count: int, seed: int = 0, longest: int = 12) -> list[dict]:
    chosen = np.random.default_rng(seed)
    return [{"text": " ".join(chosen.choice(WORDS, chosen.integers(1, longest)))} for _ in range(count)]


ROWS = {"train": texts(40), "validation": texts(11, 1), "test": texts(7, 2)}


def tokens_of(rows: list[dict]) -> int:
    """Each text and its end."""
    return sum(len(row["text"].split()) + 1 for row in rows if row["text"])


@pytest.mark.parametrize("length", [2, 3, 8, 13, 64])
def test_every_token_is_judged_once_in_blocks_of_one_length(tmp_path, length):
    work, _ = ready(lm_job(tmp_path, "causal-lm", ROWS, max_seq_length=length))
    stream = [2]
    for row in ROWS["validation"]:
        stream += [5 + WORDS.index(word) for word in row["text"].split()] + [3]
    blocks = list(work.features["validation"])
    judged = [int(token) for block in blocks for token in block["input_ids"][block["judged"]]]
    assert judged == stream[1:], "and the first is no text's: it is what the first one is told from"
    assert {len(block["input_ids"]) for block in blocks} == {length}
    batch = work.collate([*blocks[-1:], work.filler])
    assert {tuple(tensor.shape) for tensor in batch.values()} == {(2, length)}
    assert (batch["labels"][1] == -100).all()
    assert sum(block["texts"] for block in blocks) == len(ROWS["validation"])
    full = list(work.features["train"])
    assert all(block["judged"][1:].all() for block in full), "training leaves out what does not fill a block"
    assert len(full) == tokens_of(ROWS["train"]) // (length - 1)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_figures_are_those_of_the_whole_logits(tmp_path, uncompiled, monkeypatch, model_type):
    import torch

    seen = dumped(monkeypatch)
    made = lm_job(tmp_path, "causal-lm", ROWS, model_type=model_type, per_device_eval_batch_size=4)
    done = train_here(made)
    assert {tuple(batch["input_ids"].shape) for batch, _ in seen} == {(4, 8)}
    for name in ("validation", "test"):
        count = math.ceil(tokens_of(ROWS[name]) / 7 / 4)
        part, seen = seen[:count], seen[count:]
        losses = [
            torch.nn.functional.cross_entropy(logits[0, place - 1], label).item()
            for batch, all_logits in part
            for row, all_row in zip(batch["labels"], all_logits, strict=True)
            for logits in [all_row[None]]
            for place, label in enumerate(row)
            if label != -100
        ]
        figures = done.metrics[name]
        assert figures["tokens"] == tokens_of(ROWS[name]) == len(losses)
        assert figures["rows"] == len(ROWS[name])
        assert figures["loss"] == pytest.approx(np.mean(losses), abs=2e-6)
        assert figures["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    assert done.rows == {name: len(rows) for name, rows in ROWS.items()}
    assert done.steps == tokens_of(ROWS["train"]) // 7 // 2


@pytest.mark.feature("F1")
@pytest.mark.parametrize("model_type", representative(DECODERS, ["gpt2"]))  # test_lora has llama
def test_a_forward_pass_is_one_graph(tmp_path, model_type):
    """A warning about its loss cut GPT-2's in two."""
    assert graphs(*ready(lm_job(tmp_path, "causal-lm", ROWS, model_type=model_type))) == 2


@pytest.mark.parametrize("model_type", FAMILIES)
def test_what_fills_a_block_changes_no_figure(tmp_path, model_type):
    """No place attends to what comes after it: the filler may be anything."""
    import torch

    work, model = ready(lm_job(tmp_path, "causal-lm", ROWS, model_type=model_type))
    model.eval()
    last = next(block for block in work.features["validation"] if not block["judged"][-1])
    other = {**last, "input_ids": np.where(last["judged"] | (np.arange(8) == 0), last["input_ids"], 9)}
    with torch.no_grad():
        found = [
            work.reduce(model(**batch).logits, batch["labels"])
            for batch in (work.collate([one, work.filler]) for one in (last, other))
        ]
    assert torch.equal(found[0], found[1])
    assert found[0][1].tolist() == [0, 0, 0]


def test_a_trial_reads_no_more_than_it_needs(tmp_path, uncompiled):
    from cachekit.training.data import Split

    read = []
    original = Split.__getitem__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Split, "__getitem__", lambda self, index: read.append(index) or original(self, index))
        work, _ = ready(lm_job(tmp_path, "causal-lm", {**ROWS, "train": texts(3000)}), {"train": 6, "validation": 3})
    assert len(read) < 60
    assert {name: len(features) for name, features in work.features.items() if name != "test"} == {
        "train": 6,
        "validation": 3,
    }
    whole, _ = ready(lm_job(tmp_path, "causal-lm", ROWS))
    assert [block["input_ids"].tolist() for block in work.features["train"]] == [
        whole.features["train"][number]["input_ids"].tolist() for number in range(6)
    ]
    done = train_here(lm_job(tmp_path, "causal-lm", ROWS, mode="trial"))
    assert (done.steps, done.metrics["validation"]["features"]) == (3, 3)


def test_lines_of_a_text_file_go_on(tmp_path):
    """No end of text between them, and what validates is the end of the text: no lines from its middle."""
    lines = [f"{word} {word}\n" for word in WORDS] + ["\n"]
    rows = {"train": "".join(lines)}
    made = lm_job(tmp_path, "causal-lm", rows, max_seq_length=4, data={"validation_fraction": 0.25})
    shapes.check_data(made.recipe)
    work, _ = ready(made)
    validation = [int(t) for block in work.features["validation"] for t in block["input_ids"][block["judged"]]]
    held = lines[-round(len(lines) / 4) :]
    assert validation == [5 + WORDS.index(word) for line in held for word in line.split()]
    assert 3 not in [t for block in work.features["train"] for t in block["input_ids"]]
    assert sum(block["texts"] for block in work.features["validation"]) == len(held)


@pytest.mark.parametrize("bos, start", [(True, 2), (False, 3)])
def test_the_stream_starts_with_a_start_or_an_end(tmp_path, bos, start):
    made = lm_job(tmp_path, "causal-lm", ROWS, tokenizer=tokenizer_folder(tmp_path, bos=bos))
    assert ready(made)[0].features["train"][0]["input_ids"][0] == start


def test_empty_texts_are_rows_without_tokens(tmp_path):
    rows = [*texts(3), {"text": ""}, {"text": None}, *texts(3, 1), {"text": ""}]
    work, _ = ready(lm_job(tmp_path, "causal-lm", {"train": texts(40), "validation": rows}))
    blocks = list(work.features["validation"])
    assert sum(block["texts"] for block in blocks) == len(rows)
    assert sum(int(block["judged"].sum()) for block in blocks) == tokens_of(rows)


def test_what_cannot_be_trained_on_is_refused(tmp_path, uncompiled):
    few = {"train": texts(2, longest=3), "validation": texts(2)}
    with pytest.raises(DataError, match="tokens, which do not fill one block") as refused:
        train_here(lm_job(tmp_path / "few", "causal-lm", few, max_seq_length=32))
    assert "training.max_seq_length" in refused.value.hint
    with pytest.raises(DataError, match="training blocks of 8 tokens do not fill a step"):
        train_here(lm_job(tmp_path / "step", "causal-lm", {**ROWS, "train": texts(4)}, per_device_train_batch_size=64))
    with pytest.raises(DataError, match="validation texts are empty"):
        train_here(lm_job(tmp_path / "empty", "causal-lm", {**ROWS, "validation": [{"text": ""}]}))
    with pytest.raises(DataError, match="no column 'text'") as refused:
        train_here(lm_job(tmp_path / "column", "causal-lm", {"train": [{"content": "the sea"}]}))
    assert "data.text_column" in refused.value.hint
    with pytest.raises(DataError, match="text is a list"):
        shapes.check_data(lm_job(tmp_path / "list", "causal-lm", {"train": [{"text": ["the"]}]}).recipe)
    with pytest.raises(DataError, match="has no rows"):
        shapes.check_data(lm_job(tmp_path / "nothing", "causal-lm", {"train": ""}).recipe)


def test_a_model_or_a_tokenizer_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="a bert model is not a causal language model"):
        ready(lm_job(tmp_path, "causal-lm", ROWS, model_type="bert"))
    ready(lm_job(tmp_path, "causal-lm", ROWS, model_type="bert", config={"is_decoder": True}))
    with pytest.raises(RecipeError, match="the tokenizer has 22 tokens, but the model embeds 20"):
        ready(lm_job(tmp_path, "causal-lm", ROWS, config={"vocab_size": 20}))


@pytest.mark.parametrize(
    "model_type, config, said",
    [
        ("llama", {"num_attention_heads": 4, "num_key_value_heads": 3}, "num_attention_heads 4 cannot be shared"),
        ("qwen3", {"num_attention_heads": 4}, "cannot be shared by num_key_value_heads 32"),
        ("gpt2", {"n_head": 5}, "n_embd 768 cannot be shared by n_head 5"),
        ("mistral", {"hidden_size": 30, "num_attention_heads": 8}, "hidden_size 30 cannot be shared"),
    ],
)
def test_heads_that_cannot_share_are_refused(model_type, config, said):
    with pytest.raises(RecipeError, match=said):
        architecture.check_heads(architecture.Architecture({"model_type": model_type, **config}, "here"))
