"""`warm --check-build` on the screen: what is the same, what differs, and what ends it; 80 columns are enough."""

import pytest

from tests.cli.test_cli import steady
from tests.support.cli_session import the_error

pytest_plugins = ["tests.support.cli_session"]


@pytest.fixture
def warmed(command, home, machine, worker):
    command("warm", "tiny.yaml")


@pytest.mark.feature("M4")
def test_a_build_that_is_the_same(command, warmed):
    answer = command("warm", "tiny.yaml", "--check-build")
    assert steady(answer.out).splitlines() == [
        "tiny: same  inductor-2.13.0  key ffffffffffffffff",
        "  compiled 3 graphs again; 1 part is the same, 0 differ",
        "  took 0.0 s; none of it is kept",
    ]
    assert command("warm", "tiny.yaml", "--check-build", "--format", "quiet").out == "same\n"


@pytest.mark.feature("M4")
def test_a_build_that_differs_names_it_and_ends_with_5(command, warmed, monkeypatch):
    monkeypatch.setenv("FAKE_SIZE", "13")
    answer = command("warm", "tiny.yaml", "--check-build", code=5)
    assert "  compiled 3 graphs again; 0 parts are the same, 1 differs\n    differs  kernel.so\n" in answer.out
    lines = answer.err.splitlines()
    code, what, cause, hint = the_error(answer, before=lines.index(next(x for x in lines if x.startswith("error["))))
    assert (code, what) == ("damaged", "compiling tiny here does not reproduce its record")
    assert cause.startswith("1 of 1 parts differ: kernel.so; the record was made by ")
    assert hint == "cachekit warm tiny.yaml --recache puts a new one in its place"
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert command("plan", "tiny.yaml", "--format", "json").json["status"] == "hit", "the record is as it was"


def test_it_says_what_it_does_meanwhile(command, warmed):
    assert "compiling again, to compare" in command("warm", "tiny.yaml", "--check-build").err
    assert command("warm", "tiny.yaml", "--check-build", "-q").err == ""


@pytest.mark.parametrize("other", ["--recache", "--require-warm", "--dry-run"])
def test_what_it_does_not_go_with(command, warmed, other):
    assert the_error(command("warm", "tiny.yaml", "--check-build", other, code=2))[0] == "usage"
