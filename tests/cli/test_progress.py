"""A run's events as a person follows them: plain lines, one live line, and what quiet leaves of it."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace

import pytest
import rich.console

from cachekit.cli import progress
from cachekit.cli.progress import EVERY, Progress
from tests.support.processes import until

pytestmark = pytest.mark.versions

WARM = [
    {"event": "plan", "recipe": "tiny", "key": "0" * 64, "status": "miss"},
    {"event": "compile.start", "key": "0" * 64, "expected_seconds": 61.0},
    {"event": "worker.start", "mode": "trial", "log": "/x.log", "output_dir": ""},
    {"event": "worker.phase", "name": "import"},
    {"event": "worker.phase", "name": "data"},
    {"event": "worker.phase", "name": "model"},
    {"event": "worker.phase", "name": "train"},
    {"event": "worker.graphs", "found": 0, "compiled": 1, "phase": "first training step"},
    {"event": "worker.graphs", "found": 0, "compiled": 2, "phase": "first training step"},
    {"event": "worker.step", "step": 1, "of": 3},
    {"event": "worker.log", "step": 2, "loss": 1.0},
    {"event": "worker.graphs", "found": 0, "compiled": 3, "phase": "evaluation or saving"},
    {"event": "worker.end", "mode": "trial", "counters": {}, "seconds": {}, "steps": 3},
    {"event": "warm.end", "recipe": "tiny", "key": "0" * 64, "compiled": 3},
]
TRAIN = [
    {"event": "restore", "key": "0" * 64, "bytes": 4_700_000, "seconds": 0.31},
    {"event": "worker.start", "mode": "train", "log": "/x.log", "output_dir": "/runs/tiny"},
    {"event": "worker.phase", "name": "train"},
    {"event": "worker.resume", "checkpoint": "/runs/tiny/checkpoint-3"},
    {"event": "worker.graphs", "found": 3, "compiled": 0, "phase": "first training step"},
    {"event": "worker.step", "step": 1, "of": 300},
    {"event": "worker.log", "step": 50, "loss": 0.71234, "learning_rate": 1e-4, "epoch": 0.5},
    {"event": "worker.log", "step": 100, "eval_loss": 0.31, "eval_accuracy": 0.9167, "eval_f1": 0.91, "eval_rows": 24},
    {"event": "worker.evaluating", "split": "test"},
    {"event": "worker.phase", "name": "evaluate"},
    {"event": "worker.log", "step": 100, "eval_loss": 0.32, "eval_accuracy": 0.9, "eval_f1": 0.89, "eval_rows": 24},
    {"event": "worker.phase", "name": "save"},
]
DAMAGE = {"event": "store.damaged", "path": "/store/blob", "reason": "its digest does not match", "kept": False}
WARNINGS = [
    ({**DAMAGE, "quarantine": "/q"}, "/store/blob is damaged (its digest does not match); set aside in quarantine"),
    (DAMAGE, "/store/blob is damaged (its digest does not match)"),
    ({**DAMAGE, "kept": True, "quarantine": "/q"}, "/store/blob is damaged (its digest does not match)"),
    ({**DAMAGE, "reason": "it is missing", "quarantine": ""}, "/store/blob is missing"),
    (
        {"event": "resume.passed", "checkpoint": "/runs/x/checkpoint-9", "reason": "optimizer.pt is truncated"},
        "/runs/x/checkpoint-9 is skipped: optimizer.pt is truncated",
    ),
    (
        {"event": "train.compiled", "graphs": 2, "built": 5, "when": ["evaluation or saving"]},
        "2 graphs and 5 binaries compiled in: evaluation or saving; they are added to the record",
    ),
    (
        {"event": "train.compiled", "graphs": 1, "built": 1, "when": []},
        "1 graph and 1 binary compiled; they are added to the record",
    ),
    (
        {"event": "restore.left", "module": "MODULE_1", "reason": "there is a link in its place"},
        "MODULE_1 was left as it is, and not restored: there is a link in its place",
    ),
    ({"event": "train.not-kept", "reason": "disk full"}, "what was compiled could not be kept: disk full"),
]


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def plain(events, *, quiet=False):
    """The lines of a run without a terminal."""
    lines = []
    shown = Progress(lines.append, live=False, quiet=quiet)
    for event in events:
        shown.event(event)
    shown.close()
    return lines


def test_a_warm_in_plain_lines(clock):
    assert plain(WARM) == [
        "compiling: a trial run of a few steps; expected about 1 min 1 s",
        "  loading PyTorch and Transformers",
        "  loading data",
        "  loading the model",
        "  training",
        "  0.0 s of about 1 min 1 s; graphs: 1 compiled, 0 found; first training step",
        "  0.0 s of about 1 min 1 s; graphs: 2 compiled, 0 found; first training step",
        "  0.0 s of about 1 min 1 s; graphs: 3 compiled, 0 found; evaluation or saving",
    ]


TICK = {"event": "worker.tick"}
AT = {"event": "worker.at", "phase": "first training step"}


def test_the_first_graph_is_no_silence(clock):
    """Most of a compile is one graph, and no counter moves meanwhile."""
    lines = []
    shown = Progress(lines.append, live=False, quiet=False)
    for event in [*WARM[:7], AT]:
        shown.event(event)
    lines.clear()
    for _ in range(65):
        clock.now += 1
        shown.event(TICK)
    assert lines == [
        "  30 s of about 1 min 1 s; graphs: 0 compiled, 0 found; first training step",
        "  1 min 0 s of about 1 min 1 s; graphs: 0 compiled, 0 found; first training step",
    ]


def test_a_compile_that_takes_longer_than_expected_says_so_meanwhile_and_at_its_end(clock):
    lines = []
    shown = Progress(lines.append, live=False, quiet=False)
    for event in [*WARM[:7], AT]:
        shown.event(event)
    clock.now += 400
    shown.event(TICK)
    shown.event({"event": "warm.end"})
    assert lines[-2:] == [
        "  longer than expected: usually 1 min 1 s, now 6 min 40 s; graphs: 0 compiled, 0 found; first training step",
        "compiling took longer than expected: usually 1 min 1 s, this time 6 min 40 s",
    ]


def test_a_training_in_plain_lines(clock):
    assert plain(TRAIN) == [
        "restored 4.7 MB in 0.3 s",
        "  training",
        "resuming from /runs/tiny/checkpoint-3",
        "  graphs: 0 compiled, 3 found; first training step",
        "  step 50: loss 0.7123",
        "  step 100, validation: accuracy 0.9167, F1 0.9100, loss 0.3100",
        "  evaluating",
        "  step 100, test: accuracy 0.9000, F1 0.8900, loss 0.3200",
        "  saving the model",
    ]


def test_steps_are_told_rarely(clock):
    """A log file must not grow by a line a step, nor stay silent for an hour."""
    lines = []
    shown = Progress(lines.append, live=False, quiet=False)
    for event in TRAIN[:5]:
        shown.event(event)
    lines.clear()
    for step in range(1, 101):
        clock.now += 1
        shown.event({"event": "worker.step", "step": step, "of": 300})
    assert lines == [
        f"  training: step {step} of 300; graphs: 0 compiled, 3 found" for step in range(int(EVERY), 101, int(EVERY))
    ]


def test_a_wait_is_told_at_once_and_then_rarely(clock):
    lines = []
    shown = Progress(lines.append, live=False, quiet=False)
    holder = "process 4711 of ann@trn-7, for 100 s"
    shown.event({"event": "lock.wait", "key": "0", "holder": holder})
    for second in range(61):
        shown.event({"event": "lock.waiting", "holder": holder, "waited": float(second)})
        clock.now += 1
    assert lines[0] == f"waiting: the same key is being compiled by {holder}"
    assert lines[1:] == [f"  still waiting for {holder}"] * 2


def test_a_wait_for_another_machine_says_all_that_is_known_of_it_in_80_columns(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = []
    shown = Progress(lines.append, live=False, quiet=False)
    holder = "process 4711 of ann@ip-10-0-3-17 (trn1.32xlarge), since 2026-11-23 18:30:02 UTC by its clock"
    known = {
        "holder": holder, "host": "ip-10-0-3-17", "user": "ann", "last_sign": "2026-11-23T18:35:32+00:00",
        "last_sign_seconds": None, "takes_over_seconds": 347.9,
    }  # fmt: skip
    shown.event({"event": "lock.wait", "key": "0", **known})
    shown.event({"event": "lock.waiting", "waited": 1.0, **known})
    clock.now += EVERY
    shown.event({"event": "lock.waiting", "waited": 30.0, **known})
    clock.now += EVERY
    known |= {"last_sign_seconds": 21.5, "takes_over_seconds": 326.5}
    shown.event({"event": "lock.waiting", "waited": 60.0, **known})
    assert lines == [
        "waiting: the same key is being compiled by process 4711 of ann@ip-10-0-3-17",
        "         (trn1.32xlarge), since 2026-11-23 18:30:02 UTC by its clock",
        "  waiting for ann@ip-10-0-3-17: sign of life at 18:35:32, takeover in 5 min 48 s",
        "  waiting for ann@ip-10-0-3-17: sign of life 22 s ago, takeover in 5 min 26 s",
    ]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(("event", "text"), WARNINGS, ids=lambda value: str(value)[:40])
def test_warnings_survive_quiet(clock, capsys, event, text, quiet):
    assert plain([event], quiet=quiet) == []
    assert capsys.readouterr().err == f"warning: {text}\n"


def test_a_run_that_goes_on_without_what_may_not_be_used_says_so_first(clock, capsys):
    refused = {"event": "remote.untrusted", "remote": "r", "message": "r is not used", "reason": "it is not signed"}
    followed = Progress([].append, live=False, quiet=False)
    followed.event(refused)
    assert capsys.readouterr().err == "", "an error may say it"
    followed.event({"event": "compile.start", "key": "0"})
    assert capsys.readouterr().err == "warning: r is not used: it is not signed\n"
    followed.event(refused)
    followed.event(refused | {"reason": "it is revoked"})
    followed.answered("r: it is not signed")
    followed.close()
    assert capsys.readouterr().err == "warning: r is not used: it is revoked\n"


def test_what_the_answer_has_said_is_no_warning(clock, capsys):
    failed = {"event": "remote.failed", "remote": "r", "code": "remote", "hint": "", "skipped": False}
    followed = Progress([].append, live=False, quiet=False)
    for reason in ("r answers with an error: 503", "r stopped answering"):
        followed.event({**failed, "reason": reason})
    followed.answered("tiny: unknown\n  r could not be asked: it answers with\n    an error: 503")
    followed.close()
    assert capsys.readouterr().err == "warning: r stopped answering; continuing without it\n"


def test_quiet_says_nothing_else(clock, capsys):
    wait = {"event": "lock.wait", "key": "0", "holder": "process 1"}
    waiting = {"event": "lock.waiting", "holder": "process 1", "waited": 99.0}
    assert plain([*WARM, *TRAIN, wait, waiting], quiet=True) == []
    assert capsys.readouterr().err == ""


# On a terminal


class Screen:
    """A terminal of 80 columns, to which rich writes; keeps what it wrote."""

    def __init__(self, monkeypatch) -> None:
        self.file = io.StringIO()
        real = rich.console.Console
        monkeypatch.setattr(
            rich.console,
            "Console",
            lambda **options: real(
                **{**options, "stderr": False}, file=self.file, force_terminal=True, width=80, no_color=True
            ),
        )
        self.progress = Progress(lambda line: sys.stderr.write(line + "\n"), live=True, quiet=False)

    @property
    def now(self) -> str:
        """The live line."""
        return str(self.progress._status.renderable.text.__rich__())

    @property
    def written(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.file.getvalue())


@pytest.fixture
def screen(monkeypatch, clock):
    made = Screen(monkeypatch)
    yield made
    made.progress.close()


def test_the_time_runs_on_the_live_line_without_any_event(screen, clock):
    for event in [*WARM[:7], AT]:
        screen.progress.event(event)
    for seconds, shown in ((0, "0.0 s"), (7, "7.0 s"), (35, "42 s")):
        clock.now += seconds
        assert screen.now == f"{shown} of about 1 min 1 s; graphs: 0 compiled, 0 found; first training step"


def test_the_live_line_has_totals_and_an_honest_end_and_is_one_line(screen, clock):
    """A second line would need the cursor to go up, and is left behind where it cannot."""
    for event in [WARM[1] | {"expected_graphs": 3}, *WARM[2:8]]:
        screen.progress.event(event)
    assert screen.now == "0.0 s of about 1 min 1 s; graphs: 1 compiled, 0 found, of about 3; first training step"
    clock.now += 406
    until(lambda: "6 min 46 s" in screen.written, "the line is shown anew")
    (line,) = {part for part in re.split(r"[\r\n]+", screen.written) if "6 min 46 s" in part}
    assert line[2:].startswith("longer than expected: usually 1 min 1 s, now 6 min 46 s; graphs: 1 comp")
    assert len(line) <= 80
    assert line.endswith("…")
    screen.progress.event(WARM[7] | {"compiled": 4})
    assert "; graphs: 4 compiled, 0 found; " in screen.now, "more than the total, which is not this job's"


def test_lines_that_stay_are_written_above_the_live_line(screen, capsys):
    for event in TRAIN:
        screen.progress.event(event)
    screen.progress.event(WARNINGS[0][0])
    screen.progress.close()
    kept = capsys.readouterr().err + screen.written
    for line in (
        "restored 4.7 MB in 0.3 s",
        "step 50: loss 0.7123",
        "step 100, validation: accuracy 0.9167, F1 0.9100, loss 0.3100",
        "step 100, test: accuracy 0.9000, F1 0.8900, loss 0.3200",
        "warning: /store/blob is damaged (its digest does not match)",
    ):
        assert kept.count(line) == 1, kept


def test_the_live_line_is_gone_afterwards(screen):
    for event in WARM:
        screen.progress.event(event)
    screen.progress.close()
    assert screen.file.getvalue().endswith("\x1b[2K"), "the line is wiped"
    assert screen.file.getvalue().count("\x1b[?25l") == screen.file.getvalue().count("\x1b[?25h") == 1
    length = len(screen.file.getvalue())
    screen.progress.close()
    assert len(screen.file.getvalue()) == length, "and stays gone"


def test_names_with_brackets_are_shown_as_they_are(screen):
    """To rich they would be markup, and unbalanced ones an error."""
    screen.progress.event({"event": "lock.waiting", "holder": "process 1 of [b]ann[/x]@trn", "waited": 3.0})
    assert "process 1 of [b]ann[/x]@trn" in screen.now
