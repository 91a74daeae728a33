"""Where things lie in a store.

    <home>/v1/
      blobs/ab/<sha256>                                  bytes under their digest, read-only
      records/<compiler dir>/<model type>/<key>.json     what exists for a key
      index.sqlite                                       what the records say and name; only saves reading them
      used/<key>                                         its time says when the record was used last
      pins/<key>.json                                    the record stays, whatever limits are set
      in-use/<pid>-<random>                              what a running process uses: stays as long as it runs
      quarantine/                                        what was found damaged, for people to look at
      locks/<key>.lock, <key>.json                       one compile per key and host; who holds it
      locks/<key>.record.lock                            one change of a record at a time
      partial/<sha256>                                   what arrived so far of a blob that is being fetched
      tmp/, live/                                        folders of running processes, swept when their owner is gone
      journal/<month>/<run>.jsonl, logs/                 what happened
      state/                                             the recipe warmed last in each working directory
      state/attempts/<key>.json                          what a trial of a key needed that failed
      state/builds/<key>.json                            two builds of a key with other bytes, as they were met

A new layout takes a new `v<n>`; an old cachekit goes on with the old one, and neither sees the other's entries.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

VERSION = "v1"
LOCAL = "local"  # the store's name in the list of remotes, and in answers


class Place(NamedTuple):
    """Where a record lies, here and on remotes: its compiler's folder, its model type, and its key."""

    directory: str
    model_type: str
    key: str


class Layout:
    """The paths of a store at `home`; the text above says what lies where.

    Attributes:
        live: Where compiler cache dirs are made by default; `config.compiler_cache_dir` may name another disk.
        remotes: What is remembered of remotes between runs: outages, absent and near records, pending pushes.
    """

    def __init__(self, home: Path) -> None:
        root = home / VERSION
        self.home = home
        self.root = root
        self.blobs = root / "blobs"
        self.records = root / "records"
        self.index = root / "index.sqlite"
        self.used = root / "used"
        self.pins = root / "pins"
        self.in_use = root / "in-use"
        self.quarantine = root / "quarantine"
        self.locks = root / "locks"
        self.partial = root / "partial"
        self.tmp = root / "tmp"
        self.live = root / "live"
        self.journal = root / "journal"
        self.logs = root / "logs"
        self.state = root / "state"
        self.remotes = self.state / "remotes"

    def blob(self, sha256: str) -> Path:
        """The path of a blob."""
        return self.blobs / sha256[:2] / sha256

    def record(self, directory: str, model_type: str, key: str) -> Path:
        """The path of a record."""
        return self.records / directory / model_type / f"{key}.json"

    def last(self, directory: str) -> Path:
        """The note of the recipe warmed last in a working directory, by that directory's digest."""
        return self.state / "last" / f"{directory}.json"

    def attempt(self, key: str) -> Path:
        """What is known of a trial that failed, until one succeeds."""
        return self.state / "attempts" / f"{key}.json"

    def builds(self, key: str) -> Path:
        """Where it is kept that a key was built twice, with other bytes."""
        return self.state / "builds" / f"{key}.json"


def temporary_home() -> Path:
    """Where compiler cache dirs and logs go when the store cannot be written: a read-only one still serves its hits."""
    owner = os.getuid() if sys.platform != "win32" else 0
    return Path(tempfile.gettempdir()) / f"cachekit-{owner}"
