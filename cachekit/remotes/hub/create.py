"""Make a cache repo, or look whether it is there and for whom."""

from __future__ import annotations

import re
from typing import Any

from cachekit import redact
from cachekit.errors import AuthError, MissingRemoteError, UsageError
from cachekit.remotes.hub.account import names_in
from cachekit.remotes.hub.client import Client
from cachekit.remotes.port import Limits, Repo

KINDS = ("model", "dataset")
_HINT = "name it as team/cache"
_HINT_ADDRESS = (
    f"{_HINT}; a place that is not a repo is named in cachekit.toml by hand: [remotes.NAME] with url, and trust = "
    '"owner" for a bucket that only your own people can write to'
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def place_of(repo: str, kind: str) -> str:
    """What people write for a repo: `hf://team/cache`, `hf://datasets/team/cache`.

    Raises:
        UsageError: No repo can have this name or kind.
    """
    if kind not in KINDS:
        raise UsageError(f"a cache repo cannot be of kind {kind!r}", hint=f"one of {', '.join(KINDS)}")
    if not _NAME.fullmatch(repo) or ".." in repo or "--" in repo:
        hint = _HINT_ADDRESS if "://" in repo else _HINT
        raise UsageError(f"{redact.address(repo)!r} is not a valid repo name", hint=hint)
    return f"hf://{_below(kind)}{repo}"


def _below(kind: str) -> str:
    return "datasets/" if kind == "dataset" else ""


def look(
    repo: str,
    *,
    kind: str = "model",
    endpoint: str | None = None,
    token: str | None = None,
    limits: Limits | None = None,
) -> Repo | None:
    """The repo; None where it is not there, which the Hub tells for the token's own repos only.

    Raises:
        RemoteError, AuthError: As the port has them.
    """
    client = Client(place_of(repo, kind), endpoint, token, limits or Limits())
    try:
        info = client.ask(lambda api: api.repo_info(repo, repo_type=kind, expand=["private"]))
    except MissingRemoteError:
        return None
    page = f"{redact.address(client.endpoint)}/{_below(kind)}{repo}"
    return Repo(repo, kind, page, private=bool(info.private), **_whose(repo, client))


def _whose(repo: str, client: Client) -> dict[str, bool]:
    """Whether the owner is the token's user or an organisation of this user; without a token nobody is."""
    owner = repo.partition("/")[0]
    try:
        answer = client.account()
    except AuthError:
        return {"owned": False}
    return {"owned": owner in names_in(answer), "team": owner != answer.get("name")}


def create(
    repo: str,
    *,
    kind: str = "model",
    private: bool = True,
    endpoint: str | None = None,
    token: str | None = None,
    limits: Limits | None = None,
) -> Repo:
    """Make the repo, if it is not there; one that is there stays as it is, also if it is public.

    Raises:
        UsageError: The name or the kind cannot be.
        RemoteError, AuthError: As the port has them.
    """
    client = Client(place_of(repo, kind), endpoint, token, limits or Limits())

    team = _whose(repo, client).get("team", False)

    def make(api: Any) -> Repo | None:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            url = api.create_repo(repo, repo_type=kind, private=private)
        except HfHubHTTPError as error:
            if error.response.status_code == 409:  # noqa: PLR2004
                return None
            raise
        return Repo(url.repo_id, kind, str(url), private=private, new=True, team=team)

    made = client.ask(make)
    if made:
        return made
    known = look(repo, kind=kind, endpoint=endpoint, token=token, limits=limits)
    if not known:
        raise AuthError(f"{client.place} exists, but this token may not see it", hint="ask its owners for access")
    return known
