"""Check the store, and where that is wanted repair what is bad: `cachekit verify`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec import structs

from cachekit.compilers.neuron import facts, native, neff
from cachekit.compilers.neuron.fit import claim, misfit
from cachekit.compilers.neuron.flags import read_flags
from cachekit.compilers.neuron.native_check import examine
from cachekit.store.layout import Layout
from cachekit.store.record import File, Module
from cachekit.store.verify import Examine, Verified
from cachekit.store.verify import verify as look
from cachekit.verbs.repair import repair as mend
from cachekit.verbs.session import Session


def verify(session: Session, *, quick: bool = False, repair: bool = False) -> Verified:
    """Check records, blobs and compiled graphs, and repair what can be repaired.

    Args:
        session: Collaborators.
        quick: Only look which files there are, and how large they are.
        repair: Bring back what is bad from the shared caches.

    Raises:
        StoreError: The store cannot be read; or written, to repair.
    """
    examine = Graphs(session.store.layout).of
    found = look(session.store, session.config.live_dir, "there" if quick else "digest", examine)
    if not repair:
        return found
    problems = mend(session, found.problems, examine) if found.problems else ()  # else nothing is written
    return structs.replace(found, repair=True, problems=problems)


class Graphs:
    """Looks into compiled graphs.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def of(self, directory: str) -> Examine | None:
        """What looks into the graphs of a compiler's directory."""
        return self._graph if native.is_neurons(directory) else None

    def _graph(self, module: Module, file: File, path: Path) -> tuple[str, bool]:
        if native.is_name(module.name):
            with suppress(OSError):  # gone meanwhile
                found = examine(path, module.name.partition("/")[0])
                return found.harm or found.oddity, bool(found.harm)
            return "", False
        if file.path != facts.NEFF:
            return "", False
        try:
            whole = neff.read(path, leaks=False)
        except neff.NeffError as error:
            return error.reason, error.damaged
        except OSError:
            return "", False  # gone meanwhile
        compiler, _, name = module.name.partition("/")
        flags = next((file for file in module.files if file.path == facts.FLAGS_FILE), None)
        words = read_flags(self._layout.blob(flags.sha256)) if flags else None
        return misfit(whole, claim(compiler, name, words)) or "", True
