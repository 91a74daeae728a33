"""What `cachekit doctor` looks at of the store, the folders of runs and the lock file."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from cachekit.config import Config
from cachekit.disk import barred, file_system
from cachekit.health import Check, Finding, age, exposed, of_others, trouble
from cachekit.store import access, partial
from cachekit.store import lock_file as locked
from cachekit.store.garbage import size_of
from cachekit.store.layout import Layout
from cachekit.text import size as size_words

LARGE = 1 << 30  # bytes of journals and logs
SKEW = 300.0  # seconds
CACHE_DIRS = "CACHEKIT_COMPILER_CACHE_DIR"
REPAIR = "set CACHEKIT_HOME to a folder on a local disk"


def store(config: Config) -> Iterator[Finding]:
    """The store's folder: ours, writable, on a file system that keeps its promises."""
    home = config.home
    found = []
    if wrong := trouble(home, "CACHEKIT_HOME"):
        found.append(wrong)
    elif others := of_others(home):
        run = access.repossess(Layout(home))
        said = f"{others} folders in {home} belong to another user"
        found.append(Finding("problem", said, "" if run else f"set {access.OWN}", run))
    whose = access.standing(Layout(home))
    copied = "its files are read through copies"
    if not found and whose.whose == "others":
        found.append(Finding("problem", f"{whose.why}: {copied}", "" if whose.mend else REPAIR, whose.mend))
    if taken := partial.taken(Layout(home)):
        said = f"{taken} is not a folder of this user's: an interrupted fetch starts over"
        found.append(Finding("problem", said, run=f"mv {shlex.quote(str(taken))} {shlex.quote(f'{taken}.away')}"))
    system = file_system(home)
    if system.network:
        said = f"{home} is on {system.network}: two machines would both compile, as locks hold on one machine only"
        found.append(Finding("problem", said, f"{REPAIR}, and name this one as a remote: --cache local:rw,{home}:rw"))
    if system.poor:
        found.append(
            Finding("problem", f"{home} is on {system.kind}, which has no hard links or ignores case in names", REPAIR)
        )
    words = [system.kind, f"shared with a group, {copied}" if whose.whose == "group" else ""]
    said = "; ".join(filter(None, words))
    yield from found or [Finding("ok", f"{home}{f' ({said})' if said else ''}")]


def cache_dirs(config: Config) -> Iterator[Finding]:
    """Compiler cache dirs must be on a local disk, and compiled libraries are loaded from them."""
    place, found = config.compiler_cache_dir, []
    system = file_system(place)
    if system.network:
        repair = f"set {CACHE_DIRS} to a folder on a local disk"
        found.append(Finding("problem", f"{place} is on {system.network}: compilers need a local disk", repair))
    if place != Layout(config.home).cache_dirs and (wrong := trouble(place, CACHE_DIRS)):
        found.append(wrong)
    elif theirs := exposed(place, CACHE_DIRS):
        found.append(theirs)
    if barred(place):
        said = f"nothing in {place} may be executed (noexec): compiled libraries cannot be loaded from there"
        found.append(Finding("problem", said, f"set {CACHE_DIRS} to a folder without noexec"))
    yield from found or [Finding("ok", f"{place}{f' ({system.kind})' if system.kind else ''}")]


def journal(config: Config) -> Iterator[Finding]:
    """Runs leave a journal and a log each; old ones go by their age."""
    layout = Layout(config.home)
    size = sum(size_of(folder) for folder in (layout.journal, layout.logs))
    if size > LARGE:
        said = f"journals and logs of runs take {size_words(size)}; they are kept for {config.keep_logs} days"
        folders = " ".join(shlex.quote(str(folder)) for folder in (layout.journal, layout.logs))
        run = f"find {folders} -type f -mtime +7 -delete"
        yield Finding("problem", said, "keep_logs = 7 in cachekit.toml, and for the old ones:", run)
    else:
        yield Finding("ok", f"{size_words(size)} of journals and logs")


def quarantine(config: Config) -> Iterator[Finding]:
    """What was found damaged: once may be an accident, more is a disk that fails, or somebody who writes there."""
    folder = Layout(config.home).quarantine
    found = []
    with suppress(OSError):
        found = [path.stat().st_mtime for path in folder.iterdir()]
    if found:
        said = f"{len(found)} damaged files were set aside, the last one {age(time.time() - max(found))} ago"
        run = f"rm -r {shlex.quote(str(folder))}"
        yield Finding("problem", said, "look for disk errors in `dmesg`; the files set aside are not needed:", run)
    else:
        yield Finding("ok", "nothing damaged was set aside")


def pending(config: Config) -> Iterator[Finding]:
    """Records that a remote could not take, and that nobody offered again."""
    count = 0
    with suppress(OSError):
        count = sum(1 for _ in Layout(config.home).remotes.glob("*/pending/*"))
    if count:
        said = f"{count} {'record was' if count == 1 else 'records were'} compiled here and could not be pushed"
        named = "" if len(config.cache) > 1 else " --cache local:rw,NAME:rw"  # the settings name no remote
        yield Finding("problem", said, run=f"cachekit push --pending{named}")
    else:
        yield Finding("ok", "nothing waits for a push")


def clock(config: Config) -> Iterator[Finding]:
    """A clock that was set back: what is old seems young, leases and logs never end, requests to S3 are refused."""
    layout = Layout(config.home)
    newest, where = 0.0, layout.root
    for folder in (layout.root, layout.journal, layout.records, layout.blobs, layout.state):
        with suppress(OSError):
            for path in (folder, *folder.iterdir(), *(_last_runs(folder) if folder == layout.journal else ())):
                if (changed := path.stat().st_mtime) > newest:
                    newest, where = changed, path
    for path in _last_runs(layout.journal):
        with suppress(ValueError):  # it is called after the time at which it began
            began = datetime.strptime(path.name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
            if began > newest:
                newest, where = began, path
    ahead = newest - time.time()
    if ahead > SKEW:
        said = f"the time of {where} is {age(ahead)} in the future: the clock of this host is slow, or was set back"
        yield Finding("problem", said, run="sudo chronyc makestep")
    else:
        yield Finding("ok", "no file in the store is from the future")


def lock_file(_: Config) -> Iterator[Finding]:
    """A lock file that cannot be read, after a merge for one, fails the next `pull --locked`."""
    path = locked.nearest()
    if not path.exists():
        yield Finding("ok", "no recipe is locked")
        return
    entries = locked.read(path)
    yield Finding("ok", f"{path}: {len(entries)} locked")


def _last_runs(journal: Path) -> list[Path]:
    """The journals of the last month that has any."""
    with suppress(OSError):
        if months := sorted(path for path in journal.iterdir() if path.is_dir()):
            return sorted(months[-1].iterdir())
    return []


CHECKS = (
    Check("store", store),
    Check("compiler-cache-dir", cache_dirs),
    Check("logs", journal),
    Check("quarantine", quarantine),
    Check("clock", clock),
    Check("pending-pushes", pending),
    Check("lock-file", lock_file),
)
