"""Texts as tensors of one length: what the tasks that read text do with a tokenizer, and refuse of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cachekit.errors import RecipeError
from cachekit.training.data import Split
from cachekit.training.tasks.port import Feature

# Model types that tell segments apart without a table of embeddings, whose size the config would say.
SEGMENTED = frozenset({"xlnet"})
LOOKED_AT = 1_000  # rows of a split whose length is counted: milliseconds


def inputs_of(model: Any) -> tuple[str, ...]:
    """What a model is given: by its architecture, which is in the key, never by its tokenizer, which is not.

    Segments (`token_type_ids`) are given to models that have embeddings of several: to those, none is the same as
    zeros. RoBERTa and its kin have one, and a tokenizer that tells two texts apart would reach beyond it. Some others
    take the name for something else (GPT-2 adds the embedding of the word with that number).
    """
    # Around adapters there may be a forward pass that takes anything, and hands it on (optimum-neuron's PEFT).
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    taken = inspect.signature(inner.forward).parameters
    segments = getattr(model.config, "type_vocab_size", None)
    has_segments = segments > 1 if isinstance(segments, int) else model.config.model_type in SEGMENTED
    wanted = {"input_ids": True, "attention_mask": True, "token_type_ids": has_segments}
    return tuple(name for name, given in wanted.items() if given and name in taken)


def check_tokenizer(tokenizer: Any) -> None:
    """Raise RecipeError for a tokenizer that has no padding token."""
    if tokenizer.pad_token is None:
        raise RecipeError("the tokenizer has no padding token", hint="choose another with model.tokenizer")


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Raise RecipeError for a tokenizer with more tokens than the model: the last would be an index out of range."""
    known, table = len(tokenizer), model.get_input_embeddings()
    if table is not None and known > table.num_embeddings:
        raise RecipeError(
            f"the tokenizer has {known} tokens, but the model embeds {table.num_embeddings}",
            cause="they do not belong together, or model.config.vocab_size is too small",
            hint="choose the model's own with model.tokenizer, or leave model.config.vocab_size out",
        )


def check_causal(model: Any) -> None:
    """Raise RecipeError for a model in which a token sees those after it: it would tell them by looking."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    config = model.config
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise RecipeError(
            f"a {config.model_type} model is not a causal language model",
            cause="each token sees the tokens that follow it",
            hint="choose task: masked-lm, or another model; or train from scratch with model.config.is_decoder=true",
        )


def check_fast(tokenizer: Any, task: str) -> None:
    """Raise RecipeError for a tokenizer that cannot say where its tokens stand in a text."""
    if not tokenizer.is_fast:
        raise RecipeError(
            f"{task} needs a tokenizer that knows where its tokens are in the text",
            cause=f"{type(tokenizer).__name__} is not a fast tokenizer (package `tokenizers`)",
            hint="choose another with model.tokenizer",
        )


def for_words(tokenizer: Any, task: str) -> None:
    """Make a tokenizer ready for texts that are lists of words.

    One that takes a space for a part of the word behind it must put one before each word: GPT-2's family does not by
    default, and RoBERTa's of Transformers 4 refuses. It says so when it is saved with the model, too. One that cannot
    tell which word a token belongs to is refused (RecipeError).
    """
    check_fast(tokenizer, task)
    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    if type(splitter).__name__ == "ByteLevel" and not splitter.add_prefix_space:
        splitter.add_prefix_space = True
        tokenizer.add_prefix_space = tokenizer.init_kwargs["add_prefix_space"] = True


def encode(
    tokenizer: Any,
    texts: Sequence[Any],
    pairs: Sequence[Any] | None,
    *,
    length: int,
    inputs: Sequence[str],
    **options: Any,
) -> Any:
    """Tokenize, every row padded or cut to `length` tokens; `inputs` is what the model is given (see `inputs_of`)."""
    usual = {
        "padding": "max_length",
        "truncation": True,
        "max_length": length,
        "return_tensors": "pt",
        "return_attention_mask": True,
        "return_token_type_ids": "token_type_ids" in inputs,
    }
    return tokenizer(list(texts), None if pairs is None else list(pairs), **{**usual, **options})


def token_lists(tokenizer: Any, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    """The tokens of each text, with the tokenizer's own special ones or without."""
    if not texts:
        return []
    # Not `verbose`: longer than the model's context is what a stream is.
    found = tokenizer(list(texts), add_special_tokens=special, return_attention_mask=False, verbose=False)
    ids: list[list[int]] = found["input_ids"]
    return ids


def end_of_text(tokenizer: Any) -> int:
    """The token that ends a text; RecipeError for a tokenizer that has none."""
    token = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    if token is None:
        raise RecipeError("the tokenizer has no end-of-text token", hint="choose another with model.tokenizer")
    return int(token)


def lengths(tokenizer: Any, texts: Sequence[Any], pairs: Sequence[Any] | None = None, **options: Any) -> list[int]:
    """The tokens of each text, or pair of texts, uncut and with special ones."""
    encoded = tokenizer(list(texts), None if pairs is None else list(pairs), truncation=False, verbose=False, **options)
    return [len(ids) for ids in encoded["input_ids"]]


def cut(
    splits: Mapping[str, Split],
    count: Callable[[Sequence[Feature]], Sequence[int]],
    limit: int,
    field: str = "max_seq_length",
) -> tuple[str, ...]:
    """A sentence for each split whose first rows have texts that lose what is beyond the limit.

    Args:
        splits: The rows.
        count: The tokens of each text of some rows.
        limit: Tokens that are kept.
        field: The name of the limit in `training`.
    """
    notes = []
    for name, split in splits.items():
        found = count([split[number] for number in range(min(LOOKED_AT, len(split)))])
        longer = sum(tokens > limit for tokens in found)
        if longer:
            notes.append(
                f"{longer:,} of the first {len(found):,} {name} texts are longer than training.{field} {limit} and are "
                f"cut; the longest has {max(found):,} tokens"
            )
    return tuple(notes)
