"""Options of Inductor in the key: a default said aloud is no other job, by what torch itself has."""

import json
from functools import partial

import msgspec
import pytest

from cachekit.compilers.inductor import options
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.prepare import prepare
from cachekit.errors import RecipeError
from cachekit.recipe import architecture, load, tiny, zoo
from cachekit.recipe.schema import Compiler
from tests.support.standins import recipe

pytestmark = [pytest.mark.versions, pytest.mark.feature("K1")]


def key(environment=None, **said):
    from msgspec import structs

    job = structs.replace(recipe(), compiler=Compiler(options=said), environment=environment or {})
    return prepare(job, Inductor()).key


@pytest.mark.parametrize(
    ("name", "default", "other"),
    [
        ("max_autotune", False, True),
        ("shape_padding", True, False),
        ("epilogue_fusion", True, False),
        ("mode", "default", "max-autotune"),
    ],
)
def test_a_default_said_aloud_gives_no_other_key(name, default, other):
    assert key(**{name: default}) == key()
    assert key(**{name: other}) != key()


@pytest.mark.parametrize("name", ["bert", "t5-summarization"])
def test_what_a_recipe_or_its_models_config_has_by_default_gives_no_other_key_said_aloud(name):
    read = partial(load, zoo.recipes()[name])
    small = tiny.in_small((), read)
    own = architecture.resolve(small)
    said = {
        f"{part}.{field.name}": getattr(getattr(small, part), field.name)
        for part in ("training", "parallel", "compiler")
        for field in msgspec.structs.fields(type(getattr(small, part)))
    }
    said |= {f"model.config.{field}": value for field, value in own.defaults.items() if field not in own.config}
    said |= {"training.per_device_eval_batch_size": small.training.per_device_train_batch_size}
    said |= {"parallel.data_parallel_size": 1}
    expected, tried = prepare(small, Inductor()).key, 0
    for field, value in said.items():
        if value is None or isinstance(value, dict | list | tuple):
            continue
        try:
            loud = tiny.in_small((f"{field}={json.dumps(value)}",), read)
        except RecipeError:  # it has no effect beside what the recipe says
            continue
        tried += 1
        assert prepare(loud, Inductor()).key == expected, field
    assert tried > 25


def test_where_a_variable_makes_another_default_what_is_said_counts(monkeypatch):
    """Its own value would be the default without the variable, and is another job with it."""
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    assert key(max_autotune=False) != key()
    monkeypatch.delenv("TORCHINDUCTOR_MAX_AUTOTUNE")
    said = {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
    assert key(said, max_autotune=False) != key(said)


def test_one_is_not_true():
    assert key(epilogue_fusion=1) != key()


def test_a_recipe_without_options_does_not_read_torchs_source(monkeypatch):
    """Each `plan` would take 30 ms for it."""
    monkeypatch.setattr(options, "_installed", lambda: pytest.fail("it is read"))
    options.check_names(())
