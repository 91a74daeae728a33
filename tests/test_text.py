"""Numbers and times as people read them."""

import pytest

from cachekit.text import about, dollars, duration, rate


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-0.04, "0.0 s"), (-0.0, "0.0 s"), (-0.3, "-0.3 s"), (9.94, "9.9 s"), (-75, "-1 min 15 s"), (7500, "2 h 5 min")],
)
def test_a_time_has_a_sign_only_where_it_is_not_shown_as_nothing(seconds, words):
    assert duration(seconds) == words


def test_so_has_money():
    assert (dollars(-0.0001), dollars(-0.02), dollars(1.25)) == ("$0.00", "-$0.02", "$1.25")
    assert (dollars(0.0137), dollars(0), dollars(1234.5), dollars(None)) == ("$0.014", "$0.00", "$1,234.50", "?")


@pytest.mark.parametrize(
    ("often", "words"), [(0.05123, "0.0512"), (9.239, "9.24"), (295.663, "296"), (1205.4, "1,205")]
)
def test_a_speed_has_three_digits(often, words):
    assert rate(often) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("a/r.yaml: name is missing", "a/r.yaml: name is missing"),
        ("a/r.yaml, line 3: unknown field", "a/r.yaml, line 3: unknown field"),
        ("a/r.yaml does not exist", "a/r.yaml does not exist"),
        ("a/r.yaml2: name is missing", "a/r.yaml: a/r.yaml2: name is missing"),
        ("no compiler is there", "a/r.yaml: no compiler is there"),
    ],
)
def test_what_is_said_of_something_names_it_once(said, words):
    assert about("a/r.yaml", said) == words
