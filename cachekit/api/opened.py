"""What all verbs share: settings, the session, and the recipe on its machine are opened here, and only here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cachekit.errors import MissError, UsageError
from cachekit.host import MASTER_PORT
from cachekit.recipe import Recipe
from cachekit.recipe.variant import Variant
from cachekit.store.record import Record
from cachekit.text import count
from cachekit.verbs import entry as naming
from cachekit.verbs import session as opening

if TYPE_CHECKING:
    from cachekit.compilers import Node
    from cachekit.compilers.elsewhere import Elsewhere
    from cachekit.compilers.prepare import Prepared
    from cachekit.config import Config, Setting
    from cachekit.events import Journal
    from cachekit.recipe.price import Prices
    from cachekit.store import Store
    from cachekit.verbs.session import Session

Progress = Callable[[dict[str, Any]], None]
AnyRecipe = Recipe | Variant | str | Path
AnyEntry = Record | Recipe | Variant | str | Path
Price = float | Sequence[str]
PORTS = 65535  # the last one


def load_recipe(recipe: AnyRecipe) -> Recipe:
    """A recipe by the path of its file, or a name of `cachekit zoo`; or with changes, as a `Variant`.

    Raises:
        UnknownNameError: No recipe is called that.
        RecipeError: The recipe does not fit the schema.
        UsageError: An override is malformed.
    """
    return variant(recipe).load()


def variant(recipe: AnyRecipe) -> Variant:
    """A recipe in the one form that has all others in it."""
    return recipe if isinstance(recipe, Variant) else Variant(recipe)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)  # which `Cache` has: to make them takes 2 ms
class Opened:
    """The options of a `Cache`, and what is made of them; see there."""

    home: str | Path | None = None
    compiler: str | None = None
    cache: str | None = field(default=None, repr=False)  # an address may hold a token that does not belong there
    wait: float | str | None = None
    offline: bool = False
    trust: str | None = None
    trust_all: bool = False
    toolchain: str | None = None
    target: str | None = None
    instance: str | None = None
    nnodes: int | None = None
    node_rank: int = 0
    master_addr: str = ""
    master_port: int = MASTER_PORT
    progress: Progress | None = None

    @contextmanager
    def session(
        self,
        *,
        verb: str = "",
        config: Config | None = None,
    ) -> Iterator[Session]:
        """The store, the remotes and the journal, for calling `cachekit.verbs` oneself.

        Args:
            verb: What is done. `warm`, `train`, `run`, `import`, `pull`, `push`, `gc`, `rm` and `verify` leave a
                journal in the store.
            config: The settings, where they were read already.

        Raises:
            UsageError: A setting cannot be used.
            StoreError: The store's place is taken by something else.
        """
        settings = config or self._config()
        with opening.open_session(settings, verb, offline=self.offline, follow=self.progress) as opened:
            yield opened

    def open_store(self) -> Store:
        """The local store, for looking into: `records()`, `lookup(...)`, `reading(file)`.

        Raises:
            StoreError: The store's place is taken by something else, or closed to this user.
        """
        return opening.store_at(self._config().home, self._journal(""))

    def settings(self) -> tuple[Setting, ...]:
        """Every setting, with its value and where it came from. `cachekit config`.

        Raises:
            UsageError: A setting cannot be used.
        """
        from cachekit.trust.policy import policy_of

        config = self._mending()
        policy_of(config.trust, next(one.origin for one in config.settings if one.name == "trust"))
        return config.settings

    def _config(self, **said: Any) -> Config:
        """The settings, with what this cache says, and what a verb is told of others by their names."""
        return opening.load_config(
            home=self.home,
            compiler=self.compiler,
            wait_seconds=self.wait,
            cache=self.cache,
            trust_only=self.trust,
            trust_all=self.trust_all,
            **said,
        )

    def _mending(self) -> Config:
        """The settings for those who show or mend them: where two signers have one name, that is told, and no error."""
        config = self._config(mending=True)
        if clash := config.clash:
            self._journal("").emit("trust.clash", message=clash.message, reason=clash.cause, hint=clash.hint)
        return config

    @contextmanager
    def _compiling_for(self, recipe: AnyRecipe, instance: str) -> Iterator[tuple[str, Variant]]:
        """The compiler and the recipe with which a machine without a device compiles for one that has it."""
        from cachekit.compilers.elsewhere import compile_for

        if self.instance or self.target or self.toolchain:
            raise UsageError(
                "--for names the machine that the code is compiled for, and so do --instance, --target and --toolchain",
                hint="leave out one of them; the release of the SDK is the one that is installed here",
            )
        one = self._variant(recipe)
        found = compile_for(one.load(), instance, self._config().compiler)
        with opening.environment(found.variables):
            yield found.compiler, structs.replace(one, overrides=[*one.words, *found.overrides])

    def _node(self) -> Node | None:
        if self.nnodes is None and not self.node_rank and not self.master_addr:
            return None
        from cachekit.compilers import Node

        if not 0 < self.master_port <= PORTS:
            raise UsageError(
                f"--master-port {self.master_port}: there is no such port", hint=f"give a number from 1 to {PORTS}"
            )
        if (self.nnodes or 1) > 1 and not self.node_rank and not self.master_addr:
            from cachekit.compilers.nodes import place

            if found := place(self.nnodes or 1, self.master_port):
                return found
        return Node(self.node_rank, self.master_addr, self.master_port)

    def _journal(self, verb: str) -> Journal:
        """A journal that is only listened to."""
        from cachekit.events import Journal

        journal = Journal(None, verb)
        if self.progress is not None:
            journal.listen(self.progress)
        return journal

    def _elsewhere(self, config: Config | None = None) -> Elsewhere:
        """The machine that is meant, if not this one; with settings that were read already, or these."""
        from cachekit.compilers.elsewhere import Elsewhere

        said = [one or "" for one in (self.toolchain, self.target, self.instance)]
        return Elsewhere(config or self._config(), *said, node=self._node())

    def _variant(self, recipe: AnyRecipe) -> Variant:
        """A recipe with the number of nodes that this cache says."""
        found = variant(recipe)
        if self.nnodes is None:
            return found
        return structs.replace(found, overrides=[*found.words, f"parallel.nodes={self.nnodes}"])

    def _source(self, recipe: AnyRecipe, *, machine: bool = False) -> str:
        """A recipe as the user would type it again, with what else the next command must be told to mean the same."""
        said = {**self._where(), "--compiler": self.compiler, **self._which()}
        if machine:
            said |= {"--toolchain": self.toolchain, "--target": self.target, "--instance": self.instance}
        return self._variant(recipe).typed(said)

    def _where(self) -> dict[str, object]:
        """The options that say which store and which remotes are meant, for a command that goes on from here."""
        return {"--home": self.home, "--cache": self.cache}

    def _which(self) -> dict[str, object]:
        """The options that say which machine of several this one is."""
        port = self.master_port if self.master_port != MASTER_PORT else 0
        return {"--node-rank": self.node_rank, "--master-addr": self.master_addr, "--master-port": port}

    @contextmanager
    def _prepared(
        self, recipe: AnyRecipe, verb: str, *, guess: bool = False, machine: bool = False
    ) -> Iterator[tuple[Session, Prepared]]:
        """A recipe on the machine that is meant, with the session of a run that is about it.

        Args:
            recipe: The recipe.
            verb: See `session`.
            guess: Take any machine that fits the toolchain, before none.
            machine: What is to be typed again names the machine.

        Raises:
            UsageError: This machine's number is none of the recipe's.
        """
        from cachekit.compilers.prepare import prepare

        loaded = self._variant(recipe).load()
        if self.node_rank >= (nodes := loaded.parallel.nodes):
            raise UsageError(
                f"this machine's number is {self.node_rank}, but {loaded.name} trains on {count(nodes, 'machine')}",
                hint="--nnodes N, or parallel.nodes in the recipe, says how many train together; --node-rank is from 0",
            )
        config = self._config()
        compiler = self._elsewhere(config).select(loaded, guess=guess)  # where there is none, nothing has begun
        with self.session(verb=verb, config=config) as opened:
            source = self._source(recipe, machine=machine)
            yield opened, prepare(loaded, compiler, source, salt=opened.config.trust.salt)

    def _named(self, entry: AnyEntry) -> naming.Named:
        """The key that somebody means, or its first digits; a recipe's on the machine that is meant."""
        if isinstance(entry, Record):
            return naming.Named(entry.key, entry.recipe)
        return naming.named(self._variant(entry), self._elsewhere())

    def _stored(self, store: Store, entries: Sequence[AnyEntry], hint: str = "") -> list[str]:
        """The keys that somebody means, or their first digits; what is a recipe's is in the store.

        Args:
            store: The store.
            entries: What was named.
            hint: What to do where a recipe's record is not there; by default, how to get it.

        Raises:
            MissError: A recipe's record is not there.
        """
        keys = []
        for entry in listed(entries):
            named = self._named(entry)
            if named.recipe and not isinstance(entry, Record) and not store.refresh().by_prefix(named.key):
                source = self._source(entry) or named.recipe
                pulled = self._source(entry, machine=True) or named.recipe
                there = "there " if self.instance or self.target or self.toolchain else ""
                raise MissError(
                    f"{source} is not in the store: key {named.key[:16]} has no record",
                    hint=hint or f"cachekit pull {pulled}, or {there}cachekit warm {source}",
                )
            keys.append(named.key)
        return keys


def listed(entries: Sequence[AnyEntry]) -> Sequence[AnyEntry]:
    """Entries as they were given.

    Raises:
        TypeError: They are one text, of which each letter would be an entry.
    """
    if isinstance(entries, str):
        raise TypeError(f"entries must be a list, not the text {entries!r}")
    return entries


def prices(said: Price) -> Prices:
    """What an hour costs: 0.40 on any machine, or `["trn1.2xlarge=0.40"]`."""
    from cachekit.recipe import price

    return price.read([repr(said)] if isinstance(said, int | float) else said)
