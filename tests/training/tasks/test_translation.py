"""Translation: languages by column and by tokenizer, and sacreBLEU. What summarization has too is tested there."""

from __future__ import annotations

import pytest
from msgspec import structs

from cachekit.errors import DataError, RecipeError
from cachekit.recipe.schema import Data
from tests.training.jobs import TINY, tiny_rows, train_here, uncompiled, write  # noqa: F401 - a fixture
from tests.training.seq2seq_toys import seq2seq_job, tokenizer, words

pytestmark = pytest.mark.versions
TASK = "translation"
LANGUAGES = {"translation_column": "translation", "source_lang": "en", "target_lang": "fr"}


def rows(job):
    from cachekit.training.tasks import select

    return select(TASK).rows(job, print)


@pytest.mark.parametrize("source, target", [("en", "fr"), ("fr", "en"), ("en_XX", "fr_XX")])
def test_one_column_holds_both_languages(tmp_path, source, target):
    data = Data(path=str(TINY / TASK), translation_column="translation", source_lang=source, target_lang=target)
    splits = rows(seq2seq_job(tmp_path, TASK, data))
    pair = tiny_rows(TASK)[0]["translation"]
    assert splits["train"][0] == {"source": pair[source[:2]], "target": pair[target[:2]]}
    assert {name: len(split) for name, split in splits.items()} == {"train": 160, "validation": 32}


def test_two_columns_do_as_well(tmp_path):
    pair = tiny_rows(TASK)[0]["translation"]
    data = write(tmp_path / "data", train=[{"english": text, "target": "x"} for text in pair.values()])
    splits = rows(seq2seq_job(tmp_path, TASK, Data(path=str(data), source_column="english")))
    assert {row["source"] for split in splits.values() for row in split} == set(pair.values())


@pytest.mark.parametrize(
    "changes, kind, message",
    [
        ({"source_lang": None}, RecipeError, "data.source_lang is missing"),
        ({"target_lang": None}, RecipeError, "data.target_lang is missing"),
        ({"target_lang": "de"}, DataError, "train row 1 has no text in 'de'"),
        ({"translation_column": "texts"}, DataError, "no column 'texts'"),
    ],
)
def test_languages_that_are_not_there_are_refused(tmp_path, changes, kind, message):
    with pytest.raises(kind, match=message) as refused:
        rows(seq2seq_job(tmp_path, TASK, Data(path=str(TINY / TASK), **{**LANGUAGES, **changes})))
    assert "data." in refused.value.hint


class Multilingual:
    """What MBart's, M2M100's and NLLB's tokenizers have in common: they know codes of languages."""

    src_lang = tgt_lang = ""
    unk_token_id = 3

    def convert_tokens_to_ids(self, code):
        return {"en_XX": 7, "fr_XX": 8}.get(code, 3)


@pytest.mark.parametrize(
    "codes, message",
    [
        (("en_XX", "fr_XX"), ""),
        (("en_XX", None), "data.target_lang is missing"),
        (("en", "fr_XX"), "data.source_lang: the model does not know the language 'en'"),
    ],
)
def test_a_tokenizer_of_many_languages_is_told_which(tmp_path, codes, message):
    from cachekit.training.tasks import select

    data = Data(path=str(TINY / TASK), **{**LANGUAGES, "source_lang": codes[0], "target_lang": codes[1]})
    job, spelling = seq2seq_job(tmp_path, TASK, data), Multilingual()
    if message:
        with pytest.raises(RecipeError, match=message):
            select(TASK).languages(job, spelling)
    else:
        select(TASK).languages(job, spelling)
        assert (spelling.src_lang, spelling.tgt_lang) == codes


def test_languages_that_nothing_reads_are_refused(tmp_path):
    from cachekit.training.tasks import select

    job = seq2seq_job(tmp_path, TASK, Data(path=str(TINY / TASK), source_lang="en"))
    with pytest.raises(RecipeError, match=r"data\.source_lang has no effect here"):
        select(TASK).languages(job, tokenizer(words("a b")))


def test_bleu_is_sacrebleus_over_every_row_once(tmp_path, uncompiled):
    """13 rows in batches of 4; the saved model translates again, by Transformers' own loop and row by row."""
    import sacrebleu
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    few = [*tiny_rows(TASK)[:4]] * 3 + tiny_rows(TASK)[:1]  # so that few steps are enough to say something right
    data = write(tmp_path / "data", train=tiny_rows(TASK)[:4] * 4, validation=few)
    job = seq2seq_job(tmp_path, TASK, Data(path=str(data), **LANGUAGES), max_steps=30, learning_rate=1e-2)
    figures = train_here(job).metrics["validation"]
    model = AutoModelForSeq2SeqLM.from_pretrained(job.output_dir).eval()
    spelling = AutoTokenizer.from_pretrained(job.output_dir)
    written = []
    with torch.no_grad():
        for row in few:
            source = spelling(row["translation"]["en"], return_tensors="pt")
            source.pop("token_type_ids", None)
            tokens = model.generate(**source, max_new_tokens=10, num_beams=1, do_sample=False)
            written.append(spelling.decode(tokens[0], skip_special_tokens=True))
    targets = [row["translation"]["fr"] for row in few]
    assert figures["rows"] == 13
    assert figures["bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [targets]).score, abs=1e-4)
    assert figures["bleu"] > 1


def test_chinese_is_not_split_at_spaces(tmp_path):
    from cachekit.training.tasks import select

    def bleu(language):
        data = Data(path=str(TINY / TASK), **{**LANGUAGES, "target_lang": language})
        changed = structs.replace(job, recipe=structs.replace(job.recipe, data=data))
        return select(TASK).figures(changed)(["我今天去了学校"], ["我今天去了公园"])["bleu"]

    job = seq2seq_job(tmp_path, TASK, Data(path=str(TINY / TASK), **LANGUAGES))
    assert bleu("fr") == 0
    assert bleu("zh") == bleu("zh_CN") > 50
