"""What is known of Inductor's variables and options, against the torch that is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cachekit.compilers.inductor import facts, options
from cachekit.compilers.inductor.compiler import Inductor, torn
from cachekit.compilers.inductor.watch import HOOK
from cachekit.compilers.port import Observed, Run
from cachekit.compilers.prepare import prepare
from cachekit.compilers.tree import keeps_access_times
from cachekit.errors import CompilerUnavailableError, MissError, RecipeError
from cachekit.recipe import load_text
from tests.compilers.inductor.torch_variables import read_by_torch
from tests.verbs.run_user import a_library

TEXT = """
name: toy
model: {id: sentence-transformers/all-MiniLM-L6-v2}
data: {id: nobody/nothing, labels: ["no", "yes"]}
"""
# What Inductor and AOTAutograd make their keys of, beside the graph: their settings, and the number of threads.
DUMP = """
import sys, torch
from cachekit.compilers.inductor.runtime import Runtime
Runtime().prepare({})
import torch._functorch.config, torch._inductor.config, torch._inductor.config_comms
inductor = torch._inductor.config.save_config_portable(ignore_private_configs=False)
comms = torch._inductor.config_comms.save_config_portable(ignore_private_configs=False)
settings = {
    **{f"inductor.{name}": value for name, value in inductor.items()},
    **{f"comms.{name}": value for name, value in comms.items()},
    **{f"functorch.{name}": value for name, value in torch._functorch.config.get_config_copy().items()},
    "provenance": torch._inductor.config.trace.provenance_tracking_level,
    "tag": torch.compiler.config.cache_key_tag,
    "job": torch.compiler.config.job_id,
    "caches off": torch.compiler.config.force_disable_caches,
    "threads": torch.get_num_threads(),
    "matmul": torch.backends.cuda.matmul.fp32_precision,
}
print("\\n".join(f"{name}={value!r}" for name, value in sorted(settings.items()) if " at 0x" not in repr(value)))
"""

ASK = """
import json, torch._inductor.config as config
print(json.dumps(config.shallow_copy_dict(), default=repr, skipkeys=True))
"""
WAYS = {
    "a command": "import cachekit_inductor_hook as hook; hook.install()",
    "attached": "from cachekit.compilers.inductor import guest; guest.join(found=True)",
    "our worker": "import torch._dynamo.repro.after_aot\n"
    "import cachekit.compilers.inductor.runtime as runtime; runtime.Runtime().prepare({})",
}
# What takes seconds to import is there already; the two modules that matter are not.
IN_A_WAY = """
import sys
del sys.modules["torch._dynamo.repro.after_aot"], sys.modules["torch._dynamo.debug_utils"]
exec({configured!r})
from importlib import import_module
print(import_module("torch._dynamo.repro.after_aot").generate_env_vars_string())
"""
# Each case as a fork of one process that has imported what takes seconds: its environment, and what it does.
IN_FORKS = """
import contextlib, io, json, os, sys, torch._dynamo.repro.after_aot
for name, (environment, code) in json.load(sys.stdin).items():
    if not os.fork():
        os.environ.clear()
        os.environ.update(environment)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            exec(code, {})
        print(json.dumps([name, told.getvalue()]), flush=True)
        os._exit(0)
    os.wait()
"""


def recipe(*overrides):
    return load_text(TEXT, overrides)


def key(*overrides):
    return prepare(recipe(*overrides), Inductor()).key


def worker_variables(tmp_path, **shell):
    """A worker's environment under a shell's."""
    changes = Inductor().watch(Run(recipe("compiler.options.threads=2"), tmp_path, "train", found=True)).environment
    merged = {**os.environ, **shell, **{name: value for name, value in changes.items() if value is not None}}
    return {name: value for name, value in merged.items() if changes.get(name, value) is not None}


def dump(environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DUMP], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What torch says of its defaults, and of the shell."""
    folder = tmp_path_factory.mktemp("run")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "TRITON"))}
    shell = {
        **clean,
        facts.REPORTS: str(folder),
        "TORCHX_REGISTRY_PASSWORD": "it's h7sh-hush",
        "PYTORCH_CI_TOKEN": "h7sh",
        "TORCH_MIRROR": "https://ann:h7sh-hush@host/x",
        "TORCHDYNAMO_VERBOSE": "1",
    }
    cases = {"defaults": (clean, ASK)}
    cases |= {way: (shell, IN_A_WAY.format(configured=code)) for way, code in WAYS.items()}
    # Without the last one torch itself would load the way of a command, also in the others.
    path = os.pathsep.join([str(HOOK), *sys.path])
    environment = {**clean, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_FORKS],
        input=json.dumps(cases), env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = dict(map(json.loads, done.stdout.splitlines()))
    return {name: told.get(name, done.stderr) for name in cases}


# Variables


@pytest.mark.campaign
def test_every_variable_that_torchs_compiler_reads_is_known():
    """A new torch that reads another one fails here: facts.py must say whether it is watched, forced, or excused."""
    found = read_by_torch()
    assert {"CI", "CXX", "LOG_TLPARSE", "TORCHINDUCTOR_FREEZING", "TORCH_COMPILE_JOB_ID"} <= set(found), (
        "the search works"
    )
    known = {*facts.FORCED, *facts.SET, *facts.UNWATCHED}
    unknown = {name: files for name, files in found.items() if name not in known and not facts.watched(name)}
    assert not unknown


@pytest.mark.campaign
def test_what_is_forced_or_excused_does_not_reach_the_keys_of_torch(tmp_path):
    """All of them at once, in the shell of a run: the settings that Inductor's keys are made of stay as they are."""
    before = dump(worker_variables(tmp_path))
    special = {
        **dict.fromkeys(("TORCH_TRACE", "TORCH_DTRACE", "TORCH_COMPILE_DEBUG_DIR"), str(tmp_path / "trace")),
        "CXX": shutil.which("c++") or "c++",
        "PYTORCH_MATCHER_LOGLEVEL": "INFO",
        "TORCH_LOGS": "inductor",
        "TORCH_LOGS_FORMAT": "%(message)s",
        "TORCH_LOGS_OUT": str(tmp_path / "log"),
        "TORCHINDUCTOR_WORKER_START": "fork",
    }
    hostile = {name: special.get(name, "1") for name in {*facts.FORCED, *facts.SET, *facts.UNWATCHED}}
    # Where programs find files, and not what torch makes of it.
    hostile = {name: value for name, value in hostile.items() if not name.endswith("PATH")}
    assert dump(worker_variables(tmp_path, **hostile)) == before
    assert {"threads=2", "inductor.freezing=False", "provenance=0"} <= before, "a difference would be seen"


@pytest.mark.feature("T7")
@pytest.mark.parametrize("way", WAYS)
def test_torch_writes_no_secret_of_the_shell_into_graphs(said, way):
    """It puts all variables with TORCH in their names there: a user's own command, an attached one, and our worker."""
    written = said[way]
    assert "os.environ['TORCHDYNAMO_VERBOSE'] = '1'" in written
    assert "os.environ['TORCHX_REGISTRY_PASSWORD'] = '***'" in written
    assert "h7sh" not in written


@pytest.mark.feature("T7")
def test_a_command_hides_secrets_where_cachekit_cannot_be_imported(tmp_path):
    """By name, by form and by value; torch is a stand-in of one function, as the command needs no more of it."""
    (tmp_path / "torch/_dynamo").mkdir(parents=True)
    token = "hf_" + "kQz3T" * 7
    written = f"TORCH_PW = 'h7sh'; {token}; h7sh-hush"
    (tmp_path / "torch/_dynamo/debug_utils.py").write_text(f"def generate_env_vars_string(): return {written!r}")
    script = (
        "import importlib.util, cachekit_inductor_hook as hook; hook.install()\n"
        "from torch._dynamo import debug_utils\n"
        "print(importlib.util.find_spec('cachekit'), debug_utils.generate_env_vars_string())"
    )
    environment = {"PYTHONPATH": str(HOOK), facts.REPORTS: str(tmp_path), "TORCHX_PASSWORD": "h7sh-hush"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None TORCH_PW = '***'; ***; ***\n"


@pytest.mark.feature("T7")
def test_a_secret_is_no_setting_whatever_its_name_begins_with(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_MYPW", "h7sh")
    assert "h7sh" not in str(prepare(recipe(), Inductor()).ingredients)
    assert facts.watched("TORCHINDUCTOR_MINE")


@pytest.mark.feature("K3")
def test_they_are_not_in_our_key_either(monkeypatch):
    before = key()
    for name in {*facts.FORCED, *facts.SET, *facts.UNWATCHED} - {facts.THREADS, facts.CXX}:
        monkeypatch.setenv(name, "1")
    assert key() == before


@pytest.mark.feature("K1")
@pytest.mark.parametrize(
    "name",
    [
        *("TORCH_COMPILE_DEBUG", "INDUCTOR_PROVENANCE", "LOG_TLPARSE", "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES"),
        *("ENABLE_PERSISTENT_TMA_MATMUL", "FAKE_ALLOW_META", "PARTITIONER_MEMORY_BUDGET_PARETO"),
        "TORCHINDUCTOR_FREEZING",
    ],
)
def test_what_reaches_the_keys_of_torch_is_in_ours(monkeypatch, name):
    before = key()
    monkeypatch.setenv(name, "1")
    assert key() != before


def test_what_a_recipe_sets_is_said_once(monkeypatch):
    """The shell's value of the same variable never reaches the worker."""
    plain = key("environment.TORCHINDUCTOR_FREEZING=1")
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "0")
    assert key("environment.TORCHINDUCTOR_FREEZING=1") == plain != key()


@pytest.mark.feature("K3")
def test_threads_are_counted_not_spelled(monkeypatch):
    two = key("compiler.options.threads=2")
    assert key("environment.OMP_NUM_THREADS=2") == two
    assert key("environment.OMP_NUM_THREADS=2", "compiler.options.threads=2") == two
    assert key("environment.OMP_NUM_THREADS=3") != two
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert key() == two
    with pytest.raises(RecipeError, match=r"environment\.MKL_NUM_THREADS"):
        key("environment.MKL_NUM_THREADS=2")


# The C++ compiler


@pytest.fixture
def compilers(tmp_path):
    """Another name of the real one, and one of another version."""
    (tmp_path / "my-g++").symlink_to(shutil.which("g++"))
    other = tmp_path / "other-g++"
    other.write_text("#!/bin/sh\necho 'g++ (Elsewhere) 99.1'\n")
    other.chmod(0o755)
    return tmp_path


@pytest.mark.feature("K3")
def test_one_compiler_has_many_names(monkeypatch, compilers):
    plain = key()
    for name in ("g++", shutil.which("g++"), str(compilers / "my-g++")):
        assert key(f"environment.CXX={name}") == plain
        monkeypatch.setenv("CXX", name)
        assert key() == plain


@pytest.mark.feature("K1")
def test_the_compiler_of_a_recipe_is_the_one_that_counts(monkeypatch, compilers):
    other = f"environment.CXX={compilers / 'other-g++'}"
    assert prepare(recipe(other), Inductor()).fingerprint.toolchain["cxx"] == "(Elsewhere) 99.1"
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert key(other)
    with pytest.raises(CompilerUnavailableError, match="no-such-compiler"):
        key()
    monkeypatch.delenv("CXX")
    found = prepare(recipe(f"environment.PATH={compilers}", "environment.CXX=other-g++"), Inductor()).fingerprint
    assert found.toolchain["cxx"] == "(Elsewhere) 99.1"


# Options


def test_every_option_of_the_module_is_known_from_its_source(said):
    names = json.loads(said["defaults"]).keys() - {"TYPE_CHECKING"}
    assert len(names) > 100
    options.check_names(names)


@pytest.mark.versions
@pytest.mark.feature("K1")
def test_every_default_that_is_read_in_the_source_is_the_one_that_torch_has(said):
    read = {
        name: value
        for name, source in options._installed().items()
        for value in (True, False, 0, 1, "", None)
        if options._is_default(value, source, ())
    }
    torchs = json.loads(said["defaults"])
    known = read.keys() & torchs.keys()
    assert len(known) > 100
    assert {name: read[name] for name in known} == {name: torchs[name] for name in known}


def test_an_unknown_option_is_refused():
    for name, hint in [
        ("epilogue_fuson", "did you mean epilogue_fusion?"),
        ("cpp.simdlenn", "did you mean cpp.simdlen?"),
        ("cudagraphs", "did you mean triton.cudagraphs?"),
        ("cpp.cudagraphs", "did you mean triton.cudagraphs?"),
        ("cxx", "did you mean cpp.cxx?"),
        ("nonsense.max_autotune", "did you mean max_autotune?"),
        ("env_name", "see torch._inductor.config"),
        ("force_disable_caches", ""),  # an alias of another module's
    ]:
        with pytest.raises(RecipeError, match=rf"compiler\.options\.{name} ") as caught:
            options.check_names(["epilogue_fusion", name])
        assert hint in caught.value.hint


def test_an_unknown_option_is_found_out_without_torch(tmp_path):
    (tmp_path / "toy.yaml").write_text(TEXT)
    script = (
        "import sys; from cachekit.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "plan", "toy.yaml", "--set", "compiler.options={epilogue_fuson: true}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    assert done.returncode == 2
    assert "compiler.options.epilogue_fuson" in done.stderr
    assert done.stderr.splitlines()[-1] == "False"


@pytest.mark.feature("K1")
def test_tracing_reaches_no_code_but_for_provenance():
    plain = key()
    assert key('compiler.options={"trace.enabled": true}') == plain
    assert key('compiler.options={"trace.provenance_tracking_level": 1}') != plain


# The watch, and what a run leaves


def test_whole_machine_code_is_whole(tmp_path):
    library = Path(a_library())
    assert not torn(library)
    cut = tmp_path / "cut.so"
    cut.write_bytes(library.read_bytes()[:-1000])
    assert torn(cut)


@pytest.mark.feature("M3")
def test_a_strict_run_ends_at_the_first_compile(tmp_path):
    watch = Inductor().watch(Run(recipe(), tmp_path, "train", found=True, strict=True))
    watch.event({"event": "graphs", "found": 2, "compiled": 0, "phase": "first training step"})
    with pytest.raises(MissError, match="not warm") as caught:
        watch.event({"event": "graphs", "found": 2, "compiled": 1, "phase": "first training step"})
    assert caught.value.exit_code == 3
    lenient = Inductor().watch(Run(recipe(), tmp_path, "train", found=True))
    lenient.event({"event": "graphs", "found": 2, "compiled": 1})


def test_a_trial_on_another_records_files_tells_which_it_read_and_what_goes_with_them(tmp_path):
    for name in ("fxgraph/a/key/entry", "fxgraph/b/key/entry", "k/kernel.so", "k/kernel.cpp", "k/other.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"code")
    watch = Inductor().watch(Run(recipe(), tmp_path, "trial", restored={"archive.tar": ""}))
    watch.begin(print)
    (tmp_path / "fxgraph/a/key/entry").read_bytes()
    (tmp_path / "k/kernel.so").read_bytes()
    seen = watch.observed(Observed(found=1))
    assert seen.found == 1
    if keeps_access_times(tmp_path):
        assert seen.used == {"fxgraph/a/key/entry", "k/kernel.so", "k/kernel.cpp"}
