"""What looks after the store, and what carries its records elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cachekit.api.opened import AnyEntry, Opened
from cachekit.store.record import Record

if TYPE_CHECKING:
    from cachekit.store.gc import Collected
    from cachekit.store.index_rows import Listed
    from cachekit.store.verify import Verified
    from cachekit.verbs.export import Bundled, Exported
    from cachekit.verbs.imports import Imported, Unbundled
    from cachekit.verbs.records import Deleted, Pinned, StoredRecord
    from cachekit.verbs.session import Session


class Upkeep(Opened):
    """The verbs of `cachekit store`. An entry is a record, a recipe, or a key by its first digits."""

    def records(self) -> list[Record]:
        """All readable records of the store, newest first; their files are not checked. See `ls`."""
        found = self.open_store().records()
        return sorted(found, key=lambda record: record.provenance.created, reverse=True)

    def ls(self) -> list[Listed]:
        """A row for each record of the store, newest first, and which are not used. `cachekit store ls`."""
        store = self.open_store()
        found, doubtful = store.listed(), store.doubtful()
        if doubtful:
            from cachekit.remotes.judging import Trust
            from cachekit.verbs.records import told_of_strangers

            return told_of_strangers(store, found, doubtful, Trust(self._config().trust))
        return found

    def keys(self, beginning: str = "") -> list[str]:
        """Keys of the store's records, from the names of their files."""
        from cachekit.store.layout import Layout

        names = (path.stem for path in Layout(self._config().home).records.rglob(f"{beginning}*.json"))
        return sorted(name for name in names if len(name) == 64)  # noqa: PLR2004 - digits of a SHA-256

    def show(self, key: str) -> StoredRecord:
        """A record whole: ingredients, modules, who made it, and whether it is whole. `cachekit store show`.

        Raises:
            UnknownNameError: No key begins like that, or several do.
        """
        from cachekit.remotes.judging import Trust
        from cachekit.verbs.records import show

        return show(self.open_store(), key, Trust(self._config().trust))

    def verify(self, *, quick: bool = False, repair: bool = False) -> Verified:
        """Check every record and every file of the store. `cachekit store verify`.

        Args:
            quick: Only look which files there are, and how large they are; hash nothing.
            repair: Bring back what is bad from the remotes.

        Returns:
            What was looked at, what is bad, and what became of it. Nothing is raised for what is bad: see `good` and
            `error()`.

        Raises:
            StoreError: The store cannot be read; or written, to repair.
        """
        from cachekit.verbs.verify import verify

        with self.session(verb="verify" if repair else "") as opened:
            return verify(opened, quick=quick, repair=repair)

    def gc(
        self,
        *,
        max_size: int | str | None = None,
        max_age: float | str | None = None,
        all_of: str = "",
        dry_run: bool = False,
    ) -> Collected:
        """Remove what no record names, and records beyond limits. `cachekit store gc`.

        Pinned records stay, and those in use. Without limits those of the settings count, `gc_max_size` and
        `gc_max_age`; with `all_of` only limits that are given here.

        Args:
            max_size: Bytes of the whole store, or `50GB`: what was used longest ago goes until it fits.
            max_age: Seconds, or `30d`: what was not used for that long goes.
            all_of: Only records of compilers whose folder or version fits this pattern, `neuronxcc-2.2*`; all of
                them, where there is no limit.
            dry_run: Only say what would go.

        Returns:
            What went, file by file, and what stayed.

        Raises:
            UsageError: A limit is not a size, or not a time.
            WaitedTooLongError: Somebody writes to the store all the time.
            StoreError: The store cannot be read or written.
        """
        from cachekit.store.gc import Keep, gc

        limits = self._config(gc_max_size=max_size, gc_max_age=max_age)
        keep = Keep(
            None if all_of and max_size is None else limits.gc_max_size,
            None if all_of and max_age is None else limits.gc_max_age,
            all_of,
        )
        with self.session(verb="" if dry_run else "gc") as opened:
            return gc(opened.store, opened.config.compiler_cache_dir, keep, dry_run=dry_run)

    def rm(self, *entries: AnyEntry, force: bool = False, dry_run: bool = False) -> list[Deleted]:
        """Remove records from the store, with what only they name. Remotes keep theirs. `cachekit store rm`.

        Args:
            *entries: The records.
            force: Pinned ones too, and those in use.
            dry_run: Only say what would go.

        Raises:
            MissError: A recipe is not in the store. Nothing was removed; so below.
            UnknownNameError: An entry names no record, or several.
            UsageError: A record is pinned, or in use.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.records import remove

        with self.session(verb="" if dry_run else "rm") as opened:
            keys = self._stored(opened.store, entries, hint="`cachekit store ls` lists the records")
            return remove(opened, keys, force=force, dry_run=dry_run)

    def pin(self, *entries: AnyEntry, dry_run: bool = False) -> list[Pinned]:
        """Keep records, whatever limits `gc` has. `cachekit store pin`.

        A recipe that is not warm yet keeps what is made for it.

        Args:
            *entries: The records.
            dry_run: Only say what would be pinned.

        Raises:
            UnknownNameError: Digits fit no record, or several.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.records import pin

        return pin(self.open_store(), [self._named(entry) for entry in entries], dry_run=dry_run)

    def unpin(self, *entries: AnyEntry, dry_run: bool = False) -> list[Pinned]:
        """Let `gc` remove pinned records again. `cachekit store unpin`.

        Args:
            *entries: The records.
            dry_run: Only say what would be let go.

        Raises:
            UnknownNameError: Digits fit no pin, or several.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.records import unpin

        return unpin(self.open_store(), [self._named(entry) for entry in entries], dry_run=dry_run)

    def pins(self) -> list[Pinned]:
        """Every pin, in the order of keys. `cachekit store pin --list`."""
        from cachekit.verbs.records import pins

        return pins(self.open_store())

    def export_bundle(
        self,
        output: str | Path | None,
        entries: Sequence[AnyEntry] = (),
        *,
        all_of: str = "",
        dry_run: bool = False,
    ) -> Bundled:
        """Write records as one file, for a machine without a network. `cachekit store export NAME.tar`.

        Args:
            output: The file, whatever its name ends in; None is stdout. It appears whole, or not at all; a bundle that
                is there is replaced, anything else is not.
            entries: The records; all of the store by default.
            all_of: Instead of entries, all records of a compiler's folder: `neuronxcc-2.21.18209.0`.
            dry_run: Only say what would be in it.

        Raises:
            MissError: A recipe is not in the store. Nothing was written; so below.
            UnknownNameError: A key names no record, or several; there are none.
            IntegrityError: A record of the store is not whole.
            UsageError: The file cannot be written, or something else lies there.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.export import chosen, export_bundle

        with self._exporting(entries, all_of) as (opened, keys):
            records = chosen(opened.store, keys, all_of)
            return export_bundle(opened, records, None if output is None else local_folder(output), dry_run=dry_run)

    def export_neuron_cache(
        self,
        folder: str | Path,
        entries: Sequence[AnyEntry] = (),
        *,
        all_of: str = "",
        dry_run: bool = False,
    ) -> Exported:
        """Write records' modules as a cache of Neuron's own, which optimum-neuron reads, too: `cachekit store export`.

        Args:
            folder: The cache's root, as a path or `file://…`; made if need be. It may be in use: finished modules that
                are there stay, locked ones are left alone.
            entries: The records; all of Neuron's by default.
            all_of: See `export_bundle`.
            dry_run: Only say what would be written.

        Returns:
            What became of each module. Nothing is raised for modules that are damaged in the store, or that could not
            be put there: `error()` is what to raise.

        Raises:
            MissError: A recipe is not in the store. Nothing was written.
            UnknownNameError: A key names no record, or several; there are none of Neuron's.
            UsageError: A record is not of Neuron's, or the folder cannot be written.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.export import export_cache

        place = local_folder(folder)
        with self._exporting(entries, all_of) as (opened, keys):
            return export_cache(opened.store, place, keys=keys, compiler=all_of, dry_run=dry_run)

    @contextmanager
    def _exporting(self, entries: Sequence[AnyEntry], all_of: str) -> Iterator[tuple[Session, list[str]]]:
        """A session, and the keys of what is to be exported, which is there where it is a recipe's."""
        from cachekit.errors import UsageError

        if entries and all_of:
            raise UsageError("both entries and all_of were given", hint="give one of them")
        with self.session() as opened:
            yield opened, self._stored(opened.store, entries)

    def import_bundle(self, bundle: str | Path | None, *, dry_run: bool = False) -> Unbundled:
        """Take the records of a bundle into the store. `cachekit store import NAME.tar`.

        Every byte of it is compared before any of it becomes visible.

        Args:
            bundle: The file; None is stdin.
            dry_run: Only compare it, and say what would be taken.

        Returns:
            Its `records`, each with what became of it.

        Raises:
            IntegrityError: The file is not a bundle, or incomplete. Nothing was taken.
            UsageError: The file cannot be read, or a later cachekit made it.
            StoreError: The store cannot be written, or has no room.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.imports import import_bundle, opened

        path = None if bundle is None else local_folder(bundle)
        with opened(path) as (source, name), self.session(verb="" if dry_run else "import") as session:
            return import_bundle(session, source, name, dry_run=dry_run)

    def import_neuron_cache(self, folder: str | Path, *, dry_run: bool = False) -> Imported:
        """Take the finished modules of a cache of Neuron's own into the store. `cachekit store import FOLDER`.

        The cache stays as it is, and may be in use. What is failed, locked, unfinished or damaged is left.

        Args:
            folder: Its root, or one compiler's folder in it, as a path or `file://…`.
            dry_run: Only say what would be taken.

        Returns:
            What was taken, by compiler, and what was `left`, and why.

        Raises:
            UsageError: The folder cannot be read, or holds no Neuron cache.
            StoreError: The store cannot be written.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.imports import import_into

        place = local_folder(folder)
        with self.session(verb="" if dry_run else "import") as opened:
            return import_into(opened, place, dry_run=dry_run)
