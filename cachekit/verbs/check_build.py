"""Verify by rebuild: compile all the same, in an empty compiler cache dir, and compare with what the record has."""

from __future__ import annotations

import time
from typing import Literal

from msgspec.structs import asdict

from cachekit.compilers.prepare import Prepared
from cachekit.data.shapes import check_data
from cachekit.errors import IntegrityError
from cachekit.recipe.model_config import check_package
from cachekit.store.divergent import Maker, maker_of
from cachekit.text import first_of
from cachekit.training.run import run_job
from cachekit.values import Answer
from cachekit.verbs.plan import fetch_planned, miss_error, plan, unfetched
from cachekit.verbs.session import Session


class CheckedBuild(Answer, frozen=True, kw_only=True, tag="cachekit/build-check/1"):
    """What comparing a record with a new compile gave.

    Attributes:
        remote: Where the record was found.
        compiled: Graphs that were compiled for it.
        same: How many parts are the same: files, graphs or modules, as the compiler has them.
        differ: Parts that both have, and that differ.
        not_rebuilt: Parts that only the record has.
        not_in_record: Parts that only the new compile has.
        by: Who made the record.
        seconds: Wall time.
    """

    recipe: str
    source: str
    key: str
    directory: str
    remote: str
    status: Literal["same", "differs"]
    compiled: int
    same: int
    differ: tuple[str, ...]
    not_rebuilt: tuple[str, ...]
    not_in_record: tuple[str, ...]
    by: Maker
    seconds: float

    def error(self) -> IntegrityError | None:
        """What to say where anything differs."""
        differ, made = self.differ, self.by
        if not differ:
            return None
        return IntegrityError(
            f"compiling {self.recipe} here does not reproduce its record",
            cause=f"{len(differ)} of {self.same + len(differ)} parts differ: {first_of(differ)}; "
            f"the record was made by {made.by} on {made.created[:16]}",
            hint=f"cachekit warm {self.source} --recache puts a new one in its place",
        )


def check_build(session: Session, prepared: Prepared) -> CheckedBuild:
    """Compile a recipe although it is warm, and compare; nothing is kept of it. See `Cache.check_build`.

    Raises:
        RemoteError, AuthError: There is a record, and it could not be fetched.
    """
    start = time.monotonic()
    check_data(prepared.recipe)
    check_package(prepared.recipe)
    planned = plan(prepared, session.store, session.remotes, anew=True)
    record = fetch_planned(session, planned)
    if record is None:
        raise miss_error(unfetched(planned, session.remotes) if planned.hit else planned)
    made = maker_of(record)
    session.journal.emit("build.start", key=prepared.key, **asdict(made))
    with session.cache_dir(prepared, record) as old, session.cache_dir(prepared, None) as new:
        _, seen = run_job(
            session.launcher(),
            prepared,
            new,
            "trial",
            store=session.store,
            log=session.log,
            found=False,
            wait=session.config.wait_seconds,
        )
        compared = prepared.compiler.compare(old.tree, new.tree)
    done = CheckedBuild(
        recipe=prepared.recipe.name,
        source=prepared.source,
        key=prepared.key,
        directory=prepared.fingerprint.directory,
        remote=planned.remote,
        status="differs" if compared.differ else "same",
        compiled=seen.compiled,
        same=compared.same,
        differ=compared.differ,
        not_rebuilt=compared.gone,
        not_in_record=compared.new,
        by=made,
        seconds=round(time.monotonic() - start, 3),
    )
    session.journal.emit("build.checked", **done.as_dict())
    return done
