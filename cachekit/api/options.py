"""What all functions of the library share: their options, recipes as they are given, and the session of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachekit.recipe import Recipe
from cachekit.recipe.load import edited, override_words
from cachekit.store.record import Record
from cachekit.verbs import open_session as _opening

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.events import Journal
    from cachekit.store import Store
    from cachekit.verbs.elsewhere import Elsewhere
    from cachekit.verbs.pins import Named
    from cachekit.verbs.prepare import Prepared
    from cachekit.verbs.session import Session

Progress = Callable[[dict[str, Any]], None]
Overrides = Mapping[str, Any] | Iterable[str]
AnyRecipe = Recipe | str | Path
AnyEntry = Record | Recipe | str | Path


def load_recipe(recipe: AnyRecipe, overrides: Overrides = (), *, tiny: bool = False) -> Recipe:
    """A recipe by the path of its file or a name of `cachekit zoo`; or one that is loaded already, with changes.

    Args:
        recipe: Path, name, or recipe.
        overrides: Fields to change: `{"training.max_seq_length": 128}`, or as `--set` takes them.
        tiny: The recipe in small, as `--tiny`; the overrides on top of that.

    Raises:
        UnknownNameError: No recipe is called that.
        RecipeError: It does not fit the schema.
        UsageError: An override is malformed.
    """
    words = override_words(overrides)
    if not isinstance(recipe, Recipe):
        return _opening.load_recipe(str(recipe), words, tiny=tiny)[0]
    if tiny:
        from cachekit.recipe import tiny as small

        return small.in_small(words, partial(edited, recipe))
    return edited(recipe, words) if words else recipe


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `Cache`, and what its methods begin with."""

    home: str | Path | None = None
    compiler: str | None = None
    cache: str | None = field(default=None, repr=False)  # an address may hold a token that does not belong there
    wait: float | None = None
    offline: bool = False
    trust_all: bool = False
    progress: Progress | None = None

    @contextmanager
    def session(
        self, recipe: Recipe | None = None, *, verb: str = "", toolchain: str | None = None, instance: str | None = None
    ) -> Iterator[Session]:
        """The store, the shared caches, the compiler and the journal, for calling `cachekit.verbs` oneself.

        Args:
            recipe: Chooses the compiler, where the settings leave it open.
            verb: What is done. `warm`, `train`, `run`, `import`, `pull`, `push`, `gc`, `rm` and `verify` leave a
                journal in the store.
            toolchain: A release of Neuron's SDK, for a machine that is not this one.
            instance: Its type.

        Raises:
            UsageError: A setting cannot be used.
            CompilerUnavailableError: The compiler is not on this machine.
            StoreError: The store's place is taken by something else.
        """

        @contextmanager
        def follow(journal: Journal) -> Iterator[None]:
            if self.progress is not None:
                journal.listen(self.progress)
            yield

        with _opening.open_session(
            self._config(), recipe, verb, offline=self.offline, toolchain=toolchain, instance=instance, follow=follow
        ) as opened:
            yield opened

    def open_store(self) -> Store:
        """The local store, for looking into: `records()`, `lookup(...)`, `reading(file)`.

        Raises:
            StoreError: The store's place is taken by something else, or closed to this user.
        """
        return _opening.store_at(self._config().home)

    def _config(self) -> Config:
        return _opening.load_config(self.home, self.compiler, self.wait, self.cache, trust_all=self.trust_all)

    @contextmanager
    def _prepared(
        self,
        recipe: AnyRecipe,
        overrides: Overrides,
        verb: str,
        *,
        tiny: bool,
        toolchain: str | None = None,
        target: str | None = None,
        instance: str | None = None,
    ) -> Iterator[tuple[Session, Prepared]]:
        """A recipe on this machine or another one, with the session of a run that is about it."""
        from cachekit.verbs.elsewhere import Elsewhere
        from cachekit.verbs.prepare import prepare

        loaded = load_recipe(recipe, overrides, tiny=tiny)
        machine = Elsewhere(toolchain or "", target or "", instance or "").machine(loaded, guess=False)
        with self.session(loaded, verb=verb, toolchain=toolchain, instance=machine) as opened:
            yield opened, prepare(loaded, opened.compiler, source_of(recipe))

    def _named(self, config: Config, entry: AnyEntry, machine: Elsewhere | None = None) -> Named:
        """The key that somebody means, or its first digits; a recipe's on another machine, where one is said."""
        from cachekit.compilers import select
        from cachekit.verbs.pins import Named
        from cachekit.verbs.prepare import prepare

        if isinstance(entry, Record):
            return Named(entry.key, entry.recipe)
        if isinstance(entry, Recipe):
            compiler = machine.select(entry) if machine else select(entry.compiler.name, config.compiler)
            return Named(prepare(entry, compiler).key, entry.name)
        text = str(entry)
        key = _opening.key_of(config, text, None, machine=machine)
        return Named(key) if key == text.lower() else Named(key, text)


def listed(entries: Sequence[AnyEntry]) -> Sequence[AnyEntry]:
    """Entries as they were given.

    Raises:
        TypeError: They are one text, of which each letter would be an entry.
    """
    if isinstance(entries, str):
        raise TypeError(f"entries are a list, not the text {entries!r}")
    return entries


def source_of(recipe: AnyRecipe) -> str:
    """A recipe as the user named it, for messages; empty for a value."""
    return "" if isinstance(recipe, Recipe) else str(recipe)
