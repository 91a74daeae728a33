"""From a recipe to the named values behind its key: architecture, shapes, precision, layout, compiler, target.

Nothing here imports torch or transformers, and nothing is read from the network: a key must cost milliseconds, on any
machine. What is hard and what is soft is decided here and by compilers, with the reason beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from cachekit import host, redact
from cachekit.errors import RecipeError
from cachekit.key.canonical import Ingredients, hashed
from cachekit.recipe import Recipe, tasks, zoo
from cachekit.recipe.architecture import Architecture, graph_fields
from cachekit.redact.names import names_secret
from cachekit.text import spelled

# The trial run and the real run share the worker's code; raise this when a change to it changes the graphs it makes.
WORKER_SCHEMA = 1

# Pixels a side that nearly all models were trained with whose config says nothing of it (ResNet).
IMAGE_SIZE = 224

# Fields of `training` that affect no graph of any compiler: recorded beside the key, never in it. Where a compiler puts
# one into its graphs all the same (a learning rate), it is an ingredient of that compiler.
SOFT_TRAINING = frozenset(
    {
        "doc_stride",
        "mlm_probability",
        "learning_rate",
        "lr_scheduler_type",
        "warmup_steps",
        "num_train_epochs",
        "max_steps",
        "seed",
        "logging_steps",
        "eval_strategy",
        "eval_steps",
        "save_strategy",
        "save_steps",
        "save_total_limit",
        "dataloader_num_workers",
        "output_dir",
        "report_to",
    }
)
# Names that people gave to runs, and where figures of runs go. Not WANDB_WATCH: it puts hooks into the model.
REPORTING = "reporting"
# Variables of a recipe's `environment` that affect no graph: name to reason.
SOFT_VARIABLES = {
    "CXX": "where a C++ compiler builds code, its version is an ingredient of its own",
    "DATASETS_VERBOSITY": "logging",
    "GLOO_SOCKET_IFNAME": "which network the workers meet on",
    "HF_DATASETS_CACHE": "where data lies",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "progress bars",
    "HF_DATASETS_IN_MEMORY_MAX_SIZE": "where data lies",
    "HF_DATASETS_OFFLINE": "whether data is fetched",
    "HF_ENDPOINT": "where models come from",
    "HF_HOME": "where models and data lie",
    "HF_HUB_CACHE": "where models lie",
    "HF_HUB_DISABLE_PROGRESS_BARS": "progress bars",
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "logging",
    "HF_HUB_DISABLE_TELEMETRY": "telemetry",
    "HF_HUB_DISABLE_XET": "how models are fetched",
    "HF_HUB_DOWNLOAD_TIMEOUT": "how models are fetched",
    "HF_HUB_ENABLE_HF_TRANSFER": "how models are fetched",
    "HF_HUB_ETAG_TIMEOUT": "how models are fetched",
    "HF_HUB_OFFLINE": "whether models are fetched",
    "HF_HUB_VERBOSITY": "logging",
    "HF_XET_HIGH_PERFORMANCE": "how models are fetched",
    "LOGLEVEL": "logging",
    "MALLOC_ARENA_MAX": "memory allocator",
    "NCCL_DEBUG": "logging",
    "NCCL_DEBUG_FILE": "logging",
    "NCCL_DEBUG_SUBSYS": "logging",
    "NCCL_SOCKET_IFNAME": "which network the workers meet on",
    "OMP_NUM_THREADS": "where threads reach a graph, their number is an ingredient of its own",
    "PYTHONDONTWRITEBYTECODE": "bytecode on disk",
    "PYTHONFAULTHANDLER": "what a crash prints",
    "PYTHONIOENCODING": "how output is written",
    "PYTHONWARNINGS": "logging",
    "PYTHONHASHSEED": "set by cachekit for every worker",
    "PYTHONUNBUFFERED": "when output appears",
    "TF_CPP_MIN_LOG_LEVEL": "logging",
    "TMPDIR": "where temporary files lie",
    "TOKENIZERS_PARALLELISM": "threads of the tokenizer",
    "TORCHDYNAMO_VERBOSE": "logging",
    "TORCHINDUCTOR_COMPILE_THREADS": "how many compile at once",
    "TORCHINDUCTOR_WORKER_START": "how compile processes start",
    "TORCH_CPP_LOG_LEVEL": "logging",
    "TORCH_LOGS": "logging",
    "TORCH_SHOW_CPP_STACKTRACES": "logging",
    "TQDM_DISABLE": "progress bars",
    "TRANSFORMERS_CACHE": "where models lie",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "logging",
    "TRANSFORMERS_OFFLINE": "whether models are fetched",
    "TRANSFORMERS_VERBOSITY": "logging",
} | dict.fromkeys(
    """
    HF_MLFLOW_LOG_ARTIFACTS MLFLOW_ALLOW_FILE_STORE MLFLOW_EXPERIMENT_NAME MLFLOW_RUN_ID MLFLOW_RUN_NAME MLFLOW_TAGS
    MLFLOW_TRACKING_URI TENSORBOARD_LOGGING_DIR TRACKIO_DIR TRACKIO_PROJECT TRACKIO_SPACE_ID
    WANDB_BASE_URL WANDB_CONSOLE WANDB_DIR WANDB_DISABLED WANDB_ENTITY WANDB_JOB_TYPE WANDB_LOG_MODEL WANDB_MODE
    WANDB_NAME WANDB_NOTES WANDB_PROJECT WANDB_RESUME WANDB_RUN_GROUP WANDB_RUN_ID WANDB_SILENT WANDB_TAGS
    """.split(),  # noqa: SIM905
    REPORTING,
)
# Variables that compilers, runtimes and libraries read: these have their values in records, beside those that a
# compiler names itself. Of any other variable a record has a hash only, also of what people call their runs.
KNOWN_VARIABLES = frozenset(
    """
    ACCELERATE_MIXED_PRECISION ACCELERATE_USE_CPU LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC
    LC_TIME PYTHONDEVMODE PYTHONMALLOC PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONPATH PYTHONSAFEPATH PYTHONUTF8
    TF_DETERMINISTIC_OPS TF_ENABLE_ONEDNN_OPTS TF_GPU_ALLOCATOR TF_XLA_FLAGS TZ
    """.split()  # noqa: SIM905
) | {name for name, reason in SOFT_VARIABLES.items() if reason != REPORTING}
# Beginnings that one project alone gives its variables: not `HF_`, `TF_` or `TORCH`, as Terraform and TorchServe have
# these, too, and anybody's login may begin so.
KNOWN_BEGINNINGS = tuple(
    """
    AOTINDUCTOR_ AOT_ ATEN_ CUBLAS_ CUDA_ CUDNN_ CUTEDSL_ CUTLASS_ FI_ FSDP_ FX_ GOMP_ HALIDE_ HF_HUB_DISABLE_
    HF_HUB_ENABLE_ INDUCTOR_ JAX_ KMP_ LIBTPU_ MALLOC_ MKL_ NCCL_ NEURON_ NKI_ OFI_ OMP_ OPENBLAS_ PARTITIONER_ PJRT_
    PT2_ PYTORCH_ TF_CPP_ TORCHDYNAMO_ TORCHELASTIC_ TORCHEXPORT_ TORCHINDUCTOR_ TORCH_ TRITON_ XLA_
    """.split()  # noqa: SIM905
)


class Fingerprint(Struct, frozen=True):
    """What a compiler is on this machine, found without importing it.

    Attributes:
        compiler: Its name.
        directory: The folder its records and modules lie under: name and version.
        toolchain: Versions that reach the graphs or the code, by package.
        target: What the code is built for, and what it may assume: instruction set, threads, device.
        soft: Versions recorded beside the key.
        bf16: The target computes in bfloat16 natively: what `bf16: auto` means here.
        instance: Machine type, where the compiler knows it.
        elsewhere: It is not this machine that was looked at.
        soft_training: Fields of `training` that affect none of its graphs, beside those that reach nobody's
            (`SOFT_TRAINING`).
        soft_variables: Variables that affect none of its graphs, beside those that reach nobody's (`SOFT_VARIABLES`).
        known_variables: Variables that it reads, beside those that are known here: records have their values.
        workers: Worker processes that `data_parallel_size: auto` means here.
        lacks: What a training of the recipe cannot have here (`evaluation`, `resume`), or a plan (`prediction`: its key
            is none that a host has), a device to run on (`device`), one that the compiler uses (`accelerator`), or what
            is known of the compiler (`evidence`), with a sentence for people.
    """

    compiler: str
    directory: str
    toolchain: dict[str, str]
    target: dict[str, Any]
    soft: dict[str, str]
    bf16: bool
    workers: int = 1
    instance: str = ""
    elsewhere: bool = False
    soft_training: frozenset[str] = frozenset()
    soft_variables: frozenset[str] = frozenset()
    known_variables: frozenset[str] = frozenset()
    lacks: dict[str, str] = {}


class Shapes(Struct, frozen=True):
    """What of a recipe's rows shapes its graphs; `data.shapes` finds it.

    Attributes:
        labels: The names of the classes, in the order of their numbers; none for a task without classes.
        choices: How many choices each row has; 0 for a task without choices.
    """

    labels: tuple[str, ...] = ()
    choices: int = 0


def precision(recipe: Recipe, bf16: bool) -> str:
    """`bf16` or `fp32`, with `auto` resolved for the target."""
    wanted = recipe.training.bf16
    return "bf16" if (bf16 if wanted == "auto" else wanted) else "fp32"


def build(
    recipe: Recipe,
    architecture: Architecture,
    shapes: Shapes,
    fingerprint: Fingerprint,
    compiler: Mapping[str, Any],
) -> Ingredients:
    """Collect the ingredients of a recipe for one compiler and target.

    Args:
        recipe: The recipe.
        architecture: The model's architecture, overrides applied.
        shapes: What the rows add to them.
        fingerprint: The compiler and target.
        compiler: The compiler's canonical flags and options, and whatever else in its environment shapes graphs.
    """
    training = _training(recipe, architecture)
    training["precision"] = precision(recipe, fingerprint.bf16)
    del training["bf16"]
    variables = _recorded(recipe, fingerprint)
    soft_training = fingerprint.soft_training | SOFT_TRAINING
    soft_variables = fingerprint.soft_variables | SOFT_VARIABLES.keys()
    hard: dict[str, Any] = {
        "task": recipe.task,
        "worker": WORKER_SCHEMA,
        "model.type": architecture.model_type,
        **_of_task(recipe, shapes),
        **_config(architecture),
        **{f"training.{name}": value for name, value in training.items() if name not in soft_training},
        **_parallel(recipe, fingerprint.workers),
        **{f"environment.{name}": value for name, value in variables.items() if name not in soft_variables},
        **of_compiler(fingerprint, compiler),
    }
    soft = {
        **{
            f"training.{name}": training[name]
            for name in sorted(soft_training & training.keys() - {"output_dir", "report_to"})
        },
        **{f"environment.{name}": value for name, value in variables.items() if name in soft_variables},
        **{f"toolchain.{name}": value for name, value in fingerprint.soft.items()},
        "model.name": recipe.model.id or "",
        "data.name": recipe.data.id or "",
    }
    return Ingredients(hard, soft)


def sizes(recipe: Recipe, architecture: Architecture) -> dict[str, Any]:
    """Those ingredients that say how large a job is; they need no compiler."""
    training = {f"training.{name}": value for name, value in _training(recipe, architecture).items()}
    return _config(architecture) | training


def described(recipe: Recipe, *, bf16: bool, workers: int) -> dict[str, Any]:
    """Those that tell one job from another of its sizes, as far as the recipe alone says them; they need no compiler.

    Args:
        recipe: The recipe.
        bf16: The machine computes in bfloat16 natively.
        workers: Worker processes that `data_parallel_size: auto` means on it.
    """
    labels = Shapes(tuple(recipe.data.labels or ()))
    said = _of_task(recipe, labels)
    if not recipe.data.labels:
        said.pop("model.num_labels", None)
    said.pop("data.num_choices", None)  # rows say them
    return {
        "task": recipe.task,
        "training.precision": precision(recipe, bf16),
        **_parallel(recipe, workers),
        **{name: value for name, value in said.items() if not name.startswith("toolchain.")},
    }


def _parallel(recipe: Recipe, workers: int) -> dict[str, Any]:
    parallel = structs.asdict(recipe.parallel)
    if parallel["data_parallel_size"] == "auto":
        groups = parallel["tensor_parallel_size"] * parallel["pipeline_parallel_size"]
        parallel["data_parallel_size"] = max(1, workers // groups)
    return {f"parallel.{name}": value for name, value in parallel.items()}


def _config(architecture: Architecture) -> dict[str, Any]:
    fields = graph_fields(architecture.config, architecture.defaults)
    return {f"model.config.{name}": value for name, value in fields.items()}


def _training(recipe: Recipe, architecture: Architecture) -> dict[str, Any]:
    """The fields of `training`, without those of other tasks: a new task must not change anybody's key."""
    foreign = tasks.not_read(recipe.task)["training"]
    training = {name: value for name, value in structs.asdict(recipe.training).items() if name not in foreign}
    if "lora" in training:
        training |= flat("lora", structs.asdict(training.pop("lora"))) if training["lora"] else {"lora": None}
    if "image_size" in training:
        training["image_size"] = image_size(recipe, architecture.config)
    return {**training, "per_device_eval_batch_size": eval_batch(recipe)}


def _recorded(recipe: Recipe, fingerprint: Fingerprint) -> dict[str, str]:
    """The recipe's variables as a record has them. Records are shared, and a variable may hold anything.

    A secret by its name is left out: who trains affects no graph. The value of a variable that nobody here knows may
    reach one, so its hash is in the key.
    """
    known = fingerprint.known_variables | fingerprint.soft_variables
    found = {}
    for name, value in worker_variables(recipe).items():
        if name in known or not names_secret(name):
            shown = name in known or name in KNOWN_VARIABLES or name.startswith(KNOWN_BEGINNINGS)
            secret = redact.holds(value)
            found[name] = spelled(value) if shown and not secret else hashed(name, value)
    return found


def of_compiler(fingerprint: Fingerprint, compiler: Mapping[str, Any]) -> dict[str, Any]:
    """Who compiles, with what and for what; and what the compiler itself gives as ingredients.

    Of a shell's variable with a secret in it, a hash.
    """
    found = flat("compiler", compiler)
    for name, value in found.items():
        if name.startswith("compiler.environment."):
            found[name] = hashed(name.rpartition(".")[2], value) if redact.holds(value) else spelled(value)
    return {
        "compiler.name": fingerprint.compiler,
        **found,
        **{f"toolchain.{name}": value for name, value in fingerprint.toolchain.items()},
        **{f"target.{name}": value for name, value in fingerprint.target.items()},
    }


def _of_task(recipe: Recipe, shapes: Shapes) -> dict[str, Any]:
    """What else shapes the graphs of a task: of the data, and of the packages."""
    own = tasks.fields(recipe)
    found: dict[str, Any] = {"model.num_labels": len(shapes.labels)} if own.has_classes else {}
    if own.has_choices:
        found["data.num_choices"] = shapes.choices
    if recipe.training.lora is not None:
        found["toolchain.peft"] = host.optional_version("peft")  # which puts adapters into a model
    return found


def image_size(recipe: Recipe, config: Mapping[str, Any]) -> int:
    """Pixels a side of the images that a model is given: its config's, else the recipe's, else `IMAGE_SIZE`.

    Never its image processor's: that one is loaded with the weights, and a key needs no network.

    Raises:
        RecipeError: The recipe and the config differ, or the config's images are not square.
    """
    merged = {**zoo.architecture_defaults(str(config["model_type"])), **config}
    size, wanted = merged.get("image_size"), recipe.training.image_size
    if isinstance(size, list) and len(set(size)) == 1:
        size = size[0]
    if size is None:
        return wanted or IMAGE_SIZE
    if not isinstance(size, int):
        raise RecipeError(f"model.config.image_size is {size}", cause="images must be square")
    if wanted not in {None, size}:
        raise RecipeError(
            f"training.image_size is {wanted}, but the model's config says {size}",
            hint=f"remove it, or set model.config.image_size={wanted}",
        )
    return size


def eval_batch(recipe: Recipe) -> int:
    """Rows in an evaluation batch; as many as in a training batch where the recipe doesn't say."""
    return recipe.training.per_device_eval_batch_size or recipe.training.per_device_train_batch_size


def worker_variables(recipe: Recipe) -> dict[str, str]:
    """The recipe's `environment`, as text, `$NAME` expanded: what the worker gets, and what the key is made from."""
    return {name: os.path.expandvars(str(value)) for name, value in recipe.environment.items()}


def watched_variables(recipe: Recipe, shapes: Callable[[str], bool]) -> dict[str, str]:
    """The variables of this process that may reach a graph, by name; what the recipe sets is an ingredient by itself.

    Args:
        recipe: What it sets wins over the shell.
        shapes: Whether a variable may affect a graph.
    """
    names = (name for name in sorted(os.environ) if shapes(name) and name not in recipe.environment)
    return {spelled(name): os.environ[name] for name in names}


def flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"options": {"a": 1}}` as `{"<prefix>.options.a": 1}`, so that a difference names the one thing that differs."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(f"{prefix}.{name}", value) if isinstance(value, Mapping) else {f"{prefix}.{name}": value}
    return found
