"""A recipe with a value that nothing would read is refused, by the field's name; `--set` may put one out of use."""

from __future__ import annotations

import re
from functools import partial

import pytest

from cachekit.compilers import select
from cachekit.compilers.prepare import prepare
from cachekit.errors import RecipeError
from cachekit.recipe import load, load_text, tiny, zoo

START = "name: toy\ntask: text-classification\nmodel: {id: bert-base-uncased}\n"
HUB = "data: {id: someone/rows}\n"


def message(text, *overrides):
    with pytest.raises(RecipeError) as refused:
        load_text(START + text, overrides, source="toy.yaml")
    return f"{refused.value.message} | {refused.value.cause} | {refused.value.hint}"


UNREAD = [
    (HUB + "training: {eval_steps: 5}", "training.eval_steps", "training.eval_strategy is 'epoch'"),
    (HUB + "training: {save_steps: 5}", "training.save_steps", "training.save_strategy is 'epoch'"),
    (HUB + "training: {save_strategy: 'no', save_total_limit: 2}", "training.save_total_limit",
     "training.save_strategy is 'no'"),
    (HUB + "training: {max_steps: 7, num_train_epochs: 2}", "training.num_train_epochs", "training.max_steps is 7"),
    (HUB + "training: {lr_scheduler_type: constant, warmup_steps: 9}", "training.warmup_steps",
     "training.lr_scheduler_type is constant"),
    (HUB + "training: {optim: sgd, adam_beta1: 0.5}", "training.adam_beta1", "training.optim is sgd"),
    ("data: {path: rows, train_split: a}", "data.train_split", "the rows come from data.path"),
    ("data: {train_file: a.csv, config: a}", "data.config", "the rows come from data.train_file"),
    ("data: {train_file: a.jsonl, delimiter: ;}", "data.delimiter", "the files are .jsonl"),
    ("data: {id: a/b, delimiter: ;}", "data.delimiter", "the rows come from data.id"),
    ("data: {train_file: a.parquet, encoding: latin-1}", "data.encoding", "the files are .parquet"),
    ("data: {id: a/b, validation_split: test, validation_fraction: 0.2}", "data.validation_fraction",
     "data.validation_split is given"),
]  # fmt: skip


def test_a_value_that_nothing_reads_is_refused():
    for text, field, why in UNREAD:
        line = (START + text).count("\n") + 1
        assert message(text).startswith(f"toy.yaml, line {line}: {field} has no effect here | {why} | ")


def test_a_revision_of_a_model_that_lies_here():
    with pytest.raises(RecipeError, match=r"model\.revision has no effect here") as refused:
        load_text("name: toy\nmodel: {path: /models/mine, revision: v2}\ndata: {path: rows}\n")
    assert refused.value.cause == "the model comes from model.path"


@pytest.mark.parametrize(
    "text",
    [
        "training: {eval_strategy: steps, eval_steps: 5, save_strategy: steps, save_steps: 5, save_total_limit: 2}",
        "training: {lr_scheduler_type: constant, warmup_steps: 0, optim: sgd, weight_decay: 0.1}",
        "training: {max_steps: null, num_train_epochs: 2, optim: adamw_torch_fused, adam_beta2: 0.9}",
    ],
)
def test_what_is_read_is_not_refused(text):
    load_text(START + HUB + text)


def test_a_setting_may_put_a_value_out_of_use():
    """But one that is itself set from outside is meant to be read."""
    text = "training: {num_train_epochs: 2, save_strategy: steps, save_steps: 5}\ndata: {id: a/b, train_split: a}"
    overrides = ["training.max_steps=7", "training.save_strategy=no", 'data={"path": "rows"}']
    assert load_text(START + text, overrides).training.max_steps == 7
    said = message(text, *overrides, "training.num_train_epochs=1")
    assert said == (
        "--set training.num_train_epochs: training.num_train_epochs has no effect here | training.max_steps is 7 | "
        "set training.max_steps: null to count epochs"
    )


def test_no_recipe_of_the_zoo_has_one():
    for name in sorted(zoo.recipes()):
        path = zoo.recipes()[name]
        with pytest.raises(RecipeError, match=r"training\.num_train_epochs has no effect here"):
            tiny.in_small(["training.num_train_epochs=1"], partial(load, path))


@pytest.mark.parametrize("field", ["zero_1=true", "tensor_parallel_size=2", "data_parallel_size=2"])
def test_inductor_has_one_worker_and_says_so(field):
    recipe = load(zoo.recipe_path("bert"), [f"parallel.{field}"])
    with pytest.raises(RecipeError, match="Inductor trains with one worker") as refused:
        prepare(recipe, select("inductor", "inductor"))
    name, value = field.split("=")
    assert refused.value.message.startswith(f"parallel.{name} is {value}")


def test_all_that_one_worker_cannot_do_is_said_at_once():
    """Whoever types the hint gets a plan, and not the next error."""
    split = ["parallel.zero_1=true", "parallel.tensor_parallel_size=2"]
    with pytest.raises(RecipeError) as refused:
        prepare(load(zoo.recipe_path("bert"), split), select("inductor", "inductor"))
    typed = re.findall(r"--set (\S+=[a-z0-9]+)", refused.value.hint)
    assert prepare(load(zoo.recipe_path("bert"), [*split, *typed]), select("inductor", "inductor")).key


@pytest.mark.parametrize(
    ("task", "one", "two"),
    [
        ("translation", "translation_column", "source_column"),
        ("translation", "translation_column", "target_column"),
        ("instruction-tuning", "messages_column", "prompt_column"),
        ("instruction-tuning", "messages_column", "response_column"),
    ],
)
def test_columns_beside_the_one_that_holds_both_are_refused(task, one, two):
    start = START.replace("text-classification", task)
    text = f"{start}data: {{id: x, {one}: a, {two}: b}}"
    with pytest.raises(RecipeError, match=f"data.{two} has no effect here") as refused:
        load_text(text)
    assert f"data.{one} holds both" in refused.value.cause
    assert getattr(load_text(text, [f"data.{one}=null"]).data, two) == "b"
    assert getattr(load_text(f"{start}data: {{id: x, {two}: b}}", [f"data.{one}=a"]).data, one) == "a"
