"""Where things lie on a remote; the same on every kind.

README.md                                                   the card
neuronxcc-2.26.6360.0+6f180f47/MODULE_…+f7f529f3/…          modules verbatim, as the compiler's own tools read them
inductor-2.13.0/<target>/<digest>.tar                       one archive a warm
cachekit/v1/records/<compiler dir>/<model type>/<key>.json  what exists for a key
cachekit/v1/signatures/<compiler dir>/<model type>/<key>.json  who signed that record
cachekit/v1/index.json                                      what each record says, in one file; see `index`
cachekit/v1/index/<sha256>.json                             its older rows, where the file would be a long one
cachekit/v1/index/new/<compiler dir>/<model type>/<key>/….json  what pushes wrote of late; see `additions`
cachekit/v1/blobs/ab/<sha256>                               a file whose own place is, or may be, taken by other bytes
cachekit/v1/packs/<key>/<sha256>                            small files of that record once more, many in one
cachekit/v1/leases/<key>.json                               who compiles a key now
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cachekit.decode import from_builtins
from cachekit.errors import UsageError
from cachekit.store.layout import Place
from cachekit.store.record import RelativePath
from cachekit.text import cut

ROOT = "cachekit/v1"
CARD = "README.md"
RECORDS = f"{ROOT}/records"
SIGNATURES = f"{ROOT}/signatures"
LEASES = f"{ROOT}/leases"
BLOBS = f"{ROOT}/blobs"
PACKS = f"{ROOT}/packs"
INDEX = f"{ROOT}/index.json"
BESIDE = f"{ROOT}/index"
NEW = f"{BESIDE}/new"
TINY = 4096  # bytes of a file that travels inside of its record


def record_path(place: Place) -> str:
    """The path of a record."""
    return f"{RECORDS}/{place.directory}/{place.model_type}/{place.key}.json"


def record_place(path: str) -> Place | None:
    """The place of the record at a path that a remote lists; None where none can lie there."""
    return _place(RECORDS, path)


def additions(place: Place) -> str:
    """The folder of what pushes wrote of late to the record at a place."""
    return f"{NEW}/{place.directory}/{place.model_type}/{place.key}"


def place_of_addition(path: str) -> Place | None:
    """The place of the record that a file in such a folder is about; None where it lies in none."""
    return _place(NEW, f"{path.rpartition('/')[0]}.json")


def _place(folder: str, path: str) -> Place | None:
    above, *names = path.removeprefix(folder).split("/")
    if above or len(names) != len(Place._fields) or not names[2].endswith(".json") or not is_good(path):
        return None
    return Place(names[0], names[1], names[2].removesuffix(".json"))


def signatures_path(place: Place) -> str:
    """The path of the signatures over the record at a place."""
    return f"{SIGNATURES}/{place.directory}/{place.model_type}/{place.key}.json"


def lease_path(key: str) -> str:
    """The path of a key's lease."""
    return f"{LEASES}/{key}.json"


def blob_path(sha256: str) -> str:
    """The place of a file whose own is taken."""
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


def older_path(sha256: str) -> str:
    """The place of the older rows of the index."""
    return f"{BESIDE}/{sha256}.json"


def is_older(path: str) -> bool:
    """Whether older rows of the index lie at a path."""
    return path == older_path(path.rpartition("/")[2].removesuffix(".json"))


def packs(key: str) -> str:
    """The folder of the packs of the record of a key."""
    return f"{PACKS}/{key}"


def pack_path(key: str, sha256: str) -> str:
    """The place of a pack."""
    return f"{packs(key)}/{sha256}"


def check(paths: Iterable[str]) -> None:
    """Nothing, if all of these may be used on a remote: they are relative, and stay below where they start.

    Paths come from records that others wrote.

    Raises:
        UsageError: One may not, or no store could hold it.
    """
    for path in paths:
        try:
            from_builtins(path, RelativePath)
            path.encode()
        except (msgspec.ValidationError, UnicodeEncodeError):
            raise UsageError(
                f"{cut(path, 200)!r} cannot be the path of a file in a remote",
                cause="the path leaves its folder, or a store could not hold it",
                hint="do not trust whoever wrote that record",
            ) from None


def is_good(path: str) -> bool:
    """Whether `check` takes this path."""
    try:
        check([path])
    except UsageError:
        return False
    return True
