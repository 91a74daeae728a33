"""On a terminal errors and warnings are folded to its width; what somebody copies stays on one line."""

import pytest

from cachekit.cli import out
from cachekit.errors import UsageError
from tests.cli.cli_cases import Terminal

pytestmark = pytest.mark.versions

pytest_plugins = ["tests.support.cli_session"]

CAUSE = (
    "the folder /a/very/long/path/that/is/wider/than/the/terminal/is/and/must/stay/whole/to/be/copied/from/it belongs "
    "to another user, and `cachekit doctor --format json --home /srv/cache` says 'what to do' about ann's and ben's"
)
COMMAND = "sudo chown -R 1000:1000 /a/very/long/path/that/is/wider/than/the/terminal/is/and/must/stay/whole"
HINT = f"{COMMAND}, then again"


@pytest.fixture
def shown(capsys, monkeypatch):
    """Prints an error as on a terminal of 80 columns, or to a file; the lines."""

    def show(*, terminal, columns="80", cause=CAUSE):
        monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("NO_COLOR", "1")
        out.setup()
        assert out.error(UsageError("it cannot be", cause=cause, hint=HINT)) == 2
        return capsys.readouterr().err.splitlines()

    return show


def test_a_cause_is_folded_on_a_terminal(shown):
    first, *cause, hint, rest = shown(terminal=True)
    assert (first, hint, rest) == ("error[usage]: it cannot be", f"  hint: {COMMAND},", "         then again")
    assert cause[0].startswith("  cause: the folder")
    assert all(line.startswith(" " * 9) for line in cause[1:])
    assert [line for line in cause if len(line) > 80] == [next(line for line in cause if "/a/very" in line)]
    assert " ".join(line[9:] for line in cause) == CAUSE
    for whole in (
        "/copied/from/it",
        "`cachekit doctor --format json --home /srv/cache`",
        "'what to do'",
    ):
        assert any(whole in line for line in cause)


@pytest.mark.parametrize("columns", ["20", "60", "79", "200", "1000"])
def test_nothing_of_it_is_lost_at_any_width(shown, columns):
    lines = shown(terminal=True, columns=columns)
    told = " ".join([lines[1].removeprefix("  cause:"), *lines[2:]]).split()
    assert " ".join(told) == f"{CAUSE} hint: {HINT}"


def test_a_message_a_hint_and_a_warning_are_folded_between_words(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    words = "one two three four five six seven eight nine ten eleven twelve thirteen"
    out.warning(words)
    out.error(UsageError(words, hint=f"`cachekit trust add NAME KEY` {words}"))
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 60
    assert len([line for line in lines if line.startswith(" " * 9)]) >= 3
    assert " ".join(" ".join(lines).split()).count(words) == 3


def test_on_a_real_terminal(work, home):
    terminal = Terminal(
        "-m", "cachekit", "plan", "tiny.yaml", "--set", "training.epochz=1", NO_COLOR="1", TERM="xterm", COLUMNS="80"
    )
    terminal.end()
    lines = terminal.text.splitlines()
    assert lines[0].startswith("error[bad-recipe]: ")
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) > 3
