"""The adapter for an address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cachekit.errors import UsageError
from cachekit.remotes.chain import Link
from cachekit.text import redact

if TYPE_CHECKING:
    from cachekit.remotes.port import Tier


def needs_network(link: Link) -> bool:
    """Whether it opens sockets; a mounted folder is the system's business."""
    return link.address.startswith(("hf://", "s3://"))


def make(link: Link) -> Tier:
    """A tier for an entry of the chain; nothing is connected yet.

    Raises:
        UsageError: The address is none, or an option is unknown.
        CompilerUnavailableError: A package that it needs is not installed.
    """
    address, options = link.address, dict(link.options)
    if address.startswith("hf://"):
        _only(link, {"endpoint"})
        return _hub(address, options)
    if address.startswith("s3://"):
        from cachekit.remotes.s3 import S3Tier

        _only(link, {"endpoint", "region"})
        return S3Tier(address, endpoint=options.get("endpoint", ""), region=options.get("region", ""))
    from cachekit.remotes.folder import FolderTier

    _only(link, set())
    return FolderTier(Path(address.removeprefix("file://")).expanduser())


def _only(link: Link, known: set[str]) -> None:
    unknown = sorted(set(link.options) - known)
    if unknown:
        raise UsageError(
            f"tier {link.name}: unknown setting {unknown[0]!r}",
            cause=f"{link.address} takes {', '.join(sorted(known)) or 'no settings beside url'}",
            hint="remove the line",
        )


_REPO = re.compile(r"hf://(?:(datasets|models)/)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")


def _hub(address: str, options: Mapping[str, str]) -> Tier:
    endpoint = options.get("endpoint") or None
    if address.startswith("hf://buckets/"):
        from cachekit.remotes.bucket import BucketTier

        return BucketTier(address, endpoint=endpoint or "")
    matched = _REPO.fullmatch(address)
    if not matched:
        raise UsageError(
            f"{redact(address)} is no address of a repo",
            hint="hf://OWNER/NAME, hf://datasets/OWNER/NAME, hf://OWNER/NAME@BRANCH, hf://buckets/OWNER/NAME",
        )
    from cachekit.remotes.hub import HubTier

    kind, repo, branch = matched.groups()
    return HubTier(repo, kind="dataset" if kind == "datasets" else "model", branch=branch or "main", endpoint=endpoint)
