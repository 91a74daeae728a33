from cachekit.actions.attach import Attached, Attachment
from cachekit.actions.check_build import CheckedBuild
from cachekit.actions.checkup import Checkup
from cachekit.actions.coverage import Coverage
from cachekit.actions.gc import Collected
from cachekit.actions.pins import Pinned
from cachekit.actions.plan import Plan
from cachekit.actions.pull_recipes import Outcome
from cachekit.actions.push_records import Reported
from cachekit.actions.remove import Deleted
from cachekit.actions.run import Ran
from cachekit.actions.session import Session
from cachekit.actions.stats import Stats
from cachekit.actions.train import Trained
from cachekit.actions.warm import Warmed
from cachekit.actions.why import Compared, Why
from cachekit.actions.why_run import RunWhy
from cachekit.api import (
    Cache,
    attach,
    check_build,
    compare,
    coverage,
    gc,
    load_recipe,
    open_store,
    pin,
    pins,
    plan,
    pull,
    push,
    records,
    rm,
    run,
    session,
    stats,
    train,
    unpin,
    verify,
    warm,
    why,
    why_run,
)
from cachekit.errors import (
    AuthError,
    CachekitError,
    CompileError,
    CompilerUnavailableError,
    DataError,
    IntegrityError,
    InterruptedRunError,
    MissError,
    RecipeError,
    RemoteError,
    StoreError,
    TrainingError,
    UnknownNameError,
    UsageError,
    WaitedTooLongError,
)
from cachekit.recipe import Recipe
from cachekit.record import Record
from cachekit.store import Store
from cachekit.trainer_callback import CacheCallback

__all__ = [
    "Attached",
    "Attachment",
    "AuthError",
    "Cache",
    "CacheCallback",
    "CachekitError",
    "CheckedBuild",
    "Checkup",
    "Collected",
    "Compared",
    "CompileError",
    "CompilerUnavailableError",
    "Coverage",
    "DataError",
    "Deleted",
    "IntegrityError",
    "InterruptedRunError",
    "MissError",
    "Outcome",
    "Pinned",
    "Plan",
    "Ran",
    "Recipe",
    "RecipeError",
    "Record",
    "RemoteError",
    "Reported",
    "RunWhy",
    "Session",
    "Stats",
    "Store",
    "StoreError",
    "Trained",
    "TrainingError",
    "UnknownNameError",
    "UsageError",
    "WaitedTooLongError",
    "Warmed",
    "Why",
    "__version__",
    "attach",
    "check_build",
    "compare",
    "coverage",
    "gc",
    "load_recipe",
    "open_store",
    "pin",
    "pins",
    "plan",
    "pull",
    "push",
    "records",
    "rm",
    "run",
    "session",
    "stats",
    "train",
    "unpin",
    "verify",
    "warm",
    "why",
    "why_run",
]

__version__: str
