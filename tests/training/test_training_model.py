"""What the worker makes of a job's model, and what it feeds it: decided by what is in the key alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from cachekit.errors import RecipeError
from cachekit.recipe.architecture import IRRELEVANT
from cachekit.recipe.schema import Data
from tests.training.jobs import BERT, job_of, recipe_of, tokenizer  # noqa: F401 - a fixture

pytestmark = pytest.mark.versions

# What each family's forward pass is given, and no tokenizer changes that.
INPUTS = {
    "albert": {"input_ids", "attention_mask", "token_type_ids"},
    "bert": {"input_ids", "attention_mask", "token_type_ids"},
    "camembert": {"input_ids", "attention_mask", "token_type_ids"},
    "deberta-v2": {"input_ids", "attention_mask"},  # its default has no segments
    "distilbert": {"input_ids", "attention_mask"},
    "electra": {"input_ids", "attention_mask", "token_type_ids"},
    "gpt2": {"input_ids", "attention_mask"},  # it takes token_type_ids for words
    "mpnet": {"input_ids", "attention_mask"},
    "roberta": {"input_ids", "attention_mask", "token_type_ids"},
    "xlm-roberta": {"input_ids", "attention_mask", "token_type_ids"},
}


SIZES = {**BERT, "dim": 8, "hidden_dim": 8, "embedding_size": 8, "n_layers": 1, "n_heads": 2}


def job(model_type="bert", *, weights="", **config):
    recipe = recipe_of("text-classification", Data(id="nobody/nothing", labels=("no", "yes")))
    if weights:
        recipe = structs.replace(recipe, model=structs.replace(recipe.model, from_config=False))
    sizes = {**SIZES, "model_type": model_type, **config}
    return job_of(Path("nowhere"), recipe, config=sizes, labels=("no", "yes"), weights=weights)


def collator(wanted, tokenizer, model, *, paired=True, length=12):
    """What makes batches of a job's task."""
    from cachekit.training.tasks import select

    pair = "pair" if paired else None
    recipe = structs.replace(
        wanted.recipe,
        data=structs.replace(wanted.recipe.data, text_pair_column=pair),
        training=structs.replace(wanted.recipe.training, max_seq_length=length),
    )
    return select(recipe.task).ready(structs.replace(wanted, recipe=recipe), tokenizer, model, {}, {}).collate


def model_of(wanted):
    from cachekit.training import model
    from cachekit.training.tasks import select

    return model._model(wanted, select(wanted.recipe.task), {})


@pytest.mark.parametrize("stored", ["bfloat16", "float16", "float32"])
def test_weights_are_fp32_whatever_they_were_stored_in(tmp_path, stored):
    import torch

    model_of(job()).to(getattr(torch, stored)).save_pretrained(tmp_path)
    for config in ({}, {"dtype": stored}, {"torch_dtype": stored}):
        assert {p.dtype for p in model_of(job(weights=str(tmp_path), **config)).parameters()} == {torch.float32}
        assert {p.dtype for p in model_of(job(**config)).parameters()} == {torch.float32}


def test_what_is_in_no_key_is_not_passed_on():
    """Transformers switches checkpointing on for a config that says so, which makes other graphs."""
    said = {"gradient_checkpointing": True, "use_cache": True, "return_dict": False, "torchscript": False}
    model = model_of(job(**said, initializer_range=0.5))
    assert not any(
        getattr(part, name, False)
        for part in model.modules()
        for name in ("gradient_checkpointing", "activation_checkpointing")
    )
    assert model.config.use_cache is False
    assert model.config.initializer_range == 0.5, "it scales the random weights"
    assert {"gradient_checkpointing", "use_cache", "return_dict"} <= set(IRRELEVANT)


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # deberta-v2 in transformers 4.57
def test_inputs_follow_from_the_architecture_not_from_the_tokenizer(tokenizer):
    for given in [["input_ids"], ["input_ids", "token_type_ids", "attention_mask", "offset_mapping"]]:
        for model_type in sorted(INPUTS):
            import torch

            wanted = job(model_type, pad_token_id=0)
            model = model_of(wanted)
            tokenizer.model_input_names = given
            batch = collator(wanted, tokenizer, model)(
                [{"text": "a calm sea", "pair": "a stone", "label": 0}, {"text": "", "pair": "", "label": 1}]
            )
            assert set(batch) == {*INPUTS[model_type], "labels"}
            assert {tuple(batch[name].shape) for name in INPUTS[model_type]} == {(2, 12)}
            assert {batch[name].dtype for name in batch} == {torch.long}
            if "token_type_ids" in batch:
                assert batch["token_type_ids"][0].tolist().count(1) == 3, "the second segment: two words and a mark"
            assert torch.isfinite(model(**batch).loss)


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "camembert"])
def test_a_model_of_one_segment_is_given_none(tokenizer, model_type):
    """The second of two texts would be in a segment that its table has no row for: compiled code ends the process."""
    import torch

    wanted = job(model_type, pad_token_id=0, type_vocab_size=1)
    model = model_of(wanted)
    batch = collator(wanted, tokenizer, model)([{"text": "a calm sea", "pair": "a stone", "label": 0}])
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert torch.isfinite(model(**batch).loss)


def test_a_tokenizer_that_knows_no_segments_gives_zeros():
    """None and zeros are the same to a model that has embeddings of segments."""
    import torch

    class Plain:
        pad_token = "[PAD]"

        def __call__(self, texts, pairs, **options):
            return {"input_ids": torch.ones((len(texts), 4), dtype=torch.long), "attention_mask": torch.ones(1, 4)}

    wanted = job()
    collate = collator(wanted, Plain(), model_of(wanted), paired=False)
    batch = collate([{"text": "a", "pair": None, "label": 1}])
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0]]
    assert set(batch) == {*INPUTS["bert"], "labels"}


def test_a_vocabulary_that_the_tokenizer_is_too_large_for_is_refused():
    from cachekit.training import model
    from cachekit.training.tasks import select

    wanted = job(vocab_size=99)
    said = structs.replace(wanted.recipe, model=structs.replace(wanted.recipe.model, config={"vocab_size": 99}))
    with pytest.raises(RecipeError, match="the tokenizer has 30522 tokens, but the model embeds 99"):
        model.load(structs.replace(wanted, recipe=said), select("text-classification"), {})
