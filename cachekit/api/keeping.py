"""What moves, checks and removes records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cachekit.api.options import AnyEntry, AnyRecipe, Options, Overrides, listed
from cachekit.verbs import open_session as _opening

if TYPE_CHECKING:
    from cachekit.store.gc import Collected
    from cachekit.store.verify import Verified
    from cachekit.verbs.pins import Pinned
    from cachekit.verbs.pull_recipes import Outcome
    from cachekit.verbs.push_records import Reported
    from cachekit.verbs.remove import Deleted


class Keeping(Options):
    """The methods of `Cache` that move, check and remove records."""

    def pull(
        self,
        recipe: AnyRecipe,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        dry_run: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Outcome:
        """Fetch what a recipe needs from the shared caches into the store. `cachekit pull`.

        With `dry_run` it only says what would be fetched; for the other arguments see `plan`.

        Returns:
            What became of it; `state` is `absent` where no cache has it.

        Raises:
            UsageError: No shared cache may be read.
            RemoteError, AuthError: A cache has it, and it could not be fetched.
            IntegrityError: What a cache has is not what its record says.
        """
        from cachekit.verbs.pull_recipes import pull_recipe

        verb = "" if dry_run else "pull"
        with self._prepared(
            recipe, overrides, verb, tiny=tiny, toolchain=toolchain, target=target, instance=instance
        ) as (opened, prepared):
            _opening.need_chain(opened.chain, "read")
            return pull_recipe(opened, prepared, dry_run=dry_run)

    def push(
        self,
        entries: Sequence[AnyEntry] = (),
        *,
        pending: bool = False,
        public: bool = False,
        replace: bool = False,
        dry_run: bool = False,
    ) -> list[Reported]:
        """Put records of the store on the shared caches that may be written. `cachekit push`.

        Args:
            entries: Records, recipes by value, path or name, or keys by their first digits; all records by default.
            pending: Only what could not be pushed before.
            public: On a cache that anybody can read, too.
            replace: In the place of others of the same keys.
            dry_run: Only say what would be sent.

        Returns:
            For each cache what became of it; a failure stands in `pushed.error`.

        Raises:
            UsageError: No shared cache may be written.
            UnknownNameError: A key names no record.
        """
        from cachekit.verbs.push_records import chosen, push_records

        with self.session(verb="" if dry_run else "push") as opened:
            _opening.need_chain(opened.chain, "written")
            keys = [self._named(opened.config, entry).key for entry in listed(entries)]
            records = chosen(opened, keys, pending=pending)
            return push_records(opened, records, public=public, replaces=replace, dry_run=dry_run)

    def verify(self, *, quick: bool = False, repair: bool = False) -> Verified:
        """Check every record and every file of the store. `cachekit verify`.

        Args:
            quick: Only look which files there are, and how large they are; hash nothing.
            repair: Bring back what is bad from the shared caches.

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
        of_compiler: str = "",
        dry_run: bool = False,
    ) -> Collected:
        """Remove what nobody needs from the store: what no record names, and records beyond limits. `cachekit gc`.

        Pinned records stay, and those in use. Without limits those of the settings count, `gc_max_size` and
        `gc_max_age`; with `of_compiler` only limits that are given here.

        Args:
            max_size: Bytes of the whole store, or `50GB`: what was used longest ago goes until it fits.
            max_age: Seconds, or `30d`: what was not used for so long goes.
            of_compiler: Only records of compilers whose folder or version fits this pattern, `neuronxcc-2.2*`; all of
                them, where there is no limit.
            dry_run: Only say what would go.

        Returns:
            What went, file by file, and what stayed.

        Raises:
            UsageError: A limit is no size, or no time.
            WaitedTooLongError: Somebody writes to the store all the time.
            StoreError: The store cannot be read or written.
        """
        from cachekit.verbs.gc import gc, keep

        with self.session(verb="" if dry_run else "gc") as opened:
            return gc(opened, keep(self.home, max_size, max_age, of_compiler), dry_run=dry_run)

    def rm(self, *entries: AnyEntry, force: bool = False, dry_run: bool = False) -> list[Deleted]:
        """Remove records from the store, with what only they name. Shared caches keep theirs. `cachekit rm`.

        Args:
            *entries: Records, recipes by value, path or name, or keys by their first digits.
            force: Pinned ones too, and those in use.
            dry_run: Only say what would go.

        Raises:
            UnknownNameError: One names no record, or several. Nothing was removed.
            UsageError: One is pinned, or in use. Nothing was removed.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.remove import remove

        with self.session(verb="" if dry_run else "rm") as opened:
            keys = [self._named(opened.config, entry).key for entry in entries]
            return remove(opened, keys, force=force, dry_run=dry_run)

    def pin(self, *entries: AnyEntry) -> list[Pinned]:
        """Keep records, whatever limits `gc` has. `cachekit pin`.

        Args:
            *entries: As for `rm`. A recipe that is not warm yet keeps what is made for it.

        Raises:
            UnknownNameError: Digits fit no record, or several.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.pins import pin

        config = self._config()
        return pin(self.open_store(), [self._named(config, entry) for entry in entries])

    def unpin(self, *entries: AnyEntry) -> list[Pinned]:
        """Let `gc` remove pinned records again. `cachekit unpin`.

        Args:
            *entries: As for `rm`.

        Raises:
            UnknownNameError: Digits fit no pin, or several.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.pins import unpin

        config = self._config()
        return unpin(self.open_store(), [self._named(config, entry) for entry in entries])

    def pins(self) -> list[Pinned]:
        """Every pin, in the order of keys. `cachekit pin --list`."""
        from cachekit.verbs.pins import pins

        return pins(self.open_store())
