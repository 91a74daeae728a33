"""Fetch modules of Neuron's by their names, without a record: from a cache that optimum-neuron or a copy filled.

Only finished modules are taken, and archives of TorchNeuron's whose graphs are whole; they become records as an import
makes them. Where a record of the cache names a
file, that vouches for its bytes; elsewhere the digest that the cache knows, and the NEFF's own. What is small and the
same in hundreds of modules (flags, the empty mark) comes once. An interrupted run is gone on with.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from cachekit.compilers.neuron import entries as neuron_entries
from cachekit.compilers.neuron import facts, native
from cachekit.compilers.neuron.fit import Check, claim
from cachekit.compilers.neuron.flags import read_flags
from cachekit.compilers.neuron.modules import check_module, unfit
from cachekit.compilers.neuron.native_check import examine
from cachekit.errors import AuthError, IntegrityError, RemoteError, UsageError
from cachekit.remotes.port import Entry
from cachekit.remotes.remote import Remote
from cachekit.store.durable import store_error
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.record import File, Module
from cachekit.verbs.module_files import Brought, ModuleFiles, RefusedError, vouched
from cachekit.verbs.neuron_import import known_modules, record_of
from cachekit.verbs.pull import NATIVE
from cachekit.verbs.pull_recipes import Outcome
from cachekit.verbs.session import Session, holding

LARGEST = 64 << 30  # bytes of one file
_FOLDER = re.compile(rf"{re.escape(native.PREFIX)}(?!.*\.\.){native.VERSION.pattern}")
_ARCHIVE = re.compile(rf"{_FOLDER.pattern}/[0-9a-f]{{64}}\.tar")
ASKED = (*sorted(facts.MODULE_FILES), facts.FAILURE_LOG, *(name + facts.LOCK_SUFFIX for name in facts.HLO_FILES))
_Files = Mapping[str, Entry]  # a module's, by name


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a cache has: finished modules, and why the others are left."""

    revision: str
    modules: Mapping[str, _Files]
    left: Mapping[str, str]


@holding
def pull_modules(
    session: Session, names: Sequence[str], folder: str, check: Check, *, dry_run: bool = False
) -> list[Outcome]:
    """Fetch modules, each from the nearest shared cache that has it finished.

    Args:
        session: Collaborators.
        names: Modules, `neuronxcc-<version>/MODULE_<graph>+<flags>` or `torchneuron-<version>/<sha256>.tar`.
        folder: A compiler's folder: all its modules.
        check: Judges each NEFF.
        dry_run: Only say what would be fetched.

    Returns:
        One for each name; for the folder one for each cache that it was fetched from. One that is damaged or not
        finished is left, with the reason.

    Raises:
        UsageError: A name is none of a module, or a folder none of a compiler.
        RemoteError, AuthError: Something was not found, and a cache could not be asked. What arrived is kept.
        IntegrityError: A module that was named is not what the cache says it is. The others are in the store.
        StoreError: The store cannot be written.
    """
    _check_names(names, folder)
    known = known_modules(session.store)
    outcomes = {name: Outcome(name, "present", "") for name in names if name in known}
    sweeping: list[Outcome] = []
    left: dict[str, str] = {}
    damaged: dict[str, str] = {}
    seen: set[str] = set()
    had = 0  # bytes
    for remote in session.chain.readable:
        missing = [name for name in dict.fromkeys(names) if name not in outcomes]
        if not (missing or folder):
            break
        try:
            remote.retry()
            looked = _look(remote, missing, folder)
            fresh = {name: files for name, files in looked.modules.items() if name not in known | seen}
            had += sum(_size(files) for name, files in looked.modules.items() if name in known and _in(name, folder))
            done, refused = (_pretend if dry_run else _fetch)(session, remote, looked.revision, fresh, check)
        except (RemoteError, AuthError) as error:
            session.chain.failed(remote, error)
            continue
        left |= {**looked.left, **refused}
        damaged |= refused
        seen |= done.keys()
        outcomes |= {name: done[name] for name in missing if name in done}
        swept = [one for name, one in done.items() if _in(name, folder) and name not in names]
        sweeping += [_sum(folder, swept, had)] if swept else []
    left = {name: reason for name, reason in left.items() if name not in seen and name not in known}
    for name in names:
        if name in damaged and name in left:
            raise IntegrityError(f"{name} is not to be used", cause=left[name], hint="compile it anew, and push it")
        outcomes.setdefault(name, Outcome(name, "absent", "", left={name: left[name]} if name in left else {}))
    found = [outcomes[name] for name in dict.fromkeys(names)]
    if folder:
        rest = {name: reason for name, reason in left.items() if _in(name, folder) and name not in names}
        state = sweeping[0].state if sweeping else "present" if had else "absent"
        sweeping = sweeping or [Outcome(folder, state, "", present=had)]
        found += [*sweeping[:-1], replace(sweeping[-1], left=rest)]
    if any(one.state == "absent" and not one.left for one in found):
        session.chain.raise_failure()
    return found


def _check_names(names: Sequence[str], folder: str) -> None:
    for name in names:
        compiler, _, module = name.partition("/")
        if not (
            _ARCHIVE.fullmatch(name)
            or (facts.COMPILER_DIRECTORY.fullmatch(compiler) and facts.MODULE_DIRECTORY.fullmatch(module))
        ):
            raise UsageError(
                f"{name!r} is no module of Neuron's",
                hint="name it as neuronxcc-2.26.6360.0+6f180f47/MODULE_14529842170341812+f7f529f3",
            )
    if folder and not (facts.COMPILER_DIRECTORY.fullmatch(folder) or _FOLDER.fullmatch(folder)):
        raise UsageError(
            f"{folder!r} is no compiler's folder",
            hint="name it as neuronxcc-2.26.6360.0+6f180f47, or torchneuron-2.28.7631.0",
        )


def _in(name: str, folder: str) -> bool:
    return bool(folder) and name.startswith(f"{folder}/")


def _size(files: _Files) -> int:
    return sum(entry.size for entry in files.values())


def _sum(folder: str, done: Sequence[Outcome], present: int) -> Outcome:
    first = done[0]
    files, size = sum(one.files for one in done), sum(one.size for one in done)
    modules = tuple(one.name for one in done)
    return Outcome(folder, first.state, first.key, first.tier, files, size, present, first.seconds, modules)


# What a cache has


def _look(remote: Remote, names: Sequence[str], folder: str) -> _Looked:
    revision = remote.revision()
    with remote.call() as tier:
        paths = [path for name in names for path in ([name] if native.is_name(name) else _files(name))]
        found = tier.stat(paths, revision) if paths else {}
        if folder:
            found |= {entry.path: entry for entry in tier.list(folder, revision)}
    modules: dict[str, dict[str, Entry]] = {}
    for path, entry in found.items():
        parts = PurePosixPath(path).parts
        if _ARCHIVE.fullmatch(path):
            modules[path] = {parts[1]: entry}
        elif len(parts) == 3 and facts.MODULE_DIRECTORY.fullmatch(parts[1]):  # noqa: PLR2004 - compiler, module, file
            modules.setdefault("/".join(parts[:2]), {})[parts[2]] = entry
    left = {name: reason for name, files in modules.items() if (reason := _unfit(name, files, revision))}
    whole = {
        name: {file: entry for file, entry in files.items() if file in facts.MODULE_FILES or native.is_name(name)}
        for name, files in sorted(modules.items())
        if name not in left
    }
    return _Looked(revision, whole, left)


def _files(name: str) -> list[str]:
    return [f"{name}/{file}" for file in ASKED]


def _unfit(name: str, files: _Files, revision: str) -> str:
    """Why a module is left; empty where it is finished, as optimum-neuron judges that.

    A push of optimum-neuron's deletes nothing: a lock or a log that an earlier push took along stays beside what was
    finished since. Where a cache has versions nobody compiles in it, and such a lock means nothing.
    """
    if any(entry.size > LARGEST for entry in files.values()):
        return "a file of it is too large to be one"
    if native.is_name(name):
        return ""
    names = tuple(file for file in sorted(files) if not (revision and file.endswith(facts.LOCK_SUFFIX)))
    state = neuron_entries.classify(names)
    if state == "empty" and len(names) < len(files):
        return "a compile was at work when it was pushed"
    compiler, _, module = name.partition("/")
    return unfit(neuron_entries.Entry(compiler, module, name, state, names))


def _pretend(
    _: Session, remote: Remote, __: str, modules: Mapping[str, _Files], ___: Check
) -> tuple[dict[str, Outcome], dict[str, str]]:
    would = {
        name: Outcome(name, "would-fetch", "", remote.name, len(files), _size(files), modules=(name,))
        for name, files in modules.items()
    }
    return would, {}


# Fetching


def _fetch(
    session: Session, remote: Remote, revision: str, modules: Mapping[str, _Files], check: Check
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Fetch modules and publish them; what became of each, and why others are refused."""
    start = time.monotonic()
    store = session.store
    taken: dict[str, Mapping[str, Brought]] = {}
    refused: dict[str, str] = {}
    keys: dict[str, str] = {}
    graphs: dict[str, int] = {}
    if not modules:
        return {}, {}
    try:
        sweep_partials(store.layout)
        with store.workspace() as workspace, remote.call() as tier:
            files = ModuleFiles(session, tier, revision, vouched(tier, revision, modules), workspace)
            files.bring(entry for found in modules.values() for entry in found.values())
            for name, found in modules.items():
                try:
                    taken[name] = {file: files.file(entry) for file, entry in found.items()}
                    graphs[name] = _judge(name, taken[name], check)
                except RefusedError as error:
                    taken.pop(name, None)
                    refused[name] = str(error)
            published: set[str] = set()
            for compiler in sorted({name.partition("/")[0] for name in taken}):
                made = {name: brought for name, brought in taken.items() if _in(name, compiler)}
                fresh = {
                    one.sha256: one
                    for brought in made.values()
                    for one in brought.values()
                    if not one.stored and one.sha256 not in published
                }
                found_modules = [_module(name, brought) for name, brought in made.items()]
                own = (
                    {"name": NATIVE, "version": compiler.removeprefix(native.PREFIX)}
                    if _FOLDER.fullmatch(compiler)
                    else {}
                )
                record = record_of(compiler, found_modules, **own, graphs=sum(graphs[name] for name in made))
                store.publish(
                    record,
                    {sha256: one.path for sha256, one in fresh.items()},
                    {sha256: one.pieces for sha256, one in fresh.items() if one.pieces},
                )
                published |= fresh.keys()
                keys[compiler] = record.key
            files.forget()
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    seconds = time.monotonic() - start
    session.journal.emit(
        "pull.modules",
        tier=remote.name,
        modules=sorted(taken),
        refused=refused,
        files=files.count,
        bytes=files.size,
        seconds=round(seconds, 3),
    )
    done = {}
    for name, found in modules.items():
        if name in taken:
            key = keys[name.partition("/")[0]]
            size = _size(found)
            done[name] = Outcome(name, "fetched", key, remote.name, len(found), size, 0, seconds, (name,))
    return done, refused


def _module(name: str, brought: Mapping[str, Brought]) -> Module:
    module = Module(name, tuple(File(path, one.size, one.sha256) for path, one in sorted(brought.items())))
    if not native.is_name(name):
        check_module(module)
    return module


def _judge(name: str, brought: Mapping[str, Brought], check: Check) -> int:
    """Refuse a NEFF that is not fit, as an import does; how many graphs there are."""
    compiler, _, module = name.partition("/")
    if native.is_name(name):
        (packed,) = brought.values()
        if f"{packed.sha256}.tar" != module:
            raise RefusedError("its bytes are not those that it is called after")
        found = examine(packed.path, compiler)
        if found.flaws:
            raise RefusedError(found.harm or found.oddity)
        return found.graphs
    flags = brought.get(facts.FLAGS_FILE)
    said = claim(compiler, module, read_flags(flags.path) if flags else None)
    if problem := check(brought[facts.NEFF].path, said):
        raise RefusedError(f"{facts.NEFF} cannot be used: {problem}")
    return 1
