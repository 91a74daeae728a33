"""What a user's own command compiled, kept: a record of its own, or more of the one that it had."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from cachekit.compilers import Harvest, Observed
from cachekit.errors import CachekitError, StoreError
from cachekit.events import bypass
from cachekit.store.record import Module, Record
from cachekit.verbs.live import LiveRoot
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.provenance import provenance
from cachekit.verbs.push import push
from cachekit.verbs.session import Session

# Beside the key. Without the first, the command that made the record did not come to its end: graphs may be lacking.
FINISHED = "command.finished"
# Inductor counted inside of it, so its keys are portable ones.
REPORTED = "command.reported"


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a command had, and where it ran.

    Attributes:
        session: Collaborators.
        prepared: Its key.
        record: The key's record.
        seed: Another one's, whose graphs it was given as it had none.
        live: Its live root.
        fetched: The record comes from a shared cache.
        replaces: What it compiled takes the place of what there was.
    """

    session: Session
    prepared: Prepared
    record: Record | None
    seed: Record | None
    live: LiveRoot
    fetched: bool = False
    replaces: bool = False

    def keep(self, seen: Observed, *, finished: bool) -> tuple[Record | None, str]:
        """Keep what compiled completely; never fails the command, whose exit code is the answer.

        Args:
            seen: What the compiler did.
            finished: The command came to its end.

        Returns:
            The record that there is now, None where there is none; and why nothing could be kept.
        """
        session = self.session
        try:
            with session.store.workspace() as workspace:
                had = {module.name for module in self.record.modules} if self.record else set()
                # What a compile that was stopped has left is no module.
                whole = session.compiler.contents(self.live.tree)
                wanted = structs.replace(seen, modules=(seen.modules & whole) - had) if seen.modules else seen
                harvest = session.compiler.harvest(
                    self.live.tree, self.live.before, self.prepared.fingerprint, workspace, wanted
                )
                kept = self._publish(harvest, seen, finished=finished)
            if kept is not None and (kept != self.record or not self.fetched):  # made before there was a shared cache
                push(session, [kept], session.chain.writable, replaces=self.replaces)
        except (CachekitError, OSError) as error:
            session.journal.emit("train.not-kept", reason=str(error))
            bypass(session.journal, "store-not-writable" if isinstance(error, StoreError) else "not-kept", str(error))
            return self.record, str(error)
        return kept, ""

    def _publish(self, harvest: Harvest | None, seen: Observed, *, finished: bool) -> Record | None:
        """Put what is new into the store; None where there is nothing to keep."""
        new = harvest.modules if harvest else ()
        unused = self.seed is None or (seen.exact and not seen.found)
        if self.record is None and not new and unused:
            return None
        store, key, place = self.session.store, self.prepared.key, self.prepared.fingerprint.directory
        with store.changing(key):
            now = None if self.replaces else store.lookup(key, place, self.prepared.model_type) or self.record
            kept = (
                self._first(new, seen, finished=finished) if now is None else _more(now, new, seen, finished=finished)
            )
            if kept is now:
                return kept
            files = {file.sha256 for module in kept.modules for file in module.files}
            ours = harvest.files if harvest else {}
            store.publish(kept, {sha256: path for sha256, path in ours.items() if sha256 in files})
        return kept

    def _first(self, new: tuple[Module, ...], seen: Observed, *, finished: bool) -> Record:
        prepared, seed = self.prepared, self.seed
        # A compiler that names what a run used has the seed's among that.
        old = seed.modules if seed and not seen.modules else ()
        return Record(
            key=prepared.key,
            compiler=self.session.compiler.name,
            directory=prepared.fingerprint.directory,
            model_type=prepared.model_type,
            recipe=prepared.recipe.name,
            hard=dict(prepared.ingredients.hard),
            soft={**prepared.ingredients.soft, FINISHED: finished, REPORTED: seen.exact},
            modules=_together(old, new),
            graphs=seen.found + seen.compiled,
            compile_seconds=max(seen.compile_seconds, seed.compile_seconds if seed else 0.0),
            provenance=provenance(prepared.fingerprint),
        )


def _more(now: Record, new: tuple[Module, ...], seen: Observed, *, finished: bool) -> Record:
    modules = _together(now.modules, new)
    soft = {
        **now.soft,
        FINISHED: finished or bool(now.soft.get(FINISHED)),
        REPORTED: seen.exact or bool(now.soft.get(REPORTED)),
    }
    if modules == now.modules and soft == now.soft:
        return now
    return structs.replace(
        now,
        soft=soft,
        modules=modules,
        graphs=max(now.graphs, seen.found + seen.compiled),
        # What compiled beyond the record comes to what that took already.
        compile_seconds=round(now.compile_seconds + (seen.compile_seconds if modules != now.modules else 0.0), 3),
    )


def _together(old: tuple[Module, ...], new: tuple[Module, ...]) -> tuple[Module, ...]:
    names = {module.name for module in old}
    return (*old, *(module for module in new if module.name not in names))
