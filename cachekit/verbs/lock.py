"""The lock file of a project: lock recipes in it, say whether it still fits them, and fetch what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from cachekit import redact
from cachekit.compilers import registry
from cachekit.compilers.elsewhere import Elsewhere
from cachekit.compilers.prepare import Prepared
from cachekit.errors import IntegrityError, MissError, SecretError
from cachekit.key.canonical import difference
from cachekit.key.words import Told, told
from cachekit.recipe.variant import Variant
from cachekit.remotes.locked import fetch_locked, holder
from cachekit.store import lock_file
from cachekit.store.layout import LOCAL
from cachekit.store.lock_file import Locked, anonymous, chosen, from_here, in_file
from cachekit.store.record import check_shareable
from cachekit.values import Answer
from cachekit.verbs.plan import miss_error, plan
from cachekit.verbs.pull import Outcome, Pulls, fetched
from cachekit.verbs.session import Session, using_store


class LockedRecipe(Struct, frozen=True):
    """An entry of a lock file.

    Attributes:
        recipe: As the file names it.
        set: Fields that are changed.
        tiny: The recipe in small.
        digest: Of all its files.
        remote: The remote that has it; `local` where none has.
        revision: The remote's state that has it.
        modules: How many there are; so for `files`.
    """

    recipe: str
    set: tuple[str, ...]
    tiny: bool
    compiler: str
    directory: str
    key: str
    digest: str
    remote: str
    revision: str
    modules: int
    files: int
    bytes: int


class CheckedRecipe(LockedRecipe, frozen=True):
    """Whether an entry still fits its recipe.

    Attributes:
        key_now: The recipe's key now.
        changes: Ingredients that differ, from the lock to the recipe; none where it fits.
    """

    status: Literal["fits", "changed"]
    key_now: str
    changes: tuple[Told, ...]


def _entry(locked: Locked) -> LockedRecipe:
    record = locked.record
    return LockedRecipe(
        recipe=locked.recipe,
        set=locked.overrides,
        tiny=locked.tiny,
        compiler=record.compiler,
        directory=record.directory,
        key=record.key,
        digest=locked.digest,
        remote=locked.remote,
        revision=locked.revision,
        modules=len(record.modules),
        files=len(record.files),
        bytes=record.size,
    )


class LockFile(Answer, frozen=True, tag="cachekit/lock/1"):
    """A lock file after recipes were locked.

    Attributes:
        file: Its path.
        changed: It says something else than before.
        dry_run: Nothing was written.
        locked: The entries of these recipes.
        kept: How many others are in it.
    """

    file: Path
    changed: bool
    dry_run: bool
    locked: tuple[LockedRecipe, ...]
    kept: int

    @property
    def unshared(self) -> tuple[LockedRecipe, ...]:
        """Those that no remote has: others cannot pull them before a push."""
        return tuple(entry for entry in self.locked if entry.remote == LOCAL)


class CheckedLock(Answer, frozen=True, tag="cachekit/lock-check/1"):
    """Whether a lock file still fits its recipes."""

    file: Path
    checked: tuple[CheckedRecipe, ...]

    @property
    def changed(self) -> tuple[CheckedRecipe, ...]:
        """Those that do not fit any more."""
        return tuple(one for one in self.checked if one.status == "changed")

    @property
    def good(self) -> bool:
        """All fit."""
        return not self.changed

    def error(self) -> MissError | None:
        """What to raise where one does not fit."""
        if self.good:
            return None
        names = [lock_file.words(one.recipe, one.set, tiny=one.tiny) for one in self.changed]
        first = self.changed[0]
        again = lock_file.words(from_here(first.recipe, self.file), first.set, tiny=first.tiny)
        return MissError(
            f"{len(names)} recipe{'s' * (len(names) > 1)} changed since {self.file} was written",
            cause=", ".join(names),
            hint=f"cachekit warm {again}, then cachekit store lock {again}",
        )


def lock_recipes(
    session: Session, path: Path, recipes: Sequence[Variant], where: Elsewhere, *, dry_run: bool = False
) -> LockFile:
    """Write the exact artifacts of recipes into a file; see `Cache.lock`.

    What `where` leaves open of the machine that they are locked for stays as the file says.
    """
    held = lock_file.read(path) if path.exists() else []
    variants = (Variant(in_file(one.name, path), tuple(one.words), one.tiny) for one in recipes)
    wanted = [(one, where) for one in dict.fromkeys(variants)]
    for entry in chosen(held, [], path) if not recipes else ():
        instance = where.instance or ("" if where.target else entry.instance)
        same = Elsewhere(session.config, where.toolchain or entry.toolchain, where.target, instance)
        wanted.append((Variant(entry.recipe, entry.overrides, entry.tiny), same))
    fresh = []
    for variant, machine in wanted:
        prepared = _prepared(path, variant, machine)
        instance = machine.machine(prepared.recipe, guess=False)
        fresh.append(lock(session, prepared, variant, toolchain=machine.toolchain, instance=instance))
    anew = {entry.name for entry in fresh}
    everything = [entry for entry in held if entry.name not in anew] + fresh
    changed = lock_file.text(everything) != (lock_file.text(held) if held else "")
    if not dry_run:
        lock_file.write(path, everything)
    return LockFile(path, changed, dry_run, tuple(map(_entry, fresh)), len(everything) - len(fresh))


def check_lock(session: Session, path: Path, recipes: Sequence[str]) -> CheckedLock:
    """Compare entries of a lock file with their recipes as they are now; see `Cache.check_lock`."""
    held = lock_file.read(path) if path.exists() else []
    checked = []
    for entry in chosen(held, recipes, path):
        variant = Variant(entry.recipe, entry.overrides, entry.tiny)
        where = Elsewhere(session.config, entry.toolchain, "", entry.instance)
        checked.append(check(entry, _prepared(path, variant, where)))
    return CheckedLock(path, tuple(checked))


def pull_lock(session: Session, path: Path, recipes: Sequence[str], *, dry_run: bool = False) -> Pulls:
    """Fetch exactly what a lock file says into the store; see `Cache.pull_locked`."""
    done: list[Outcome] = []
    for entry in chosen(lock_file.read(path), recipes, path):
        try:
            done.append(pull_locked(session, entry, dry_run=dry_run))
        except IntegrityError as error:
            done.append(Outcome(entry.words, "failed", entry.record.key, error=error))
    return Pulls(tuple(done))


def _prepared(path: Path, variant: Variant, where: Elsewhere) -> Prepared:
    here = structs.replace(variant, recipe=from_here(variant.name, path))
    return where.prepare(here.load(), here.typed({}))


# One recipe


@using_store
def lock(
    session: Session,
    prepared: Prepared,
    variant: Variant,
    *,
    toolchain: str = "",
    instance: str = "",
) -> Locked:
    """Write down what a run of the recipe would take now.

    Where a remote has the same artifacts, its state is noted beside, so that they can be fetched from there for as long
    as the remote remembers that state.

    Args:
        session: Collaborators.
        prepared: The recipe.
        variant: The recipe as it was named.
        toolchain: The release that it was planned for.
        instance: Likewise the instance type.

    Raises:
        MissError: Nothing is there to be locked.
        SecretError: The record, or a change of the recipe, holds a secret.
        RemoteError, AuthError: A remote could not be asked.
    """
    for remote in session.remotes.readable:
        remote.retry()
    planned = plan(prepared, session.store, session.remotes, anew=True)
    if planned.record is None:
        session.remotes.raise_failure(prepared.key)
        raise miss_error(planned)
    record = planned.record
    check_shareable(record)
    if secret := next((word.partition("=")[0] for word in variant.words if redact.holds(word)), ""):
        raise SecretError(
            f"--set {secret} holds a secret, and a lock file is read by others",
            hint=f"--set '{secret}=$NAME' takes the value from the environment variable NAME",
        )
    found = planned.found or holder(session.remotes, record)
    place, revision = (found.remote.name, found.revision) if found else (LOCAL, "")
    return Locked(
        variant.name,
        tuple(variant.words),
        record.digest,
        anonymous(record),
        remote=place,
        revision=revision,
        tiny=variant.tiny,
        toolchain=toolchain,
        instance=instance,
    )


def check(locked: Locked, prepared: Prepared) -> CheckedRecipe:
    """Compare an entry with its recipe as it is now."""
    record = locked.record
    return CheckedRecipe(
        **structs.asdict(_entry(locked)),
        status="fits" if prepared.key == record.key else "changed",
        key_now=prepared.key,
        changes=told(difference(record.hard, prepared.ingredients.hard), registry.adapter(record.compiler).explain),
    )


@using_store
def pull_locked(session: Session, locked: Locked, *, dry_run: bool = False) -> Outcome:
    """Fetch exactly the locked artifacts into the store; see `remotes.locked.fetch_locked`."""
    record, name = locked.record, locked.words
    judge = registry.judge(record.directory)
    done = fetch_locked(session.store, session.remotes, locked, judge, dry_run=dry_run)
    if done is None:
        return Outcome(name, "present", record.key, present=record.size)
    return fetched(name, record.key, done, dry_run=dry_run)
