"""Inductor in a process that is the user's own: portable keys, and what it has done so far.

Nothing here imports torch: what it configures is configured once torch has loaded it, which may be never.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from cachekit import redact
from cachekit.compilers.inductor import facts, portable


def join(*, found: bool) -> list[str]:
    """Switches that torch read from variables as it was loaded are only looked at."""
    portable.hide_secrets(redact)
    portable.after("torch._inductor.config", _configure)
    portable.time_found(lambda: sys.modules["torch._dynamo.utils"].counters)
    portable.time_compiles()
    portable.after("torch._inductor.codecache", portable.name_types_alike)
    portable.share_in("" if found else os.environ.get(facts.SHARED, ""), facts.PRECOMPILE_HEADERS_CONFIG)
    portable.after(
        "torch._inductor.cpp_builder",
        lambda builder: portable.make_kernel_keys_portable(builder, facts.PRECOMPILE_HEADERS_MACRO),
    )
    notes = []
    config = sys.modules.get("torch._inductor.config")
    if config is not None and getattr(config, "force_disable_caches", False):
        notes.append("Inductor's caches are switched off (force_disable_caches): nothing can be found or kept")
    elif config is not None and not getattr(config, "fx_graph_cache", True):
        notes.append("Inductor's cache of graphs is switched off (fx_graph_cache): every graph compiles again")
    functorch = sys.modules.get("torch._functorch.config")
    if functorch is not None and not getattr(functorch, "enable_autograd_cache", True):
        notes.append("the cache of AOTAutograd is switched off (enable_autograd_cache)")
    return notes


def _configure(config: Any) -> None:
    with suppress(portable.NotPortableError):  # then keys hold for this environment only
        portable.leave_out_of_the_key(config, facts.IGNORED)


def counters() -> dict[str, int]:
    """Zeros if torch's compiler was not even loaded."""
    utils = sys.modules.get("torch._dynamo.utils")
    return portable.graphs(utils.counters) if utils is not None else {"found": 0, "compiled": 0}


def compile_seconds() -> float:
    utils = sys.modules.get("torch._dynamo.utils")
    spans = portable.compile_spans(utils)
    if spans is not None:
        return round(sum(end - start for start, end in spans), 3)
    with suppress(Exception):  # torch's own account of it, which is not a public interface
        return round(float(utils.calculate_time_spent()["total_wall_time"]), 3) if utils is not None else 0.0
    return 0.0
