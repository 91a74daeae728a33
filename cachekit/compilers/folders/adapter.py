"""What is known of a declared cache without a machine. Loaded at every start: what it needs is imported in methods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cachekit import host
from cachekit.compilers.adapter import Adapter
from cachekit.compilers.folders.declaration import Declaration
from cachekit.compilers.port import Compiler, Node
from cachekit.config import Config
from cachekit.health import Check, Finding
from cachekit.store.archive import Stored
from cachekit.store.leaks import Leaks, Scanner, of_archive
from cachekit.store.record import File


class FolderAdapter(Adapter):
    """The adapter of a declared cache. It attends users' commands, and trains no recipe."""

    def __init__(self, declared: Declaration) -> None:
        self.declared = declared
        self.name, self.prefix = declared.name, declared.prefix

    def attends(self, imports: Callable[[], Collection[str]]) -> bool:
        """A command whose code imports what the declaration names, if the compiler is installed."""
        return bool(host.optional_version(self.declared.package)) and not self.declared.imports.isdisjoint(imports())

    def open(self, node: Node | None = None) -> Compiler:
        from cachekit.compilers.folders.compiler import FolderCompiler

        return FolderCompiler(self.declared)

    def checks(self) -> Sequence[Check]:
        """If the compiler is installed: can its hits be counted?"""
        return (Check(self.name, self._look),) if host.optional_version(self.declared.package) else ()

    def _look(self, config: Config) -> Iterator[Finding]:
        from cachekit.compilers.tree_watch import UNCOUNTED, keeps_access_times
        from cachekit.disk import existing

        said = f"{self.declared.package} {host.optional_version(self.declared.package)}: for `cachekit run`"
        if keeps_access_times(existing(config.compiler_cache_dir)):
            yield Finding("ok", said)
        else:
            repair = "set CACHEKIT_COMPILER_CACHE_DIR to a folder that is not mounted with noatime"
            yield Finding("problem", UNCOUNTED, repair)

    def leaks(self, file: File, path: Path, *, archive: bool) -> Leaks:
        """What the entries of an archive would tell; each may be packed."""
        if not archive or not self.declared.packed:
            return super().leaks(file, path, archive=archive)

        def unpacked(stored: Stored) -> Leaks:
            from cachekit.compilers.folders import stream

            scanner = Scanner()
            with suppress(OSError), path.open("rb") as raw:
                try:
                    raw.seek(stored.offset)
                    size = sum(map(len, stream.unpack(raw, stored.size)))
                    raw.seek(stored.offset)
                    scanner.body(stored.name, size, stream.unpack(raw, stored.size))
                except stream.BrokenStreamError:
                    scanner.stopped()
            return scanner.leaks()

        return of_archive(path, lambda stored: unpacked(stored) if stored.name.endswith(self.declared.entry) else None)
