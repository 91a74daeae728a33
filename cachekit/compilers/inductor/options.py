"""Flags and options of Inductor: their canonical form, and the names that the installed torch knows.

A flag is `--name=value` or `--name`, an option `name: value`; both set the same thing. Their order has no effect here,
unlike Neuron's: they end up as settings with names. What reaches no code is left out (`facts.IRRELEVANT_OPTIONS`).
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path
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
                f"compiler.flags: Inductor has no flag {flag!r}",
                cause="a flag is --name=value or --name",
                hint="the names are those of torch._inductor.config, and mode, fullgraph, threads",
            )
        name = name.replace("-", "_")
        value = yaml_text.scalar(text, f"compiler.flags: {flag}") if equals else True
        if name in merged and merged[name] != value:
            raise RecipeError(
                f"compiler: {name} is given twice, as {merged[name]!r} and as {value!r}", hint="keep one of them"
            )
        merged[name] = value
    if (mode := merged.get("mode", "default")) not in MODES:
        raise RecipeError(f"compiler.options.mode is {mode!r}", hint=f"one of {', '.join(MODES)}")
    threads = merged.get("threads", 1)
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise RecipeError(
            f"compiler.options.threads is {threads!r}",
            cause="expected a whole number, 1 or more",
            hint="correct the number, or leave it out: then Inductor uses one thread per core",
        )
    return dict(sorted(merged.items()))


def canonical(compiler: Compiler, variables: Collection[str] = ()) -> dict[str, Any]:
    """What reaches the code, without `threads`, which is an ingredient of its own, and without defaults said aloud.

    Args:
        compiler: Of the recipe.
        variables: Those that are set for the worker: one of them may have made another default.
    """
    said = all_options(compiler)
    known = _installed() if said.keys() - {*TORCH_COMPILE, *IRRELEVANT_OPTIONS} else {}
    return {
        name: value
        for name, value in said.items()
        if name != "threads"
        and name not in IRRELEVANT_OPTIONS
        and (name in RELEVANT_OPTIONS or not name.startswith(IRRELEVANT_OPTION_PREFIXES))
        and not (name == "mode" and value == "default")
        and not _is_default(value, known.get(name), variables)
    }


def _is_default(value: Any, said: ast.expr | None, variables: Collection[str]) -> bool:
    """Whether torch sets an option to this value by itself, by the expression in its source.

    An expression is read if it is a constant, or `os.environ.get("NAME", "0") == "1"` with a variable that is not set.
    """
    match said:
        case ast.Constant(value=constant):
            return type(constant) is type(value) and bool(constant == value)
        case ast.Compare(
            left=ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get"), args=args),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=yes)],
        ):
            words = [one.value for one in args if isinstance(one, ast.Constant)]
            if len(words) != len(args) or not words or words[0] in variables:
                return False
            return value is ((words[1] if len(words) > 1 else None) == yes)
    return False


def check_names(names: Collection[str]) -> None:
    """Refuse options that the installed Inductor does not have; the worker checks again, and their values.

    Raises:
        RecipeError: It has no option of that name.
    """
    known = _installed().keys() if names else ()
    for name in names:
        if known and name not in known:
            raise unknown(name, known)


def unknown(name: str, known: Iterable[str], cause: str = "") -> RecipeError:
    """What to say of an option that Inductor does not have."""
    near = get_close_matches(name, known, n=1)
    return RecipeError(
        f"compiler.options.{name} (flag --{name.replace('_', '-')}): Inductor has no such option",
        cause=cause,
        hint=f"did you mean {near[0]}?" if near else "see torch._inductor.config",
    )


@cache
def _installed() -> dict[str, ast.expr | None]:
    """The options' names, read from torch's source (30 ms): importing it takes seconds; each with what it is set to.

    That is None where it is set in several places. Empty where the source cannot be read.
    """
    try:
        spec = importlib.util.find_spec("torch")
        folder = next(iter((spec.submodule_search_locations if spec else None) or ()))
        tree = ast.parse(Path(folder, "_inductor", "config.py").read_text(encoding="utf-8"))
    except (ImportError, OSError, ValueError, SyntaxError, StopIteration):
        return {}
    found: dict[str, ast.expr | None] = {}
    for name, value in _names(tree):
        found[name] = None if name in found else value
    return found


def _names(part: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.expr | None]]:
    """What a module and the classes in it set, as `name` and `class.name`."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for node in ast.iter_child_nodes(part):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and not _alias(node.value):
            targets = [node.target]
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        yield from ((f"{prefix}{target.id}", value) for target in targets if isinstance(target, ast.Name))
        if isinstance(node, ast.ClassDef):
            # `class cuda(cutlass)`, `@inherit_fields_from(cutlass)`: it has the options of a class before it, too.
            heads = [name for head in (*node.bases, *node.decorator_list) for name in ast.walk(head)]
            before = [classes.get(name.id, []) for name in heads if isinstance(name, ast.Name)]
            classes[node.name] = [node, *chain.from_iterable(before)]
            for one in classes[node.name]:
                yield from _names(one, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _names(node, prefix)


def _alias(value: ast.expr | None) -> bool:
    """`Config(alias=...)`: another name of an option of another module."""
    return isinstance(value, ast.Call) and any(keyword.arg == "alias" for keyword in value.keywords)
