"""Inductor inside the training worker: options, the model's compilation, counters, and portable kernels.

This is the only module of the adapter that imports torch, and only the worker imports it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch._dynamo.utils import counters as dynamo_counters

from cachekit import redact
from cachekit.compilers import port
from cachekit.compilers.inductor import portable
from cachekit.compilers.inductor.facts import (
    IGNORED,
    IRRELEVANT_OPTIONS,
    PRECOMPILE_HEADERS_CONFIG,
    PRECOMPILE_HEADERS_MACRO,
    SHARED,
    THREADS,
)
from cachekit.compilers.inductor.options import TORCH_COMPILE, unknown
from cachekit.errors import CompilerUnavailableError, RecipeError, chain_of

_CXX_ERROR = re.compile(r"\b(fatal )?error: .*")


class Runtime(port.Runtime):
    """Inductor in the worker."""

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Configure Inductor.

        Raises:
            RecipeError: torch._inductor.config has no such option, or it is of another type.
            CompilerUnavailableError: This torch does not have the places that the portable kernels need.
        """
        import torch._dynamo.config as dynamo
        import torch._inductor.config as inductor
        from torch._inductor import cpp_builder

        # Else the graphs of machines that train together are cut at DDP's buckets: none of them is a trial's, and
        # AOTAutograd's cache refuses two of five (measured: torch 2.13, three machines over gloo).
        dynamo.optimize_ddp = False

        for name, value in settings.items():
            if name in TORCH_COMPILE or name in IRRELEVANT_OPTIONS:
                continue
            known = inductor.shallow_copy_dict()
            if name not in known:
                raise unknown(name, known, f"torch {torch.__version__}")
            if known[name] is not None and type(known[name]) is not type(value):
                expected = type(known[name]).__name__
                raise RecipeError(f"compiler.options.{name} is {value!r}", cause=f"expected a {expected}")
            setattr(inductor, name, value)
        # The number is in Inductor's key; OpenMP and MKL each have further variables that change what it is by default.
        if (threads := os.environ.get(THREADS, "")).isdecimal():
            torch.set_num_threads(int(threads))
        try:
            portable.leave_out_of_the_key(inductor, IGNORED)
        except portable.NotPortableError as error:
            raise CompilerUnavailableError(
                f"cachekit does not know where Inductor of torch {torch.__version__} keeps its list of "
                "ignored settings",
                hint="use a torch version named in constraints/, or report this error",
            ) from error
        portable.hide_secrets(redact)
        portable.time_found(lambda: dynamo_counters)
        portable.make_kernel_keys_portable(cpp_builder, PRECOMPILE_HEADERS_MACRO)
        portable.after("torch._inductor.codecache", portable.name_types_alike)
        if settings.get(PRECOMPILE_HEADERS_CONFIG, True):
            portable.share_in(os.environ.get(SHARED, ""), PRECOMPILE_HEADERS_CONFIG)

    def arguments(self) -> dict[str, Any]:
        # Without it Transformers refuses bf16 on a CPU that has it.
        return {} if torch.cuda.is_available() else {"use_cpu": True}

    def compile_model(self, model: Any, settings: Mapping[str, Any]) -> None:
        """Compile the forward pass, not the module's call: accelerate wraps the forward pass in autocast.

        A graph with autocast in it is one that AOTAutograd's cache refuses (`Unsupported call_function target
        _enter_autocast`, torch 2.13). Outside of the graph it is in the cache's key.
        """
        arguments = {name: settings[name] for name in TORCH_COMPILE if name in settings}
        if arguments.get("mode") == "default":
            del arguments["mode"]
        model.forward = torch.compile(model.forward, dynamic=False, **arguments)

    def failure(self, error: BaseException) -> str | None:
        """The C++ compiler's own words, where it was that."""
        chain = chain_of(error)
        if not any("CppCompileError" in f"{type(one).__name__} {one}" for one in chain):
            return super().failure(error)
        told = next((found[0] for one in chain if (found := _CXX_ERROR.search(str(one)))), "")
        return told and f"the C++ compiler says: {told}"

    def counters(self) -> dict[str, int]:
        return portable.graphs(dynamo_counters)
