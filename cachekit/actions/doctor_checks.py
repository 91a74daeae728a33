"""What `cachekit doctor` looks at on any host."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cachekit.actions.doctor import Check, Finding
from cachekit.compilers.inductor import host as inductor
from cachekit.compilers.neuron import facts, host, locks
from cachekit.compilers.neuron.entries import Entry, scan
from cachekit.compilers.neuron.failures import classify
from cachekit.compilers.neuron.mounts import file_system
from cachekit.compilers.neuron.root import Root, resolve
from cachekit.config import Config
from cachekit.errors import INSTALL

TRAINING = ("torch", "transformers", "accelerate", "datasets", "scikit-learn")  # the extra `train`
HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    look: Callable[[Config], Iterable[Finding]]

    def __call__(self, config: Config) -> Iterable[Finding]:
        return self.look(config)


def _packages(_: Config) -> Iterator[Finding]:
    """PyPI's placeholders install, and fail on import."""
    found = host.versions()
    if wrong := host.placeholders(found):
        names = ", ".join(f"{name} {found[name]}" for name in wrong)
        run = f"pip uninstall -y {' '.join(wrong)} && {host.INSTALL}"
        yield Finding("problem", f"{names}: empty placeholders from PyPI", run=run)
    elif empty := host.without_code(found):
        run = f"pip uninstall -y {' '.join(empty)} && {host.INSTALL}"
        yield Finding("problem", f"{', '.join(empty)}: installed by name only, there is no code", run=run)
    elif host.available():
        yield Finding("ok", ", ".join(f"{name} {found[name]}" for name in host.REQUIRED))
    elif some := [name for name in host.REQUIRED if name in found]:
        missing = [name for name in host.REQUIRED if name not in found]
        yield Finding("problem", f"{', '.join(some)} without {', '.join(missing)}", run=host.INSTALL)
    else:
        yield Finding("ok", "no Neuron packages: the compiler is PyTorch's Inductor")


def _training(_: Config) -> Iterator[Finding]:
    """What the training worker imports, whichever compiler it has."""
    found = {name: inductor.optional_version(name) for name in TRAINING}
    if missing := [name for name, version in found.items() if not version]:
        verb = "is" if len(missing) == 1 else "are"
        yield Finding("problem", f"{', '.join(missing)} {verb} not installed: nothing can train here", INSTALL)
    else:
        yield Finding("ok", ", ".join(f"{name} {version}" for name, version in found.items()))


def _root(_: Config) -> Iterator[Finding]:
    """Where Neuron's cache is, and what is wrong with the place."""
    root = resolve()
    if root.origin == "default" and not host.available() and not _is_folder(root):
        yield Finding("ok", "no Neuron cache on this host")
        return
    if not root.warnings:
        yield Finding("ok", f"{root.path or root.url} ({root.origin})")
    mend = f"see `cachekit env`; {facts.CC_FLAGS} and {facts.CACHE_URL} say where it is"
    for warning in root.warnings:
        yield Finding("problem", warning, mend)


def _locks(_: Config) -> Iterator[Finding]:
    """Locks without an owner: whoever meets one waits for ever."""
    entries = _entries()
    findings = locks.examine(entries)
    live = sum(finding.verdict == "live" for finding in findings)
    if live == len(findings):
        yield Finding("ok", f"{len(entries)} modules, {live} compiling" if live else f"{len(entries)} modules, no lock")
    for finding in findings:
        lock = finding.lock
        words = f"{lock.entry.name}: lock of {_age(lock.age)}"
        if finding.verdict == "stale":
            yield Finding("problem", f"{words}, stale: {finding.reason}", run=_remove(lock.path))
        elif finding.verdict == "maybe":
            yield Finding("problem", f"{words}, perhaps stale: {finding.reason}", finding.advice)


def _failures(_: Config) -> Iterator[Finding]:
    """Failures that Neuron remembers: such a graph is never compiled again."""
    entries = _entries()
    found = locks.poisoned(entries)
    if not found:
        yield Finding("ok", f"{len(entries)} modules, no remembered failure")
    for one in found:
        failure = classify(one.text)
        said = failure.message or next(iter(one.excerpt), "its log is empty")
        mend = "" if failure.clearable else f"{failure.advice}; to compile it again all the same:"
        words = f"{one.entry.name}: failed {_age(one.age)} ago, {failure.kind.name}: {said}"
        yield Finding("problem", words, mend, _remove(one.log))


def _folders(config: Config) -> Iterator[Finding]:
    """Live roots must be on a local disk."""
    system = file_system(config.live_dir)
    if system.network:
        mend = "set CACHEKIT_LIVE_DIR to a folder on a local disk"
        yield Finding("problem", f"{config.live_dir} lies on {system.network}: compilers need a local disk", mend)
    else:
        yield Finding("ok", f"{config.live_dir}{f' ({system.kind})' if system.kind else ''}")


def _cxx(_: Config) -> Iterator[Finding]:
    """Inductor builds its CPU kernels with a C++ compiler; where Neuron compiles, nothing needs one."""
    if host.available():
        yield Finding("ok", "not needed: neuronx-cc compiles here")
    else:
        name, path = inductor.cxx()
        yield Finding("ok", f"{name} {inductor.cxx_version(name, path)}")


def _entries() -> Sequence[Entry]:
    root = resolve().path
    try:
        return scan(root).entries if root else ()
    except FileNotFoundError:
        return ()


def _is_folder(root: Root) -> bool:
    return root.path is not None and Path(root.path).is_dir()


def _remove(path: Path) -> str:
    return f"rm {shlex.quote(str(path))}"


def _age(seconds: float) -> str:
    if seconds < HOUR:
        return f"{max(seconds, 0) / 60:.0f} minutes"
    return f"{seconds / HOUR:.0f} hours" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"


# The order is that of the screen. To add a check, add it here.
CHECKS: tuple[Check, ...] = (
    _Check("training", _training),
    _Check("neuron-packages", _packages),
    _Check("neuron-root", _root),
    _Check("neuron-locks", _locks),
    _Check("neuron-failures", _failures),
    _Check("live-folder", _folders),
    _Check("c++-compiler", _cxx),
)
