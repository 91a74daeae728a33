"""What reaches a graph of Inductor, on real compiles: field by field, as docs/inductor.md has it, and key by key.

A field that reaches no graph must be in no key, or it costs a cold compile; one that does must be in the key, or a run
compiles by surprise. Each recipe is a strict run: the worker is stopped at its first compile.
"""

import random
import re
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.recipe.schema import Training
from tests.support.inductor_lab import Lab, in_small

pytestmark = pytest.mark.slow
DOC = Path(__file__).resolve().parents[2] / "docs" / "inductor.md"

# Fields of `training` that change a graph, each with another value than its base has, and that base.
CHANGE = {
    "per_device_train_batch_size": ("bert", 4),
    "per_device_eval_batch_size": ("bert", 4),
    "max_seq_length": ("bert", 24),
    "max_target_length": ("t5-summarization", 12),
    "image_size": ("vit", "32 model.config.image_size=32"),
    "bf16": ("bert", "true"),
    "label_smoothing_factor": ("bert", 0.1),
    "gradient_checkpointing": ("bert", "true"),
    "lora": ("gpt2-clm", "{r: 2}"),
}
# What changes none: ways to say something else than the base does, of which a recipe takes one of each line.
KEEP = [
    ["gradient_accumulation_steps=2", "gradient_accumulation_steps=3"],
    ["optim=sgd", "optim=adafactor", "optim=adamw_torch_fused adam_beta1=0.8 adam_beta2=0.9 adam_epsilon=1e-6"],
    ["weight_decay=0.1"],
    ["max_grad_norm=0", "max_grad_norm=2.5"],
    ["learning_rate=0.01"],
    [
        "lr_scheduler_type=cosine",
        "lr_scheduler_type=polynomial warmup_steps=1",
        "lr_scheduler_type=cosine_with_restarts",
        "lr_scheduler_type=constant_with_warmup warmup_steps=2",
        "lr_scheduler_type=constant",
    ],
    ["max_steps=2", "max_steps=null num_train_epochs=1.5", "max_steps=4"],
    ["seed=1", "seed=2"],
    ["logging_steps=1", "logging_steps=2"],
    ["eval_strategy=steps eval_steps=2", "eval_strategy=epoch", "eval_strategy=steps eval_steps=1"],
    ["save_strategy=steps save_steps=2 save_total_limit=2", "save_strategy=epoch"],
    ["dataloader_num_workers=1"],
    ["output_dir=elsewhere"],
    ["report_to=[tensorboard]"],
]
OF_TASK = {
    "bert-large-squad": [["doc_stride=4", "doc_stride=12"]],
    "roberta-mlm": [["mlm_probability=0.3", "mlm_probability=0.05"]],
}
BESIDE = [
    "name=another", "description=words", "data.max_train_samples=56", "data.max_eval_samples=9",
    "environment.WANDB_NAME=mine", "environment.NCCL_DEBUG=INFO", "environment.PYTHONUNBUFFERED=1",
    "compiler.options.max_autotune=false", "compiler.options.epilogue_fusion=true", "compiler.options.verbose=true",
]  # fmt: skip
BASES = ["bert", "bert-large-squad", "roberta-mlm", "vit"]
EACH = 5  # with its base these are six recipes of one key, 15 pairs; of four bases 60


def variants(name):
    """Five sets of overrides at random, which together have each of those ways."""
    chance = random.Random(name)
    made = []
    for number in range(EACH):
        chosen = [ways[number % len(ways)] for ways in ways_of(name) if number < len(ways) or chance.random() < 0.5]
        made.append([*(f"training.{word}" for way in chosen for word in way.split()), *chance.sample(BESIDE, 4)])
    return made


def ways_of(name):
    return [*KEEP, *OF_TASK.get(name, [])]


def fields(ways):
    """The fields that those ways set to something else."""
    return {word.partition("=")[0] for one in ways for way in one for word in way.split()}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


def table():
    """The table of the page: field to whether it changes a graph."""
    mine = DOC.read_text().partition("## Which other fields")[0]
    rows = re.findall(r"^\| ((?:`[a-z0-9_]+`(?:, )?)+) \| (yes|no)", mine, re.MULTILINE)
    return {name: word == "yes" for names, word in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_page_has_every_field_of_the_schema_and_says_of_each_what_the_tests_below_show():
    unchanging = fields([*KEEP, *(ways for own in OF_TASK.values() for ways in own)])
    assert table() == {**dict.fromkeys(CHANGE, True), **dict.fromkeys(unchanging, False)}
    assert table().keys() == set(Training.__struct_fields__)


@pytest.mark.feature("K2")
@pytest.mark.parametrize("field", CHANGE)
def test_a_field_that_changes_a_graph_is_in_the_key(lab, field):
    name, value = CHANGE[field]
    changed = in_small(name, *f"training.{field}={value}".split(maxsplit=1 if field != "lora" else 0))
    assert lab.prepare(changed).key != lab.prepare(in_small(name)).key
    assert lab.compiles(name, changed)


@pytest.mark.feature("K2", "P1")
@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("number", range(EACH))
def test_recipes_that_share_a_key_share_every_graph(lab, name, number):
    changed = in_small(name, *variants(name)[number])
    assert lab.prepare(changed).key == lab.prepare(in_small(name)).key
    assert not lab.compiles(name, changed)


def test_the_recipes_that_share_a_key_differ_in_every_field_that_changes_no_graph():
    for name in BASES:
        base, made = in_small(name).training, [in_small(name, *words).training for words in variants(name)]
        for field in fields(ways_of(name)):
            assert any(getattr(one, field) != getattr(base, field) for one in made), (name, field)
    (known,) = (one for one in structs.fields(Training) if one.name == "optim")
    tried = {in_small("bert", *words).training.optim for words in variants("bert")}
    assert tried | {Training().optim} >= {*known.type.__args__}
