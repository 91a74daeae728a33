"""Models and data sets that the Hub gives only to people whom their owners let in: said so, by the recipe's field.

The Hub answers 401 without a token and 403 with one that is not on the list, both with `X-Error-Code: GatedRepo`, of
which its client makes a GatedRepoError [huggingface_hub: errors, 0.36 to 2.4]. Transformers raises an OSError from it,
datasets an error of its own that speaks of a gated dataset [datasets: load.py].
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cachekit.errors import AuthError

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
    chain = list(_chain(error))
    if not any(type(one).__name__ == "GatedRepoError" or _SAYS_SO.search(str(one)) for one in chain):
        return None
    status = next((code for one in chain if (code := _status(one)) is not None), None)
    known = status == _NOT_LET_IN or any(_KNOWN.search(str(one)) for one in chain)
    page = _PLACES["data" if field.startswith("data.") else "model"] + name
    return AuthError(
        f"{field} {name} is gated: its owners decide who may load it",
        cause="they have not let in the owner of this token" if known else "the Hub was asked without a token it knows",
        hint=f"ask for access at {page}"
        if known
        else f"ask for access at {page}, then `hf auth login` or set HF_TOKEN",
    )


def _status(error: BaseException) -> int | None:
    found = getattr(getattr(error, "response", None), "status_code", None)
    return found if isinstance(found, int) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop(0)
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += [one.__cause__, one.__context__]
