"""Whether recipes and registry entries hold together: what each says, and the names by which they refer to each other.

Nothing is loaded and nothing fetched: a model of the Hub that the registry lacks is a note, no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from cachekit import recipe
from cachekit.data import shapes
from cachekit.errors import CachekitError, RecipeError
from cachekit.recipe import Recipe, architecture, ingredients, model_config, zoo
from cachekit.recipe.ingredients import Fingerprint
from cachekit.recipe.variant import Variant
from cachekit.text import count
from cachekit.values import Answer

# A key can be made of the recipe: for which compiler is another question, and needs that compiler.
NO_COMPILER = Fingerprint("none", "none", {}, {}, {}, bf16=True)


class ZooFinding(Struct, frozen=True):
    """Something that is wrong, or, as a note, could not be looked at.

    Attributes:
        where: The file, or the entry's name.
        problem: What, in one line.
        hint: What to do.
    """

    where: str
    problem: str
    hint: str = ""
    note: bool = False


class Checked(Answer, frozen=True):
    """What was looked at, and what was found.

    Attributes:
        looked_at: How much of each kind: `recipes`, and of the whole zoo also `models`.
    """

    status: Literal["ok", "wrong"]
    looked_at: dict[str, int]
    findings: tuple[ZooFinding, ...]

    @property
    def wrong(self) -> tuple[ZooFinding, ...]:
        """The findings that are not mere notes."""
        return tuple(finding for finding in self.findings if not finding.note)

    def error(self) -> RecipeError | None:
        """What to raise where something is wrong: how much; what it is, the findings say."""
        if not self.wrong:
            return None
        what = "these recipes" if self.looked_at["recipes"] > 1 else "this recipe"
        what = "the zoo" if "models" in self.looked_at else what
        verb = "is" if len(self.wrong) == 1 else "are"
        return RecipeError(f"{count(len(self.wrong), 'thing')} {verb} wrong with {what}")


def check_zoo() -> Checked:
    """Check all recipes and registry entries that come along."""
    findings: list[ZooFinding] = []
    files = list(zoo.model_files())
    entries: list[zoo.ModelEntry] = []
    for path in files:
        findings += _tried(path.name, _model, path, entries)
    findings += _names(entries)
    findings += _tried("instances.yaml", _read, zoo.instances)
    findings += _tried("toolchains.yaml", _read, zoo.toolchains)
    findings += _tried(zoo.COMPILE_TIMES, _compile_times)
    paths = zoo.recipes()
    for name, path in paths.items():
        findings += check_recipe(path, name)
    return _checked({"recipes": len(paths), "models": len(files)}, findings)


def check_files(paths: list[Path]) -> Checked:
    """Check recipes that somebody wrote."""
    return _checked({"recipes": len(paths)}, [finding for path in paths for finding in check_recipe(path)])


def _checked(looked_at: dict[str, int], findings: list[ZooFinding]) -> Checked:
    wrong = any(not finding.note for finding in findings)
    return Checked("wrong" if wrong else "ok", looked_at, tuple(findings))


def check_recipe(path: Path, name: str = "") -> list[ZooFinding]:
    """Check one recipe.

    Args:
        path: Its file.
        name: What the zoo calls it; empty for one that is not of the zoo.
    """
    return _tried(name or str(path), _recipe, path, name)


def _tried(where: str, look: Callable[..., Iterable[ZooFinding]], *arguments: Any) -> list[ZooFinding]:
    found: list[ZooFinding] = []
    try:
        found.extend(look(*arguments))
    except CachekitError as error:
        found.append(ZooFinding(where, f"{error}: {error.cause}" if error.cause else str(error), error.hint))
    return found


def _read(read: Callable[[], object]) -> Iterable[ZooFinding]:
    read()
    return ()


def _compile_times() -> Iterator[ZooFinding]:
    for one in zoo.compile_times():
        low, high = one.seconds
        if low > high:
            yield ZooFinding(zoo.COMPILE_TIMES, f"{one.recipe}: {low:g} s are more than {high:g}", "the least first")
        yield from _tried(zoo.COMPILE_TIMES, _read, Variant(one.recipe, one.set).load)
        yield from _tried(zoo.COMPILE_TIMES, _read, partial(zoo.instance, one.instance))


def _recipe(path: Path, name: str) -> Iterator[ZooFinding]:
    where, loaded = name or str(path), recipe.load(path)
    if name and loaded.name != name:
        yield ZooFinding(where, f"its name is {loaded.name}", f"say name: {where}")
    known = zoo.instances()
    for expected in loaded.expect:
        if expected.instance not in known:
            yield ZooFinding(where, f"expect.instance {expected.instance} is unknown", "`cachekit zoo ls instances`")
    entry = zoo.model(loaded.model.id) if loaded.model.id else None
    here = loaded.model.path or (loaded.model.package and model_config.folder_of(loaded))
    if entry is None and not here:
        named = loaded.model.id or loaded.model.package
        yield ZooFinding(where, f"model {named} is not in the registry: its lengths and its key were not looked at",
                      "a key of it needs the Hub, or the package", note=not name)  # fmt: skip
        return
    found = architecture.resolve(loaded)
    architecture.check(loaded, found)
    if entry is not None and loaded.task not in entry.tasks:
        # Of somebody's own it is not a mistake: Transformers has more than what the registry says people use.
        able = ", ".join(entry.tasks)
        problem = f"the registry does not name {loaded.task} among what model.id {loaded.model.id} is for"
        yield ZooFinding(where, problem, f"it names {able}", note=not name)
    yield from _layout(loaded, found, where)
    _ = ingredients.build(loaded, found, shapes.shapes_of(loaded), NO_COMPILER, {}).key


def _layout(loaded: Recipe, found: architecture.Architecture, where: str) -> Iterator[ZooFinding]:
    size = loaded.parallel.tensor_parallel_size
    if size == 1:
        return
    for field in ("num_attention_heads", "num_key_value_heads"):
        heads = found.whole.get(field)
        if isinstance(heads, int) and heads % size:
            yield ZooFinding(
                where,
                f"parallel.tensor_parallel_size is {size}, but the model's {field} is {heads}",
                "it must divide them",
            )
    known = zoo.instances()
    for expected in loaded.expect:
        machine = known.get(expected.instance)
        group = size * loaded.parallel.pipeline_parallel_size
        if machine is not None and machine.cores % group:
            yield ZooFinding(where, f"{group} cores share a model, but {expected.instance} has {machine.cores}")


def _model(path: Path, entries: list[zoo.ModelEntry]) -> Iterator[ZooFinding]:
    entry = zoo.read_model(path)
    entries.append(entry)
    if path.stem != entry.id.replace("/", "--"):
        yield ZooFinding(path.name, f"its id is {entry.id}", f"name the file {entry.id.replace('/', '--')}.yaml")
    model_type = model_config.model_type(entry.config, path.name)
    defaults = zoo.architecture_defaults(model_type)
    if not defaults:
        yield ZooFinding(
            path.name,
            f"registry/architectures has no {model_type}.yaml",
            "without it, a config that leaves a default out has another key",
        )
    model_config.check(entry.config, {}, defaults, path.name)


def _names(entries: list[zoo.ModelEntry]) -> Iterator[ZooFinding]:
    """Names that stand for two models."""
    owners: dict[str, str] = {}
    for entry in entries:
        for name in (entry.id, *entry.aliases):
            if owners.setdefault(name, entry.id) != entry.id:
                yield ZooFinding(entry.id, f"{name} is also a name of {owners[name]}", "keep one of them")
