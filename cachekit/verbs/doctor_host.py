"""What `cachekit doctor` looks at of the machine and the Python environment."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from cachekit import host
from cachekit.config import Config
from cachekit.disk import barred
from cachekit.errors import INSTALL
from cachekit.health import Finding, full, of_this_environment, trouble

TRAINING = ("torch", "transformers", "accelerate", "datasets", "scikit-learn")  # the extra `train`
FILES = 1024  # open at once: a trial run with a few workers for data
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


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
            if len(found) > 1:
                wrong = True
                said = f"{package} is installed twice in {folder}: {', '.join(sorted(found))}"
                run = f"{sys.executable} -m pip install --force-reinstall {package}=={max(found)}"
                yield Finding("problem", said, "choose one of them:", run)
    if not wrong:
        yield Finding("ok", "each package is installed once")


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
        yield Finding("problem", f"TMPDIR is {place}, which is no folder", run=f"mkdir -p {shlex.quote(str(place))}")
        return
    wrong = trouble(place, "temporary")
    found = [*([wrong] if wrong else []), *full(place, "temporary")]
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
        yield Finding("problem", f"a process may open {soft} files only", run=f"ulimit -n {max(most, soft)}")
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
                yield Finding("problem", f"{key} is no address: it has no scheme", run=run)
        if len(set(values.values())) > 1:
            wrong = True
            said = f"{name} and {name.upper()} name two proxies: programs differ in which they take"
            yield Finding("problem", said, run=f"unset {name.upper()}")
    if not wrong:
        yield Finding("ok", ", ".join(key for key in os.environ if key.lower() in PROXIES) or "none are set")
