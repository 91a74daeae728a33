"""Keys of Inductor that mean the same in another environment, folder and machine; and its counters.

It runs inside whoever compiles: cachekit's worker, and a user's own command (`hook/`), where cachekit need not be
importable. So it is loaded as a file there, and imports nothing but the standard library.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

# Among torch's counters: what compiling took of the graphs that were found, and how often one was found again.
_FOUND, _AGAIN = "cachekit_found_us", "cachekit_found_again"
# torch's account of what each phase took, in ns, and the phases that it adds up to the whole [torch/_dynamo/utils.py].
_ACCOUNT = "cumulative_time_spent_ns"
_WHOLE = frozenset({"entire_frame_compile", "entire_backward_compile"})


class NotPortableError(Exception):
    """This torch keeps elsewhere what portable keys need."""


def leave_out_of_the_key(config: Any, names: Sequence[str]) -> None:
    """Have Inductor's key ignore settings of the module `torch._inductor.config` that change no generated code.

    Whether a header was precompiled changes how fast kernels are built, not what they are. With the switch in the key,
    a run could not find everything and also skip building the header. And one C++ compiler has many names.

    Raises:
        NotPortableError: This torch keeps its list of ignored settings elsewhere.
    """
    ignored = getattr(config, "_cache_config_ignore_prefix", None)
    if not isinstance(ignored, list):
        raise NotPortableError
    ignored += [name for name in names if name not in ignored]


def make_kernel_keys_portable(cpp_builder: Any, macro: str) -> None:
    """Hash a kernel's compile command with names for the places of torch and Python, not their paths.

    Inductor names a compiled kernel after its source and its whole command line. That has `-I <site-packages>/torch/…`
    in it, so a cache moved to another virtual environment, with the same torch, would find its graphs and build every
    kernel again (30 s instead of 3 s). The command for hashing is the one with source `i`; what is run stays as it is.

    Args:
        cpp_builder: The module `torch._inductor.cpp_builder`.
        macro: The macro on the command line that says that the header is precompiled.
    """
    builder = cpp_builder.CppBuilder
    original = builder.get_command_line
    if getattr(original, "portable", False):
        return
    places = _places()

    def get_command_line(self: Any) -> str:
        line: str = original(self)
        if self._sources_args == "i":
            line = line.replace(f"-D {macro} ", "")
            line = f"<cxx>{line.removeprefix(self._compiler)}"
            for place, name in places:
                line = line.replace(place, name)
            line = line.replace("'", "")  # a path with a space in it is quoted here and there
        return line

    get_command_line.portable = True  # type: ignore[attr-defined]
    builder.get_command_line = get_command_line

    # The compiler's own account (`-v`) names what it tries out on the processor, and begins with how it was called.
    version = cpp_builder.get_compiler_version_info

    def get_compiler_version_info(compiler: str) -> str:
        return re.sub("COLLECT_GCC=.*?_(?=COLLECT_|Target:)", "", version(compiler))

    cpp_builder.get_compiler_version_info = get_compiler_version_info


def name_types_alike(codecache: Any) -> None:
    """Have Inductor's keys name the memory format and the data type of a tensor alike, whatever is imported first.

    Neither knows its module, so that `pickle` takes the first one in which it finds them: `torch.contiguous_format` of
    the first module that has imported torch. A script that imports in another order would find nothing.

    Args:
        codecache: The module `torch._inductor.codecache`.
    """
    pickler = getattr(codecache, "FxGraphCachePickler", None)  # makes what is hashed, and nobody reads [torch 2.13]
    original = getattr(pickler, "__init__", None)
    if pickler is None or original is None or getattr(original, "alike", False):
        return
    torch = sys.modules["torch"]

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        for kind in (torch.memory_format, torch.dtype):
            self.dispatch_table[kind] = lambda one: (str, (str(one),))

    begin.alike = True  # type: ignore[attr-defined]
    pickler.__init__ = begin


def share_in(folder: str, switch: str) -> None:
    """Have Inductor keep what outlives its cache in a folder of this user alone, and precompile its header there.

    Its own is `<tmp>/torchinductor_<user>`, which anybody may have made before. Without a folder, or where this torch
    keeps its headers elsewhere, none is precompiled.

    Args:
        folder: The folder; empty where there is none.
        switch: The setting of `torch._inductor.config` that turns precompiled headers on.
    """

    def move(module: Any) -> None:
        if folder and hasattr(module, "default_cache_dir"):
            module.default_cache_dir = lambda: folder

    def move_headers(codecache: Any) -> None:
        here = bool(folder) and hasattr(codecache, "_HEADER_DIR") and hasattr(codecache, "_HEADER_LOCK_DIR")
        if here:
            codecache._HEADER_DIR = str(Path(folder, "precompiled_headers"))  # noqa: SLF001
            codecache._HEADER_LOCK_DIR = str(Path(folder, "precompiled_headers", "locks"))  # noqa: SLF001
        if hasattr(codecache.config, switch):
            setattr(codecache.config, switch, here)

    for name in ("cache_dir_utils", "runtime_utils"):  # the second has the first one's name for it
        after(f"torch._inductor.runtime.{name}", move)
    after("torch._inductor.codecache", move_headers)


def hide_secrets(redact: Any) -> None:
    """Have torch write no secret into a graph.

    It puts every variable with TORCH, DYNAMO, INDUCTOR or TRITON in its name, with its value, before the program that
    repeats a graph, and that program into the pickle of the graph (`_dynamo/debug_utils.generate_env_vars_string`,
    torch 2.13): so `TORCHX_REGISTRY_PASSWORD` of a shell would go to everybody who pulls the graph.

    Args:
        redact: The module `cachekit.redact`, which is loaded from its folder where cachekit cannot be imported.
    """
    name = "generate_env_vars_string"

    def hide(debug_utils: Any) -> None:
        original = getattr(debug_utils, name, None)
        if original is None or getattr(original, "hides", False):
            return

        def generate_env_vars_string(*arguments: Any, **options: Any) -> str:
            text: str = original(*arguments, **options)
            for variable, value in os.environ.items():
                if redact.is_secret(variable, value):  # one of few characters, too
                    start, quoted = f"os.environ['{variable}'] = '", value.replace("'", '"')
                    text = text.replace(f"{start}{quoted}'", f"{start}{redact.HIDDEN}'")
            return str(redact.printed(text))

        generate_env_vars_string.hides = True  # type: ignore[attr-defined]
        debug_utils.generate_env_vars_string = generate_env_vars_string
        for module in ("after_aot", "after_dynamo", "aoti"):  # these have the function's name, if they were first
            user = sys.modules.get(f"torch._dynamo.repro.{module}")
            if user is not None and hasattr(user, name):
                setattr(user, name, generate_env_vars_string)

    after("torch._dynamo.debug_utils", hide)


def _places() -> list[tuple[str, str]]:
    """Paths that differ between equal installations, longest first, and the names that stand for them."""
    paths = sysconfig.get_paths()
    torch = Path(str(sys.modules["torch"].__file__))
    named = {
        str(torch.parent): "<torch>",
        str(torch.resolve().parent): "<torch>",
        paths["include"]: "<python-include>",
        paths["platinclude"]: "<python-include>",
        paths["purelib"]: "<site-packages>",
        paths["stdlib"]: "<python-lib>",
        sysconfig.get_config_var("LIBDIR") or "": "<python-libdir>",
        sys.prefix: "<prefix>",
        sys.base_prefix: "<base-prefix>",
    }
    # Too short to be anybody's own: replacing `/usr` would only make different things look alike.
    named = {place: name for place, name in named.items() if place.count("/") > 1}
    return sorted(named.items(), key=lambda item: -len(item[0]))


def graphs(counters: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Graphs so far by `torch._dynamo.utils.counters`: `found`, `compiled`, and Inductor's own numbers.

    If `time_found` looks at them, a graph that is found twice counts once, and one that this process compiled itself
    does not count as found. `found_ms` is what compiling took of those that were found, if `time_found` counts that.

    A graph that bypassed the cache counts as compiled.
    """
    numbers = {
        f"{cache}_cache_{what}": counters[group][f"{cache}_cache_{what}"]
        for cache, group in (("fxgraph", "inductor"), ("autograd", "aot_autograd"))
        for what in ("hit", "miss", "bypass")
    }
    return {
        "found": max(numbers["fxgraph_cache_hit"] - counters["inductor"][_AGAIN], 0),
        "compiled": max(
            numbers["fxgraph_cache_miss"] + numbers["fxgraph_cache_bypass"],
            numbers["autograd_cache_miss"] + numbers["autograd_cache_bypass"],
        ),
        **({"found_ms": counters["inductor"][_FOUND] // 1000} if _FOUND in counters["inductor"] else {}),
        **numbers,
    }


def ungraphed(counters: Mapping[str, Mapping[str, int]]) -> str:
    """That torch.compile was called and made no graph, as a sentence; empty where it made one, or was not called."""
    frames = counters["frames"]["total"]
    if not frames or any(graphs(counters).values()):
        return ""
    functions = f"{frames} function{'s' * (frames != 1)}"  # the package may not be there
    said = f"torch.compile looked at {functions} and made no graph: there is nothing to cache"
    # Around the module's own forward it breaks the graph, and PyTorch's own modules it does not look into [torch 2.13].
    if any("DistributedDataParallel" in reason for reason in counters["graph_break"]):
        said += (
            "; of a DistributedDataParallel it compiles no forward of PyTorch's own modules, such as nn.Sequential: "
            "compile the model first, DistributedDataParallel(torch.compile(model))"
        )
    return said


def time_found(counters: Any, since: int = 0) -> dict[str, int]:
    """Have Inductor add up what compiling took of each graph that it finds, as its pickle carries it.

    Only of those that lay there before, each once: what it compiles itself, and finds again, spared nothing, nor does a
    graph that it finds a second time, as it does when it compiles the same code again.

    Args:
        counters: Gives torch's counters: `torch._dynamo.utils.counters`.
        since: Before what: the clock's nanoseconds; by default, when Inductor was loaded.

    Returns:
        Microseconds by graph, to which this adds as graphs are found.
    """
    name = "load_with_key"  # FxGraphCache.load_with_key(key, ...) -> graph or None, information [torch 2.13]
    found: dict[str, int] = {}

    def add(codecache: Any) -> None:
        cache = getattr(codecache, "FxGraphCache", None)
        original = getattr(cache, name, None)
        if cache is None or original is None or getattr(original, "times", False):
            return
        began = since or time.time_ns()
        known: set[tuple[str, int]] = set()  # a key may have several graphs, which no two take the same nanoseconds
        missed: set[str] = set()

        def load_with_key(key: str, *arguments: Any, **options: Any) -> Any:
            graph, information = original(key, *arguments, **options)
            with suppress(Exception):  # it only counts
                if graph is None:
                    missed.add(key)
                    return graph, information
                took, numbers = int(information.get("time_saved_ns") or 0), counters()["inductor"]
                lay_there = Path(cache._get_tmp_dir_for_key(key)).stat().st_ctime_ns < began  # noqa: SLF001
                again = (key, took) in known or (key in missed and not lay_there)
                known.add((key, took))
                numbers[_AGAIN] += again
                numbers[_FOUND] += took // 1000 if lay_there and not again else 0
                if lay_there and not again:
                    found[f"{key} {took}"] = took // 1000
            return graph, information

        load_with_key.times = True  # type: ignore[attr-defined]
        cache.load_with_key = staticmethod(load_with_key)

    after("torch._inductor.codecache", add)
    return found


class _Account(dict[str, float]):
    """torch's account, which also knows when graphs compiled: `torch._dynamo.reset()` clears the sums, and not that.

    Args:
        utils: `torch._dynamo.utils`, whose account this is from now on.
        looked: Called after each piece of code in which torch looked for graphs.

    Attributes:
        spans: From when to when something compiled: seconds of the clock, so that those of several processes compare.
    """

    def __init__(self, utils: Any, looked: Callable[[], object]) -> None:
        before = float(utils.calculate_time_spent()["total_wall_time"])
        super().__init__(getattr(utils, _ACCOUNT))
        self.spans = [(time.time() - before, time.time())] if before else []
        self._counters, self._looked = utils.counters, looked
        self._compiled = graphs(self._counters)["compiled"]

    def __missing__(self, phase: str) -> float:
        return 0.0

    def __setitem__(self, phase: str, sum_of_it: float) -> None:
        took = (sum_of_it - self[phase]) / 1e9
        super().__setitem__(phase, sum_of_it)
        if phase not in _WHOLE:
            return
        known, self._compiled = self._compiled, graphs(self._counters)["compiled"]
        if self._compiled not in {known, 0}:  # 0 where a script has cleared the counters
            self.spans.append((time.time() - took, time.time()))
        self._looked()


def time_compiles(looked: Callable[[], object] = lambda: None) -> None:
    """Have torch keep when graphs compiled; `looked` is called after each piece of code that it looked at."""

    def begin(utils: Any) -> None:
        if hasattr(utils, _ACCOUNT) and not hasattr(getattr(utils, _ACCOUNT), "spans"):
            setattr(utils, _ACCOUNT, _Account(utils, looked))

    after("torch._dynamo.utils", begin)


def compile_spans(utils: Any) -> Sequence[tuple[float, float]] | None:
    """When graphs compiled in this process; None where torch does not keep that. `utils` is `torch._dynamo.utils`."""
    return getattr(getattr(utils, _ACCOUNT, None), "spans", None)


def after(name: str, act: Callable[[ModuleType], None]) -> None:
    """Do something to a module once it is imported: importing Inductor takes a second, and may never happen."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder:
    """Finds one module as Python does, and does something after the module has run."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        # Another one of these may wait for the same module.
        finders = (find for one in list(sys.meta_path) if (find := getattr(one, "find_spec", None)))
        spec: importlib.machinery.ModuleSpec | None = next(
            filter(None, (find(name, path, target) for find in finders)), None
        )
        if spec is None or spec.loader is None:
            return spec
        loader, act = spec.loader, self._act
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            with suppress(Exception):
                act(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
