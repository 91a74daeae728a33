"""Flags and options of Inductor in one canonical form.

A flag is `--name=value` or `--name`, an option `name: value`; both set the same thing. Their order means nothing here,
unlike Neuron's: they end up as settings with names. What reaches no code is left out (`facts.IRRELEVANT_OPTIONS`).
"""

from __future__ import annotations

from typing import Any

from cachekit.compilers.inductor.facts import IRRELEVANT_OPTION_PREFIXES, IRRELEVANT_OPTIONS, RELEVANT_OPTIONS
from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text
from cachekit.recipe.schema import Compiler

# Arguments of torch.compile; every other name is one of torch._inductor.config, which the worker checks.
TORCH_COMPILE = frozenset({"mode", "fullgraph"})
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def all_options(compiler: Compiler) -> dict[str, Any]:
    """Flags and options as one mapping, sorted by name.

    Raises:
        RecipeError: A flag is malformed, or a name is given two values.
    """
    merged: dict[str, Any] = dict(compiler.options)
    for flag in compiler.flags:
        name, equals, text = flag.removeprefix("--").partition("=")
        if not flag.startswith("--") or not name:
            raise RecipeError(
                f"compiler.flags: {flag!r} is no flag of Inductor",
                cause="flags are --name=value or --name",
                hint="names are those of torch._inductor.config, and mode, fullgraph, threads",
            )
        name = name.replace("-", "_")
        value = yaml_text.scalar(text, f"compiler.flags: {flag}") if equals else True
        if name in merged and merged[name] != value:
            raise RecipeError(f"compiler: {name} is {merged[name]!r} and {value!r}", hint="keep one of them")
        merged[name] = value
    if (mode := merged.get("mode", "default")) not in MODES:
        raise RecipeError(f"compiler.options.mode is {mode!r}", hint=f"one of {', '.join(MODES)}")
    threads = merged.get("threads", 1)
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise RecipeError(
            f"compiler.options.threads is {threads!r}",
            cause="expected a whole number of 1 or more",
            hint="correct compiler.options.threads, or leave it out: as many as the host has cores",
        )
    return dict(sorted(merged.items()))


def canonical(compiler: Compiler) -> dict[str, Any]:
    """What reaches the code, without `threads`, which is an ingredient of its own."""
    return {
        name: value
        for name, value in all_options(compiler).items()
        if name != "threads"
        and name not in IRRELEVANT_OPTIONS
        and (name in RELEVANT_OPTIONS or not name.startswith(IRRELEVANT_OPTION_PREFIXES))
        and not (name == "mode" and value == "default")
        and not (name == "fullgraph" and value is False)
    }
