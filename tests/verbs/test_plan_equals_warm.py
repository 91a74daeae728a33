"""What `plan` says is what `warm` then does: hit or compile, from which cache, how many bytes, which modules."""

from __future__ import annotations

import random
import shutil

import pytest
from msgspec import structs

from cachekit.recipe.schema import Compiler, Parallel
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import planned
from cachekit.verbs.warm import warm
from tests.remotes.storage_processes import serve
from tests.support.processes import memory_folder
from tests.support.real_machine import Machine
from tests.support.standins import StandIn, Watched, compiles, recipe, tick

EDITS = 200

# Each takes a recipe and chance, and gives the recipe after one edit, of what reaches a key and of what does not.
TRAINING = {
    "per_device_train_batch_size": [2, 4, 8],
    "per_device_eval_batch_size": [None, 4],
    "max_seq_length": [16, 32, 64],
    "bf16": [True, False],
    "optim": ["adamw_torch", "sgd"],
    "gradient_accumulation_steps": [1, 2],
    "label_smoothing_factor": [0.0, 0.1],
    # Of these none makes another graph.
    "learning_rate": [1e-5, 5e-5],
    "seed": [1, 2],
    "num_train_epochs": [1.0, 3.0],
    "save_steps": [10, 500],
}


def edited(wanted, dice):
    kind = dice.choice(["training", "training", "training", "labels", "layers", "flags", "name", "parallel"])
    if kind == "training":
        name = dice.choice(sorted(TRAINING))
        return structs.replace(wanted, training=structs.replace(wanted.training, **{name: dice.choice(TRAINING[name])}))
    if kind == "labels":
        labels = dice.choice([("no", "yes"), ("nein", "ja"), ("a", "b", "c")])
        return structs.replace(wanted, data=structs.replace(wanted.data, labels=labels))
    if kind == "layers":
        config = {"num_hidden_layers": dice.choice([1, 2, 6])}
        return structs.replace(wanted, model=structs.replace(wanted.model, config=config))
    if kind == "flags":
        return structs.replace(
            wanted, compiler=Compiler(flags=dice.choice([(), ("-O1",), ("-O1", "-g"), ("-g", "-O1")]))
        )
    if kind == "parallel":
        return structs.replace(wanted, parallel=Parallel(data_parallel_size=dice.choice([1, 2])))
    return structs.replace(wanted, name=dice.choice(["toy", "other"]))


class Team:
    """Two members with a remote, whose machines and stores are renewed, damaged and upgraded in between."""

    def __init__(self, folder, make, dice):
        self._folder, self._make, self._dice = folder, make, dice
        self._homes = {"ann": 0, "bob": 0}
        self._versions = {"ann": "1.0", "bob": "1.0"}

    def happen(self):
        """Something other than an edit, sometimes."""
        name, event = self._dice.choice(sorted(self._homes)), self._dice.random()
        home = self._folder / f"{name}-{self._homes[name]}"
        if event < 0.03:
            self._homes[name] += 1
            shutil.rmtree(home, ignore_errors=True)
        elif event < 0.06:
            self._versions[name] = self._dice.choice(["1.0", "2.0"])
        elif event < 0.16 and (blobs := sorted((home / "v1" / "blobs").glob("*/*"))):
            blob = self._dice.choice(blobs)
            if event < 0.11:
                blob.unlink()
            else:
                tick(blob)
                blob.chmod(0o600)
                blob.write_bytes(b"?" + blob.read_bytes()[1:])

    def member(self):
        name = self._dice.choice(sorted(self._homes))
        home = self._folder / f"{name}-{self._homes[name]}"
        # Without reuse: of a miss it can leave nothing to compile, which no plan knows before.
        return Watched(home, compiler=StandIn(self._versions[name]), shared=[(self._make(), "rw")]).limit(0)


@pytest.mark.campaign
@pytest.mark.feature("P1")
@pytest.mark.parametrize("edits", [60, pytest.param(EDITS, marks=pytest.mark.slow)])
def test_random_edits(monkeypatch, edits):
    dice = random.Random(6)
    with memory_folder() as folder, serve("folder", folder / "server") as make:
        log = folder / "log"
        monkeypatch.setenv("STANDIN_LOG", str(log))
        team, wanted, history = Team(folder, make, dice), recipe(), [recipe()]
        seen = {"hit here": 0, "hit there": 0, "fetched in part": 0, "miss": 0}
        for number in range(edits):
            team.happen()
            wanted = edited(dice.choice(history) if dice.random() < 0.3 else wanted, dice)
            history.append(wanted)
            watched = team.member()
            prepared = watched.prepare(wanted)
            said = planned(plan(prepared, watched.store, watched.session.remotes)).as_dict()
            before = len(compiles(log))
            done = warm(watched.session, prepared)

            compiled = len(compiles(log)) - before
            fetched = sum(told["bytes"] for told in watched.told("pull.start"))
            case = (number, wanted)
            assert (said["status"] == "hit") == (compiled == 0) == (done.compiled == 0), case
            assert said["fetch_bytes"] == fetched, case
            assert [told["remote"] for told in watched.told("pull.end")] == [said["remote"]] * (
                said["remote"] not in {"", "local"}
            )
            assert said["key"] == done.record.key, case
            if said["status"] == "hit":
                assert said["modules"] == [
                    {**module, "name": kept.name, "bytes": sum(file.size for file in kept.files)}
                    for module, kept in zip(said["modules"], done.record.modules, strict=True)
                ], case
                assert {module["remote"] for module in said["modules"]} <= {said["remote"], "local"}, case
                assert sum(module["fetch_bytes"] for module in said["modules"]) == said["fetch_bytes"], case
                assert said["graphs"] == done.record.graphs, case
            after = planned(plan(prepared, watched.store, watched.session.remotes)).as_dict()
            assert (after["status"], after["remote"], after["fetch_bytes"]) == ("hit", "local", 0), case
            assert {module["remote"] for module in after["modules"]} == {"local"}, case
            kind = "miss" if said["status"] == "miss" else "hit here" if said["remote"] == "local" else "hit there"
            seen[kind] += 1
            seen["fetched in part"] += 0 < said["fetch_bytes"] < said["bytes"]
    # How often something is fetched in part differs from run to run: which blobs are damaged goes by their digests.
    mixed = {kind: count for kind, count in seen.items() if kind != "fetched in part"}
    assert all(count >= 3 for count in mixed.values()), f"the edits are not as mixed as they should be: {seen}"


SLOW_EDITS = [
    ("--set", "training.learning_rate=0.1"),
    ("--set", "training.seed=7", "--set", "training.max_steps=9"),
    ("--set", "training.per_device_eval_batch_size=4"),
    ("--set", "data.labels=[calm, loud, silent]"),
    ("--set", "training.per_device_eval_batch_size=4", "--set", "training.save_steps=2"),
]


@pytest.mark.slow
@pytest.mark.feature("P1", "P3")
def test_edits_with_real_compiles(tmp_path):
    """Two of them compile; each estimate has records of the same compiler on this machine to go by."""
    machine = Machine(tmp_path)
    machine.recipe()
    machine("warm", "tiny.yaml")
    statuses = []
    for edit in SLOW_EDITS:
        told = machine("plan", "tiny.yaml", *edit)
        done = machine("warm", "tiny.yaml", *edit)
        statuses.append(told["status"])
        assert told["key"] == done["key"]
        assert (told["status"] == "hit") == (done["compiled"] == 0) == (done["status"] == "hit")
        if told["status"] == "miss":
            assert told["expected"]["key"]
            assert told["expected_seconds"] > 0
        else:
            assert told["graphs"] == done["graphs"]
            assert [one["name"] for one in told["modules"]] == [one["name"] for one in done["modules"]]
        assert machine("plan", "tiny.yaml", *edit)["status"] == "hit"
    assert statuses == ["hit", "hit", "miss", "miss", "hit"]
