"""What compiling took of the graphs that a process finds, as Inductor's cache tells it; the cache is a stand-in."""

import sys
from collections import Counter, defaultdict
from types import ModuleType, SimpleNamespace

import pytest

from cachekit.compilers.inductor import portable

NS = 1_000_000_000


@pytest.mark.feature("D3")
def test_a_graph_that_is_found_twice_saved_its_seconds_once(tmp_path, monkeypatch):
    """One key may have several graphs, each with its own seconds (torch 2.13, `FxGraphCache.load_with_key`)."""
    found = iter([("a", 20 * NS), ("b", 5 * NS), ("a", 20 * NS), ("a", 7 * NS), ("c", None)])

    class Cache:
        @staticmethod
        def _get_tmp_dir_for_key(key):
            return str(tmp_path / key)

        @staticmethod
        def load_with_key(key):
            name, took = next(found)
            assert name == key
            return (None, {}) if took is None else (object(), {"time_saved_ns": took})

    for name in "ab":
        (tmp_path / name).mkdir()
    module = ModuleType("torch._inductor.codecache")
    module.FxGraphCache = Cache
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(portable.time, "time_ns", lambda: tmp_path.stat().st_ctime_ns + NS)
    counters = defaultdict(Counter)
    portable.time_found(lambda: counters)
    for key in ("a", "b", "a", "a", "c"):
        Cache.load_with_key(key)
    assert portable.graphs(counters)["found_ms"] == 32_000


@pytest.mark.feature("D3")
@pytest.mark.parametrize(("clock", "since"), [(NS, {}), (3 * NS, {"since": NS})])
def test_a_graph_that_is_found_twice_or_compiled_here_is_found_once_or_not(monkeypatch, clock, since):
    """torch 2.13 counts each time that `load_with_key` finds something.

    What an earlier process of the same command compiled, `d` of the second case, was not there before.
    """
    found = iter([("a", 20 * NS), ("a", 20 * NS), ("c", None), ("c", 3 * NS), ("d", 4 * NS)])
    counters = defaultdict(Counter)
    ages = {"a": 0, "c": 2 * NS, "d": 2 * NS}

    class Cache:
        @staticmethod
        def _get_tmp_dir_for_key(key):
            return SimpleNamespace(st_ctime_ns=ages[key])

        @staticmethod
        def load_with_key(key):
            _, took = next(found)
            counters["inductor"]["fxgraph_cache_miss" if took is None else "fxgraph_cache_hit"] += 1
            return (None, {}) if took is None else (object(), {"time_saved_ns": took})

    module = ModuleType("torch._inductor.codecache")
    module.FxGraphCache = Cache
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(portable, "Path", lambda age: SimpleNamespace(stat=lambda: age))
    monkeypatch.setattr(portable.time, "time_ns", lambda: clock)
    listed = portable.time_found(lambda: counters, **since)
    for key in ("a", "a", "c", "c", "d"):
        Cache.load_with_key(key)
    told = portable.graphs(counters)
    assert (told["found"], told["compiled"], told["found_ms"]) == (2, 1, 20_000)
    assert list(listed.values()) == [20_000_000]
