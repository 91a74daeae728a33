"""`cachekit run`: a command of one's own, with what it compiled before; its streams, signals and exit code are its own.

The fast tests run a script that "compiles" by writing what Inductor would into its cache folder; the slow ones a real
`torch.compile`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from cli_session import the_error
from hypothesis import given
from hypothesis import strategies as st

from cachekit.actions import command_line
from cachekit.actions.command_line import read, split_options
from cachekit.actions.prepare_command import prepare_command, shown
from cachekit.compilers.inductor import elf
from cachekit.compilers.inductor.adapter import Inductor
from cachekit.errors import UsageError

LIMIT = 120.0
COMPILES = '''
"""Stands in for a script that uses torch.compile: a graph is an entry in Inductor's folder, and a kernel beside it."""
import os, signal, sys, time
from pathlib import Path
from parts import GRAPHS

root = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
for graph in GRAPHS:
    entry = root / "fxgraph" / "ab" / graph
    print(graph, "found" if entry.exists() else "compiled", flush=True)
    if not entry.exists():
        (root / f"{graph}.cpp").write_text("int main;")
        time.sleep(float(os.environ.get("SLOW", "0")))
        (root / f"{graph}.so").write_bytes(Path(os.environ["A_LIBRARY"]).read_bytes())
        entry.mkdir(parents=True)
        (entry / "entry").write_bytes(b"graph " + graph.encode())
if "--half" in sys.argv:
    (root / "half.so").write_bytes(bytes(4096))  # as a linker leaves it that was killed
if "--ask" in sys.argv:
    print("read", sys.stdin.readline().strip(), flush=True)
if "--wait" in sys.argv:
    def asked(number, _):
        print("asked by", signal.Signals(number).name, flush=True)
        sys.exit(5)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, asked)
    print("waiting", flush=True)
    time.sleep(60)
if "--fail" in sys.argv:
    sys.exit(7)
'''


class User:
    """Somebody with a script, a store and a shell."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.work, self.home = folder / "work", home or folder / "store"
        self.work.mkdir(parents=True)
        (self.work / "train.py").write_text(COMPILES)
        self.graphs("forward", "backward")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OMP_")},
            "CACHEKIT_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "A_LIBRARY": sys.modules["_ctypes"].__file__ if "_ctypes" in sys.modules else _a_library(),
        }

    def graphs(self, *names: str) -> None:
        (self.work / "parts.py").write_text(f"GRAPHS = {list(names)!r}\n")

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "cachekit", *arguments],
            cwd=self.work,
            env={**self.environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, code: int = 0, feed: str = "", **variables: str) -> subprocess.CompletedProcess:
        process = self.start(*arguments, **variables)
        out, err = process.communicate(feed, timeout=LIMIT)
        assert process.returncode == code, f"{arguments}: exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def run(self, *words: str, code: int = 0, options: tuple[str, ...] = (), **variables: str) -> dict:
        """What became of a command; what it printed is left in `said`."""
        report = self.work.parent / "report.json"
        report.unlink(missing_ok=True)
        done = self("run", "--report", str(report), "-q", *options, "--", *words, code=code, **variables)
        self.said = done.stdout.splitlines()
        return json.loads(report.read_text())


def _a_library() -> str:
    import _ctypes

    return _ctypes.__file__


@pytest.fixture
def user(tmp_path):
    return User(tmp_path / "one")


TRAIN = ("python", "train.py", "--lr", "0.1")


@pytest.mark.feature("S1")
def test_a_second_run_finds_what_the_first_compiled(user):
    first = user.run(*TRAIN)
    assert user.said == ["forward compiled", "backward compiled"]
    assert (first["status"], first["compiled"], first["kept"], first["exit_code"]) == ("miss", 2, True, 0)
    second = user.run(*TRAIN)
    assert user.said == ["forward found", "backward found"]
    assert (second["status"], second["compiled"], second["built"]) == ("hit", 0, 0)
    assert second["key"] == first["key"]
    assert not list((user.home / "v1").glob("live/*/*")), "no live root stays behind"


def test_stdout_is_the_commands_and_what_cachekit_says_goes_to_stderr(user):
    done = user("run", "--format", "json", "--", *TRAIN)
    assert done.stdout.splitlines() == ["forward compiled", "backward compiled"]
    assert json.loads(done.stderr.splitlines()[-1])["compiled"] == 2
    done = user("run", *TRAIN, "-q")  # from the command's first word on, everything is the command's
    assert json.loads(user("ls", "-f", "json").stdout)[0]["recipe"] == "train.py"
    done = user("run", "--require-warm", "--format", "json", "--", "python", "train.py", "--other", code=3)
    assert done.stdout == ""


def test_dry_run_runs_nothing_and_its_plan_goes_to_stdout(user):
    planned = json.loads(user("run", "--dry-run", "-f", "json", "--", *TRAIN).stdout)
    assert (planned["status"], planned["recipe"]) == ("miss", "train.py")
    user("run", "--dry-run", "--require-warm", "--", *TRAIN, code=3)
    user.run(*TRAIN)
    planned = json.loads(user("run", "--dry-run", "--require-warm", "-f", "json", "--", *TRAIN).stdout)
    assert planned["status"] == "hit"
    hard = json.loads(user("show", planned["key"], "-f", "json").stdout)["hard"]
    assert hard["command.arguments"] == ["--lr", "0.1"]


def test_a_failed_command_loses_nothing_and_its_exit_code_is_the_answer(user):
    done = user.run(*TRAIN, "--fail", "--half", code=7)
    assert (done["exit_code"], done["compiled"], done["kept"]) == (7, 2, True)
    user("run", "--require-warm", "--", *TRAIN, "--fail", "--half", code=3)  # what failed may lack graphs
    user.run(*TRAIN, "--fail", "--half", code=7)
    assert user.said == ["forward found", "backward found"]


def test_machine_code_of_a_linker_that_was_killed_is_not_kept(user):
    user.run(*TRAIN, "--half")
    (user.work / "train.py").write_text("import os; print(sorted(os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR'])))")
    user.run(*TRAIN, "--half")  # begun with the other's
    assert "forward.so" in user.said[0]
    assert "half.so" not in user.said[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command_once_and_what_compiled_is_kept(user, number):
    process = user.start("run", "-q", "--", *TRAIN, "--wait")
    for line in process.stdout:
        if line.strip() == "waiting":
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out.splitlines()) == (5, [f"asked by {number.name}"]), err
    assert json.loads(user("ls", "-f", "json").stdout)[0]["graphs"] == 2


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, command: list[str], cwd: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = os.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(theirs)
        self.shown = b""

    def read(self, until: bytes = b"") -> None:
        """Read until something is shown, or to the end."""
        while not until or until not in self.shown:
            try:
                block = os.read(self._ours, 4096)
            except OSError:  # the last one has closed it
                block = b""
            if not block:
                assert not until, self.shown
                return
            self.shown += block

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)


def test_ctrl_c_at_a_terminal_reaches_the_command_once(user):
    command = [sys.executable, "-m", "cachekit", "run", "-q", "--", *TRAIN, "--wait"]
    terminal = Terminal(command, user.work, user.environment)
    terminal.read(b"waiting")
    terminal.type(b"\x03")
    terminal.read()
    assert terminal.process.wait(LIMIT) == 5
    assert terminal.shown.count(b"asked by SIGINT") == 1
    assert json.loads(user("ls", "-f", "json").stdout)[0]["graphs"] == 2


def test_a_command_that_is_heard_is_at_a_terminal_still(user):
    driver = """
import sys
from cachekit.training.passthrough import Passthrough
heard = []
inner = "import os, sys; print('tty', *(os.isatty(n) for n in range(3))); print('read', input()); sys.exit(9)"
code = Passthrough(hear=heard.append).run([sys.executable, "-c", inner], {})
print("code", code, b"tty True True True" in b"".join(heard), b"read hello" in b"".join(heard))
"""
    terminal = Terminal([sys.executable, "-c", driver], user.work, user.environment)
    terminal.read(b"tty True True True")
    terminal.type(b"hello\n")
    terminal.read()
    assert b"code 9 True True" in terminal.shown
    terminal.process.wait(LIMIT)


def test_a_command_that_a_signal_ends_gives_the_shells_code(user):
    (user.work / "train.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert user.run("python", "train.py", code=137)["exit_code"] == 137
    (user.work / "train.py").write_text("raise SystemExit(130)")
    assert user.run("python", "train.py", code=130)["exit_code"] == 130


def test_the_command_reads_what_is_typed(user):
    done = user("run", "-q", "--", *TRAIN, "--ask", feed="hello\n")
    assert done.stdout.splitlines()[-1] == "read hello"


def test_a_strict_run_stops_as_a_compile_begins(user):
    user.run(*TRAIN)
    # The graphs change, and nothing that can be known of the command does.
    (user.work / "train.py").write_text(COMPILES.replace("from parts", "import os\nfrom parts"))
    user.run(*TRAIN)
    done = user("run", "--require-warm", "--", *TRAIN)
    assert done.stdout.splitlines() == ["forward found", "backward found"]
    (user.work / "train.py").write_text(
        COMPILES.replace("in GRAPHS", "in [*GRAPHS, *os.environ.get('MORE', '').split()]")
    )
    user.run(*TRAIN)
    done = user("run", "--require-warm", "--", *TRAIN, code=3, MORE="another", SLOW="30")
    assert "not warm" in done.stderr
    assert user.run(*TRAIN, MORE="another")["compiled"] == 1
    assert user.run(*TRAIN, MORE="another", options=("--require-warm",))["compiled"] == 0


def test_an_edited_script_begins_with_its_old_graphs(user):
    user.run(*TRAIN)
    user.graphs("forward", "backward", "evaluation")
    second = user.run(*TRAIN)
    assert user.said == ["forward found", "backward found", "evaluation compiled"]
    assert (second["status"], bool(second["seed"])) == ("miss", True)
    third = user.run(*TRAIN)
    assert (third["status"], third["compiled"], user.said[-1]) == ("hit", 0, "evaluation found")
    assert user.run(*TRAIN, options=("--recache",))["compiled"] == 3


@pytest.mark.feature("F2")
def test_what_one_machine_compiled_another_finds_in_the_shared_cache(user, tmp_path):
    (tmp_path / "shared").mkdir()
    shared = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    user.run(*TRAIN, options=shared)
    other = User(tmp_path / "another place")
    planned = json.loads(other("run", *shared, "--dry-run", "-f", "json", "--", *TRAIN).stdout)
    assert (planned["status"], planned["tier"]) == ("hit", str(tmp_path / "shared"))
    other.run(*TRAIN, options=shared)
    assert other.said == ["forward found", "backward found"]
    shutil.rmtree(tmp_path / "shared")
    other.run(*TRAIN)
    assert other.said == ["forward found", "backward found"]


def test_what_was_compiled_before_there_was_a_shared_cache_is_put_there(user, tmp_path):
    user.run(*TRAIN)
    (tmp_path / "shared").mkdir()
    user.run(*TRAIN, options=("--cache", f"local:rw,{tmp_path / 'shared'}:rw"))
    other = User(tmp_path / "another place")
    other.run(*TRAIN, options=("--cache", f"local:rw,{tmp_path / 'shared'}:r"))
    assert other.said == ["forward found", "backward found"]


def test_a_damaged_blob_is_a_miss_and_no_failure(user):
    user.run(*TRAIN)
    for blob in (user.home / "v1").rglob("*"):
        if blob.is_file() and blob.stat().st_size > 20_000:
            blob.chmod(0o644)
            blob.write_bytes(b"x" * blob.stat().st_size)
    user.run(*TRAIN)
    assert user.said == ["forward compiled", "backward compiled"]
    user.run(*TRAIN)
    assert user.said == ["forward found", "backward found"]


SECRETS = ("hf_abcdefghijklmnopqrstuvwxyzABCDEF", "sk-proj-abcdefghijklmnopqrstu", "plain-but-named", "s3cret")


def test_no_secret_is_written_down(user):
    words = (
        "env", f"WANDB_API_KEY={SECRETS[2]}", *TRAIN, "--hub_token", SECRETS[0], f"--x={SECRETS[1]}",
        f"--url=https://me:{SECRETS[3]}@example.org/x", "--password", SECRETS[3],
    )  # fmt: skip
    first = user.run(*words)
    assert first["compiled"] == 2
    second = user.run(*words[:2], *TRAIN, "--hub_token", SECRETS[0][:-1] + "X", *words[8:])
    assert second["key"] == first["key"], "who does it reaches no graph"
    for path in [*user.home.rglob("*"), user.work.parent / "report.json"]:
        if path.is_file():
            raw = path.read_bytes()
            assert not [secret for secret in SECRETS if secret.encode() in raw], path
    done = user("run", "--ingredient", f"HF_TOKEN={SECRETS[2]}", "--", *TRAIN, code=2)
    assert the_error_of(done)[0] == "usage"


def the_error_of(done):
    return the_error(type("Answer", (), {"err": done.stderr}))


def test_what_cannot_run_is_told_before_anything_happens(user, tmp_path):
    assert the_error_of(user("run", code=2))[1] == "no command is given"
    assert "nowhere.py is not there" in the_error_of(user("run", "--", "python", "nowhere.py", code=2))[1]
    assert "no-such-program is not there" in user("run", "--", "no-such-program", code=2).stderr
    assert "NAME=VALUE" in the_error_of(user("run", "--ingredient", "x", "--", *TRAIN, code=2))[1]
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho /opt/another\n")
    other.chmod(0o755)
    message, cause = the_error_of(user("run", "--", str(other), "train.py", code=2))[1:3]
    assert "/opt/another" in message
    assert "versions" in cause


def test_a_command_that_compiles_nothing_leaves_no_record(user):
    assert user.run("true")["kept"] is False
    assert json.loads(user("ls", "-f", "json").stdout) == []


# What is in the key


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "checkout"
    (folder / "parts").mkdir(parents=True)
    (folder / "train.py").write_text("import parts.net\nfrom helper import *\nimport torch\n")
    (folder / "helper.py").write_text("x = 1\n")
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "parts" / "net.py").write_text("from . import layers\nfrom .other import y\n")
    (folder / "parts" / "layers.py").write_text("import importlib\nimportlib.import_module('late')\n")
    (folder / "parts" / "other.py").write_text("y = 2\n")
    (folder / "late.py").write_text("")
    (folder / "not_imported.py").write_text("")
    (folder / "conf.yaml").write_text("layers: 2\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def key(*words: str, **options) -> str:
    return prepared(*words, **options).key


def prepared(*words: str, **options):
    return prepare_command(read(words or ("python", "train.py", "a", "b")), Inductor(), **options)


def test_the_script_and_the_modules_beside_it_are_ingredients(place):
    code = {name for name in prepared().ingredients.hard if name.startswith("command.code.")}
    beside = ("helper.py", "late.py", "parts/__init__.py", "parts/layers.py", "parts/net.py", "parts/other.py")
    assert code == {"command.code.train.py", *(f"command.code.import/{name}" for name in beside)}


@pytest.mark.parametrize("name", ["train.py", "helper.py", "parts/other.py", "late.py", "conf.yaml"])
def test_an_edit_of_what_it_reads_is_another_key(place, name):
    words = ("python", "train.py", "--config", "conf.yaml")
    before = key(*words)
    (place / "not_imported.py").write_text("new")
    assert key(*words) == before
    (place / name).write_text((place / name).read_text() + "# new\n")
    assert key(*words) != before


def test_arguments_count_in_their_order_and_declared_soft_ones_do_not(place):
    assert key() != key("python", "train.py", "b", "a")
    assert key("python", "train.py", "--lr=1") != key("python", "train.py", "--lr=2")
    one = key("python", "train.py", "--output_dir", "/x", "a", soft=["--tag"])
    assert one == key("python", "train.py", "--output-dir=/y", "a", "--tag", "new", soft=["tag"])
    assert one == key("python", "train.py", "a")
    assert key("python", "train.py", "--overwrite_output_dir", "a") == key("python", "train.py", "a")
    assert key("python", "train.py", "trainer.tag=1", soft=["tag"]) == key("python", "train.py")
    assert key(declared={"layers": "1"}) != key(declared={"layers": "2"})
    assert key() != key(declared={"layers": "2"})


def test_the_same_command_elsewhere_has_the_same_key(place, tmp_path, monkeypatch):
    words = ("python", "train.py", "--data", str(place / "data"))
    here = key(*words)
    shutil.copytree(place, tmp_path / "another checkout")
    monkeypatch.chdir(tmp_path / "another checkout")
    assert key("python3", "-u", "./train.py", "--data", str(tmp_path / "another checkout" / "data")) == here
    assert key(sys.executable, str(tmp_path / "another checkout" / "train.py"), "--data", "./data") == here


def test_where_nodes_meet_reaches_no_graph(place):
    words = ("torchrun", "--nnodes=2", "--node_rank=0", "--master_addr", "10.0.0.1", "train.py")
    other = ("torchrun", "--nnodes=2", "--node_rank=1", "--master_addr", "10.0.0.9", "train.py")
    assert key(*words) == key(*other)
    assert key(*words) != key("torchrun", "--nnodes=4", "--node_rank=0", "--master_addr", "10.0.0.1", "train.py")


def test_a_module_is_found_as_python_finds_it(place):
    (place / "parts" / "__main__.py").write_text("from parts.other import y\n")
    hard = prepared("python", "-m", "parts", "x").ingredients.hard
    assert {"command.code.parts/__main__.py", "command.code.import/parts/other.py"} <= hard.keys()
    hard = prepared("python", "-m", "torch.distributed.run", "-m", "parts.net").ingredients.hard
    assert "command.code.parts/net.py" in hard


def test_scripts_in_a_shell_script_are_ingredients(place):
    (place / "go.sh").write_text("set -e\nexport X=1\ntorchrun --nproc_per_node 2 \\\n  ${HERE}/train.py --lr 1\n")
    hard = prepared("bash", "go.sh").ingredients.hard
    assert {"command.code.go.sh", "command.code.train.py", "command.code.import/helper.py"} <= hard.keys()


# How a command is read


@pytest.mark.parametrize(
    ("line", "script", "module", "arguments"),
    [
        ("python train.py a -b", "train.py", "", "a -b"),
        ("python3.11 -u -W ignore x/train.py --m y.py", "x/train.py", "", "--m y.py"),
        ("python -m pack.train --a", "", "pack.train", "--a"),
        ("torchrun --nproc_per_node 2 --standalone train.py --lr 1", "train.py", "", "--lr 1"),
        ("torchrun --nproc-per-node=2 -m pack.train --lr 1", "", "pack.train", "--lr 1"),
        ("torchrun --no_python ./run.sh x", "", "", "x"),
        ("python -m torch.distributed.run --nnodes 2 train.py x", "train.py", "", "x"),
        ("python -m torch.distributed.launch --use_env --nproc_per_node 2 train.py x", "train.py", "", "x"),
        ("accelerate launch --mixed_precision bf16 --multi_gpu train.py x", "train.py", "", "x"),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "train.py", "", "--deepspeed ds.json"),
        ("neuron_parallel_compile --num_parallel 4 torchrun --nproc_per_node=2 train.py x", "train.py", "", "x"),
        ("env A=1 nice -n 19 python train.py x", "train.py", "", "x"),
        ("srun -N 2 --gres gpu:1 python train.py x", "train.py", "", "x"),
        ("bash -x go.sh x", "go.sh", "", "x"),
        ("train.py x", "train.py", "", "x"),
    ],
)
def test_how_a_command_is_read(line, script, module, arguments):
    parsed = read(line.split())
    assert (parsed.script, parsed.module) == (script, module)
    assert list(parsed.arguments) == arguments.split()
    assert shown(parsed) == line.split()


def test_code_on_the_command_line_is_a_digest(place):
    hard = prepared("python", "-c", "print(1)", "x").ingredients.hard
    assert hard["command.code.-c"] != prepared("python", "-c", "print(2)", "x").ingredients.hard["command.code.-c"]
    assert "print" not in str(hard)
    assert "print" not in str(shown(read(["bash", "-c", "print 1"])))


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--a", "-b", "--c=1", "-1", "x.y=2"])))
def test_grouped_options_are_the_words_again(words):
    assert [word for _, group in split_options(words) for word in group] == words


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1) | st.lists(st.sampled_from(
    ["python", "-m", "torchrun", "x.py", "-c", "--no_python", "bash", "accelerate", "-u", "torch.distributed.run", "-"]
), min_size=1))  # fmt: skip
def test_any_words_are_read(words):
    parsed = command_line.read(words)
    assert parsed.words == tuple(words)
    assert parsed.name is not None


def test_whole_machine_code_is_whole(tmp_path):
    library = Path(_a_library())
    assert not elf.torn(library)
    cut = tmp_path / "cut.so"
    cut.write_bytes(library.read_bytes()[:-1000])
    assert elf.torn(cut)


def test_a_secret_ingredient_is_refused(place):
    with pytest.raises(UsageError, match="secret"):
        prepared(declared={"note": SECRETS[0]})


# Real compiles

REAL = """
import json, sys
import torch
from net import make

torch.manual_seed(0)
model = make()
optimizer = torch.optim.SGD(model.parameters(), float(sys.argv[1]))
step = torch.compile(lambda x, y: torch.nn.functional.mse_loss(model(x), y), dynamic=False)
x = torch.randn(32, 8)
y = x.sum(1, keepdim=True)
losses = []
for _ in range(10):
    optimizer.zero_grad()
    loss = step(x, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
from torch._dynamo.utils import counters
print(json.dumps({
    "losses": losses,
    "compiled": counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"],
    "found": counters["inductor"]["fxgraph_cache_hit"],
}))
sys.exit(3 if "fail" in sys.argv else 0)
"""
NET = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
"""


@pytest.mark.slow
@pytest.mark.feature("S1", "F2")
def test_a_real_script_compiles_once(tmp_path):
    user = User(tmp_path / "one")
    user.environment["TMPDIR"] = str(tmp_path)
    (user.work / "train.py").write_text(REAL)
    (user.work / "net.py").write_text(NET)
    (tmp_path / "shared").mkdir()
    shared = ("--cache", f"local:rw,{tmp_path / 'shared'}:rw")
    cold = user.run("python", "train.py", "0.1", options=shared)
    first = json.loads(user.said[-1])
    assert (first["compiled"] > 0, first["found"], cold["compiled"]) == (True, 0, 2)
    assert first["losses"][-1] < first["losses"][0]

    warm = user.run("python", "train.py", "0.1", options=("--require-warm",))
    second = json.loads(user.said[-1])
    assert (second["compiled"], second["found"], warm["compiled"], warm["built"]) == (0, 2, 0, 0)
    assert second["losses"] == first["losses"]

    # Another checkout with another store; another learning rate, under torchrun, and the command fails in the end.
    other = User(tmp_path / "another place")
    other.environment["TMPDIR"] = str(tmp_path)
    (other.work / "train.py").write_text(REAL)
    (other.work / "net.py").write_text(NET)
    pulled = other.run("python", "train.py", "0.1", options=shared)
    assert (json.loads(other.said[-1])["compiled"], pulled["tier"], pulled["built"]) == (0, str(tmp_path / "shared"), 0)
    words = ("torchrun", "--standalone", "--nproc_per_node=1", "train.py", "0.2", "fail")
    failed = other.run(*words, code=1, OMP_NUM_THREADS=str(os.cpu_count()))
    assert (json.loads(other.said[-1])["compiled"], failed["exit_code"]) == (0, 1)


@pytest.mark.slow
def test_a_real_script_that_is_killed_keeps_its_finished_graphs(tmp_path):
    user = User(tmp_path / "one")
    (user.work / "net.py").write_text(NET)
    (user.work / "train.py").write_text(
        REAL.replace("print(json", "print('ready', flush=True); __import__('time').sleep(100)\nprint(json")
    )
    process = user.start("run", "-q", "--", "python", "train.py", "0.1")
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.1)
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM
    (user.work / "train.py").write_text(REAL)
    again = user.run("python", "train.py", "0.1")
    assert (json.loads(user.said[-1])["compiled"], again["built"], bool(again["seed"])) == (0, 0, True)
