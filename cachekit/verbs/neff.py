"""Say what compiled files are, and whether they are whole: `cachekit neff FILE…`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff import NeffError, read, read_header
from cachekit.compilers.neuron.neff.container import module_in, printable
from cachekit.errors import IntegrityError, UsageError
from cachekit.store import Store
from cachekit.store.record import Record

LOOKED_AT = 256 << 20  # bytes of NEFFs that `show` reads
LOOKED_INTO = 1_000  # and NEFFs, each of which takes a millisecond
VERIFIED = "verified"  # whole, and understood
DAMAGED = "damaged"  # its bytes are not those that were written
UNKNOWN = "unknown"  # no NEFF, or none of a kind that is known here: nothing can be said about its bytes
ABSENT = "absent"  # no file, or none that can be read


def inspect(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Each file's state and, where it is a NEFF, all that it says; one that cannot be read stops no other."""
    return [{"file": printable(str(path), 4096), **_inspect(path)} for path in paths]


def of_record(store: Store, record: Record) -> dict[str, dict[str, Any]]:
    """What the NEFFs of a record are, by module, as far as `LOOKED_AT` and `LOOKED_INTO` go."""
    found: dict[str, dict[str, Any]] = {}
    left = LOOKED_AT
    for module in record.modules:
        for file in module.files:
            if file.path != facts.NEFF or file.size > left or len(found) >= LOOKED_INTO:
                continue
            left -= file.size
            one = _inspect(store.layout.blob(file.sha256), leaks=False)
            kept = ("state", "reason", "compiler", "target", "chip", "lnc", "built")
            counts = {name: len(one.get(name, ())) for name in ("inputs", "outputs")}
            found[module.name] = {**{name: one[name] for name in kept if name in one}, **counts}
    return found


def exit_code(found: Iterable[dict[str, Any]]) -> int:
    """What the process says: damage before absence."""
    states = {one["state"] for one in found}
    if states & {DAMAGED, UNKNOWN}:
        return IntegrityError.exit_code
    return UsageError.exit_code if ABSENT in states else 0


def _inspect(path: Path, *, leaks: bool = True) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            return {"state": ABSENT, "reason": "it is a folder" if path.is_dir() else "it is no regular file"}
        return {"state": VERIFIED, "reason": "", **read(path, leaks=leaks).as_dict()}
    except NeffError as error:
        return {"state": DAMAGED if error.damaged else UNKNOWN, "reason": error.reason, "module": _module(path)}
    except OSError as error:
        return {"state": ABSENT, "reason": (error.strerror or type(error).__name__).lower()}


def _module(path: Path) -> str:
    """Which module a damaged file belongs to, where its header can still be read or its folder says so."""
    try:
        header = read_header(path)
    except (NeffError, OSError):
        return module_in(str(path.absolute()))
    return module_in(header.name, cut=header.name_is_cut) or module_in(str(path.absolute()))
