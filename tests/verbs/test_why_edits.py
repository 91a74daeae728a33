"""`why` names the one ingredient that an edit changed, and nothing else: every field of a recipe, and the machine's.

Edits come from the schema, so that no field is forgotten. Some are several ingredients by nature; what they bring is
named with them (`FOLLOWS`), and each of those cases has its reason here.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from cachekit.cli.why import of_recipe as human
from cachekit.compilers import registry
from cachekit.compilers.prepare import Prepared
from cachekit.data.shapes import shapes_of
from cachekit.recipe import load
from cachekit.recipe.architecture import resolve
from cachekit.recipe.ingredients import SOFT_TRAINING, build
from cachekit.recipe.schema import Lora
from cachekit.store.layout import Place
from cachekit.values import builtins
from cachekit.verbs.why import Why, why
from tests.key.key_cases import BERT, COMPILER, FINGERPRINT
from tests.recipe.test_ingredients import BASES, FIELD_CHANGES, RESOLVED, beside, for_task
from tests.support.processes import memory_folder
from tests.support.standins import PROVENANCE, StandIn, Watched, make_record, publish

# What one edit of a recipe changes beside the ingredient that it is about, and why.
FOLLOWS = {
    # The recipe says no evaluation batch: it is the training batch.
    "training.per_device_train_batch_size": {"training.per_device_eval_batch_size"},
    # Off is one ingredient, on is one for each of its settings, and the version of the package that does it.
    "training.lora": {f"training.lora.{name}" for name in Lora.__struct_fields__} | {"toolchain.peft"},
}
RENAMED = {"training.bf16": "training.precision"}  # `auto` is resolved for the target


def prepared(*overrides, fingerprint=FINGERPRINT, compiler=COMPILER, path=BERT):
    recipe = load(path, overrides)
    architecture, shapes = resolve(recipe), shapes_of(recipe)
    made = build(recipe, architecture, shapes, fingerprint, compiler)
    place = Place(fingerprint.directory, architecture.model_type, made.key)
    return Prepared(recipe, recipe.name, StandIn(), shapes, architecture, fingerprint, made, place)


def stored(watched, one):
    """Its record, as if it had been warmed."""
    record, contents = make_record(1)
    record = structs.replace(
        record,
        key=one.key,
        hard=dict(one.ingredients.hard),
        compiler=one.fingerprint.compiler,
        directory=one.fingerprint.directory,
        model_type=one.model_type,
        recipe=one.recipe.name,
        provenance=PROVENANCE,
    )
    return publish(watched.store, (record, contents))


class Asked(NamedTuple):
    """What `why` says, and the ingredients of both."""

    found: Why
    near: dict[str, Any]
    hard: dict[str, Any]


def asked(before, after):
    """What `why` says of `after`, where `before` is warm."""
    with memory_folder() as home:
        watched = Watched(home)
        stored(watched, before)
        return Asked(why(watched.session, after), before.ingredients.hard, after.ingredients.hard)


def check(asked, name, old, new, follows=()):
    """One change is told, with both values, and what follows from it; and people read no line more."""
    found, near, hard = asked
    (change,) = found.changes
    document = builtins(change)
    assert change.name == name
    assert {other.name for other in change.follows} == set(follows)
    assert document.get("old", "absent") == near.get(name, "absent") == old
    assert document.get("new", "absent") == hard.get(name, "absent") == new
    every = {key for key in hard.keys() | near.keys() if hard.get(key, "absent") != near.get(key, "absent")}
    assert every == {name, *follows}, "nothing that differs is left out"
    head, *lines = human(found)
    assert head.startswith(f"{found.recipe}: miss; nearest is {found.nearest.key[:16]}")
    assert lines[0].startswith(f"  {name}:")
    named = [line for line in lines if line.startswith("  ") and not line.startswith("    ")]
    assert len(named) == 1
    text = " ".join(" ".join(lines).split())
    assert all(other in text for other in follows)


EDITS = [change for change in FIELD_CHANGES if change[1] != "image_size"]  # only recipes of images have it


@pytest.mark.feature("W2")
def test_each_field_of_a_recipe():
    for section, field, value in EDITS:
        extra = beside(field, value)
        of_task, path = for_task(section, field), BASES.get(field, BERT)
        before = prepared(*of_task, path=path)
        after = prepared(*of_task, f"{section}.{field}={json.dumps(value)}", *extra, path=path)
        told = asked(before, after)
        found = told.found
        if (section == "training" and field in SOFT_TRAINING) or (section, field, value) in RESOLVED:
            assert found.status == "hit", f"{field} is no ingredient, so it is no reason for a miss"
            assert human(found) == [f"{after.recipe.name}: hit in the local store, key {after.key[:16]}"]
            continue
        assert found.status == "miss", field
        name = RENAMED.get(f"{section}.{field}", f"{section}.{field}")
        old, new = (one.ingredients.hard.get(name, "absent") for one in (before, after))
        check(told, name, old, new, FOLLOWS.get(name, ()))


MACHINES = [
    *[("toolchain", "fakec", value) for value in ("1.0.1", "1.1", "2.0", "0.9", "1.0+cpu")],
    *[("toolchain", "python", value) for value in ("cpython 3.12", "cpython 3.10")],
    ("target", "machine", "aarch64"),
    *[("target", "isa", value) for value in (["avx"], ["avx", "avx2", "avx512f"], ["avx2", "avx"])],
    ("target", "new", "thing"),
]


def test_each_version_and_each_part_of_the_target():
    for part, name, value in MACHINES:
        before = prepared()
        changed = structs.replace(FINGERPRINT, **{part: {**getattr(FINGERPRINT, part), name: value}})
        if part == "toolchain" and name == "fakec":
            changed = structs.replace(changed, directory=f"fake-{value}")
        found = asked(before, prepared(fingerprint=changed))
        check(found, f"{part}.{name}", getattr(FINGERPRINT, part).get(name, "absent"), value)


def test_what_is_known_is_said_in_words():
    for name, old, new, words in [
        ("toolchain.fakec", "1.0", "1.0.1", "a patch newer"),
        ("toolchain.fakec", "1.0", "1.1", "a minor version newer"),
        ("toolchain.fakec", "2.3", "1.9", "a major version older"),
        ("toolchain.fakec", "2.13.0+cpu", "2.13.0+cu130", "the same version, another build"),
        ("toolchain.fakec", "(Debian) 12.2.0", "(Debian) 14.2.0", "a major version newer"),
        ("target.isa", ["avx", "fma"], ["avx", "amx"], "only that record has fma"),
        ("target.isa", ["avx", "fma"], ["avx", "amx"], "only this recipe has amx"),
        ("target.isa", ["avx", "fma"], ["fma", "avx"], "the order differs"),
        ("compiler.flags", ["--a", "--a"], ["--a"], "repeats differ"),
        ("model.num_labels", 2, 6, "classes of the model's head: data.labels"),
        ("training.precision", "fp32", "bf16", "the type that numbers are computed in: training.bf16"),
        ("training.max_seq_length", 384, 512, "tokens per row: each length needs its own graph"),
        ("model.config.dtype", "float32", "bfloat16", "the type of the model's weights"),
        ("model.config.hidden_size", 768, 1024, "a field of the model's config"),
    ]:
        from cachekit.key.canonical import Change
        from cachekit.key.words import words_of

        assert words in words_of(Change(name, old, new), registry.adapter("").explain)


FLAGS = ["--model-type=transformer", "--auto-cast=none", "-O1"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model-type", "transformer", "--auto-cast=none", "-O1"], "spelling is in the key"),
        (["--auto-cast=none", "--model-type=transformer", "-O1"], "the order differs"),
        (["--model-type=transformer", "--auto-cast=none", "-O2"], "-O2"),
        (["--model-type=transformer", "--auto-cast=none", "--optlevel=1"], "spelling is in the key"),
        (["--model-type=transformer", "-O1"], "only that record has"),
    ],
)
def test_flags_of_neuron_are_explained(flags, words):
    neuron = structs.replace(FINGERPRINT, compiler="neuron", directory="neuronxcc-2.26.0")
    before = prepared(fingerprint=neuron, compiler={"flags": FLAGS, "first_rate_zero": False})
    after = prepared(fingerprint=neuron, compiler={"flags": flags, "first_rate_zero": False})
    found = asked(before, after)
    check(found, "compiler.flags", FLAGS, flags)
    assert any(words in sentence for sentence in found.found.changes[0].words), found.found.changes[0].words


def test_another_model_is_told_as_one_change_with_what_it_brings():
    found = asked(prepared(), prepared("model.id=roberta-base"))
    _, before, after = found
    brought = {key for key in before.keys() | after.keys() if before.get(key, "no") != after.get(key, "no")}
    assert len(brought) > 3
    check(found, "model.type", "bert", "roberta", brought - {"model.type"})


def test_an_evaluation_batch_that_does_not_follow_is_told_by_itself():
    before = prepared("training.per_device_eval_batch_size=4")
    found = asked(before, prepared("training.per_device_train_batch_size=3")).found
    assert [(told.name, told.follows) for told in found.changes] == [
        ("training.per_device_eval_batch_size", ()),
        ("training.per_device_train_batch_size", ()),
    ]
