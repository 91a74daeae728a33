"""A compiler cache dir for one run, filled from a record: private and gone afterwards, or the compiler's own here.

If the compiler allows it, each run has its own: runs side by side never mix what they harvest, no compiler ever writes
to a file of the store, and a killed run leaves nothing that a later one could mistake for a finished module.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from cachekit.compilers.port import Compiler, Restored
from cachekit.errors import CachekitError, IntegrityError, StoreError
from cachekit.events import Journal, bypass
from cachekit.private import CLOSED, NotPrivateError, check_temporary, new_folder, private_folder
from cachekit.recipe import Recipe
from cachekit.store import Store, staying
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.durable import Scratch, store_error
from cachekit.store.layout import Place, temporary_folder
from cachekit.store.origin import MADE_HERE, Beside
from cachekit.store.record import Record
from cachekit.text import cause_of

_LEAST = 1 << 20  # bytes that are free: with less no compiler comes far
_MORE_SPACE = "free some space, or set CACHEKIT_COMPILER_CACHE_DIR to a folder on another local disk"


class CacheDir(Struct, frozen=True):
    """Where the compiler looks and writes in this run.

    Attributes:
        tree: The compiler's own folder.
        work: A folder beside it for the job's files.
        before: The finished files that were restored.
        restored_bytes: Their size.
        restored: The record's modules by name, each with the reason why it was left out; empty if it is there.
        written: Those modules that were written now: others lay there already.
        given: The record that was restored, and where it came from at that moment: what the run makes has to say so,
            whatever becomes of the record meanwhile.
    """

    tree: Path
    work: Path
    before: frozenset[str]
    restored_bytes: int
    restored: Mapping[str, str] = {}
    written: frozenset[str] = frozenset()
    given: tuple[tuple[Record, Beside], ...] = ()

    @property
    def shared(self) -> bool:
        """Whether it is the compiler's own folder on this host, where others put their modules meanwhile."""
        return self.tree.parent != self.work.parent


@contextmanager
def cache_dir(
    store: Store,
    compiler: Compiler,
    record: Record | None,
    *,
    key: str,
    base: Path,
    shared: Path | None = None,
    anew: Place | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[CacheDir]:
    """Make a compiler cache dir, filled from `record` if there is one.

    Args:
        store: Has the record.
        compiler: The compiler that works in the folder.
        record: What to restore.
        key: For the folder's name.
        base: Where compiler cache dirs are made.
        shared: The compiler's own folder on this host, which stays; else the folder is gone afterwards.
        anew: Where the record lies that is compiled anew: what came from elsewhere for it is taken out of `shared`.
        variables: Those of the compiler's process, beside the ones of this process.

    Raises:
        IntegrityError: A blob of the record is damaged. It has been set aside; nothing of it was used.
        StoreError: The folder cannot be written: the disk is full, or the temporary folder is not writable either, or
            somebody else can change what lies in both. Or others can change what a compiler writes on its way.
    """
    _check_temporary(variables)
    with ExitStack() as stack:
        given: tuple[tuple[Record, Beside], ...] = ()
        if record is not None:
            store.keep(record)  # also one that is reused
            given = ((record, store.origins.of(record)),)

        def fill(folder: Path) -> dict[str, Restored]:
            (folder / "work").mkdir(CLOSED)
            if shared is None:
                private_folder(folder / "root")
                return _restored(store, compiler, record, folder / "root")
            try:
                if not shared.is_dir():  # the compiler's own is as its owner made it
                    private_folder(shared)
                withdrawn = store.refusal.withdraw(shared, anew)
                for name, reason in withdrawn.items():
                    if reason:
                        store.journal.emit("restore.withdrawn", module=name, reason=reason)
                compiler.make_way(shared, partial(_tell, store.journal), withdrawn)
                for one in given:
                    note_origin(store, shared, *one)
                restored = _restored(store, compiler, record, shared)
                for one in given:  # another run may have withdrawn it meanwhile
                    note_origin(store, shared, *one)
            except OSError as error:
                raise StoreError(
                    f"the compiler cache dir in {shared} cannot be written",
                    cause=cause_of(error),
                    hint=_MORE_SPACE,
                ) from error
            return restored

        folder, restored = _enter(store.journal, base, key, stack, fill, splits=compiler.splits_paths)
        tree, work = shared or folder / "root", folder / "work"
        reasons = {name: one.left for name, one in restored.items()}
        for name, reason in reasons.items():
            if reason:
                store.journal.emit("restore.left", module=name, reason=reason)
                bypass(store.journal, "module-left", name)
        put = frozenset(name for name, one in restored.items() if one.size and not one.left)
        size = sum(one.size for one in restored.values())
        yield CacheDir(tree, work, compiler.contents(tree), size, reasons, put, given)


def _restored(store: Store, compiler: Compiler, record: Record | None, tree: Path) -> dict[str, Restored]:
    restored: dict[str, Restored] = {}
    for module in record.modules if record else ():
        with ExitStack() as reading:
            files = [reading.enter_context(store.reading(file)) for file in module.files]
            try:
                restored[module.name] = compiler.restore(module, files, tree)
            except UnsafeArchiveError as error:
                raise IntegrityError(
                    f"{module.name} cannot be restored", cause=str(error), hint="warm again with --recache"
                ) from error
    return restored


def note_origin(store: Store, tree: Path, record: Record, beside: Beside) -> None:
    """Note that modules from elsewhere are about to stay in a compiler's own folder, if the record came from there.

    A store that cannot be written takes no record of them.

    Raises:
        IntegrityError: The note would be too long to be read again.
        OSError: The folder cannot be written.
        StoreError: The disk is full.
    """
    if beside == MADE_HERE:
        return
    staying.note_there(tree, record, beside)
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(store.workspace())
        except StoreError:
            return
        try:
            staying.note(store.layout, scratch, tree, record, beside)
        except OSError as error:
            raise store_error(store.layout.home, error) from error


def _tell(journal: Journal, event: dict[str, Any]) -> None:
    journal.emit(f"worker.{event.pop('event', 'unknown')}", **event)


def _check_temporary(variables: Mapping[str, str]) -> None:
    try:
        check_temporary(variables)
    except NotPrivateError as error:
        raise StoreError(
            f"the temporary folder {error.filename} is not used: somebody else can change what is there",
            cause=f"a compiler runs what it writes there; {error.standing.why}",
            hint=error.standing.mend or new_folder("TMPDIR"),
        ) from error


def _enter(
    journal: Journal,
    wanted: Path,
    key: str,
    stack: ExitStack,
    fill: Callable[[Path], dict[str, Restored]],
    *,
    splits: bool,
) -> tuple[Path, dict[str, Restored]]:
    """A folder in the wanted one, filled; in the temporary folder, where the wanted one cannot be used or is full."""
    problem: OSError | None = None
    for make in (partial(private_folder, wanted), partial(temporary_folder, "cache_dirs")):
        try:
            with ExitStack() as trying:
                folder = trying.enter_context(Scratch(_whole(make()) if splits else make(), key[:16]))
                _check_space(folder)
                restored = fill(folder)
                stack.push(trying.pop_all())
                return folder, restored
        except OSError as error:
            if problem is None:
                bypass(journal, "cache-dir-unusable", f"{wanted}: {cause_of(error)}")
            problem = problem or error
    assert problem is not None
    closes = problem.standing.mend if isinstance(problem, NotPrivateError) else ""
    space = _MORE_SPACE if problem.errno in {errno.ENOSPC, errno.EDQUOT} else ""
    raise StoreError(
        f"no compiler cache dir can be made in {wanted}",
        cause=cause_of(problem),
        hint=closes or space or new_folder("CACHEKIT_COMPILER_CACHE_DIR"),
    )


def _check_space(folder: Path) -> None:
    usage = shutil.disk_usage(folder)
    if usage.total and usage.free < _LEAST:  # a file system in memory may tell no sizes
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _whole(folder: Path) -> Path:
    """The folder, if a compiler that splits paths can be given it.

    Raises:
        OSError: There is a space in the path.
    """
    if any(map(str.isspace, str(folder))):
        raise OSError(errno.EINVAL, "the C++ compiler reads a path with a space as two paths", str(folder))
    return folder


def own_root(compiler: Compiler, recipe: Recipe, journal: Journal, salt: str = "") -> Path | None:
    """The compiler's own folder on this host, see `Compiler.cache_dir`. An error is noted in the journal as well.

    With a salt of the settings it is another one: what records of before left there is not found either.
    """
    try:
        found = compiler.cache_dir(recipe)
    except CachekitError as error:
        bypass(journal, "cache-dir-unusable", error.message)
        raise
    if found is None or not salt:
        return found
    return found.with_name(f"{found.name}-{hashlib.sha256(salt.encode()).hexdigest()[:12]}")
