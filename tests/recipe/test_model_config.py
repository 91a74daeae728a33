"""What a model's config may say, in a file from anywhere and in a recipe's changes of it."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.prepare import prepare
from cachekit.errors import CachekitError, RecipeError
from cachekit.events import Journal
from cachekit.recipe import architecture, load_text, model_config, zoo
from cachekit.store import Store
from cachekit.verbs.plan import plan

pytestmark = pytest.mark.versions

TEXT = """
name: toy
model: {id: sentence-transformers/all-MiniLM-L6-v2}
data: {id: nobody/nothing, labels: ["no", "yes"]}
"""
FOLDER = """
name: toy
model: {path: %s}
data: {id: nobody/nothing, labels: ["no", "yes"]}
"""
MODELS = zoo.models()


def resolved(*overrides):
    return architecture.resolve(load_text(TEXT, [f"model.config.{override}" for override in overrides]))


def planned(tmp_path, raw):
    """The plan of a model whose config is these bytes."""
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "config.json").write_bytes(raw)
    recipe = load_text(FOLDER % (tmp_path / "model"))
    return plan(prepare(recipe, Inductor()), Store(tmp_path / "store", Journal(None, "test")))


# A stranger's file


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"model_type": "../../../../tmp/evil"}', "model_type '../../../../tmp/evil'"),
        (b'{"model_type": "bert\\u0000"}', "model_type 'bert"),
        (b'{"model_type": ".."}', "model_type '..'"),
        (b'{"model_type": "a/b"}', "model_type 'a/b'"),
        (b'{"model_type": ["bert"]}', "no model_type"),
        (b'{"hidden_size": 3}', "no model_type"),
        (b'{"model_type": "bert", "layer_norm_eps": NaN}', "'layer_norm_eps'"),
        (b'{"model_type": "bert", "layer_norm_eps": -Infinity}', "'layer_norm_eps'"),
        (b'{"model_type": "bert", "x": {"y": ["\\ud800"]}}', "'x'"),
        (b'{"model_type": "bert", "\\ud800": 1}', "cannot be used"),
        (b'{"model_type": "bert", "x": 1' + b"0" * 30 + b"}", "'x'"),
        (b'{"model_type": "bert", "x": 1' + b"0" * 5000 + b"}", "cannot be read"),
        (b'{"model_type": "bert", "x": ' + b"[" * 60 + b"]" * 60 + b"}", "'x'"),
        (b'{"model_type": "bert", "x": ' + b'{"a":' * 60 + b"1" + b"}" * 60 + b"}", "'x'"),
        (b'{"model_type": "bert", "x": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", "is not a model config"),
        (b'{"model_type": "bert", "hidden_size": -384}', "hidden_size is -384"),
        (b'{"model_type": "bert", "hidden_dropout_prob": 3}', "hidden_dropout_prob is 3"),
        (b"[1]", "is not a model config"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "cannot be read"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_a_config_that_cannot_be_is_refused_by_name(tmp_path, raw, said):
    with pytest.raises(RecipeError) as caught:
        planned(tmp_path, raw)
    assert said in caught.value.message
    caught.value.message.encode()


def test_a_config_with_a_byte_order_mark_is_read(tmp_path):
    assert planned(tmp_path, b'\xef\xbb\xbf{"model_type": "bert"}').prepared.model_type == "bert"


TEXTS = st.text(st.characters(), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50)
@given(VALUES, st.sampled_from(["model_type", "hidden_size", "hidden_act", "num_attention_heads", "x"]))
def test_whatever_a_config_holds_there_is_a_key_or_an_error_of_ours(tmp_path_factory, value, field):
    """Never an exception that nobody meant, and never a model type that leaves its folder."""
    raw = json.dumps({"model_type": "bert", field: value}).encode()
    with suppress(CachekitError):
        found = planned(tmp_path_factory.mktemp("any"), raw)
        assert "/" not in found.prepared.model_type
        assert len(found.prepared.key) == 64


# A recipe's changes


def test_a_change_that_no_model_can_have_is_refused_at_once():
    for override, expected in [
        ("num_hidden_layers=two", "a whole number"),
        ("num_hidden_layers='2'", "a whole number"),
        ("num_hidden_layers=2.0", "a whole number"),
        ("num_hidden_layers=true", "a whole number"),
        ("num_hidden_layers=null", "a whole number"),
        ("num_hidden_layers=0", "1 or more"),
        ("vocab_size=-1", "1 or more"),
        ("vocab_size=99999999999999", "below"),
        ("hidden_size={a: 1}", "a whole number"),
        ("hidden_size=[384]", "a whole number"),
        ("hidden_dropout_prob=1.5", "from 0 to 1"),
        ("hidden_dropout_prob=often", "a number"),
        ("layer_norm_eps=small", "a number"),
        ("is_decoder=1", "true or false"),
        ("position_embedding_type=1", "a text"),
        ("hidden_act=nope", "an activation"),
        ("hidden_act=1", "a text"),
        ("pruned_heads=[1]", "a mapping"),
    ]:
        with pytest.raises(RecipeError) as caught:
            resolved(override)
        assert caught.value.message.startswith(f"model.config.{override.partition('=')[0]} is ")
        assert expected in caught.value.cause


def test_the_nearest_activation_is_named():
    with pytest.raises(RecipeError) as caught:
        resolved("hidden_act=geluu")
    assert caught.value.hint == "did you mean gelu?"


def test_a_change_that_a_model_can_have_is_taken():
    for override in [
        *("num_hidden_layers=2", "hidden_act=relu", "hidden_dropout_prob=0", "layer_norm_eps=1e-5"),
        *("pad_token_id=null", "classifier_dropout=null", "classifier_dropout=0.1", "eos_token_id=3"),
        *("is_decoder=true", "pruned_heads={'0': [1]}"),
    ]:
        assert resolved(override).config[override.partition("=")[0]] != "unset"


def test_every_model_of_the_registry_passes():
    for model_id in sorted(MODELS):
        config = MODELS[model_id].config
        defaults = zoo.architecture_defaults(config["model_type"])
        model_config.check(config, config, defaults, "registry")
        model_config.check(defaults, {}, defaults, "registry")


def test_the_activations_are_those_of_transformers():
    from transformers.activations import ACT2FN

    assert set(ACT2FN) <= model_config.ACTIVATIONS


def test_every_family_of_transformers_has_a_name_that_passes():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    for name in CONFIG_MAPPING_NAMES:
        assert model_config.model_type({"model_type": name}, "transformers") == name


def test_what_reaches_no_model_is_refused_in_a_recipe():
    """It was taken, and nothing came of it."""
    for name in sorted(architecture.NO_EFFECT):
        with pytest.raises(RecipeError, match=f"model.config.{name} has no effect") as refused:
            resolved(f"{name}=1")
        assert refused.value.cause == architecture.IRRELEVANT[name]
        place = architecture.ELSEWHERE.get(name)
        assert refused.value.hint == (f"set {place} instead" if place else f"remove model.config.{name}")


def test_the_scale_of_random_weights_has_an_effect():
    assert resolved("initializer_range=0.5").config["initializer_range"] == 0.5


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_config_that_is_no_regular_file_is_refused_unread(tmp_path, kind):
    path = tmp_path / "config.json"
    if kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(RecipeError, match="cannot be read") as refused:
        model_config.read(path)
    assert refused.value.cause == "it is not a regular file"
    assert "model.path" in refused.value.hint
