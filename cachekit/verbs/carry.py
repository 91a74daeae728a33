"""What a command needs on a machine that sees none of this one's files: its recipe, and the settings that hold here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit import config_files, redact
from cachekit.config import Config
from cachekit.errors import SecretError, UsageError
from cachekit.executors.port import Places
from cachekit.recipe import Recipe, zoo
from cachekit.recipe.variant import MatrixEntry, Variant
from cachekit.remotes.address import Link, links_of, make, needs_network
from cachekit.store.layout import LOCAL

SETTINGS = "cachekit.toml"
# Settings that mean the same on any machine.
_ANYWHERE = ("compiler", "wait_seconds", "lease_seconds", "push_seconds", "patience_seconds", "reuse_bytes")
_LOCAL = {"data": ("path", "train_file", "validation_file", "test_file"), "model": ("path",)}


def carried(
    config: Config,
    entries: Sequence[MatrixEntry],
    places: Places,
    options: Mapping[str, Any],
    *,
    tiny: bool,
    writes: bool,
) -> tuple[list[MatrixEntry], dict[str, str]]:
    """Entries as the machine is to be told of them, and the files that their commands read there, by name.

    Args:
        config: The settings here.
        entries: What is to be warmed or trained.
        places: Of the engine.
        options: Of the fleet: `places`, where the machine sees remotes that it cannot reach, by their names here;
            `hub`, False where it cannot reach the Hub.
        tiny: Each recipe in small.
        writes: What the command compiles is to be found from here.

    Raises:
        UsageError: The machine could not use a remote, or could not read what a recipe names.
        SecretError: A file holds a secret: everybody who may read the engine's inputs would see it.
    """
    texts = {SETTINGS: _settings(config, options.get("places", {}), writes=writes)}
    told = []
    for number, entry in enumerate(entries):
        recipe = Variant(entry.recipe, entry.overrides, tiny).load()
        _check(recipe, entry.name, places)
        if not options.get("hub", True):
            _check_hub(recipe, entry.name)
        path = zoo.recipe_path(entry.recipe)
        if zoo.comes_along(path):
            told.append(MatrixEntry(entry.name, path.stem, entry.overrides))
            continue
        name = f"{number}-{path.name}"
        texts[name] = path.read_text(encoding="utf-8")
        told.append(MatrixEntry(entry.name, name, entry.overrides))
    if holding := next((name for name, text in texts.items() if redact.holds(text)), ""):
        raise SecretError(
            f"{holding} would carry a secret to an engine, which shows its inputs to others",
            hint="put it into a file or a variable of the image",
        )
    return told, texts


def _settings(config: Config, seen: Mapping[str, str], *, writes: bool) -> str:
    """A project's settings with the remotes and the signers that hold here; a link may have its own place there."""
    cache, tables = [f"{LOCAL}:rw"], {}
    for number, link in enumerate(links_of(config)):
        if not needs_network(link) and link.name not in seen:
            raise UsageError(
                f"the machines do not see the folder {link.address}",
                hint="--cache local:rw,s3://BUCKET/PREFIX:rw, or another remote that is reached over a network",
            )
        place = seen.get(link.name, "")
        if writes and link.writable:
            _check_signs(link)
        policy = ("r" if link.readable else "") + ("w" if link.writable and not place else "")
        if not policy:
            continue
        name = link.name if link.name != link.address else f"remote-{number}"
        cache.append(f"{name}:{policy}")
        tables[name] = {"url": place or link.address, **({} if place else link.options)}
        # Of a folder that only root can write to nothing is asked by itself: what holds of the bucket holds there.
        if trust := link.trust or ("signed" if place else ""):
            tables[name]["trust"] = trust
    path = Path(SETTINGS)
    values = {one.name: f"{one.value:g}" if isinstance(one.value, float) else str(one.value) for one in config.settings
              if one.name in _ANYWHERE and one.origin != "default"}  # fmt: skip
    text = config_files.edited("", path, (), {**values, "cache": cache}, "the settings")
    for name, table in tables.items():
        text = config_files.edited(text, path, ("remotes", name), table, "a remote")
    shown = config.trust.shown
    if salt := shown.get("salt"):
        text = config_files.edited(text, path, ("trust",), {"salt": salt}, "the salt")
    for name, signer in shown.get("signers", {}).items():
        text = config_files.edited(text, path, ("trust", "signers", name), signer, "a signer")
    if revoked := shown.get("revoked"):
        text = config_files.edited(text, path, ("trust", "revoked"), revoked, "what is revoked")
    return text


def _check_signs(link: Link) -> None:
    """See that records count that the machine makes, which has no key to sign them with."""
    if link.trust == "signed" or not (link.trust or not make(link).untold):
        raise UsageError(
            f"what a machine compiles is not signed, so it would not be used from {link.name}",
            cause=f"its trust is {link.trust!r}" if link.trust else "it is unknown who can write there",
            hint=f'set trust = "owner" in [remotes.{link.name}], if only your own people can write there',
        )


def _check_hub(recipe: Recipe, name: str) -> None:
    """See that a recipe needs nothing of the Hub."""
    model, data = recipe.model, recipe.data
    if data.id or not (model.path or model.package or model.from_config):
        what = f"the data set {data.id}" if data.id else f"the model {model.id}"
        raise UsageError(
            f"{name}: the machines have no network, and would download {what} from the Hub",
            hint='put it into the image, and set HF_HUB_OFFLINE = "1" under [sagemaker.environment]; or into a channel',
        )


def _check(recipe: Recipe, name: str, places: Places) -> None:
    """See that the machine can read what a recipe names."""
    for part, fields in _LOCAL.items():
        for field in fields:
            said = getattr(getattr(recipe, part), field)
            if said and not said.startswith(f"{places.inputs}/") and not zoo.beside_recipes(said):
                raise UsageError(
                    f"{name}: the machines do not see {said}",
                    cause=f"{part}.{field} is a path of this machine",
                    hint=f"put it into S3, name it under [sagemaker.inputs], and write {places.inputs}/NAME",
                )
