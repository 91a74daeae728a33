"""The zoo's models and the defaults of their architectures, compared with the installed Transformers."""

import json
from copy import deepcopy

import pytest

from cachekit.recipe import model_config, zoo
from cachekit.recipe.architecture import GENERIC_DEFAULTS, IRRELEVANT, graph_fields
from cachekit.recipe.model_config import GENERATION
from tests.recipe.zoo_cases import REGISTRY
from tests.support.places import real_dir

pytestmark = pytest.mark.versions

MODELS = zoo.models()
ALIASES = [(alias, entry.id) for entry in MODELS.values() for alias in entry.aliases]
TYPES = sorted(path.stem for path in (REGISTRY / "architectures").glob("*.yaml"))

# The places where registry/architectures departs from the classes, with the reasons in its README.
NOT_IN_EVERY_VERSION = {
    "position_embedding_type": "absolute",  # until 4.x
    "scale_decoder_outputs": True,  # from 5.x on
}
NO_CONSTANT = {"pooler_hidden_size"}
OF_EVERY_DECODER = {"decoder_start_token_id"}  # in no class of its own


# A null there: the default follows from other fields.
DERIVED = {
    "granite": {"num_key_value_heads"},
    "llama": {"head_dim", "num_key_value_heads"},
    "mistral": {"head_dim"},
    "qwen3": {"layer_types"},
}


# Models


def test_each_model_stands_in_the_file_of_its_id():
    files = {path.stem for path in (REGISTRY / "models").iterdir()}
    assert files == {model_id.replace("/", "--") for model_id in MODELS}
    assert all(zoo.model(model_id) == entry for model_id, entry in MODELS.items())


def test_no_name_stands_for_two_models():
    names = [*MODELS, *(alias for alias, _ in ALIASES)]
    assert sorted(names) == sorted(set(names))


def test_an_alias_resolves():
    for alias, model_id in ALIASES:
        assert zoo.model(alias) == MODELS[model_id]


@pytest.mark.parametrize(
    "name, model_id",
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("camembert-base", "almanach/camembert-base"),
        ("roberta-base", "FacebookAI/roberta-base"),
        ("distilbert-base-uncased", "distilbert/distilbert-base-uncased"),
    ],
)
def test_the_short_names_of_tutorials_are_known(name, model_id):
    entry = zoo.model(name)
    assert entry is not None
    assert entry.id == model_id


def test_a_models_config_holds_what_may_reach_a_graph():
    for entry in MODELS.values():
        fields = set(entry.config) - {"model_type"}
        assert entry.config["model_type"] in TYPES
        known = {*zoo.architecture_defaults(entry.config["model_type"]), *GENERIC_DEFAULTS, *OF_EVERY_DECODER}
        assert fields <= known, "a misspelt field?"
        assert not fields & set(IRRELEVANT)
        assert None not in entry.config.values()


def test_a_config_saved_by_transformers_has_the_entrys_graph_fields():
    """A fine-tune saved by Transformers spells out other defaults; that must not make it another key."""
    for entry in MODELS.values():
        transformers = pytest.importorskip("transformers")
        saved = json.loads(transformers.AutoConfig.for_model(**deepcopy(entry.config)).to_json_string(use_diff=True))
        defaults = zoo.architecture_defaults(entry.config["model_type"])
        assert graph_fields(saved, defaults) == graph_fields(entry.config, defaults)


def test_a_models_number_of_parameters():
    for entry in MODELS.values():
        writes = "causal-lm" in entry.tasks
        assert _parameters("AutoModelForCausalLM" if writes else "AutoModel", entry.config) == entry.parameters


# What their authors, or torchvision's and timm's pages, publish, with the heads that they count in.
PUBLISHED = {
    "facebook/bart-base": ("AutoModelForSeq2SeqLM", {}, 139_420_416),
    "facebook/bart-large": ("AutoModelForSeq2SeqLM", {}, 406_291_456),
    "google-t5/t5-small": ("AutoModelForSeq2SeqLM", {}, 60_506_624),
    "google-t5/t5-base": ("AutoModelForSeq2SeqLM", {}, 222_903_552),
    "google/vit-base-patch16-224": ("AutoModelForImageClassification", {"num_labels": 1000}, 86_567_656),
    "facebook/deit-base-distilled-patch16-224": (
        "DeiTForImageClassificationWithTeacher",
        {"num_labels": 1000},
        87_338_192,
    ),
    "microsoft/resnet-50": ("AutoModelForImageClassification", {"num_labels": 1000}, 25_557_032),
    "google/efficientnet-b0": ("AutoModelForImageClassification", {"num_labels": 1000}, 5_288_548),
}


def test_a_model_has_the_published_number_of_parameters():
    for name, (auto, head, count) in PUBLISHED.items():
        assert _parameters(auto, MODELS[name].config, **head) == count


def _parameters(auto_class, config, **kwargs):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoConfig.for_model(**deepcopy(config), **kwargs)  # Transformers writes into nested ones
    cls = getattr(transformers, auto_class)
    with torch.device("meta"):
        model = cls.from_config(made) if auto_class.startswith("Auto") else cls(made)
    return sum(parameter.numel() for parameter in model.parameters())


# Architecture defaults


def test_architecture_defaults_are_those_of_the_installed_transformers():
    for model_type in TYPES:
        transformers = pytest.importorskip("transformers")
        generic = transformers.PretrainedConfig().to_dict()
        theirs = transformers.CONFIG_MAPPING[model_type]().to_dict()
        theirs |= dict.fromkeys(DERIVED.get(model_type, ()))
        ours = zoo.architecture_defaults(model_type)
        if "rope_theta" in theirs:  # as Transformers 4 has it
            theirs["rope_parameters"] = {"rope_theta": theirs.pop("rope_theta"), "rope_type": "default"}

        specific = {name for name, value in theirs.items() if value is not None and name not in generic}
        follows = {
            name for name, value in model_config.derived(model_type, theirs).items() if theirs.get(name) == value
        }
        assert specific - set(IRRELEVANT) - NO_CONSTANT - GENERATION - follows <= set(ours)
        assert {name: ours[name] for name in follows & set(ours)} == dict.fromkeys(follows & set(ours))
        theirs |= dict.fromkeys(follows)
        assert {name: theirs.get(name, NOT_IN_EVERY_VERSION.get(name)) for name in ours} == ours


def test_a_default_left_out_and_spelt_out_are_the_same_architecture():
    defaults = zoo.architecture_defaults("roberta")
    entry = MODELS["FacebookAI/roberta-base"]
    assert "position_embedding_type" not in entry.config
    by_transformers_4 = {
        **entry.config,
        "position_embedding_type": "absolute",
        "_name_or_path": "roberta-base",
    }
    assert graph_fields(by_transformers_4, defaults) == graph_fields(entry.config, defaults)
    relative = {**entry.config, "position_embedding_type": "relative_key"}
    assert graph_fields(relative, defaults) != graph_fields(entry.config, defaults)


@pytest.mark.parametrize(
    "model_type, said, spelt",
    [
        ("bart", {"encoder_layers": 6}, {"encoder_layers": 6, "num_hidden_layers": 6, "num_beams": 4}),
        ("t5", {"num_layers": 2}, {"num_layers": 2, "num_decoder_layers": 2, "is_gated_act": False}),
        ("t5", {"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new"}),
        ("vit", {"hidden_size": 96}, {"hidden_size": 96, "pooler_output_size": 96}),
        ("resnet", {"depths": [1, 1]}, {"depths": [1, 1], "out_features": ["stage2"], "out_indices": [2]}),
    ],
)
def test_what_repeats_another_field_is_no_other_architecture(model_type, said, spelt):
    defaults = zoo.architecture_defaults(model_type)
    one, other = ({"model_type": model_type, **fields} for fields in (said, spelt))
    assert graph_fields(one, defaults) == graph_fields(other, defaults)
    changed = {**other, list(spelt)[1]: 3}
    assert graph_fields(changed, defaults) != graph_fields(other, defaults)


def test_a_config_that_transformers_saves_is_the_architecture_of_its_defaults():
    for model_type in ["bart", "t5", "marian", "mbart", "vit", "deit", "resnet", "efficientnet"]:
        transformers = pytest.importorskip("transformers")
        saved = json.loads(transformers.CONFIG_MAPPING[model_type]().to_json_string(use_diff=False))
        defaults = zoo.architecture_defaults(model_type)
        generic = transformers.PretrainedConfig().to_dict()
        spelt = {
            name: value for name, value in saved.items() if name not in generic or name in {*defaults, "model_type"}
        }
        assert graph_fields(spelt, defaults) == graph_fields({"model_type": model_type}, defaults)


@pytest.mark.feature("K4")
@pytest.mark.parametrize(
    "by_4, by_5",
    [
        (
            {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "head_dim": 128},
            {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0}},
        ),
        ({"rope_theta": 10000, "rope_scaling": None, "num_key_value_heads": 32}, {}),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ],
)
def test_what_versions_spell_differently_is_the_same_architecture(by_4, by_5):
    defaults = zoo.architecture_defaults("llama")
    config = {"model_type": "llama", "num_attention_heads": 32, "hidden_size": 4096}
    assert graph_fields({**config, **by_4}, defaults) == graph_fields({**config, **by_5}, defaults)
    other = {**config, **by_5, "head_dim": 64, "num_key_value_heads": 8, "rope_theta": 7.0}
    assert graph_fields({**config, **by_4}, defaults) != graph_fields(other, defaults)


# Recipes


def test_the_models_of_a_peers_public_cache_are_known():
    """Of opus-mt-es-en no config can be read that is sure to be of today: a wrong key would be worse than none."""
    theirs = json.loads((real_dir("registry") / "training-cache-models.extracted.json").read_text())
    named = {model for models in theirs.values() for model in models}
    assert {name for name in named if zoo.model(name) is None} == {"Helsinki-NLP/opus-mt-es-en"}
