"""This user's account on the Hub: the token that this host has for it, and the names that the token stands for.

A repo or a bucket belongs to this user alone where it is private, and of the token's user or of an organisation of this
user. The Hub names its owner, and says whether it is private; whose token it is costs one request a day.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit.disk import check_ends, hub_home, in_settings
from cachekit.errors import RemoteError, UsageError
from cachekit.remotes.notes import Notes
from cachekit.text import DAY

if TYPE_CHECKING:
    from cachekit.health import Finding

_TOKEN = re.compile(r"(hf|api_org|hf_oauth|hf_jwt)_[A-Za-z0-9_.-]{20,}")
_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


class _Known(Struct, frozen=True):
    """Names that a token stood for, and when the Hub said so, in seconds since the epoch."""

    token: str = ""  # its digest: no other token's note is taken for it, whatever that is called
    names: tuple[str, ...] = ()
    asked: float = 0.0


def is_own(owner: str, memory: Path | None, endpoint: str, token: str, ask: Callable[[], object] | None) -> bool:
    """Whether a namespace is this user's, or an organisation's of this user.

    What the Hub says counts for a day. Where it cannot be asked, what was found true before still holds, however long
    ago that was.

    Args:
        owner: The namespace.
        memory: A folder of the store for what is remembered between runs; None remembers nothing.
        endpoint: Of the Hub.
        token: The user's token; only its digest is written down.
        ask: Asks the Hub for its answer to `whoami`. With None, what it said last counts, and a token of which it was
            never asked may be anybody's.

    Raises:
        RemoteError, AuthError: The Hub cannot be asked, and nothing is known.
    """
    digest = hashlib.sha256(f"{endpoint}\0{token}".encode("utf-8", "surrogatepass")).hexdigest()
    notes, note = Notes(memory) if memory else None, f"accounts-{digest[:32]}.json"
    known = notes.read(note, _Known) if notes else None
    if known is None or known.token != digest:
        known = _Known()
    if ask is None:
        return owner in known.names or not known.token
    if owner in known.names and 0 <= time.time() - known.asked < DAY:
        return True
    try:
        names = names_in(ask())
    except RemoteError:
        if owner in known.names:
            return True
        raise
    if notes:  # where the store cannot be written, the Hub is asked again
        notes.write(note, _Known(digest, tuple(sorted(names)), time.time()))
    return owner in names


def names_in(answer: object) -> set[str]:
    """The names in an answer to `whoami`: `{name, orgs: [{name, …}]}`."""
    document = answer if isinstance(answer, dict) else {}
    orgs = document.get("orgs")
    named = [document, *(orgs if isinstance(orgs, list) else [])]
    return {one["name"] for one in named if isinstance(one, dict) and isinstance(one.get("name"), str)}


def login(place: str, *, writable: bool) -> Finding:
    """Whether there is a token, has the right form, and only this user can read it. The token is not shown.

    Args:
        place: Of the repo or bucket.
        writable: It is to be written as well.
    """
    from cachekit.health import Finding

    variable = next((name for name in _VARIABLES if os.environ.get(name)), "")
    path = _token_file()
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


def check_token_file() -> None:
    """See that the client, which reads the token wherever it is, can come to an end of it.

    Raises:
        UsageError: It would wait for ever.
    """
    if any(os.environ.get(name) for name in _VARIABLES):
        return
    try:
        path = _token_file()
    except UsageError:  # who has no home has no such file
        return
    check_ends(path, "HF_TOKEN_PATH")


def _token_file() -> Path:
    """Where `hf auth login` keeps it [huggingface_hub: HF_TOKEN_PATH]."""
    said = os.environ.get("HF_TOKEN_PATH")
    return in_settings(said) if said else hub_home() / "token"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
