"""Fetch modules by their names, without a record: `cachekit pull --module`, `--all-of`.

They come from a remote that optimum-neuron or a copy filled. Only finished modules are taken whose files are whole;
they become records as an import makes them. Where a record on the remote names a file, the record vouches for its
bytes; elsewhere the digest that the remote knows does, and the graph's own. What is small and the same in hundreds of
modules (flags, the empty mark) is fetched once. A pull that was interrupted is resumed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from cachekit.compilers import registry
from cachekit.compilers.foreign import ForeignCache
from cachekit.compilers.imported import known_modules, record_of
from cachekit.errors import AuthError, IntegrityError, RemoteError, UsageError
from cachekit.remotes.fetch_files import Fetched
from cachekit.remotes.judging import beside_found, none_used, not_used
from cachekit.remotes.module_files import ModuleFiles, RefusedError, vouched
from cachekit.remotes.port import Entry
from cachekit.remotes.remote import Remote
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.durable import store_error
from cachekit.store.origin import Origin
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.record import File, Module
from cachekit.verbs.pull import LeftModule, Outcome
from cachekit.verbs.session import Session, using_store

_Files = Mapping[str, Entry]  # a module's, by name


class _Looked(Struct, frozen=True):
    """What a remote has: finished modules, and why the others are left."""

    revision: str
    origin: Origin
    modules: Mapping[str, _Files]
    left: Mapping[str, str]


class _Fetched(Struct, frozen=True):
    """What became of a remote's modules, by name.

    Attributes:
        outcomes: Of those that were, or would be, fetched.
        damaged: Why others are not whole, or not what the remote says.
        untrusted: Why the settings do not let others be used.
    """

    outcomes: Mapping[str, Outcome] = {}
    damaged: Mapping[str, str] = {}
    untrusted: Mapping[str, str] = {}


class _Taken(Struct, frozen=True):
    """A module that was fetched, and is whole."""

    module: Module
    graphs: int
    files: tuple[Fetched, ...]


@using_store
def pull_modules(session: Session, names: Sequence[str], folder: str, *, dry_run: bool = False) -> list[Outcome]:
    """Fetch modules, each from the nearest remote that has it finished; or all of a compiler's folder.

    Returns:
        One for each name; for the folder one for each remote that it was fetched from. One that is damaged or not
        finished is left, with the reason.

    Raises:
        UsageError: A name is none of a module, or a folder none of a compiler.
        RemoteError, AuthError: Something was not found, and a remote could not be asked. What arrived is kept.
        IntegrityError: A module that was named is not what the remote says it is. The others are in the store.
        StoreError: The store cannot be written.
    """
    _check_names(names, folder)
    prefixes = {name.partition("/")[0] for name in (*names, folder) if name}
    adapters = {adapter.name: adapter for adapter in map(registry.of_directory, prefixes)}
    known = {name for adapter in adapters.values() for name in known_modules(session.store, adapter)}
    outcomes = {name: Outcome(name, "present", "") for name in names if name in known}
    sweeping: list[Outcome] = []
    left: dict[str, str] = {}
    damaged: dict[str, str] = {}
    seen: set[str] = set()
    untrusted: dict[str, str] = {}  # on which remote
    had = 0  # bytes
    for remote in session.remotes.readable:
        missing = [name for name in dict.fromkeys(names) if name not in outcomes]
        if not (missing or folder):
            break
        try:
            remote.retry()
            looked = _look(remote, missing, folder)
            fresh = {name: files for name, files in looked.modules.items() if name not in known | seen}
            had += sum(_size(files) for name, files in looked.modules.items() if name in known and _in(name, folder))
            done = _would_fetch(session, remote, fresh) if dry_run else _fetch(session, remote, looked, fresh)
        except (RemoteError, AuthError) as error:
            session.remotes.failed(remote, error)
            continue
        left |= {**looked.left, **done.damaged, **done.untrusted}
        untrusted |= dict.fromkeys(done.untrusted, remote.name)
        damaged |= done.damaged
        seen |= done.outcomes.keys()
        outcomes |= {name: done.outcomes[name] for name in missing if name in done.outcomes}
        swept = [one for name, one in done.outcomes.items() if _in(name, folder) and name not in names]
        sweeping += [_sum(folder, swept, had)] if swept else []
    left = {name: reason for name, reason in left.items() if name not in seen and name not in known}
    for name in names:
        if name in damaged and name in left:
            raise IntegrityError(f"{name} cannot be used", cause=left[name], hint="compile it again, and push it")
        if name in untrusted and name in left:
            raise none_used(untrusted[name], {name: left[name]})
        unasked = session.remotes.unasked(name)
        outcomes.setdefault(name, Outcome(name, "absent", "", left=_left(left, name), error=unasked))
    found = [outcomes[name] for name in dict.fromkeys(names)]
    if folder:
        rest = _left(left, *(name for name in left if _in(name, folder) and name not in names))
        if not (sweeping or had) and (bad := next((one for one in rest if one.module in untrusted), None)):
            raise none_used(untrusted[bad.module], {bad.module: bad.reason})
        state = sweeping[0].state if sweeping else "present" if had else "absent"
        unasked = session.remotes.unasked(folder) if state == "absent" else None
        sweeping = sweeping or [Outcome(folder, state, "", present=had, error=unasked)]
        found += [*sweeping[:-1], structs.replace(sweeping[-1], left=rest)]
    if any(one.state == "absent" and not one.left for one in found):
        session.remotes.raise_failure()
    return found


def _cache_of(name: str) -> ForeignCache:
    """The cache that a module, or a compiler's folder, is of.

    Raises:
        UsageError: No compiler calls one so.
    """
    adapter = registry.of_directory(name)
    cache = adapter.foreign_cache
    if cache is not None and cache.names(name):
        return cache
    examples = [one.foreign_cache.example for one in registry.every() if one.foreign_cache is not None]
    if cache is None and adapter.prefix:
        raise UsageError(
            f"modules of {name} are in records only",
            hint="`cachekit pull`, with a recipe or a key, fetches a record with its modules",
        )
    what = "module of a compiler's cache"
    if "/" not in name:
        what, examples = "compiler's folder", [example.partition("/")[0] for example in examples]
    raise UsageError(f"{name!r} is not a {what}", hint=f"name it as {', or '.join(reversed(examples))}")


def _check_names(names: Sequence[str], folder: str) -> None:
    for name in names:
        if "/" not in name:
            raise UsageError(
                f"{name!r} is not a module of a compiler's cache", hint="use --all-of for a compiler's folder"
            )
        _cache_of(name)
    if folder:
        _cache_of(folder)


def _left(reasons: Mapping[str, str], *names: str) -> tuple[LeftModule, ...]:
    return tuple(LeftModule(name, reasons[name]) for name in sorted(names) if name in reasons)


def _in(name: str, folder: str) -> bool:
    return bool(folder) and name.startswith(f"{folder}/")


def _size(files: _Files) -> int:
    return sum(entry.size for entry in files.values())


def _sum(folder: str, done: Sequence[Outcome], present: int) -> Outcome:
    first = done[0]
    files, size = sum(one.files for one in done), sum(one.bytes for one in done)
    modules = tuple(one.name for one in done)
    return Outcome(folder, first.state, first.key, first.remote, files, size, present, first.seconds, modules)


# What a remote has


def _look(remote: Remote, names: Sequence[str], folder: str) -> _Looked:
    revision, origin = remote.revision(), remote.owned()  # no signature names bare modules
    with remote.call() as storage:
        paths = [path for name in names for path in _cache_of(name).asked(name)]
        found = storage.stat(paths, revision) if paths else {}
        if folder:
            found |= {entry.path: entry for entry in storage.list(folder, revision)}
    modules: dict[str, dict[str, Entry]] = {}
    for path, entry in found.items():
        cache = registry.of_directory(path).foreign_cache
        if cache is not None and (name := cache.module_of(path)):
            modules.setdefault(name, {})[path.rpartition("/")[2]] = entry
    left: dict[str, str] = {}
    whole: dict[str, _Files] = {}
    for name, files in sorted(modules.items()):
        cache = _cache_of(name)
        sizes = {file: entry.size for file, entry in files.items()}
        if reason := cache.unfit(name, sizes, versions=bool(revision)):
            left[name] = reason
        else:
            whole[name] = {file: entry for file, entry in files.items() if cache.wanted(name, file)}
    return _Looked(revision, origin, whole, left)


def _would_fetch(session: Session, remote: Remote, modules: Mapping[str, _Files]) -> _Fetched:
    """What `_fetch` would answer, as far as that is known before anything is read.

    Raises:
        UntrustedError: A file in a folder is a stranger's.
    """
    with remote.call() as storage:
        storage.check([entry.path for found in modules.values() for entry in found.values()])
    listed = []
    for name, found in modules.items():
        digests = {file: entry.digests.get("sha256", "") for file, entry in found.items()}
        if all(digests.values()):  # else only reading tells
            files = tuple(File(file, found[file].size, sha256) for file, sha256 in digests.items())
            listed.append(Module(name, files))
    untrusted = not_used(session.store, listed)
    outcomes = {
        name: Outcome(name, "would-fetch", "", remote.name, len(found), _size(found), modules=(name,))
        for name, found in modules.items()
        if name not in untrusted
    }
    return _Fetched(outcomes, untrusted=untrusted)


# Fetching


def _fetch(session: Session, remote: Remote, looked: _Looked, modules: Mapping[str, _Files]) -> _Fetched:
    """Fetch modules and publish them."""
    if not modules:
        return _Fetched()
    start = time.monotonic()
    store = session.store
    taken: dict[str, _Taken] = {}
    damaged: dict[str, str] = {}
    keys: dict[str, str] = {}
    try:
        sweep_partials(store.layout)
        with store.workspace() as workspace, remote.call() as storage:
            said = vouched(storage, looked.revision, modules)
            files = ModuleFiles(store, storage, looked.revision, said, workspace, how=looked.origin.how)
            files.bring(entry for found in modules.values() for entry in found.values())
            for name, found in modules.items():
                try:
                    taken[name] = _judged(name, {file: files.file(entry) for file, entry in found.items()})
                except RefusedError as error:
                    damaged[name] = str(error)
            untrusted = not_used(store, [one.module for one in taken.values()])
            taken = {name: one for name, one in taken.items() if name not in untrusted}
            for compiler in sorted({name.partition("/")[0] for name in taken}):
                of_it = [one for name, one in taken.items() if _in(name, compiler)]
                brought = {file.sha256: file for one in of_it for file in one.files if not file.stored}
                record = record_of(
                    registry.of_directory(compiler),
                    compiler,
                    [one.module for one in of_it],
                    graphs=sum(one.graphs for one in of_it),
                    files=[file.path for file in brought.values()],
                )
                store.publish(
                    record,
                    {sha256: file.path for sha256, file in brought.items()},
                    {sha256: file.pieces for sha256, file in brought.items()},
                    beside=beside_found(store, record, looked.origin),
                )
                keys[compiler] = record.key
            files.forget()
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    seconds = round(time.monotonic() - start, 3)
    session.journal.emit(
        "pull.modules",
        remote=remote.name,
        modules=sorted(taken),
        refused=damaged | untrusted,
        files=files.count,
        bytes=files.size,
        seconds=seconds,
    )
    outcomes = {}
    for name in taken:
        key, found = keys[name.partition("/")[0]], modules[name]
        outcomes[name] = Outcome(name, "fetched", key, remote.name, len(found), _size(found), 0, seconds, (name,))
    return _Fetched(outcomes, damaged, untrusted)


def _judged(name: str, brought: Mapping[str, Fetched]) -> _Taken:
    """The module of files that were fetched; refused where an import would refuse it."""
    module = Module(name, tuple(File(path, one.size, one.sha256) for path, one in sorted(brought.items())))
    try:
        _cache_of(name).check(module)
    except UnsafeArchiveError as error:
        raise RefusedError(str(error)) from error
    found = registry.of_directory(name).judge(module, lambda file: brought[file.path].path)
    if reason := found.harm or found.oddity:
        raise RefusedError(reason)
    return _Taken(module, found.graphs, tuple(brought.values()))
