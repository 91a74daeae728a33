"""The checks of remotes in `cachekit doctor`: whether they answer, tokens, clocks, switches."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime

from msgspec import structs

from cachekit import redact
from cachekit.calls import Calls
from cachekit.config import FALSE_WORDS, TRUE_WORDS, Config
from cachekit.errors import CachekitError
from cachekit.health import Check, Finding, age
from cachekit.remotes.address import Link, links_of, make, needs_network
from cachekit.remotes.judging import HINT
from cachekit.remotes.port import Storage

SKEW = 300.0  # seconds; S3 refuses requests that are 15 minutes off
TIMEOUT = 4.0  # seconds for a question
# The client's own switches [huggingface_hub, datasets, transformers].
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


def remotes(config: Config) -> Iterator[Finding]:
    """Each remote is asked for its state: that it is there, and may be read."""
    links = links_of(config)
    if not links:
        yield Finding("ok", "no remote is configured")
    for link in links:
        if _is_offline() and needs_network(link):
            yield Finding("unknown", f"{link.name}: not asked, {_is_offline()} is set")
            continue
        stranger = ""
        try:
            storage = make(link)
            trouble = storage.trouble(writable=link.writable)
            if trouble is None:
                storage.revision()
                if link.trust not in {"all", "signed"}:
                    stranger = storage.stranger() or ("" if link.trust else storage.untold)
        except CachekitError as error:
            said = "; ".join(filter(None, (error.message, error.cause)))
            trouble = Finding("problem", said, error.advice)
        asks = link.readable and (stranger or link.trust == "signed")
        if trouble is None and asks and not (config.trust.signers or config.trust.key):
            said = f"nothing there is used, as the settings name no signer: {stranger or 'trust = signed'}"
            trouble = Finding("problem", said, HINT)
        found = trouble or Finding("ok", link.address)
        yield structs.replace(found, said=f"{link.name}: {found.said}")


def written(config: Config) -> dict[str, Finding | None]:
    """The remotes that the settings let be written, by name; each with what keeps this host from it, or None.

    Each is asked, so far as that can be found out without writing.
    """
    found: dict[str, Finding | None] = {}
    for link, storage in _made(config):
        if not link.writable:
            continue
        try:
            told = (storage.trouble(writable=True), storage.login(writable=True))
        except CachekitError as error:
            told = (Finding("problem", error.said, error.advice), None)
        found[link.name] = next((one for one in told if one is not None and one.state == "problem"), None)
    return found


def offline(config: Config) -> Iterator[Finding]:
    """An offline switch that was left over from an experiment makes every remote silently absent."""
    remote = [link.name for link in links_of(config) if needs_network(link)]
    wrong = False
    for name in OFFLINE:
        value = os.environ.get(name, "").strip().lower()
        if value not in TRUE_WORDS | FALSE_WORDS:
            wrong = True
            yield Finding("problem", f"{name}={value} is neither yes nor no", run=f"unset {name}")
        elif value in TRUE_WORDS and remote:
            wrong = True
            yield Finding("problem", f"{name}={value}: {', '.join(remote)} is never asked", run=f"unset {name}")
    if not wrong:
        yield Finding("ok", "remotes are asked" if remote else "no remote needs a network")


def token(config: Config) -> Iterator[Finding]:
    """What a remote needs is there to log in with, and only this user can read it. It is not shown."""
    found = [storage.login(writable=link.writable) for link, storage in _made(config)]
    yield from dict.fromkeys(filter(None, found)) or [Finding("ok", "no remote needs a token")]


def clocks(config: Config) -> Iterator[Finding]:
    """Compare this host's clock with those of the remotes: TLS and S3 refuse a clock that is far off."""
    addresses = dict.fromkeys(filter(None, (storage.server() for _, storage in _made(config))))
    if not addresses:
        yield Finding("ok", "not needed: no remote has a clock")
    for address in addresses:
        shown = redact.address(address)
        if _is_offline():
            yield Finding("unknown", f"{shown}: not asked, {_is_offline()} is set")
        elif (seconds := _skew(address)) is None:
            yield Finding("unknown", f"{shown} did not report its time")
        elif abs(seconds) > SKEW:
            way = "ahead of" if seconds > 0 else "behind"
            said = f"this host's clock is {age(abs(seconds))} {way} that of {shown}"
            yield Finding("problem", said, run="sudo chronyc makestep")
        else:
            yield Finding("ok", f"this host's clock agrees with that of {shown}")


def _made(config: Config) -> Iterator[tuple[Link, Storage]]:
    """The remotes that can be made; of the others `remotes` tells."""
    for link in links_of(config):
        with suppress(CachekitError):
            yield link, make(link)


def _is_offline() -> str:
    return next((name for name in OFFLINE[:1] if os.environ.get(name, "").strip().lower() in TRUE_WORDS), "")


def _skew(address: str) -> float | None:
    """Seconds that this host's clock is ahead of a server's; None where that does not tell."""
    from http.client import HTTPException

    if not address.startswith(("http://", "https://")):
        return None
    try:  # urllib's own time is that of one read: a server that drips its header never reaches it
        said = Calls(redact.address(address)).run(lambda: _date(address), TIMEOUT, "its clock")
        return time.time() - parsedate_to_datetime(said).timestamp()
    except (CachekitError, HTTPException, OSError, TypeError, ValueError):
        return None


def _date(address: str) -> str:
    """What a server says of the time; empty where it says nothing."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - one of two schemes
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - likewise
            return str(answer.headers.get("Date", ""))
    except urllib.error.HTTPError as error:
        with error:
            return str(error.headers.get("Date", ""))


CHECKS = (
    Check("remotes", remotes),
    Check("remote-clocks", clocks),
    Check("offline", offline),
    Check("token", token),
)
