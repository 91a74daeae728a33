"""The checks of remotes in `cachekit doctor`: whether they answer, tokens, clocks, switches."""

from __future__ import annotations

import os
import re
import shlex
import stat
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

from cachekit import redact
from cachekit.calls import Calls
from cachekit.config import FALSE_WORDS, TRUE_WORDS, Config
from cachekit.disk import POOR, file_system
from cachekit.errors import CachekitError
from cachekit.health import Check, Finding, age
from cachekit.remotes.address import Link, make, needs_network, parse
from cachekit.remotes.judging import HINT

SKEW = 300.0  # seconds; S3 refuses requests that are 15 minutes off
TIMEOUT = 4.0  # seconds for a question
# The client's own switches [huggingface_hub, datasets, transformers].
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
HUB = "https://huggingface.co"
_TOKEN = re.compile(r"(hf|api_org|hf_oauth|hf_jwt)_[A-Za-z0-9_.-]{20,}")


def remotes(config: Config) -> Iterator[Finding]:
    """Each remote is asked for its state: that it is there, and may be read."""
    links = _links(config)
    if not links:
        yield Finding("ok", "no remote is configured")
    for link in links:
        if _is_offline() and needs_network(link):
            yield Finding("unknown", f"{link.name}: not asked, {_is_offline()} is set")
            continue
        try:
            storage = make(link)
            storage.revision()
            stranger = "" if link.trust in {"all", "signed"} else storage.stranger()
        except CachekitError as error:
            said = "; ".join(filter(None, (f"{link.name}: {error.message}", error.cause)))
            yield Finding("problem", said, error.hint, _making(link))
            continue
        if (stranger or link.trust == "signed") and not (config.trust.signers or config.trust.key):
            said = f"{link.name}: nothing there is used, as the settings name no signer: {stranger or 'trust = signed'}"
            yield Finding("problem", said, HINT)
            continue
        if not needs_network(link):
            folder = _folder(link)
            if link.writable and not os.access(folder, os.W_OK | os.X_OK, effective_ids=_EFFECTIVE):
                run = f"sudo chmod g+ws {shlex.quote(str(folder))}"
                yield Finding(
                    "problem", f"{link.name}: {folder} cannot be written by this user", "use it with :r, or run:", run
                )
                continue
            if (kind := file_system(folder).kind) in POOR:
                yield Finding(
                    "problem", f"{link.name}: {folder} lies on {kind}, which has no links", "name another folder"
                )
                continue
        yield Finding("ok", f"{link.name}: {link.address}")


_EFFECTIVE = os.access in os.supports_effective_ids


def offline(config: Config) -> Iterator[Finding]:
    """An offline switch that was left over from an experiment makes every remote silently absent."""
    remote = [link.name for link in _links(config) if needs_network(link)]
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
    """The Hub's token exists, has the right form, and only this user can read it. The token is not shown."""
    links = [link for link in _links(config) if link.address.startswith("hf://")]
    if not links:
        yield Finding("ok", "not needed: no remote is on the Hub")
        return
    variable = next((name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if os.environ.get(name)), "")
    path = _token_path()
    text, where = (os.environ[variable], variable) if variable else (_read(path), str(path))
    if not text.strip():
        names = ", ".join(link.name for link in links)
        need = "cannot be written" if any(link.writable for link in links) else "cannot be read unless it is public"
        yield Finding("problem", f"no token: {names} {need}", run="hf auth login")
    elif not _TOKEN.fullmatch(text.strip()):
        run = "hf auth login" if not variable else f"unset {variable} && hf auth login"
        yield Finding(
            "problem", f"{where} does not hold a token: a token begins with hf_ and has no quotes or spaces", run=run
        )
    elif not variable and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Finding("problem", f"others can read the token in {path}", run=f"chmod 600 {shlex.quote(str(path))}")
    else:
        yield Finding("ok", f"from {where}")


def clocks(config: Config) -> Iterator[Finding]:
    """Compare this host's clock with those of the remotes: TLS and S3 refuse a clock that is far off."""
    addresses = dict.fromkeys(filter(None, map(_server, _links(config))))
    if not addresses:
        yield Finding("ok", "not needed: no remote has a clock")
    for address in addresses:
        shown = redact.address(address)
        if _is_offline():
            yield Finding("unknown", f"{shown}: not asked, {_is_offline()} is set")
        elif (seconds := _skew(address)) is None:
            yield Finding("unknown", f"{shown} did not tell the time")
        elif abs(seconds) > SKEW:
            way = "ahead of" if seconds > 0 else "behind"
            said = f"this host's clock is {age(abs(seconds))} {way} that of {shown}"
            yield Finding("problem", said, run="sudo chronyc makestep")
        else:
            yield Finding("ok", f"this host's clock agrees with that of {shown}")


def _links(config: Config) -> tuple[Link, ...]:
    return parse(config.cache, config.remotes)[1:]


def _folder(link: Link) -> Path:
    return Path(link.address.removeprefix("file://")).expanduser()


def _making(link: Link) -> str:
    if needs_network(link) or _folder(link).exists():
        return ""
    return f"mkdir -p -m 2775 {shlex.quote(str(_folder(link)))}"


def _is_offline() -> str:
    return next((name for name in OFFLINE[:1] if os.environ.get(name, "").strip().lower() in TRUE_WORDS), "")


def _token_path() -> Path:
    """Where `hf auth login` keeps it [huggingface_hub: HF_TOKEN_PATH, HF_HOME]."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return Path(os.environ.get("HF_TOKEN_PATH") or home / "token").expanduser()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _server(link: Link) -> str:
    if link.address.startswith("hf://"):
        return link.options.get("endpoint") or os.environ.get("HF_ENDPOINT") or HUB
    return link.options.get("endpoint", "") if link.address.startswith("s3://") else ""


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
