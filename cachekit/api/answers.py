"""The types of all answers and of their parts: what the command line shows, and what `--schema` is made of."""

from __future__ import annotations

from cachekit.compilers.adapter import CachePlace
from cachekit.compilers.graphs import CompiledFile, Graph, LoggedCompile, LoggedFailure, StoredModule, Tensor
from cachekit.compilers.machine import Machine
from cachekit.config import Setting
from cachekit.data.preview import Preview, SplitPreview
from cachekit.health import Finding
from cachekit.key.canonical import Change
from cachekit.key.cost import Expected
from cachekit.key.words import Told
from cachekit.recipe.convert.draft import Note
from cachekit.remotes.push import Pushed
from cachekit.store.divergent import Divergent, DivergentBuilds, Maker
from cachekit.store.gc import Collected, GoneRecord
from cachekit.store.index_rows import Listed
from cachekit.store.leaks import Leaks
from cachekit.store.verify import Problem, Verified
from cachekit.trust.statement import Builder, CiRun
from cachekit.verbs.check_build import CheckedBuild
from cachekit.verbs.coverage import Coverage, CoverageOfAll
from cachekit.verbs.doctor import Diagnosis
from cachekit.verbs.export import Bundled, Exported
from cachekit.verbs.fleet import FleetLog, FleetPlan, FleetRow, FleetState, UnitOutcome
from cachekit.verbs.forecast import Forecast, Row, Totals, WarmedAll
from cachekit.verbs.hub import RemoteContents, RemoteRecord, Used
from cachekit.verbs.imports import Imported, Unbundled
from cachekit.verbs.instances import InstancePlan, OnInstance
from cachekit.verbs.lock import CheckedLock, LockedRecipe, LockFile
from cachekit.verbs.planned import Planned, Unanswered, Warmed
from cachekit.verbs.prove import Contract
from cachekit.verbs.pull import Outcome, Pulls
from cachekit.verbs.push import Pushes
from cachekit.verbs.records import Deleted, Pinned, Source, StoredRecord, Vouched
from cachekit.verbs.run import Ran
from cachekit.verbs.stats import CheckedStats, Figures, Part, Rate, Stats
from cachekit.verbs.train import Trained
from cachekit.verbs.trust_records import CheckedRemote, JudgedRecord, SignedRecord
from cachekit.verbs.trust_settings import AskedOf, ChangedTrust, NamedSigner, Signers, SigningKey
from cachekit.verbs.why import Compared, Why
from cachekit.verbs.why_run import LogWhy, RunWhy
from cachekit.verbs.zoo import (
    InstanceRow,
    ModelRow,
    RecipeEntry,
    RecipeRow,
    ToolchainRow,
    ZooCompiling,
    ZooExpected,
    ZooModel,
)
from cachekit.verbs.zoo_check import Checked, NewRecipe

__all__ = [
    "AskedOf", "Builder", "Bundled", "CachePlace", "Change", "ChangedTrust", "Checked", "CheckedBuild",
    "CheckedLock", "CheckedRemote", "CheckedStats", "CiRun", "Collected", "Compared", "CompiledFile", "Contract",
    "Coverage", "CoverageOfAll", "Deleted", "Diagnosis", "Divergent", "DivergentBuilds", "Expected", "Exported",
    "Figures", "Finding", "FleetLog", "FleetPlan", "FleetRow", "FleetState", "Forecast", "GoneRecord", "Graph",
    "Imported", "InstancePlan", "InstanceRow", "JudgedRecord", "Leaks", "Listed", "LockFile", "LockedRecipe", "LogWhy",
    "LoggedCompile", "LoggedFailure", "Machine", "Maker", "ModelRow", "NamedSigner", "NewRecipe", "Note", "OnInstance",
    "Outcome",
    "Part", "Pinned", "Planned", "Preview", "Problem", "Pulls", "Pushed", "Pushes", "Ran", "Rate", "RecipeEntry",
    "RecipeRow", "RemoteContents", "RemoteRecord", "Row", "RunWhy", "Setting", "SignedRecord", "Signers",
    "SigningKey", "Source", "SplitPreview", "Stats", "StoredModule", "StoredRecord", "Tensor", "Told",
    "ToolchainRow", "Totals", "Trained", "Unanswered", "Unbundled", "UnitOutcome", "Used", "Verified", "Vouched",
    "Warmed", "WarmedAll", "Why", "ZooCompiling", "ZooExpected", "ZooModel",
]  # fmt: skip
