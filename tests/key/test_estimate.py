"""How long a miss will compile: from records that obey what was measured, and from those that say nothing."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.key.canonical import key_of
from cachekit.store.record import COMMAND, IMPORTED
from cachekit.verbs.estimate import Job, estimate
from cachekit.verbs.known import Timed
from cachekit.verbs.linear import cholesky, solve
from cachekit.verbs.measures import measures

DIRECTORY = "inductor-2.13.0"


def hard(layers=2, width=32, batch=8, length=32, **more):
    """Ingredients of a small BERT, as far as they matter here."""
    return {
        "task": "text-classification",
        "model.type": "bert",
        "model.config.num_hidden_layers": layers,
        "model.config.hidden_size": width,
        "model.config.vocab_size": 512,
        "training.per_device_train_batch_size": batch,
        "training.max_seq_length": length,
        "training.optim": "adamw_torch",
        "target.machine": "x86_64",
        **more,
    }


def record(seconds, ingredients, *, compiler="inductor", directory=DIRECTORY, model_type="bert", instance=""):
    key = key_of({**ingredients, "in": directory})
    return Timed(key, "toy", compiler, directory, model_type, ingredients, seconds, instance)


def job(ingredients, *, compiler="inductor", directory=DIRECTORY, model_type="bert", machine=""):
    return Job(compiler, directory, model_type, ingredients, machine)


def measured(ingredients, noise=0.0):
    """Seconds as they were measured with Inductor: so much a layer, so much beside them, and hardly by sizes."""
    layers = ingredients["model.config.num_hidden_layers"]
    return (52 + 15 * layers) * math.exp(noise)


def compiled_on_neuron(ingredients):
    """Seconds of a compiler that nobody measured here: other powers than those that are assumed of it."""
    layers, width = (ingredients[f"model.config.{name}"] for name in ("num_hidden_layers", "hidden_size"))
    tokens = ingredients["training.per_device_train_batch_size"] * ingredients["training.max_seq_length"]
    return 3 * (2 + layers) ** 1.15 * (width / 128) ** 0.9 * (tokens / 512) ** 0.15


def some_shape(dice):
    return hard(
        dice.randint(1, 8), dice.choice([32, 64, 128, 768]), dice.choice([4, 8, 16]), dice.choice([32, 64, 128])
    )


@pytest.mark.feature("P3")
@pytest.mark.parametrize("neighbours", [1, 3, 12])
def test_the_median_error_is_within_a_quarter(neighbours):
    """Of recipes with a neighbour, by jobs whose compiles scatter by a tenth."""
    dice = random.Random(7)
    errors = []
    for _ in range(60):
        shapes = [some_shape(dice) for _ in range(neighbours)]
        known = [record(measured(shape, dice.gauss(0, 0.1)), shape) for shape in shapes]
        wanted = some_shape(dice)
        truth = measured(wanted, dice.gauss(0, 0.1))
        errors.append(abs(estimate(job(wanted), known).seconds / truth - 1))
    assert statistics.median(errors) <= (0.25 if neighbours == 1 else 0.15)


@pytest.mark.feature("P3")
def test_records_correct_a_law_that_was_assumed_wrongly():
    """With records the powers become those of the compiler as it is: one is not enough, twelve are."""
    errors = {}
    for neighbours in (1, 12):
        dice, found = random.Random(3), []
        for _ in range(40):
            shapes = [some_shape(dice) for _ in range(neighbours)]
            known = [record(compiled_on_neuron(one), one, compiler="neuron", directory="n") for one in shapes]
            wanted = some_shape(dice)
            guess = estimate(job(wanted, compiler="neuron", directory="n"), known)
            found.append(abs(guess.seconds / compiled_on_neuron(wanted) - 1) if guess else math.inf)
        errors[neighbours] = statistics.median(found)
    assert errors[12] <= 0.1 < errors[1]


def test_one_neighbour_is_scaled_and_several_are_fitted():
    base = record(100.0, hard(2))
    deeper = estimate(job(hard(12)), [base])
    assert (deeper.method, [one.key for one in deeper.sources]) == ("scaled", [base.key])
    assert deeper.sources[0].share == 1.0
    assert 200 < deeper.seconds < 400, "ten layers more are several times what two take, and not six times"
    other = record(400.0, hard(24))
    both = estimate(job(hard(12)), [base, other])
    assert both.method == "fitted"
    assert sum(one.share for one in both.sources) == pytest.approx(1.0)
    assert 100 < both.seconds < 400
    assert both.high / both.low < deeper.high / deeper.low, "who knows more is surer"


def test_the_same_job_is_what_was_measured():
    wanted = hard(4, optimizer="x")
    shapes = [hard(layers, 768) for layers in (1, 20)]
    own = measured(wanted) * 1.3
    found = estimate(job(wanted), [record(own, wanted), *(record(measured(shape), shape) for shape in shapes)])
    assert found.seconds == pytest.approx(own, rel=0.1)
    assert found.low < own < found.high
    assert found.sources[0].seconds == own


@pytest.mark.parametrize(
    "change",
    [{"directory": "inductor-2.14.0"}, {"machine": "trn1.32xlarge"}, {"model_type": "gpt2"}],
    ids=["version", "machine", "family"],
)
def test_another_version_machine_or_family_says_less(change):
    known = [record(100.0, hard())]
    near, far = estimate(job(hard(3)), known), estimate(job(hard(3), **change), known)
    assert far.seconds == pytest.approx(near.seconds, rel=1e-6)
    assert far.low < near.low < near.high < far.high


def test_of_two_records_the_likelier_one_counts_more():
    """Of this version rather than of another, with this optimizer rather than with another."""
    for near, far in (
        (record(100.0, hard(2)), record(200.0, hard(2), directory="inductor-2.14.0")),
        (record(100.0, hard(2)), record(200.0, hard(2, **{"training.optim": "adafactor", "compiler.flags": ["-O1"]}))),
    ):
        found = estimate(job(hard(2)), [far, near])
        assert found.sources[0].key == near.key
        assert found.seconds < math.sqrt(100.0 * 200.0)


@pytest.mark.parametrize(
    "known",
    [
        [],
        [record(100.0, hard(), compiler="neuron")],
        [record(0.0, hard())],
        [record(100.0, hard(), model_type=COMMAND)],
        [record(100.0, hard(), model_type=IMPORTED)],
    ],
    ids=["nothing", "another compiler", "nothing compiled", "a command", "imported"],
)
def test_what_is_no_neighbour_says_nothing(known):
    assert estimate(job(hard()), known) is None


def test_a_command_is_told_by_commands():
    known = [record(100.0, hard()), record(40.0, {"task": COMMAND, "command": "b"}, model_type=COMMAND)]
    found = estimate(job({"task": COMMAND, "command": "a"}, model_type=COMMAND), known)
    assert found.seconds == 40.0


def test_too_far_away_is_unknown():
    """On Neuron, of whose law least is known: a toy says nothing of a model of eight billion parameters."""
    toy = record(5.0, hard(1, 32, 1, 8), compiler="neuron", directory="n", model_type="bert")
    giant = hard(80, 16384, 64, 4096, **{"model.type": "llama", "task": "causal-lm", "model.config.vocab_size": 128256})
    assert estimate(job(giant, compiler="neuron", directory="n", model_type="llama"), [toy]) is None


@given(
    st.lists(
        st.tuples(st.integers(1, 48), st.sampled_from([32, 768, 4096]), st.floats(0.01, 1e5)), min_size=1, max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_an_estimate_is_finite_and_does_not_depend_on_order(rows, dice):
    known = [record(seconds, hard(layers, width)) for layers, width, seconds in rows]
    known = list({one.key: one for one in known}.values())
    first = estimate(job(hard(6)), known)
    dice.shuffle(known)
    second = estimate(job(hard(6)), known)
    assert first is not None
    assert 0 < first.low < first.seconds < first.high < math.inf
    assert second.seconds == pytest.approx(first.seconds, rel=1e-6)


@given(st.floats(0.001, 1000))
def test_an_estimate_scales_with_what_was_measured(factor):
    """In another unit it is the same estimate."""
    shapes = [hard(1), hard(4, 64), hard(9, 32, 16)]
    plain = estimate(job(hard(6)), [record(10.0 * n, shape) for n, shape in enumerate(shapes, 1)])
    scaled = estimate(job(hard(6)), [record(10.0 * n * factor, shape) for n, shape in enumerate(shapes, 1)])
    assert scaled.seconds == pytest.approx(plain.seconds * factor, rel=1e-6)


def test_of_thousands_the_nearest_are_asked():
    known = [record(100.0 + number, hard(2, 32, 8, 32, number=number)) for number in range(2000)]
    same = record(7.0, hard(5, 64, 8, 32), directory="inductor-2.14.0")
    assert len(estimate(job(hard()), [*known, same]).sources) <= 32


@pytest.mark.parametrize(
    "ingredients, layers",
    [
        ({"model.config.num_hidden_layers": 12}, 12),
        ({"model.config.n_layer": 12}, 12),
        ({"model.config.n_layers": 6}, 6),
        ({"model.config.encoder_layers": 6, "model.config.decoder_layers": 4, "model.config.num_hidden_layers": 6}, 10),
        ({"model.type": "t5", "model.config.num_layers": 6}, 12),
        ({"model.config.num_layers": 6, "model.config.num_decoder_layers": 2}, 8),
        ({"model.config.depths": [3, 4, 6, 3]}, 16),
        ({"model.config.num_block_repeats": [1, 2]}, 3),
        ({"model.config.num_hidden_layers": "many"}, None),
        ({"model.config.num_hidden_layers": -1}, None),
        ({}, None),
    ],
)
def test_layers_are_found_by_every_familys_name(ingredients, layers):
    expected = math.log((layers + 3) / 15) if layers else 0.0
    assert measures(ingredients, 3)["layers"] == pytest.approx(expected)


def test_images_are_counted_in_patches():
    shape = {"training.image_size": 224, "model.config.patch_size": 16, "training.per_device_train_batch_size": 2}
    assert measures(shape, 3)["length"] == pytest.approx(math.log(196 / 128))
    assert measures(shape, 3)["tokens"] == pytest.approx(math.log(392 / 2048))


@given(
    st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=4, max_size=4),
    st.lists(st.floats(-9, 9), min_size=4, max_size=4),
)
def test_a_system_of_equations_is_solved(rows, values):
    """Of `rows · rowsᵀ + 1`, which is symmetric and positive whatever the rows are."""
    table = [[sum(a * b for a, b in zip(one, two, strict=True)) + (one is two) for two in rows] for one in rows]
    found = solve(cholesky(table), values)
    back = [sum(a * b for a, b in zip(row, found, strict=True)) for row in table]
    assert back == pytest.approx(values, abs=1e-6)
