"""What stands in for a compiler and its worker where a test is about cachekit itself, not about compiling.

`StandIn` follows the contract of `cachekit.compilers.port.Compiler`, and `standin_worker.py` that of the training
worker (`training.job`, `training.launch`), as their docstrings say it. Modules are folders of three files, as Neuron's
are. The other adapters' own behaviour is tested with the real ones.

The rest are the few things that most of these tests need: a recipe, a session, records without a compile, and the bytes
that a store gives back.
"""

import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

import msgspec
from msgspec import structs

from cachekit import config
from cachekit.compilers import ComparedBuilds, Compiler, Harvest, Node, Restored, Watch, registry
from cachekit.compilers.cachedir import cache_dir
from cachekit.compilers.port import not_warm
from cachekit.compilers.prepare import prepare
from cachekit.errors import StoreError, TrainingError, from_code
from cachekit.events import Journal
from cachekit.key.canonical import key_of
from cachekit.key.cost import Growth
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import Fingerprint, precision
from cachekit.recipe.schema import Data, Model
from cachekit.recipe.schema import Training as TrainingPart
from cachekit.remotes.fetch import pull
from cachekit.remotes.judging import Trust
from cachekit.remotes.patience import Patience
from cachekit.remotes.remote import Remote
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.gc import gc
from cachekit.store.record import File, Module, Provenance, Record
from cachekit.training import ProcessLauncher, Result
from cachekit.verbs.session import Session
from tests.support import standin_worker

HERE = Path(__file__).parent
WORKER = [sys.executable, str(HERE / "standin_worker.py")]
RUN_WARM = str(HERE / "run_warm.py")


# Compiler, worker, launcher


class StandIn(Compiler):
    """A compiler whose graphs are random bytes.

    Args:
        version: The compiler's version, an ingredient; STANDIN_VERSION by default.
        graphs: How many graphs a job has.
        extra: How many more the training has than the trial run reached.
        salt: Goes into the modules and into no ingredient: another compile gives other bytes.
        node: See `Compiler.node`.
    """

    name = "standin"
    marks_finished = True
    runtime = "standin_worker"
    foreign = ("compiler.name", "target.", "toolchain.")
    growth = Growth(layers=3.0, tokens=0.0, width=0.0, source="")

    def __init__(self, version=None, *, graphs=3, extra=0, salt="", node=None):
        self.node = node or Node()
        self.trial_needs_all = bool(os.environ.get("STANDIN_TOGETHER"))
        self.version = version or os.environ.get("STANDIN_VERSION", "1.0")
        self._settings = {"graphs": graphs, "extra": extra, "salt": salt}

    def fingerprint(self, recipe=None, *, bare=False):
        return Fingerprint(
            compiler=self.name,
            directory=f"standin-{self.version}",
            toolchain={"standin": self.version},
            target={"machine": "any"},
            soft={},
            bf16=False,
        )

    def ingredients(self, recipe):
        return {"flags": list(recipe.compiler.flags), "options": dict(recipe.compiler.options)}

    def watch(self, run):
        return StandInWatch(run)

    def settings(self, recipe):
        return dict(self._settings)

    def contents(self, cache_dir):
        finished = (mark.parent for mark in Path(cache_dir).glob("MODULE_*/model.done"))
        return frozenset(path.relative_to(cache_dir).as_posix() for folder in finished for path in folder.iterdir())

    def compare(self, old, new):
        before, after = ({name: (root / name).read_bytes() for name in self.contents(root)} for root in (old, new))
        return ComparedBuilds.of(before, after, lambda name: before[name] == after[name])

    def binaries(self, names):
        return sum(name.endswith(".code") for name in names)

    def harvest(self, cache_dir, before, fingerprint, workspace, observed=None):
        modules, files = {}, {}
        for name in sorted(self.contents(cache_dir) - before):
            raw = (cache_dir / name).read_bytes()
            digest = hashlib.sha256(raw).hexdigest()
            files[digest] = workspace / digest
            files[digest].write_bytes(raw)
            folder, _, rest = name.partition("/")
            modules.setdefault(folder, []).append(File(rest, len(raw), digest))
        if not modules:
            return None
        made = (Module(f"{fingerprint.directory}/{name}", tuple(found)) for name, found in modules.items())
        return Harvest(tuple(made), files)

    def restore(self, module, files, cache_dir):
        folder = cache_dir / Path(module.name).name
        flat = all("/" not in file.path for file in module.files)  # a stranger's record may say otherwise
        if not flat or not folder.name.startswith("MODULE_") or len(files) != len(module.files):
            raise UnsafeArchiveError(f"{module.name} is no module of the stand-in")
        folder.mkdir()
        for file, blob in zip(module.files, files, strict=True):
            shutil.copyfile(blob.path, folder / file.path)
        return Restored(size=sum(file.size for file in module.files))


class StandInWatch(Watch):
    """Stops a strict run at its first compile, as the worker tells it."""

    def __init__(self, run):
        super().__init__({"STANDIN_ROOT": str(run.cache_dir)})
        self._strict = run.strict

    def event(self, event):
        if self._strict and event.get("event") == "graphs" and event["compiled"]:
            raise not_warm("a graph began to compile in: train")


class InlineLauncher:
    """Runs the stand-in worker in this process, for tests that run it thousands of times."""

    def run(self, job, environment, log, sink, watch=None):
        document = msgspec.json.decode(msgspec.json.encode(job))
        merged = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
        try:
            result = msgspec.convert(standin_worker.run(document, merged), Result)
        except OSError as error:  # in a process of its own it would have died of this
            raise TrainingError("the training worker died", cause=str(error), hint="see its log") from error
        for line in Path(job.events).read_bytes().splitlines():
            sink(msgspec.json.decode(line))
        if result.failure is not None:
            raise from_code(result.failure.code, result.failure.message, cause=result.failure.cause)
        return result


def module_files(prepared, compiler, mode="trial"):
    """What a compiler cache dir holds when the compiler has done all that the recipe needs: bytes by relative path."""
    recipe, settings = prepared.recipe, compiler.settings(prepared.recipe)
    document = {"recipe": msgspec.to_builtins(recipe), "settings": settings, "mode": mode}
    document["precision"] = precision(recipe, bf16=False)
    found = {}
    for name, seed in standin_worker.graph_names(document).items():
        found[f"{name}/model.code"] = standin_worker.module_bytes(seed)
        found |= {f"{name}/{path}": text.encode() for path, text in standin_worker.module_notes(name).items()}
    return found


def runs(log):
    """The worker's runs so far, as it noted them in STANDIN_LOG."""
    return [msgspec.json.decode(line) for line in log.read_bytes().splitlines()] if log.exists() else []


def compiles(log):
    """The runs in which something compiled."""
    return [run for run in runs(log) if run["compiled"]]


# Recipes and sessions


def recipe(batch=8, *, name="toy", **training):
    """A recipe whose architecture is in the registry and whose labels need no data."""
    return Recipe(
        name=name,
        model=Model(id="sentence-transformers/all-MiniLM-L6-v2"),
        data=Data(id="nobody/nothing", labels=("no", "yes")),
        training=TrainingPart(per_device_train_batch_size=batch, **training),
    )


RECIPE_YAML = """\
name: toy
model: {id: sentence-transformers/all-MiniLM-L6-v2}
data: {id: nobody/nothing, labels: ["no", "yes"]}
training: {per_device_train_batch_size: 8}
"""


class Watched:
    """A session, the events that it told, and its recipe.

    Args:
        home: The store's folder.
        cache_dirs: Where compiler cache dirs are made; inside the store by default, as for users.
        compiler: A `StandIn` with three graphs by default.
        inline: Run the worker in this process.
        wait: Seconds to wait for others.
        journal: Write the journal too.
        shared: Remotes, nearest first: (remote, "r", "w" or "rw").
        lease: Seconds of a lease on a remote.
        push: Seconds that a push may take.
        patience: Seconds for which what fails is asked again.
        trust_all: As `--trust-all`.
        trust: What is asked of records: a `remotes.judging.Trust`.
    """

    def __init__(
        self, home, *, cache_dirs=None, compiler=None, inline=True, wait=60.0, journal=None, shared=(), lease=2,
        push=20, patience=0.0, trust_all=False, trust=None,
    ):  # fmt: skip
        self.events = []
        self.journal = journal or Journal(None, "test")
        self.journal.listen(self.events.append)
        self.compiler = compiler or StandIn()
        flags = {
            "home": home, "compiler_cache_dir": cache_dirs, "wait_seconds": wait, "lease_seconds": lease,
            "push_seconds": push,
        }  # fmt: skip
        # What a team writes beside the url of its bucket.
        said = {storage.name: "owner" for storage, _ in shared if storage.untold}
        trust = trust or Trust(said=said, everything=trust_all)
        self.store = Store(Path(home), self.journal, trust.asked)
        settings = config.load(flags, environ={}, cwd=HERE)
        settings = structs.replace(settings, trust_all=trust.everything, trust=trust.table)
        launcher = InlineLauncher() if inline else ProcessLauncher(WORKER)
        memory, run = self.store.layout.remotes, Patience(patience)
        remotes = [
            Remote(storage, memory, readable="r" in may, writable="w" in may, trust=trust, patience=run)
            for storage, may in shared
        ]
        ordered = Remotes(remotes, self.journal, trust=trust, push_seconds=push, patience=run)
        self.session = Session(settings, self.journal, self.store, ordered, lambda: launcher)

    def gc(self, keep, *, dry_run=False):
        """`cachekit store gc`."""
        return gc(self.store, self.session.config.compiler_cache_dir, keep, dry_run=dry_run)

    def limit(self, reuse_bytes):
        """Another largest size of a record to begin with; returns itself."""
        self.session = structs.replace(
            self.session, config=structs.replace(self.session.config, reuse_bytes=reuse_bytes)
        )
        return self

    def prepare(self, wanted=None):
        return prepare(wanted or recipe(), self.compiler)

    def lookup(self, prepared):
        return self.store.lookup(prepared.place)

    def pull(self, found):
        """Fetch a record from one remote, as the actions do."""
        return pull(self.store, found, registry.judge(found.shared.record.directory))

    def told(self, event):
        """The events of this name."""
        return [told for told in self.events if told["event"] == event]

    def damage(self):
        """Paths that were reported as damaged."""
        return [told["path"] for told in self.told("store.damaged")]

    def restored(self, key, record):
        """What a restore of the record puts into a compiler cache dir: bytes by relative path."""
        base = self.session.config.compiler_cache_dir
        with cache_dir(self.store, self.compiler, record, key=key, base=base) as made:
            return {name: (made.tree / name).read_bytes() for name in self.compiler.contents(made.tree)}


# Records without a compile


PROVENANCE = Provenance("2026-01-02T03:04:05+00:00", "0", "ann", "host", "Linux", {"standin": "1.0"}, "")


def blob_bytes(name, size=3000):
    """Bytes that are the same for a name."""
    return hashlib.shake_256(name.encode()).digest(size)


def make_record(number=1, artifacts=("a", "b"), *, created=PROVENANCE.created, size=3000):
    """A record of the key `number`, and its files' bytes by digest."""
    hard = {"model.type": "bert", "number": number}
    contents = [blob_bytes(artifact, size) for artifact in artifacts]
    files = tuple(
        File(f"model-{artifact}.code", len(raw), hashlib.sha256(raw).hexdigest())
        for artifact, raw in zip(artifacts, contents, strict=True)
    )
    record = Record(
        key=key_of(hard),
        compiler="standin",
        directory="standin-1.0",
        model_type="bert",
        recipe="toy",
        hard=hard,
        soft={"training.learning_rate": 5e-05},
        modules=(Module("standin-1.0/MODULE_1", files),),
        graphs=len(files),
        compile_seconds=12.5,
        provenance=structs.replace(PROVENANCE, created=created),
    )
    return record, {file.sha256: raw for file, raw in zip(files, contents, strict=True)}


def publish(store, made, **named):
    """Publish a record as the actions do: build its files in a workspace, then hand them over."""
    record, contents = made
    with store.workspace() as folder:
        finished = {digest: folder / f"{digest[:8]}.part" for digest in contents}
        try:
            for digest, path in finished.items():
                path.write_bytes(contents[digest])
        except OSError as error:
            raise StoreError("the files cannot be built", hint="not the store's doing") from error
        store.publish(record, finished, **named)
    return record


def find(store, record):
    """Look a record up by its key."""
    return store.lookup(record.place)


def served(store, record):
    """The bytes that the store gives for a record, read as a restore reads them."""
    given = {}
    for file in record.files:
        with store.reading(file) as blob:
            given[file.path] = blob.path.read_bytes()
    return given


def expected(made):
    """The bytes that it should give."""
    record, contents = made
    return {file.path: contents[file.sha256] for file in record.files}


def tree(home):
    """Every blob and record of a store."""
    root = Path(home) / "v1"
    found = [*(root / "blobs").glob("*/*"), *(root / "records").rglob("*.json")]
    return {path.relative_to(root).as_posix() for path in found}


def garbage_of(home):
    """Where something lies that no finished run leaves, and what."""
    root = Path(home) / "v1"
    passing = [path for kind in ("tmp", "cache_dirs", "quarantine") for path in (root / kind).rglob("*")]
    passing += root.glob("index.sqlite-*")
    return {path.relative_to(root).as_posix() for path in passing}


# Damage


def overwrite(path, raw, *, anew=False):
    """Change a file's bytes in place, or by another file of its name; its mode stays."""
    mode = path.stat().st_mode & 0o777
    if anew:
        other = path.with_name("other")
        other.write_bytes(raw)
        other.chmod(mode)
        other.replace(path)
    else:
        tick(path)
        path.chmod(mode | 0o200)
        path.write_bytes(raw)
        path.chmod(mode)


def tick(path):
    """Wait until the file system's clock has moved on since the file changed; older kernels' clocks are coarse."""
    probe = path.with_name("probe")
    stamp = path.stat().st_ctime_ns
    while True:
        probe.touch()
        now = probe.stat().st_ctime_ns
        probe.unlink()
        if now > stamp:
            return
        time.sleep(0.001)
