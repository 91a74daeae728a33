"""What is offered to a remote, and what a push of that would change there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from cachekit.remotes.document import Shared
from cachekit.remotes.port import Upload, Write
from cachekit.store.origin import MADE_HERE, Beside
from cachekit.store.record import Record


class Offer(Struct, frozen=True):
    """A record to publish.

    Attributes:
        shared: The record with its tiny files.
        sources: The local file of each digest that the remote may lack.
        replaces: Put it in the place of what is there, instead of both.
        beside: Where it came from, and the signatures that it came with.
    """

    shared: Shared
    sources: Mapping[str, Path | bytes]
    replaces: bool = False
    beside: Beside = MADE_HERE


class Draft(Struct, frozen=True):
    """What a push would change.

    Attributes:
        files: What is missing.
        parts: Documents to write before the records: parts of long ones.
        additions: Likewise: what records get, where a race may lose it.
        records: Documents to write.
        rows: The same records.
        shrunk: Those that lack modules which the record there had, or may have had: by key, the first digits of the
            digest of that record; empty where it could not be read.
        same: Records that lie there as they are offered.
        held: Records that lie there, and have more than all that is offered.
        unchanged: How many need nothing.
        damaged: Keys of records that nobody could use as they are, with the reason.
        left: Keys of records in whose place somebody else's stays, with the reason.
        lying: Paths of those files where something of their size lies, for the remote to compare.
        others: Records as they lie there, of which this machine has another build.
        signatures: Documents to write before the records: the signatures over them.
        signed: Those documents as they lie there afterwards, by key, also where nothing is to be written.
    """

    files: tuple[Upload, ...] = ()
    parts: tuple[Write, ...] = ()
    additions: tuple[Write, ...] = ()
    records: tuple[Write, ...] = ()
    rows: tuple[Shared, ...] = ()
    shrunk: Mapping[str, str] = {}
    same: tuple[Shared, ...] = ()
    held: tuple[Shared, ...] = ()
    unchanged: int = 0
    damaged: Mapping[str, str] = {}
    left: Mapping[str, str] = {}
    lying: frozenset[str] = frozenset()
    others: tuple[Record, ...] = ()
    signatures: tuple[Write, ...] = ()
    signed: Mapping[str, bytes] = {}

    @property
    def there(self) -> tuple[Shared, ...]:
        """The records that lie there then."""
        return (*self.rows, *self.same, *self.held)

    @property
    def new(self) -> tuple[Upload, ...]:
        """Files that are not there, as far as sizes tell."""
        return tuple(file for file in self.files if file.path not in self.lying)

    def then(self, later: Draft) -> Draft:
        """What was changed by this draft and by a later one, which the same push made when this had been taken."""
        before = {one.record.key for one in self.rows} | self.left.keys()
        keys = {one.record.key for one in later.rows} - before  # these needed nothing then
        return structs.replace(
            later,
            rows=tuple({one.record.key: one for one in (*self.rows, *later.rows)}.values()),
            signatures=tuple({one.path: one for one in (*self.signatures, *later.signatures)}.values()),
            unchanged=self.unchanged - len(keys),
            damaged={**self.damaged, **later.damaged},
            others=tuple({one.key: one for one in (*self.others, *later.others)}.values()),
            signed={**self.signed, **later.signed},
        )
