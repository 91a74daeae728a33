"""Ingredients and recipes for the tests of keys."""

from __future__ import annotations

from cachekit.data.shapes import shapes_of
from cachekit.recipe import load, zoo
from cachekit.recipe.architecture import resolve
from cachekit.recipe.ingredients import Fingerprint, build

BERT = zoo.recipe_path("bert")
FINGERPRINT = Fingerprint(
    compiler="fake",
    directory="fake-1.0",
    toolchain={"fakec": "1.0", "python": "cpython 3.11"},
    target={"machine": "x86_64", "isa": ["avx", "avx2"]},
    soft={"numpy": "2.0"},
    bf16=False,
)
COMPILER = {"options": {"a": 1}, "threads": 2, "environment": {"FAKE_VERBOSE": "1"}}


def ingredients(*overrides, fingerprint=FINGERPRINT, compiler=COMPILER, path=BERT):
    recipe = load(path, overrides)
    return build(recipe, resolve(recipe), shapes_of(recipe), fingerprint, compiler)
