"""From a recipe to a key: each field that reaches a graph changes it, and nothing else does."""

from __future__ import annotations

import json

import msgspec
import pytest

from cachekit.errors import CachekitError
from cachekit.key.canonical import ABSENT, Change, difference, is_hashed
from cachekit.recipe import load, tasks, zoo
from cachekit.recipe.architecture import GENERIC_DEFAULTS, IRRELEVANT, SCALES, graph_fields
from cachekit.recipe.ingredients import SOFT_TRAINING, SOFT_VARIABLES
from cachekit.recipe.schema import Lora, Parallel, Training
from tests.key.key_cases import BERT, COMPILER, FINGERPRINT, ingredients

BASE = ingredients()


def another(kind, current):
    """Values of a field's type that are not its current one; from the schema, so that no field is forgotten."""
    info = msgspec.inspect
    if isinstance(kind, info.UnionType):
        return [value for part in kind.types for value in another(part, current)]
    if isinstance(kind, info.NoneType):
        values = [None]
    elif isinstance(kind, info.BoolType):
        values = [True, False]
    elif isinstance(kind, info.LiteralType):
        values = list(kind.values)
    elif isinstance(kind, info.IntType):
        values = [3, 5, 2**20]
    elif isinstance(kind, info.FloatType):
        values = [0.25, 0.5]
    elif isinstance(kind, info.StrType):
        values = ["elsewhere"]
    elif isinstance(kind, info.StructType):
        values = [{}, {"r": 4}]
    elif isinstance(kind, info.VarTupleType):
        values = [[value] for value in another(kind.item_type, None)]
    else:
        raise TypeError(f"a new kind of field: {kind}")
    return [value for value in values if value != current or isinstance(value, bool) != isinstance(current, bool)]


def fields_of(struct, current):
    return [
        (field.name, value)
        for field in msgspec.inspect.type_info(struct).fields
        for value in another(field.type, getattr(current, field.name))
        if field.name != "doc_stride" or value is None or value < current.max_seq_length
    ]


# Two spellings of one thing: what `auto`, or nothing at all, means for this recipe and target.
RESOLVED = [
    ("training", "bf16", False),
    ("parallel", "data_parallel_size", 1),
]
FIELD_CHANGES = [
    (section, field, value)
    for section, struct in (("training", Training), ("parallel", Parallel))
    for field, value in fields_of(struct, getattr(load(BERT), section))
]
# Recipes to whose models a field means something, where BERT's it does not.
BASES = {"image_size": zoo.recipe_path("resnet50")}


def for_task(section, field):
    """Overrides that make a recipe of a task to which the field means something."""
    if field in BASES:
        return []
    if section != "training" or field not in tasks.not_read("text-classification")["training"]:
        return []
    (task, *_) = tasks.readers(section, field)
    dropped = ("text_column", "label_column", "labels")
    room = [f"training.max_seq_length={2**22}"] if field == "doc_stride" else []  # it must fit into a row
    return [f"task={task}", *(f"data.{name}=null" for name in dropped), *room]


def beside(field, value):
    """What else a recipe must say, for a value to mean something."""
    if value is None:
        return []
    return {
        "eval_strategy": ["training.eval_steps=10"] if value == "steps" else [],
        "eval_steps": ["training.eval_strategy=steps"],
        "save_steps": ["training.save_strategy=steps"],
    }.get(field, [])


# This recipe cannot become one of images; see test_task_image_classification.py for the field that only they have.
def test_each_field_is_in_the_key_or_soft():
    for section, field, value in [change for change in FIELD_CHANGES if change[1] != "image_size"]:
        extra = beside(field, value)
        of_task, path = for_task(section, field), BASES.get(field, BERT)
        base = ingredients(*of_task, path=path)
        changed = ingredients(*of_task, f"{section}.{field}={json.dumps(value)}", *extra, path=path)
        soft = section == "training" and field in SOFT_TRAINING
        if soft or (section, field, value) in RESOLVED:
            assert changed.key == base.key, field
            assert changed.hard == base.hard
        else:
            assert changed.key != base.key, field
            (*changes,) = difference(base.hard, changed.hard)
            known = {
                "bf16": {"training.precision"},
                "per_device_train_batch_size": {
                    "training.per_device_train_batch_size",
                    "training.per_device_eval_batch_size",
                },
                "lora": {f"training.lora.{name}" for name in Lora.__struct_fields__}
                | {"training.lora", "toolchain.peft"},
            }
            assert {change.name for change in changes} == known.get(field, {f"{section}.{field}"})


def test_every_field_was_changed():
    names = {(section, field) for section, field, _ in FIELD_CHANGES}
    assert {field for section, field in names if section == "training"} == set(Training.__struct_fields__)
    assert {field for section, field in names if section == "parallel"} == set(Parallel.__struct_fields__)


def test_making_a_field_soft_is_a_deliberate_act():
    """A soft field that reaches a graph is a wrong hit: two runs would share what only one of them compiled."""
    hard = {
        *("per_device_train_batch_size", "per_device_eval_batch_size", "max_seq_length", "gradient_accumulation_steps"),
        *("bf16", "optim", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
        *("label_smoothing_factor", "gradient_checkpointing", "max_target_length", "lora"),
    }
    assert not hard & SOFT_TRAINING
    assert hard | SOFT_TRAINING <= set(Training.__struct_fields__)
    variables = {"MKL_NUM_THREADS", "NEURON_CC_FLAGS", "NEURON_FUSE_SOFTMAX", "XLA_FLAGS", "TORCHINDUCTOR_FREEZING"}
    assert not variables & set(SOFT_VARIABLES)
    assert all(reason.strip() for reason in [*SOFT_VARIABLES.values(), *IRRELEVANT.values()])


@pytest.mark.feature("K2")
def test_a_compiler_says_which_fields_reach_none_of_its_graphs():
    fingerprint = msgspec.structs.replace(FINGERPRINT, soft_training=frozenset({"optim"}))
    base, changed = ingredients(fingerprint=fingerprint), ingredients("training.optim=sgd", fingerprint=fingerprint)
    assert changed.key == base.key
    assert changed.soft["training.optim"] == "sgd"
    assert ingredients("training.optim=sgd").key != BASE.key
    assert ingredients("training.weight_decay=0.5", fingerprint=fingerprint).key != base.key


def test_soft_fields_are_recorded_beside_the_key():
    for field in sorted(SOFT_TRAINING - {"output_dir", "report_to"}):
        value = dict(fields_of(Training, load(BERT).training))[field]
        extra = beside(field, value)
        changed = ingredients(*for_task("training", field), f"training.{field}={json.dumps(value)}", *extra)
        assert changed.soft[f"training.{field}"] == value
        assert not {f"training.{field}"} & set(changed.hard)


def test_auto_means_what_the_target_has():
    strong = msgspec.structs.replace(FINGERPRINT, bf16=True, workers=2)
    assert ingredients(fingerprint=strong).hard["training.precision"] == "bf16"
    assert ingredients(fingerprint=strong).hard["parallel.data_parallel_size"] == 2
    assert (
        ingredients(fingerprint=strong).key
        == ingredients("training.bf16=true", "parallel.data_parallel_size=2", fingerprint=strong).key
    )
    assert ingredients("training.bf16=true").hard["training.precision"] == "bf16"
    assert ingredients(fingerprint=strong).key != BASE.key


def test_an_evaluation_batch_is_a_training_batch_unless_said():
    assert ingredients("training.per_device_eval_batch_size=16").key == BASE.key
    assert (
        ingredients("training.per_device_train_batch_size=8", "training.per_device_eval_batch_size=8").key
        == ingredients("training.per_device_train_batch_size=8").key
    )


CONFIG = {**GENERIC_DEFAULTS, **zoo.architecture_defaults("bert")}


def other_config_value(field, value):
    if isinstance(value, bool):
        return not value
    if "dropout" in field:
        return 0.25
    if field == "hidden_act":
        return "relu"
    if isinstance(value, dict):
        return {"0": [1]}
    if value is None or isinstance(value, int | float):
        return 7
    return "other"


def test_each_field_of_the_architecture_is_in_the_key():
    for field in sorted(CONFIG):
        now = BASE.hard.get(f"model.config.{field}", CONFIG[field])
        changed = ingredients(f"model.config.{field}={json.dumps(other_config_value(field, now))}")
        assert [change.name for change in difference(BASE.hard, changed.hard)] == [f"model.config.{field}"]
        assert ingredients(f"model.config.{field}={json.dumps(now)}").key == BASE.key


def test_what_reaches_no_graph_is_not_in_the_key():
    """A model's own config.json may say it; a recipe what has an effect, if only on the weights."""
    for field in sorted(IRRELEVANT):
        defaults = zoo.architecture_defaults("bert")
        assert graph_fields({**CONFIG, field: 7}, defaults) == graph_fields({**CONFIG, field: 8}, defaults)
        if field in SCALES:
            assert ingredients(f"model.config.{field}=7").key == BASE.key


def test_null_is_a_value_where_the_default_is_another():
    """`pad_token_id: null` makes an embedding without padding row: another graph than pad_token_id 0, the default."""
    assert CONFIG["pad_token_id"] == 0
    assert ingredients("model.config.pad_token_id=null").key != BASE.key
    assert CONFIG["classifier_dropout"] is None
    assert ingredients("model.config.classifier_dropout=null").key == BASE.key


def test_the_number_of_labels_is_in_the_key_and_their_names_are_not():
    assert ingredients("data.labels=[a, b, c, d, e, f]").key == BASE.key
    assert ingredients("data.labels=null", "data.num_labels=6").key == BASE.key
    changed = ingredients("data.labels=[a, b]")
    assert difference(BASE.hard, changed.hard) == [Change("model.num_labels", 6, 2)]


def test_what_says_which_rows_and_weights_is_not_in_the_key():
    for overrides in [
        ["name=other"],
        ["description=other"],
        ["model.id=google-bert/bert-base-uncased"],
        ["model.revision=abc"],
        ["model.from_config=true"],
        ["model.tokenizer=roberta-base"],
        ["data.id=other/data", "data.config=c", "data.revision=r"],
        ["data.id=null", "data.path=/somewhere"],
        ["data.text_column=tweet", "data.label_column=mood"],
        ["data.text_pair_column=context"],
        ["data.train_split=a", "data.validation_split=b", "data.test_split=null"],
        ["data.id=null", "data.train_file=/rows.csv", "data.encoding=latin-1", "data.delimiter=;"],
        [
            "data.validation_split=null",
            "data.validation_fraction=0.3",
            "data.max_train_samples=9",
            "data.max_eval_samples=9",
        ],
        ["expect=[]"],
        ["compiler.name=inductor"],
    ]:
        assert ingredients(*overrides).key == BASE.key


def test_another_architecture_is_another_key():
    keys = {ingredients(f"model.id={name}").key for name in zoo.models()}
    assert len(keys) == len(zoo.models())


@pytest.mark.feature("K3")
def test_a_fine_tune_in_a_folder_shares_the_key_of_its_model(tmp_path):
    """Saved by a library of another version: label names, paths and defaults spelt out."""
    entry = zoo.model("bert-base-uncased")
    saved = {
        **CONFIG,
        **entry.config,
        "_name_or_path": "/home/somebody/model",
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "a", "1": "b"},
        "label2id": {"a": 0, "b": 1},
        "transformers_version": "4.57.6",
        "torch_dtype": "float32",
    }
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
        assert ingredients(f"model.path={folder}").key == BASE.key


@pytest.mark.feature("K1")
def test_a_bumped_compiler_is_another_key_and_the_same_one_is_not():
    for change in [
        {"toolchain": {**FINGERPRINT.toolchain, "fakec": "1.1"}},
        {"toolchain": {**FINGERPRINT.toolchain, "fakec": "1.0.0"}},
        {"toolchain": {**FINGERPRINT.toolchain, "fakec": "1.0+cpu"}},
        {"toolchain": {**FINGERPRINT.toolchain, "python": "cpython 3.12"}},
        {"toolchain": {**FINGERPRINT.toolchain, "new": ""}},
        {"target": {**FINGERPRINT.target, "isa": ["avx"]}},
        {"target": {**FINGERPRINT.target, "machine": "aarch64"}},
        {"target": {**FINGERPRINT.target, "gpu": "H200"}},
        {"compiler": "other"},
    ]:
        bumped = msgspec.structs.replace(FINGERPRINT, **change)
        assert ingredients(fingerprint=bumped).key != BASE.key
        assert ingredients(fingerprint=msgspec.structs.replace(FINGERPRINT)).key == BASE.key
        (name,) = change
        prefix = {"compiler": "compiler.name"}.get(name, name)
        assert all(c.name.startswith(prefix) for c in difference(BASE.hard, ingredients(fingerprint=bumped).hard))


def test_soft_versions_are_recorded_beside_the_key():
    other = msgspec.structs.replace(FINGERPRINT, soft={"numpy": "3.0"}, directory="fake-1.0-elsewhere")
    assert ingredients(fingerprint=other).key == BASE.key
    assert ingredients(fingerprint=other).soft["toolchain.numpy"] == "3.0"


def test_flags_options_and_the_compilers_variables_are_in_the_key():
    for compiler in [
        {**COMPILER, "options": {"a": 2}},
        {**COMPILER, "options": {"a": 1, "b": 1}},
        {**COMPILER, "options": {}},
        {**COMPILER, "options": {"b": 1}},
        {**COMPILER, "threads": 3},
        {**COMPILER, "environment": {"FAKE_VERBOSE": "2"}},
        {**COMPILER, "environment": {}},
        {**COMPILER, "flags": ["-O1", "-b"]},
        {**COMPILER, "flags": ["-b", "-O1"]},
        {},
    ]:
        changed = ingredients(compiler=compiler)
        assert changed.key != BASE.key
        assert all(change.name.startswith("compiler.") for change in difference(BASE.hard, changed.hard))


def test_variables_that_reach_no_graph_are_not_in_the_key():
    for variable in sorted(SOFT_VARIABLES):
        changed = ingredients(f"environment.{variable}=7")
        assert changed.key == BASE.key
        assert f"environment.{variable}" in changed.soft


@pytest.mark.parametrize("variable", ["NEURON_CC_FLAGS", "MKL_NUM_THREADS", "XLA_USE_BF16", "TORCHINDUCTOR_X"])
def test_any_other_variable_is_in_the_key(variable):
    changed = ingredients(f"environment.{variable}=7")
    assert difference(BASE.hard, changed.hard) == [Change(f"environment.{variable}", ABSENT, "7")]
    assert ingredients(f"environment.{variable}='7'").key == changed.key
    assert ingredients(f"environment.{variable}=8").key != changed.key


@pytest.mark.feature("T7")
def test_of_a_variable_that_nobody_knows_or_that_holds_a_secret_the_key_has_a_hash():
    for override in [
        "X=hush me",
        "hf_home=hush me",
        "HTTPS_PROXY=http://ann:hush@proxy:3128",
        "HF_HOME=https://ann:hush@host/x",
        # Of others, and yet with the beginning of a name that compilers and libraries read.
        *(f"{name}=hush-99" for name in ("TF_VAR_vpn", "TF_CLI_ARGS_plan", "LANGFUSE_LOGIN", "TORCHSERVE_ADMIN")),
        *(f"{name}=hush-99" for name in ("HF_HUB_LOGIN", "LC_LOGIN", "PYTHONANYWHERE_LOGIN", "TZ_LOGIN")),
    ]:
        name, _, value = override.partition("=")
        changed, again = (ingredients(f"environment.{override}") for _ in range(2))
        found = {**changed.hard, **changed.soft}[f"environment.{name}"]
        assert is_hashed(found)
        assert value not in str(changed)
        assert changed == again
        other = ingredients(f"environment.{override}8")
        assert {**other.hard, **other.soft}[f"environment.{name}"] != found


@pytest.mark.parametrize("depth", [50, 150, 250, 350, 450])
def test_what_can_be_read_can_be_hashed(depth):
    """Or is refused with an error of ours, wherever the limit of nesting lies."""
    override = f"model.config.hidden_size={'[' * depth}{']' * depth}"
    try:
        load(BERT, [override])
    except CachekitError:
        return
    assert ingredients(override).key != BASE.key
