"""The token that this host has for the Hub, as `cachekit doctor` sees it."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachekit.health import Finding

_TOKEN = re.compile(r"(hf|api_org|hf_oauth|hf_jwt)_[A-Za-z0-9_.-]{20,}")
_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def login(place: str, *, writable: bool) -> Finding:
    """Whether there is a token, has the right form, and only this user can read it. The token is not shown.

    Args:
        place: Of the repo or bucket.
        writable: It is to be written as well.
    """
    from cachekit.health import Finding

    variable = next((name for name in _VARIABLES if os.environ.get(name)), "")
    path = _path()
    text, where = (os.environ[variable], variable) if variable else (_read(path), str(path))
    if not text.strip():
        need = "cannot be written" if writable else "cannot be read unless it is public"
        return Finding("problem", f"no token: {place} {need}", run="hf auth login")
    if not _TOKEN.fullmatch(text.strip()):
        run = "hf auth login" if not variable else f"unset {variable} && hf auth login"
        said = f"{where} does not hold a token: a token begins with hf_ and has no quotes or spaces"
        return Finding("problem", said, run=run)
    if not variable and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("problem", f"others can read the token in {path}", run=f"chmod 600 {shlex.quote(str(path))}")
    return Finding("ok", f"from {where}")


def _path() -> Path:
    """Where `hf auth login` keeps it [huggingface_hub: HF_TOKEN_PATH, HF_HOME]."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return Path(os.environ.get("HF_TOKEN_PATH") or home / "token").expanduser()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
