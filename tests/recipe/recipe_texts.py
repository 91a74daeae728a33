"""Recipes as text, for the tests of what is read of them and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe import load_text
from cachekit.recipe.schema import Compiler, Data, Model, Parallel, Training

BASE = Path("/base").absolute()
MINIMAL = "name: x\nmodel:\n  id: bert-base-uncased\n"
SECTIONS = {"model": Model, "data": Data, "training": Training, "parallel": Parallel, "compiler": Compiler}
FIELDS = [(section, field) for section, struct in SECTIONS.items() for field in struct.__struct_fields__]


def read(text, *overrides, base=BASE):
    return load_text(text, overrides, source="r.yaml", base=base)


def refused(text, *overrides, kind=RecipeError):
    with pytest.raises(kind) as caught:
        read(text, *overrides)
    return caught.value


def with_section(section, *lines):
    """A recipe with a section of one's own, and the number of its first line inside."""
    inner = "".join(f"  {line}\n" for line in lines)
    if section == "model":
        return f"name: x\nmodel:\n{inner}", 3
    return f"{MINIMAL}{section}:\n{inner}", 5
