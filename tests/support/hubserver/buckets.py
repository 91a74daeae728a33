"""Storage buckets (huggingface_hub >= 1.5): files without history, by Xet only.

Contract: create, info, delete; a batch of ndjson lines `addFile`, `copyFile`, `deleteFile` (failed ones are named in a
200, or in a 422 where all failed); tree; paths-info for 1,000 paths; `resolve` with the Xet headers; tokens. The last
writer of a name wins: there is no condition. Not done: moving, `list_buckets`, copies out of repositories.
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .commits import good_path
from .repos import stamp
from .wire import HubError, Request, Response, Routes, page
from .xet import grant

if TYPE_CHECKING:
    from .server import HubServer

ROUTES = Routes()
LIMIT = 1000


class Buckets:
    """All buckets by name."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.known: dict[str, dict[str, Any]] = {}


def _bucket(hub: HubServer, request: Request, name: str, *, write: bool = False) -> dict[str, Any]:
    bucket = hub.buckets.known.get(name)
    member = request.account is not None and name.split("/", maxsplit=1)[0] in request.account.namespaces
    if bucket is None or (bucket["private"] and not member):
        raise HubError(404 if request.account else 401, "Bucket not found", "RepoNotFound")
    if write:
        hub.allow_write(request, name)
    return bucket


@ROUTES.on("POST", "/api/buckets/{repo}")
def create(hub: HubServer, request: Request, *, repo: str) -> Response:
    if request.account and repo.startswith("me/"):
        repo = f"{request.account.name}/{repo.removeprefix('me/')}"
    hub.allow_write(request, repo)
    body = request.json()
    url = f"{hub.endpoint}/buckets/{repo}"
    with hub.buckets.lock:
        if repo in hub.buckets.known:
            return Response.json({"error": f"You already created this bucket: {repo}", "url": url}, 409)
        private = bool(body.get("private") or body.get("visibility") == "private")
        hub.buckets.known[repo] = {"private": private, "created": time.time(), "files": {}}
    return Response.json({"url": url})


@ROUTES.on("GET DELETE", "/api/buckets/{repo}")
def info(hub: HubServer, request: Request, *, repo: str) -> Response:
    bucket = _bucket(hub, request, repo, write=request.method == "DELETE")
    if request.method == "DELETE":
        del hub.buckets.known[repo]
        return Response.json({})
    size = sum(file["size"] for file in bucket["files"].values())
    return Response.json({
        "id": repo, "private": bucket["private"], "createdAt": stamp(bucket["created"]), "size": size,
        "totalFiles": len(bucket["files"]),
    })  # fmt: skip


@ROUTES.on("GET", "/api/buckets/{repo}/xet-(?P<scope>read|write)-token")
def token(hub: HubServer, request: Request, *, repo: str, scope: str) -> Response:
    _bucket(hub, request, repo, write=scope == "write")
    return grant(hub, scope)


@ROUTES.on("POST", "/api/buckets/{repo}/batch")
def batch(hub: HubServer, request: Request, *, repo: str) -> Response:
    bucket = _bucket(hub, request, repo, write=True)
    try:
        operations = [json.loads(line) for line in request.body.bytes().splitlines() if line.strip()]
    except ValueError:
        raise HubError(400, "Invalid payload") from None
    if len(operations) > LIMIT:
        raise HubError(413, "too many operations")
    failed = []
    with hub.buckets.lock:
        files = dict(bucket["files"])
        for operation in operations:
            path = good_path(operation.get("path"))
            if operation["type"] == "deleteFile":
                files.pop(path, None)
                continue
            found = hub.cas.get(str(operation.get("xetHash")))
            if found is None:
                failed.append({"path": path, "error": "Xet file not found"})
                continue
            files[path] = {"size": found.size, "xet": found.hash, "mtime": operation.get("mtime"), "at": time.time()}
        bucket["files"] = files
    answer = {"success": not failed, "processed": len(operations), "succeeded": len(operations) - len(failed)}
    return Response.json(answer | {"failed": failed}, 422 if failed and len(failed) == len(operations) else 200)


def _entry(path: str, file: dict[str, Any]) -> dict[str, Any]:
    entry = {"type": "file", "path": path, "size": file["size"], "xetHash": file["xet"]}
    if file["mtime"] is not None:
        entry["mtime"] = stamp(file["mtime"] / 1000)
    return entry | {"uploadedAt": stamp(file["at"])}


@ROUTES.on("GET", "/api/buckets/{repo}/tree(?:/{path})?")
def tree(hub: HubServer, request: Request, *, repo: str, path: str) -> Response:
    files = _bucket(hub, request, repo)["files"]
    below = f"{path.strip('/')}/" if path.strip("/") else ""
    entries: dict[str, dict[str, Any]] = {}
    for name in sorted(files):
        if name == path or name.startswith(below):
            head, deeper, _ = name.removeprefix(below).partition("/")
            if deeper and not request.flag("recursive"):
                uploaded = stamp(files[name]["at"])
                entries[below + head] = {"type": "directory", "path": below + head, "uploadedAt": uploaded}
            else:
                entries[name] = _entry(name, files[name])
    return page(request, hub.endpoint, list(entries.values()), hub.tree_page or LIMIT)


@ROUTES.on("POST", "/api/buckets/{repo}/paths-info")
def paths_info(hub: HubServer, request: Request, *, repo: str) -> Response:
    files = _bucket(hub, request, repo)["files"]
    paths = request.json().get("paths", [])
    if len(paths) > LIMIT:
        raise HubError(413, "too many parameters")
    return Response.json([_entry(path, files[path]) for path in dict.fromkeys(paths) if path in files])


@ROUTES.on("GET", "/buckets/{repo}/resolve/{path}")
def resolve(hub: HubServer, request: Request, *, repo: str, path: str) -> Response:
    file = _bucket(hub, request, repo)["files"].get(path)
    if file is None:
        raise HubError(404, "Entry not found", "EntryNotFound")
    signature = hub.signer.grant(f"xetfile {file['xet']}")
    return Response(302, {
        "X-Xet-Hash": file["xet"], "X-Linked-Size": str(file["size"]), "X-Linked-Etag": f'"{file["xet"]}"',
        "Link": f'<{hub.endpoint}/api/buckets/{repo}/xet-read-token>; rel="xet-auth"',
        "Location": f"{hub.cdn}/cdn/xetfile/{file['xet']}/{quote(path.rpartition('/')[2])}?grant={signature}",
    })  # fmt: skip


@ROUTES.on("GET", "/cdn/xetfile/{oid}/{name}")
def download(hub: HubServer, request: Request, *, oid: str, name: str) -> Response:
    """A bucket's file for a client that does not speak Xet: whole, or from some byte on."""
    file = hub.cas.get(oid)
    if not file or not hub.signer.valid(f"xetfile {oid}", request.option("grant")):
        raise HubError(403, "Request has expired or is not signed")
    data, headers = b"".join(hub.cas.bytes(file)), {"Content-Type": "application/octet-stream"}
    if not (wanted := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or "")):
        return Response(200, headers, data)
    start = int(wanted[1])
    if start >= len(data):
        return Response(416, {"Content-Range": f"bytes */{len(data)}"})
    headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return Response(206, headers, data[start:])
