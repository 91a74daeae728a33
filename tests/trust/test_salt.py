"""With a salt in the settings, everything that was made under another one is a miss, and helps nobody."""

import sys

import pytest

from cachekit.compilers.cachedir import own_root
from cachekit.compilers.registry import select
from cachekit.events import Journal
from cachekit.recipe.variant import Variant
from tests.support.cli_session import publish

pytest_plugins = ["tests.support.cli_session"]
pytestmark = pytest.mark.feature("T5")

SALT = '[trust]\nsalt = "after the incident"\n'


def test_every_question_has_the_salt_in_its_key(command, machine, home, work):
    record = publish(home)
    plain = command("plan", "tiny.yaml", "--format", "json").json
    assert (plain["status"], plain["key"]) == ("hit", record.key)
    (work / "cachekit.toml").write_text(SALT)
    salted = command("plan", "tiny.yaml", "--format", "json").json
    assert (salted["status"], salted["ingredients"]["hard"]["trust.salt"]) == ("miss", "after the incident")
    assert salted["reuse"] is None
    key = salted["key"]
    assert command("why", "tiny.yaml", "--format", "json").json["key"] == key
    assert command("coverage", "tiny.yaml", "--format", "json").json["recipes"][0]["key"] == key
    assert command("plan", "tiny.yaml", "tiny.yaml", "--format", "json").json["plans"][0]["key"] == key
    assert command("warm", "tiny.yaml", "--dry-run", "--format", "json").json["key"] == key
    code = command("store", "lock", "tiny.yaml", code=3).err
    assert key[:16] in code
    compared = command("why", "tiny.yaml", record.key[:12], "--format", "json").json
    assert [one["name"] for one in compared["changes"]] == ["trust.salt"]
    run = ("run", "--dry-run", "--format", "json", "--", sys.executable, "-c", "pass")
    with_salt = command(*run).json["key"]
    (work / "cachekit.toml").unlink()
    assert command(*run).json["key"] != with_salt
    assert command("plan", "tiny.yaml", "--format", "json").json["key"] == record.key


@pytest.mark.feature("T5")
def test_a_compilers_own_folder_is_another_with_each_salt(tmp_path, monkeypatch, work):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "own"))
    recipe = Variant("tiny.yaml").load()
    compiler = select("neuron", toolchain="neuron-2.31", instance="trn1.2xlarge")
    roots = [own_root(compiler, recipe, Journal(None, ""), salt) for salt in ("", "2026-11", "2026-12")]
    assert roots[0] == tmp_path / "own"
    assert len({root.name for root in roots}) == 3
