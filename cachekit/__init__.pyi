from cachekit.api import Cache as Cache
from cachekit.api import load_recipe as load_recipe
from cachekit.config import Setting as Setting
from cachekit.errors import AuthError as AuthError
from cachekit.errors import CachekitError as CachekitError
from cachekit.errors import CompileError as CompileError
from cachekit.errors import CompilerUnavailableError as CompilerUnavailableError
from cachekit.errors import DataError as DataError
from cachekit.errors import EngineError as EngineError
from cachekit.errors import IntegrityError as IntegrityError
from cachekit.errors import InterruptedRunError as InterruptedRunError
from cachekit.errors import MissError as MissError
from cachekit.errors import RecipeError as RecipeError
from cachekit.errors import RemoteError as RemoteError
from cachekit.errors import StoreError as StoreError
from cachekit.errors import TrainingError as TrainingError
from cachekit.errors import UnknownNameError as UnknownNameError
from cachekit.errors import UsageError as UsageError
from cachekit.errors import WaitedTooLongError as WaitedTooLongError
from cachekit.recipe import Recipe as Recipe
from cachekit.recipe.variant import Variant as Variant
from cachekit.remotes.push import Pushed as Pushed
from cachekit.store import Store as Store
from cachekit.store.gc import Collected as Collected
from cachekit.store.index_rows import Listed as Listed
from cachekit.store.record import Record as Record
from cachekit.store.verify import Verified as Verified
from cachekit.trainer_callback import CacheCallback as CacheCallback
from cachekit.verbs.attach import Attached as Attached
from cachekit.verbs.attach import Attachment as Attachment
from cachekit.verbs.check_build import CheckedBuild as CheckedBuild
from cachekit.verbs.coverage import Coverage as Coverage
from cachekit.verbs.coverage import CoverageOfAll as CoverageOfAll
from cachekit.verbs.doctor import Diagnosis as Diagnosis
from cachekit.verbs.export import Bundled as Bundled
from cachekit.verbs.export import Exported as Exported
from cachekit.verbs.fleet import FleetLog as FleetLog
from cachekit.verbs.fleet import FleetPlan as FleetPlan
from cachekit.verbs.fleet import FleetRow as FleetRow
from cachekit.verbs.fleet import FleetState as FleetState
from cachekit.verbs.forecast import Forecast as Forecast
from cachekit.verbs.forecast import WarmedAll as WarmedAll
from cachekit.verbs.hub import RemoteContents as RemoteContents
from cachekit.verbs.hub import Used as Used
from cachekit.verbs.imports import Imported as Imported
from cachekit.verbs.imports import Unbundled as Unbundled
from cachekit.verbs.instances import InstancePlan as InstancePlan
from cachekit.verbs.lock import CheckedLock as CheckedLock
from cachekit.verbs.lock import LockFile as LockFile
from cachekit.verbs.planned import Planned as Planned
from cachekit.verbs.planned import Warmed as Warmed
from cachekit.verbs.prove import Contract as Contract
from cachekit.verbs.pull import Outcome as Outcome
from cachekit.verbs.pull import Pulls as Pulls
from cachekit.verbs.push import Pushes as Pushes
from cachekit.verbs.records import Deleted as Deleted
from cachekit.verbs.records import Pinned as Pinned
from cachekit.verbs.run import Ran as Ran
from cachekit.verbs.session import Session as Session
from cachekit.verbs.stats import CheckedStats as CheckedStats
from cachekit.verbs.stats import Stats as Stats
from cachekit.verbs.train import Trained as Trained
from cachekit.verbs.why import Compared as Compared
from cachekit.verbs.why import Why as Why
from cachekit.verbs.why_run import LogWhy as LogWhy
from cachekit.verbs.why_run import RunWhy as RunWhy
from cachekit.verbs.zoo_check import Checked as Checked

__version__: str

_settings: Cache  # nothing but what the settings say, which are read at each call

attach = _settings.attach
check_build = _settings.check_build
check_lock = _settings.check_lock
check_stats = _settings.check_stats
compare = _settings.compare
coverage = _settings.coverage
coverage_all = _settings.coverage_all
doctor = _settings.doctor
export_bundle = _settings.export_bundle
export_neuron_cache = _settings.export_neuron_cache
fleet_cancel = _settings.fleet_cancel
fleet_list = _settings.fleet_list
fleet_logs = _settings.fleet_logs
fleet_show = _settings.fleet_show
fleet_wait = _settings.fleet_wait
gc = _settings.gc
hub_create = _settings.hub_create
hub_use = _settings.hub_use
import_bundle = _settings.import_bundle
import_neuron_cache = _settings.import_neuron_cache
keys = _settings.keys
last = _settings.last
lock = _settings.lock
ls = _settings.ls
neuron_contract = _settings.neuron_contract
open_store = _settings.open_store
pin = _settings.pin
pins = _settings.pins
plan = _settings.plan
plan_all = _settings.plan_all
plan_instances = _settings.plan_instances
plan_run = _settings.plan_run
plan_train = _settings.plan_train
pull = _settings.pull
pull_locked = _settings.pull_locked
pull_modules = _settings.pull_modules
push = _settings.push
records = _settings.records
remote_contents = _settings.remote_contents
rm = _settings.rm
run = _settings.run
session = _settings.session
settings = _settings.settings
show = _settings.show
stats = _settings.stats
trace = _settings.trace
train = _settings.train
train_on = _settings.train_on
trust_add = _settings.trust_add
trust_check = _settings.trust_check
trust_init = _settings.trust_init
trust_list = _settings.trust_list
trust_revoke = _settings.trust_revoke
trust_sign = _settings.trust_sign
unpin = _settings.unpin
verify = _settings.verify
warm = _settings.warm
warm_all = _settings.warm_all
warm_on = _settings.warm_on
why = _settings.why
why_key = _settings.why_key
why_log = _settings.why_log
why_run = _settings.why_run
