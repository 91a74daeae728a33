"""Golden vectors: what the code makes of recipes and commands, by each compiler, on machines that stand still."""

from __future__ import annotations

import json

import pytest

from cachekit.compilers import registry
from cachekit.key.canonical import SCHEMA
from cachekit.recipe import tasks
from tests.key.vector_cases import VECTORS, SchemaStandsError, changes, compare, made, renewed, stand_in

pytestmark = pytest.mark.versions

PATH = VECTORS / "ingredients.json"
DOCUMENT = json.loads(PATH.read_text(encoding="utf-8"))


@pytest.mark.feature("K1", "K6", "K7")
def test_the_code_makes_the_keys_of_the_vectors(tmp_path):
    """Each word and value that goes into a key is in a vector: another one changes everybody's keys."""
    found = {}
    for number, vector in enumerate(DOCUMENT["vectors"]):
        machine = DOCUMENT["machines"][vector["machine"]]
        programs, folder = tmp_path / f"{number}-programs", tmp_path / f"{number}"
        programs.mkdir()
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            stand_in(patch, programs, machine, vector.get("variables", {}))
            found[vector["name"]] = made(vector, machine, DOCUMENT["recipes"], folder)
    compare(PATH, found, SCHEMA)


def test_each_compiler_and_each_task_has_a_vector():
    vectors = DOCUMENT["vectors"]
    assert {vector["compiler"] for vector in vectors} == {one.name for one in registry.every()}
    recipes = [DOCUMENT["recipes"][vector["recipe"]] for vector in vectors if "recipe" in vector]
    assert {recipe["task"] for recipe in recipes} == tasks.TASKS.keys()
    assert {(vector["compiler"], "command" in vector) for vector in vectors if not vector.get("short")} == {
        *((name, kind) for name in ("inductor", "neuron", "neuron-native") for kind in (False, True)),
        ("jax", True),  # which trains no recipe
    }
    assert len({vector["name"] for vector in vectors}) == len(vectors)


WHOLE = {"schema": 4, "vectors": [{"name": "a", "compiler": "x", "key": "1", "hard": {"task": "t", "worker": 1}}]}
SAME = {"a": {"key": "1", "hard": {"task": "t", "worker": 1}}}
OTHER = {"a": {"key": "2", "hard": {"task": "t", "worker.schema": 1}}}


@pytest.mark.feature("K6")
def test_a_vector_is_written_anew_only_where_the_schema_number_has_gone_up():
    assert renewed(WHOLE, SAME, 4) == WHOLE
    for schema in (3, 4):
        with pytest.raises(SchemaStandsError, match="Raise SCHEMA"):
            renewed(WHOLE, OTHER, schema)
    anew = renewed(WHOLE, OTHER, 5)
    assert anew == {"schema": 5, "vectors": [{"name": "a", "compiler": "x", **OTHER["a"]}]}
    assert changes(anew, OTHER) == {}
    assert changes(WHOLE, OTHER) == {"a": ["worker", "worker.schema"]}
    added = {**WHOLE, "vectors": [*WHOLE["vectors"], {"name": "b"}]}
    assert renewed(added, SAME | {"b": {"key": "3", "names": ["task"]}}, 4)["vectors"][1] == {
        "name": "b",
        "key": "3",
        "names": ["task"],
    }


@pytest.mark.feature("K6")
def test_vectors_in_a_file_are_refused_and_written_likewise(tmp_path, monkeypatch):
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(WHOLE))
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    compare(path, SAME, 4)
    for found, schema in ((OTHER, 4), (SAME, 5)):
        with pytest.raises(AssertionError, match="raise SCHEMA"):
            compare(path, found, schema)
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    with pytest.raises(SchemaStandsError):
        compare(path, OTHER, 4)
    assert json.loads(path.read_text()) == WHOLE
    compare(path, OTHER, 5)
    assert json.loads(path.read_text())["schema"] == 5
