"""Where things lie in a store.

    <home>/v1/
      blobs/ab/<sha256>                                  bytes under their digest, read-only
      records/<compiler dir>/<model type>/<key>.json     what exists for a key
      index.sqlite                                       what the records say and name; only saves reading them
      used/<key>                                         its time says when the record was used last
      pins/<key>.json                                    the record stays, whatever limits are set
      holds/<pid>-<random>                               what a running process uses: stays as long as it runs
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

from pathlib import Path

from msgspec import Struct

VERSION = "v1"


class Layout(Struct, frozen=True):
    """The paths of a store at `home`."""

    home: Path

    @property
    def root(self) -> Path:
        """The folder of this layout's version."""
        return self.home / VERSION

    @property
    def blobs(self) -> Path:
        """Content-addressed bytes."""
        return self.root / "blobs"

    @property
    def records(self) -> Path:
        """One document for each key."""
        return self.root / "records"

    @property
    def index(self) -> Path:
        """What the records say and name; see `store.index`."""
        return self.root / "index.sqlite"

    @property
    def used(self) -> Path:
        """Notes of when records were used last."""
        return self.root / "used"

    @property
    def pins(self) -> Path:
        """Keys whose records stay."""
        return self.root / "pins"

    @property
    def holds(self) -> Path:
        """What running processes use."""
        return self.root / "holds"

    @property
    def quarantine(self) -> Path:
        """Damaged files."""
        return self.root / "quarantine"

    def attempt(self, key: str) -> Path:
        """What is known of a trial that failed, until one succeeds."""
        return self.root / "state" / "attempts" / f"{key}.json"

    def builds(self, key: str) -> Path:
        """Where it is kept that a key was built twice, with other bytes."""
        return self.root / "state" / "builds" / f"{key}.json"

    @property
    def locks(self) -> Path:
        """One lock per key."""
        return self.root / "locks"

    @property
    def tmp(self) -> Path:
        """Unfinished files."""
        return self.root / "tmp"

    @property
    def partial(self) -> Path:
        """Files that are being fetched, kept for the next run when this one is killed."""
        return self.root / "partial"

    @property
    def remotes(self) -> Path:
        """What is remembered of shared caches between runs: outages, absent and near records, pending pushes."""
        return self.root / "state" / "remotes"

    @property
    def live(self) -> Path:
        """Live roots, by default; `config.live_dir` may name another disk."""
        return self.root / "live"

    @property
    def journal(self) -> Path:
        """Journals of runs."""
        return self.root / "journal"

    @property
    def logs(self) -> Path:
        """What workers printed."""
        return self.root / "logs"

    @property
    def state(self) -> Path:
        """Small notes between runs."""
        return self.root / "state"

    def blob(self, sha256: str) -> Path:
        """The path of a blob."""
        return self.blobs / sha256[:2] / sha256

    def record(self, directory: str, model_type: str, key: str) -> Path:
        """The path of a record."""
        return self.records / directory / model_type / f"{key}.json"
