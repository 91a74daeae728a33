"""What of a NEFF two compiles of the same graph have in common.

A NEFF's header has a random UUID and the path where it was made, so that no two are the same bytes: compared is what
its tar has in it, by names and contents. Of a real compiler nobody here has seen two builds: a difference is told, and
a person judges.
"""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from cachekit.compilers.neuron.neff.container import NeffError, payload_of
from cachekit.compilers.neuron.neff.members import Unpacked


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
