"""A recipe in the making: fields as they are found, what could not be carried over, and the text that comes of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from cachekit import redact
from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.load import has_placeholder, load_text, short, spelled
from cachekit.recipe.schema import Data, Model, Parallel, Training
from cachekit.redact.names import names_secret
from cachekit.text import one_line

SECTIONS: dict[str, tuple[str, ...]] = {
    "model": Model.__struct_fields__,
    "data": Data.__struct_fields__,
    "training": Training.__struct_fields__,
    "parallel": Parallel.__struct_fields__,
    "compiler": ("name", "flags", "options"),
}
_FIELD = re.compile(r"\b(model|data|training|parallel|compiler|environment)\.([A-Za-z_]\w*)")
SHORTEST = 6  # characters of a secret: the value of `USE_TOKEN=1` is not one
UNKNOWN = "a recipe has no field for it"


class Note(Struct, frozen=True):
    """Something of the source that the recipe does not say, or says in another way.

    Attributes:
        what: As it stands in the source.
        why: The reason, in words.
        todo: The recipe cannot be used before somebody has seen to it.
    """

    what: str
    why: str
    todo: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class RecipeDraft(Struct):
    """A recipe in the making.

    Attributes:
        name: Of the recipe.
        kind: What the source is, for the recipe's first line.
        task: Of the recipe.
        fields: By section.
        environment: Variables for the worker.
        notes: What could not be carried over.
        assumed: Fields that are the source's defaults, which it does not say itself.
    """

    name: str
    kind: str
    task: str = "text-classification"
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    assumed: set[str] = field(default_factory=set)

    def set(self, path: str, value: Any) -> None:
        """Set a field, `training.learning_rate`; what is set later wins."""
        section, _, name = path.partition(".")
        self.fields.setdefault(section, {})[name] = value

    def default(self, path: str, value: Any) -> None:
        """Set a field that says nothing yet."""
        if self.get(path) is None:
            self.set(path, value)

    def get(self, path: str) -> Any:
        """A field's value; None where it says nothing."""
        section, _, name = path.partition(".")
        return self.fields.get(section, {}).get(name)

    def drop(self, what: str, why: str, value: Any = None) -> None:
        """Note what could not be carried over. Secrets are not repeated."""
        name = what.strip().lstrip("-").partition("=")[0].replace("-", "_")
        if names_secret(name) and (value is None or len(str(value)) >= SHORTEST):
            value, why = None, "a secret, which a recipe should not hold: `hf auth login`, or the environment"
        words = "" if value is None else " " + short(redact.printed(spelled(value)))
        note = Note(one_line(what + words), why)
        if note not in self.notes:
            self.notes.append(note)

    def relative(self, what: str, path: str) -> None:
        """Note that a path is read from another folder than where the source was."""
        if not path.startswith(("/", "~")):
            self.drop(what, "a relative path starts at the recipe's folder, not at the working one", path)

    def must(self, what: str, why: str) -> None:
        """Note what somebody must add."""
        self.notes.append(Note(one_line(what), why, todo=True))

    def text(self, source: str) -> str:
        """The recipe as YAML, with what could not be carried over as comments. It loads.

        Raises:
            RecipeError: No recipe can be made of it, or a field's value is a placeholder.
        """
        said = {f"{section}.{name}": value for section, one in self.fields.items() for name, value in one.items()}
        said |= {f"environment.{name}": value for name, value in self.environment.items()}
        hint = "replace the placeholders with values, or leave them out and set the fields in the recipe"
        refuse_placeholders({"name": self.name, **said}.items(), source, hint)
        self._leave_what_the_task_ignores()
        for _ in range(100):
            text = self._render(source)
            try:
                load_text(text, source="the recipe", base=Path("/"))
            except RecipeError as error:
                if not self._leave_what_is_refused(error):
                    raise
            else:
                return text
        raise AssertionError  # each round takes a field away

    def _leave_what_the_task_ignores(self) -> None:
        for section, names in tasks.not_read(self.task).items():
            for name in [name for name in self.fields.get(section, {}) if name in names]:
                if (value := self.fields[section].pop(name)) is not None:
                    self.drop(f"{section}.{name}", f"{self.task} does not read it", value)

    def _leave_what_is_refused(self, error: RecipeError) -> bool:
        """Take out the field that an error of the loader names."""
        for section, name in _FIELD.findall(f"{error.message} {error.hint}"):
            place = self.environment if section == "environment" else self.fields.get(section, {})
            if name in place:
                value = place.pop(name)
                if name in {"eval_steps", "save_steps"}:
                    place.pop(name.replace("steps", "strategy"), None)  # which has no number of steps now
                expected = f"; {error.cause}" if error.cause else ""
                self.drop(f"{section}.{name}", f"a recipe has no such value{expected}", value)
                return True
        return False

    def _render(self, source: str) -> str:
        lines = [f"# Made from {one_line(source)}, {self.kind}, by `cachekit zoo new`.", "#"]
        folder = textwrap.TextWrapper(
            width=116, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
        )
        todo = [note for note in self.notes if note.todo]
        left = [note for note in self.notes if not note.todo]
        for title, notes in (("To do before the recipe can be used:", todo), ("Not carried over:", left)):
            if notes:
                lines.append(f"# {title}")
                lines += [folder.fill(words) for words in grouped(notes)]
                lines.append("#")
        lines[-1:] = [""]
        lines += [_yaml({"name": self.name, "task": self.task})]
        for section, names in SECTIONS.items():
            values = self.fields.get(section, {})
            if ordered := {name: values[name] for name in names if values.get(name) is not None}:
                lines += [_yaml({section: ordered})]
        if self.environment:
            lines += [_yaml({"environment": self.environment})]
        return "\n".join(lines).rstrip("\n") + "\n"


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Dumper(yaml.SafeDumper):
    """Lists on one line: labels, flags."""


_Dumper.add_representer(
    list, lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)
)


def refuse_placeholders(places: Iterable[tuple[str, Any]], where: str, hint: str) -> None:
    """Refuse placeholders among named values; `where` is what holds the values.

    Raises:
        RecipeError: The cause names each placeholder.
    """
    found = [f"{name} is {short(value)}" for name, value in places if has_placeholder(value)]
    if found:
        raise RecipeError(f"{where} has placeholders in the place of values", cause=", ".join(found), hint=hint)


def grouped(notes: Iterable[Note]) -> list[str]:
    """Notes for people: those with one reason together."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(note.why, []).append(note.what)
    return [f"{', '.join(whats)}: {why}" for why, whats in groups.items()]


def slug(words: str) -> str:
    """A recipe's name out of any words."""
    return re.sub(r"[^a-z0-9._-]+", "-", words.lower()).strip("-._")[:80].strip("-._") or "imported"
