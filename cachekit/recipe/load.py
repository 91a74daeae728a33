"""Read a recipe: text, overrides, synonyms, schema; and say where what is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from cachekit.errors import RecipeError, UsageError
from cachekit.recipe import tasks, yamltext
from cachekit.recipe.schema import Recipe
from cachekit.recipe.synonyms import SYNONYMS, normalise

LARGEST = 1 << 20  # bytes; a recipe is a page of text


def load(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a file.

    Args:
        path: A YAML file.
        overrides: `section.field=value` each, as `--set` gives them.

    Raises:
        RecipeError: The file is missing or unreadable, no YAML, or does not fit the schema; the message names file,
            line and field.
        UsageError: An override is malformed.
    """
    try:
        if path.is_dir():
            raise RecipeError(f"{path} is a folder, not a recipe", hint="name the YAML file")
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise RecipeError(f"{path} does not exist", hint="`cachekit zoo` lists the recipes that come along") from error
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{str(path)[:200]} cannot be read", cause=getattr(error, "strerror", "") or str(error)
        ) from error
    if len(raw) > LARGEST:
        raise RecipeError(f"{path} is no recipe", cause=f"{len(raw):,} bytes")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise RecipeError(f"{path}, line {line}: not UTF-8", hint="save the file as UTF-8") from error
    return load_text(text, overrides, source=str(path), base=path.absolute().parent)


def load_text(text: str, overrides: Iterable[str] = (), *, source: str = "recipe", base: Path | None = None) -> Recipe:
    """Read a recipe from text; see `load`. Relative paths in it start at `base`, those of overrides at the cwd."""
    document, lines = yamltext.parse(text, source)
    if not isinstance(document, dict):
        raise RecipeError(
            f"{source}: a recipe is a mapping of fields",
            cause=f"this is {_kind(document)}",
            hint="compare with a recipe of `cachekit zoo`",
        )
    document = normalise(document, lines.get, source)
    _anchor(document, base or Path.cwd(), source)
    overridden = set()
    for override in overrides:
        overridden.add(_apply(document, override))
    document = normalise(document, lambda _: None, "--set")
    _anchor(document, Path.cwd(), "--set")
    try:
        recipe = msgspec.convert(document, Recipe)
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, lines, overridden, source) from error
    _check(recipe, lines, overridden, source)
    _check_task(recipe, document, lines, overridden, source)
    return recipe


_LOCAL = {
    "model": ("path", "tokenizer"),
    "data": ("path", "train_file", "validation_file", "test_file"),
}


def _anchor(document: dict[str, Any], base: Path, source: str) -> None:
    """Make relative paths absolute, so that a recipe means the same from every working directory."""
    for section, names in _LOCAL.items():
        fields = document.get(section)
        if not isinstance(fields, dict):
            continue
        for name in names:
            text = fields.get(name)
            if not isinstance(text, str) or not text or Path(text).is_absolute():
                continue
            try:
                place = Path(text).expanduser()
            except RuntimeError as error:
                raise UsageError(f"{source}: {section}.{name} {text!r} is no path", cause=str(error)) from error
            # A tokenizer may be a Hub id as well as a folder: only what is there, or says so, is a folder.
            if name == "tokenizer" and not (text.startswith((".", "~")) or (base / place).is_dir()):
                continue
            fields[name] = str(base / place)


def _apply(document: dict[str, Any], override: str) -> tuple[str, ...]:
    name, equals, text = override.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise UsageError(
            f"--set {override}: not of the form section.field=value",
            hint="for example --set training.max_seq_length=128",
        )
    path = _canonical_path(path)
    place = document
    for part in path[:-1]:
        inner = place.get(part)
        if inner is None:
            inner = place[part] = {}
        if not isinstance(inner, dict):
            raise UsageError(f"--set {override}: {part} has no fields", hint="`cachekit zoo schema` lists all fields")
        place = inner
    place[path[-1]] = yamltext.scalar(text, f"--set {_dotted(path)}")
    return path


def _canonical_path(path: tuple[str, ...]) -> tuple[str, ...]:
    top = SYNONYMS[""].get(path[0], path[0])
    if len(path) == 1:
        return (top,)
    # Names that somebody else gave may have dots in them: Inductor's cpp.threads.
    for flat in (("compiler", "options"), ("environment",)):
        if (top, *path[1:])[: len(flat)] == flat and len(path) > len(flat):
            return (*flat, ".".join(path[len(flat) :]))
    return (top, SYNONYMS.get(top, {}).get(path[1], path[1]), *path[2:])


def _kind(value: Any) -> str:
    return {type(None): "empty", str: "a text", list: "a list"}.get(type(value), f"a {type(value).__name__}")


_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `(?P<at>.*)`)?$", re.DOTALL)
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?(?P<at>.*)`)?$", re.DOTALL)


def _explained(
    message: str, document: dict[str, Any], lines: dict[Any, int], overridden: set[tuple[str, ...]], source: str
) -> RecipeError:
    """Turn msgspec's sentence into file, line, field, what was expected, and the nearest valid name."""
    if match := _UNKNOWN.match(message):
        parent = _path_of(match["at"])
        name = match["name"]
        path: tuple[str | int, ...] = (*parent, name)
        valid = _fields_at(parent)
        synonyms = SYNONYMS.get(_dotted(parent), {})
        near = get_close_matches(name, [*valid, *synonyms], n=1, cutoff=0.5)
        known = get_close_matches(name, valid, n=5, cutoff=0.0)
        meant = synonyms.get(near[0], near[0]) if near else ""
        dots = " ..." if len(valid) > len(known) else ""
        return RecipeError(
            f"{_where(path, lines, overridden, source)}: unknown field {_dotted(path)}",
            cause=f"fields of {_dotted(parent) or 'a recipe'} are {', '.join(known)}{dots}",
            hint=f"did you mean {_dotted((*parent, meant))}?" if meant else "`cachekit zoo schema` lists all fields",
        )
    match = _AT.match(message)
    assert match is not None  # the pattern matches any text
    path = _path_of(match["at"])
    what = match["what"]
    if missing := re.match(r"Object missing required field `(.*?)`", what):
        path = (*path, missing[1])
        return RecipeError(
            f"{_where(path[:-1], lines, overridden, source)}: {_dotted(path)} is missing",
            hint=f"add {_dotted(path)}",
        )
    value: Any = document
    for part in path:
        value = value[part]
    if (match["at"] or "").endswith("[...]") and isinstance(value, dict):
        # msgspec does not say which item of a mapping is wrong.
        hint_of_all = get_type_hints(_struct_at(path[:-1])).get(str(path[-1]))
        for name, item in value.items():
            try:
                msgspec.convert({name: item}, hint_of_all)
            except msgspec.ValidationError:
                path, value = (*path, name), item
                break
    choices = _choices(path)
    near = get_close_matches(str(value), choices, n=1)
    expected = re.sub(r", got `.*?`$", "", what[:1].lower() + what[1:])
    hint = (
        f"did you mean {near[0]}?"
        if near
        else (f"one of {', '.join(choices)}" if choices else f"correct {_dotted(path)}")
    )
    return RecipeError(
        f"{_where(path, lines, overridden, source)}: {_dotted(path)} is {value!r}", cause=expected, hint=hint
    )


def _path_of(at: str | None) -> tuple[str | int, ...]:
    """`$.training.x[0]` as `("training", "x", 0)`; msgspec writes `[...]` for a mapping's or list's unnamed item."""
    if not at:
        return ()
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", at)
    return tuple(int(index) if index else name for name, index in parts)


def _where(path: tuple[str | int, ...], lines: dict[Any, int], overridden: set[tuple[str, ...]], source: str) -> str:
    for end in range(len(path), 0, -1):
        if path[:end] in overridden:
            return f"--set {_dotted(path[:end])}"
        for given in _spellings(path[:end]):
            if given in lines:
                return f"{source}, line {lines[given]}"
        below = [other for other in overridden if other[:end] == path[:end]]
        if below:
            return f"--set {_dotted(below[0])}"
    return source


def _spellings(path: tuple[str | int, ...]) -> Iterable[tuple[str | int, ...]]:
    """The path itself, and the ways it may have been written with synonyms."""
    yield path
    top = str(path[0])
    tops = [top, *(given for given, name in SYNONYMS[""].items() if name == top)]
    for first in tops:
        yield (first, *path[1:])
        if len(path) > 1:
            for given, name in SYNONYMS.get(top, {}).items():
                if name == path[1]:
                    yield (first, given, *path[2:])


def _dotted(path: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in path)


def _struct_at(path: Iterable[str | int]) -> type[msgspec.Struct] | None:
    current: Any = Recipe
    for part in path:
        if isinstance(part, int):
            continue
        hint = get_type_hints(current, include_extras=True).get(part)
        args = [hint, *getattr(hint, "__args__", ())]
        current = next((a for a in args if isinstance(a, type) and issubclass(a, msgspec.Struct)), None)
        if current is None:
            return None
    return current  # type: ignore[no-any-return]


def _fields_at(path: Iterable[str | int]) -> list[str]:
    struct = _struct_at(path)
    return list(struct.__struct_fields__) if struct else []


def _choices(path: tuple[str | int, ...]) -> list[str]:
    struct = _struct_at(path[:-1]) if path else None
    if struct is None or not isinstance(path[-1], str):
        return []
    found: list[str] = []
    pending = [get_type_hints(struct).get(path[-1])]
    while pending:
        hint = pending.pop()
        for arg in getattr(hint, "__args__", ()):
            if isinstance(arg, str):
                found.append(arg)
            elif arg is bool:
                found += ["true", "false"]
            else:
                pending.append(arg)
    return found if any(word not in {"true", "false"} for word in found) else []


def _check(recipe: Recipe, lines: dict[Any, int], overridden: set[tuple[str, ...]], source: str) -> None:
    """What no single field can say."""

    def fail(path: tuple[str, ...], message: str, hint: str) -> None:
        raise RecipeError(f"{_where(path, lines, overridden, source)}: {message}", hint=hint)

    model, data, training = recipe.model, recipe.data, recipe.training
    if not (model.id or model.path or model.package):
        fail(("model", "id"), "model names nothing", "give model.id, model.path or model.package")
    if model.path and model.package:
        fail(("model", "package"), "model.path and model.package are both given", "keep one of them")
    places = [name for name in ("id", "path", "train_file") if getattr(data, name)]
    if len(places) > 1:
        names = " and ".join(f"data.{name}" for name in places)
        newest = next((name for name in places if ("data", name) in overridden), places[1])
        fail(("data", newest), f"{names} are both given", "keep one; `--set data.id=null` drops one")
    for name in ("validation_file", "test_file"):
        if getattr(data, name) and (data.id or data.path):
            # Its rows would be those of the Hub's split, or of the folder's file.
            place = "id" if data.id else "path"
            fail(
                ("data", name),
                f"data.{name} is given beside data.{place}",
                f"say data.train_file in place of data.{place}, or remove data.{name}",
            )
    if data.labels and data.num_labels and len(data.labels) != data.num_labels:
        fail(
            ("data", "num_labels"),
            f"data.num_labels is {data.num_labels}, but data.labels has {len(data.labels)} names",
            "remove data.num_labels",
        )
    columns = data.choices_columns or ()
    if data.num_choices and len(columns) > 1 and data.num_choices != len(columns):
        fail(
            ("data", "num_choices"),
            f"data.num_choices is {data.num_choices}, but data.choices_columns names {len(columns)}",
            "remove data.num_choices",
        )
    if len(set(columns)) != len(columns):
        fail(("data", "choices_columns"), "a column stands twice in data.choices_columns", "remove one of them")
    if data.labels and len(set(data.labels)) != len(data.labels):
        fail(("data", "labels"), "a label stands twice in data.labels", "remove one of them")
    for name, value in recipe.environment.items():
        if not name or "=" in name or not _passable(name):
            fail(("environment",), f"environment: {name!r} is no variable's name", "letters, digits and _")
        if not _passable(str(value)):
            fail(("environment", name), f"environment.{name} is {value!r}", "no process can be given such a value")
    stride = training.doc_stride if "doc_stride" in tasks.fields(recipe).training else None
    if stride is not None and stride >= training.max_seq_length:
        name = "max_seq_length" if ("training", "max_seq_length") in overridden else "doc_stride"
        fail(
            ("training", name),
            f"training.doc_stride {stride} is not smaller than what training.max_seq_length "
            f"{training.max_seq_length} leaves for the text",
            "windows over a text share doc_stride tokens; 384 and 128 are usual",
        )
    if training.eval_strategy == "steps" and training.eval_steps is None:
        fail(("training", "eval_strategy"), "training.eval_steps is missing", "say every how many steps to evaluate")


def _check_task(
    recipe: Recipe,
    document: dict[str, Any],
    lines: dict[Any, int],
    overridden: set[tuple[str, ...]],
    source: str,
) -> None:
    """Refuse what another task reads, and this one would ignore."""
    for section, names in tasks.not_read(recipe.task).items():
        for name, value in document.get(section, {}).items():
            if name in names and value is not None:
                readers = tasks.readers(section, name)
                raise RecipeError(
                    f"{_where((section, name), lines, overridden, source)}: {section}.{name} means nothing to "
                    f"{recipe.task}",
                    cause=f"it is read by {', '.join(readers)}",
                    hint=f"remove {section}.{name}, or choose another task",
                )


def _passable(text: str) -> bool:
    """Whether the operating system can hand this to a process: no NUL, no half of a character."""
    try:
        return "\0" not in text and bool(os.fsencode(text) or not text)
    except UnicodeEncodeError:
        return False
