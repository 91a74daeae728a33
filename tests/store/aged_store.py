"""Stores of records of some age, for tests of what is removed from them."""

import os
import time

from tests.support.standins import make_record, publish

DAY = 86_400.0


def filled(watched, count, *, size=3000, shared=()):
    """Records that were last used 0, 1, 2, … days ago."""
    made = [make_record(number, (f"own {number}", *shared), size=size) for number in range(count)]
    for days, pair in enumerate(made):
        publish(watched.store, pair)
        age(watched.store, pair[0], days)
    return made


def age(store, record, days):
    """Make a record look as if it was published and used so many days ago."""
    then = time.time() - days * DAY
    os.utime(store.layout.record(record.place), (then, then))
    used = store.layout.used / record.key
    if used.exists():
        os.utime(used, (then, then))


def kept(watched):
    return {record.key for record in watched.store.records()}


def keys(pairs):
    return {record.key for record, _ in pairs}


def managed(home):
    """Sizes of all that a limit is about."""
    root = home / "v1"
    folders = ("blobs", "records", "trust", "quarantine", "partial")
    files = [path for name in folders for path in (root / name).rglob("*") if path.is_file()]
    return {path: path.stat().st_size for path in files}


def everything(home):
    """All files of the store but its journals and its index."""
    files = {path for path in (home / "v1").rglob("*") if path.is_file() and "index" not in path.name}
    return {path for path in files if "journal" not in path.parts}
