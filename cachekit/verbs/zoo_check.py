"""Recipes of one's own and of the zoo: make one out of a command line, and check that what is said holds together."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from cachekit import recipe
from cachekit.data import shapes
from cachekit.errors import CachekitError, RecipeError
from cachekit.recipe import Recipe, architecture, ingredients, load_text, model_config, zoo
from cachekit.recipe.architecture import IRRELEVANT, NO_EFFECT, Architecture, positions
from cachekit.recipe.convert import convert, convert_command
from cachekit.recipe.convert.draft import Note, RecipeDraft
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


class Checked(Answer, frozen=True, tag="cachekit/zoo-check/1"):
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
            yield ZooFinding(zoo.COMPILE_TIMES, f"{one.recipe}: {low:g} s are more than {high:g}", "lower number first")
        yield from _tried(zoo.COMPILE_TIMES, _read, Variant(one.recipe, one.set).load)
        yield from _tried(zoo.COMPILE_TIMES, _read, partial(zoo.instance, one.instance))


def _recipe(path: Path, name: str) -> Iterator[ZooFinding]:
    where, loaded = name or str(path), recipe.load(path)
    if name and loaded.name != name:
        yield ZooFinding(where, f"its name is {loaded.name}", f"set name: {where}")
    known = zoo.instances()
    for expected in loaded.expect:
        if expected.instance not in known:
            yield ZooFinding(where, f"expect.instance {expected.instance} is unknown", "`cachekit zoo ls instances`")
    entry = zoo.model(loaded.model.id) if loaded.model.id else None
    here = loaded.model.path or (loaded.model.package and model_config.folder_of(loaded))
    if entry is None and not here:
        named = loaded.model.id or loaded.model.package
        yield ZooFinding(where, f"model {named} is not in the registry: its lengths and its key were not checked",
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


class NewRecipe(Answer, frozen=True, tag="cachekit/zoo-new/1"):
    """A recipe as text, and what of its source it does not say.

    Attributes:
        text: YAML, with the notes as comments.
        recipe: What it is read as.
        notes: What could not be carried over, and what somebody must add.
        source: The file, or the command line.
        path: The file that it was written to, or would be; empty where none was named.
        dry_run: Nothing was written.
    """

    text: str
    recipe: Recipe
    notes: tuple[Note, ...]
    source: str
    path: str = ""
    dry_run: bool = False

    @property
    def to_do(self) -> tuple[Note, ...]:
        """What somebody must add before the recipe can be used."""
        return tuple(note for note in self.notes if note.todo)

    @property
    def not_carried_over(self) -> tuple[Note, ...]:
        """What the recipe leaves out."""
        return tuple(note for note in self.notes if not note.todo)


def new_recipe(source: Path | Sequence[str]) -> NewRecipe:
    """Turn a file, or the words of a command line, into a recipe that loads.

    Raises:
        RecipeError: It cannot be read, is of no kind that is known or of a task that recipes have none of, or it has
            placeholders in the place of values.
    """
    draft = convert(source) if isinstance(source, Path) else convert_command(source)
    named = source.name if isinstance(source, Path) else "a command line"
    _leave_what_has_no_effect(draft)
    _shorten(draft)
    text = draft.text(named)
    notes = sorted(draft.notes, key=lambda note: not note.todo)
    said = str(source) if isinstance(source, Path) else shlex.join(source)
    return NewRecipe(text, load_text(text, source=named), tuple(notes), said)


def _leave_what_has_no_effect(draft: RecipeDraft) -> None:
    config = draft.get("model.config") or {}
    for name in [name for name in config if name in NO_EFFECT]:
        draft.drop(f"model.config.{name}", IRRELEVANT[name], config.pop(name))


def _shorten(draft: RecipeDraft) -> None:
    """Make a length that the source does not say itself one that the model has positions for."""
    named = draft.get("model.id")
    entry = zoo.model(named) if isinstance(named, str) else None
    if entry is None:
        return
    found = Architecture({**entry.config, **(draft.get("model.config") or {})}, "registry")
    for name in ("max_seq_length", "max_target_length"):
        length, most = draft.get(f"training.{name}"), positions(found, name)
        if f"training.{name}" in draft.assumed and most is not None and length is not None and length > most:
            draft.set(f"training.{name}", most)
            draft.drop(f"training.{name}", f"the model has {most} positions, fewer than the script's default", length)
