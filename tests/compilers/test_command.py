"""What is in the key of a command of one's own, and how the command is read."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cachekit.compilers import registry
from cachekit.compilers.adapter import Adapter
from cachekit.compilers.command import compiler_of, prepare_command, shown
from cachekit.compilers.inductor.compiler import Inductor
from cachekit.errors import UsageError
from cachekit.recipe import command as command_line
from cachekit.recipe.command import read, split_options
from tests.verbs.run_user import SECRETS


@pytest.mark.parametrize("launcher", ["torchrun", "python bin/torchrun", "python -m torch.distributed.run"])
def test_a_run_is_named_after_its_script_and_not_after_the_launcher(launcher):
    assert read([*launcher.split(), "--standalone", "--nproc_per_node", "2", "a/train.py", "x"]).name == "train.py"


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


def test_how_a_command_is_read():
    for line, script, module, arguments in [
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
        ("python -uW ignore train.py x", "train.py", "", "x"),
        ("train.py x", "train.py", "", "x"),
    ]:
        parsed = read(line.split())
        assert (parsed.script, parsed.module) == (script, module)
        assert list(parsed.arguments) == arguments.split()
        assert shown(parsed) == line.split()


def test_options_of_python_in_one_word_are_read_as_python_reads_them():
    for words, same in [
        (("python", "-um", "parts", "x"), ("python", "-u", "-m", "parts", "x")),
        (("python", "-mparts", "x"), ("python", "-m", "parts", "x")),
        (("python", "-um", "torchrun", "train.py"), ("python", "-u", "-m", "torchrun", "train.py")),
        (("python", "-Bc", "import a\nb.py", "x"), ("python", "-B", "-c", "import a\nb.py", "x")),
        (("python", "-Icimport a", "x"), ("python", "-I", "-c", "import a", "x")),
    ]:
        assert structs.replace(read(words), words=same) == read(same)
        assert read(words).words == words, "they run as they were given"
        assert not read(words).code or read(words).code not in shown(read(words))


def test_a_folder_is_run_by_its_main_module(place):
    (place / "parts" / "__main__.py").write_text("import net, helper\n")
    made = prepared("python", "parts")
    names = {name for name in made.ingredients.hard if name.startswith("command.code.")}
    assert names >= {"command.code.__main__.py", "command.code.import/net.py"}, "which lie in that folder"
    assert "command.code.import/helper.py" not in names
    assert made.recipe.name == "parts"
    with pytest.raises(UsageError, match="is not a regular file"):
        prepared("python", str(place))


def test_code_on_the_command_line_is_a_digest(place):
    hard = prepared("python", "-c", "print(1)", "x").ingredients.hard
    assert hard["command.code.-c"] != prepared("python", "-c", "print(2)", "x").ingredients.hard["command.code.-c"]
    assert "print" not in str(hard)
    assert "print" not in str(shown(read(["bash", "-c", "print 1"])))


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--a", "-b", "--c=1", "-1", "x.y=2"])))
def test_grouped_options_are_the_words_again(words):
    assert [word for _, group in split_options(words) for word in group] == words


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1) | st.lists(st.sampled_from(
    ["python", "-m", "torchrun", "x.py", "-c", "--no_python", "bash", "accelerate", "-uc", "torch.distributed.run", "-"]
), min_size=1))  # fmt: skip
def test_any_words_are_read(words):
    parsed = command_line.read(words)
    assert parsed.words == tuple(words)
    assert parsed.name is not None


def test_a_secret_ingredient_is_refused(place, monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "zqsvcvalue991122")
    for declared in ({"note": SECRETS[0]}, {"svc": "zqsvcvalue991122"}, {"zqsvcvalue991122": "1"}):
        with pytest.raises(UsageError, match="secret") as refused:
            prepared(declared=declared)
        assert "zqsvc" not in str(refused.value.lines())


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    "words",
    [
        ("/usr/bin/sshpass", "-p", "hunter2hush", "python", "train.py"),
        ("sshpass", "-phunter2hush", "python", "train.py"),
        ("python", "train.py", "--by", "sshpass -v -p 'hunter2hush' ssh host"),
        ("python", "train.py", "sshpass", "-p", "hunter2hush"),
        ("sqlplus", "ann/hunter2hush@db", "@x.sql"),
        ("keytool", "-storepass", "hunter2hush and more", "-list"),
        ("tool", "--login", "ann", "kQhunter2hush7", "-list"),
        ("tool", "--license", "kQhunter2hush7", "-list"),
        ("python", "train.py", "--by", "ossutil config -k hunter2hush"),
        ("python", "train.py", "--to", "ann:hunter2hush@db.internal"),
        ("python", "train.py", "ann:hunter2hush@10.0.0.1:3128/runs"),
    ],
)
def test_a_password_on_a_command_line_is_not_in_its_key(place, words):
    said = f"{prepared(*words).ingredients} {shown(read(words))}"
    assert "hunter2hush" not in said
    assert "<secret" in said
    assert "-p=" not in str(shown(read(("python", "train.py", "-p", "2222")))), "a port, to most programs"


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    "words",
    [
        ("--api_keys", "hush1hush", "hush2hush"),
        ("--set", "hub_token", "hush1hush", "--lr", "1"),
        ("--passphrase", "correct", "hushhorse"),
        ("--auth", "ann", "hush"),
        ("--tokens", "hushA1bCd2Ef"),
        ("--key", "hushA1bCd2Ef"),
        ("--config", "{hub_token: hush1hush}"),
        ("--license_key_of", "x", "--unheard_key", "hush1"),
        ("--unheard_key", "-hush1=x"),
        ("--telegram_bot_token", "7hushA1bCd2Ef"),
        ("--discord-bot-token=7hushA1bCd2Ef",),
        ("--set", "trigger_token", "7hushA1bCd2Ef"),
        ("--env", "GRAFANA_USER_TOKEN=hush1hush"),
        ("--set", "wandb.api_key 7hush1hush"),
        ("--hubtoken", "hush1hush"),
        ("--token-value", "hush1hush"),
        ("--apikey:hush1hush",),
    ],
)
def test_no_value_of_a_secret_is_in_the_key_of_a_command(place, words):
    said = f"{prepared('python', 'train.py', *words).ingredients} {shown(read(('python', 'train.py', *words)))}"
    assert "hush" not in said
    assert "<secret" in said


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    "words",
    [
        ("--rng_key={}",),
        ("--weight_key", "{}"),
        ("--unheard_key", "{}"),
        ("--unheard_key={}",),
        ("--hub_token", "hush1hush", "{}"),
        ("--columns", "text", "password", "{}"),
        ("--set", "hub_token", "{}"),
    ],
)
def test_two_commands_have_two_keys_though_a_word_may_be_a_secret(place, words):
    """Or the one is told that what it needs is there, and compiles."""
    keys = {prepared("python", "train.py", *(word.format(one) for word in words)).key for one in ("w1x", "w2x")}
    assert len(keys) == 2


@pytest.mark.parametrize("words", [("--bos_token", "<s>"), ("--image-token-id", "151655"), ("--user_token", "USER")])
def test_a_tokenizers_settings_are_in_the_key_as_they_are(place, words):
    assert "<secret" not in f"{prepared('python', 'train.py', *words).ingredients}"


def test_members_of_a_team_with_tokens_of_their_own_share_a_key(place):
    keys = {prepared("python", "train.py", "--hub_token", one, "--api_key", one).key for one in ("hush1", "hush2")}
    assert len(keys) == 1


@pytest.mark.feature("T7")
def test_of_a_watched_variable_with_a_secret_in_it_the_key_has_a_hash(place, monkeypatch):
    found = {}
    for said in ("plain", "https://ann:hush@host/x", "https://ann:hush@host/y"):
        monkeypatch.setenv("TORCHINDUCTOR_X", said)
        found[said] = prepared().ingredients.hard["compiler.environment.TORCHINDUCTOR_X"]
    assert found["plain"] == "plain"
    assert len(set(found.values())) == 3
    assert "hush" not in str(found.values())


def test_bytes_that_are_no_text_are_spelled_out_in_the_key(place, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_\udcff", "\udcff")
    hard = prepared("echo", "\udcff", declared={"\udcff": "\udcff"}).ingredients.hard
    assert hard[r"compiler.environment.TORCHINDUCTOR_\xff"] == r"\xff"
    assert hard[r"ingredient.\xff"] == r"\xff"
    assert hard["command.arguments"] == [r"\xff"]


# Which compiler it is for


class Frames(Adapter):
    """A compiler that code is for which imports `frames`."""

    name = "frames"

    def attends(self, imports) -> bool:
        return "frames" in imports()


@pytest.mark.parametrize(
    ("code", "compiler"),
    [
        ("import frames.numpy as fnp", "frames"),
        ("import late", "frames"),
        ("from .frames import x", "auto"),
        ("import torch", "auto"),
        ("not Python at all", "auto"),
    ],
)
def test_a_commands_imports_say_which_compiler_it_is_for(place, monkeypatch, code, compiler):
    (place / "train.py").write_text(code)
    (place / "late.py").write_text("from frames import x")
    monkeypatch.setattr(registry, "every", lambda: iter([Frames(), registry.adapter("inductor")]))
    assert compiler_of(read(("python", "train.py"))) == compiler
    assert compiler_of(read(("python", "-c", code.replace("late", "frames")))) == compiler
    assert compiler_of(read(("python", "-m", "frames.train"))) == "frames"


def test_where_the_machines_own_compiler_is_here_nobody_reads_code(place, monkeypatch):
    monkeypatch.setattr(registry, "every", lambda: iter([registry.adapter("inductor"), Frames()]))
    assert compiler_of(read(("python", "-c", "import frames"))) == "auto"
