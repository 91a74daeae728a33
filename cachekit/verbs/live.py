"""A live root for one run, filled from a record: private and gone afterwards, or the compiler's own on this host.

Where the compiler allows it each run has its own, so runs side by side never mix what they harvest, no compiler ever
writes to a file of the store, and a run that is killed leaves nothing that a later one could mistake for a finished
module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cachekit.compilers import Restored
from cachekit.errors import IntegrityError, StoreError
from cachekit.events import bypass
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import Record
from cachekit.store.scratch import Scratch
from cachekit.verbs.session import Session, temporary_home


@dataclass(frozen=True, slots=True)
class LiveRoot:
    """Where the compiler looks and writes in this run.

    Attributes:
        tree: The compiler's own folder.
        work: A folder beside it for the job's files.
        before: The finished files that were restored.
        restored_bytes: Their size.
        restored: The record's modules by name, each with the reason why it was left out; empty where it is there.
        written: Of these, the ones that were put there now: others lay there already.
    """

    tree: Path
    work: Path
    before: frozenset[str]
    restored_bytes: int
    restored: Mapping[str, str] = field(default_factory=dict)
    written: frozenset[str] = frozenset()


@contextmanager
def live_root(session: Session, key: str, record: Record | None, shared: Path | None = None) -> Iterator[LiveRoot]:
    """Make a live root, filled from `record` if there is one.

    Args:
        session: Collaborators.
        key: For the folder's name.
        record: What to restore.
        shared: The compiler's own folder on this host, which stays; else one that is gone afterwards.

    Raises:
        IntegrityError: A blob of the record is damaged. It has been set aside; nothing of it was used.
        StoreError: The live root cannot be written: disk full, no permission in the temporary folder either.
    """
    with ExitStack() as stack:
        if record is not None:
            session.store.keep(record)  # also one that is reused
        folder = _enter(session, key, stack)
        tree, work = shared or folder / "root", folder / "work"
        restored: dict[str, Restored] = {}
        try:
            tree.mkdir(parents=True, exist_ok=True)
            work.mkdir()
            if shared is not None:
                session.compiler.make_way(tree, partial(_tell, session))
            for module in record.modules if record else ():
                with ExitStack() as reading:
                    files = [reading.enter_context(session.store.reading(file)) for file in module.files]
                    try:
                        restored[module.name] = session.compiler.restore(module, files, tree)
                    except UnsafeArchiveError as error:
                        raise IntegrityError(
                            f"{module.name} cannot be restored", cause=str(error), hint="warm again with --recache"
                        ) from error
        except OSError as error:
            raise StoreError(
                f"the live root in {shared or folder.parent} cannot be written",
                cause=error.strerror or str(error),
                hint="free some space, or set CACHEKIT_LIVE_DIR to another local disk",
            ) from error
        for name, one in restored.items():
            if one.left:
                session.journal.emit("restore.left", module=name, reason=one.left)
                bypass(session.journal, "module-left", name)
        written, reasons = sum(one.size for one in restored.values()), {n: one.left for n, one in restored.items()}
        put = frozenset(name for name, one in restored.items() if one.size and not one.left)
        yield LiveRoot(tree, work, session.compiler.contents(tree), written, reasons, put)


def _tell(session: Session, event: dict[str, Any]) -> None:
    session.journal.emit(f"worker.{event.pop('event', 'unknown')}", **event)


def _enter(session: Session, key: str, stack: ExitStack) -> Path:
    problem: OSError | None = None
    for base in (session.config.live_dir, temporary_home() / "live"):
        try:
            return stack.enter_context(Scratch(base, key[:16]))
        except OSError as error:
            if problem is None:
                bypass(session.journal, "live-root-unusable", f"{base}: {error.strerror or error}")
            problem = problem or error
    assert problem is not None
    raise StoreError(
        f"no live root can be made in {session.config.live_dir}",
        cause=problem.strerror or str(problem),
        hint="set CACHEKIT_LIVE_DIR to a writable local folder",
    )
