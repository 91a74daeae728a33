"""The declaration of a compile cache that is a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct


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
