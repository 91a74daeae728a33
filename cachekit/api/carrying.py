"""What carries records elsewhere: bundles, caches of Neuron's own, and the lock file of a project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cachekit.api.options import AnyEntry, Options, Overrides, listed
from cachekit.recipe import Recipe
from cachekit.recipe.load import override_words
from cachekit.store.record import Record

if TYPE_CHECKING:
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.export_bundle import Bundled
    from cachekit.verbs.export_cache import Exported
    from cachekit.verbs.import_bundle import Unbundled
    from cachekit.verbs.import_cache import Imported
    from cachekit.verbs.lock_file import CheckedLock, LockFile
    from cachekit.verbs.pull_recipes import Outcome
    from cachekit.verbs.session import Session


class Carrying(Options):
    """The methods of `Cache` that write and read bundles, Neuron's own caches, and lock files."""

    def export_bundle(
        self,
        output: str | Path,
        entries: Sequence[AnyEntry] = (),
        *,
        all_of: str = "",
        dry_run: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Bundled:
        """Write records as one file, for a machine without a network. `cachekit export NAME.tar`.

        Args:
            output: The file, whatever its name ends in. It appears whole, or not at all; a bundle that is there is
                replaced, anything else is not.
            entries: Records, recipes by value, path or name, or keys by their first digits; all records by default.
            all_of: Instead of entries, all records of a compiler's folder: `neuronxcc-2.21.18209.0`.
            dry_run: Only say what would be in it.
            toolchain: Of a machine that is not this one, for recipes; so `target` and `instance`: see `plan`.
            target: See there.
            instance: See there.

        Raises:
            MissError: A recipe is not in the store. Nothing was written; so below.
            UnknownNameError: A key names no record, or several; there are none.
            IntegrityError: A record of the store is not whole.
            UsageError: The file cannot be written, or something else lies there.
        """
        from cachekit.verbs.export_bundle import chosen, export_bundle

        with self._exporting(entries, all_of, toolchain, target, instance) as (opened, keys):
            records = chosen(opened.store, keys, all_of)
            return export_bundle(opened, records, Path(output), dry_run=dry_run)

    def import_bundle(self, bundle: str | Path, *, dry_run: bool = False) -> Unbundled:
        """Take the records of a bundle into the store. `cachekit import NAME.tar`.

        Every byte of it is compared before any of it becomes visible.

        Args:
            bundle: The file.
            dry_run: Only compare it, and say what would be taken.

        Returns:
            Its `records`, each with what became of it.

        Raises:
            IntegrityError: It is no bundle, or not whole. Nothing was taken.
            UsageError: It cannot be read, or a later cachekit made it.
            StoreError: The store cannot be written, or has no room.
        """
        from cachekit.verbs.import_bundle import import_bundle, opened

        with opened(Path(bundle)) as (source, name), self.session(verb="" if dry_run else "import") as session:
            return import_bundle(session, source, name, dry_run=dry_run)

    def export_neuron_cache(
        self,
        folder: str | Path,
        entries: Sequence[AnyEntry] = (),
        *,
        all_of: str = "",
        dry_run: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Exported:
        """Write records' modules as a cache of Neuron's own, which optimum-neuron reads, too. `cachekit export FOLDER`.

        Args:
            folder: The cache's root, as a path or `file://…`; made if need be. It may be in use: finished modules that
                are there stay, locked ones are left alone.
            entries: As for `export_bundle`; all of Neuron's records by default.
            all_of: See `export_bundle`; so for the rest.
            dry_run: Only say what would be written.
            toolchain: See `export_bundle`.
            target: See there.
            instance: See there.

        Returns:
            What became of each module. Nothing is raised for modules that are damaged in the store, or that could not
            be put there: `error()` is what to raise.

        Raises:
            MissError: A recipe is not in the store. Nothing was written.
            UnknownNameError: A key names no record, or several; there are none of Neuron's.
            UsageError: A record is not of Neuron's, or the folder cannot be written.
        """
        from cachekit.disk import local_folder
        from cachekit.verbs.export_cache import export_cache

        place = local_folder(folder)
        with self._exporting(entries, all_of, toolchain, target, instance) as (opened, keys):
            return export_cache(opened.store, place, keys=keys, compiler=all_of, dry_run=dry_run)

    def import_neuron_cache(self, folder: str | Path, *, dry_run: bool = False) -> Imported:
        """Take the finished modules of a cache of Neuron's own into the store. `cachekit import FOLDER`.

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
        from cachekit.verbs.import_cache import import_into

        place = local_folder(folder)
        with self.session(verb="" if dry_run else "import") as opened:
            return import_into(opened, place, dry_run=dry_run)

    def lock(
        self,
        recipe: str | Path | None = None,
        overrides: Overrides = (),
        *,
        tiny: bool = False,
        lock_file: str | Path | None = None,
        dry_run: bool = False,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> LockFile:
        """Pin the exact artifacts of a recipe in the project's lock file. `cachekit lock`.

        Args:
            recipe: Path or name, which is what the file says of it; by default all that are locked already.
            overrides: See `load_recipe`; so for `tiny`.
            tiny: See `load_recipe`.
            lock_file: Another than the nearest `cachekit.lock`.
            dry_run: Write nothing.
            toolchain: Of a machine that is not this one; so `target` and `instance`: see `plan`.
            target: See there.
            instance: See there.

        Returns:
            What was locked; those of it that no shared cache has are in `unshared`.

        Raises:
            MissError: The recipe is not warm. Nothing was written.
            UsageError: The file cannot be read or written, or locks nothing yet.
            RemoteError, AuthError: A shared cache could not be asked.
        """
        from cachekit.verbs.lock_file import lock_recipes

        return lock_recipes(
            *(self.session, _lock_file(lock_file), _names(recipe), override_words(overrides)),
            tiny=tiny,
            dry_run=dry_run,
            compiler=self._config().compiler,
            toolchain=toolchain or "",
            target=target or "",
            instance=instance or "",
        )

    def check_lock(self, *recipes: str | Path, lock_file: str | Path | None = None) -> CheckedLock:
        """Whether recipes changed since they were locked. `cachekit lock --check`.

        Args:
            *recipes: Paths or names; by default all that are locked.
            lock_file: See `lock`.

        Returns:
            Each entry with its `changes`; `error()` is what to raise where one does not fit any more.

        Raises:
            UsageError: The file cannot be read, or locks nothing yet.
            UnknownNameError: It does not lock one of these.
        """
        from cachekit.verbs.lock_file import check_lock

        compiler = self._config().compiler
        return check_lock(self.session, _lock_file(lock_file), _names(*recipes), compiler=compiler)

    def pull_locked(
        self, *recipes: str | Path, lock_file: str | Path | None = None, dry_run: bool = False
    ) -> list[Outcome]:
        """Have exactly what a lock file says in the store. `cachekit pull --locked`.

        Args:
            *recipes: Paths or names; by default all that are locked.
            lock_file: See `lock`.
            dry_run: Only say what would be fetched.

        Raises:
            IntegrityError: The locked bytes of one are not to be had; the others were fetched all the same.
            UsageError: The file cannot be read, or locks nothing yet.
            UnknownNameError: It does not lock one of these.
            RemoteError, AuthError: What is locked may be on a cache that could not be asked.
            StoreError: The store cannot be written.
        """
        from cachekit.verbs.lock_file import pull_lock

        done, failure = pull_lock(self.session, _lock_file(lock_file), _names(*recipes), dry_run=dry_run)
        if failure:
            raise failure
        return done

    @contextmanager
    def _exporting(
        self,
        entries: Sequence[AnyEntry],
        all_of: str,
        toolchain: str | None,
        target: str | None,
        instance: str | None,
    ) -> Iterator[tuple[Session, list[str]]]:
        """A session, and the keys of what is to be exported, which is there where it is a recipe's."""
        from cachekit.errors import UsageError
        from cachekit.verbs.elsewhere import Elsewhere

        if entries and all_of:
            raise UsageError("what to export is not clear", hint="name entries, or all_of")
        with self.session() as opened:
            machine = Elsewhere(toolchain or "", target or "", instance or "", opened.config.compiler)
            yield opened, [self._warm_key(opened, entry, machine) for entry in listed(entries)]

    def _warm_key(self, opened: Session, entry: AnyEntry, machine: Elsewhere) -> str:
        from cachekit.verbs.export_bundle import check_warm

        named = self._named(opened.config, entry, machine)
        if named.recipe and not isinstance(entry, Record):
            check_warm(opened.store, named.key, named.recipe)
        return named.key


def _names(*recipes: str | Path | None) -> list[str]:
    from cachekit.errors import UsageError

    if any(isinstance(recipe, Recipe) for recipe in recipes):
        raise UsageError(
            "a lock file names its recipes, and this one is a value",
            hint="give its path, or its name in the zoo, and what is changed as overrides",
        )
    return [str(recipe) for recipe in recipes if recipe is not None]


def _lock_file(said: str | Path | None) -> Path:
    from cachekit.store.lock_file import nearest

    return Path(said) if said else nearest()
