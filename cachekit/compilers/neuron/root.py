"""Where torch-neuronx keeps its cache: AWS's order, and what is wrong with the place.

The order is `--cache_dir` in NEURON_CC_FLAGS, then NEURON_COMPILE_CACHE_URL, then the default (`facts`). Peers read
only one of the two, so both should name the same folder, and one that they can read.
"""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from cachekit import redact
from cachekit.compilers.adapter import CachePlace
from cachekit.compilers.neuron import facts, flags
from cachekit.compilers.neuron.entries import belongs
from cachekit.disk import UNKNOWN, FileSystem, file_system, file_url
from cachekit.files import entries
from cachekit.text import cause_of
from cachekit.whose import outsider


def work_folder() -> Path:
    """Where a compile works, below a folder of the user's name [LOG: FIELD]; the graph is copied from there."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "no-user"  # as Neuron has it
    return Path(tempfile.gettempdir(), user)


def stranger(root: Path) -> str:
    """Why somebody else made, or can change, what lies in a root: a sentence without a full stop; empty where nobody.

    Looked at are the compilers' folders, the modules in them, and the files of these, whatever the root's own mode says
    by now: it may have been open to everybody before.
    """
    for compiler in entries(root):
        if facts.COMPILER_DIRECTORY.fullmatch(compiler.name):
            for module in entries(compiler.path):
                if module.name.startswith(facts.MODULE_PREFIX):
                    files = (file for file in entries(module.path) if belongs(file.name))
                    for entry in (module, *files):
                        if why := _stranger(entry):
                            return why
            if why := _stranger(compiler):
                return why
    return ""


def _stranger(entry: os.DirEntry[str]) -> str:
    """The same of one of its entries; of a link, and of what that leads to."""
    try:
        state, link = entry.stat(), entry.is_symlink()
        if link and entry.stat(follow_symlinks=False).st_uid not in {0, os.geteuid()}:
            return f"{entry.path} is a link that another user made"
        if state.st_uid in {0, os.geteuid()} and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return ""  # as almost all; an access list that lets somebody write shows in the group's bits
        handle = os.open(entry.path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC)
        try:
            return outsider(handle, Path(entry.path))
        finally:
            os.close(handle)
    except FileNotFoundError:
        return ""  # gone meanwhile, or a link that leads nowhere
    except OSError as error:
        return f"{entry.path} cannot be looked at: {cause_of(error)}"


def resolve(
    environ: Mapping[str, str] | None = None, *, cwd: Path | None = None, mounts: str | None = None
) -> CachePlace:
    """Find the compiler cache dir as AWS's wrapper does; `cwd` is what a relative path starts at."""
    environ = os.environ if environ is None else environ
    words, problem = flags.split(environ.get(facts.CC_FLAGS, ""))
    warnings = [f"{facts.CC_FLAGS}: {problem}"] if problem else []
    said, caching, more = _options(words)
    warnings += more
    variable = environ.get(facts.CACHE_URL, "")
    origin, url = "default", facts.DEFAULT_ROOT
    if said:
        origin, url = f"{facts.CC_FLAGS} {facts.CACHE_DIR_FLAG}", said
    elif variable:
        origin, url = facts.CACHE_URL, variable
    path, more = local_path(url, cwd)
    warnings += more
    if said and variable and (path or url) != (local_path(variable, cwd)[0] or variable):
        both = (redact.address(said), redact.address(variable))
        warnings.append(
            f"{facts.CC_FLAGS} says {facts.CACHE_DIR_FLAG} {both[0]} and {facts.CACHE_URL} says {both[1]}: "
            f"the flag wins, but other tools read the variable; let both name the same folder"
        )
    if not caching:
        warnings.append(f"{facts.CC_FLAGS} has {facts.NO_CACHE_FLAG}: nothing is looked up and nothing is kept")
    if path is None:
        return CachePlace(redact.address(url), None, origin, caching, False, UNKNOWN.kind, tuple(warnings))
    system = file_system(path, mounts)
    warnings += _about(path, system)
    return CachePlace(url, path, origin, caching, path.is_dir(), system.kind, tuple(warnings))


def resolve_native(environ: Mapping[str, str] | None = None, *, mounts: str | None = None) -> CachePlace:
    """Find the folder where TorchNeuron keeps its graphs."""
    environ = os.environ if environ is None else environ
    said = environ.get(facts.NATIVE_ROOT_VARIABLE, "")
    url = said or facts.NATIVE_DEFAULT_ROOT
    path = Path(url).absolute()
    off = [name for name in facts.NATIVE_DISABLE if environ.get(name) == "1"]
    warnings = [f"{name}=1: nothing is looked up and nothing is kept" for name in off]
    if not Path(url).is_absolute():
        warnings.append(f"{facts.NATIVE_ROOT_VARIABLE}={url} depends on the folder that a run starts in: {path} here")
    if path.exists() and not path.is_dir():
        warnings.append(f"{path} is not a folder")
    origin = facts.NATIVE_ROOT_VARIABLE if said else "default"
    return CachePlace(url, path, origin, not off, path.is_dir(), file_system(path, mounts).kind, tuple(warnings))


def _options(words: list[str]) -> tuple[str, bool, list[str]]:
    """The folder that the flags name, whether the cache is on, and warnings."""
    others, taken = flags.wrappers(words)
    said = [(value, spelled) for name, value, spelled in taken if name == facts.CACHE_DIR_FLAG]
    folder, warnings = "", []
    for value, spelled in said:
        if value and (len(spelled) == 1 or not value.startswith("-")):
            folder = value
        else:
            warnings.append(f"{facts.CC_FLAGS}: {facts.CACHE_DIR_FLAG} names no folder")
    if len(said) > 1:
        warnings.append(f"{facts.CC_FLAGS}: {facts.CACHE_DIR_FLAG} appears {len(said)} times; the last one counts")
    for word in others:
        name = word.partition("=")[0]
        if name in facts.MISSPELLED_OPTIONS:
            warnings.append(f"{facts.CC_FLAGS}: {name} means nothing to Neuron; write {facts.MISSPELLED_OPTIONS[name]}")
    return folder, all(name != facts.NO_CACHE_FLAG for name, _, _ in taken), warnings


def local_path(url: str, cwd: Path | None = None) -> tuple[Path | None, list[str]]:
    """A cache's URL (a plain path, `file:///path`, `s3://…`) as a local folder or None, with warnings about it."""
    scheme, separator, rest = url.partition("://")
    warnings: list[str] = []
    if separator and scheme.lower() == "file":
        host = urlsplit(url).netloc
        url = str(file_url(url))
        if host not in {"", "localhost"}:
            warnings.append(f"file://{rest} names a host; it is taken for file://{url}: write three slashes")
    elif separator:
        if scheme.lower() == facts.BUCKET_SCHEME:
            shown = redact.address(url)
            return None, [
                f"{shown} is a bucket and not a local folder: use it as a remote, and a local disk as the cache dir"
            ]
        return None, [f"{scheme}:// is not a place that Neuron's documentation knows"]
    if url.startswith("~"):
        warnings.append(f"{url}: nothing expands ~ here; write the full path")
    path = Path(url)
    if not path.is_absolute():
        path = (cwd or Path.cwd()) / path
        warnings.append(f"{url} is relative: each working directory has its own cache")
    return Path(os.path.normpath(path)), warnings


def _about(path: Path, system: FileSystem) -> list[str]:
    warnings = []
    if not facts.PEER_PATH.fullmatch(str(path)):
        odd = facts.PEER_PATH.sub("", str(path))[0]
        what = "a dot" if odd == "." else f"{odd!r}"
        cut = facts.PEER_PATH.match(str(path))
        warnings.append(
            f"{path} has {what} in it: optimum-neuron cuts such a path off there and uses {cut[0] if cut else 'none'}"
        )
    if system.network:
        warnings.append(
            f"{path} is on {system.network}: AWS warns of damaged caches there; use a local disk and pull to it"
        )
    if path.exists() and not path.is_dir():
        warnings.append(f"{path} is not a folder")
    return warnings
