"""The library: `from cachekit import ...` does what the verbs do, prints nothing, and loads what is used."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cachekit
from cachekit.errors import CachekitError, every_error
from cachekit.recipe import zoo
from tests.support.cli_session import process, publish

pytest_plugins = ["tests.support.cli_session"]

FUNCTIONS = tuple(
    name for name in cachekit.__all__ if name[0].islower() and not name.startswith("_") and name != "CacheCallback"
)
CLASSES = tuple(name for name in cachekit.__all__ if name[0].isupper() and name != "CacheCallback")
HEAVY = {"torch", "transformers", "numpy", "datasets", "huggingface_hub", "typer", "click", "rich.console", "obstore"}


def loaded_by(code: str) -> set[str]:
    answer = process(program=("-c", f"import sys\n{code}\nprint(*sys.modules, sep='\\n')"))
    return set(answer.out.split())


# What there is


def test_import_alone_loads_nothing():
    before = loaded_by("")
    assert {name for name in loaded_by("import cachekit") - before if name.startswith("cachekit")} == {"cachekit"}


def test_no_name_but_the_callback_loads_anything_heavy():
    names = ", ".join(name for name in cachekit.__all__ if name != "CacheCallback")
    assert loaded_by(f"from cachekit import {names}").isdisjoint(HEAVY)


def test_a_plan_loads_nothing_heavy(work, home):
    code = "import cachekit\nassert cachekit.plan('tiny.yaml').as_dict()['status'] == 'miss'"
    assert loaded_by(code).isdisjoint(HEAVY)


def test_type_checkers_are_told_the_same_names():
    stub = Path(cachekit.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    classes, methods = {}, set()
    for line in ast.parse(stub).body:
        if isinstance(line, ast.ImportFrom):
            classes |= {name.asname: line.module for name in line.names}
        elif isinstance(line, ast.Assign):
            assert ast.unparse(line.value) == f"_settings.{line.targets[0].id}"
            methods.add(line.targets[0].id)
    assert sorted({"__version__", *classes, *methods}) == cachekit.__all__
    del classes["CacheCallback"]  # loads transformers
    for name, module in classes.items():
        assert getattr(cachekit, name) is getattr(import_module(module), name)
    for name in methods:
        assert getattr(cachekit, name).__func__ is getattr(cachekit.Cache, name)


def test_the_names_are_found_in_a_zip(tmp_path):
    package = Path(cachekit.__file__).parent
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as packed:
        for path in package.rglob("*.py*"):
            packed.write(path, path.relative_to(package.parent))
    code = f"import sys\nsys.path.insert(0, {str(tmp_path / 'wheel.zip')!r})\nfrom cachekit import MissError, errors"
    assert process(program=("-c", f"{code}\nprint(errors.__file__)")).out.startswith(str(tmp_path))


def test_every_name_is_documented_and_typed():
    for name in (*FUNCTIONS, *CLASSES):
        value = getattr(cachekit, name)
        assert (inspect.getdoc(value) or "").strip(), name
        if inspect.isroutine(value):
            signature = inspect.signature(value)
            kinds = [signature.return_annotation, *(one.annotation for one in signature.parameters.values())]
            assert inspect.Signature.empty not in kinds, name
        assert name in dir(cachekit)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cachekit.nonsense  # noqa: B018


def test_every_exit_code_has_an_error_to_catch():
    exported = [getattr(cachekit, name) for name in CLASSES]
    codes = {value.exit_code for value in exported if issubclass(value, CachekitError)}
    assert codes == {cls.exit_code for cls in every_error()}


def test_options_of_all_functions_mean_the_same():
    """One name, one kind of value, wherever it stands; what a `Cache` is told is no argument of its methods."""
    kinds: dict[str, set[str]] = {}
    for name in FUNCTIONS:
        for parameter in inspect.signature(getattr(cachekit, name)).parameters.values():
            kinds.setdefault(parameter.name, set()).add(str(parameter.annotation))
    several = {name: kind for name, kind in kinds.items() if len(kind) > 1}
    # A session may do without a recipe, a bundle without a file; entries and recipes stand in a row or in a list.
    assert several.keys() <= {"recipe", "output", "entries", "recipes"}
    assert kinds.keys().isdisjoint(inspect.signature(cachekit.Cache).parameters)


def test_each_function_is_a_method_of_a_cache_and_the_other_way_round():
    public = (name for name in dir(cachekit.Cache) if not name.startswith("_"))
    methods = {name for name in public if callable(getattr(cachekit.Cache, name))}
    assert methods == {name for name in FUNCTIONS if name != "load_recipe"}


def test_the_options_of_a_cache_are_documented():
    said = inspect.getdoc(cachekit.Cache)
    for name in inspect.signature(cachekit.Cache).parameters:
        assert f"\n    {name}: " in said
    with pytest.raises(TypeError, match="cashe"):
        cachekit.Cache(cashe="local:rw")


# Recipes


def test_a_recipe_of_the_zoo_survives_being_edited():
    """A recipe as a value, with a change, is the recipe that is read with that change."""
    for name in sorted(zoo.recipes()):
        recipe = cachekit.load_recipe(name)
        change = {"name": "another"}
        assert cachekit.load_recipe(cachekit.Variant(recipe, change)) == cachekit.load_recipe(
            cachekit.Variant(name, change)
        )
        assert cachekit.load_recipe(cachekit.Variant(recipe, tiny=True)) == cachekit.load_recipe(
            cachekit.Variant(name, tiny=True)
        )
        assert cachekit.load_recipe(recipe) is recipe


@settings(max_examples=30)
@given(
    text=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1),
    batch=st.integers(1, 4096),
    rate=st.floats(0, 1, allow_nan=False),
)
def test_values_of_a_mapping_arrive_as_they_are(text, batch, rate):
    given_values = {
        "description": text, "training.per_device_train_batch_size": batch, "training.learning_rate": rate,
    }  # fmt: skip
    recipe = cachekit.load_recipe(cachekit.Variant("bert", given_values))
    assert recipe.description == text
    assert recipe.training.per_device_train_batch_size == batch
    assert recipe.training.learning_rate == rate


def test_one_text_is_no_list_of_overrides():
    with pytest.raises(TypeError, match="not the text"):
        cachekit.load_recipe(cachekit.Variant("bert", "training.max_seq_length=8"))


# The same as the verbs


def test_plan_is_what_the_verb_says(command, home, machine):
    publish(home)
    for words, overrides in (([], {}), (["--set", "training.max_seq_length=16"], {"training.max_seq_length": 16})):
        told = command("plan", "tiny.yaml", "--format", "json", *words).json
        planned = cachekit.plan(cachekit.Variant("tiny.yaml", overrides))
        assert planned.as_dict() == told
        changes = [f"{name}={value}" for name, value in overrides.items()]
        again = cachekit.plan(cachekit.Variant(cachekit.load_recipe("tiny.yaml"), changes))
        assert again.key == planned.key


def test_plan_for_another_machine():
    planned = cachekit.Cache(toolchain="neuron-2.31", instance="trn1.2xlarge").plan("bert")
    assert planned.as_dict()["elsewhere"] == "trn1.2xlarge"
    assert cachekit.Cache(toolchain="neuron-2.31").plan("bert").key == planned.key, "as --toolchain alone"
    assert cachekit.Cache(target="inf2").plan("bert").as_dict()["elsewhere"] == "inf2.xlarge"
    with pytest.raises(cachekit.UsageError, match="inf2"):
        cachekit.Cache(target="inf2", instance="trn1.2xlarge").plan("bert")


def test_a_path_is_a_value_like_another(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na,0\nb,1\n")
    changes = {"data.id": None, "data.train_file": rows, "data.validation_file": rows}
    assert cachekit.load_recipe(cachekit.Variant("bert", changes)).data.train_file == str(rows)
    with pytest.raises(TypeError, match="has no JSON form"):
        cachekit.load_recipe(cachekit.Variant("bert", {"data.train_file": object()}))


@pytest.mark.usefixtures("home", "machine", "worker")
def test_warm_and_train(work, capfd):
    """As the verbs, without a word; events go to who asked for them."""
    told = []
    warmed = cachekit.Cache(progress=told.append).warm("tiny.yaml")
    assert (warmed.compiled, warmed.as_dict()["status"]) == (3, "compiled")
    assert [event["event"] for event in told if event["event"] in {"plan", "warm.end"}] == ["plan", "warm.end"]
    assert cachekit.warm("tiny.yaml").compiled == 0
    trained = cachekit.train("tiny.yaml", output_dir="model", require_warm=True)
    assert trained.compiled == 0
    assert trained.as_dict()["output_dir"] == str(work / "model")
    assert [record.key for record in cachekit.records()] == [warmed.key]
    assert capfd.readouterr() == ("", "")
    assert cachekit.plan("tiny.yaml").hit


def test_a_listener_that_raises_ends_the_run(work, home, machine, worker):
    def stop(event):
        raise RuntimeError(event["event"])

    with pytest.raises(RuntimeError):
        cachekit.Cache(progress=stop).warm("tiny.yaml")
    assert cachekit.records() == []


def test_a_run_leaves_the_environment_as_it_was(work, home, machine, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    before = dict(os.environ)
    cachekit.Cache(offline=True).plan("tiny.yaml")
    assert dict(os.environ) == before


def test_run(work, home, machine, capfd):
    done = cachekit.run([sys.executable, "-c", "print(6 * 7); raise SystemExit(5)"])
    assert done.exit_code == 5
    assert capfd.readouterr() == ("42\n", "")


def test_session(work, home, machine):
    with cachekit.session() as session:
        assert list(session.store.records()) == list(cachekit.open_store().records()) == []


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda: cachekit.plan("nobody"), cachekit.UnknownNameError),
        (lambda: cachekit.plan(cachekit.Variant("tiny.yaml", {"training.nonsense": 1})), cachekit.RecipeError),
        (lambda: cachekit.plan(cachekit.Variant("tiny.yaml", ["nonsense"])), cachekit.UsageError),
        (lambda: cachekit.Cache(compiler="nonsense").plan("tiny.yaml"), cachekit.UnknownNameError),
        (lambda: cachekit.Cache(cache="nonsense:x").plan("tiny.yaml"), cachekit.UsageError),
        (lambda: cachekit.Cache(home=__file__).plan("tiny.yaml"), cachekit.StoreError),
        (lambda: cachekit.warm("tiny.yaml", require_warm=True), cachekit.MissError),
        (lambda: cachekit.warm("tiny.yaml", require_warm=True, recache=True), cachekit.UsageError),
        (lambda: cachekit.train("tiny.yaml", require_warm=True), cachekit.MissError),
        (lambda: cachekit.Cache(node_rank=3).train("tiny.yaml"), cachekit.UsageError),
        (lambda: cachekit.run(["python", "nowhere.py"]), cachekit.UsageError),
        (lambda: cachekit.run([]), cachekit.UsageError),
        (lambda: cachekit.pull("tiny.yaml"), cachekit.UsageError),
        (lambda: cachekit.push(["abcd"]), cachekit.UsageError),
        (lambda: cachekit.attach("no name"), cachekit.UsageError),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("work", "home", "machine", "worker")
def test_what_goes_wrong_is_raised(act, kind, capfd):
    with pytest.raises(kind):
        act()
    assert capfd.readouterr() == ("", "")


def test_a_team_of_two_stores(work, home, machine, worker, tmp_path):
    """What one warms and pushes, the other pulls."""
    remotes = f"local:rw,file://{tmp_path / 'shared'}:rw"
    (tmp_path / "shared").mkdir()
    one, two = (cachekit.Cache(home=tmp_path / name, cache=remotes) for name in ("one", "two"))
    cachekit.Cache(home=one.home).warm("tiny.yaml")
    assert one.push(["tiny.yaml"]).error() is None
    assert two.pull(cachekit.Variant("tiny.yaml", {"training.max_seq_length": 16})).state == "absent"
    assert two.pull("tiny.yaml", dry_run=True).state == "would-fetch"
    assert two.pull("tiny.yaml").state == "fetched"
    assert cachekit.Cache(home=two.home).plan("tiny.yaml").hit


# Options
