"""Large files: the git LFS batch, uploads whole or in parts, and downloads by signed address.

Contract: the batch names for each object that is not there an address that needs no token, basic (one PUT) or
multipart (parts of `chunk_size`, then a POST with their ETags); clients up to 1.19 offer `xet` and the server chooses.
For downloads it names an address for each object that the repo has, and an error for others [git-lfs,
docs/api/batch.md; that the Hub serves git's own client so: hub docs, xet/legacy-git-lfs].
`resolve` answers small files itself and sends the client elsewhere for large ones, by 302 to another host name, so that
a client that kept its token would give it away: the CDN here refuses a request with a token, as S3 does for a signed
address. Invented: the shape of the addresses, and from which size on parts are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from .objects import WrongDigestError
from .repos import TYPES
from .wire import HubError, Request, Response, Routes, ranged

if TYPE_CHECKING:
    from .server import HubServer

ROUTES = Routes()


@ROUTES.on("POST", "/{prefix}{repo}.git/info/lfs/objects/batch")
def batch(hub: HubServer, request: Request, *, prefix: str, repo: str) -> Response:
    kind = TYPES[prefix or "models"]
    body = request.json()
    if body.get("operation") == "download":
        return _downloads(hub, request, kind, repo, body["objects"])
    hub.writable(request, kind, repo)
    offered = body.get("transfers") or ["basic"]
    if "xet" in offered and hub.xet:
        return Response.json({"transfer": "xet", "objects": [dict(item) for item in body["objects"]]})
    objects = []
    for item in body["objects"]:
        oid, size = str(item["oid"]), int(item["size"])
        if not re.fullmatch("[0-9a-f]{64}", oid):
            raise HubError(422, "Invalid oid")
        answer: dict[str, object] = {"oid": oid, "size": size, "authenticated": True}
        if not hub.repos.objects.has(oid):
            grant = hub.signer.grant(f"put {oid} {size}")
            href = f"{hub.cdn}/cdn/upload/{oid}/{size}?grant={grant}"
            answer["actions"] = {"upload": {"href": href}}
        objects.append(answer)
    return Response.json({"transfer": "basic", "objects": objects})


def _downloads(
    hub: HubServer, request: Request, kind: str, repo: str, wanted: Sequence[Mapping[str, object]]
) -> Response:
    found = hub.visible(request, kind, repo)
    there = {file["sha256"]: file for file in found.tree(found.head).values() if file["lfs"]}
    objects: list[dict[str, object]] = []
    for item in wanted:
        oid = str(item["oid"])
        answer: dict[str, object] = {"oid": oid, "size": item["size"]}
        if oid in there:
            href = f"{hub.cdn}/cdn/file/{oid}/{oid}?grant={hub.signer.grant(f'get {oid}')}"
            answer["actions"] = {"download": {"href": href, "expires_in": 3600}}
        else:
            answer["error"] = {"code": 404, "message": "Object does not exist"}
        objects.append(answer)
    return Response.json({"transfer": "basic", "objects": objects})


def check_grant(hub: HubServer, request: Request, text: str) -> None:
    """Raise HubError 403 unless the address was signed for this and is still valid."""
    if not hub.signer.valid(text, request.option("grant")):
        raise HubError(403, "Request has expired or is not signed")


@ROUTES.on("PUT", "/cdn/upload/{oid}/{size}")
def upload(hub: HubServer, request: Request, *, oid: str, size: str) -> Response:
    check_grant(hub, request, f"put {oid} {size}")
    try:
        hub.repos.objects.put(request.body.chunks(), oid, size=int(size))
    except WrongDigestError as error:
        raise HubError(400, str(error)) from None
    return Response(200, {"ETag": f'"{oid}"'})


@ROUTES.on("GET", "/{prefix}{repo}/resolve/{rev}/{path}")
def resolve(hub: HubServer, request: Request, *, prefix: str, repo: str, rev: str, path: str) -> Response:
    kind = prefix or "models"
    found = hub.visible(request, TYPES[kind], repo)
    oid = found.resolve(rev, request.lag)
    headers = {"X-Repo-Commit": oid}
    file = found.tree(oid).get(path)
    if file is None:
        raise HubError(404, "Entry not found", "EntryNotFound", headers)
    if not file["lfs"]:
        headers["ETag"] = f'"{file["oid"]}"'
        return ranged(request, hub.repos.objects.path(file["sha256"]), file["size"], headers)
    headers |= {"X-Linked-Etag": f'"{file["sha256"]}"', "X-Linked-Size": str(file["size"])}
    if "xet" in file and hub.xet:
        headers["X-Xet-Hash"] = file["xet"]
        headers["Link"] = f'<{hub.endpoint}/api/{kind}/{repo}/xet-read-token/{oid}>; rel="xet-auth"'
    grant = hub.signer.grant(f"get {file['sha256']}")
    headers["Location"] = f"{hub.cdn}/cdn/file/{file['sha256']}/{quote(path.rpartition('/')[2])}?grant={grant}"
    return Response(302, headers)


@ROUTES.on("GET", "/cdn/file/{oid}/{name}")
def download(hub: HubServer, request: Request, *, oid: str, name: str) -> Response:
    if request.headers.get("Authorization"):
        raise HubError(400, "Only one auth mechanism allowed")
    check_grant(hub, request, f"get {oid}")
    path = hub.plain_file(oid)
    return ranged(request, path, path.stat().st_size, {"ETag": f'"{oid}"'})
