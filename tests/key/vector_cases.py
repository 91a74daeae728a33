"""Golden vectors of keys: what they are made from, on machines that stand in the vectors, and when they may change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from cachekit.compilers import registry
from cachekit.compilers.command import prepare_command
from cachekit.compilers.keep import unfinished
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.native_compiler import NeuronNative
from cachekit.compilers.prepare import prepare
from cachekit.key.canonical import canonical_json
from cachekit.recipe import command
from cachekit.recipe.load import load_text

VECTORS = Path(__file__).parents[1] / "vectors"
ON_NEURON = {one.name: one for one in (Neuron, NeuronNative)}


class Frozen:
    """A compiler, whose fingerprint names this Python and this system in the words of the vectors."""

    def __init__(self, compiler, *, python: str) -> None:
        self._compiler, self._python = compiler, python

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)

    def fingerprint(self, recipe=None, *, bare: bool = False):
        found = self._compiler.fingerprint(recipe, bare=bare)
        toolchain = {name: self._python if name == "python" else said for name, said in found.toolchain.items()}
        target = {name: "linux" if name == "system" else said for name, said in found.target.items()}
        return msgspec.structs.replace(found, toolchain=toolchain, target=target)


def stand_in(monkeypatch, folder: Path, machine: dict[str, Any], variables: dict[str, str]) -> None:
    """Have this machine look like one of the vectors: packages, processor, GPU, C++ compiler; and nothing in the shell.

    Args:
        folder: An empty one, for the programs.
        machine: As the vectors describe it.
        variables: All that the shell has.
    """
    for name in [name for name in os.environ if not name.startswith("PYTEST")]:
        monkeypatch.delenv(name)
    for name, text in {"g++": machine.get("g++", ""), "nvidia-smi": machine.get("gpu", "")}.items():
        if text:
            (folder / name).write_text(f"#!/bin/sh\necho '{text}'\n")
            (folder / name).chmod(0o755)
    for name, value in {"PATH": str(folder), "HOME": str(folder), "CXX": "g++", **variables}.items():
        monkeypatch.setenv(name, value)
    features = tuple(machine.get("isa", ()))
    monkeypatch.setattr("cachekit.host.optional_version", lambda name: machine["packages"].get(name, ""))
    monkeypatch.setattr("cachekit.host.cpu_features", lambda: features)
    monkeypatch.setattr("cachekit.compilers.inductor.compiler.cpu_features", lambda: features)
    monkeypatch.setattr("cachekit.host.libc", lambda: machine.get("libc", ""))
    monkeypatch.setattr("platform.machine", lambda: machine.get("machine", ""))


def compiler_of(name: str, machine: dict[str, Any]):
    """The compiler on a machine of the vectors."""
    if name in ON_NEURON:
        told = {name: machine[name] for name in NeuronHost.__struct_fields__ if name in machine}
        return ON_NEURON[name](msgspec.convert(told, NeuronHost))
    return Frozen(registry.adapter(name).open(), python=machine["python"])


def made(vector: dict[str, Any], machine: dict[str, Any], recipes: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The key that the code makes of a vector's recipe or command, and its ingredients: all of them, or their names.

    Args:
        vector: Its `recipe` and `overrides`, or `command` with `files`; and its `compiler`.
        machine: What `stand_in` has made of this one.
        recipes: By name.
        folder: An empty one, where the command would run.
    """
    compiler, salt = compiler_of(vector["compiler"], machine), vector.get("salt", "")
    if "command" in vector:
        for name, text in vector["files"].items():
            (folder / name).write_text(text)
        declared, soft = vector.get("declared", {}), vector.get("soft", ())
        line = command.read(vector["command"])
        prepared = prepare_command(line, compiler, declared=declared, soft=soft, cwd=folder, salt=salt)
    else:
        recipe = load_text(json.dumps(recipes[vector["recipe"]]), vector.get("overrides", ()), base=folder)
        prepared = prepare(recipe, compiler, salt=salt)
    if vector.get("interrupted"):
        prepared = unfinished(prepared)
    assert prepared.key == prepared.ingredients.key
    hard = json.loads(canonical_json(prepared.ingredients.hard))
    ingredients = {"names": sorted(hard)} if vector.get("short") else {"hard": hard}
    return {"key": prepared.key, **ingredients}


# Writing them anew


class SchemaStandsError(AssertionError):
    """Keys have changed, and the schema number has not."""


def renewed(document: dict[str, Any], found: dict[str, dict[str, Any]], schema: int) -> dict[str, Any]:
    """A file of vectors with what the code makes now. A vector without a key is new; others change with the schema.

    Args:
        document: The file, with its `schema` and `vectors`.
        found: What the code makes, by the vector's name.
        schema: The number of the code.

    Raises:
        SchemaStandsError: A vector would change, and the number has not gone up.
    """
    known = {vector["name"] for vector in document["vectors"] if "key" in vector}
    changed = [name for name in changes(document, found) if name in known]
    if schema < document["schema"] or (changed and schema == document["schema"]):
        raise SchemaStandsError(
            f"these keys would change: {', '.join(changed)}. Raise SCHEMA in cachekit/key/canonical.py first "
            f"(it is {schema}, and the vectors were made with {document['schema']})"
        )
    return {**document, "schema": schema, "vectors": [one | found[one["name"]] for one in document["vectors"]]}


def changes(document: dict[str, Any], found: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The vectors that the code makes otherwise: name to the ingredients that differ."""
    wrong = {}
    for vector in document["vectors"]:
        now = found[vector["name"]]
        if any(vector.get(field) != said for field, said in now.items()):
            old, new = (one.get("hard") or dict.fromkeys(one.get("names", ())) for one in (vector, vector | now))
            names = {name for name in old.keys() | new.keys() if old.get(name, ...) != new.get(name, ...)}
            wrong[vector["name"]] = sorted(names) or ["the value of an ingredient, or the canonical form"]
    return wrong


def compare(path: Path, found: dict[str, dict[str, Any]], schema: int) -> None:
    """Hold what the code makes against a file of vectors; with UPDATE_GOLDEN the file is written anew.

    Raises:
        SchemaStandsError: As `renewed`.
        AssertionError: The file is another.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    if os.environ.get("UPDATE_GOLDEN"):
        document = renewed(document, found, schema)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    wrong = changes(document, found)
    assert (document["schema"], wrong) == (schema, {}), (
        "other keys are other keys for everyone. If it is meant: raise SCHEMA in cachekit/key/canonical.py, once, then "
        "UPDATE_GOLDEN=1 pytest tests/key/test_vectors.py"
    )
