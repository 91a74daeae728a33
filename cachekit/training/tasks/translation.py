"""Translation: a text, and the same in another language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sacrebleu

from cachekit.errors import DataError, RecipeError
from cachekit.recipe import Recipe, tasks
from cachekit.text import first_of
from cachekit.training.job import Job
from cachekit.training.tasks.port import Feature
from cachekit.training.tasks.seq2seq import Figures, Seq2Seq, pair


class Translation(Seq2Seq):
    """Two columns with a text each, or one with both."""

    def reader(self, recipe: Recipe) -> Callable[[Mapping[str, Any], str], Feature]:
        column = tasks.columns(recipe).get("translation_column")
        if column is None:
            return super().reader(recipe)
        for name in ("source_lang", "target_lang"):
            if not getattr(recipe.data, name):
                raise RecipeError(
                    f"data.{name} is missing",
                    cause="data.translation_column holds texts by language",
                    hint=f"add data.{name}, for example data.{name}: en",
                )
        source, target = recipe.data.source_lang or "", recipe.data.target_lang or ""

        def read(row: Mapping[str, Any], where: str) -> Feature:
            texts = row[column]
            return pair(
                _text(texts, source, where, "data.source_lang"),
                _text(texts, target, where, "data.target_lang"),
                where,
                "data.target_lang",
            )

        return read

    def languages(self, job: Job, tokenizer: Any) -> None:
        given = {"src_lang": ("source_lang", job.recipe.data.source_lang)}
        given["tgt_lang"] = ("target_lang", job.recipe.data.target_lang)
        if not hasattr(tokenizer, "src_lang"):
            named = [f"data.{field}" for field, code in given.values() if code]
            if named and tasks.columns(job.recipe).get("translation_column") is None:
                raise RecipeError(
                    f"{named[0]} has no effect here",
                    cause="the rows have one column for each language, and the tokenizer does not know languages",
                    hint=f"remove {' and '.join(named)}",
                )
            return
        known = getattr(tokenizer, "lang_code_to_token", None) or getattr(tokenizer, "lang_code_to_id", None)
        for attribute, (field, code) in given.items():
            if not code:
                raise RecipeError(
                    f"data.{field} is missing", cause="the model knows many languages", hint=f"add data.{field}"
                )
            unknown = tokenizer.convert_tokens_to_ids(code) in {None, tokenizer.unk_token_id}
            if (code not in known) if known else unknown:
                raise RecipeError(
                    f"data.{field}: the model does not know the language {code!r}",
                    cause=f"it knows {first_of(known, 8)}" if known else "",
                    hint="models spell them in their own ways: en, en_XX, eng_Latn",
                )
            setattr(tokenizer, attribute, code)

    def figures(self, job: Job) -> Figures:
        # Its own advice: Chinese is not written in words, and the usual tokenizer splits at spaces.
        chinese = (job.recipe.data.target_lang or "").lower().startswith(("zh", "zho"))
        bleu = sacrebleu.BLEU(tokenize="zh" if chinese else "13a")

        def score(written: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
            return {"bleu": float(bleu.corpus_score(list(written), [list(targets)]).score)}

        return score


def _text(texts: Any, language: str, where: str, named_by: str) -> Any:
    """A row's text in a language: by the code that the model knows (`en_XX`), or the one that rows have (`en`)."""
    for name in (language, language.partition("_")[0]):
        if isinstance(texts, Mapping) and name in texts:
            return texts[name]
    have = ", ".join(texts) if isinstance(texts, Mapping) else f"a {type(texts).__name__}"
    raise DataError(f"{where} has no text in {language!r}", cause=f"it has {have}", hint=f"check {named_by}")


TASK = Translation()
