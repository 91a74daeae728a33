"""On a Neuron host that is stood in for: the root that all runs share does not hide where a module came from."""

from __future__ import annotations

import pytest

from tests.compilers.neuron.neuron_cases import place  # noqa: F401 - fixture
from tests.compilers.neuron.neuron_machine import Machine
from tests.support.neuron_sdk import SCRIPTS, neuron_host

GRAPHS = str(SCRIPTS / "graphs.py")


@pytest.mark.feature("T5")
@pytest.mark.parametrize("tried_out", [False, True], ids=["one store", "another store"])
def test_modules_that_anybody_made_are_named_until_they_are_compiled_here(tmp_path, tried_out):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    stranger, user = (Machine(tmp_path / name) for name in ("stranger", "user"))
    for machine in (stranger, user):
        machine.graphs(1, 2)
    theirs = stranger("warm", "tiny.yaml", "--cache", f"local:rw,{place}:rw")["key"]
    home = {"CACHEKIT_HOME": str(tmp_path / "try")} if tried_out else {}
    user("train", "tiny.yaml", "--require-warm", "--trust-all", "--cache", f"local:rw,{place}:r", **home)
    user("store", "rm", "tiny.yaml", **home)
    other = user("warm", "tiny.yaml", "--set", "training.per_device_train_batch_size=2")
    assert other["compiled"] == 0
    assert theirs[:12] in user("store", "show", other["key"])["untrusted"]
    done = user("warm", "tiny.yaml", "--recache")
    assert (done["compiled"], user("store", "show", done["key"])["untrusted"]) == (2, "")


@pytest.mark.feature("T5")
def test_a_command_that_compiles_anew_finds_nothing_of_strangers(place):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    stranger, user = (Machine(place / name, host=neuron_host(place / f"{name}-host")) for name in ("stranger", "user"))
    stranger.run(GRAPHS, "1", "2", options=("--cache", f"local:rw,{shared}:rw"))
    taken = user.run(GRAPHS, "1", "2", options=("--trust-all", "--cache", f"local:rw,{shared}:r"))
    assert (taken["compiled"], taken["found"]) == (0, 2)
    assert user.run(GRAPHS, "1", "2", options=("--recache",))["compiled"] == 2


@pytest.mark.feature("T5")
def test_a_command_finds_out_what_strangers_made_that_another_store_took(place):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    stranger, user = (Machine(place / name, host=neuron_host(place / f"{name}-host")) for name in ("stranger", "user"))
    stranger.run(GRAPHS, "1", "2", options=("--cache", f"local:rw,{shared}:rw"))
    usual = user.environment["CACHEKIT_HOME"]
    user.environment["CACHEKIT_HOME"] = str(place / "try")
    user.run(GRAPHS, "1", "2", options=("--trust-all", "--cache", f"local:rw,{shared}:r"))
    user.environment["CACHEKIT_HOME"] = usual
    taken = user.run(GRAPHS, "1", "2", "3")
    assert (taken["compiled"], taken["found"]) == (1, 2)
    assert "where nobody checked who made it" in user("store", "show", user.record().key)["untrusted"]
