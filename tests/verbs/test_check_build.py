"""Verify by rebuild: what two compiles never share is passed over, and nothing else is."""

import hashlib
import json
import pickle
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.inductor.compare import compare
from cachekit.compilers.neuron.compiler import Neuron
from cachekit.verbs.check_build import check_build
from cachekit.verbs.warm import warm
from tests.compilers.neuron.neuron_files import make_neff
from tests.support.processes import memory_folder
from tests.support.standins import Watched, compiles, tree
from tests.verbs.verb_cases import log  # noqa: F401 - a fixture

ROOTS = (
    "/home/ann/.cache/cachekit/v1/cache_dirs/246f295a3c7bbb5c-1365-50c3584d9184/root",
    "/x/246f-9-0123456789ab/root",
)


# The action


@pytest.mark.feature("M4")
def test_a_record_that_compiling_gives_again_is_the_same_and_nothing_is_kept(tmp_path, log):
    watched = Watched(tmp_path / "home")
    prepared = watched.prepare()
    warm(watched.session, prepared)
    before = tree(tmp_path / "home")
    done = check_build(watched.session, prepared)
    document = done.as_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["status"], document["compiled"], document["same"], done.error()) == ("same", 3, 9, None)
    assert tree(tmp_path / "home") == before
    assert len(compiles(log)) == 2, "it compiled, although it is warm"


@pytest.mark.feature("M4")
def test_a_tampered_entry_is_found_and_named_with_its_builder(tmp_path, monkeypatch):
    watched = Watched(tmp_path / "home")
    prepared = watched.prepare()
    with monkeypatch.context() as evil:
        evil.setattr("tests.support.standin_worker.module_bytes", lambda seed: b"evil " + seed.encode())
        warm(watched.session, prepared)
    done = check_build(watched.session, prepared)
    error = done.error()
    assert (error.exit_code, len(done.differ)) == (5, 3)
    assert done.differ[0] in error.cause
    assert done.by.by.partition("@")[0] in error.cause
    assert "--recache" in error.hint
    assert watched.told("build.checked")[0]["status"] == "differs"


# Inductor


def put(root, files):
    shutil.rmtree(root, ignore_errors=True)
    for name, raw in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(raw)
    return set(files)


def compared(folder, old, new):
    one, two = folder / "one", folder / "two"
    return compare(one, two, put(one, old), put(two, new))


def graph(seconds, root, code="kernel(x)", size=8):
    """A graph as Inductor writes one: pickles in pickles, with times, paths and addresses."""
    inner = {"code": code, "_time_taken_ns": seconds, "shape": (size, 2.5, None, True)}
    words = (
        f"# {root}/ab/c1.py at 0x7f{seconds:08x}\nos.environ['_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR'] = '{seconds}'"
    )
    raw = pickle.dumps({"forward_time_taken_ns": seconds * 7, "source": words, "inner": pickle.dumps(inner)})
    return {f"fxgraph/ab/fkey/{hashlib.sha256(raw).hexdigest()}": raw}


@pytest.mark.feature("M4")
@settings(max_examples=60)
@given(st.integers(0, 2**40), st.integers(0, 2**40), st.sampled_from(ROOTS), st.sampled_from(ROOTS))
def test_graphs_are_the_same_whenever_and_wherever_they_were_made(first, second, here, there):
    with memory_folder() as folder:
        found = compared(folder, graph(first, here), graph(second, there))
        assert (found.same, found.differ, found.gone, found.new) == (1, (), (), ())


@pytest.mark.feature("M4")
@settings(max_examples=60)
@given(st.text(), st.integers(-(2**70), 2**70))
def test_any_other_difference_in_a_graph_counts(code, size):
    with memory_folder() as folder:
        found = compared(folder, graph(5, ROOTS[0]), graph(5, ROOTS[0], code, size))
        assert found.differ == (() if (code, size) == ("kernel(x)", 8) else ("fxgraph/ab/fkey",))


def runnable(settings, code="x = 1"):
    """A graph with the text that torch keeps for running it alone; the settings are those that a process touched."""
    variable = f"os.environ['CACHEKIT_THING{len(settings)}'] = '/a/path'\n"
    text = "import os\n" + variable + "import torch\n"
    text += "".join(f"torch._inductor.config.{name} = {value}\n" for name, value in settings) + code
    return {"fxgraph/ab/fkey/1": pickle.dumps({"runnable_graph_str": text, "source_code": code})}


@pytest.mark.feature("M4")
def test_settings_that_a_process_happened_to_touch_are_no_difference(tmp_path):
    """Of a graph that compiled alone, and of one that compiled after others."""
    touched = [("inplace_buffers", True), ("triton.store_cubin", False), ("a.b", "[1, 'x = y']")]
    for other in ([], touched[:1], touched[::-1]):
        assert compared(tmp_path, runnable(touched), runnable(other)).differ == ()
    assert compared(tmp_path, runnable(touched), runnable(touched, "x = 2")).differ == ("fxgraph/ab/fkey",)
    evil = runnable([], "torch._inductor.config.x = 1\nx = 1")["fxgraph/ab/fkey/1"].replace(b"runnable", b"unknowns")
    assert compared(tmp_path, {"fxgraph/ab/fkey/1": evil}, runnable([])).differ == ("fxgraph/ab/fkey",)


def test_no_pickle_is_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",))

    raw = pickle.dumps(Evil())
    found = compared(tmp_path, {"fxgraph/a/k/1": raw}, {"fxgraph/a/k/1": raw})
    assert found.same == 1
    assert not (tmp_path / "ran").exists()


SOURCE = """
#include <cstdio>
extern "C" int kernel(int x) { if (x < 0) std::printf("%s\\n", __FILE__); return x * 3 + FACTOR; }
extern "C" int other(int x) { std::puts("bound"); return x + 1; }
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The same source compiled in two places of other lengths, and one of another source."""
    made = []
    for number, (cache_dir, factor) in enumerate((("a", 1), ("a-longer-name", 1), ("a", 2))):
        root = tmp_path_factory.mktemp(str(number)) / cache_dir / "246f295a3c7bbb5c-12-0123456789ab" / "root"
        root.mkdir(parents=True)
        (root / "k.cpp").write_text(SOURCE)
        command = ["c++", "-g", "-O2", "-shared", "-fPIC", f"-DFACTOR={factor}", root / "k.cpp", "-o", root / "k.so"]
        subprocess.run(command, check=True)
        made.append((root / "k.so").read_bytes())
    return made


@pytest.mark.feature("M4")
def test_machine_code_is_the_same_wherever_it_was_made(tmp_path, kernels):
    first, second, other = kernels
    assert first != second
    assert compared(tmp_path, {"k.so": first}, {"k.so": second}).same == 1
    assert compared(tmp_path, {"k.so": first}, {"k.so": other}).differ == ("k.so",)


@pytest.mark.feature("M4")
@settings(max_examples=40)
@given(st.data())
def test_a_changed_byte_of_code_is_found(kernels, data):
    raw = bytearray(kernels[0])
    start = raw.index(b"\x00bound\x00") if data.draw(st.booleans()) else raw.index(b"kernel\x00")
    raw[start + 1 + data.draw(st.integers(0, 3))] ^= data.draw(st.integers(1, 255))
    with memory_folder() as folder:
        assert compared(folder, {"k.so": kernels[0]}, {"k.so": bytes(raw)}).differ == ("k.so",)


# Neuron


def test_neffs_of_two_builds_with_other_uuids_are_the_same(tmp_path):
    name = "neuronxcc-2.21.1+1/MODULE_1+e30acd3a"
    roots = []
    for number, extra in enumerate(({}, {}, {"extra": {"kelf-b.json": b"{}"}})):
        root = tmp_path / str(number)
        (root / name).mkdir(parents=True)
        raw = bytearray(make_neff(**extra))
        (root / name / "model.neff").write_bytes(raw)
        (root / name / "model.done").touch()
        roots.append(root)
    same = Neuron().compare(roots[0], roots[1])
    assert (same.same, same.differ) == (1, ())
    other = Neuron().compare(roots[0], roots[2])
    assert (other.same, other.differ) == (0, (name,))
    broken = roots[0] / name / "model.neff"
    broken.write_bytes(broken.read_bytes()[:-1])
    assert Neuron().compare(roots[0], roots[1]).differ == (name,)
