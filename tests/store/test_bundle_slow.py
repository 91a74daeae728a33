"""A bundle of a real compile on an empty box: everything hits, and nothing compiles."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_slow import Machine

pytestmark = pytest.mark.slow


@pytest.mark.feature("F4", "F5")
def test_a_real_compile_travels_in_a_bundle(tmp_path):
    maker, box = Machine(tmp_path / "maker"), Machine(tmp_path / "box")
    warmed = maker("warm", "tiny.yaml", "--format", "json")
    assert warmed.code == 0, warmed.err
    assert json.loads(warmed.out)["compiled"] > 0
    assert maker("store", "export", "tiny.tar", "tiny.yaml").code == 0
    assert maker("store", "lock", "tiny.yaml").code == 0
    for name in ("tiny.tar", "cachekit.lock"):
        (maker.work / name).rename(box.work / name)

    assert json.loads(box("plan", "tiny.yaml", "--format", "json").out)["status"] == "miss"
    imported = box("store", "import", "tiny.tar", "--trust-all", "--format", "json")
    assert imported.code == 0, imported.err
    planned = json.loads(box("plan", "tiny.yaml", "--format", "json").out)
    assert (planned["status"], planned["fetch_bytes"]) == ("hit", 0)
    assert json.loads(box("pull", "--locked", "--format", "json").out)["pulled"][0]["state"] == "present"
    again = box("warm", "tiny.yaml", "--format", "json")
    assert json.loads(again.out)["compiled"] == 0
    trained = box("train", "tiny.yaml", "--require-warm", "--offline", "--format", "json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["compiled"] == 0
