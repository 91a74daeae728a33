"""What a push needs: how to send each file (preupload), and the commit.

Contract: preupload tells for each file `lfs` or `regular` and the id of what is there now, so that the client drops
what has not changed; the commit is ndjson; 412 where `parentCommit` is not the head; 409 where another commit is in
progress; 429 beyond about 128 commits an hour. The last two are off until asked for (`hub.overlap_409`,
`hub.commits_per_hour`); else commits wait for each other. What git LFS takes on the Hub is set by `.gitattributes`, by
size and by whether the sample looks binary; our limit of 10 MiB is from public behaviour, not documented.
A commit that changes nothing leaves the head as it is: the real Hub may make an empty commit, the clients avoid asking.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .repos import TYPES, Repo, Tree
from .wire import HubError, Request, Response, Routes

if TYPE_CHECKING:
    from .server import HubServer

ROUTES = Routes()
REGULAR_LIMIT = 10 << 20  # bytes; larger files go to LFS
STALE = "A commit has happened since. Please refresh and try again."
BUSY = "Another commit operation is in progress for this repository. Please try again later."
QUOTA = (
    "You have exceeded the rate limit for repository commits ({limit} per hour). You can retry this action in about 1 "
    "hour. If you're a new user, your limits will raise over time."
)


def _lfs_patterns(repo: Repo, tree: Tree) -> list[str]:
    attributes = tree.get(".gitattributes")
    if not attributes or attributes["lfs"]:
        return []
    lines = repo.objects.read(attributes["sha256"]).decode(errors="replace").splitlines()
    return [line.split()[0] for line in lines if "filter=lfs" in line]


def _binary(sample: bytes) -> bool:
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        return error.start < len(sample) - 3  # not just a character that the sample cuts
    return b"\0" in sample


@ROUTES.on("POST", "/api/{t}/{repo}/preupload/{rev}")
def preupload(hub: HubServer, request: Request, *, t: str, repo: str, rev: str) -> Response:
    found = hub.writable(request, TYPES[t], repo)
    tree = found.tree(found.resolve(rev))
    patterns, answers = _lfs_patterns(found, tree), []
    for file in request.json().get("files", []):
        path, sample = file["path"], base64.b64decode(file.get("sample") or "")
        tracked = any(fnmatchcase(path, p) or fnmatchcase(path.rpartition("/")[2], p) for p in patterns)
        lfs = tracked or file["size"] > REGULAR_LIMIT or _binary(sample)
        answer = {"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False}
        if path in tree:
            answer["oid"] = tree[path]["sha256" if tree[path]["lfs"] else "oid"]
        answers.append(answer)
    return Response.json({"files": answers})


def good_path(path: Any) -> str:
    """A path as the Hub takes it; raises HubError 400."""
    parts = path.split("/") if isinstance(path, str) else [""]
    if any(part in {"", ".", "..", ".git"} for part in parts) or "\0" in path or len(path) > 1000:
        raise HubError(400, f"Invalid path in repository: {path!r}")
    return str(path)


def _changes(hub: HubServer, repo: Repo, tree: Tree, lines: list[dict[str, Any]]) -> dict[str, dict[str, Any] | None]:
    changes: dict[str, dict[str, Any] | None] = {}
    for line in lines:
        key, value = line["key"], line["value"]
        path = good_path(value["path"].strip("/") if key == "deletedFolder" else value["path"])
        if key == "file":
            raw = value.get("content", "")
            data = base64.b64decode(raw) if value.get("encoding") == "base64" else raw.encode()
            changes[path] = repo.regular(data)
        elif key == "lfsFile":
            size, xet = hub.linked_size(value["oid"])
            if size is None or value.get("size", size) != size:
                raise HubError(400, f"LFS pointer pointed to a file that does not exist: {path} ({value['oid']})")
            changes[path] = repo.linked(value["oid"], size, xet)
        elif key == "deletedFile":
            if path not in tree:
                raise HubError(404, f"A file with the name {path!r} does not exist", "EntryNotFound")
            changes[path] = None
        elif key == "deletedFolder":
            inside = [name for name in tree if name.startswith(f"{path}/")]
            if not inside:
                raise HubError(404, f"A folder with the name {path!r} does not exist", "EntryNotFound")
            changes |= dict.fromkeys(inside)
        else:
            raise HubError(400, f"Unknown operation {key!r}")
    return changes


def _count(hub: HubServer, repo: Repo) -> None:
    now = hub.now()
    while repo.recent and repo.recent[0] < now - 3600:
        repo.recent.popleft()
    if hub.commits_per_hour is not None and len(repo.recent) >= hub.commits_per_hour:
        raise HubError(429, QUOTA.format(limit=hub.commits_per_hour), headers={"RateLimit": '"api";r=900;t=200'})
    repo.recent.append(now)


@ROUTES.on("POST", "/api/{t}/{repo}/commit/{rev}")
def commit(hub: HubServer, request: Request, *, t: str, repo: str, rev: str) -> Response:
    found = hub.writable(request, TYPES[t], repo)
    try:
        lines = [json.loads(line) for line in request.body.bytes().splitlines() if line.strip()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        operations = [line for line in lines if line["key"] != "header"]
    except (ValueError, KeyError, TypeError, StopIteration):
        raise HubError(400, "Invalid commit payload") from None
    if request.flag("create_pr"):
        raise HubError(501, "This test Hub has no pull requests")
    if not found.committing.acquire(blocking=not hub.overlap_409):
        raise HubError(409, BUSY)
    try:
        if rev not in found.branches:
            found.resolve(rev)
            raise HubError(400, f"{rev} is not a branch")
        head = found.branches[rev]
        if header.get("parentCommit") not in {None, head}:
            raise HubError(412, STALE)
        _count(hub, found)
        tree = found.tree(head)
        try:
            changes = _changes(hub, found, tree, operations)
        except (KeyError, TypeError, AttributeError, binascii.Error):
            raise HubError(400, "Invalid commit payload") from None
        changes = {
            path: file
            for path, file in changes.items()
            if file is None or {**file, "commit": tree.get(path, {}).get("commit")} != tree.get(path)
        }
        time.sleep(hub.commit_seconds)
        if hub.repos.get(found.type, found.name) is not found:
            raise HubError(404, "Repository not found", "RepoNotFound")
        if changes:
            user = request.account.name if request.account else ""
            title, message = str(header.get("summary", "")), str(header.get("description", ""))
            head = found.add_commit(rev, head, changes, title=title, message=message, user=user, at=hub.now())
    finally:
        found.committing.release()
    url = f"{hub.page_url(found)}/commit/{head}"
    return Response.json({"success": True, "commitOid": head, "commitUrl": url, "hookOutput": ""})
