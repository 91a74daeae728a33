"""The command line: help, answers for people, and what is imported for them."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cachekit
from cachekit.cli import app as verbs
from cachekit.cli import progress
from cachekit.errors import EXIT_CODES, every_error
from cachekit.recipe import zoo
from cachekit.store.layout import Layout
from tests.support.cli_session import (
    GOLDEN,
    RECIPE,
    golden,
    process,
    publish,
    publish_record,
    small_record,
    the_error,
)

pytestmark = pytest.mark.versions

pytest_plugins = ["tests.support.cli_session"]
VERBS = tuple(verbs.VERBS)


def steady(text: str, *folders: Path) -> str:
    """Output without what differs from run to run: keys (by digits of the same number), folders, measured times."""
    for folder in folders:
        text = text.replace(str(folder), f"<{folder.name}>")
    text = re.sub(r"\b[0-9a-f]{64}\b", "f" * 64, text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "f" * 16, text)
    text = re.sub(r"\d+(\.\d)? s(?=; graphs)", "0.0 s", text)
    return re.sub(r"\b(took|restored 12 B in) \d+\.\d s", r"\1 0.0 s", text)


# Help


@pytest.mark.feature("U2")
def test_help_lists_every_verb(command):
    listed = re.findall(r"^  ([a-z]+)  +\S", command("--help").out.partition("-h, --help")[2], re.MULTILINE)
    assert tuple(listed) == VERBS


def test_nothing_said_means_help(command):
    answer = command()
    assert answer.out == command("--help").out


def test_version(command):
    assert command("--version").out == f"{cachekit.__version__}\n"


@pytest.mark.feature("U2")
def test_exit_codes_are_explained(command):
    said = " ".join(command("--help").out.partition("Exit codes:")[2].split())
    assert said == "; ".join(f"{number} {meaning}" for number, meaning in EXIT_CODES.items()) + "."
    assert {0, *(cls.exit_code for cls in every_error())} == set(EXIT_CODES)


@pytest.mark.parametrize("asked", [["--format", "json"], ["--format=json"], ["-f", "json"]], ids=" ".join)
def test_a_mistyped_option_is_a_document_too(command, asked):
    answer = command("plan", "tiny.yaml", "--bogus", *asked, code=2)
    assert answer.json["error"]["code"] == "usage"
    assert "--bogus" in answer.json["error"]["message"]


# Answers for people


def test_plan_of_an_empty_store(command, machine):
    golden("plan-empty-store", steady(command("plan", "tiny.yaml").out))


def test_another_model_is_not_compared_with(command, home, machine):
    record = publish(home, "model.id=roberta-base")
    told = command("plan", "tiny.yaml").out
    said = f"no record is near: the nearest, {record.key[:16]} (tiny), is of another model"
    assert said in " ".join(told.split())
    assert "differs" not in told
    assert command("plan", "tiny.yaml", "--format", "json").json["nearest"]["key"] == record.key


def test_plan_of_a_miss(command, home, machine):
    publish(home, "training.max_seq_length=16", "training.optim=sgd")
    golden("plan-miss", steady(command("plan", "tiny.yaml").out))


def test_plan_of_a_hit(command, home, machine):
    publish(home)
    golden("plan-hit", steady(command("plan", "tiny.yaml").out))


def test_what_plan_says_to_run_next_is_what_it_planned(command, machine):
    """Whoever copies the line must not compile another key."""
    changed = command("plan", "tiny.yaml", "--set", "training.max_seq_length=16")
    assert "next: cachekit warm tiny.yaml --set training.max_seq_length=16" in changed.out
    missed = command("plan", "tiny.yaml", "--set", "training.max_seq_length=16", "--require-warm", code=3)
    assert the_error(missed)[3] == "cachekit warm tiny.yaml --set training.max_seq_length=16"


def test_what_to_run_next_names_the_store_that_was_given(command, machine, worker, work):
    words = ("tiny.yaml", "--home", str(work.parent / "another store"), "--compiler", "inductor")
    ending = f"tiny.yaml --home '{work.parent / 'another store'}' --compiler inductor"
    assert f"next: cachekit warm {ending}\n" in command("plan", *words).out
    assert the_error(command("train", *words, "--require-warm", code=3))[3] == f"cachekit warm {ending}"
    assert f"next: cachekit train --home '{work.parent / 'another store'}'\n" in command("warm", *words, "-q").out
    assert "next: cachekit train\n" in command("warm", "tiny.yaml", "-q").out


def test_what_to_run_next_names_the_remotes_that_were_given(command, machine, worker, work):
    said = ("--cache", f"local:rw,{work.parent / 'team'}:rw")
    (work.parent / "team").mkdir()
    assert f"next: cachekit warm tiny.yaml {' '.join(said)}\n" in command("plan", "tiny.yaml", *said).out
    assert f"next: cachekit train {' '.join(said)}\n" in command("warm", "tiny.yaml", "-q", *said).out


def test_what_to_run_next_is_of_the_same_machine_of_several(command, machine, home):
    said = "--node-rank 1 --master-addr first --master-port 29600"
    warm = ("warm", "tiny.yaml", "--nnodes", "2", *said.split())
    assert f"next: cachekit warm tiny.yaml --set parallel.nodes=2 {said}\n" in command(*warm, "--dry-run").out
    publish(home, "parallel.nodes=2")
    assert f"next: cachekit train {said}\n" in command(*warm).out


def test_a_dry_run_of_a_training_looks_at_what_it_would_go_on_from(command, machine, work):
    refused = the_error(command("train", "tiny.yaml", "--dry-run", "--resume", "nosuch", code=2))
    assert refused[1] == "nosuch is not a checkpoint"
    (work / "file").touch()
    answer = command("train", "tiny.yaml", "--dry-run", "-o", "file/out", code=2)
    assert "cannot be written" in the_error(answer)[1]
    assert command("train", "tiny.yaml", "--dry-run").out == command("plan", "tiny.yaml").out


def test_ls_of_an_empty_store(command, work):
    assert steady(command("store", "ls").out, work.parent / "store") == (
        "the store at <store> has no records\nnext: cachekit warm RECIPE\n"
    )


def test_ls(command, home):
    publish_record(home, small_record())
    publish_record(home, small_record("another-recipe", "2026-03-02T01:02:03+00:00", task="text-classification"))
    golden("ls", command("store", "ls").out)


def test_show(command, home):
    record = publish_record(home, small_record())
    golden("show", command("store", "show", record.key[:8]).out)
    assert command("store", "show", record.key).out == command("store", "show", record.key[:4].upper()).out


def test_show_of_a_damaged_record(command, home):
    record = publish_record(home, small_record())
    blob = home / "v1" / "blobs" / record.files[0].sha256[:2] / record.files[0].sha256
    blob.chmod(0o644)
    blob.write_bytes(b"x" * record.size)
    answer = command("store", "show", record.key)
    assert "DAMAGED" in answer.out
    assert answer.err.startswith(f"warning: {blob} is damaged")


def test_show_of_a_record_whose_document_is_damaged(command, home):
    path = Layout(home).record(publish_record(home, small_record()).place)
    path.write_bytes(b"{")
    code, message, cause, hint = the_error(command("store", "show", path.stem[:8], code=5), before=1)
    assert (code, message) == ("damaged", f"the store's record {path.stem[:12]} cannot be used")
    assert "its record is damaged" in cause
    assert "warm" in hint


def test_config(command, work, monkeypatch):
    (work / "cachekit.toml").write_text("keep_logs = 7\n")
    monkeypatch.setenv("CACHEKIT_WAIT_SECONDS", "60")
    monkeypatch.setenv("CACHEKIT_COMPILER_CACHE_DIR", "/mnt/nvme/temp")
    golden("config", steady(command("config", "--home", "/srv/cachekit").out, work))


LOG = """\
2026-07-29 17:25:29.000943:  10476  [INFO]: Using a cached neff at /c/neuronxcc-2.26.6360.0/MODULE_1+f7f529f3/model.neff
2026-07-29 17:25:30.000000:  10477  [INFO]: Got a cached failed neff at /c/neuronxcc-2.26.6360.0/MODULE_2+f7f529f3/\
model.neff. With eror log: killed. Retrying...
2026-07-29 17:25:30.000000:  10477  [INFO]: Call compiler with cmd: neuronx-cc compile \
model.MODULE_2+f7f529f3.hlo_module.pb
2026-07-29 17:29:40.000000:  10477  [INFO]: Compilation Successfully Completed for \
model.MODULE_2+f7f529f3.hlo_module.pb
2026-07-29 17:30:00.000000:  10477  [INFO]: Call compiler with cmd: neuronx-cc compile \
model.MODULE_3+f7f529f3.hlo_module.pb
2026-07-29 17:52:03.000000:  10477  [ERROR]: Failed compilation with ['neuronx-cc', \
'model.MODULE_3+f7f529f3.hlo_module.pb']: [NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB
2026-07-29 18:25:29.000943:  20000  [INFO]: Using a cached neff at /c/neuronxcc-2.26.6360.0/MODULE_1+f7f529f3/model.neff
"""


@pytest.mark.feature("D2")
def test_a_log_of_somebody_elses_run(command, work):
    (work / "train.log").write_text(LOG)
    golden("why-log", command("why", "--log", "train.log").out)
    with (work / "train.log").open("rb") as stdin:
        program = [sys.executable, "-m", "cachekit", "why", "--log", "-"]
        piped = subprocess.run(program, stdin=stdin, capture_output=True, text=True, check=True).stdout
    assert piped == (GOLDEN / "why-log.txt").read_text(), "- is stdin"
    found = command("why", "--log", "train.log", "-f", "json").json
    assert (found["found"], found["lost_seconds"], found["compiler"]) == (1, 250 + 1323, "neuron")


def test_a_log_that_is_not_one_text_is_named_as_what_it_is(command, work):
    (work / "train.log").write_text(LOG)
    (work / "train.log.gz").write_bytes(gzip.compress(LOG.encode()))
    (work / "wide.log").write_text(LOG, encoding="utf-16")
    (work / "bare.log").write_text(LOG, encoding="utf-16-be")
    for arguments, reason in (
        (["train.log", "--log", "wide.log"], "--log was given 2 times"),
        (["train.log.gz"], "it is compressed"),
        (["bare.log"], "it is text in UTF-16"),
        (["wide.log"], "iconv -f UTF-16 -t UTF-8 wide.log > run.log"),
    ):
        assert reason in command("why", "--log", *arguments, code=2).err


def test_a_compile_without_an_end_and_how_far_a_log_was_read(command, work, monkeypatch):
    monkeypatch.setattr(progress, "LONG_LOG", 0)
    begun = "2026-07-29 17:30:00.000000:  1  [INFO]: Call compiler with cmd: neuronx-cc compile MODULE_3+f7f529f3.pb"
    (work / "cut.log").write_text(f"{begun}\n....")
    said = command("why", "--log", "cut.log")
    assert "1 began and has no end in this log" in said.out
    size = f"{len(begun) + 5} B"
    assert f"reading the log: {size} of {size}" in said.err


def test_errors_of_no_graph_are_told_beside_the_failures(command, work):
    """Two compiles fail, and nothing tells whose each of two errors is: two failures, and two errors."""
    line = "2026-07-29 17:30:00.000000:  {}  [INFO]: {} model.MODULE_{}+f7f529f3.hlo_module.pb\n"
    begun = "".join(line.format(pid, "Call compiler with cmd: neuronx-cc compile", pid) for pid in (1, 2))
    failed = "".join(line.format(pid, "Compilation failed for", pid) for pid in (1, 2))
    (work / "two.log").write_text(f"{begun}[NCC_EOOM002] peak HBM usage\n[F137] neuronx-cc was killed\n{failed}")
    said = command("why", "--log", "two.log").out
    assert "0 compiled, 2 failed\n" in said
    assert "MODULE_2+f7f529f3 failed: unknown" in said
    for error in ("device-oom NCC_EOOM002", "host-oom F137"):
        assert f"a graph that the log does not name failed: {error}" in said


@pytest.fixture
def small_zoo(tmp_path, monkeypatch):
    """A zoo of one recipe, one model and two instances, so that a new one changes no golden file."""
    root = tmp_path / "zoo"
    (root / "recipes").mkdir(parents=True)
    (root / "registry" / "models").mkdir(parents=True)
    (root / "recipes" / "tiny.yaml").write_text(RECIPE + "description: Two classes.\n")
    (root / "registry" / "models" / "org--tiny.yaml").write_text(
        "{id: org/tiny, licence: Apache-2.0, parameters: 22713216, tasks: [masked-lm], aliases: [tiny],"
        " source: here, config: {model_type: bert}}"
    )
    (root / "registry" / "instances.yaml").write_text(
        "trn1.32xlarge: {accelerator: trainium1, chips: 16, cores: 32, device_memory_gib: 512, source: here,"
        " price: {per_hour: 21.5, currency: USD, region: us-east-1, terms: on-demand, source: here,"
        " date: '2026-06-25'}}\n"
        "trn2.3xlarge: {accelerator: trainium2, chips: 1, cores: 4, device_memory_gib: 96, source: here}\n"
    )
    (root / "registry" / "toolchains.yaml").write_text(
        "neuron-2.31: {compiler: neuron, released: 2026-07, targets: [trn1, trn2], source: here, trains: seen,"
        " evidence: here,"
        " packages: {neuronx-cc: 2.26.6360.0+6f180f47, torch-neuronx: 2.9.0.2.15.32035}}\n"
    )
    monkeypatch.setattr(zoo, "_root", lambda: root)
    return root


def test_no_row_of_the_zoo_is_wider_than_a_terminal(command):
    for topic in ("recipes", "models", "instances", "toolchains"):
        assert max(map(len, command("zoo", "ls", topic).out.splitlines())) <= 80, topic


@pytest.mark.parametrize("topic", ["recipes", "models", "instances", "toolchains"])
def test_zoo(command, small_zoo, topic):
    golden(f"zoo-{topic}", command("zoo", "ls", topic).out)


def test_zoo_lists_recipes_by_default(command):
    assert command("zoo").out == command("zoo", "ls").out == command("zoo", "ls", "recipes").out


@pytest.mark.usefixtures("machine", "worker")
def test_what_is_odd_about_the_data_is_told_before_hours_go_into_it(command, work):
    (work / "data" / "test.csv").write_text("text,label\nSTOP NOW,loud\n")
    odd = "1 of 1 test rows are among the training rows, too"
    assert f"odd: {odd}" in command("plan", "tiny.yaml").out
    assert "odd" not in command("plan", "tiny.yaml", "--no-data").out
    for verb in ("warm", "train"):
        assert f"warning: the data is odd: {odd}" in command(verb, "tiny.yaml", "-q").err


def test_warm_and_train(command, work, home, machine, worker):
    warmed = command("warm", "tiny.yaml")
    golden("warm-compiles", steady(warmed.out))
    golden("warm-compiles-progress", steady(warmed.err, home))
    golden("warm-hit", steady(command("warm", "tiny.yaml").out))
    trained = command("train")
    golden("train", steady(trained.out, work))
    golden("train-progress", steady(trained.err, work))
    golden("warm-again", steady(command("warm", "tiny.yaml", "--recache").out))


def test_a_train_that_compiles_says_so(command, work, machine, worker, monkeypatch):
    command("warm", "tiny.yaml")
    monkeypatch.setenv("FAKE_WORKER", "surprised")
    answer = command("train", "tiny.yaml")
    golden("train-surprised", steady(answer.out, work))
    assert "warning: a graph compiled in: first training step\n" in answer.err
    assert "they are added to the record" in answer.err


def test_a_warm_leaves_nothing_in_the_working_directory(command, work, machine, worker):
    before = sorted(work.rglob("*"))
    command("warm", "tiny.yaml")
    command("plan", "tiny.yaml")
    assert sorted(work.rglob("*")) == before


def test_a_result_that_cannot_be_written_fails_no_training(command, work, machine, worker):
    (work / "out" / "cachekit-result.json").mkdir(parents=True)
    answer = command("train", "tiny.yaml", "-o", "out", "--format", "json", "-q")
    assert answer.json["steps"] > 0
    assert answer.err == f"warning: {work / 'out' / 'cachekit-result.json'} could not be written: it is a folder\n"


def test_a_train_that_does_not_start_leaves_nothing_behind(command, work, machine):
    before = sorted(work.rglob("*"))
    command("train", "tiny.yaml", "--require-warm", code=3)
    assert sorted(work.rglob("*")) == before


# What is imported

# An older typer imports the empty top of rich; what would cost time is its console.
LIGHT = """
import sys
from cachekit.cli import app

heavy = {"torch", "transformers", "numpy", "datasets", "huggingface_hub", "pandas", "sklearn", "pyarrow", "pydantic"}
for line in ("--help", "plan demo", "plan bert", "plan tiny.yaml", "store ls", "zoo", "config"):
    app.run(line.split())
    if found := {*heavy, "rich.console"} & sys.modules.keys():
        sys.exit(f"{line} imports {found}")
"""


@pytest.mark.feature("P2")
def test_nothing_heavy_is_imported(work, home):
    """Prediction needs no SDK, no framework, and no time."""
    assert "miss" in process(program=("-c", LIGHT)).out, "the plans were made"
