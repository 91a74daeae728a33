"""Summarization: batches of one shape, texts that Transformers writes too, figures that its libraries find too."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekit.errors import DataError, RecipeError
from cachekit.recipe.schema import Data
from tests.training.grids import representative
from tests.training.jobs import (
    TINY,
    job_of,
    recipe_of,
    tiny_rows,
    train_here,
    uncompiled,  # noqa: F401 - a fixture
    write,
)
from tests.training.seq2seq_toys import SIZES, seq2seq_job, tokenizer, words

pytestmark = pytest.mark.versions
TASK = "summarization"
KINDS = ("t5", "bart", "marian", "mbart")
TEXTS = ["a b c d", "d c", "", "b b b b b b b b b b b b b b b b"]
TARGETS = ["a d", "c", "b b b b b b b b b b b b", "d"]


def model_of(kind, size=20, **changes):
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    torch.manual_seed(3)
    fields = {**SIZES[kind], **changes}
    if kind == "marian":
        fields["decoder_vocab_size"] = size
    config = AutoConfig.for_model(kind, vocab_size=size, use_cache=False, **fields)
    return AutoModelForSeq2SeqLM.from_config(config).eval()


def collator(model, spelling, prefix=None, target_length=8):
    """What makes batches for a model and a tokenizer: sources of 12 tokens."""
    from cachekit.training.tasks import select

    recipe = recipe_of(TASK, Data(source_prefix=prefix), max_seq_length=12, max_target_length=target_length)
    return select(TASK).ready(job_of(Path("nowhere"), recipe), spelling, model, {}, {}).collate


def pairs(*texts):
    return [{"source": source, "target": target} for source, target in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_has_one_shape_whatever_the_rows(kind):
    model, spelling = model_of(kind), tokenizer(words("a b c d"))
    collate = collator(model, spelling)
    filler = {"source": "", "target": None}
    batches = [
        pairs(*zip(TEXTS[:2], TARGETS[:2], strict=True)),
        pairs(*zip(TEXTS[2:], TARGETS[2:], strict=True)),
        [*pairs(("a", "b")), filler],
    ]
    shapes = [{name: (tuple(t.shape), t.dtype) for name, t in collate(batch).items()} for batch in batches]
    assert shapes[0] == shapes[1] == shapes[2]
    assert {name: shape for name, (shape, _) in shapes[0].items()} == {
        "input_ids": (2, 12),
        "attention_mask": (2, 12),
        "decoder_input_ids": (2, 8),
        "labels": (2, 8),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_is_given_what_the_model_makes_of_the_labels(kind):
    """The model's own shift, row by row; labels are FILLER where there is only padding, and in rows that fill."""
    template = "$A </s> <s>" if kind == "mbart" else "$A </s>"  # mBART's targets end in their language
    model, spelling = model_of(kind), tokenizer(words("a b c d"), template)
    batch = collator(model, spelling)(pairs(("a", "a b"), ("b", "c"), ("c", "a b c d a b c d a b c d")))
    theirs = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    assert batch["decoder_input_ids"].tolist() == theirs.tolist()
    ids = spelling("a b")["input_ids"]
    assert batch["labels"][0].tolist() == ids + [-100] * (8 - len(ids))
    filled = collator(model, spelling)([{"source": "", "target": None}])
    assert set(filled["labels"].flatten().tolist()) == {-100}


@pytest.mark.parametrize("prefix", ["", "b b "])
def test_a_prefix_stands_before_each_source(prefix):
    spelling = tokenizer(words("a b c d"))
    batch = collator(model_of("t5"), spelling, prefix=prefix)(pairs(("a", "b")))
    assert spelling.decode(batch["input_ids"][0], skip_special_tokens=True) == f"{prefix}a"


@pytest.mark.parametrize(
    ("kind", "template"),
    representative(
        [(kind, template) for kind in ("t5", "bart", "marian") for template in ("$A </s>", "<s> $A </s>")],
        [("t5", "$A </s>"), ("bart", "<s> $A </s>")],
    ),
)
def test_what_is_written_is_what_transformers_writes(kind, template):
    """Its loop of one token at a time, with past keys and values; here every pass is one forward pass of one shape."""
    import torch

    from cachekit.training.tasks.seq2seq import decoder

    spelling = tokenizer(words("a b c d e f g h i j k l"), template)
    write = decoder(spelling, labelled=True)
    assert write.first == (None if template.startswith("$A") else 3)
    texts = set()
    for scale in (4, 20, 60):  # random weights of the usual scale write one word for ever
        model, shapes = model_of(kind, len(spelling), pad_token_id=0), []
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(scale)
        batch = collator(model, spelling, target_length=9)(pairs(*zip(TEXTS, TARGETS, strict=True)))
        watch = model.register_forward_pre_hook(
            lambda _, __, given, seen=shapes: seen.append({name: tuple(t.shape) for name, t in given.items()}),
            with_kwargs=True,
        )
        with torch.no_grad():
            written = write(model, batch)
            watch.remove()
            theirs = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=9,
                do_sample=False,
                num_beams=1,
                use_cache=True,
                forced_bos_token_id=write.first,
                forced_eos_token_id=None,
                bad_words_ids=None,
                eos_token_id=1,
                pad_token_id=0,
                decoder_start_token_id=int(batch["decoder_input_ids"][0, 0]),
            )[:, 1:]
        assert all(shape == {name: tuple(t.shape) for name, t in batch.items()} for shape in shapes)
        assert 1 <= len(shapes) <= 9
        assert written.tolist() == torch.nn.functional.pad(theirs, (0, 9 - theirs.shape[1])).tolist()
        texts |= {tuple(row) for row in written.tolist()}
    assert len(texts) > 2


def test_labels_are_not_peeked_at():
    import torch

    from cachekit.training.tasks.seq2seq import decoder

    spelling, model = tokenizer(words("a b c d")), model_of("t5")
    batch = collator(model, spelling)(pairs(("a b", "a b c"), ("c", "d")))
    other = collator(model, spelling)(pairs(("a b", "d"), ("c", "b a a a")))
    with torch.no_grad():
        written = [decoder(spelling, labelled=labelled)(model, b) for labelled in (True, False) for b in (batch, other)]
    assert all(torch.equal(written[0], again) for again in written)


@pytest.mark.parametrize(
    "training", [{}, {"label_smoothing_factor": 0.1, "max_target_length": 4}], ids=["plain", "smoothed"]
)
def test_figures_are_those_of_the_reference_library_over_every_row_once(tmp_path, uncompiled, training):
    """13 rows in batches of 4; the saved model writes again, by Transformers' own loop and row by row."""
    import torch
    from rouge_score.rouge_scorer import RougeScorer
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    data = write(tmp_path / "data", train=tiny_rows(TASK)[:24], validation=tiny_rows(TASK, "validation")[:13])
    job = seq2seq_job(tmp_path, TASK, Data(path=str(data)), max_steps=6, learning_rate=1e-2, **training)
    length = job.recipe.training.max_target_length
    figures = train_here(job).metrics["validation"]
    model = AutoModelForSeq2SeqLM.from_pretrained(job.output_dir).eval()
    spelling = AutoTokenizer.from_pretrained(job.output_dir)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    scores, losses, tokens = [], 0.0, 0
    with torch.no_grad():
        for row in tiny_rows(TASK, "validation")[:13]:
            source = spelling(row["document"], return_tensors="pt", truncation=True, max_length=24)
            source.pop("token_type_ids", None)
            labels = spelling(row["summary"], return_tensors="pt", truncation=True, max_length=length)["input_ids"]
            losses += model(**source, labels=labels).loss.item() * labels.numel()
            tokens += labels.numel()
            written = model.generate(**source, max_new_tokens=length, num_beams=1, do_sample=False)
            text = spelling.decode(written[0], skip_special_tokens=True)
            scores.append(scorer.score(row["summary"], text))
    assert figures["rows"] == 13
    assert figures["tokens"] == tokens
    assert figures["loss"] == pytest.approx(losses / tokens, rel=1e-4)
    for kind in ("rouge1", "rouge2", "rougeL"):
        assert figures[kind] == pytest.approx(sum(s[kind].fmeasure for s in scores) / 13, abs=1e-6)


@pytest.mark.parametrize(
    "row, message",
    [
        ({"document": "a", "summary": " "}, "train row 2 has no target"),
        ({"document": "a", "summary": None}, "train row 2 has no target"),
        ({"document": ["a"], "summary": "b"}, "document is a list"),
        ({"text": "a", "summary": "b"}, "no column 'document'"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(tmp_path, row, message):
    from cachekit.training.tasks import select

    data = write(tmp_path / "data", train=[tiny_rows(TASK)[0], row])
    job = seq2seq_job(tmp_path, TASK, Data(path=str(data)))
    with pytest.raises(DataError, match=message) as refused:
        select(TASK).rows(job, print)
    assert "data." in refused.value.hint


def test_tokenizers_that_cannot_serve_are_refused(tmp_path):
    from cachekit.training.tasks import select

    def ready(spelling, model):
        return select(TASK).ready(job, spelling, model, {}, {})

    job = seq2seq_job(tmp_path, TASK, Data(path=str(TINY / TASK)))
    with pytest.raises(RecipeError, match="does not mark the end of a text"):
        ready(tokenizer(words("a b"), "$A"), model_of("t5"))
    with pytest.raises(RecipeError, match="the tokenizer has 24 tokens, but the model embeds 20"):
        ready(tokenizer([str(number) for number in range(20)]), model_of("t5"))


@pytest.mark.parametrize("field", ["max_seq_length", "max_target_length"])
def test_lengths_beyond_the_models_positions_are_refused_before_anything_is_loaded(tmp_path, field):
    from cachekit.compilers import select
    from cachekit.compilers.prepare import prepare
    from cachekit.recipe import architecture

    job = seq2seq_job(tmp_path, TASK, Data(path=str(TINY / TASK)), "bart", **{field: 65})
    assert architecture.resolve(job.recipe).model_type == "bart"
    with pytest.raises(RecipeError, match=f"training.{field} is 65, but the model has 64 positions"):
        prepare(job.recipe, select("inductor"))
