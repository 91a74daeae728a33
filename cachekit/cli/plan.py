"""`cachekit plan`: what will hit and what will compile, how long that takes and costs, before anything runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.cli import options, out, plan_text
from cachekit.errors import UsageError

if TYPE_CHECKING:
    from cachekit.compilers import Compiler
    from cachekit.config import Config
    from cachekit.recipe import Recipe
    from cachekit.recipe.price import Price, Prices
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.forecast import Request
    from cachekit.verbs.plan import Plan
    from cachekit.verbs.prepare import Prepared

NAME = "plan"

Recipes = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="RECIPE...",
        help="YAML files, or names of `cachekit zoo`.",
        show_default=False,
        autocompletion=options.complete_recipe,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Every recipe of the zoo.")]
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="Of the zoo, recipes for it: text-classification.")]
ModelName = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Of the zoo, recipes of an id, a part of one, or a type: bert.")
]
MaxPrice = Annotated[
    Optional[float],
    typer.Option("--max-price", metavar="DOLLARS", help="Of the zoo, recipes whose machine costs no more."),
]
HourPrice = Annotated[
    Optional[list[str]],
    typer.Option(
        "--price",
        metavar="[TYPE=]DOLLARS",
        help="What you pay for an hour, of a TYPE or of any machine; a TYPE alone means its price. Repeatable.",
    ),
]


def command(
    recipes: Recipes = None,
    every: All = False,
    task: Task = "",
    model: ModelName = "",
    max_price: MaxPrice = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    require_warm: options.RequireWarm = False,
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
    price: HourPrice = None,
) -> int:
    """Say what will be found and what must compile; run nothing.

    Needs no accelerator and no PyTorch import, and no network but for shared caches. Exit 3 on a miss with
    --require-warm. How long a miss compiles is estimated from records of the same compiler, and what it costs from the
    price of the machine.

    Example:  cachekit plan bert --set training.per_device_train_batch_size=8

    Example:  cachekit plan bert --toolchain neuron-2.31 --instance trn1.2xlarge

    Example:  cachekit plan bert gpt2-clm roberta-mlm --price 0.40

    Example:  cachekit plan --all --toolchain neuron-2.32
    """
    from cachekit.recipe import price as prices
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.plan import Searching, plan

    out.setup(format, quiet=quiet, verbose=verbose)
    priced = prices.read(price or [])
    config = options.load_config(home, compiler, cache=cache, trust_all=trust_all)
    where = Elsewhere(toolchain or "", target or "", instance or "", config.compiler)
    reader = _Reader(where, overrides, home, compiler, tiny=tiny)
    chosen = every or bool(task or model or max_price is not None)
    names = _of_zoo(recipes, priced, task, model, max_price) if chosen else list(recipes or ())
    if chosen or len(names) > 1:
        return _several([reader.request(name, priced) for name in names], config, offline, require_warm=require_warm)
    if not names:
        raise UsageError("no recipe was named", hint="cachekit plan RECIPE..., or --all for every recipe of the zoo")
    loaded = reader.load(names[0])
    if where:
        toolchain, instance = where.toolchain, where.machine(loaded, guess=False)
    with options.session(config, loaded, NAME, offline=offline, toolchain=toolchain, instance=instance) as session:
        prepared = reader.prepare(names[0], loaded, session.compiler)
        searching = Searching.as_warm(session.config)
        planned = plan(prepared, session.store, session.chain, searching=searching)
    hourly = priced.of(prepared.fingerprint.instance)
    return show(planned, require_warm=require_warm, price=hourly, modules=verbose > 0)


def _of_zoo(recipes: list[str] | None, priced: Prices, task: str, model: str, max_price: float | None) -> list[str]:
    """The zoo's recipes of that kind."""
    from cachekit.verbs import zoo_list

    if recipes:
        raise UsageError(
            "recipes are named, and chosen from the zoo as well", hint="cachekit plan RECIPE..., or cachekit plan --all"
        )
    own = {name: amount for name, amount in priced.own.items() if name}
    found = [row["name"] for row in zoo_list.rows("recipes", zoo_list.Filter(task, model, "", max_price, own))]
    if not found:
        raise UsageError("the zoo has no recipe of that kind", hint="`cachekit zoo ls` lists them")
    return found


class _Reader:
    """Reads recipes as the options say."""

    def __init__(
        self, where: Elsewhere, overrides: list[str] | None, home: Path | None, compiler: str | None, *, tiny: bool
    ) -> None:
        self._where, self._overrides, self._home, self._compiler, self._tiny = where, overrides, home, compiler, tiny

    def load(self, name: str) -> Recipe:
        """A recipe, whose data is looked at where it is here."""
        from cachekit.data.shapes import check_data

        loaded, _ = options.load_recipe(name, self._overrides, tiny=self._tiny)
        check_data(loaded, absent_ok=True)
        return loaded

    def prepare(self, name: str, loaded: Recipe, compiler: Compiler) -> Prepared:
        """What follows from it."""
        from cachekit.verbs.prepare import prepare

        called = options.named(name, self._overrides, self._home, self._compiler, tiny=self._tiny)
        return prepare(loaded, compiler, called)

    def request(self, name: str, priced: Prices) -> Request:
        """A recipe among several."""
        from cachekit.verbs.forecast import Request
        from cachekit.verbs.prepare import again

        def wanted() -> Prepared:
            loaded = self.load(name)
            return self.prepare(name, loaded, self._where.select(loaded, guess=True))

        def before(prepared: Prepared) -> list[Prepared]:
            return [again(prepared, other) for other in self._where.other_toolchains(prepared.recipe)]

        return Request(name, wanted, before, priced.of)


def _several(requests: list[Request], config: Config, offline: bool, *, require_warm: bool) -> int:
    from cachekit.verbs.forecast import forecast

    with options.session(config, None, NAME, offline=offline) as session:
        found = forecast(requests, session.store, session.chain)
    failure = found.failure(require_warm=require_warm)
    out.data(
        found.as_dict(),
        plan_text.several,
        lambda document: "\n".join(f"{row['status']} {row['name']}" for row in document["plans"]),
        fails=failure is not None,
    )
    if failure is not None:
        raise failure
    return 0


def show(planned: Plan, *, require_warm: bool, price: Price | None = None, modules: bool = False) -> int:
    """Print a plan, for `--dry-run` as well."""
    from cachekit.verbs.plan import miss_error

    missed = require_warm and not planned.hit
    lines = partial(plan_text.one, modules=modules)
    out.data(planned.as_dict(price), lines, lambda document: str(document["status"]), fails=missed)
    if missed:
        raise miss_error(planned)
    return 0
