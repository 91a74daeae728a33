"""`cachekit store ls`, `show`, `rm`, `pin` and `unpin`: the records of the store, one whole, and which go or stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.files import DIGEST

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Builder, Deleted, Listed, Pinned, Source, StoredModule, StoredRecord

_DIGEST = re.compile(DIGEST)  # whole in the JSON

Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="A key, or its first digits (`cachekit store ls`).",
        show_default=False,
        autocompletion=options.complete_key,
    ),
]
List = Annotated[bool, typer.Option("--list", "-l", help="Only list what is pinned.")]
Force = Annotated[bool, typer.Option("--force", help="Remove pinned records too, and those in use.")]


@verb("home", answers="list[Listed]")
def ls(cache: Cache) -> Shown:
    """List the records of the store, newest first.

    Example:  cachekit store ls --format json
    """
    where = str(cache.open_store().layout.home)
    return Shown(cache.ls(), lambda rows: listed(rows, where), lambda rows: "\n".join(row.key for row in rows))


def listed(found: list[Listed], home: str) -> list[str]:
    """Records as a table; they are taken out of the list, so that of 100,000 no two forms lie in memory."""
    if not found:
        return [f"the store at {home} has no records", "next: cachekit warm RECIPE"]
    columns = [
        [row.key[:12] for row in found],
        [f"{row.recipe} (not used)" if row.refused else row.recipe for row in found],
        [row.directory for row in found],
        [str(row.graphs) for row in found],
        [out.size(row.bytes) for row in found],
        [out.duration(row.cold_seconds) if row.cold_seconds else "-" for row in found],
        [row.created[:10] for row in found],
    ]
    found.clear()
    return out.table_of(columns, ["key", "recipe", "compiler", "graphs", "size", "compile", "made"], shrink=(1, 2))


@verb("home", answers="StoredRecord")
def show(cache: Cache, key: Key) -> Shown:
    """Show a record: its ingredients, its modules, and who made it.

    Example:  cachekit store show 3f2a91c0
    """
    return Shown(cache.show(key), shown, lambda found: str(found.key))


def shown(answer: StoredRecord) -> list[str]:
    """A record for people."""
    made = answer.provenance
    agrees = (
        "hashing them gives this key"
        if answer.key_of_ingredients == answer.key
        else "hashing them does NOT give this key"
    )
    took = f", compiled in {out.duration(answer.compile_seconds)}" if answer.compile_seconds else ""
    if answer.cold_seconds != answer.compile_seconds:
        took += f"; with nothing to reuse in {out.duration(answer.cold_seconds)}"
    lines = [
        f"key        {answer.key}",
        f"recipe     {answer.recipe}",
        f"compiler   {answer.directory}, {out.count(answer.graphs, 'graph')}{took}",
        f"made       {out.moment(made.created)} by {made.user}@{made.host} {made.instance}".rstrip(),
        *out.labelled("with       ", ", ".join(f"{name} {version}" for name, version in made.toolchain.items())),
        *_origin(answer),
        *(out.labelled("refused    ", f"it is {answer.refused}") if answer.refused else ()),
        f"bytes      {out.size(answer.bytes)}, {'complete' if answer.whole else 'DAMAGED: will compile again'}",
        "modules",
        *(line for module in answer.modules for line in _module(module)),
        f"ingredients ({agrees})",
    ]
    width = max(map(len, (*answer.hard, *answer.soft))) + 2
    for name, value in sorted(answer.hard.items()):
        lines += out.labelled(name.ljust(width), out.value(value), 2)
    lines.append("not in the key")
    for name, value in sorted(answer.soft.items()):
        lines += out.labelled(name.ljust(width), out.value(value), 2)
    return lines


def _origin(answer: StoredRecord) -> list[str]:
    """Where a record came from, and which records it reuses."""
    first, *others = answer.origin
    hows = {
        "here": "made in this store",
        "owner": "where only you, or an organisation of yours, can write",
        "all": "accepted from anybody",
        "stated": "as whoever signed the record says",
        "": "how it came here is not known",
    }

    def words(one: Source) -> str:
        how = f"signed by {', '.join(one.signers) or 'somebody'}" if one.how == "signed" else hows[one.how]
        return f"{one.remote}, {how}" if one.remote else how

    lines = out.labelled("from       ", words(first))
    for one in others:
        lines += out.labelled("reuses     ", f"{one.key[:12]}: {words(one)}")
    for vouched in answer.vouched:
        lines += out.labelled("signed     ", f"by {', '.join(vouched.signers)} {_builder(vouched.builder)}")
    return lines + (out.labelled("trust      ", f"not shared: {answer.untrusted}") if answer.untrusted else [])


def _builder(who: Builder) -> str:
    """Who made or published a record, as its signer says."""
    if who.ci is None:
        return f"as {who.user}@{who.host}"
    said = {"repository": who.ci.repository, "workflow": who.ci.workflow, "commit": who.ci.commit, "run": who.ci.run}
    return f"in {who.ci.service}: " + ", ".join(f"{name} {value}" for name, value in said.items() if value)


def _module(module: StoredModule) -> list[str]:
    lines = [f"  {_DIGEST.sub(_cut, module.name)}"]
    if module.graphs is not None:
        lines.append(f"    {out.size(module.files[0].size)}, {out.count(module.graphs, 'compiled graph')}")
    graph = module.graph
    if graph is not None and graph.state != "verified":
        lines.append(f"    {graph.state.upper()}: {graph.reason}")
    elif graph is not None:
        took = f", compiled in {out.duration(module.seconds)}" if module.seconds else ""
        files = out.size(sum(file.size for file in module.files))
        tensors = f"{out.count(graph.inputs, 'input')}, {out.count(graph.outputs, 'output')}"
        lines.append(f"    {files}, {graph.chip or graph.target or 'unknown chip'}, {tensors}{took}")
    return lines


def _cut(digest: re.Match[str]) -> str:
    return f"{digest.group()[:16]}…"


@verb("home", "compiler", answers="list[Deleted]")
def rm(
    cache: Cache,
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    force: Force = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Remove records from the store, with the files that only they name. Remotes keep their copies.

    Example:  cachekit store rm 3f2a91c0 --dry-run
    """
    done = cache.rm(*options.variants(names, overrides, tiny=tiny), force=force, dry_run=dry_run)
    return Shown(done, removed, lambda found: "\n".join(one.key for one in found))


def removed(found: list[Deleted]) -> list[str]:
    """What went, for people."""
    lines = []
    for one in found:
        would = "would remove" if one.dry_run else "removed"
        name = " ".join(filter(None, [one.key[:12], one.recipe, f"({one.directory})"]))
        lines.append(f"{would} {name}: {out.count(len(one.files), 'file')}, {out.size(one.bytes)}")
        if one.shared_bytes:
            lines.append(f"  {out.size(one.shared_bytes)} stay: other records name these files, or a process uses them")
        if one.unpinned:
            lines.append("  with its pin" if one.dry_run else "  it was pinned, and is no longer")
    return lines


@verb("home", "compiler", answers="list[Pinned]")
def pin(
    cache: Cache,
    names: options.RecipesOrKeys = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    listing: List = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Keep a recipe's record, whatever the limits of `cachekit store gc`.

    Pins the recipe's current key: after an upgrade or an edit the recipe has another key. If the key is not warm yet,
    the record made for it later is kept.

    Example:  cachekit store pin bert

    Example:  cachekit store pin --list
    """
    if not names and not listing:
        raise UsageError("nothing to pin", hint="name a recipe or a key, or --list")
    if names and listing:
        raise UsageError("names and --list were both given", hint="leave out one of them")
    if listing:
        return Shown(cache.pins(), pinned_now, keys)
    return Shown(cache.pin(*options.variants(names, overrides, tiny=tiny), dry_run=dry_run), pinned, keys)


def keys(found: list[Pinned]) -> str:
    """Keys for scripts."""
    return "\n".join(one.key for one in found)


def pinned_now(found: list[Pinned]) -> list[str]:
    """All pins, for people."""
    if not found:
        return ["nothing is pinned; next: cachekit store pin RECIPE"]
    rows = [
        [
            "-" if one.bytes is None else out.size(one.bytes),
            one.key[:12],
            one.recipe,
            one.directory or "(no record yet)",
            one.pinned[:10],
        ]
        for one in found
    ]
    return out.table(rows, ["size", "key", "recipe", "compiler", "pinned"], right=(0,), shrink=(2, 3))


def pinned(found: list[Pinned]) -> list[str]:
    """What was pinned, for people."""
    lines = []
    for one in found:
        name = " ".join(filter(None, [one.key[:12], one.recipe]))
        size = "no record yet: it is kept once it is made" if one.bytes is None else out.size(one.bytes)
        did = ("would pin" if one.dry_run else "pinned") if one.changed else "was pinned already:"
        lines.append(f"{did} {name}, {size}")
    return lines


@verb("home", "compiler", answers="list[Pinned]")
def unpin(
    cache: Cache,
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Let `cachekit store gc` remove a pinned record again.

    Example:  cachekit store unpin bert
    """
    return Shown(cache.unpin(*options.variants(names, overrides, tiny=tiny), dry_run=dry_run), unpinned, keys)


def unpinned(found: list[Pinned]) -> list[str]:
    """What was let go, for people."""
    lines = []
    for one in found:
        name = " ".join(filter(None, [one.key[:12], one.recipe]))
        did = ("would unpin" if one.dry_run else "unpinned") if one.changed else "was not pinned:"
        lines.append(f"{did} {name}")
    return lines
