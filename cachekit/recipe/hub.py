"""The Hub as recipes need it: a model's `config.json`, and what to say of what is gated.

Of models and data sets whose owners decide who may load them the Hub answers 401 without a token and 403 with one that
is not on the list, both with `X-Error-Code: GatedRepo`, of which its client makes a GatedRepoError [huggingface_hub:
errors, 0.36 to 2.4]. Transformers raises an OSError from it, datasets an error of its own that speaks of a gated
dataset [datasets: load.py].
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from cachekit.calls import Calls
from cachekit.disk import hub_home, in_settings
from cachekit.errors import AuthError, UnknownNameError, UsageError, chain_of
from cachekit.recipe import zoo
from cachekit.text import first_line

PATIENCE = 5.0  # seconds that the Hub gets to give a config.json: a page of text
# Not "a private or gated repo", which the client says of one that is not there.
_SAYS_SO = re.compile(r"(Cannot|trying to) access a? ?gated repo|is a gated dataset")
_NOT_LET_IN = 403
_KNOWN = re.compile(r"Visit the dataset page")  # datasets has no answer's number left; without a token it says another
_PLACES = {"model": "https://huggingface.co/", "data": "https://huggingface.co/datasets/"}


def gated(error: BaseException, field: str, name: str) -> AuthError | None:
    """What to tell of a failed download; None where it failed for another reason.

    Args:
        error: As the Hub's client, Transformers or datasets raised it.
        field: Of the recipe, that names what was to be loaded.
        name: Its Hub id.
    """
    chain = chain_of(error)
    if not any(type(one).__name__ == "GatedRepoError" or _SAYS_SO.search(str(one)) for one in chain):
        return None
    status = next((code for one in chain if (code := _status(one)) is not None), None)
    known = status == _NOT_LET_IN or any(_KNOWN.search(str(one)) for one in chain)
    page = _PLACES["data" if field.startswith("data.") else "model"] + name
    return AuthError(
        f"{field} {name} is gated: its owners decide who may load it",
        cause="they have not granted access to the owner of this token"
        if known
        else "the Hub was asked without a token that it knows",
        hint=f"ask for access at {page}"
        if known
        else f"ask for access at {page}, then `hf auth login` or set HF_TOKEN",
    )


def _status(error: BaseException) -> int | None:
    found = getattr(getattr(error, "response", None), "status_code", None)
    return found if isinstance(found, int) else None


def cached_config(model_id: str, revision: str | None) -> Path | None:
    """`config.json` in the Hub client's own cache, whose place and layout are documented (refs, snapshots)."""
    said = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    try:
        repo = (in_settings(said) if said else hub_home() / "hub") / f"models--{model_id.replace('/', '--')}"
        ref = repo / "refs" / (revision or "main")
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else (revision or "")
        config = repo / "snapshots" / commit / "config.json"
        return config if commit and config.is_file() else None
    except (OSError, ValueError, UsageError):
        return None


def download_config(model_id: str, revision: str | None) -> Path:
    """A model's `config.json`, from the Hub into its client's cache.

    Raises:
        AuthError: The Hub gives it only to some.
        UnknownNameError: It did not give it, or not in time.
    """
    try:
        return Calls("the Hub").run(lambda: _fetch(model_id, revision), PATIENCE, "config.json")
    except Exception as error:  # the client's errors differ by version and have no common root
        if closed := gated(error, "model.id", model_id):
            raise closed from error
        near = get_close_matches(model_id, [*zoo.models(), *(a for m in zoo.models().values() for a in m.aliases)], n=1)
        meant = f"did you mean {near[0]}? Else " if near else ""
        unknown = f"model.id {model_id!r} is in neither the registry nor the Hub cache"
        chain = chain_of(error)
        if any(type(one).__name__ == "OfflineModeIsEnabled" for one in chain):
            raise UnknownNameError(
                f"{unknown}, and the Hub was not asked",
                cause="--offline was given, or HF_HUB_OFFLINE is set",
                hint=f"{meant or 'check model.id, '}omit --offline and unset HF_HUB_OFFLINE, or give model.path",
            ) from error
        status = next((code for one in chain if (code := _status(one)) is not None), None)
        asked = "the Hub could not be asked" if status is None else "the Hub did not give it"
        raise UnknownNameError(
            f"{unknown}, and {asked}",
            cause=first_line(error.__cause__ or error),
            hint=f"{meant}check {'' if near else 'model.id, '}your network and HF_TOKEN, or give model.path",
        ) from error


def _fetch(model_id: str, revision: str | None) -> Path:
    import logging

    from huggingface_hub import hf_hub_download, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    told = logging.getLogger("huggingface_hub")
    level = told.level
    told.setLevel(logging.CRITICAL)  # the error says it once
    try:
        # A download tries six times, for half a minute, where there is no network; this tries once, in all versions.
        address = hf_hub_url(model_id, "config.json", revision=revision)
        answer = get_session().head(address, headers=build_hf_headers(), timeout=PATIENCE / 2)
        if answer.status_code >= 400:  # noqa: PLR2004 - a redirect is as good as the file
            hf_raise_for_status(answer)
        return Path(hf_hub_download(model_id, "config.json", revision=revision))
    finally:
        told.setLevel(level)
