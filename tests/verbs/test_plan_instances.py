"""`cachekit plan --instances`: which instance type trains a recipe cheapest, by published figures and prices alone."""

from __future__ import annotations

import pytest

from tests.support.cli_session import the_error
from tests.verbs.test_plan_several import NEW, WARM, json_of, store, warm_under  # noqa: F401 - a fixture

pytest_plugins = ["tests.support.cli_session"]


def compared(command, *words):
    answer = json_of(command, "plan", *words, "--instances")
    return answer, {row["instance"]: row for row in answer["instances"]}


@pytest.mark.feature("P4")
def test_trainium_against_gpus_as_the_articles_have_it(command):
    """AWS: 41.47 and 68.60 dollars, 6.64 and 5.44 steps a second; each within 0.1 % of ours."""
    answer, rows = compared(command, "bert-amazon-polarity")
    trainium, gpus = rows["ml.trn1.32xlarge"], rows["ml.p4d.24xlarge"]
    assert [row["instance"] for row in answer["instances"]][:2] == ["ml.trn1.32xlarge", "ml.p4d.24xlarge"]
    assert answer["cheapest"] == "ml.trn1.32xlarge"
    assert trainium["training_dollars"] == pytest.approx(41.47, rel=0.001)
    assert gpus["training_dollars"] == pytest.approx(68.60, rel=0.001)
    assert [row["training"]["steps_per_second"] for row in (trainium, gpus)] == [6.64, 5.44]
    (why,) = answer["why"]
    assert why.startswith("$41.43 on ml.trn1.32xlarge is 40 % less than $68.61 on ml.p4d.24xlarge: ")
    assert why.endswith("an hour costs 34 % less, training takes 8 % less time, 22 % more steps a second")
    assert all(row["training"]["source"] and row["price"]["source"] for row in (trainium, gpus))
    # The other article has no times, and compares prices: 0.66 and, with a tenth more speed, 0.70 of a p4d.
    assert rows["trn1.32xlarge"]["equal_speed"] / rows["p4d.24xlarge"]["equal_speed"] == pytest.approx(0.66, abs=0.005)
    assert rows["trn1n.32xlarge"]["equal_speed"] / rows["p4d.24xlarge"]["equal_speed"] / 1.1 == pytest.approx(
        0.69, abs=0.005
    )


def test_what_nobody_has_published_is_unknown_and_how_fast_it_must_be_is_said(command):
    answer, rows = compared(command, "bert")
    gpu = rows["g5.xlarge"]
    assert (answer["cheapest"], answer["base"]) == ("", "trn1.2xlarge"), "its time alone is no comparison"
    assert (gpu["training"], gpu["training_dollars"], gpu["plan"]) == (None, None, "none")
    assert gpu["equal_speed"] == pytest.approx(1.006 / 1.34, abs=1e-4)
    assert rows["trn2.48xlarge"]["equal_speed"] is None, "it has no price"
    screen = command("plan", "bert", "--instances").out
    assert "neither a price nor a time is known for" in screen
    assert all(len(line) <= 80 for line in screen.splitlines())
    assert [line.split()[3:5] for line in screen.splitlines() if line.startswith("g5.xlarge")] == [["unknown", "-"]]


def test_a_bill_stands_for_a_price_that_nobody_quotes(command):
    answer, rows = compared(command, "bert-large-squad")
    assert answer["cheapest"] == "p3.2xlarge"
    assert (rows["p3.2xlarge"]["training_dollars"], rows["p3.2xlarge"]["billed"]) == (15, True)
    assert rows["p3.16xlarge"]["training"]["machines"] == 2
    own, _ = compared(command, "bert-large-squad", "--price", "p3.16xlarge=1.00", "--price", "p3.2xlarge=1.00")
    assert own["cheapest"] == "p3.16xlarge", "two machines for 24 minutes cost 0.80 then, and one for four hours 4.00"


def test_a_recipe_with_other_settings_has_no_published_time(command):
    answer, _ = compared(command, "bert", "--set", "training.num_train_epochs=9")
    assert answer["cheapest"] == ""
    assert "without --set" in answer["why"][0]


def test_a_time_of_your_own_counts_like_a_published_one(command, tmp_path):
    text = """
name: mine
model: {id: bert-base-uncased}
data: {id: our/reviews, labels: [bad, good]}
expect:
  - {instance: trn1.2xlarge, train_seconds: 3600, source: "ours, 2026-11-20"}
  - {instance: g5.xlarge, train_seconds: 3600, source: "ours, 2026-11-21"}
"""
    (tmp_path / "mine.yaml").write_text(text)
    answer, rows = compared(command, tmp_path / "mine.yaml")
    assert (answer["cheapest"], rows["g5.xlarge"]["training_dollars"]) == ("g5.xlarge", 1.006)


def test_a_machine_that_cannot_hold_the_layout_says_why(command):
    _, rows = compared(command, "llama3-8b-lora")
    assert rows["trn1.2xlarge"]["plan"] == "refused"
    assert "a node of trn1.2xlarge has 2 cores" in rows["trn1.2xlarge"]["refused"]


def test_what_is_warm_for_one_machine_is_a_hit_there(command, store):
    warm_under(store, "bert", NEW, WARM["bert"])
    _, rows = compared(command, "bert", "--toolchain", NEW)
    assert {name for name, row in rows.items() if row["plan"] == "hit"} >= {"trn1.2xlarge"}
    assert rows["trn1.2xlarge"]["compiling"] is None
    assert rows["trn1.32xlarge"]["plan"] == "miss", "32 workers are other graphs"


def test_the_published_throughput_is_on_the_screen(command):
    screen = " ".join(command("plan", "bert-amazon-polarity", "--instances").out.split())
    assert "2023-03, 6.64 steps a second" in screen
    assert "2023-03, 5.44 steps a second, the same job on eight A100" in screen
    assert "$24.73 an hour for an ml.trn1.32xlarge: " in screen


def test_what_no_machine_could_help_is_an_error(command):
    said = the_error(command("plan", "bert", "--instances", "--toolchain", "neuron-9.9", code=2))
    assert said == the_error(command("plan", "bert", "--toolchain", "neuron-9.9", code=2))
    assert said[0] == "unknown-name"


def test_many_machines_that_cannot_train_it_fit_the_screen(command):
    screen = command("plan", "llama3-8b-lora", "--instances", "--toolchain", "neuron-2.31").out
    assert all(len(line) <= 80 for line in screen.splitlines())


def test_a_table_in_which_nothing_is_compared_has_no_column_for_it(command):
    screen = command("plan", "bert-large-squad", "--instances").out
    assert "equal at" not in screen
    assert all(len(line) <= 80 for line in screen.splitlines())


@pytest.mark.parametrize(
    "words",
    [
        ("bert", "vit"),
        ("--all",),
        ("bert", "--require-warm"),
        ("bert", "--instance", "trn1.2xlarge"),
        ("bert", "--target", "trn1"),
        ("bert", "--price", "0.40"),
        ("bert", "--price", "trn9.big=1"),
    ],
)
def test_what_does_not_go_with_it_is_refused(command, words):
    assert the_error(command("plan", *words, "--instances", code=2))[0] in {"usage", "unknown-name"}
