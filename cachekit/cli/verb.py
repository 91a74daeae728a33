"""One decorator makes a verb of a function: it adds the options that verbs share, makes the `Cache` that they describe,
follows the run on stderr, and prints the answer.

    @verb("home", "compiler")
    def command(cache: Cache, names: Names = None) -> Shown:
        return Shown(cache.pin(*names), human, quiet)
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Collection
from types import GenericAlias, SimpleNamespace
from typing import Annotated, Any, NamedTuple

import typer

from cachekit.cli import options, out
from cachekit.errors import CachekitError

# Options by the name under which a verb asks for them; each stands in the help where it stands here.
SHARED: dict[str, dict[str, tuple[Any, Any]]] = {
    "home": {"home": (options.Home, None)},
    "compiler": {"compiler": (options.CompilerName, None)},
    "wait": {"wait": (options.Wait, None)},
    "cache": {"cache": (options.Cache, None), "offline": (options.Offline, False)},
    "trust": {"trust": (options.Trust, None), "trust_all": (options.TrustAll, False)},
    "machine": {
        "toolchain": (options.Toolchain, None),
        "target": (options.Target, None),
        "instance": (options.Instance, None),
    },
    "nodes": {
        "nnodes": (options.NodeCount, None),
        "node_rank": (options.NodeRank, 0),
        "master_addr": (options.MasterAddress, ""),
        "master_port": (options.MasterPort, 29500),
    },
}
STYLE: dict[str, tuple[Any, Any]] = {
    "format": (options.Format, "human"),
    "quiet": (options.Quiet, False),
    "verbose": (options.Verbose, 0),
}


class Shown(NamedTuple):
    """An answer, and how it is shown.

    Attributes:
        answer: What the API answered: a value, or values in lists and under names.
        human: The lines for people, of its JSON values.
        quiet: Its one most useful value, for scripts; nothing by default.
        error: Raised after it was shown; the answer's own `error()` by default.
        notes: Told on stderr.
        warnings: Told on stderr, which quiet does not silence.
        code: The exit code.
    """

    answer: Any
    human: Callable[[Any], list[str]]
    quiet: Callable[[Any], str] | None = None
    error: CachekitError | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    code: int = 0


Verb = Callable[..., "Shown | int"]


Made = Callable[..., int]


def verb(
    *shared: str,
    answers: str = "",
    aside: Callable[[dict[str, Any]], bool] = lambda _: False,
    tells: Collection[str] = (),
) -> Callable[[Verb], Made]:
    """Make a verb of a function whose first argument is the `Cache`, if it has one of that name.

    Args:
        *shared: Names of `SHARED`.
        answers: What its JSON may be, for `--schema`: names of `api.answers`, with commas; `list[...]` of one.
        aside: Whether stdout is another program's with these options.
        tells: Events that the answer tells of, so that they are not warnings.
    """

    def decorate(function: Verb) -> Made:
        own = inspect.signature(function).parameters
        texts = {name: text for name, text in function.__annotations__.items() if name not in {"cache", "return"}}
        hints = typing.get_type_hints(SimpleNamespace(__annotations__=texts), function.__globals__, include_extras=True)
        takes_cache = next(iter(own), "") == "cache"
        taken = {name: pair for group, pairs in SHARED.items() if group in shared for name, pair in pairs.items()}
        parameters = [
            one.replace(annotation=hints[name], kind=one.KEYWORD_ONLY)
            for name, one in own.items()
            if not (name == "cache" and takes_cache)
        ]
        schema = {"schema": (_schema(answers), False)} if answers else {}
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            for name, (hint, default) in {**STYLE, **schema, **taken}.items()
        ]

        def run(**given: Any) -> int:
            style = {name: given.pop(name) for name in STYLE}
            given.pop("schema", None)  # the parser has answered it
            said = {name: given.pop(name) for name in taken}
            out.setup(aside=aside(given), **style)
            with out.following(tells) as progress:
                if not takes_cache:
                    shown = function(**given)
                else:
                    from cachekit.api import Cache, environment_warnings

                    for line in environment_warnings():
                        out.warning(line, minor=True)
                    shown = function(Cache(**said, progress=progress), **given)
                return shown if isinstance(shown, int) else out.answer(shown)

        run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def group(says: str, **more: Any) -> typer.Typer:
    """A verb with verbs of its own.

    Args:
        says: Its help.
        **more: What it does without one of them; by default it shows its help.
    """
    asked = more or {"no_args_is_help": True}
    return typer.Typer(add_completion=False, help=says, rich_markup_mode=None, **asked)


def _schema(answers: str) -> Any:
    def show(context: typer.Context, value: bool) -> None:
        if not value:
            return
        from cachekit import api
        from cachekit.api import answers as types

        kinds = []
        for one in answers.split(","):
            name = one.strip()
            kind = getattr(types, name.removeprefix("list[").removesuffix("]"))
            kinds.append(GenericAlias(list, (kind,)) if name.startswith("list[") else kind)
        out.text(json.dumps(api.schema(f"{context.command_path} --format json", kinds), indent=2))
        raise typer.Exit

    return Annotated[
        bool,
        typer.Option(
            "--schema", is_eager=True, callback=show, show_default=False, help="Print the JSON Schema of the answer."
        ),
    ]
