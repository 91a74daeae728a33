"""Read a recipe: a file, a text or a value that is one already; overrides, synonyms, schema."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, structs

from cachekit import files
from cachekit.decode import from_builtins
from cachekit.disk import named
from cachekit.errors import RecipeError, UsageError
from cachekit.recipe import yaml_text, zoo
from cachekit.recipe.checks import check
from cachekit.recipe.field_names import Places, canonical, explained, normalise
from cachekit.recipe.schema import Recipe
from cachekit.text import cut
from cachekit.writers import check_writers, planted_on

LARGEST = 1 << 20  # bytes; a recipe is a page of text
LONGEST = 60  # characters of a value that an error or a note quotes
# A place that waits for a value: `$MODEL`, `{model_name}`, `<your-model>`, `path/to/data`. It is never taken for one.
# A tokenizer's words (`<s>`, `<pad>`) are values, and so are JSON (`{"a": 1}`) and a lone `$`.
_PLACEHOLDER = re.compile(
    r"\$[\w{(@*#?]|`[^`]*`|\{\{.*?\}\}|\{[\w .-]*\}|\.\.\.$|…"
    r"|<(?!/?(?:s|pad|unk|mask|bos|eos|cls|sep|extra_id_\d+)>)[A-Za-z/][^<>|]*>"
    # %MODEL%, @model@, __MODEL__; a language's `__en__` is a value.
    r"|(?<!\w)(?:%[A-Za-z_]\w*%|@[A-Za-z_]\w*@|__[A-Z][A-Z0-9_]*__)(?!\w)"
    # %(model)s; y*.csv, which a shell would turn into names.
    r"|%\(\w+\)[a-z]|[*?][^/*?]*\.(?:csv|tsv|json|jsonl|txt|parquet)$"
    # [model]; a tokenizer's [MASK] is a value.
    r"|^\[(?i:(?:your|my)[ _-][\w -]+|(?:[\w-]*[_-])?(?:model|dataset|data|task|name|path|dir|file|id))\]$"
    # YOUR_MODEL, your-model-here, path/to/data, MODEL_PLACEHOLDER
    r"|(?:^|/)(?i:your[_-]\w|path[/_-]to[/_-])|PLACEHOLDER|(?:^|[/_-])(?i:placeholder)$"
    # ???, which Hydra and OmegaConf refuse, too; %s; TODO, CHANGEME, REPLACE_ME, MODEL_NAME, and nothing else.
    r"|^\?{2,}$|^%[sd]$|^(?:TODO|TBD|FIXME|XXX+|CHANGE_?ME|REPLACE_?ME|(?:MODEL|DATASET|TASK|DATA|FILE|OUTPUT)_(?:NAME|PATH|DIR|ID|FILE))$"
)

SCRIPTS = {".ipynb": "notebook", ".py": "script", ".sh": "script"}  # by the ends of their names


def load(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, with overrides as `--set` gives them.

    Raises:
        RecipeError: The file is missing or unreadable, no YAML, or does not fit the schema; the message names file,
            line and field.
        UsageError: An override is malformed.
    """
    text = read_text(path)
    if path.suffix in SCRIPTS:
        raise RecipeError(
            f"{path} is a {SCRIPTS[path.suffix]}, not a recipe",
            hint="run it without a recipe: `cachekit run -- COMMAND`; or make a recipe of its command line: "
            "`cachekit zoo new -- COMMAND`",
        )
    return load_text(text, overrides, source=str(path), base=path.absolute().parent)


def read_text(path: Path, most: int = LARGEST, what: str = "recipe") -> str:
    """The text of a file that somebody names: of that many bytes at the most, and of that kind in errors.

    Raises:
        RecipeError: It is missing, unreadable, a folder, a pipe or a device, too large, or not UTF-8.
        UsageError: Another user of the machine can have written it: what it sets in the environment runs.
    """
    try:
        if path.is_dir():
            raise RecipeError(f"{path} is a folder, not a {what}", hint=_beside(path) or "name the YAML file")
        with files.opened(path) as source:
            if not zoo.comes_along(path):
                check_writers(path, source.fileno(), f"a {what} says what runs here")
            raw = source.read(most + 1)
    except FileNotFoundError as error:
        listed = "`cachekit zoo` lists the recipes that come with cachekit"
        hint = listed if what == "recipe" else f"correct the path of the {what}"
        raise RecipeError(f"{path} does not exist", hint=_beside(path) or hint) from error
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{cut(str(path), 200)} cannot be read",
            cause=getattr(error, "strerror", "") or str(error),
            hint=f"name a {what} that you may read",
        ) from error
    if len(raw) > most:
        raise RecipeError(
            f"{path} is not a {what}", cause=f"the file has more than {most:,} bytes", hint=f"name the {what}"
        )
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise RecipeError(f"{path}, line {line}: not UTF-8", hint="save the file as UTF-8") from error


def _beside(path: Path) -> str:
    """A hint at the YAML file in the same folder that was probably meant; empty where there is none."""
    known = {one.stem: one for one in path.parent.glob("*.y*ml") if one.is_file()}
    near = get_close_matches(path.stem, known, 1)
    return f"did you mean {known[near[0]]}?" if near else ""


def load_text(text: str, overrides: Iterable[str] = (), *, source: str = "recipe", base: Path | None = None) -> Recipe:
    """Read a recipe from text; see `load`. Relative paths in it start at `base`, those of overrides at the cwd."""
    document, lines = yaml_text.parse(text, source)
    if not isinstance(document, dict):
        raise RecipeError(
            f"{source}: a recipe is a mapping of fields",
            cause=f"this is {_kind(document)}",
            hint="compare with a recipe of `cachekit zoo`",
        )
    document = normalise(document, lines, source)
    _anchor(document, base or Path.cwd(), source)
    overridden = {_apply(document, override) for override in overrides}
    document = normalise(document, {}, "--set")
    places = Places(source, {canonical(path): line for path, line in lines.items()}, overridden)
    _refuse_placeholders(document, base or Path.cwd(), places)
    _anchor(document, Path.cwd(), "--set")
    try:
        recipe = from_builtins(document, Recipe)
    except msgspec.ValidationError as error:
        raise explained(str(error), document, places) from error
    check(recipe, document, places)
    return recipe


def has_placeholder(value: Any) -> bool:
    """Whether a value, or something in it, waits for a value."""
    if isinstance(value, dict):
        return any(map(has_placeholder, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_placeholder, value))
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def short(value: Any) -> str:
    """A value as words, cut where it is long."""
    return cut(spelled(value), LONGEST)


def spelled(value: Any) -> str:
    """A value as words; those of a list with spaces between them."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


_LOCAL = {
    "model": ("path", "tokenizer"),
    "data": ("path", "train_file", "validation_file", "test_file"),
}


# Fields that name something outside of the recipe: a placeholder there would be asked for by its name.
_NAMED = {
    "model": ("id", "revision", "path", "package", "tokenizer"),
    "data": ("id", "config", "revision", "path", "train_file", "validation_file", "test_file"),
}


def _refuse_placeholders(document: dict[str, Any], base: Path, places: Places) -> None:
    """Refuse a field that still waits for its value, unless a file or folder has that name."""
    for section, names in _NAMED.items():
        fields = document.get(section)
        for name in names:
            value = fields.get(name) if isinstance(fields, dict) else None
            text = value.removeprefix(f"{base}/") if isinstance(value, str) else ""
            if has_placeholder(text) and not os.path.exists(base / text):  # noqa: PTH110 - of any length
                raise RecipeError(
                    f"{places.where((section, name))}: {section}.{name} is the placeholder {short(text)}",
                    hint=f"put a value in its place, or --set {section}.{name}=...",
                )


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
                place = named(text)
            except UsageError as error:
                said = f"{source}: {section}.{name} {text!r} is not a path"
                raise UsageError(said, cause=error.cause, hint=error.hint) from error
            # A tokenizer may be a Hub id as well as a folder: only what is there, or says so, is a folder.
            if name == "tokenizer" and not (text.startswith((".", "~")) or _chosen(base / place)):
                continue
            fields[name] = str(base / place)


def _chosen(folder: Path) -> bool:
    """Whether a folder is there, and is none that another user made where everybody can."""
    return folder.is_dir() and planted_on(folder, file=False) is None


# Names below these are somebody else's and may have dots in them: Inductor's cpp.threads.
_FLAT = (("compiler", "options"), ("environment",))


def said_by(override: str) -> tuple[tuple[str, ...], Any]:
    """The field that an override sets, synonyms resolved, and its value.

    Raises:
        UsageError: It is malformed.
        RecipeError: Its value is not YAML.
    """
    name, equals, text = override.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise UsageError(
            f"--set {override}: not of the form section.field=value",
            hint="for example --set training.max_seq_length=128",
        )
    path = tuple(map(str, canonical(path)))
    for flat in _FLAT:
        if path[: len(flat)] == flat and len(path) > len(flat):
            path = (*flat, yaml_text.dotted(path[len(flat) :]))
    return path, yaml_text.scalar(text, f"--set {yaml_text.dotted(path)}")


def _apply(document: dict[str, Any], override: str) -> tuple[str, ...]:
    path, value = said_by(override)
    place = document
    for part in path[:-1]:
        inner = place.get(part)
        if inner is None:
            inner = place[part] = {}
        if not isinstance(inner, dict):
            raise UsageError(f"--set {override}: {part} has no fields", hint="`cachekit zoo schema` lists all fields")
        place = inner
    place[path[-1]] = value
    return path


def _kind(value: Any) -> str:
    return {type(None): "empty", str: "a text", list: "a list"}.get(type(value), f"a {type(value).__name__}")


def override_words(overrides: Mapping[str, Any] | Iterable[str]) -> list[str]:
    """Overrides as `--set` takes them: `{"training.max_seq_length": 128}` or `["training.max_seq_length=128"]`.

    Raises:
        TypeError: A value has no JSON form; or all of it is one text.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides must be a mapping or a list, not the text {overrides!r}")
    if isinstance(overrides, Mapping):
        return [f"{name}={_json(value)}" for name, value in overrides.items()]
    return list(overrides)


def edited(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """A recipe with overrides, checked as one that is read from a file is.

    Raises:
        RecipeError: It does not fit the schema any more.
        UsageError: An override is malformed.
    """
    return load_text(_json(_said(recipe)), overrides, source=recipe.name)


def _said(part: Struct) -> dict[str, Any]:
    """The fields that differ from their defaults: what a task does not read may stand in no recipe of it."""
    found: dict[str, Any] = {}
    for field in structs.fields(part):
        value = getattr(part, field.name)
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if value != default:
            found[field.name] = _said(value) if isinstance(value, Struct) else msgspec.to_builtins(value)
    return found


def _json(value: Any) -> str:
    """JSON, which is YAML too but for its pairs of surrogates."""
    return json.dumps(msgspec.to_builtins(value, enc_hook=_path), ensure_ascii=False)


def _path(value: Any) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{value!r:.80} has no JSON form")
