"""Whether two compiles of the same graphs gave the same modules.

A NEFF's header has a random UUID and the path where it was made, so that no two are the same bytes: compared is what
its tar has in it, by names and contents. Of a real compiler nobody here has seen two builds: a difference is told, and
a person judges.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable
from pathlib import Path

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.neff.container import NeffError, payload_of
from cachekit.compilers.neuron.neff.members import Unpacked
from cachekit.compilers.port import Compared


def compare(old: Path, new: Path, names: Iterable[str], others: Iterable[str], *, inside: str = facts.NEFF) -> Compared:
    """Compare two roots.

    Args:
        old: One root.
        new: The other.
        names: Finished modules of `old`.
        others: And of `new`.
        inside: The NEFF in a module's folder; empty where each of the names is a NEFF.
    """
    before, after = frozenset(names), frozenset(others)
    both = before & after
    differ = {name for name in both if contents(old / name / inside) != contents(new / name / inside)}
    return Compared(
        same=len(both) - len(differ),
        differ=tuple(sorted(differ)),
        gone=tuple(sorted(before - after)),
        new=tuple(sorted(after - before)),
    )


def contents(neff: Path) -> tuple[tuple[str, str], ...]:
    """The names and digests of what a NEFF has in it; of one that cannot be read, the digest of its bytes."""
    found = []
    try:
        with payload_of(neff) as payload, tarfile.open(fileobj=Unpacked(payload), mode="r|") as tar:  # type: ignore[call-overload]
            for member in tar:
                body = tar.extractfile(member) if member.isfile() else None
                if body is not None:
                    digest = hashlib.sha256()
                    while piece := body.read(1 << 20):
                        digest.update(piece)
                    found.append((member.name, digest.hexdigest()))
    except (NeffError, tarfile.TarError, OSError):
        return (("", hashlib.sha256(neff.read_bytes()).hexdigest()),)
    return tuple(sorted(found))
