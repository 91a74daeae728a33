"""Verify by rebuild: compile all the same, in an empty compiler cache dir, and compare with what the record has."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from cachekit.compilers import ComparedBuilds
from cachekit.compilers.prepare import Prepared
from cachekit.data.shapes import check_data
from cachekit.errors import IntegrityError
from cachekit.recipe.model_folder import check_package
from cachekit.store.divergent import builder
from cachekit.store.record import Record
from cachekit.training.run import run_job
from cachekit.verbs.plan import Plan, fetch_planned, miss_error, plan
from cachekit.verbs.session import Session

NAMED = 3  # differences that the error names


@dataclass(frozen=True, slots=True)
class CheckedBuild:
    """What the comparison gave.

    Attributes:
        plan: Where the record was found.
        record: What was compared with.
        compared: Part by part.
        compiled: Graphs that were compiled for it.
        seconds: Wall time.
    """

    plan: Plan
    record: Record
    compared: ComparedBuilds
    compiled: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        found, prepared = self.compared, self.plan.prepared
        return {
            "recipe": prepared.recipe.name,
            "source": prepared.source,
            "key": prepared.key,
            "directory": prepared.fingerprint.directory,
            "remote": self.plan.remote,
            "status": "differs" if found.differ else "same",
            "compiled": self.compiled,
            "same": found.same,
            "differ": list(found.differ),
            "not_rebuilt": list(found.gone),
            "not_in_record": list(found.new),
            "by": builder(self.record),
            "seconds": round(self.seconds, 3),
        }

    def error(self) -> IntegrityError | None:
        """What to say where anything differs."""
        differ = self.compared.differ
        if not differ:
            return None
        more = f" and {len(differ) - NAMED} more" if len(differ) > NAMED else ""
        made, count = builder(self.record), self.compared.same + len(differ)
        return IntegrityError(
            f"the record of {self.plan.prepared.recipe.name} is not what compiling gives here",
            cause=f"{len(differ)} of {count} parts differ: {', '.join(differ[:NAMED])}{more}; "
            f"the record was made by {made['by']}, {made['created'][:16]}",
            hint=f"cachekit warm {self.plan.prepared.source} --recache puts a new one in its place",
        )


def check_build(session: Session, prepared: Prepared) -> CheckedBuild:
    """Compile a recipe although it is warm, and compare; nothing is kept of it.

    Raises:
        MissError: There is no record to compare with.
        IntegrityError: The record's bytes are not those that it names.
        CachekitError: The trial failed; see `run_job`.
    """
    start = time.monotonic()
    check_data(prepared.recipe)
    check_package(prepared.recipe)
    planned = plan(prepared, session.store, session.remotes, anew=True)
    record = fetch_planned(session, planned)
    if record is None:
        raise miss_error(planned)
    compiler = session.compiler
    session.journal.emit("build.start", key=prepared.key, **builder(record))
    with session.cache_dir(prepared.key, record) as old, session.cache_dir(prepared.key, None) as new:
        _, seen = run_job(
            session.launcher(), compiler, prepared, new, "trial", store=session.store, log=session.log, found=False
        )
        compared = compiler.compare(old.tree, new.tree)
    done = CheckedBuild(planned, record, compared, seen.compiled, time.monotonic() - start)
    session.journal.emit("build.checked", **done.as_dict())
    return done
