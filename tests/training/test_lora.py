"""LoRA: adapters beside frozen weights, in graphs of their own, saved alone, and gone on from."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from cachekit.errors import RecipeError
from cachekit.training import checkpoints
from tests.training.grids import representative
from tests.training.jobs import ready, train_here, uncompiled  # noqa: F401 - a fixture
from tests.training.language_models import dumped, graphs, lm_job
from tests.training.tasks.test_causal_lm import DECODERS, ROWS

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed"),
]
LORA = {"r": 4, "lora_alpha": 8}


def lora_job(folder, *, model_type="llama", lora=LORA, **given):
    return lm_job(folder, "causal-lm", ROWS, model_type=model_type, lora=lora, **given)


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


@pytest.mark.feature("F1")
@pytest.mark.parametrize("model_type", representative(DECODERS, ["llama"]))
def test_only_adapters_are_trained_in_one_graph(tmp_path, model_type):
    named = {"target_modules": ["q_proj", "v_proj"]} if model_type == "granite" else {}  # PEFT has no choice for it
    work, model = ready(lora_job(tmp_path, model_type=model_type, lora={**LORA, **named}))
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert graphs(work, model) == 2


@pytest.mark.feature("F1")
@pytest.mark.parametrize("model_type", representative(["gpt2", "llama"], ["llama"]))
def test_gradients_reach_adapters_through_checkpointing(tmp_path, uncompiled, model_type):
    """The embeddings are frozen: what is computed again got no gradient from them."""
    done = {}
    for checkpointing in (True, False):
        folder = tmp_path / str(checkpointing)
        made = lora_job(
            folder, model_type=model_type, gradient_checkpointing=checkpointing, learning_rate=0.1, max_steps=4
        )
        done[checkpointing] = train_here(made).metrics["test"]["loss"]
        changed = [value.abs().sum() > 0 for name, value in weights(folder / "out").items() if "lora_B" in name]
        assert changed
        assert all(changed)
    assert done[True] == pytest.approx(done[False], abs=1e-4)


@pytest.mark.feature("F1")
@pytest.mark.parametrize("model_type", representative(["gpt2", "llama"], ["llama"]))
def test_checkpointing_leaves_it_one_graph(tmp_path, model_type):
    work, model = ready(lora_job(tmp_path, model_type=model_type, gradient_checkpointing=True))
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable()
    assert graphs(work, model) == 2


def test_the_first_values_follow_from_the_seed(tmp_path):
    import torch

    found = []
    for number, seed in enumerate([1, 1, 2]):
        torch.rand(number)
        model = ready(lora_job(tmp_path / str(number), seed=seed))[1]
        found.append(torch.cat([value.flatten() for name, value in model.named_parameters() if "lora_A" in name]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_run_that_was_stopped_goes_on_with_its_adapters(tmp_path, uncompiled, monkeypatch):
    given = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4, "eval_strategy": "no"}
    given |= {"learning_rate": 0.05, "save_total_limit": 5}
    whole = train_here(lora_job(tmp_path, **given))
    output = tmp_path / "out"
    saved = {path.name for path in output.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json"} <= saved
    assert not saved & {"model.safetensors", "pytorch_model.bin"}, "the model itself did not change"
    last, first = checkpoints.checkpoints(output)
    assert [checkpoints.flaw(one) for one in (last, first)] == ["", ""]
    again = train_here(lora_job(tmp_path, resume=first, **given))
    assert again.steps == whole.steps
    assert again.metrics["test"]["loss"] == pytest.approx(whole.metrics["test"]["loss"], abs=1e-5)
    adapter = first / "adapter_model.safetensors"
    adapter.write_bytes(adapter.read_bytes()[:-1])
    assert checkpoints.flaw(first) == "adapter_model.safetensors is truncated"
    adapter.unlink()
    assert checkpoints.flaw(first) == "it has no weights"


@pytest.mark.filterwarnings("default")  # of peft, which the test calls itself
def test_a_saved_adapter_is_loaded_by_peft_and_asked_nobody(tmp_path, uncompiled, monkeypatch):
    """PEFT asked the Hub for the base model's config, six times where there is no network."""
    import peft.utils.save_and_load as saving
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = ready(lm_job(tmp_path / "base", "causal-lm", ROWS, model_type="llama"))[1]
    base.save_pretrained(tmp_path / "model")
    asked = []
    for name in ("check_file_exists_on_hf_hub", "file_exists"):
        if hasattr(saving, name):
            monkeypatch.setattr(saving, name, lambda *given, **_: asked.append(given))
    made = lora_job(tmp_path / "run", weights=tmp_path / "model", learning_rate=0.1)
    said = tmp_path / "model" / "config.json"
    hidden = said.rename(tmp_path / "model" / "elsewhere.json")
    seen = dumped(monkeypatch)
    train_here(made)
    assert asked == []
    hidden.rename(said)
    assert not any("embed" in name for name in weights(tmp_path / "run" / "out"))
    config = json.loads((tmp_path / "run" / "out" / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (4, str(tmp_path / "model"))
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "model"), tmp_path / "run/out")
    batch, logits = seen[-1]
    with torch.no_grad():
        assert torch.allclose(loaded.eval()(**batch).logits, logits, atol=1e-5)


@pytest.mark.parametrize(
    "names, said",
    [
        (["no_such_layer"], "training.lora.target_modules: this llama model has no layer 'no_such_layer'"),
        (["q_proj", "qproj"], "training.lora.target_modules: this llama model has no layer 'qproj'"),
        (["all-linear", "q_proj"], "all-linear means all of them"),
        (["self_attn"], "PEFT puts no adapter into this llama model"),
    ],
)
def test_layers_that_are_not_there_are_refused(tmp_path, names, said):
    with pytest.raises(RecipeError, match=said) as refused:
        ready(lora_job(tmp_path, lora={**LORA, "target_modules": names}))
    assert "training.lora.target_modules" in refused.value.hint


def test_layers_can_be_named(tmp_path):
    for names, layers in ((["q_proj", "down_proj"], 2), (["all-linear"], 7)):
        model = ready(lora_job(tmp_path, lora={**LORA, "target_modules": names}))[1]
        assert sum("lora_A" in name for name, _ in model.named_parameters()) == layers


def test_a_family_that_peft_has_no_choice_for_needs_names(tmp_path):
    with pytest.raises(RecipeError, match="PEFT puts no adapter into this granite model") as refused:
        ready(lora_job(tmp_path, model_type="granite"))
    assert "q_proj" in refused.value.hint
