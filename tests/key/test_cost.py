"""How long a miss will compile: from records that obey what was measured, and from those that say nothing."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.key.canonical import difference, key_of
from cachekit.key.cost import Timed, expected, layers, tokens
from cachekit.key.nearest import distance

DIRECTORY = "inductor-2.13.0"


def hard(layers=2, width=32, batch=8, length=32, **more):
    """Ingredients of a small BERT, as far as they matter here."""
    return {
        "task": "text-classification",
        "model.type": "bert",
        "model.config.num_hidden_layers": layers,
        "model.config.hidden_size": width,
        "training.per_device_train_batch_size": batch,
        "training.max_seq_length": length,
        "target.machine": "x86_64",
        "toolchain.torch": "2.13.0",
        **more,
    }


def record(seconds, ingredients, *, directory=DIRECTORY, model_type="bert"):
    return Timed(key_of({**ingredients, "in": directory}), "toy", directory, model_type, ingredients, seconds)


def said(wanted, known, *, growth=Inductor.growth, directory=DIRECTORY, model_type="bert"):
    """What is expected of a job, its records given as a search gives them: the nearest first."""
    near = sorted(known, key=lambda one: distance(difference(one.hard, wanted)))
    return expected(directory, model_type, wanted, near, growth)


def measured(ingredients, noise=0.0):
    """Seconds as they were measured with Inductor: so much a layer, so much beside them, and hardly by sizes."""
    return (52 + 15 * ingredients["model.config.num_hidden_layers"]) * math.exp(noise)


def some_shape(dice):
    return hard(
        dice.randint(1, 8), dice.choice([32, 64, 128, 768]), dice.choice([4, 8, 16]), dice.choice([32, 64, 128])
    )


@pytest.mark.feature("P3")
@pytest.mark.parametrize("records", [1, 3, 12])
def test_the_median_error_is_within_a_quarter(records):
    """Of recipes with a near record, by jobs whose compiles scatter by a tenth."""
    dice = random.Random(7)
    errors = []
    for _ in range(60):
        shapes = [some_shape(dice) for _ in range(records)]
        known = [record(measured(shape, dice.gauss(0, 0.1)), shape) for shape in shapes]
        wanted = some_shape(dice)
        errors.append(abs(said(wanted, known).seconds / measured(wanted, dice.gauss(0, 0.1)) - 1))
    assert statistics.median(errors) <= 0.25


def test_the_same_job_is_what_was_measured():
    """Also under another version of the toolchain, which says it less surely."""
    wanted = hard(4)
    own = record(123.0, wanted)
    found = said(wanted, [record(50.0, hard(5)), own])
    assert (found.seconds, found.method, found.key) == (123.0, "measured", own.key)
    older = record(123.0, hard(4, **{"toolchain.torch": "2.12.0"}), directory="inductor-2.12.0")
    former = said(wanted, [older])
    assert (former.seconds, former.method, former.source) == (123.0, "measured", "toy, inductor-2.12.0")
    assert former.low < found.low < 123.0 < found.high < former.high


@pytest.mark.feature("P3")
def test_the_nearest_job_is_scaled_by_depth():
    near, far = record(100.0, hard(2)), record(999.0, hard(2, **{"model.type": "gpt2"}), model_type="gpt2")
    found = said(hard(12), [far, near])
    assert (found.seconds, found.method, found.key) == (300.0, "scaled", near.key)
    assert found.low < 300.0 < found.high


def test_of_several_that_are_near_the_mean_is_taken():
    """Compiles scatter; what differs in more kinds of things has no part in it."""
    near = [record(seconds, hard(2, batch=batch)) for seconds, batch in ((50.0, 4), (200.0, 16))]
    found = said(hard(2), [*near, record(999.0, hard(2, batch=4), directory="inductor-2.14.0")])
    assert found.seconds == 100.0


def test_on_neuron_seconds_grow_with_tokens_and_width():
    base = record(100.0, hard(), directory="n")
    wider = said(hard(2, 64), [base], growth=Neuron.growth, directory="n").seconds
    longer = said(hard(2, 32, 16), [base], growth=Neuron.growth, directory="n").seconds
    assert (wider, longer) == (pytest.approx(100 * 2**0.7, abs=0.01), pytest.approx(100 * 2**0.3, abs=0.01))


def test_another_version_family_or_chip_says_less():
    known = [record(100.0, hard())]
    near = said(hard(3), known)
    chip = {"target.machine": "aarch64"}
    for far in (
        said(hard(3), known, directory="inductor-2.14.0"),
        said(hard(3), known, model_type="gpt2"),
        said(hard(3, **chip), known),
    ):
        assert far.seconds == near.seconds
        assert far.low < near.low < near.high < far.high


def test_nothing_is_guessed_from_afar():
    assert said(hard(), []) is None
    assert said(hard(), [record(0.0, hard())]) is None, "nothing compiled there"
    known = [record(100.0, hard())]
    assert said(hard(**{"target.machine": "aarch64"}), known, model_type="gpt2") is None, "another family and chip"
    assert said(hard(80), known) is None, "a toy says nothing of eighty layers"
    near = record(400.0, hard(40))
    assert said(hard(80), [*known, near]).key == near.key, "the next one answers"


@given(
    st.lists(
        st.tuples(st.integers(1, 48), st.sampled_from([32, 768, 4096]), st.floats(0.01, 1e5)), min_size=1, max_size=9
    ),
    st.floats(0.001, 1000),
)
def test_what_is_expected_is_finite_and_scales_with_what_was_measured(rows, factor):
    known = {key_of(shape): (seconds, shape) for layers, width, seconds in rows for shape in [hard(layers, width)]}
    plain = said(hard(6), [record(seconds, shape) for seconds, shape in known.values()])
    scaled = said(hard(6), [record(seconds * factor, shape) for seconds, shape in known.values()])
    if plain is not None:
        assert plain.low <= plain.seconds <= plain.high < math.inf
        assert scaled.seconds == pytest.approx(plain.seconds * factor, rel=1e-2, abs=0.01 * max(factor, 1))


def test_layers_are_found_by_every_familys_name():
    for ingredients, count in [
        ({"model.config.num_hidden_layers": 12}, 12),
        ({"model.config.n_layer": 12}, 12),
        ({"model.config.encoder_layers": 6, "model.config.decoder_layers": 4, "model.config.num_hidden_layers": 6}, 10),
        ({"model.type": "t5", "model.config.num_layers": 6}, 12),
        ({"model.config.num_layers": 6, "model.config.num_decoder_layers": 2}, 8),
        ({"model.config.depths": [3, 4, 6, 3]}, 16),
        ({"model.config.num_hidden_layers": "many"}, None),
        ({"model.config.num_hidden_layers": -1}, None),
        ({}, None),
    ]:
        assert layers(ingredients) == count


def test_images_are_counted_in_patches():
    shape = {"training.image_size": 224, "model.config.patch_size": 16, "training.per_device_train_batch_size": 2}
    assert tokens(shape) == 392
