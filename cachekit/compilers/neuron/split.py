"""Models that are split over cores: which recipes ask for it, what can be split, and what the key says of it.

optimum-neuron does it, with models and a trainer of its own; all other recipes train a whole copy on each core, with
Transformers' Trainer. Nothing of optimum-neuron is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachekit.compilers.neuron import cores, facts
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.install import Way, trainer
from cachekit.compilers.neuron.installed import placeholders, public, release
from cachekit.errors import CompilerUnavailableError, RecipeError
from cachekit.recipe import Recipe, architecture, zoo
from cachekit.recipe.schema import Parallel, Training

PLAIN = Parallel()
FIELDS = ("tensor_parallel_size", "pipeline_parallel_size", "zero_1")

# What NeuronTrainer lacks of what a training has elsewhere [ON 0.4.5: trainers/transformers.py, training_args.py].
LACKS = {
    "evaluation": "no evaluation: NeuronTrainer has none, and the rows kept back for it are not used",
    "resume": "no --resume: NeuronTrainer cannot go on from a checkpoint",
}


def asked(recipe: Recipe) -> str:
    """The first field of `parallel` that asks for a split model; empty where none does."""
    return next((name for name in FIELDS if getattr(recipe.parallel, name) != getattr(PLAIN, name)), "")


def group(recipe: Recipe) -> int:
    """Cores that share one copy of the model."""
    return recipe.parallel.tensor_parallel_size * recipe.parallel.pipeline_parallel_size


def attention(recipe: Recipe) -> str:
    """The implementation that the graphs are made with: the kernel takes certain lengths only."""
    return "eager" if recipe.training.max_seq_length % facts.FLASH_MULTIPLE else "flash_attention_2"


def sequence_parallel(recipe: Recipe) -> bool:
    """Whether activations are split, too: optimum-neuron does, wherever it splits the weights [ON: config.py]."""
    return recipe.parallel.tensor_parallel_size > 1


def install_line(found: Mapping[str, str]) -> Way:
    """What installs the trainer that fits these packages: there is no one for all SDKs, nor for all Pythons."""
    able = [(one, one.splitter) for one in zoo.toolchains().values() if one.splitter]  # oldest first
    version = release(found.get(facts.FRAMEWORK_PACKAGE, ""))[:2]
    older = [pair for pair in able if not version or release(pair[0].packages[facts.FRAMEWORK_PACKAGE])[:2] <= version]
    return trainer(*(older[-1] if older else able[0]))


def settings(recipe: Recipe, found: Mapping[str, str]) -> dict[str, Any]:
    """What the worker is told, where these packages are installed; nothing where it trains whole copies."""
    if not asked(recipe):
        return {}
    return {
        "split": True,
        "attention": attention(recipe),
        "lacks": list(LACKS.values()),
        "package": facts.SPLITTER,
        "install": install_line(found).run,
    }


def ingredients(recipe: Recipe) -> dict[str, Any]:
    """What the key says of it, beside `parallel` and the packages; nothing where whole copies are trained."""
    if not asked(recipe):
        return {}
    return {
        "trainer": {
            "name": facts.SPLITTER,
            "attention": attention(recipe),
            "sequence_parallel": sequence_parallel(recipe),
        }
    }


def packages(recipe: Recipe) -> tuple[str, ...]:
    """Packages whose versions shape the graphs of a split model, beside the toolchain's."""
    if not asked(recipe):
        return ()
    return facts.SPLIT_PACKAGES if recipe.training.lora is None else (*facts.SPLIT_PACKAGES, facts.LORA_PACKAGE)


def check_packages(recipe: Recipe, machine: NeuronHost) -> None:
    """Look whether what splits a model is there.

    Raises:
        CompilerUnavailableError: It is not, or is too old.
    """
    wanted = packages(recipe)
    field = f"parallel.{asked(recipe)}"
    found = {name: machine.packages[name] for name in wanted if name in machine.packages}
    missing = [name for name in wanted if name not in found or name in placeholders(found)]
    if missing and not machine.here:
        able = [name for name, one in zoo.toolchains().items() if all(package in one.packages for package in wanted)]
        raise CompilerUnavailableError(
            f"{field} needs {', '.join(missing)}, which the registry does not have for this toolchain",
            hint=f"choose --toolchain {' or '.join(able)}" if able else f"--set {_plain(asked(recipe))}",
        )
    if missing:
        raise _lacking(f"{', '.join(missing)} is not installed: {field} needs it", machine)
    version = found.get(facts.SPLITTER)
    if version and release(version) < release(facts.FIRST_SPLITTER):
        raise _lacking(
            f"{facts.SPLITTER} {public(version)} is too old: {field} needs {facts.FIRST_SPLITTER} or later", machine
        )


def _lacking(message: str, machine: NeuronHost) -> CompilerUnavailableError:
    line = install_line(machine.packages)
    return CompilerUnavailableError(message, cause=line.why, hint=line.run)


def check(recipe: Recipe, machine: NeuronHost) -> None:
    """Look at the layout and at all that goes with it, before anything is loaded.

    Raises:
        RecipeError: The machine, the model or the trainer cannot do it; the field is named.
    """
    if asked(recipe):
        _check_model(recipe)
        _check_training(recipe.training)
    _check_cores(recipe, machine)


def _check_model(recipe: Recipe) -> None:
    field = asked(recipe)
    said = f"parallel.{field} is {_word(getattr(recipe.parallel, field))}"
    able = f"optimum-neuron splits {_listed(facts.SPLIT_MODELS)} models, for {_listed(facts.SPLIT_TASKS)}"
    if recipe.task not in facts.SPLIT_TASKS:
        raise RecipeError(
            f"{said}, but {recipe.task} trains a full copy on each core", cause=able, hint=f"--set {_plain(field)}"
        )
    found = architecture.resolve(recipe)
    kind = found.model_type
    if kind not in facts.SPLIT_MODELS:
        raise RecipeError(
            f"{said}, but a {kind} model trains as a full copy on each core", cause=able, hint=f"--set {_plain(field)}"
        )
    config = found.whole
    stages, layers = recipe.parallel.pipeline_parallel_size, config.get("num_hidden_layers")
    if stages > 1 and not facts.SPLIT_MODELS[kind]:
        raise RecipeError(
            f"parallel.pipeline_parallel_size is {stages}, but optimum-neuron has no pipeline for {kind} models",
            hint=f"--set {_plain('pipeline_parallel_size')}; tensor_parallel_size splits them",
        )
    if isinstance(layers, int) and stages > layers:
        raise RecipeError(
            f"parallel.pipeline_parallel_size is {stages}, but the model has {layers} layers",
            hint=f"set parallel.pipeline_parallel_size to {layers} or less: each stage needs a layer",
        )
    _check_widths(recipe, config)


def _check_widths(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """Each core gets an equal part [ON: modeling_llama.py; key heads that are too few are repeated]."""
    size = recipe.parallel.tensor_parallel_size
    names = [*facts.SPLIT_WIDTHS, *([facts.VOCABULARY] if config["model_type"] in facts.SPLIT_VOCABULARIES else [])]
    widths = {f"the model's {name}": config.get(name) for name in names}
    widths["training.max_seq_length"] = recipe.training.max_seq_length
    for name, width in widths.items():
        if isinstance(width, int) and width % size:
            raise RecipeError(
                f"parallel.tensor_parallel_size is {size}, but {name} is {width}",
                cause="each core must get an equal part",
                hint=f"--set parallel.tensor_parallel_size={_divisor(size, width)}",
            )
    heads = config.get(facts.SHARED_HEADS)
    if isinstance(heads, int) and heads > 0 and heads * max(1, size // heads) % size:
        raise RecipeError(
            f"parallel.tensor_parallel_size is {size}, but the model's {facts.SHARED_HEADS} is {heads}",
            cause="one must be a multiple of the other",
            hint=f"--set parallel.tensor_parallel_size={_divisor(size, heads)}",
        )


def _check_training(training: Training) -> None:
    """What NeuronTrainer would refuse late, or take and not do [ON: trainers/transformers.py]."""
    if training.optim not in facts.SPLIT_OPTIMIZERS:
        raise RecipeError(
            f"training.optim is {training.optim}, which NeuronTrainer does not have",
            hint=f"--set training.optim={facts.SPLIT_OPTIMIZERS[0]}",
        )
    names = training.lora.target_modules if training.lora else ("",)
    if not names or "all-linear" in names:
        raise RecipeError(
            f"training.lora.target_modules {'is all-linear' if names else 'is empty'}: a split model needs names",
            cause="PEFT looks for its own kinds of layers, and finds none of them",
            hint="name them: training.lora.target_modules: [q_proj, k_proj, v_proj, o_proj]",
        )


def _check_cores(recipe: Recipe, machine: NeuronHost) -> None:
    layout, there, share = recipe.parallel, cores.of_run(machine, recipe), group(recipe)
    if not there:  # no device: it can still compile
        return
    left = cores.left_by(machine, recipe)
    kind = f"{left} leaves only these" if left else f"a node of {machine.instance or 'this kind'} has {there} cores"
    if share > there:
        name = "tensor_parallel_size" if layout.tensor_parallel_size > 1 else "pipeline_parallel_size"
        raise RecipeError(
            f"parallel.{name} is {getattr(layout, name)}, but {_there(there)}",
            cause=f"{share} cores share a model; {kind}",
            hint="lower it, or choose a larger instance",
        )
    copies = layout.data_parallel_size
    if copies == "auto" and there % share:
        raise RecipeError(
            f"{share} cores share a model, but there are {there}",
            cause=f"parallel.tensor_parallel_size x pipeline_parallel_size; {kind}",
            hint=f"--set parallel.data_parallel_size={there // share} leaves {there % share} of them idle",
        )
    if copies != "auto" and copies * share > there:
        raise RecipeError(
            f"parallel.data_parallel_size is {copies}, but {_there(there)}",
            cause=(f"{left} leaves only these" if left else f"on a node of {machine.instance or 'this kind'}")
            + (f"; {share} cores share a model" if share > 1 else ""),
            hint="--set parallel.data_parallel_size=auto; for more nodes, set parallel.nodes",
        )


def _there(number: int) -> str:
    return "there is 1 core" if number == 1 else f"there are {number} cores"


def _plain(field: str) -> str:
    return f"parallel.{field}={_word(getattr(PLAIN, field))}"


def _word(value: object) -> str:
    return str(value).lower()


def _listed(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else str(last)


def _divisor(size: int, width: int) -> int:
    """The largest size below that would do."""
    return next((number for number in range(min(size, width), 0, -1) if size % number == 0 and width % number == 0), 1)
