"""The declaration of a compile cache that is a folder, and what is known of one without a machine.

Loaded at every start: what it needs is imported in methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from cachekit import host
from cachekit.compilers.adapter import Adapter
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
        from cachekit.compilers.tree import UNCOUNTED, keeps_access_times
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
            from cachekit.compilers.folders import compiler

            scanner = Scanner()
            with suppress(OSError), path.open("rb") as raw:
                try:
                    raw.seek(stored.offset)
                    size = sum(map(len, compiler.unpack(raw, stored.size)))
                    raw.seek(stored.offset)
                    scanner.body(stored.name, size, compiler.unpack(raw, stored.size))
                except compiler.BrokenStreamError:
                    scanner.stopped()
            return scanner.leaks()

        return of_archive(path, lambda stored: unpacked(stored) if stored.name.endswith(self.declared.entry) else None)


class Declaration(Struct, frozen=True, kw_only=True):
    """A compile cache in a folder that a variable names, whose finished entries are known by their names.

    Attributes:
        name: As records and `--compiler` have it.
        package: The package without which there is no such compiler. Its version names the folder of records.
        install: The command that installs the package.
        imports: Modules that a command's code imports if it is for this compiler.
        toolchain: Other packages whose versions shape what is compiled, if they are installed.
        gpu: Packages that bring a GPU: if one of them is installed, the GPU is an ingredient.
        soft: Packages whose versions are only written down.
        variable: Names the folder, which must be on this host.
        set: Other variables of the command: they make an entry independent of the folder's path, keep small entries,
            and lift what switches the cache off. None unsets one.
        watched: Patterns of variables that shape what is compiled.
        harmless: Patterns of watched variables that do not.
        flags: For a watched variable that holds flags, beginnings of the flags that shape nothing.
        entry: How the name of a finished entry ends. Entries lie in the folder itself, not deeper.
        beside: How the name of a file ends that belongs to the entry of that name, and is read whether or not the entry
            is used; empty if there is none.
        packed: An entry is one stream of zlib or Zstandard, whose end shows that it is whole, whatever ended the
            process that wrote it. Entries that are written in place need this, or something like it.
        seconds: How many bytes at the beginning of an unpacked entry hold what compiling took: whole seconds, the most
            significant byte first. 0 if an entry does not say.
        untouched: What a person should know if a run neither read nor wrote an entry.
        inert: What a person should know if a run of a command finds no entry of those before it, and writes all anew.
    """

    name: str
    package: str
    install: str
    imports: frozenset[str]
    toolchain: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    variable: str
    set: Mapping[str, str | None] = {}
    watched: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    flags: Mapping[str, tuple[str, ...]] = {}
    entry: str
    beside: str = ""
    packed: bool = False
    seconds: int = 0
    untouched: str = ""
    inert: str = ""

    @property
    def prefix(self) -> str:
        """How the folders of its records begin."""
        return f"{self.name}-"

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those of the variables that shape what is compiled, without flags that shape nothing."""
        found = {}
        for name, value in variables.items():
            if _fits(name, self.watched) and not _fits(name, (self.variable, *self.set, *self.harmless)):
                dropped = self.flags.get(name, ())
                found[name] = " ".join(word for word in value.split() if not word.startswith(dropped))
        return {name: value for name, value in found.items() if value}

    def unit(self, path: str) -> str:
        """The entry that a file of the folder belongs to, by its path there; empty if it belongs to none."""
        if "/" in path or path.startswith("."):
            return ""
        if self.beside and path.endswith(self.beside):
            return f"{path.removesuffix(self.beside)}{self.entry}"
        return path if path.endswith(self.entry) else ""


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
