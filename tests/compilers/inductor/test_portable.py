"""Keys and times of Inductor that are the same whatever a script does around its compiles; torch is a stand-in."""

import io
import json
import pickle
import sys
from collections import Counter, defaultdict
from types import ModuleType, SimpleNamespace

import pytest

from cachekit.compilers.inductor import guest, portable
from cachekit.compilers.inductor.watch import CommandWatch
from cachekit.compilers.port import Run

SECOND = 1_000_000_000


class Nameless:
    """As torch's memory formats and data types are (torch 2.13): without a module."""

    __module__ = None

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name

    def __str__(self):
        return self.name


class Format(Nameless):
    pass


@pytest.mark.feature("K4")
def test_what_a_script_imports_first_is_in_no_key(monkeypatch):
    torch = ModuleType("torch")
    torch.memory_format, torch.dtype = Format, Nameless
    torch.contiguous_format = Format("torch.contiguous_format")

    class Pickler(pickle.Pickler):
        def __init__(self, stream):
            super().__init__(stream)
            self.dispatch_table = {}

    def key(first):
        """What is hashed of a tensor in a process whose first module to import torch is called so."""
        stream = io.BytesIO()
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, first, SimpleNamespace(torch=torch))
            Pickler(stream).dump([torch.contiguous_format])
        return stream.getvalue()

    monkeypatch.setitem(sys.modules, "torch", torch)
    portable.name_types_alike(SimpleNamespace(FxGraphCachePickler=Pickler))
    assert key("helpers") == key("models")


@pytest.fixture
def utils(monkeypatch):
    """`torch._dynamo.utils`, of which torch clears the account in `torch._dynamo.reset()` (torch 2.13)."""
    module = ModuleType("torch._dynamo.utils")
    module.counters, module.cumulative_time_spent_ns = defaultdict(Counter), defaultdict(float)
    module.calculate_time_spent = lambda: {"total_wall_time": 0.0}
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.feature("D3")
def test_seconds_of_compiling_are_those_before_a_reset_too_and_none_of_what_is_found(utils):
    portable.time_compiles()

    def code(seconds, **counts):
        utils.counters["inductor"].update({f"fxgraph_cache_{name}": count for name, count in counts.items()})
        for phase in ("backend_compile", "entire_frame_compile"):
            utils.cumulative_time_spent_ns[phase] += seconds * SECOND

    code(2, miss=2)
    utils.cumulative_time_spent_ns.clear()
    code(4, miss=1, hit=1)
    code(8, hit=1)
    assert guest.compile_seconds() == pytest.approx(6, abs=0.1)


@pytest.mark.feature("D3")
def test_a_command_compiled_while_any_of_its_processes_did(tmp_path):
    watch = CommandWatch(Run(None, tmp_path / "cache", "command", False, False, {}))
    ranks, later = ([[[10, 20], [30, 35]], [[12, 22]]], [[[50, 51]]])
    for number, spans in enumerate(ranks + later):
        told = {"found": 0, "compiled": 1, "spans": spans, "note": ""}
        (tmp_path / "reports" / f"{number}.json").write_text(json.dumps(told))
    assert watch.observed().compile_seconds == 12 + 5 + 1


@pytest.mark.feature("D3")
def test_processes_in_turn_saved_the_sum_and_those_at_once_what_one_of_them_did_each_graph_once(tmp_path):
    """Two ranks, which also find a graph each of their own; then a script that finds theirs, and one of its own."""
    watch = CommandWatch(Run(None, tmp_path / "cache", "command", False, False, {}))
    ranks = [(10, 20, {"a": 4, "b": 2}), (11, 21, {"a": 4, "c": 1})]
    for number, (began, ended, seconds) in enumerate([*ranks, (22, 30, {"a": 4, "d": 8})]):
        graphs = {name: took * 1_000_000 for name, took in seconds.items()}
        told = {"found": len(graphs), "compiled": 0, "found_ms": 1, "spans": (), "graphs": graphs}
        (tmp_path / "reports" / f"{number}.json").write_text(json.dumps({**told, "lived": (began, ended)}))
    assert watch.observed().found_seconds == (4 + 2) + 8
