"""What a team shares: remotes, a cache repo on the Hub, and the lock file of a project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cachekit.api.opened import AnyEntry, AnyRecipe, Opened, variant
from cachekit.recipe import Recipe

if TYPE_CHECKING:
    from cachekit.recipe.variant import Variant
    from cachekit.verbs.hub import RemoteContents, Used
    from cachekit.verbs.lock import CheckedLock, LockFile
    from cachekit.verbs.pull import Outcome, Pulls
    from cachekit.verbs.push import Pushes
    from cachekit.verbs.trust_records import CheckedRemote, SignedRecord
    from cachekit.verbs.trust_settings import ChangedTrust, Signers, SigningKey


class Sharing(Opened):
    """The verbs of remotes and of lock files. A lock file is the nearest `cachekit.lock`, where none is named."""

    def pull(self, recipe: AnyRecipe, *, dry_run: bool = False, guess: bool = False) -> Outcome:
        """Fetch what a recipe needs from the remotes into the store. `cachekit pull`.

        Args:
            recipe: See `plan`. Or the key of a record, as that of a command, by its first digits.
            dry_run: Only say what would be fetched.
            guess: Where only a toolchain is said, take any machine that fits it, before none.

        Returns:
            What became of it; `state` is `absent` where no remote has it.

        Raises:
            UsageError: No remote may be read; or changes of a recipe are said with a key.
            UnknownNameError: Several keys begin so.
            RemoteError, AuthError: A remote has it, and it could not be fetched.
            IntegrityError: What a remote has is not what its record says.
        """
        from cachekit.verbs.entry import means_key, unchanged
        from cachekit.verbs.pull import pull_key, pull_recipe

        verb = "" if dry_run else "pull"
        if not isinstance(recipe, Recipe) and means_key(variant(recipe).name):
            beginning = unchanged(variant(recipe))
            with self.session(verb=verb) as opened:
                opened.remotes.need("read", offline=True)
                return pull_key(opened, beginning, dry_run=dry_run)
        with self._prepared(recipe, verb, guess=guess, machine=True) as (opened, prepared):
            opened.remotes.need("read", offline=True)
            return pull_recipe(opened, prepared, dry_run=dry_run)

    def pull_modules(self, names: Sequence[str] = (), *, all_of: str = "", dry_run: bool = False) -> list[Outcome]:
        """Fetch modules by their names, without a record. `cachekit pull --module`.

        Args:
            names: Of modules.
            all_of: Every finished module of a compiler's folder: `neuronxcc-<version>`.
            dry_run: Only say what would be fetched.

        Raises:
            UsageError: No remote may be read; a name is of no compiler's module.
        """
        from cachekit.verbs.pull_modules import pull_modules

        with self.session(verb="" if dry_run else "pull") as opened:
            opened.remotes.need("read", offline=True)
            return pull_modules(opened, names, all_of, dry_run=dry_run)

    def push(
        self,
        entries: Sequence[AnyEntry] = (),
        *,
        pending: bool = False,
        public: bool = False,
        replace: bool = False,
        recheck: bool = False,
        dry_run: bool = False,
    ) -> Pushes:
        """Put records of the store on the remotes that may be written. `cachekit push`.

        Args:
            entries: Records, recipes, or keys by their first digits; all records by default.
            pending: Only what could not be pushed before.
            public: On a remote that anybody can read, too.
            replace: In the place of others of the same keys.
            recheck: Read what lies there, too, and put what is damaged there again.
            dry_run: Only say what would be sent.

        Returns:
            For each remote what became of it, in `pushed`; `error()` is what to raise where a push failed.

        Raises:
            UsageError: No remote may be written.
            MissError: A recipe is not in the store. Nothing was sent.
            UnknownNameError: A key names no record.
        """
        from cachekit.verbs.push import Pushes, chosen, push_records

        with self.session(verb="" if dry_run else "push") as opened:
            opened.remotes.need("written")
            records = chosen(opened, self._stored(opened.store, entries), pending=pending)
            done = push_records(opened, records, public=public, replaces=replace, dry_run=dry_run, recheck=recheck)
            return Pushes(dry_run, tuple(done))

    def hub_create(self, repo: str, *, dataset: bool = False, public: bool = False, dry_run: bool = False) -> Used:
        """Make a private cache repo on the Hugging Face Hub, and use it in this directory. `cachekit hub create`.

        A dry run makes and writes nothing.

        Raises:
            UsageError: No repo can be called that; it is public already; or `cachekit.toml` names another remote.
            RemoteError, AuthError: The Hub cannot be asked, or refuses.
        """
        from cachekit.verbs import hub

        kind = "dataset" if dataset else "model"
        return hub.create(repo, Path.cwd(), kind=kind, public=public, dry_run=dry_run)

    def hub_use(self, repo: str, *, dataset: bool = False, read_only: bool = False, dry_run: bool = False) -> Used:
        """Name a cache repo in this directory's `cachekit.toml`. `cachekit hub use`.

        A dry run writes nothing.

        Raises:
            UsageError: The file names another one, or cannot be written.
            RemoteError, AuthError: The Hub cannot be asked, or has no such repo for this token.
        """
        from cachekit.verbs import hub

        kind, may = "dataset" if dataset else "model", "r" if read_only else "rw"
        return hub.use(repo, Path.cwd(), kind=kind, may=may, dry_run=dry_run)

    def remote_contents(self, *, recipe: str = "", compiled_with: str = "") -> list[RemoteContents]:
        """The records that each remote holds. `cachekit hub ls`.

        Args:
            recipe: Only those of this recipe, with what a stopped run of it has left.
            compiled_with: Only those of this compiler: its name, or how its folder begins (`neuronxcc-2.26`).

        Raises:
            UsageError: No remote may be read.
            RemoteError, AuthError: None can be asked. If one of several cannot, its own contents say so.
        """
        from cachekit.verbs import hub

        with self.session(verb="hub") as opened:
            opened.remotes.need("read")
            return hub.contents(opened, recipe=recipe, compiled_with=compiled_with)

    def trust_init(self, key_file: str | Path = "", *, dry_run: bool = False) -> SigningKey:
        """Make a signing key, or name one, in the user's settings. `cachekit trust init`.

        Args:
            key_file: A key that is there; by default a new one is made, once.
            dry_run: Write nothing.

        Raises:
            UsageError: The key cannot be used or made, or the settings cannot be written.
        """
        from cachekit.verbs import trust_settings

        return trust_settings.init(self._mending(), str(key_file), dry_run=dry_run)

    def trust_add(
        self,
        name: str,
        key: str,
        *,
        valid_after: str = "",
        valid_before: str = "",
        user: bool = False,
        dry_run: bool = False,
    ) -> ChangedTrust:
        """Name a signer whose records are used. `cachekit trust add`.

        Args:
            name: What the signer is called.
            key: A `.pub` file, or its line.
            valid_after: A date, before which the key does not count.
            valid_before: A date, from which on it no longer does.
            user: In the user's own settings instead of the project's `cachekit.toml`.
            dry_run: Write nothing.

        Raises:
            UsageError: It is not a key or a date, the name has another key, or the file cannot be written.
        """
        from cachekit.verbs import trust_settings

        file = trust_settings.settings_file(Path.cwd(), user=user)
        return trust_settings.add(name, key, file, valid_after=valid_after, valid_before=valid_before, dry_run=dry_run)

    def trust_list(self) -> Signers:
        """Whose records are used, and what is revoked. `cachekit trust ls`.

        Raises:
            UsageError: A signer's key is none.
        """
        from cachekit.verbs import trust_settings

        with self.session(config=self._mending()) as opened:
            return trust_settings.listed(opened.config, trust_settings.modes(opened))

    def trust_revoke(self, *what: str, before: str = "", dry_run: bool = False) -> ChangedTrust:
        """Stop using a signer's records, single records, or all before a date, in every project of this user.

        The project's settings say so, too, where there are some: `cachekit trust revoke`.

        Args:
            *what: Fingerprints, names of signers, digests of records, or keys of records of the store.
            before: A date.
            dry_run: Write nothing.

        Raises:
            UsageError: One is nothing of these, or the user's own settings cannot be written.
            UnknownNameError: Digits fit no record, or several.
        """
        from cachekit.verbs.revoke import revoke

        with self.session(config=self._mending()) as opened:
            return revoke(opened, what, Path.cwd(), before=before, dry_run=dry_run)

    def trust_sign(self, *records: str, dry_run: bool = False) -> list[SignedRecord]:
        """Vouch for records of the store. `cachekit trust sign`.

        Args:
            *records: Keys, or the first digits of each.
            dry_run: Sign nothing.

        Raises:
            UsageError: No key signs, or it cannot be used.
            UnknownNameError: Digits fit no record, or several.
            UntrustedError: A record may not be given to others.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs import trust_records

        with self.session() as opened:
            return trust_records.sign(opened, records, dry_run=dry_run)

    def trust_check(self, remote: str = "") -> CheckedRemote:
        """Which records of a remote would be used, and why others would not. `cachekit trust check`.

        Args:
            remote: Its name, or any address; the only one by default.

        Returns:
            The records; `error()` is what to raise where none would be used.

        Raises:
            UsageError: No remote is called so, or may be read.
            RemoteError, AuthError: It cannot be asked.
        """
        from cachekit.verbs import trust_records

        with self.session() as opened:
            return trust_records.check(opened, remote)

    def lock(self, *recipes: AnyRecipe, lock_file: str | Path | None = None, dry_run: bool = False) -> LockFile:
        """Write the exact artifacts of recipes into the project's lock file. `cachekit store lock`.

        Args:
            *recipes: Paths or names, which is what the file says of them; by default all that are locked already.
            lock_file: Another file.
            dry_run: Write nothing.

        Returns:
            What was locked; those of it that no remote has are in `unshared`.

        Raises:
            MissError: A recipe is not warm. Nothing was written.
            UsageError: The file cannot be read or written, or locks nothing yet.
            RemoteError, AuthError: A remote could not be asked.
        """
        from cachekit.verbs.lock import lock_recipes

        with self.session() as opened:
            where = self._elsewhere(opened.config)
            return lock_recipes(opened, _lock_file(lock_file), _by_name(recipes), where, dry_run=dry_run)

    def check_lock(self, *recipes: str | Path, lock_file: str | Path | None = None) -> CheckedLock:
        """Whether recipes changed since they were locked. `cachekit store lock --check`.

        Args:
            *recipes: Paths or names; by default all that are locked.
            lock_file: Another file.

        Returns:
            Each entry with its `changes`; `error()` is what to raise where one does not fit any more.

        Raises:
            UsageError: The file cannot be read, or locks nothing yet.
            UnknownNameError: The file does not lock one of these.
        """
        from cachekit.verbs.lock import check_lock

        names = [one.name for one in _by_name(recipes)]
        with self.session() as opened:
            return check_lock(opened, _lock_file(lock_file), names)

    def pull_locked(self, *recipes: str | Path, lock_file: str | Path | None = None, dry_run: bool = False) -> Pulls:
        """Fetch exactly what a lock file says into the store. `cachekit pull --locked`.

        Args:
            *recipes: Paths or names; by default all that are locked.
            lock_file: Another file.
            dry_run: Only say what would be fetched.

        Returns:
            What became of each, in `pulled`; `error()` is what to raise where the locked bytes of one cannot be
            fetched. The others were fetched all the same.

        Raises:
            UsageError: The file cannot be read, or locks nothing yet.
            UnknownNameError: The file does not lock one of these.
            RemoteError, AuthError: What is locked may be on a remote that could not be asked.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.lock import pull_lock

        names = [one.name for one in _by_name(recipes)]
        with self.session(verb="" if dry_run else "pull") as opened:
            return pull_lock(opened, _lock_file(lock_file), names, dry_run=dry_run)


def _by_name(recipes: Sequence[AnyRecipe]) -> list[Variant]:
    from cachekit.errors import UsageError

    found = [variant(recipe) for recipe in recipes]
    if any(isinstance(one.recipe, Recipe) for one in found):
        raise UsageError(
            "a lock file names its recipes, but a Recipe has no path or name",
            hint="give the recipe's path or its name in the zoo; for changes, a Variant of that",
        )
    return found


def _lock_file(said: str | Path | None) -> Path:
    from cachekit.store.lock_file import nearest

    return Path(said) if said else nearest()
