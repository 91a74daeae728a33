"""This machine as cachekit sees it, for `env`."""

from __future__ import annotations

import platform
import sys
from typing import Any

from msgspec import structs

from cachekit import __version__
from cachekit.compilers import Compiler, registry
from cachekit.compilers.adapter import Place
from cachekit.config import Config
from cachekit.errors import CachekitError
from cachekit.recipe.ingredients import Fingerprint


def env(config: Config, compiler: Compiler) -> dict[str, Any]:
    """This machine as cachekit sees it: what goes into keys, and where things lie."""
    found: Fingerprint | None = None
    problem = ""
    try:
        found = compiler.fingerprint()
    except CachekitError as error:
        problem = "; ".join(filter(None, [error.message, error.hint]))
    return {
        "cachekit": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "platform": platform.platform(),
        "home": str(config.home),
        "live_dir": str(config.live_dir),
        "compiler": compiler.name,
        "available": found is not None,
        "problem": problem,
        "directory": found.directory if found else "",
        "toolchain": found.toolchain if found else {},
        "target": found.target if found else {},
        "bf16": found.bf16 if found else None,
        "other_versions": found.soft if found else {},
        **{name: _place(place) for adapter in registry.every() for name, place in adapter.places().items()},
    }


def _place(place: Place) -> dict[str, Any]:
    """Where a compiler looks for its own cache with this environment, and what is wrong with the place."""
    found: dict[str, Any] = structs.asdict(place)
    return found | {"path": str(place.path) if place.path else None, "warnings": list(place.warnings)}
