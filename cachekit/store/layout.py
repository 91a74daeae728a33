"""Where things lie in a store.

    <home>/v1/
      blobs/ab/<sha256>                                  bytes under their digest, read-only
      records/<compiler dir>/<model type>/<key>.json     what exists for a key
      index.sqlite                                       what the records say and name; only saves reading them; of a
                                                         store that is not this user's alone, see `temporary_home`
      trust/<compiler dir>/<model type>/<key>.json       where the record came from, where it was not made here
      staying/<folder>/<record>.json                     its modules stay in a compiler's own folder; see `staying`
      used/<key>                                         its time says when the record was used last
      pins/<key>.json                                    the record stays, whatever limits are set
      in-use/<pid>-<random>                              what a running process uses: stays as long as it runs
      quarantine/                                        what was found damaged, for people to look at
      locks/<key>.lock, <key>.json                       one compile per key and host; who holds it
      locks/<key>.record.lock                            one change of a record at a time
      partial/<uid>/<sha256>                             what arrived so far of a blob that is being fetched: bytes that
                                                         nobody has vouched for, closed to others
      tmp/, cache_dirs/                                  folders of running processes, swept when their owner is gone
      journal/<uid>/<month>/<run>.jsonl                  what happened in the runs of a user, closed to others
      fleets/<uid>/<fleet>/                              what a user submitted to an engine, with its output
      logs/<run>.log                                     what workers printed, in a store that is one user's alone
      state/last/<uid>/<directory>.json                  the recipe that a user warmed last in a working directory
      state/remotes/<uid>/                               what a user's runs remember of remotes
      state/stats/<uid>/<month>.jsonl                    what the runs of a user came to
      state/attempts/<key>.json                          what a trial of a key needed that failed
      state/builds/<key>.json                            two builds of a key with other bytes, as they were met

A new layout takes a new `v<n>`; an old cachekit goes on with the old one, and neither sees the other's entries.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cachekit.inside import Inside
from cachekit.private import private_folder

VERSION = "v1"
LOCAL = "local"  # the store's name in the list of remotes, and in answers


class Place(NamedTuple):
    """Where a record lies, here and on remotes: its compiler's folder, its model type, and its key."""

    directory: str
    model_type: str
    key: str


class Placed:
    """What has the three names of a place: a record, or what is known of one."""

    __slots__ = ()
    directory: str
    model_type: str
    key: str

    @property
    def place(self) -> Place:
        """Where the record lies, here and on remotes."""
        return Place(self.directory, self.model_type, self.key)


class Layout:
    """The paths of a store at `home`; the text above says what lies where.

    Attributes:
        inside: Opens the folders of the store: what is removed or made there lies there, and not where a link leads.
        journal: Where this user's journals are.
        fleets: Where the fleets of this user are noted.
        stats: Where the figures of this user's runs are.
        cache_dirs: Where compiler cache dirs are made by default; `config.compiler_cache_dir` may name another disk.
        remotes: What this user's runs remember of remotes: outages, absent and near records, pending pushes.
    """

    def __init__(self, home: Path) -> None:
        root = home / VERSION
        self.home = home
        self.inside = Inside(home)
        self.root = root
        self.blobs = root / "blobs"
        self.records = root / "records"
        self.trust = root / "trust"
        self.index = root / "index.sqlite"
        self.staying = root / "staying"
        self.used = root / "used"
        self.pins = root / "pins"
        self.in_use = root / "in-use"
        self.quarantine = root / "quarantine"
        self.locks = root / "locks"
        self.partial = root / "partial" / str(os.geteuid())
        self.tmp = root / "tmp"
        self.cache_dirs = root / "cache_dirs"
        self.journal = root / "journal" / str(os.geteuid())
        self.fleets = root / "fleets" / str(os.geteuid())
        self.logs = root / "logs"
        self.state = root / "state"
        self.stats = self.state / "stats" / str(os.geteuid())
        self.remotes = self.state / "remotes" / str(os.geteuid())

    def inside_for(self, folder: Path) -> Inside:
        """What opens a folder of the store, or one elsewhere that this user's settings name."""
        return self.inside if folder.is_relative_to(self.home) else Inside(folder)

    def blob(self, sha256: str) -> Path:
        """The path of a blob."""
        return self.blobs / sha256[:2] / sha256

    def record(self, place: Place) -> Path:
        """The path of a record."""
        return self.records / place.directory / place.model_type / f"{place.key}.json"

    def origin(self, place: Place) -> Path:
        """The path of what is kept beside a record: where it came from."""
        return self.trust / place.directory / place.model_type / f"{place.key}.json"

    def last(self, directory: str) -> Path:
        """The note of the recipe that this user warmed last in a working directory, by that directory's digest."""
        return self.state / "last" / str(os.geteuid()) / f"{directory}.json"

    def pending(self) -> Iterator[Path]:
        """The notes of pushes that are to be tried again, of all users; each is named by its key."""
        return self.remotes.parent.glob("*/*/pending/*")

    def attempt(self, key: str) -> Path:
        """What is known of a trial that failed, until one succeeds."""
        return self.state / "attempts" / f"{key}.json"

    def builds(self, key: str) -> Path:
        """Where it is kept that a key was built twice, with other bytes."""
        return self.state / "builds" / f"{key}.json"


def temporary_home() -> Path:
    """Where compiler cache dirs and logs go when the store cannot be written: a read-only one still serves its hits.

    So it is when the store is not this user's own; the index lies there then, too.
    """
    return Path(tempfile.gettempdir()) / f"cachekit-{os.geteuid()}"


def temporary_folder(name: str) -> Path:
    """A folder there that only this user can look into.

    Raises:
        NotPrivateError: Somebody else can change what lies there.
        OSError: It cannot be made.
    """
    private_folder(temporary_home())
    return private_folder(temporary_home() / name)
