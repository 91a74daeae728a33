"""Look for what is wrong with this host's set-up, and say how to repair it: `cachekit doctor`.

To add a check, write it beside those of the room that it is about, and name it in that room's `CHECKS`; what a compiler
alone knows, its adapter looks at (`Adapter.checks`). The checks of the machine and of the Python environment are here.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import structs

from cachekit import host
from cachekit.compilers import registry
from cachekit.compilers.machine import Machine, machine
from cachekit.config import Config, defaults
from cachekit.disk import barred
from cachekit.errors import INSTALL, CachekitError, UsageError
from cachekit.health import STATES, Check, Finding, exposed, full, of_this_environment, trouble
from cachekit.remotes import doctor as remotes
from cachekit.store import doctor as store
from cachekit.store.layout import temporary_home
from cachekit.values import Answer

_log = logging.getLogger(__name__)
TRAINING = ("torch", "transformers", "accelerate", "datasets", "scikit-learn")  # the extra `train`
FILES = 1024  # open at once: a trial run with a few workers for data
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class Diagnosis(Answer, frozen=True, tag="cachekit/doctor/1"):
    """What was found on this host.

    Attributes:
        findings: In the order in which people should see them.
        counts: How many findings are `ok`, `problem` and `unknown`.
        machine: What goes into keys here, and where things lie; None where only findings were asked for.
    """

    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    machine: Machine | None = None

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is wrong."""
        return tuple(finding for finding in self.findings if finding.state == "problem")

    @property
    def good(self) -> bool:
        """Nothing is wrong, as far as it could be looked at."""
        return not self.problems


def examine(load: Callable[[], Config], checks: Sequence[Check]) -> Diagnosis:
    """Look at this machine and run checks, with settings that perhaps cannot be read, which is one more thing to tell.

    Args:
        load: Reads them.
        checks: The checks.
    """
    broken: CachekitError | None = None
    try:
        config = load()
    except CachekitError as error:
        config, broken = defaults(), error
    except OSError as error:
        config, broken = defaults(), UsageError("settings cannot be read", cause=str(error))
    return structs.replace(doctor(config, checks, broken), machine=machine(config))


def doctor(config: Config, checks: Sequence[Check], broken: CachekitError | None = None) -> Diagnosis:
    """Run checks; one that fails itself stops no other.

    Args:
        config: Settings.
        checks: The checks.
        broken: Why the user's own settings could not be read, where these are others.
    """
    said = ", ".join(dict.fromkeys(one.origin for one in config.settings if one.origin != "default"))
    settings = _said(broken) if broken else Finding("ok", said or "all are the defaults")
    found = [structs.replace(settings, check="settings")]
    for check in checks:
        found += [structs.replace(finding, check=check.name) for finding in _findings(check, config)]
    counts = Counter(finding.state for finding in found)
    return Diagnosis(tuple(found), {state: counts[state] for state in STATES})


def _findings(check: Check, config: Config) -> list[Finding]:
    try:
        return list(check.look(config))
    except CachekitError as error:
        return [_said(error)]
    except OSError as error:
        return [Finding("unknown", f"it cannot be checked: {error}")]
    except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other checks
        _log.exception("the check %s failed", check.name)
        return [Finding("unknown", f"the check itself failed: {type(error).__name__}: {error}")]


def _said(error: CachekitError) -> Finding:
    return Finding("problem", "; ".join(filter(None, (error.message, error.cause))), error.hint)


def checks() -> tuple[Check, ...]:
    """All checks: the host's, each compiler's, those of the store and of remotes."""
    adapters = [*registry.every()]
    compiles = next((one.name for one in adapters if one.here(compiles=False)), "")
    of_compilers = [
        Check(check.name, _not_needed(compiles)) if check.chosen and adapter.name != compiles else check
        for adapter in reversed(adapters)
        for check in adapter.checks()
    ]
    return (*HOST, *of_compilers, *store.CHECKS, *remotes.CHECKS)


def _not_needed(compiles: str) -> Callable[[Config], Iterator[Finding]]:
    def look(_: Config) -> Iterator[Finding]:
        yield Finding("ok", f"not needed: {compiles} compiles here")

    return look


# The machine and the Python environment


def training(_: Config) -> Iterator[Finding]:
    """What the training worker imports, whichever compiler it has."""
    found = {name: host.optional_version(name) for name in TRAINING}
    if missing := [name for name, version in found.items() if not version]:
        verb = "is" if len(missing) == 1 else "are"
        yield Finding("problem", f"{', '.join(missing)} {verb} not installed: nothing can train here", INSTALL)
    else:
        yield Finding("ok", ", ".join(f"{name} {version}" for name, version in found.items()))


def twice(_: Config) -> Iterator[Finding]:
    """An installation that was interrupted leaves two versions of a package, of which some files are one's."""
    wrong = False
    others = {package for adapter in registry.every() for package in adapter.packages()}
    for folder in dict.fromkeys(Path(place) for place in sys.path if place):
        versions: dict[str, list[str]] = {}
        try:
            names = [path.name for path in folder.iterdir() if path.suffix == ".dist-info"]
        except OSError:
            continue
        for name in names:
            package, _sep, version = name.removesuffix(".dist-info").partition("-")
            versions.setdefault(package.lower().replace("_", "-"), []).append(version)
        for package, found in sorted(versions.items()):
            if len(found) > 1 and package not in others:
                wrong = True
                said = f"{package} is installed twice in {folder}: {', '.join(sorted(found))}"
                run = f"{sys.executable} -m pip install --force-reinstall {package}=={max(found)}"
                yield Finding("problem", said, "choose one of them:", run)
    if not wrong:
        yield Finding("ok", "each package is installed once")


def name(_: Config) -> Iterator[Finding]:
    """Another project has this one's import name; the one that was installed last overwrote the other's files."""
    if other := host.other_project():
        version, place = other
        said = f"{place} has {host.OTHER} {version}, another project that is imported under the same name"
        # Their common files go with either of them, and pip takes what is left for a whole installation.
        uninstall = f"{sys.executable} -m pip uninstall {host.OTHER} {host.OWN}"
        yield Finding("problem", said, f"keep one; for this one, install {host.OWN} again after:", uninstall)
    else:
        yield Finding("ok", f"no other project is imported as {host.OTHER}")


def program(_: Config) -> Iterator[Finding]:
    """The command that a shell finds may be another environment's, with other versions and so other keys."""
    found, here = shutil.which("cachekit"), Path(sys.executable).parent
    if found and not of_this_environment(Path(found)):
        said = f"cachekit on PATH is {found}; this one runs in {sys.executable}"
        yield Finding("problem", said, run=f"export PATH={shlex.quote(str(here))}:$PATH")
    else:
        yield Finding("ok", found or f"{sys.executable} -m cachekit")


def temporary(_: Config) -> Iterator[Finding]:
    """Compilers keep what they work on there."""
    said = os.environ.get("TMPDIR", "")
    place = Path(said) if said else Path(tempfile.gettempdir())
    if not place.is_dir():
        yield Finding("problem", f"TMPDIR is {place}, which is not a folder", run=f"mkdir -p {shlex.quote(str(place))}")
        return
    wrong = trouble(place, "TMPDIR") or exposed(temporary_home(), "TMPDIR")
    found = [*([wrong] if wrong else []), *full(place, "TMPDIR")]
    if barred(place):
        found.append(
            Finding("problem", f"nothing in {place} may be executed (noexec)", "set TMPDIR to a folder without noexec")
        )
    yield from found or [Finding("ok", str(place))]


def files(_: Config) -> Iterator[Finding]:
    """Each of a training's workers opens hundreds of files."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FILES:
        most = hard if 0 <= hard < 1 << 20 else 65536
        yield Finding("problem", f"a process may open only {soft} files", run=f"ulimit -n {max(most, soft)}")
    else:
        yield Finding("ok", f"a process may open {soft if soft >= 0 else 'any number of'} files")


def proxies(_: Config) -> Iterator[Finding]:
    """Addresses without a scheme are an error for the Hub's client; of two spellings one wins."""
    wrong = False
    for name in PROXIES:
        values = {key: os.environ[key] for key in (name, name.upper()) if os.environ.get(key)}
        for key, value in values.items():
            if not urlsplit(value).hostname or "://" not in value:
                wrong = True
                bare = value.rpartition("@")[2]  # a proxy's password is not shown
                run = f"export {key}=http://{'USER:PASSWORD@' if '@' in value else ''}{bare}"
                yield Finding("problem", f"{key} is not a URL: it has no scheme", run=run)
        if len(set(values.values())) > 1:
            wrong = True
            said = f"{name} and {name.upper()} name two proxies: programs differ in which one they use"
            yield Finding("problem", said, run=f"unset {name.upper()}")
    if not wrong:
        yield Finding("ok", ", ".join(key for key in os.environ if key.lower() in PROXIES) or "none are set")


def disk(config: Config) -> Iterator[Finding]:
    """A full disk fails at the end of an hour of compiling."""
    places = {config.home: "CACHEKIT_HOME", config.compiler_cache_dir: "CACHEKIT_COMPILER_CACHE_DIR"}
    for adapter in registry.every():
        for place in adapter.places().values():
            if place.path is not None and place.exists:
                places.setdefault(place.path, "")
    told: set[str] = set()
    for folder, variable in places.items():
        for finding in full(folder, variable):
            if finding.run not in told:  # of several folders on one disk once
                told.add(finding.run)
                yield finding
    if not told:
        yield Finding("ok", "no disk is full")


HOST = (
    Check("training", training),
    Check("installed-once", twice),
    Check("import-name", name),
    Check("program", program),
    Check("temporary-folder", temporary),
    Check("open-files", files),
    Check("proxies", proxies),
    Check("disk", disk),
)
