"""Xet: tokens by the Hub, and a content-addressed store (CAS) as the real `hf_xet` client asks for it.

Contract: the token routes answer by header and by JSON; version 2 routes and grants are a 404, after which the client
takes version 1; the global look-up of chunks is a 404 (nothing known); a shard tells which SHA-256 is which Xet file.
Invented: the addresses below `/xet`. What is not done: BLAKE3 hashes are taken as given.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .objects import Objects
from .repos import TYPES
from .wire import HubError, Request, Response, Routes, ranged
from .xet_format import Chunk, Term, XetFile, read_shard, read_xorb, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .server import HubServer

ROUTES = Routes()
TOKEN_SECONDS = 3600


@lru_cache(maxsize=4096)
def _chunks(path: Path) -> list[Chunk]:
    return read_xorb(path)


class Cas:
    """Xorbs, on disk, and what files are made of."""

    def __init__(self, folder: Path) -> None:
        self.xorbs = Objects(folder / "xorbs")
        self._files: dict[str, XetFile] = {}
        self._by_sha: dict[str, XetFile] = {}

    def add(self, file: XetFile) -> None:
        """Keep a file's description; ValueError where its xorbs are not there or too short."""
        for term in file.terms:
            if not self.xorbs.has(term.xorb) or not term.start < term.end <= len(_chunks(self.xorbs.path(term.xorb))):
                raise ValueError(f"xorb {term.xorb} is not there or too short")
            if sum(chunk.size for chunk in self.chunks(term)) != term.size:
                raise ValueError("a term has another size than its chunks")
        known = self.get(file.hash)
        if known and known.sha256 and not file.sha256:
            return
        self._files[file.hash] = self._by_sha[file.sha256] = file

    def get(self, name: str) -> XetFile | None:
        return self._files.get(name)

    def by_sha256(self, sha256: str) -> XetFile | None:
        return self._by_sha.get(sha256) if sha256 else None

    def chunks(self, term: Term) -> list[Chunk]:
        return _chunks(self.xorbs.path(term.xorb))[term.start : term.end]

    def bytes(self, file: XetFile) -> Iterator[bytes]:
        """A file's bytes, in pure Python: slow, only for clients that do not speak Xet."""
        for term in file.terms:
            yield from unpack(self.xorbs.path(term.xorb), self.chunks(term))


@ROUTES.on("GET", "/api/{t}/{repo}/xet-(?P<scope>read|write)-token/{rev}")
def token(hub: HubServer, request: Request, *, t: str, repo: str, scope: str, rev: str) -> Response:
    found = (hub.writable if scope == "write" else hub.visible)(request, TYPES[t], repo)
    found.resolve(rev)
    return grant(hub, scope)


def grant(hub: HubServer, scope: str) -> Response:
    """A token for the CAS; 404 where the Hub plays one without Xet."""
    if not hub.xet:
        raise HubError(404, "Sorry, we can't find the page you are looking for.")
    value, deadline = f"{scope}.{hub.signer.grant(scope, TOKEN_SECONDS)}", int(time.time() + TOKEN_SECONDS)
    cas = f"{hub.cdn}/xet"
    headers = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": value, "X-Xet-Token-Expiration": str(deadline)}
    return Response.json({"accessToken": value, "exp": deadline, "casUrl": cas}, headers=headers)


def _check(hub: HubServer, request: Request, scope: str) -> None:
    given, _, value = (request.headers.get("Authorization") or "").removeprefix("Bearer ").partition(".")
    if not hub.signer.valid(given, value):
        raise HubError(401, "Unauthorized")
    if scope == "write" and given != "write":
        raise HubError(403, "Forbidden")


@ROUTES.on("POST", "/xet/v1/xorbs/default/{name}")
def put_xorb(hub: HubServer, request: Request, *, name: str) -> Response:
    _check(hub, request, "write")
    if not re.fullmatch("[0-9a-f]{64}", name):
        raise HubError(400, "Bad hash")
    if hub.cas.xorbs.has(name):
        return Response.json({"was_inserted": False})
    hub.cas.xorbs.put(request.body.chunks(), name, check=False)
    try:
        _chunks(hub.cas.xorbs.path(name))
    except ValueError as error:
        hub.cas.xorbs.path(name).unlink()
        raise HubError(400, str(error)) from None
    return Response.json({"was_inserted": True})


@ROUTES.on("POST", "/xet/v1/shards")
def put_shard(hub: HubServer, request: Request) -> Response:
    _check(hub, request, "write")
    try:
        for file in read_shard(request.body.bytes()):
            hub.cas.add(file)
    except ValueError as error:
        raise HubError(400, str(error)) from None
    return Response.json({"result": 1})


@ROUTES.on("GET", "/xet/v1/reconstructions/{name}")
def reconstruction(hub: HubServer, request: Request, *, name: str) -> Response:
    _check(hub, request, "read")
    file = hub.cas.get(name)
    if not file:
        raise HubError(404, "File not found")
    first, last = 0, file.size - 1
    if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or ""):
        first, last = int(wanted[1]), min(last, int(wanted[2] or last))
        if first > last:
            return Response(416)
    at, offset = 0, 0
    terms: list[dict[str, object]] = []
    used: dict[str, list[tuple[int, int]]] = {}
    for term in file.terms:
        chunks, position, at = hub.cas.chunks(term), at, at + term.size
        if at <= first or position > last:
            continue
        low = 0
        while position + chunks[low].size <= first:  # chunks outside of the range are left out
            position, low = position + chunks[low].size, low + 1
        if not terms:
            offset = first - position
        high, size = low, 0
        while high < len(chunks) and position + size <= last:
            high, size = high + 1, size + chunks[high].size
        start, end = term.start + low, term.start + high
        terms.append({"hash": term.xorb, "unpacked_length": size, "range": {"start": start, "end": end}})
        used.setdefault(term.xorb, []).append((start, end))
    fetch_info = {xorb: [_fetch(hub, xorb, *run) for run in _merged(runs)] for xorb, runs in used.items()}
    return Response.json({"offset_into_first_range": offset, "terms": terms, "fetch_info": fetch_info})


def _merged(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of chunks that do not overlap: the client takes each term out of the one run that holds it."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _fetch(hub: HubServer, xorb: str, start: int, end: int) -> dict[str, object]:
    chunks = _chunks(hub.cas.xorbs.path(xorb))[start:end]
    return {
        "range": {"start": start, "end": end},
        "url": f"{hub.cdn}/cdn/xorb/{xorb}?grant={hub.signer.grant(f'xorb {xorb}')}",
        "url_range": {"start": chunks[0].at, "end": chunks[-1].end - 1},
    }


@ROUTES.on("GET", "/cdn/xorb/{name}")
def get_xorb(hub: HubServer, request: Request, *, name: str) -> Response:
    if not hub.signer.valid(f"xorb {name}", request.option("grant")):
        raise HubError(403, "Request has expired or is not signed")
    return ranged(request, hub.cas.xorbs.path(name), hub.cas.xorbs.size(name), {})


@ROUTES.on("POST", "(?:/xet)?/v1/telemetry")
def telemetry(hub: HubServer, request: Request) -> Response:
    return Response.json({})
