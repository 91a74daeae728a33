from cachekit.actions.attach import Attached, Attachment
from cachekit.actions.plan import Plan
from cachekit.actions.pull_recipes import Outcome
from cachekit.actions.push_records import Reported
from cachekit.actions.run import Ran
from cachekit.actions.session import Session
from cachekit.actions.train import Trained
from cachekit.actions.warm import Warmed
from cachekit.api import attach, load_recipe, open_store, plan, pull, push, records, run, session, train, warm
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
    "CacheCallback",
    "CachekitError",
    "CompileError",
    "CompilerUnavailableError",
    "DataError",
    "IntegrityError",
    "InterruptedRunError",
    "MissError",
    "Outcome",
    "Plan",
    "Ran",
    "Recipe",
    "RecipeError",
    "Record",
    "RemoteError",
    "Reported",
    "Session",
    "Store",
    "StoreError",
    "Trained",
    "TrainingError",
    "UnknownNameError",
    "UsageError",
    "WaitedTooLongError",
    "Warmed",
    "__version__",
    "attach",
    "load_recipe",
    "open_store",
    "plan",
    "pull",
    "push",
    "records",
    "run",
    "session",
    "train",
    "warm",
]

__version__: str
