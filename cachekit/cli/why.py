"""`cachekit why`: what differs from the nearest record, between two recipes or records, and why a run compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.session import Session
    from cachekit.verbs.why import Side

NAME = "why"

First = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[RECIPE|KEY]",
        help="A recipe, as for `cachekit plan`, or the first digits of a key.",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
Second = Annotated[
    Optional[str],
    typer.Argument(
        metavar="[OTHER]",
        help="Compare the first with this one; each a recipe, the first digits of a key, or a file with a record.",
        show_default=False,
        autocompletion=options.complete_recipe_or_key,
    ),
]
RunName = Annotated[
    Optional[str],
    typer.Option("--run", metavar="last|RUN", help="Why a run compiled: the last one, or by its name in the journal."),
]


def command(
    recipe: First = None,
    other: Second = None,
    run: RunName = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
    cache: options.Cache = None,
    offline: options.Offline = False,
    trust_all: options.TrustAll = False,
    toolchain: options.Toolchain = None,
    target: options.Target = None,
    instance: options.Instance = None,
) -> int:
    """Say what differs from the nearest record, here or on a shared cache.

    On a hit it says so. Of a key it says what differs from the nearest other record. Of two recipes or records it says
    what differs; --set and the like change the second.

    Example:  cachekit why bert --set training.max_seq_length=384

    Example:  cachekit why bert 3f2a91c0

    Example:  cachekit why --run last
    """
    from cachekit.errors import UsageError
    from cachekit.verbs.elsewhere import Elsewhere

    out.setup(format, quiet=quiet, verbose=verbose)
    if run is not None and (recipe or overrides or tiny or toolchain or target or instance):
        raise UsageError("--run is about a run, and a recipe was given as well", hint="leave one of them out")
    config = options.load_config(home, compiler, cache=cache, trust_all=trust_all)
    if run is not None:
        return _run(config, run)
    if recipe is None:
        raise UsageError("neither a recipe nor a run was named", hint="cachekit why RECIPE, or cachekit why --run last")
    changes = options.named("", overrides, tiny=tiny)[2:]  # after the name
    machine = Elsewhere(toolchain or "", target or "", instance or "", config.compiler)
    if other is None and _record(recipe):
        if overrides or tiny or machine:
            raise UsageError(
                f"--set and the like change a recipe, and {recipe} is a key",
                hint=f"cachekit why {recipe} compares its record with the nearest one",
            )
        return _key(config, recipe, offline=offline)
    if other is None:
        return _recipe(config, recipe, overrides, f"{recipe}{changes}", machine, tiny=tiny, offline=offline)
    said = {"--toolchain": toolchain, "--target": target, "--instance": instance}
    changes += "".join(f" {option} {value}" for option, value in said.items() if value)
    return _two(config, recipe, other, overrides, changes, machine, tiny=tiny, offline=offline)


def _recipe(
    config: Config,
    name: str,
    overrides: list[str] | None,
    source: str,
    machine: Elsewhere,
    *,
    tiny: bool,
    offline: bool,
) -> int:
    from cachekit.data.shapes import check_data
    from cachekit.verbs.prepare import prepare
    from cachekit.verbs.why import why

    loaded, _ = options.load_recipe(name, overrides, tiny=tiny)
    check_data(loaded, absent_ok=True)
    named = {"toolchain": machine.toolchain, "instance": machine.machine(loaded, guess=False)}
    with options.session(config, loaded, NAME, offline=offline, **named) as session:
        found = why(session, prepare(loaded, session.compiler, source))
    for one in found.plan.looked:
        if one.records and one.problem:  # one that was never reached has been told of
            out.note(f"{one.tier} was not searched to the end: {one.problem}")
    out.data(
        found.as_dict(),
        human,
        lambda document: "\n".join(change["name"] for change in document["changes"]) or document["status"],
    )
    return 0


def _key(config: Config, beginning: str, *, offline: bool) -> int:
    from cachekit.verbs.why_sides import with_nearest

    with options.session(config, None, NAME, offline=offline) as session:
        old, new = with_nearest(session, beginning)
    return _compared(old, new)


def _compared(old: Side, new: Side) -> int:
    from cachekit.verbs.why import compare

    out.data(
        compare(old, new).as_dict(),
        human_two,
        lambda document: "\n".join(change["name"] for change in document["changes"]) or "same",
    )
    return 0


def _two(
    config: Config,
    first: str,
    second: str,
    overrides: list[str] | None,
    changes: str,
    machine: Elsewhere,
    *,
    tiny: bool,
    offline: bool,
) -> int:
    from cachekit.errors import UsageError
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.why_sides import is_file_of_one

    if (overrides or tiny or machine) and (is_file_of_one(second) or _record(second)):
        raise UsageError(
            f"--set and the like change the second of the two, and {second} is no recipe",
            hint=f"cachekit why {second} {first} ...",
        )
    with options.session(config, None, NAME, offline=offline) as session:
        old = _side(Elsewhere(compiler=config.compiler), session, first)
        new = _side(machine, session, second, overrides, changes, tiny=tiny)
    return _compared(old, new)


def _record(name: str) -> bool:
    from cachekit.verbs.why_sides import is_record

    return is_record(name)


def _side(
    machine: Elsewhere,
    session: Session,
    name: str,
    overrides: list[str] | None = None,
    changes: str = "",
    *,
    tiny: bool = False,
) -> Side:
    from pathlib import Path

    from cachekit.verbs import why_sides
    from cachekit.verbs.prepare import prepare

    if why_sides.is_file_of_one(name):
        return why_sides.of_file(Path(name).expanduser())
    if _record(name):
        return why_sides.of_key(session, name)
    loaded, _ = options.load_recipe(name, overrides, tiny=tiny)
    return why_sides.of_recipe(prepare(loaded, machine.select(loaded), f"{name}{changes}"))


def _run(config: Config, name: str) -> int:
    from cachekit.cli.why_text import of_run
    from cachekit.verbs.why_run import why_run

    with options.session(config, None, NAME) as session:
        found = why_run(session.store, name)
    out.data(found.as_dict(), of_run, lambda document: "\n".join(module["name"] for module in document["modules"]))
    return 0


def human(document: dict[str, Any]) -> list[str]:
    """Why a recipe misses, for people."""
    from cachekit.cli.why_text import of_recipe

    return of_recipe(document)


def human_two(document: dict[str, Any]) -> list[str]:
    """What differs, for people."""
    from cachekit.cli.why_text import of_two

    return of_two(document)
