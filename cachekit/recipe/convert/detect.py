"""Find out which dialect a file is in, and have it read."""

from __future__ import annotations

from pathlib import Path

from cachekit.errors import RecipeError
from cachekit.recipe import yamltext
from cachekit.recipe.convert import examples, manifests, metaflow, nxdt
from cachekit.recipe.convert.draft import Draft

LARGEST = 4 << 20  # bytes; notebooks carry pictures
KINDS = (
    "a call of Transformers' examples (run_glue.py ... in a shell script, README, notebook or container's YAML), "
    "a YAML of NeuronX Distributed Training, a YAML of metaflow-trainium"
)


def convert(path: Path) -> Draft:
    """Make a draft of a recipe of what a file says.

    Args:
        path: A shell script, a text or a YAML file.

    Raises:
        RecipeError: It cannot be read, or is in none of the dialects.
    """
    text = _read(path)
    looks_like_yaml = path.suffix.lower() in {".yaml", ".yml"}
    for script in (manifests.shell_text(text), text) if looks_like_yaml else (text,):
        if examples.knows(script):
            return examples.convert(script, path.stem, path.parent)
    problem = ""
    try:
        document, _ = yamltext.parse(text, path.name)
    except RecipeError as error:
        document, problem = None, error.message
    if nxdt.knows(document):
        return nxdt.convert(document, path.stem)
    if metaflow.knows(document):
        return metaflow.convert(document, path.stem)
    if isinstance(document, dict) and {"model", "task"} <= set(document):
        raise RecipeError(f"{path} is a recipe already", hint=f"cachekit plan {path}")
    raise RecipeError(
        f"{path} is of no kind that can be turned into a recipe",
        cause=problem if looks_like_yaml and problem else f"known are {KINDS}",
        hint="a script of your own runs without a recipe: cachekit run -- COMMAND",
    )


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise RecipeError(f"{path} is a folder", hint="name a file in it")
        if path.stat().st_size > LARGEST:
            raise RecipeError(f"{path} is of no kind that can be turned into a recipe", cause="it is too large")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is no text", cause="it is not UTF-8", hint="save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or str(error)
        raise RecipeError(f"{str(path)[:200]} cannot be read", cause=reason, hint="check the path") from error
