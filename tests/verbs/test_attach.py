"""`cachekit.attach` and the callback for a Trainer: the cache of a script in the very process that compiles.

The fast tests "compile" by writing what Inductor would into its cache folder; torch is not loaded. The slow one is a
real Trainer with a real `torch.compile`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cachekit
from tests.support import forked

pytestmark = pytest.mark.versions

LIMIT = 900.0
# What Inductor leaves, and what torch counts of it.
COMPILES = """
import os, sys, types
from collections import defaultdict
from pathlib import Path

counters = defaultdict(lambda: defaultdict(int))
sys.modules["torch._dynamo.utils"] = types.SimpleNamespace(
    counters=counters,
    calculate_time_spent=lambda: {"total_wall_time": 2.0 * counters["inductor"]["fxgraph_cache_miss"]},
)

def compile(*graphs):
    root = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    for graph in graphs:
        entry = root / "fxgraph" / "ab" / graph
        counters["inductor"]["fxgraph_cache_hit" if entry.exists() else "fxgraph_cache_miss"] += 1
        if not entry.exists():
            (root / f"{graph}.so").write_bytes(Path(os.environ["A_LIBRARY"]).read_bytes())
            entry.mkdir(parents=True)
            (entry / "entry").write_bytes(b"graph " + graph.encode())
"""
# The only thing that the callback takes from transformers.
TRANSFORMERS = "class TrainerCallback: pass\n"


class Script:
    """Somebody's script, run in a process of its own; what it prints last is a document."""

    def __init__(self, folder: Path) -> None:
        import _ctypes

        self.work = folder / "work"
        self.work.mkdir()
        (self.work / "compiling.py").write_text(COMPILES)
        (self.work / "transformers.py").write_text(TRANSFORMERS)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OMP_")},
            "CACHEKIT_HOME": str(folder / "store"),
            "A_LIBRARY": _ctypes.__file__,
        }

    def write(self, *lines: str, name: str = "train.py") -> None:
        text = "\n".join(["import json, os, sys, cachekit", "from compiling import compile, counters", *lines])
        (self.work / name).write_text(text + "\n")

    def __call__(self, *arguments: str, code: int = 0, start: tuple[str, ...] = (), **variables: str):
        words = (*start, *(arguments or ("train.py",)))
        variables = {**self.environment, **variables}
        run = forked.run_python(*words, folder=self.work, environment=variables, code=code, timeout=LIMIT)
        self.err = run.stderr
        return json.loads(run.stdout.splitlines()[-1]) if run.stdout.strip() else None


@pytest.fixture
def script(tmp_path):
    return Script(tmp_path)


WITH = (
    "with cachekit.attach() as cache:",
    "    compile('forward', 'backward')",
    "print(json.dumps(cache.report.as_dict()))",
)


def counts(report):
    return report["compiled"], report["found"], report["status"], report["kept"]


def test_the_second_run_compiles_nothing(script):
    script.write(*WITH)
    first = script()
    assert counts(first) == (2, 0, "miss", True)
    assert (first["compile_seconds"], first["exit_code"], first["state"]) == (4.0, 0, "attached")
    second = script()
    assert counts(second) == (0, 2, "hit", True)
    assert (second["built"], second["saved_seconds"]) == (0, 4.0)
    assert script.err == ""


def test_the_key_is_that_of_run(script):
    """What a command compiled under `cachekit run`, it finds by itself, and the other way round."""
    script.write(*WITH)
    key = script()["key"]
    report = script.work / "report.json"
    script("run", "--report", str(report), "--", sys.executable, "train.py", start=("-m", "cachekit"))
    assert json.loads(report.read_text())["key"] == key
    assert json.loads(report.read_text())["status"] == "hit"


def test_under_run_it_only_counts(script):
    script.write(*WITH)
    done = script("run", "-q", "--", sys.executable, "train.py", start=("-m", "cachekit"))
    assert (done["state"], done["compiled"], done["kept"]) == ("attended", 2, False)
    assert script()["status"] == "hit", "the command's run has kept it"


@pytest.mark.feature("T2")
def test_a_record_that_nobody_trusted_made_is_told(script, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)  # every user of this machine can have put it there
    script.write(*WITH)
    script(CACHEKIT_CACHE=f"local:rw,{place}:rw")
    done = script(CACHEKIT_CACHE=f"local:rw,{place}:r", CACHEKIT_HOME=str(tmp_path / "another"))
    assert (done["status"], done["compiled"]) == ("miss", 2)
    (note,) = done["notes"]
    assert "it is not signed" in note
    assert note in script.err


def test_what_compiles_after_the_end_is_kept_at_exit(script):
    script.write(
        "cache = cachekit.attach()",
        "compile('forward')",
        "cache.keep(finished=True)",
        "compile('forward', 'predict')",
        "print(json.dumps(cache.report.as_dict()))",
    )
    assert script()["compiled"] == 2
    second = script()
    assert (second["compiled"], second["found"]) == (0, 3)
    [record] = cachekit.Cache(home=script.environment["CACHEKIT_HOME"]).records()
    assert record.compile_seconds == 4.0, "each graph's seconds once"


@pytest.mark.parametrize(("end", "code"), [("raise SystemExit(3)", 3), ("1 / 0", 1)])
def test_a_run_that_fails_keeps_what_it_compiled(script, end, code):
    script.write("cache = cachekit.attach()", "compile('forward')", end)
    script(code=code)
    [record] = cachekit.Cache(home=script.environment["CACHEKIT_HOME"]).records()
    assert record.soft["command.finished"] is False


def test_a_killed_process_has_kept_what_it_kept(script):
    script.write(
        "cache = cachekit.attach('killed')", "compile('one')", "cache.keep(finished=False)", "compile('two')",
        "os.kill(os.getpid(), 9) if '--die' in sys.argv else print(json.dumps(cache.report.as_dict()))",
    )  # fmt: skip
    script("train.py", "--die", code=-9)
    assert counts(script()) == (1, 1, "hit", True)


def test_with_recache_nothing_is_replaced_before_the_end(script):
    cache = cachekit.Cache(home=script.environment["CACHEKIT_HOME"])
    script.write("cache = cachekit.attach('anew')", "compile('one', 'two')")
    script()
    [before] = cache.records()
    script.write(
        "cache = cachekit.attach('anew', recache=True)", "compile('one')", "cache.keep(finished=False)",
        "os.kill(os.getpid(), 9) if '--die' in sys.argv else compile('three')",
    )  # fmt: skip
    script("train.py", "--die", code=-9)
    assert cache.records() == [before]
    for end, code in (("1 / 0", 1), ("raise SystemExit(3)", 3), ("", 0)):  # only the last one is its end
        script.write("cache = cachekit.attach('anew', recache=True)", "compile('one')", end)
        script(code=code)
        assert cache.records() == [before]
    script.write(
        "cache = cachekit.attach('anew', recache=True)", "compile('one')", "cache.keep(finished=True)",
        "compile('three')", "cache.keep(finished=False)", "os._exit(0)",
    )  # fmt: skip
    script()
    [after] = cache.records()
    assert (len(after.modules), after.graphs) == (2, 2), "an archive at each of the two"
    assert after.modules != before.modules
    script.write(
        "cache = cachekit.attach('first', recache=True)", "compile('one')", "cache.keep(finished=False)",
        "compile('three')", "cache.keep(finished=True)",
    )  # fmt: skip
    script()
    (first,) = (record for record in cache.records() if record.key != after.key)
    assert (len(first.modules), first.graphs) == (1, 2), "so it takes the place of what a remote has"


def test_too_late_is_said_and_nothing_is_touched(script):
    script.write(
        "compile('early')",
        "before = dict(os.environ)",
        "cache = cachekit.attach()",
        "assert dict(os.environ) == before",
        "compile('late')",
        "print(json.dumps(cache.report.as_dict()))",
    )
    done = script(TORCHINDUCTOR_CACHE_DIR=str(script.work))
    assert (done["state"], done["compiled"], done["kept"]) == ("late", 1, False)
    assert "attach earlier" in done["notes"][0]
    assert cachekit.Cache(home=script.environment["CACHEKIT_HOME"]).records() == []


def test_the_environment_is_given_back(script):
    script.write(
        "before = dict(os.environ)",
        "with cachekit.attach() as cache:",
        "    inside = os.environ['TORCHINDUCTOR_CACHE_DIR']",
        "    assert inside != before['TORCHINDUCTOR_CACHE_DIR']",
        "    assert 'TORCHINDUCTOR_FORCE_DISABLE_CACHES' not in os.environ",
        "assert dict(os.environ) == before and not os.path.exists(inside)",
        "print(json.dumps(True))",
    )
    assert script(TORCHINDUCTOR_CACHE_DIR="/nowhere", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")


def test_require_warm(script):
    script.write(
        "cache = cachekit.attach('strict', require_warm='--strict' in sys.argv)",
        "compile(*sys.argv[2:])",
        "cache.check()",
        "cache.keep(finished='--unfinished' not in sys.argv)",
    )
    script("train.py", "--strict", "one", code=1)
    assert "MissError: strict is not warm" in script.err
    script("train.py", "--unfinished", "one")
    script("train.py", "--strict", "one", code=1)
    assert "MissError: strict is not warm" in script.err
    script("train.py", "--not", "one")
    script("train.py", "--strict", "one")
    script("train.py", "--strict", "one", "two", code=1)
    assert "MissError: a graph was not warm" in script.err


def test_a_prompt_has_no_script(script):
    run = subprocess.run(
        [sys.executable, "-i", "-q"], input="import cachekit\ncachekit.attach()\n", cwd=script.work,
        env=script.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "UsageError: this process runs no script, so attach() needs a name" in run.stderr
    run = subprocess.run(
        [sys.executable, "-i", "-q"], input="import cachekit\ncachekit.attach('notebook').report.state\n",
        cwd=script.work, env=script.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "attached" in run.stdout


# The callback

TRAINER = (
    "import types, logging",
    "logging.basicConfig(level='INFO', format='%(name)s: %(message)s')",
    "args = types.SimpleNamespace(per_device_train_batch_size=int(os.environ.get('BATCH', 8)), bf16=False)",
    "said = {'hidden_size': 8, '_name_or_path': os.environ.get('WHERE', 'a')}",
    "model = types.SimpleNamespace(config=types.SimpleNamespace(to_dict=lambda: said, num_labels=2))",
    "cache = cachekit.CacheCallback(*sys.argv[1:])",
    "def event(name): getattr(cache, 'on_' + name)(args, None, None, model=model)",
    "assert cache.report is None",
    "event('init_end'); event('train_begin')",
    "compile('forward', 'backward'); event('step_end'); event('save')",
    "kept = [one for one in cachekit.records() if one.key == cache.report.as_dict()['key']]",
    "assert kept or cache.report.nearest, 'a checkpoint keeps what compiled'",
    "assert all(one.soft['command.finished'] is (cache.report.status == 'hit') for one in kept)",
    "compile('evaluation'); event('evaluate'); event('train_end')",
    "compile('predict')",
    "print(json.dumps(cache.report.as_dict()))",
)


def test_a_trainer_with_the_callback(script):
    script.write(*TRAINER)
    assert counts(script()) == (4, 0, "miss", True)
    assert "cachekit: attached: compiled 3 graphs in 6.0 s, found 0; kept" in script.err
    assert counts(script()) == (0, 4, "hit", True)


def test_a_named_callback_is_known_by_what_shapes_its_graphs(script):
    script.write(*TRAINER)
    key = script("train.py", "mine")["key"]
    script.write(*TRAINER, "# edited")
    (script.work / "train.py").rename(script.work / "moved.py")
    assert script("moved.py", "mine", WHERE="elsewhere")["key"] == key
    assert script("moved.py", "mine", BATCH="16")["key"] != key
    assert script("moved.py", "other")["key"] != key


REAL = '''
"""A Trainer of one's own, on rows that need no file."""
import json, sys
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
import cachekit

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, n):
        return {"input_ids": torch.arange(8) + n, "attention_mask": torch.ones(8, dtype=torch.long), "labels": n % 2}

torch.manual_seed(0)
small = dict(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
model = BertForSequenceClassification(BertConfig(**small, max_position_embeddings=16))
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, max_steps=2, torch_compile=True, use_cpu=True,
    report_to=["tensorboard"], disable_tqdm=True, save_strategy="no",
)
cache = cachekit.CacheCallback()
trainer = Trainer(model=model, args=args, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[cache])
trainer.train()
loss = trainer.evaluate()["eval_loss"]
print(json.dumps({**cache.report.as_dict(), "loss": loss}))
'''


def reported(script):
    """The graphs found and compiled, and the seconds saved, that TensorBoard's newest event file has at its end."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    newest = max((script.work / "out" / "runs").rglob("events.*"), key=lambda path: path.stat().st_mtime_ns)
    read = EventAccumulator(str(newest)).Reload()
    assert read.Scalars("train/cachekit/waited_seconds")[-1].value == 0, "it waits for nobody"
    names = ("graphs_found", "graphs_compiled", "saved_seconds")
    return tuple(read.Scalars(f"train/cachekit/{name}")[-1].value for name in names)


@pytest.mark.slow
def test_a_real_trainer_compiles_once(script):
    """The second process compiles nothing at all, and computes the same; also as a command under `cachekit run`.

    A tracker is told the same as the report.
    """
    (script.work / "transformers.py").unlink()
    (script.work / "own.py").write_text(REAL)
    first = script("own.py")
    assert reported(script) == (first["found"], first["compiled"], 0)
    second = script("own.py")
    assert reported(script) == (second["found"], 0, pytest.approx(second["saved_seconds"], abs=0.01))
    assert second["saved_seconds"] > 0
    assert first["compiled"] > 0
    assert first["kept"]
    assert (second["compiled"], second["built"]) == (0, 0)
    assert second["found"] == first["found"] + first["compiled"]
    assert second["loss"] == pytest.approx(first["loss"], rel=1e-6)
    third = script("run", "-q", "--require-warm", "--", sys.executable, "own.py", start=("-m", "cachekit"))
    assert (third["state"], third["compiled"], third["found"]) == ("attended", 0, second["found"])
    found, compiled, saved = reported(script)
    assert (found, compiled) == (third["found"], 0)
    assert saved > 0
