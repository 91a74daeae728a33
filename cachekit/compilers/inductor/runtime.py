"""Inductor inside the training worker: options, the model's compilation, counters, and portable kernels.

This is the only module of the adapter that imports torch, and only the worker imports it.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters as dynamo_counters

from cachekit.compilers.inductor.facts import (
    CXX_CONFIG,
    IRRELEVANT_OPTIONS,
    PRECOMPILE_HEADERS_CONFIG,
    PRECOMPILE_HEADERS_MACRO,
    THREADS,
)
from cachekit.compilers.inductor.flags import TORCH_COMPILE
from cachekit.compilers.inductor.option_names import unknown
from cachekit.errors import CompilerUnavailableError, RecipeError


def prepare(settings: Mapping[str, Any]) -> None:
    """See `compilers.port.Runtime`.

    Raises:
        RecipeError: torch._inductor.config has no such option, or it is of another type.
        CompilerUnavailableError: This torch does not have the places that the portable kernels need.
    """
    import torch._inductor.config as inductor

    for name, value in settings.items():
        if name in TORCH_COMPILE or name in IRRELEVANT_OPTIONS:
            continue
        known = inductor.shallow_copy_dict()
        if name not in known:
            raise unknown(name, known, f"torch {torch.__version__}")
        if known[name] is not None and type(known[name]) is not type(value):
            raise RecipeError(f"compiler.options.{name} is {value!r}", cause=f"expected a {type(known[name]).__name__}")
        setattr(inductor, name, value)
    # The number is in Inductor's key; OpenMP and MKL each have further variables that change what it is by default.
    if (threads := os.environ.get(THREADS, "")).isdecimal():
        torch.set_num_threads(int(threads))
    _leave_out_of_the_key(inductor)
    _make_kernel_keys_portable()


def _leave_out_of_the_key(inductor: Any) -> None:
    # Whether a header was precompiled changes how fast kernels are built, not what they are. With the switch in the
    # key, a run could not find everything and also skip building the header. And one C++ compiler has many names.
    ignored = getattr(inductor, "_cache_config_ignore_prefix", None)
    if not isinstance(ignored, list):
        raise CompilerUnavailableError(
            f"Inductor of torch {torch.__version__} keeps its list of ignored settings elsewhere",
            hint="use a torch version named in constraints/, or report this",
        )
    ignored += [name for name in (PRECOMPILE_HEADERS_CONFIG, CXX_CONFIG) if name not in ignored]


def _make_kernel_keys_portable() -> None:
    """Hash a kernel's compile command with names for the places of torch and Python, not their paths.

    Inductor names a compiled kernel after its source and its whole command line. That has `-I <site-packages>/torch/…`
    in it, so a cache moved to another virtual environment, with the same torch, would find its graphs and build every
    kernel again (30 s instead of 3 s). The command for hashing is the one with source `i`; what is run stays as it is.
    """
    from torch._inductor import cpp_builder

    builder = cpp_builder.CppBuilder
    original = builder.get_command_line
    if getattr(original, "portable", False):
        return
    places = _places()

    def get_command_line(self: Any) -> str:
        line: str = original(self)
        if self._sources_args == "i":
            line = line.replace(f"-D {PRECOMPILE_HEADERS_MACRO} ", "")
            line = f"<cxx>{line.removeprefix(self._compiler)}"
            for place, name in places:
                line = line.replace(place, name)
            line = line.replace("'", "")  # a path with a space in it is quoted here and there
        return line

    get_command_line.portable = True  # type: ignore[attr-defined]
    builder.get_command_line = get_command_line

    # What it tells about itself (`-v`) names what it tries out on the processor, and begins with how it was called.
    version = cpp_builder.get_compiler_version_info

    def get_compiler_version_info(compiler: str) -> str:
        return re.sub("COLLECT_GCC=.*?_(?=COLLECT_|Target:)", "", version(compiler))

    cpp_builder.get_compiler_version_info = get_compiler_version_info


def _places() -> list[tuple[str, str]]:
    """Paths that differ between equal installations, longest first, and the names that stand for them."""
    paths = sysconfig.get_paths()
    named = {
        str(Path(torch.__file__).parent): "<torch>",
        str(Path(torch.__file__).resolve().parent): "<torch>",
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


def arguments(settings: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the protocol's
    """See `compilers.port.Runtime`. Without it Transformers refuses bf16 on a CPU that has it."""
    return {} if torch.cuda.is_available() else {"use_cpu": True}


def model_options(settings: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the protocol's
    """See `compilers.port.Runtime`: none."""
    return {}


def compile_model(model: Any, settings: Mapping[str, Any]) -> None:
    """See `compilers.port.Runtime`. In place, so that checkpoints keep the model's own names.

    What is compiled is the forward pass, not the module's call: accelerate wraps the forward pass in autocast, and a
    graph with autocast in it is one that AOTAutograd's cache refuses (`Unsupported call_function target
    _enter_autocast`, torch 2.13). Outside of the graph it is in the cache's key.
    """
    arguments = {name: settings[name] for name in TORCH_COMPILE if name in settings}
    if arguments.get("mode") == "default":
        del arguments["mode"]
    model.forward = torch.compile(model.forward, dynamic=False, **arguments)


def finish() -> None:
    """See `compilers.port.Runtime`: nothing."""


def adapt(trainer: Any) -> None:
    """See `compilers.port.Runtime`: nothing."""


def counters() -> dict[str, int]:
    """See `compilers.port.Runtime`. A bypassed cache counts as compiled: it was."""
    inductor, autograd = dynamo_counters["inductor"], dynamo_counters["aot_autograd"]
    numbers = {
        "fxgraph_cache_hit": inductor["fxgraph_cache_hit"],
        "fxgraph_cache_miss": inductor["fxgraph_cache_miss"],
        "fxgraph_cache_bypass": inductor["fxgraph_cache_bypass"],
        "autograd_cache_hit": autograd["autograd_cache_hit"],
        "autograd_cache_miss": autograd["autograd_cache_miss"],
        "autograd_cache_bypass": autograd["autograd_cache_bypass"],
    }
    return {
        "found": numbers["fxgraph_cache_hit"],
        "compiled": max(
            numbers["fxgraph_cache_miss"] + numbers["fxgraph_cache_bypass"],
            numbers["autograd_cache_miss"] + numbers["autograd_cache_bypass"],
        ),
        **numbers,
    }
