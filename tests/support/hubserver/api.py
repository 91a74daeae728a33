"""Routes about repositories: who am I, create, delete, info, trees, paths, refs, history, branches, tags.

Contract: facts as the clients 0.36, 1.33 and 2.4 use them; page sizes 1,000; more than 1,000 paths
in one `paths-info` are a 413; an existing repository is a 409 whose body has `url`. Invented: the numbers of downloads
and likes, the e-mail address.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from .repos import TYPES, Tree, stamp
from .wire import HubError, Request, Response, Routes, page

if TYPE_CHECKING:
    from .server import HubServer

ROUTES = Routes()
PATHS_LIMIT = 1000
PAGE, PAGE_COMMITS = 1000, 50


@ROUTES.on("GET", "/api/whoami-v2")
def whoami(hub: HubServer, request: Request) -> Response:
    account = request.account
    if not account:
        raise HubError(401, "Invalid credentials in Authorization header")
    orgs = [{"name": org, "type": "org", "fullname": org} for org in account.orgs]
    token = {"displayName": "test", "role": account.role}
    return Response.json({
        "type": "user", "name": account.name, "fullname": account.name, "email": f"{account.name}@example.com",
        "orgs": orgs, "auth": {"type": "access_token", "accessToken": token},
    })  # fmt: skip


def _named(request: Request) -> tuple[str, str, dict[str, Any]]:
    body = request.json()
    if not request.account:
        raise HubError(401, "Invalid credentials in Authorization header")
    namespace = body.get("organization") or request.account.name
    return body.get("type") or "model", f"{namespace}/{body.get('name')}", body


@ROUTES.on("POST", "/api/repos/create")
def create(hub: HubServer, request: Request) -> Response:
    repo_type, name, body = _named(request)
    hub.allow_write(request, name)
    private = body.get("private") or body.get("visibility") == "private"
    repo, new = hub.repos.create(repo_type, name, private=bool(private))
    url = hub.page_url(repo)
    if not new:
        return Response.json({"error": f"You already created this {repo_type} repo: {name}", "url": url}, 409)
    return Response.json({"url": url, "name": name, "id": name, "private": repo.private})


@ROUTES.on("DELETE", "/api/repos/delete")
def delete(hub: HubServer, request: Request) -> Response:
    repo_type, name, _ = _named(request)
    repo = hub.visible(request, repo_type, name)
    hub.allow_write(request, name)
    hub.repos.delete(repo)
    return Response.json({})


@ROUTES.on("GET", "/api/{t}/{repo}")
@ROUTES.on("GET", "/api/{t}/{repo}/revision/{rev}")
def info(hub: HubServer, request: Request, *, t: str, repo: str, rev: str = "main") -> Response:
    found = hub.visible(request, TYPES[t], repo)
    oid = found.resolve(rev, request.lag)
    blobs = request.flag("blobs")
    wanted = request.query.get("expand")  # where properties are named, the others are left out
    answer = Response.json({
        "_id": found.name, "id": found.name, "modelId": found.name, "author": found.name.split("/", maxsplit=1)[0],
        "sha": oid, "private": found.private, "gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0,
        "lastModified": stamp(found.commit(oid).at), "createdAt": stamp(found.created),
    })  # fmt: skip
    if wanted and "siblings" not in wanted:
        return answer
    siblings = found.once((oid, "siblings", blobs), lambda: _siblings(found.tree(oid), blobs=blobs))
    return Response(200, answer.headers, answer.data()[:-1] + b', "siblings": ' + siblings + b"}")


def _siblings(files: Tree, *, blobs: bool) -> bytes:
    siblings = []
    for path, file in sorted(files.items()):
        sibling: dict[str, Any] = {"rfilename": path}
        if blobs:
            sibling |= {"size": file["size"], "blobId": file["oid"]}
            if file["lfs"]:
                sibling["lfs"] = {"sha256": file["sha256"], "size": file["size"], "pointerSize": file["pointer"]}
        siblings.append(sibling)
    return json.dumps(siblings).encode()


def _entry(path: str, file: dict[str, Any]) -> dict[str, Any]:
    entry = {"type": "file", "path": path, "size": file["size"], "oid": file["oid"]}
    if file["lfs"]:
        entry["lfs"] = {"oid": file["sha256"], "size": file["size"], "pointerSize": file["pointer"]}
        if "xet" in file:
            entry["xetHash"] = file["xet"]
    return entry


def _folder(oid: str, path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "oid": oid, "size": 0}  # an id of git's tree in truth


@ROUTES.on("GET", "/api/{t}/{repo}/tree/{rev}(?:/{path})?/?")
def tree(hub: HubServer, request: Request, *, t: str, repo: str, rev: str, path: str) -> Response:
    found = hub.visible(request, TYPES[t], repo)
    oid = found.resolve(rev, request.lag)
    recursive = request.flag("recursive")
    files = found.tree(oid)
    below = f"{path.strip('/')}/" if path.strip("/") else ""
    names = found.once((oid, "names", below, recursive), lambda: _names(files, below, recursive=recursive))
    if below and not names:
        raise HubError(404, f"{path} does not exist on {rev!r}", "EntryNotFound", {"X-Repo-Commit": oid})

    def show(name: str) -> dict[str, Any]:
        return _entry(name, files[name]) if name in files else _folder(oid, name)

    return page(request, hub.endpoint, names, hub.tree_page or PAGE, show)


def _names(files: Tree, below: str, *, recursive: bool) -> list[str]:
    """Files and folders below a prefix, all of them or the next level's, in order."""
    names: set[str] = set()
    for name in files:
        if name.startswith(below):
            parts = name.removeprefix(below).split("/")
            names.update(below + "/".join(parts[:depth]) for depth in range(1, len(parts) if recursive else 2))
            if recursive:
                names.add(name)
    return sorted(names)


def _folders(files: Tree) -> set[str]:
    return {"/".join(name.split("/")[:depth]) for name in files for depth in range(1, name.count("/") + 1)}


@ROUTES.on("POST", "/api/{t}/{repo}/paths-info/{rev}")
def paths_info(hub: HubServer, request: Request, *, t: str, repo: str, rev: str) -> Response:
    found = hub.visible(request, TYPES[t], repo)
    oid = found.resolve(rev, request.lag)
    if "json" in (request.headers.get("Content-Type") or ""):
        paths = request.json().get("paths", [])
    else:
        form = parse_qs(request.body.bytes().decode(), keep_blank_values=True, max_num_fields=100_000)
        paths = form.get("paths", [])
    if len(paths) > PATHS_LIMIT:
        raise HubError(413, "too many parameters")
    files, entries = found.tree(oid), []
    folders = found.once((oid, "folders"), lambda: _folders(files)) if any(p not in files for p in paths) else set()
    for path in dict.fromkeys(paths):
        if path in files:
            entries.append(_entry(path, files[path]))
        elif path.strip("/") in folders:
            entries.append(_folder(oid, path.strip("/")))
    return Response.json(entries)


@ROUTES.on("GET", "/api/{t}/{repo}/refs")
def refs(hub: HubServer, request: Request, *, t: str, repo: str) -> Response:
    found = hub.visible(request, TYPES[t], repo)

    def listed(kind: str, names: dict[str, str]) -> list[dict[str, str]]:
        return [
            {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": found.resolve(name, request.lag)}
            for name in names
        ]

    answer = {"branches": listed("heads", found.branches), "tags": listed("tags", found.tags), "converts": []}
    return Response.json(answer | {"pullRequests": []})


@ROUTES.on("DELETE", "/api/{t}/{repo}/branch/{rev}")
def delete_branch(hub: HubServer, request: Request, *, t: str, repo: str, rev: str) -> Response:
    """Whoever may not write learns that first: optimum-neuron asks so whether it may push."""
    found = hub.writable(request, TYPES[t], repo)
    if rev not in found.branches:
        raise HubError(404, f"Invalid rev id: {rev}", "RevisionNotFound")
    raise HubError(403, "branches are not deleted here")


@ROUTES.on("GET", "/api/{t}/{repo}/commits/{rev}")
def commits(hub: HubServer, request: Request, *, t: str, repo: str, rev: str) -> Response:
    found = hub.visible(request, TYPES[t], repo)
    items = [
        {"id": c.oid, "title": c.title, "message": c.message, "date": stamp(c.at), "authors": [{"user": c.user}]}
        for c in found.history(found.resolve(rev, request.lag))
    ]
    return page(request, hub.endpoint, items, PAGE_COMMITS)


@ROUTES.on("POST", "/api/validate-yaml")
def validate_yaml(hub: HubServer, request: Request) -> Response:
    """The Hub checks a card's front matter; here only that it is closed."""
    text = str(request.json().get("content") or "")
    broken = text.startswith("---") and text.count("\n---") < 1
    errors = [{"message": "Invalid front matter: no closing ---"}] if broken else []
    return Response.json({"errors": errors, "warnings": []}, 400 if errors else 200)
